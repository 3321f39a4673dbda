"""An epoch's operations are found in its trace, and counted by kind."""

import dataclasses

import pytest

from experiments import profiling
from experiments.benchmark_cases import QUICK


def test_operations_are_counted_once_and_by_kind():
    def event(operation, start, seconds, **more):
        times = {"ts": 1e6 * start, "dur": 1e6 * seconds}
        return times | {"ph": "X", "args": {"hlo_op": operation}} | more

    events = [
        event("while.2", 0, 9),  # Holds the others.
        event("dot.3", 0, 2),
        event("ynn_fusion", 3, 1),
        event("bcsr_dot_general.1", 4, 0.1),  # Goes on till the next begins.
        event("gather_bitcast_fusion", 4.5, 0.3),
        event("add_select_fusion", 5, 0.1),
        event("dot.3", 6, 7, ph="M"),
        {"ph": "X", "ts": 7e6, "dur": 8e6, "name": "end: dot.3"},
    ]
    spent = profiling.by_kind(events)
    assert spent["matrix products"] == pytest.approx(3)
    assert spent["sparse products"] == pytest.approx(0.5)
    assert spent["gathers"] == pytest.approx(0.3)
    assert spent["arithmetic"] == pytest.approx(0.1)


def test_an_epoch_is_profiled():
    config = dataclasses.replace(QUICK.config, precompute=False)
    case = dataclasses.replace(QUICK, config=config)
    entry = profiling.measure(case, epochs=2, threads=1)
    assert entry["seconds"] > 0 and entry["limit"] > 0
    assert entry["shares"]["matrix products"] > 0
    assert entry["shares"]["sparse products"] > 0

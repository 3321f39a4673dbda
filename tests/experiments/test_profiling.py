"""An epoch's operations are found in its trace, and counted by kind."""

import pytest

from experiments import profiling
from experiments.benchmark_cases import QUICK


def test_operations_are_counted_once_and_by_kind():
    def event(operation, microseconds, **more):
        return {"ph": "X", "dur": microseconds, "args": {"hlo_op": operation}} | more

    events = [
        event("dot.3", 2e6),
        event("ynn_fusion", 1e6),
        event("bcsr_dot_general.1", 5e5),
        event("gather_bitcast_fusion", 3e5),
        event("add_select_fusion", 1e5),
        event("while.2", 9e6),  # Holds the others.
        event("dot.3", 7e6, ph="M"),
        {"ph": "X", "dur": 8e6, "name": "end: dot.3"},
    ]
    spent = profiling.by_kind(events)
    assert spent["matrix products"] == pytest.approx(3)
    assert spent["sums over neighbours"] == pytest.approx(0.5)
    assert spent["gathers"] == pytest.approx(0.3)
    assert spent["arithmetic"] == pytest.approx(0.1)


def test_an_epoch_is_profiled():
    entry = profiling.measure(QUICK, epochs=2, threads=1)
    assert entry["seconds"] > 0 and entry["limit"] > 0
    assert entry["shares"]["matrix products"] > 0
    assert entry["shares"]["sums over neighbours"] >= 0

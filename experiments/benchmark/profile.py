"""Profile a training epoch: seconds by kind of operation, from a trace.

Epochs of NIP-MEAN on the benchmark's cases run under `jax.profiler`, and the seconds of
XLA operations are summed by kind. With fan-outs, one sample of neighbours is replayed.
Sparse products are sums over neighbours and bags of words times weights; the time until
the next operation is counted as theirs, an upper bound. What is neither a product nor a
gather is arithmetic on whole arrays; the rest of the epoch is between operations.
Operations that overlap may sum to more than the epoch. Writes profile.json to WORKDIR.
"""

import gzip
import json
import pathlib
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from experiments.benchmark import cases, limits
from experiments.benchmark.cases import CASES, Case
from experiments.common import arguments

_SPARSE = "sparse products"
# Kinds by the name of an operation, first match. Containers ("") are not counted.
_KINDS = {
    "matrix products": r"^(dot|ynn|gemm|cublas|onednn)",
    _SPARSE: r"bcsr|segment|scatter",
    "gathers": r"gather",
    "": r"^(while|call|conditional)",
    "arithmetic": r"",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.benchmark.profile")
    arguments.add_counts(parser, epochs=5)
    return cases.main(
        parser,
        argv,
        CASES,
        lambda case, options: measure(case, options.epochs, options.threads),
        _describe,
        "profile.json",
    )


def _describe(entry: dict[str, Any]) -> str:
    parts = ", ".join(f"{kind} {share:.0%}" for kind, share in entry["shares"].items())
    limit = f"counted work at the machine's speed {entry['limit']:.0%}"
    return f"{entry['seconds']:.4f} s: {parts}; {limit}"


def measure(case: Case, epochs: int, threads: int) -> dict[str, Any]:
    """Return the seconds of an epoch, and the share of each kind of operation."""
    with cases.started(case, 1, threads) as (own, folder, known):
        (worker,), settings = own, known | {"resample": False}
        work = worker.ask("prepare", folder=folder, case=settings)["work"]
        worker.ask("epochs", count=1)
        machine = worker.ask("limits")
        seconds = worker.ask("trace", folder=folder, count=epochs)["seconds"]
        (trace,) = pathlib.Path(folder).rglob("*.trace.json.gz")
        spent = by_kind(json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"])
    total = sum(seconds)
    return {
        "seconds": total / epochs,
        "shares": {kind: spent[kind] / total for kind in _KINDS if kind},
        "limit": limits.least_seconds(work, machine) * epochs / total,
        "work": work,
        "machine": machine,
    }


def by_kind(events: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Return seconds of XLA operations by kind, from the events of a trace."""
    spent: dict[str, float] = dict.fromkeys(_KINDS, 0.0)
    done, last = 0.0, ""
    for event in sorted(events, key=lambda event: event.get("ts", 0)):
        operation = event.get("args", {}).get("hlo_op")
        if event.get("ph") != "X" or not operation:
            continue
        kind = next(k for k, named in _KINDS.items() if re.search(named, operation))
        spent[kind] += event["dur"] / 1e6
        if not kind:
            continue
        # The CPU's sparse kernel continues after its event, until the next one.
        if last == _SPARSE and event["ts"] > done:
            spent[_SPARSE] += (event["ts"] - done) / 1e6
        if event["ts"] + event["dur"] > done:
            done, last = event["ts"] + event["dur"], kind
    return spent


if __name__ == "__main__":
    sys.exit(main())

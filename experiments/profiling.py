"""Where the seconds of a training epoch go, by kind of operation, from a trace.

Epochs of NIP-MEAN on the benchmark's cases run under `jax.profiler`, and the seconds of
XLA's operations are summed by kind. With fan-outs one draw of neighbours is replayed.
Sparse products are sums over neighbours and bags of words times weights; the time from
one to the next operation counts as its own, an upper bound. What is neither a product
nor a gather is arithmetic on whole arrays; the rest of the epoch is between operations.
Operations that overlap may sum to more than the epoch. Writes profile.json to WORKDIR.
"""

import gzip
import json
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

from experiments import arguments, benchmark_jax, folders, limits
from experiments.benchmark_cases import CASES, Case, named
from experiments.turns import Worker

_MODULE = "experiments.profiling"
_SPARSE = "sparse products"
# By what an operation's name has, first match; containers count by what is in them.
_KINDS = {
    "matrix products": r"^(dot|ynn|gemm|cublas|onednn)",
    _SPARSE: r"bcsr|segment|scatter",
    "gathers": r"gather",
    "": r"^(while|call|conditional)",
    "arithmetic": r"",
}


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = arguments.parser(__doc__, _MODULE)
    parser.add_argument("--cases", type=named, help='such as "synthetic K=3"')
    parser.add_argument("--epochs", type=arguments.positive, default=5)
    parser.add_argument("--threads", type=arguments.positive, default=2)
    options = parser.parse_args(argv)
    found: dict[str, Any] = {}
    for case in options.cases or CASES:
        found[case.name] = entry = measure(case, options.epochs, options.threads)
        parts = ", ".join(f"{k} {v:.0%}" for k, v in entry["shares"].items())
        print(
            f"{case.name:<16} {entry['seconds']:.4f} s: {parts}; counted work at the "
            f"machine's speed {entry['limit']:.0%}",
            flush=True,
        )
        data = {"cases": found} | folders.provenance([_MODULE, *argv])
        folders.write_json(options.workdir / "profile.json", data)
    print(f"Written: {options.workdir}/profile.json")
    return 0


def measure(case: Case, epochs: int, threads: int) -> dict[str, Any]:
    """Seconds of an epoch, and shares of it by kind of operation."""
    graph = case.load()
    command = [sys.executable, "-m", "experiments.benchmark_jax"]
    with tempfile.TemporaryDirectory() as folder:
        benchmark_jax.store(graph, pathlib.Path(folder))
        told = case.told(graph.multilabel) | {"resample": False}
        worker = Worker([*command, "--threads", str(threads)], folders.ROOT, 900.0)
        try:
            work = worker.ask("prepare", folder=folder, case=told)["work"]
            worker.ask("epochs", count=1)
            machine = worker.ask("limits")
            seconds = worker.ask("trace", folder=folder, count=epochs)["seconds"]
        finally:
            worker.end()
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
    """Seconds of XLA's operations by kind, from the events of a trace."""
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
        # The CPU's sparse kernel goes on by itself after its event, to the next one.
        if last == _SPARSE and event["ts"] > done:
            spent[_SPARSE] += (event["ts"] - done) / 1e6
        if event["ts"] + event["dur"] > done:
            done, last = event["ts"] + event["dur"], kind
    return spent


if __name__ == "__main__":
    sys.exit(main())

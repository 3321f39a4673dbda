"""A training epoch with bfloat16 products, as a share of one with float32's.

Two processes take turns, on the benchmark's cases. A processor without bfloat16 units
converts back and forth: what this shows there is the price, not the gain. Writes
precision.json to WORKDIR.
"""

import pathlib
import statistics
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from experiments import arguments, benchmark_jax, benchmark_sums, folders
from experiments.benchmark_cases import CASES, Case, named
from experiments.turns import Worker

_MODULE = "experiments.precision"
_PRECISIONS = ("float32", "bfloat16")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = arguments.parser(__doc__, _MODULE)
    parser.add_argument("--cases", type=named, help='such as "cora K=2"')
    parser.add_argument("--rounds", type=arguments.positive, default=7)
    parser.add_argument("--threads", type=arguments.positive, default=2)
    options = parser.parse_args(argv)
    found = {}
    for case in options.cases or [case for case in CASES if not case.extended]:
        found[case.name] = entry = _measure(case, options.rounds, options.threads)
        ratio, peaks = entry["ratio"], entry["peak_gb"]
        print(
            f"{case.name:<16} bfloat16 / float32: {ratio['median']:.2f} "
            f"({ratio['least']:.2f}-{ratio['most']:.2f}); "
            f"peak {peaks['bfloat16']:.2f} and {peaks['float32']:.2f} GB; "
            f"loss {entry['loss']['bfloat16']:.4f} and {entry['loss']['float32']:.4f}",
            flush=True,
        )
        data = {"cases": found} | folders.provenance([_MODULE, *argv])
        folders.write_json(options.workdir / "precision.json", data)
    print(f"Written: {options.workdir}/precision.json")
    return 0


def _measure(case: Case, rounds: int, threads: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "experiments.benchmark_jax"]
    command += ["--threads", str(threads)]
    workers = {name: Worker(command, folders.ROOT, 900.0) for name in _PRECISIONS}
    graph = case.load()
    told = case.told(graph.multilabel)
    turns: dict[str, list[float]] = {name: [] for name in workers}
    with tempfile.TemporaryDirectory() as folder:
        benchmark_jax.store(graph, pathlib.Path(folder))
        del graph
        try:
            prepared = {
                name: worker.ask(
                    "prepare", folder=folder, case=told | {"precision": name}
                )
                for name, worker in workers.items()
            }
            for _ in range(rounds):
                last = {
                    name: worker.ask("epochs", count=3)
                    for name, worker in workers.items()
                }
                for name, reply in last.items():
                    turns[name].append(statistics.median(reply["seconds"]))
        finally:
            for worker in workers.values():
                worker.end()
    wide, narrow = (turns[name] for name in _PRECISIONS)
    return {
        "ratio": benchmark_sums.spread(
            [b / a for a, b in zip(wide, narrow, strict=True)]
        ),
        "seconds": {name: benchmark_sums.spread(each) for name, each in turns.items()},
        "peak_gb": {name: last[name]["peak_gb"] for name in workers},
        "loss": {name: prepared[name]["loss"] for name in workers},
    }


if __name__ == "__main__":
    sys.exit(main())

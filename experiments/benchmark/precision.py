"""Compare a training epoch with bfloat16 products with one with float32 products.

Two processes take turns, on the benchmark's cases. A processor without bfloat16 units
converts back and forth, so this shows the cost there, not the gain. Writes
precision.json to WORKDIR.
"""

import statistics
import sys
from collections.abc import Sequence
from typing import Any

from experiments.benchmark import cases, report
from experiments.benchmark.cases import CASES, Case
from experiments.common import arguments

_PRECISIONS = ("float32", "bfloat16")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.benchmark.precision")
    arguments.add_counts(parser, rounds=7)
    return cases.main(
        parser,
        argv,
        [case for case in CASES if not case.extended],
        lambda case, options: measure(case, options.rounds, options.threads),
        _describe,
        "precision.json",
    )


def _describe(entry: dict[str, Any]) -> str:
    ratio, peaks = entry["ratio"], entry["peak_gb"]
    return (
        f"bfloat16 / float32: {ratio['median']:.2f} "
        f"({ratio['least']:.2f}-{ratio['most']:.2f}); "
        f"peak {peaks['bfloat16']:.2f} and {peaks['float32']:.2f} GB; "
        f"loss {entry['loss']['bfloat16']:.4f} and {entry['loss']['float32']:.4f}"
    )


def measure(case: Case, rounds: int, threads: int) -> dict[str, Any]:
    """Return seconds, peak memory and loss of both precisions, and their ratio."""
    turns: dict[str, list[float]] = {name: [] for name in _PRECISIONS}
    with cases.started(case, len(_PRECISIONS), threads) as (own, folder, settings):
        workers = dict(zip(_PRECISIONS, own, strict=True))
        prepared = {
            name: worker.ask(
                "prepare", folder=folder, case=settings | {"precision": name}
            )
            for name, worker in workers.items()
        }
        for _ in range(rounds):
            last = {
                name: worker.ask("epochs", count=3) for name, worker in workers.items()
            }
            for name, reply in last.items():
                turns[name].append(statistics.median(reply["seconds"]))
    wide, narrow = (turns[name] for name in _PRECISIONS)
    return {
        "ratio": report.spread([b / a for a, b in zip(wide, narrow, strict=True)]),
        "seconds": {name: report.spread(each) for name, each in turns.items()},
        "peak_gb": {name: last[name]["peak_gb"] for name in workers},
        "loss": {name: prepared[name]["loss"] for name in workers},
    }


if __name__ == "__main__":
    sys.exit(main())

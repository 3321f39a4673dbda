"""A training epoch with bfloat16 products, as a share of one with float32's.

Two processes take turns, on the benchmark's cases. A processor without bfloat16 units
converts back and forth: what this shows there is the price, not the gain. Writes
precision.json to WORKDIR.
"""

import statistics
import sys
from collections.abc import Sequence
from typing import Any

from experiments import arguments, benchmark_sums, case_by_case
from experiments.benchmark_cases import CASES, Case

_MODULE = "experiments.precision"
_PRECISIONS = ("float32", "bfloat16")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = case_by_case.parser(__doc__, _MODULE)
    parser.add_argument("--rounds", type=arguments.positive, default=7)
    options = parser.parse_args(argv)
    return case_by_case.report(
        options.cases or [case for case in CASES if not case.extended],
        lambda case: _measure(case, options.rounds, options.threads),
        _said,
        options.workdir / "precision.json",
        [_MODULE, *argv],
    )


def _said(entry: dict[str, Any]) -> str:
    ratio, peaks = entry["ratio"], entry["peak_gb"]
    return (
        f"bfloat16 / float32: {ratio['median']:.2f} "
        f"({ratio['least']:.2f}-{ratio['most']:.2f}); "
        f"peak {peaks['bfloat16']:.2f} and {peaks['float32']:.2f} GB; "
        f"loss {entry['loss']['bfloat16']:.4f} and {entry['loss']['float32']:.4f}"
    )


def _measure(case: Case, rounds: int, threads: int) -> dict[str, Any]:
    turns: dict[str, list[float]] = {name: [] for name in _PRECISIONS}
    with case_by_case.started(case, len(_PRECISIONS), threads) as ours:
        workers = dict(zip(_PRECISIONS, ours.workers, strict=True))
        prepared = {
            name: worker.ask(
                "prepare", folder=ours.folder, case=ours.told | {"precision": name}
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
        "ratio": benchmark_sums.spread(
            [b / a for a, b in zip(wide, narrow, strict=True)]
        ),
        "seconds": {name: benchmark_sums.spread(each) for name, each in turns.items()},
        "peak_gb": {name: last[name]["peak_gb"] for name in workers},
        "loss": {name: prepared[name]["loss"] for name in workers},
    }


if __name__ == "__main__":
    sys.exit(main())

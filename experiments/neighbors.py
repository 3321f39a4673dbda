"""Figure 2: F1 of NIP-MEAN against the percentage of neighbours considered.

Every node reads this share of its neighbours, at least one, sampled once. Writes
neighbors.png and neighbors.json to WORKDIR/neighbors, and saves cells there.
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from experiments import paper
from experiments.common import arguments, drawing, runner, score_table
from experiments.common.cells import Cell

_MODEL = "nip-mean"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.neighbors")
    about = "comma-separated (default: the citation datasets on this machine)"
    parser.option("dataset", arguments.dataset_names, help=about)
    about = "percentages of neighbours"
    parser.option("percentages", _percentages, (10, 25, 50, 75, 100), about)
    arguments.add_run_options(parser, (_MODEL,))
    options = parser.parse_args(argv)
    names = options.dataset or [
        name
        for name in arguments.available()
        if paper.DATASETS[name].network == "citation"
    ]
    if not names:
        parser.error(f"no citation dataset is on this machine; {arguments.FETCH}")
    found = {}
    for name in names:
        for model in options.models:
            label = name if options.models == (_MODEL,) else f"{name}, {model}"
            found[label] = _curve(name, model, options)
            scores = "  ".join(
                f"{percent}%: {score_table.plus_minus(entry)}"
                for percent, entry in found[label].items()
            )
            print(f"{label:<12} {scores}", flush=True)
    figure = drawing.new(6.4, 4.0)
    drawing.curves(
        figure.subplots(),
        {
            label: ([int(p) for p in curve], [e["mean"] for e in curve.values()])
            for label, curve in found.items()
        },
        errors={label: [e["std"] for e in c.values()] for label, c in found.items()},
        xlabel="neighbours considered, %",
        ylabel="micro-F1, %",
        title=f"{', '.join(options.models)} by share of neighbours",
    )
    data = {"models": list(options.models), "micro_f1": found}
    folder = options.workdir / "neighbors"
    drawing.save_results(folder, "neighbors", data, figure, options.invocation)
    return 0


def _percentages(text: str) -> tuple[int, ...]:
    numbers = arguments.numbers(text)
    if numbers[-1] > 100:
        raise argparse.ArgumentTypeError(f"{numbers[-1]}% is more than 100%")
    return numbers


def _curve(dataset: str, model: str, options: argparse.Namespace) -> dict[str, Any]:
    config = arguments.limit_epochs(paper.config_for(dataset), options.max_epochs)
    cells = {
        percent: [
            Cell(
                dataset,
                model,
                fold,
                dataclasses.replace(config, neighbor_fraction=percent / 100),
                options.seed,
            )
            for fold in options.folds
        ]
        for percent in options.percentages
    }
    records = runner.run_cells(
        [cell for some in cells.values() for cell in some],
        options.workdir / "neighbors" / dataset / "cells",
        fresh=options.fresh,
        workers=options.workers,
    )
    return {
        str(percent): score_table.summarise(
            [records[cell]["scores"]["test"]["micro_f1"] for cell in some]
        )
        for percent, some in cells.items()
        if all(cell in records for cell in some)
    }


if __name__ == "__main__":
    sys.exit(main())

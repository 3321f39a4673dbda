"""F1 by iteration of the iterative models: what each pass of label summaries adds.

Uses and saves the same cells as experiments.reproduce. Writes iterations.png and
iterations.json to WORKDIR/iterations.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments import paper
from experiments.common import arguments, drawing, runner
from experiments.common.score_table import by_iteration
from experiments.reproduce import cell_of
from hopf_jax.kernels import MODELS


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.iterations")
    about = "comma-separated (default: the paper's on this machine)"
    parser.option("dataset", arguments.dataset_names, help=about)
    arguments.add_run_options(parser, tuple(paper.REDDIT_ITERATIONS))
    options = parser.parse_args(argv)
    once = [model for model in options.models if not MODELS[model].iterative]
    if once:
        parser.error(f"{', '.join(once)} read no label summaries and do not iterate")
    names = options.dataset or arguments.available()
    if not names:
        parser.error(f"no dataset of the paper is on this machine; {arguments.FETCH}")
    found: dict[str, Any] = {}
    for name in names:
        found[name] = _dataset(name, options)
        for model, entry in found[name].items():
            scores = " ".join(f"{value:.1f}" for value in entry["micro_f1"])
            print(f"{name:<12} {model:<12} {scores}", flush=True)
    data = {
        "datasets": found,
        "paper": {"reddit, one fold": dict(paper.REDDIT_ITERATIONS)},
        "authors_program": {
            name: dict(rows)
            for name, rows in paper.AUTHORS_PROGRAM_ITERATIONS.items()
            if name in found
        },
    }
    folder = options.workdir / "iterations"
    drawing.save_results(folder, "iterations", data, _draw(found), options.invocation)
    return 0


def _dataset(name: str, options: argparse.Namespace) -> dict[str, Any]:
    cells = {
        model: [cell_of(name, model, fold, None, options) for fold in options.folds]
        for model in options.models
    }
    records = runner.run_cells(
        [cell for some in cells.values() for cell in some],
        options.workdir / name / "cells",
        fresh=options.fresh,
        workers=options.workers,
    )
    result = {}
    for model, some in cells.items():
        own = [records[cell] for cell in some if cell in records]
        if own:
            result[model] = {
                "micro_f1": by_iteration(own, "test", "micro_f1"),
                "macro_f1": by_iteration(own, "test", "macro_f1"),
                "validation_micro_f1": by_iteration(own, "validation", "micro_f1"),
                "std": by_iteration(own, "test", "micro_f1", np.std),
                "reported_iteration": [record["iteration"] for record in own],
                "folds": list(options.folds),
            }
    return result


def _draw(found: dict[str, Any]) -> Any:
    shown = {name: entry for name, entry in found.items() if entry}
    columns = min(3, max(1, len(shown)))
    rows = -(-max(1, len(shown)) // columns)
    figure = drawing.new(4.2 * columns + 0.6, 3.3 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (name, entry) in zip(panels, shown.items(), strict=False):
        drawing.iterations(
            axes,
            {model: each["micro_f1"] for model, each in entry.items()},
            name,
            name,
            errors={model: each["std"] for model, each in entry.items()},
        )
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    return figure


if __name__ == "__main__":
    sys.exit(main())

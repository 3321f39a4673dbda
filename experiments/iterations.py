"""F1 by iteration of the iterative models: what each pass of label summaries adds.

Uses, and keeps, the same cells as experiments.reproduce. Writes iterations.png and
iterations.json to WORKDIR/iterations.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments import arguments, drawing, folders, paper, running, tables
from experiments.reproduce import cell_of
from hopf_jax.kernels import MODELS

_MODULE = "experiments.iterations"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = arguments.parser(__doc__, _MODULE)
    parser.add_argument("--dataset", type=arguments.dataset_names, default=None)
    arguments.add_run_options(parser, tuple(paper.REDDIT_ITERATIONS))
    options = parser.parse_args(argv)
    once = [model for model in options.models if not MODELS[model].iterative]
    if once:
        parser.error(f"{', '.join(once)} read no label summaries: they do not iterate")
    names = options.dataset or arguments.on_hand()
    if not names:
        parser.error(f"no dataset of the paper is on hand; {arguments.FETCH}")
    found: dict[str, Any] = {}
    for name in names:
        found[name] = _dataset(name, options)
        for model, entry in found[name].items():
            said = " ".join(f"{value:.1f}" for value in entry["micro_f1"])
            print(f"{name:<12} {model:<12} {said}", flush=True)
    folder = options.workdir / "iterations"
    data = {
        "datasets": found,
        "paper": {"reddit, one fold": dict(paper.REDDIT_ITERATIONS)},
        "authors_program": {
            name: dict(rows)
            for name, rows in paper.AUTHORS_PROGRAM_ITERATIONS.items()
            if name in found
        },
    }
    provenance = folders.provenance([_MODULE, *argv])
    folders.write_json(folder / "iterations.json", data | provenance)
    drawing.save(_draw(found), folder / "iterations.png")
    print(f"Written: {folder}/iterations.json, iterations.png")
    return 0


def _dataset(name: str, options: Any) -> dict[str, Any]:
    cells = {
        model: [cell_of(name, model, fold, None, options) for fold in options.folds]
        for model in options.models
    }
    records = running.run_cells(
        [cell for some in cells.values() for cell in some],
        options.workdir / name / "cells",
        fresh=options.fresh,
        workers=options.workers,
    )
    result = {}
    for model, some in cells.items():
        of = [records[cell] for cell in some if cell in records]
        if not of:
            continue
        result[model] = {
            "micro_f1": tables.by_iteration(of, "test", "micro_f1"),
            "macro_f1": tables.by_iteration(of, "test", "macro_f1"),
            "validation_micro_f1": tables.by_iteration(of, "validation", "micro_f1"),
            "std": _spread(of),
            "reported_iteration": [record["iteration"] for record in of],
            "folds": list(options.folds),
        }
    return result


def _spread(records: list[Any]) -> list[float]:
    count = min(len(record["iterations"]) for record in records)
    scores = [
        [r["iterations"][t]["scores"]["test"]["micro_f1"] for r in records]
        for t in range(count)
    ]
    return [round(float(np.std(each)), 3) for each in scores]


def _draw(found: dict[str, Any]) -> Any:
    shown = {name: entry for name, entry in found.items() if entry}
    columns = min(3, max(1, len(shown)))
    rows = -(-max(1, len(shown)) // columns)
    figure = drawing.new(4.2 * columns + 0.6, 3.3 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (name, entry) in zip(panels, shown.items(), strict=False):
        drawing.iteration_lines(
            axes,
            {model: each["micro_f1"] for model, each in entry.items()},
            name,
            references={
                f"{model} (authors' program)": values
                for model, values in paper.AUTHORS_PROGRAM_ITERATIONS.get(
                    name, {}
                ).items()
                if model in entry
            },
            errors={model: each["std"] for model, each in entry.items()},
        )
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    return figure


if __name__ == "__main__":
    sys.exit(main())

"""F1 by iteration for each kind of label summaries, and the leak of each.

The leak is the F1 of neighbours' label summaries as a guess of the labels of training
nodes, beside the same for test nodes, who cannot have been memorised. Uses and saves
the same cells as experiments.reproduce. Writes iterations.png, leak.png and
iterations.json to WORKDIR/iterations.
"""

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments import paper
from experiments.choosing import SUMMARIES, kinds_named
from experiments.common import arguments, drawing, output, runner
from experiments.common.score_table import by_iteration, leak_by_iteration
from experiments.reproduce import cell_of
from hopf_jax.kernels import MODELS

KINDS = ("as printed", "masked, warm", "cross-fitted, 2, warm")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.iterations")
    about = "comma-separated (default: the paper's on this machine)"
    parser.option("dataset", arguments.dataset_names, help=about)
    arguments.add_run_options(parser, ("i-nip-mean",))
    about = "comma-separated numbers of kinds of summaries, as in experiments.choosing"
    parser.option("kinds", kinds_named, KINDS, about)
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
        for line, entry in found[name].items():
            scores = " ".join(f"{value:.1f}" for value in entry["micro_f1"])
            leak = ", ".join(
                f"{hops} hop{'s' * (hops != '1')} {each['train'][-1]:.1f} - "
                f"{each['test'][-1]:.1f}"
                for hops, each in entry["leak"].items()
            )
            print(f"{name:<12} {line:<30} {scores}  leak {leak}", flush=True)
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
    drawing.save(_draw_leaks(found), folder / "leak.png")
    output.log(f"Written: {folder}/leak.png")
    return 0


def _dataset(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what was found, by model and kind of summaries."""
    cells = {}
    for model in options.models:
        for kind in options.kinds:
            printed = [
                cell_of(name, model, fold, None, options) for fold in options.folds
            ]
            cells[f"{model}, {kind}"] = [
                dataclasses.replace(
                    cell, config=dataclasses.replace(cell.config, **SUMMARIES[kind])
                )
                for cell in printed
            ]
    records = runner.run_cells(
        [cell for some in cells.values() for cell in some],
        options.workdir / name / "cells",
        fresh=options.fresh,
        workers=options.workers,
    )
    result = {}
    for line, some in cells.items():
        own = [records[cell] for cell in some if cell in records]
        if own:
            result[line] = {
                "micro_f1": by_iteration(own, "test", "micro_f1"),
                "macro_f1": by_iteration(own, "test", "macro_f1"),
                "train_micro_f1": by_iteration(own, "train", "micro_f1"),
                "validation_micro_f1": by_iteration(own, "validation", "micro_f1"),
                "std": by_iteration(own, "test", "micro_f1", np.std),
                "epochs": np.mean([_epochs(r) for r in own], axis=0).tolist(),
                "reported_iteration": [record["iteration"] for record in own],
                "reported_micro_f1": [r["scores"]["test"]["micro_f1"] for r in own],
                "leak": leak_by_iteration(own),
                "seconds": float(np.mean([record["seconds"] for record in own])),
                "folds": list(options.folds),
            }
    return result


def _epochs(record: Mapping[str, Any]) -> list[int]:
    return [each["epochs"] for each in record["iterations"]]


def _panels(count: int) -> Any:
    columns = min(3, max(1, count))
    rows = -(-max(1, count) // columns)
    figure = drawing.new(4.2 * columns + 0.6, 3.3 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in panels[count:]:
        axes.set_visible(False)
    return figure, panels


def _draw(found: dict[str, Any]) -> Any:
    shown = {name: entry for name, entry in found.items() if entry}
    figure, panels = _panels(len(shown))
    for axes, (name, entry) in zip(panels, shown.items(), strict=False):
        drawing.iterations(
            axes,
            {line: each["micro_f1"] for line, each in entry.items()},
            name,
            name,
            errors={line: each["std"] for line, each in entry.items()},
        )
    return figure


def _draw_leaks(found: dict[str, Any]) -> Any:
    """Draw what summaries give away at the last iteration, by kind and hops."""
    shown = {name: entry for name, entry in found.items() if entry}
    figure, panels = _panels(len(shown))
    for axes, (name, entry) in zip(panels, shown.items(), strict=False):
        bars = {
            f"{line.partition(', ')[2]}\n{hops} hop{'s' * (hops != '1')}": each
            for line, kinds in entry.items()
            for hops, each in kinds["leak"].items()
        }
        places = np.arange(len(bars))
        for i, nodes in enumerate(("train", "test")):
            heights = [each[nodes][-1] for each in bars.values()]
            at, colour = places + 0.4 * i - 0.2, drawing.COLOURS[i]
            axes.bar(at, heights, 0.4, label=f"{nodes} nodes", color=colour)
        axes.set_xticks(places, list(bars), fontsize="x-small", rotation=45)
        axes.set(title=name, ylabel="F1 of summaries as a guess, %")
        drawing.tidy(axes)
    if shown:
        panels[0].legend(frameon=False, fontsize="small")
    return figure


if __name__ == "__main__":
    sys.exit(main())

"""Table 3: train every model on the folds of a dataset, beside the paper's figures.

Records of finished cells (one model on one fold) and checkpoints of unfinished ones are
saved in WORKDIR/DATASET/cells: a run that was stopped resumes, and --fresh starts over.
Iterative models are trained twice: as printed, and without the echo of own labels.
Writes table.json, report.md and report.html to WORKDIR/DATASET; with several datasets
also WORKDIR/all, with aggregates over them.
"""

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tqdm.std import tqdm

from experiments import paper
from experiments.common import (
    aggregates,
    arguments,
    output,
    report,
    run_logging,
    runner,
    score_table,
)
from experiments.common.cells import Cell, Record
from experiments.common.score_table import by_iteration
from hopf_jax.datasets import DatasetError, load_dataset
from hopf_jax.kernels import MODELS


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        for name in options.dataset:
            load_dataset(name, fold=options.folds[0])  # Fetched here, not in workers.
    except (DatasetError, ValueError) as error:
        parser.error(str(error))
    provenance = output.provenance(options.invocation)
    done = {name: reproduce(name, options, provenance) for name in options.dataset}
    if len(done) > 1:
        _aggregate(done, options, provenance)
    short = [
        f"{name} {model}: {verdict}"
        for name, table in done.items()
        for model, entry in table["models"].items()
        if "short" in (verdict := score_table.verdict(entry))
    ]
    if options.check and short:
        output.log("Below the goal: " + "; ".join(short) + ".")
        return 1
    return 1 if any(table["failures"] for table in done.values()) else 0


def _parser() -> arguments.Parser:
    parser = arguments.parser(__doc__, "experiments.reproduce")
    about = "comma-separated names, or all: the paper's on this machine"
    parser.option("dataset", arguments.dataset_names, help=about, required=True)
    arguments.add_run_options(parser)
    about = "a number; or auto, or a list, to choose from by validation F1 (default: "
    parser.option("hops", _hops, help=f"{about}the paper's number for the dataset)")
    run_logging.add_options(parser)
    parser.flag(
        "together",
        "train the folds of a model in one program where possible, for accelerators; "
        "these are separate cells, as numbers differ by rounding",
    )
    parser.flag("check", "exit with 1 if a cell is below its goal")
    return parser


def _hops(text: str) -> str | tuple[int, ...]:
    return text if text == "auto" else arguments.numbers(text)


def reproduce(
    dataset: str, options: argparse.Namespace, provenance: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the table of a dataset; print it row by row and write it."""
    folder = options.workdir / dataset
    plan = {
        model: _candidates(dataset, model, options.hops) for model in options.models
    }
    together = options.folds if options.together else ()
    cells = {
        (model, hops): [
            cell_of(dataset, model, fold, hops, options, together)
            for fold in options.folds
        ]
        for model, candidates in plan.items()
        for hops in candidates
    }
    echoless = {
        key: [dataclasses.replace(c, config=paper.without_echo(c.config)) for c in some]
        for key, some in cells.items()
        if MODELS[key[0]].iterative
    }
    records: dict[Cell, Record] = {}
    failures: list[str] = []
    entries: dict[str, Any] = {}
    tqdm.write(f"\n{dataset}: micro-F1 in percent, mean ± std of folds")
    tqdm.write(score_table.header())

    def on_done(cell: Cell, record: Record | None, problem: str) -> None:
        if record is None:
            failures.append(f"{cell.model} fold {cell.fold}: {problem}")
            tqdm.write(f"FAILED {dataset} {failures[-1]}", file=sys.stderr)
            return
        records[cell] = record
        model = cell.model
        both = [
            [some.get((model, h), []) for h in plan[model]]
            for some in (cells, echoless)
        ]
        if all(c in records for kind in both for some in kind for c in some):
            entries[model] = _entry(dataset, model, plan[model], cells, records)
            entries[model]["without_echo"] = _without_echo(
                [records[c] for c in echoless.get((model, entries[model]["hops"]), [])]
            )
            tqdm.write(score_table.line(model, entries[model]))

    runner.run_cells(
        [cell for some in (*cells.values(), *echoless.values()) for cell in some],
        folder / "cells",
        fresh=options.fresh,
        workers=options.workers,
        on_done=on_done,
        log=run_logging.settings(options),
    )
    table = {
        "dataset": dataset,
        "models": {model: entries[model] for model in plan if model in entries},
        "seed": options.seed,
        "folds": list(options.folds),
        "settings": dataclasses.asdict(_config(dataset, None, options)),
        "failures": failures,
        "total_seconds": round(sum(record["seconds"] for record in records.values())),
        "peak_mb": max((record["peak_mb"] for record in records.values()), default=0),
        **provenance,
    }
    chosen = {
        model: [records[c] for c in cells[model, entry["hops"]]]
        for model, entry in table["models"].items()
    }
    output.write_json(folder / "table.json", table)
    report.write(folder, table, chosen)
    tqdm.write(f"Written: {folder}/table.json, report.md, report.html")
    return table


def cell_of(
    dataset: str,
    model: str,
    fold: int,
    hops: int | None,
    options: argparse.Namespace,
    together: tuple[int, ...] = (),
) -> Cell:
    """Return the cell of a model and fold with the paper's settings."""
    config = _config(dataset, hops, options)
    return Cell(dataset, model, fold, config, options.seed, together=together)


def _config(dataset: str, hops: int | None, options: argparse.Namespace) -> Any:
    return arguments.limit_epochs(paper.config_for(dataset, hops), options.max_epochs)


def _candidates(
    dataset: str, model: str, hops: str | tuple[int, ...] | None
) -> tuple[int, ...]:
    """Return the numbers of hops to try; the best on validation nodes is reported."""
    papers = paper.config_for(dataset).num_hops
    if hops is None:
        return (papers,)
    wanted = tuple(range(1, papers + 2)) if isinstance(hops, str) else hops
    kernel = MODELS[model]
    # Without repetitions: a kernel with a fixed depth gives the same net for all.
    return tuple({kernel.num_layers(h): h for h in reversed(wanted)}.values())[::-1]


def choose_hops(validation: Mapping[int, Sequence[Record]]) -> int:
    """Return the number of hops with the best mean validation micro + macro F1.

    Ties go to the fewest hops.
    """

    def merit(hops: int) -> float:
        scores = [record["scores"]["validation"] for record in validation[hops]]
        total = sum(score["micro_f1"] + score["macro_f1"] for score in scores)
        return round(total / len(scores), 9)

    return min(validation, key=lambda hops: (-merit(hops), hops))


def _validation_means(records: Sequence[Record]) -> dict[str, float]:
    scores = [record["scores"]["validation"] for record in records]
    metrics = ("micro_f1", "macro_f1")
    return {m: round(sum(s[m] for s in scores) / len(scores), 3) for m in metrics}


def _entry(
    dataset: str,
    model: str,
    candidates: Sequence[int],
    cells: Mapping[tuple[str, int], Sequence[Cell]],
    records: Mapping[Cell, Record],
) -> dict[str, Any]:
    found = {hops: [records[c] for c in cells[model, hops]] for hops in candidates}
    hops = choose_hops(found)
    entry = score_table.row(model, dataset, cells[model, hops], found[hops])
    if len(candidates) > 1:
        entry["hops_tried"] = {
            str(h): score_table.summarise(
                [record["scores"]["test"]["micro_f1"] for record in found[h]]
            )
            | {"validation": _validation_means(found[h])}
            for h in candidates
        }
    return entry


def _without_echo(records: Sequence[Record]) -> dict[str, Any] | None:
    """Return the scores of an iterative model with the library's label summaries."""
    if not records:
        return None
    scores = [record["scores"]["test"] for record in records]
    return {
        "micro_f1": score_table.summarise([each["micro_f1"] for each in scores]),
        "macro_f1": score_table.summarise([each["macro_f1"] for each in scores]),
        "iterations_micro_f1": by_iteration(records, "test", "micro_f1"),
        "seconds": round(sum(r["seconds"] for r in records) / len(records), 2),
    }


def _aggregate(
    done: Mapping[str, Mapping[str, Any]],
    options: argparse.Namespace,
    provenance: Mapping[str, Any],
) -> None:
    folder = options.workdir / "all"
    summary = aggregates.over(done) | dict(provenance)
    output.write_json(folder / "table.json", summary)
    tqdm.write("\n" + report.write_aggregate(folder, summary))
    tqdm.write(f"Written: {folder}/table.json, report.md, report.html")


if __name__ == "__main__":
    sys.exit(main())

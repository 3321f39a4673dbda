"""Table 4: train on some tissues, predict on tissues that were never seen.

Trains on 20 tissues of the human dataset, stops and chooses by 2 others, and replays
the iterations on 2 new ones, which training never reads. Without the original labels
(human), human-go2022 is used; its labels are not the paper's, and the output says so.
Iterations stop at epoch 30, as gs-lstm is slow; --max-epochs 2000 is the paper's limit.
Writes inductive.png, inductive.json and report.md to WORKDIR/inductive, and saves cells
there.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from tqdm.std import tqdm

from experiments import paper
from experiments.common import arguments, drawing, output, runner, score_table
from experiments.common.cells import Cell, Record
from hopf_jax import Config
from hopf_jax.datasets import DATASETS, DatasetError, find, load_dataset

_OTHER_LABELS = (
    "These labels are not the paper's: human-go2022 has the paper's graph, features "
    "and tissues, but labels rebuilt from annotations of 2022. The figures cannot be "
    "compared with Table 4; only the order of the models may."
)
_MAX_EPOCHS = 30
# The slowest start first, so that no core waits for them at the end.
_FIRST = ("gs-lstm", "i-nip-mean", "gs-max")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.inductive")
    about = "(default: human if its files exist, else human-go2022)"
    known = [name for name, row in DATASETS.items() if row.inductive]
    parser.option("dataset", str, help=about, choices=known)
    arguments.add_run_options(
        parser, tuple(paper.INDUCTIVE), several_folds=False, max_epochs=_MAX_EPOCHS
    )
    parser.option("hops", arguments.positive, help="(default: the paper's, 4)")
    parser.option("batch-size", arguments.positive, help="(default: the paper's, 512)")
    options = parser.parse_args(argv)
    original = "human" if find(DATASETS["human"]) is not None else "human-go2022"
    name = options.dataset or original
    try:
        load_dataset(name, split="inductive")
    except (DatasetError, ValueError) as error:
        parser.error(str(error))
    compares = name in paper.DATASETS
    print(f"{name}: micro-F1 in percent on tissues not seen in training")
    if not compares:
        print(_OTHER_LABELS)
    config = _config(name, options)
    print(_epochs(config))
    entries: dict[str, Any] = {}
    failures: list[str] = []

    def on_done(cell: Cell, record: Record | None, problem: str) -> None:
        if record is None:
            failures.append(f"{cell.model}: {problem}")
            tqdm.write(f"FAILED {failures[-1]}", file=sys.stderr)
            return
        published = paper.INDUCTIVE.get(cell.model) if compares else None
        entry = score_table.row(cell.model, cell.dataset, [cell], [record])
        entry |= score_table.beside_paper(entry["micro_f1"], published)
        entries[cell.model] = entry = entry | {"authors_program": None}
        tqdm.write(score_table.line(cell.model, entry))

    tqdm.write(score_table.header())
    runner.run_cells(
        [
            Cell(name, model, 1, config, options.seed, split="inductive")
            for model in sorted(options.models, key=lambda m: m not in _FIRST)
        ],
        options.workdir / "inductive" / name / "cells",
        fresh=options.fresh,
        workers=options.workers,
        on_done=on_done,
    )
    _write(name, options, entries, failures)
    return 1 if failures else 0


def _config(name: str, options: Any) -> Config:
    config = paper.config_for(name, options.hops)
    changes = {"max_epochs": options.max_epochs, "batch_size": options.batch_size}
    given = {key: value for key, value in changes.items() if value is not None}
    return dataclasses.replace(config, **given)


def _epochs(config: Config) -> str:
    """Describe when training stops."""
    if config.max_epochs >= Config.max_epochs:
        return "Training stops by the validation tissues alone."
    return (
        f"Every iteration stops at epoch {config.max_epochs}, whether or not it has "
        "converged: models are compared by what they learn until then. --max-epochs "
        f"{Config.max_epochs} is the paper's rule."
    )


def _write(
    name: str, options: Any, entries: dict[str, Any], failures: list[str]
) -> None:
    folder = options.workdir / "inductive"
    models = {model: entries[model] for model in options.models if model in entries}
    compares = name in paper.DATASETS
    data = {
        "dataset": name,
        "labels_are_the_papers": compares,
        "models": models,
        "paper": dict(paper.INDUCTIVE),
        "settings": dataclasses.asdict(_config(name, options)),
        "failures": failures,
    }
    output.write_results(folder / "inductive.json", data, options.invocation)
    if not models:
        return
    lines = [f"# {name}: tissues not seen in training", ""]
    if not compares:
        lines += [f"**{_OTHER_LABELS}**", ""]
    lines += [_epochs(_config(name, options)), ""]
    lines += [score_table.markdown(models), "", "![micro-F1](inductive.png)", ""]
    output.write_text(folder / "report.md", "\n".join(lines))
    figure = drawing.bars(models, f"{name}, inductive: micro-F1")
    drawing.save(figure, folder / "inductive.png")


if __name__ == "__main__":
    sys.exit(main())

"""The table of a dataset: records of folds to means beside the paper's, and to text."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments import paper
from experiments.cells import Cell, Record

TOLERANCE = 1.5  # points of F1 below the paper's that are taken for noise
MODELS = (*paper.TRANSDUCTIVE, "wl")  # Table 3's, and the one it leaves out


def summarise(values: Sequence[float]) -> dict[str, Any]:
    """Mean, standard deviation (of the folds at hand, not of a population), folds."""
    return {
        "mean": round(float(np.mean(values)), 3),
        "std": round(float(np.std(values)), 3),
        "folds": [round(float(value), 3) for value in values],
    }


def row(model: str, dataset: str, cells: Sequence[Cell], records: Sequence[Record]):
    """A model's entry of table.json, from its folds in order."""

    def scores(split: str, metric: str) -> dict[str, Any] | None:
        if any(split not in record["scores"] for record in records):
            return None
        return summarise([record["scores"][split][metric] for record in records])

    micro = scores("test", "micro_f1")
    published = paper.published(dataset, model)
    program = paper.AUTHORS_PROGRAM.get(dataset, {}).get(model)
    return {
        "micro_f1": micro,
        "macro_f1": scores("test", "macro_f1"),
        "train_micro_f1": scores("train", "micro_f1"),
        "validation_micro_f1": scores("validation", "micro_f1"),
        "validation_macro_f1": scores("validation", "macro_f1"),
        "paper": published,
        "difference": _difference(micro, published),
        "authors_program": None if program is None else program.mean,
        "epochs": round(float(np.mean([r["epochs"] for r in records])), 1),
        "seconds": round(float(np.mean([r["seconds"] for r in records])), 2),
        "total_seconds": round(float(np.sum([r["seconds"] for r in records])), 1),
        "peak_mb": max(record["peak_mb"] for record in records),
        "hops": cells[0].config.num_hops,
        "folds": [cell.fold for cell in cells],
        "iteration": [record["iteration"] for record in records],
        "iterations_micro_f1": by_iteration(records, "test", "micro_f1"),
        "iterations_macro_f1": by_iteration(records, "test", "macro_f1"),
        "iterations_validation_micro_f1": by_iteration(
            records, "validation", "micro_f1"
        ),
    }


def by_iteration(records: Sequence[Record], split: str, metric: str) -> list[float]:
    """Mean over folds at each iteration that all of them ran."""
    count = min(len(record["iterations"]) for record in records)
    return [
        round(
            float(
                np.mean([r["iterations"][t]["scores"][split][metric] for r in records])
            ),
            3,
        )
        for t in range(count)
    ]


def by_mean(records: Sequence[Record], split: str) -> dict[str, float]:
    """Mean over folds of each score."""
    return {
        metric: round(float(np.mean([r["scores"][split][metric] for r in records])), 3)
        for metric in ("micro_f1", "macro_f1")
    }


def _difference(micro: dict[str, Any] | None, published: float | None) -> float | None:
    if micro is None or published is None:
        return None
    return round(micro["mean"] - published, 3)


def goal(entry: Mapping[str, Any]) -> float | None:
    """What a cell should reach: the paper's less the tolerance, or the authors' own
    program's where that is lower."""
    if entry["paper"] is None:
        return None
    least = entry["paper"] - TOLERANCE
    program = entry["authors_program"]
    return least if program is None else min(least, program)


def verdict(entry: Mapping[str, Any]) -> str:
    """ "reached", "short by 0.7", or "" where there is nothing to compare with."""
    least = goal(entry)
    if least is None or entry["micro_f1"] is None:
        return ""
    missing = least - entry["micro_f1"]["mean"]
    return "reached" if missing <= 0 else f"short by {missing:.1f}"


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of the printed table."""

    title: str
    width: int
    show: Any  # entry -> text


def _plus_minus(entry: dict[str, Any] | None) -> str:
    return "-" if entry is None else f"{entry['mean']:.2f} ± {entry['std']:.2f}"


def _number(form: str, value: float | None) -> str:
    return "-" if value is None else format(value, form)


COLUMNS = (
    Column("micro-F1", 14, lambda e: _plus_minus(e["micro_f1"])),
    Column("paper", 7, lambda e: _number(".2f", e["paper"])),
    Column("diff", 7, lambda e: _number("+.2f", e["difference"])),
    Column("goal", 13, verdict),
    Column("macro-F1", 14, lambda e: _plus_minus(e["macro_f1"])),
    Column("train", 14, lambda e: _plus_minus(e["train_micro_f1"])),
    Column("hops", 5, lambda e: str(e["hops"])),
    Column("epochs", 7, lambda e: f"{e['epochs']:.0f}"),
    Column("seconds", 8, lambda e: f"{e['seconds']:.1f}"),
)


def header() -> str:
    """The first line of the printed table."""
    titles = "".join(f"{c.title:>{c.width}}" for c in COLUMNS)
    return f"{'model':<12}{titles}"


def line(model: str, entry: Mapping[str, Any]) -> str:
    """A model's line of the printed table; epochs and seconds are a fold's."""
    values = "".join(f"{c.show(entry):>{c.width}}" for c in COLUMNS)
    return f"{model:<12}{values}"


def markdown(models: Mapping[str, Mapping[str, Any]]) -> str:
    """The table in Markdown."""
    lines = [
        "| model | " + " | ".join(c.title for c in COLUMNS) + " |",
        "|---|" + "---:|" * len(COLUMNS),
    ]
    for model, entry in models.items():
        cells = " | ".join(c.show(entry) for c in COLUMNS)
        lines.append(f"| {model} | {cells} |")
    return "\n".join(lines)

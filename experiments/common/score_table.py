"""The score table of a dataset: means over folds beside the paper's, as text."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments import paper
from experiments.common.cells import Cell, Record
from experiments.common.markdown import markdown_table

TOLERANCE = 1.5  # Points of F1 below the paper's that count as noise.


def summarise(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean, the standard deviation (divided by n) and the values."""
    return {
        "mean": round(float(np.mean(values)), 3),
        "std": round(float(np.std(values)), 3),
        "folds": [round(float(value), 3) for value in values],
    }


def row(
    model: str, dataset: str, cells: Sequence[Cell], records: Sequence[Record]
) -> dict[str, Any]:
    """Return the entry of a model in table.json, from its folds in order."""

    def scores(split: str, metric: str) -> dict[str, Any] | None:
        if any(split not in record["scores"] for record in records):
            return None
        return summarise([record["scores"][split][metric] for record in records])

    def mean(name: str, digits: int) -> float:
        return round(float(np.mean([record[name] for record in records])), digits)

    micro = scores("test", "micro_f1")
    program = paper.AUTHORS_PROGRAM.get(dataset, {}).get(model)
    return {
        "micro_f1": micro,
        "macro_f1": scores("test", "macro_f1"),
        "train_micro_f1": scores("train", "micro_f1"),
        "validation_micro_f1": scores("validation", "micro_f1"),
        "validation_macro_f1": scores("validation", "macro_f1"),
        **beside_paper(micro, paper.published(dataset, model)),
        "authors_program": None if program is None else program.mean,
        "epochs": mean("epochs", 1),
        "seconds": mean("seconds", 2),
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


def beside_paper(
    micro: Mapping[str, Any] | None, published: float | None
) -> dict[str, float | None]:
    """Return the paper's figure and the difference from it, where both exist."""
    both = micro is not None and published is not None
    difference = round(micro["mean"] - published, 3) if both else None  # type: ignore[index]
    return {"paper": published, "difference": difference}


def by_iteration(
    records: Sequence[Record], split: str, metric: str, of: Callable = np.mean
) -> list[float]:
    """Return the mean over folds, or another statistic, at each common iteration."""
    count = min(len(record["iterations"]) for record in records)
    each = [
        [r["iterations"][t]["scores"][split][metric] for r in records]
        for t in range(count)
    ]
    return [round(float(of(values)), 3) for values in each]


def leak_by_iteration(
    records: Sequence[Record],
) -> dict[str, dict[str, list[float]]]:
    """Return how well summaries predict the labels of training and of test nodes.

    {hops: {"train" or "test": mean F1 in percent, from the second iteration on}}
    """
    each = [[t["summary_f1"] for t in r["iterations"][1:]] for r in records]
    return {
        hops: {
            nodes: [
                100 * float(np.mean([scores[nodes][hops] for scores in row]))
                for row in zip(*each, strict=True)
            ]
            for nodes in ("train", "test")
        }
        for hops in each[0][0]["train"]
    }


def goal(entry: Mapping[str, Any]) -> float | None:
    """Return the F1 to reach.

    The paper's less the tolerance, or that of the authors' program if it is lower.
    """
    if entry["paper"] is None:
        return None
    least = entry["paper"] - TOLERANCE
    program = entry["authors_program"]
    return least if program is None else min(least, program)


def verdict(entry: Mapping[str, Any]) -> str:
    """Return "reached", "short by 0.7", or "" without a figure to compare with."""
    least = goal(entry)
    if least is None or entry["micro_f1"] is None:
        return ""
    missing = least - entry["micro_f1"]["mean"]
    return "reached" if missing <= 0 else f"short by {missing:.1f}"


class Column(NamedTuple):
    """A column of the printed table."""

    title: str
    width: int
    show: Callable[[Mapping[str, Any]], str]


def _echoless(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    found = entry.get("without_echo")
    return None if found is None else found["micro_f1"]


def plus_minus(entry: dict[str, Any] | None) -> str:
    """Return the mean with the deviation over folds, if there are several."""
    if entry is None:
        return "-"
    deviation = f" ± {entry['std']:.2f}" if len(entry["folds"]) > 1 else ""
    return f"{entry['mean']:.2f}{deviation}"


def _number(form: str, value: float | None) -> str:
    return "-" if value is None else format(value, form)


COLUMNS = (
    Column("micro-F1", 14, lambda e: plus_minus(e["micro_f1"])),
    Column("no echo", 14, lambda e: plus_minus(_echoless(e))),
    Column("paper", 7, lambda e: _number(".2f", e["paper"])),
    Column("diff", 7, lambda e: _number("+.2f", e["difference"])),
    Column("goal", 13, verdict),
    Column("macro-F1", 14, lambda e: plus_minus(e["macro_f1"])),
    Column("train", 14, lambda e: plus_minus(e["train_micro_f1"])),
    Column("hops", 5, lambda e: str(e["hops"])),
    Column("epochs", 7, lambda e: f"{e['epochs']:.0f}"),
    Column("seconds", 8, lambda e: f"{e['seconds']:.1f}"),
)


def header() -> str:
    """Return the header of the printed table."""
    titles = "".join(f"{c.title:>{c.width}}" for c in COLUMNS)
    return f"{'model':<12}{titles}"


def line(model: str, entry: Mapping[str, Any]) -> str:
    """Return the line of a model; epochs and seconds are means per fold."""
    values = "".join(f"{c.show(entry):>{c.width}}" for c in COLUMNS)
    return f"{model:<12}{values}"


def markdown(models: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table in Markdown."""
    rows = [[m, *(c.show(entry) for c in COLUMNS)] for m, entry in models.items()]
    return markdown_table(["model", *(c.title for c in COLUMNS)], rows)

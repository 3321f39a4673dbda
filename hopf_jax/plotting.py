"""Pictures of results and of comparisons."""

import io
from collections.abc import Sequence
from math import isnan
from typing import Any

from matplotlib.figure import Figure

# Told apart by those who do not see all colours (Okabe and Ito).
_BLUE, _ORANGE = "#0072B2", "#E69F00"


class Picture(Figure):
    """A figure that a notebook shows as a cell's last line.

    IPython draws plain Figures only once pyplot has been imported; before, it prints
    their size. Where it does draw them, it does so in its own way and asks no more.
    """

    def _repr_png_(self) -> bytes:
        memory = io.BytesIO()
        self.savefig(memory, format="png")
        return memory.getvalue()


def plot_result(
    history: list[dict[str, Any]], iterations: list[dict[str, Any]], reported: int
) -> Picture:
    """Losses by epoch, and F1 by iteration, side by side."""
    # Not pyplot's: nothing to close, no backend to choose.
    figure = Picture(figsize=(10, 3.6), layout="constrained")
    losses, scores = figure.subplots(1, 2)
    epochs = range(1, len(history) + 1)
    for name, colour in (("train", "C0"), ("validation", "C1")):
        values = [record[f"{name}_loss"] for record in history]
        losses.plot(epochs, values, color=colour, label=name, linewidth=1)
    last = 0
    for record in iterations[:-1]:
        last += record["epochs"]
        losses.axvline(last, color="0.8", linewidth=0.8, zorder=0)
    losses.set(xlabel="epoch", ylabel="weighted cross entropy", title="Loss by epoch")
    losses.legend(frameon=False)
    at = [record["iteration"] for record in iterations]
    for split, style in (("train", ":"), ("validation", "--"), ("test", "-")):
        if split not in iterations[0]["scores"]:
            continue
        for metric, colour in (("micro_f1", "C2"), ("macro_f1", "C3")):
            values = [100 * record["scores"][split][metric] for record in iterations]
            label = f"{split} {metric.replace('_f1', '-F1')}"
            scores.plot(at, values, style, marker="o", ms=4, color=colour, label=label)
    scores.axvline(reported, color="0.8", zorder=0)
    scores.set(xlabel="iteration", ylabel="F1, %", title="F1 by iteration")
    scores.set_xticks(at)
    # Beside the lines: six entries leave no corner free.
    scores.legend(
        frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5)
    )
    return figure


def plot_comparison(
    lines: Sequence[Any], folds: dict[str, list[float]], score: str, bounds: str
) -> Picture:
    """Scores of models with their bounds and folds, and their shortfalls beside."""
    figure = Picture(figsize=(9, 1.5 + 0.42 * len(lines)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    for place, line in enumerate(lines):
        left.plot([line.low, line.high], [place, place], color=_BLUE, linewidth=2)
        each = folds[line.model]
        left.plot(each, [place] * len(each), "o", color="0.6", ms=4, zorder=2.5)
        left.plot(line.score, place, "D", color=_BLUE, ms=7, zorder=3)
    # One of each is enough for the legend.
    left.plot([], [], "D", color=_BLUE, ms=7, label="mean")
    left.plot([], [], color=_BLUE, linewidth=2, label=bounds)
    left.plot([], [], "o", color="0.6", ms=4, label="folds")
    left.set(xlabel=score, title="Score, higher is better")
    left.set_yticks(range(len(lines)), [line.model for line in lines])
    left.set_ylim(len(lines) - 0.4, -0.6)  # The best on top.
    known = [0 if isnan(line.shortfall) else line.shortfall for line in lines]
    drawn = right.barh(range(len(lines)), known, 0.55, color=_ORANGE)
    said = [
        "unknown" if isnan(line.shortfall) else f"{line.shortfall:.1f}"
        for line in lines
    ]
    right.bar_label(drawn, said, padding=3)
    right.set(
        xlabel="shortfall, % of each fold's best",
        title="Shortfall, lower is better",
        xlim=(0, 1.2 * max(*known, 0.1)),
    )
    right.tick_params(left=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", color="0.9", linewidth=0.8)
        axes.set_axisbelow(True)
    figure.legend(
        *left.get_legend_handles_labels(),
        frameon=False,
        fontsize="small",
        ncols=3,
        loc="outside lower center",
    )
    return figure

"""Pictures of results, comparisons and explanations."""

import io
from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.patheffects import withStroke

# Told apart by those who do not see all colours (Okabe and Ito).
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
_BLUE, _ORANGE, *_ = _COLOURS
_OTHERS = "0.6"


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


def plot_explanation(
    explanation: Any, places: np.ndarray, at: np.ndarray, parents: np.ndarray
) -> Picture:
    """The shares of a prediction, and the neighbourhood it reads, by hop.

    Args:
      explanation: an `Explanation`.
      places: [n] which of its nodes to draw, itself first.
      at: [n, 2] where.
      parents: [n] the nearer node that each is drawn beyond.
    """
    figure = Picture(figsize=(10, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2, 3))
    names, shares = list(explanation.shares), list(explanation.shares.values())
    drawn = left.barh(range(len(names)), [100 * share for share in shares], color=_BLUE)
    left.bar_label(drawn, [f"{share:.0%}" for share in shares], padding=3)
    left.set_yticks(range(len(names)), names)
    left.set_ylim(len(names) - 0.4, -0.6)
    left.set(
        xlim=(0, 115 * max(*shares, 0.01)),
        xlabel="share of the prediction, %",
        title=f"Node {explanation.node}: {explanation.label}, "
        f"{explanation.probability:.0%}",
    )
    left.spines[["top", "right"]].set_visible(False)
    _draw_edges(right, explanation.edges, places, at, parents)
    _draw_nodes(right, explanation, places, at)
    left_out = len(explanation.nodes) - len(places)
    more = f" ({left_out} more not drawn)" if left_out else ""
    right.set(
        title=f"What it reads, by hop; area: share{more}",
        aspect="equal",
        xticks=[],
        yticks=[],
    )
    right.margins(0.14)
    right.spines[:].set_visible(False)
    right.legend(
        title="predicted",
        frameon=False,
        fontsize="small",
        loc="center left",
        bbox_to_anchor=(1, 0.5),
    )
    return figure


def _draw_edges(
    axes: Any,
    edges: np.ndarray,
    places: np.ndarray,
    at: np.ndarray,
    parents: np.ndarray,
) -> None:
    """Outward edges straight; the others bent, or they would seem to meet the root."""
    row = {int(place): i for i, place in enumerate(places)}
    pairs = {(min(pair), max(pair)) for pair in edges.tolist()}
    for near, far in sorted(pairs):
        if near == far or near not in row or far not in row:
            continue
        straight = parents[row[far]] == near
        bend = 0.0 if straight else 0.35
        line = FancyArrowPatch(
            at[row[near]],
            at[row[far]],
            arrowstyle="-",
            connectionstyle=f"arc3,rad={bend}",
            color="0.6" if straight else "0.88",
            linewidth=1.2 if straight else 0.8,
            zorder=1 if straight else 0,
        )
        axes.add_patch(line)


def _draw_nodes(
    axes: Any, explanation: Any, places: np.ndarray, at: np.ndarray
) -> None:
    """Discs with their ids, coloured by what is predicted for them."""
    share = (explanation.attributes + explanation.labels)[places]
    area = 130 + 900 * share / max(float(share[1:].max(initial=0)), 1e-9)
    area[0] = 260
    said = np.array(explanation.predictions)[places]
    counted = sorted(set(said), key=lambda name: (-int((said == name).sum()), name))
    palette = dict(zip(counted, _COLOURS, strict=False))
    for name, colour in palette.items():
        axes.scatter([], [], color=colour, label=name)
    if len(counted) > len(_COLOURS):
        axes.scatter([], [], color=_OTHERS, label="others")
    colours = [palette.get(name, _OTHERS) for name in said]
    axes.scatter(*at[1:].T, s=area[1:], c=colours[1:], edgecolors="white", zorder=2)
    axes.scatter(*at[:1].T, s=area[0], c=colours[:1], marker="s", ec="k", zorder=3)
    for place, point in zip(places, at, strict=True):
        text = axes.annotate(
            str(explanation.nodes[place]),
            point,
            ha="center",
            va="center",
            fontsize=8,
            zorder=4,
        )
        text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])

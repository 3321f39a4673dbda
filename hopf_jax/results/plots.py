"""Figures of results, comparisons and explanations."""

import io
import itertools
from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.patheffects import withStroke

from hopf_jax.results.explanations import Explanation

# Okabe and Ito's palette, which colour-blind readers can tell apart.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
_BLUE, _ORANGE, *_ = _COLOURS
_OTHERS = "0.6"
_BESIDE = {"loc": "center left", "bbox_to_anchor": (1, 0.5), "fontsize": "small"}


class Picture(Figure):
    """A figure that a notebook shows as the last line of a cell.

    IPython shows plain Figures only after pyplot has been imported.
    """

    def _repr_png_(self) -> bytes:
        memory = io.BytesIO()
        self.savefig(memory, format="png")
        return memory.getvalue()


def plot_result(
    history: list[dict[str, Any]], iterations: list[dict[str, Any]], reported: int
) -> Picture:
    """Plot losses by epoch, of the first net, and F1 by iteration, side by side."""
    history = [record for record in history if not record.get("member")]
    # Not pyplot's: nothing to close, no backend to choose.
    figure = Picture(figsize=(10, 3.6), layout="constrained")
    losses, scores = figure.subplots(1, 2)
    epochs = range(1, len(history) + 1)
    for name, colour in (("train", "C0"), ("validation", "C1")):
        values = [record[f"{name}_loss"] for record in history]
        losses.plot(epochs, values, color=colour, label=name, linewidth=1)
    for last, (record, after) in enumerate(itertools.pairwise(history), start=1):
        if record["iteration"] == after["iteration"]:
            continue
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
    scores.legend(frameon=False, **_BESIDE)
    return figure


def plot_comparison(
    lines: Sequence[Any], folds: dict[str, list[float]], score: str, bounds: str
) -> Picture:
    """Plot scores of models with their bounds and folds, and their shortfalls."""
    figure = Picture(figsize=(9, 1.5 + 0.42 * len(lines)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    for place, line in enumerate(lines):
        left.plot([line.low, line.high], [place, place], color=_BLUE, linewidth=2)
        each = folds[line.model]
        left.plot(each, [place] * len(each), "o", color="0.6", ms=4, zorder=2.5)
        left.plot(line.score, place, "D", color=_BLUE, ms=7, zorder=3)
    # Empty plots, for one legend entry of each kind.
    left.plot([], [], "D", color=_BLUE, ms=7, label="mean")
    left.plot([], [], color=_BLUE, linewidth=2, label=bounds)
    left.plot([], [], "o", color="0.6", ms=4, label="folds")
    left.set(xlabel=score, title="Score, higher is better")
    left.set_yticks(range(len(lines)), [line.model for line in lines])
    left.set_ylim(len(lines) - 0.4, -0.6)  # The best on top.
    shortfalls = [line.shortfall for line in lines]
    known = [0 if isnan(value) else value for value in shortfalls]
    drawn = right.barh(range(len(lines)), known, 0.55, color=_ORANGE)
    shown = ["unknown" if isnan(value) else f"{value:.1f}" for value in shortfalls]
    right.bar_label(drawn, shown, padding=3)
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
    handles = left.get_legend_handles_labels()
    figure.legend(
        *handles, loc="outside lower center", ncols=3, frameon=False, fontsize="small"
    )
    return figure


def plot_explanation(explanation: Explanation, most: int) -> Picture:
    """Plot the shares of a prediction, and the neighbourhood it reads, by hop.

    Args:
      explanation: What to draw.
      most: Number of nodes to draw, besides those that link them to the node.
    """
    places, at, parents = hop_tree(explanation, most)
    figure = Picture(figsize=(10, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2, 3))
    names, shares = list(explanation.shares), list(explanation.shares.values())
    drawn = left.barh(range(len(names)), [100 * share for share in shares], color=_BLUE)
    left.bar_label(drawn, [f"{share:.0%}" for share in shares], padding=3)
    left.set_yticks(range(len(names)), names)
    left.set_ylim(len(names) - 0.4, -0.6)
    label, probability = explanation.label, explanation.probability
    title = f"Node {explanation.node}: {label}, {probability:.0%}"
    left.set(xlabel="share of the prediction, %", title=title)
    left.set_xlim(0, 115 * max(*shares, 0.01))
    left.spines[["top", "right"]].set_visible(False)
    _draw_edges(right, explanation.edges, places, at, parents)
    _draw_nodes(right, explanation, places, at)
    left_out = len(explanation.nodes) - len(places)
    more = f" ({left_out} more not drawn)" if left_out else ""
    title = f"What it reads, by hop; area: share{more}"
    right.set(title=title, aspect="equal", xticks=[], yticks=[])
    right.margins(0.14)
    right.spines[:].set_visible(False)
    right.legend(title="predicted", frameon=False, **_BESIDE)
    return figure


def hop_tree(explanation: Explanation, most: int) -> tuple[np.ndarray, ...]:
    """Choose the nodes to draw and their positions, in rings by hop.

    The parent of a node, beyond which it is drawn, is the node of the largest share
    among those that read it and are one hop nearer.

    Returns:
      Indices into `explanation.nodes` [n], positions [n, 2], and indices of the parents
      [n].
    """
    share = explanation.attributes + explanation.labels
    hops, edges = explanation.hops, explanation.edges
    parent = np.zeros(len(hops), np.int64)
    inward = edges[hops[edges[:, 0]] == hops[edges[:, 1]] - 1]
    # In order of share: the largest is written last, and stays.
    inward = inward[np.argsort(share[inward[:, 0]], kind="stable")]
    parent[inward[:, 1]] = inward[:, 0]
    drawn = {0, *(np.argsort(-share, kind="stable")[:most].tolist())}
    for place in list(drawn):
        while place:
            place = int(parent[place])
            drawn.add(place)
    order = sorted(drawn)  # By hop: a parent comes before its children.
    children: dict[int, list[int]] = {place: [] for place in order}
    for place in order[1:]:
        children[int(parent[place])].append(place)
    leaves = dict.fromkeys(order, 0)
    for place in reversed(order):
        leaves[place] = sum(leaves[child] for child in children[place]) or 1
    start, angle = {0: 0.0}, {0: 0.0}
    for place in order:
        begin = start[place]
        for child in children[place]:
            start[child] = begin
            angle[child] = 2 * np.pi * (begin + leaves[child] / 2) / leaves[0]
            begin += leaves[child]
    turned = np.array([angle[place] for place in order])
    at = hops[order][:, None] * np.stack([np.cos(turned), np.sin(turned)], axis=1)
    return np.array(order), at, parent[order]


def _draw_edges(
    axes: Any, edges: np.ndarray, places: np.ndarray, at: np.ndarray, parents: Any
) -> None:
    """Draw edges to parents straight, and others bent, so that none seems to pass 0."""
    row = {int(place): i for i, place in enumerate(places)}
    pairs = {(min(pair), max(pair)) for pair in edges.tolist()}
    for near, far in sorted(pairs):
        if near == far or near not in row or far not in row:
            continue
        straight = parents[row[far]] == near
        line = FancyArrowPatch(
            at[row[near]],
            at[row[far]],
            arrowstyle="-",
            connectionstyle=f"arc3,rad={0 if straight else 0.35}",
            color="0.6" if straight else "0.88",
            linewidth=1.2 if straight else 0.8,
            zorder=1 if straight else 0,
        )
        axes.add_patch(line)


def _draw_nodes(
    axes: Any, explanation: Explanation, places: np.ndarray, at: np.ndarray
) -> None:
    """Draw discs with node ids, coloured by predicted label."""
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
    centred = {"ha": "center", "va": "center"}
    for place, point in zip(places, at, strict=True):
        name = str(explanation.nodes[place])
        text = axes.annotate(name, point, **centred, fontsize=8, zorder=4)
        text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])


def plot_tuning(
    trials: Sequence[dict[str, Any]],
    numbers: Sequence[str],
    importances: dict[str, float],
) -> Picture:
    """Plot the scores of trials by model and by each number, and what mattered."""
    names = list(dict.fromkeys(trial["model"] for trial in trials))
    scores = [100 * trial["score"] for trial in trials]
    figure = Picture(figsize=(12, 5.5), layout="constrained")
    every = figure.subplots(
        1, len(numbers) + 2, width_ratios=(2, *[2] * len(numbers), 2)
    )
    places = [names.index(trial["model"]) for trial in trials]
    every[0].plot(scores, places, "o", color=_BLUE, alpha=0.6)
    every[0].plot(scores[:1], places[:1], "D", color=_ORANGE, ms=9, label="best")
    every[0].set_yticks(range(len(names)), names)
    every[0].set(xlabel="score on held-out labels, %", title="model")
    every[0].legend(frameon=False)
    for axes, name in zip(every[1:], numbers, strict=False):
        values = [trial[name] for trial in trials]
        axes.plot(values, scores, "o", color=_BLUE, alpha=0.6)
        axes.plot(values[:1], scores[:1], "D", color=_ORANGE, ms=9)
        if min(values, default=1) < 0.05:
            axes.set_xscale("log")
        axes.set(xlabel=name, title=name)
    shown = list(importances)[::-1]
    every[-1].barh(shown, [100 * importances[name] for name in shown], color=_ORANGE)
    every[-1].set(xlabel="share of the scores' variation, %", title="what mattered")
    for axes in every:
        axes.spines[["top", "right"]].set_visible(False)
    return figure

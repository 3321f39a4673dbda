"""Figures of results, comparisons and explanations."""

import io
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.patheffects import withStroke

from hopf_jax.results.explanations import Explanation, describe_share, hop_tree

# Okabe and Ito's palette, which colour-blind readers can tell apart.
_COLOURS = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"),
    "#000000",
)
_BLUE, _ORANGE, _GREEN, _PINK, *_ = _COLOURS
_OTHERS = "0.6"
_BESIDE: dict[str, Any] = {
    "loc": "center left",
    "bbox_to_anchor": (1, 0.5),
    "fontsize": "small",
}
_MOST_CLASSES = 20  # Drawn one by one in a report: the most frequent.
_ROOM_OF_A_CHARACTER = 0.035  # As a share of the outermost ring's radius.
_FITS_A_DISC = 4  # Characters of a name.
_MOST_COLUMNS = 8  # Of the features, in an explanation.


def class_colours(classes: Sequence[Any]) -> dict[Any, Any]:
    """Return the colour of each class, which depends on its place alone.

    Twice as many classes as the palette has are told apart, the second half by lighter
    tones; others are grey.
    """
    lighter = [tuple(0.45 * v + 0.55 for v in to_rgb(c)) for c in _COLOURS]
    colours = [*_COLOURS, *lighter]
    return {
        label: colours[i] if i < len(colours) else _OTHERS
        for i, label in enumerate(classes)
    }


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
    """Plot losses and F1 by epoch, of the first net, and F1 by iteration.

    With one iteration, its scores are bars.
    """
    history = [record for record in history if not record.get("member")]
    # Not pyplot's: nothing to close, no backend to choose.
    figure = Picture(figsize=(13, 3.6), layout="constrained")
    losses, learning, scores = figure.subplots(1, 3)
    epochs = range(1, len(history) + 1)
    for name, colour in (("train", _BLUE), ("validation", _ORANGE)):
        for axes, measure, factor in (
            (losses, "loss", 1),
            (learning, "micro_f1", 100),
        ):
            values = [factor * record[f"{name}_{measure}"] for record in history]
            axes.plot(epochs, values, color=colour, label=name, linewidth=1)
    for last, (record, after) in enumerate(itertools.pairwise(history), start=1):
        if record["iteration"] == after["iteration"]:
            continue
        for axes in (losses, learning):
            axes.axvline(last, color="0.8", linewidth=0.8, zorder=0)
    losses.set(xlabel="epoch", ylabel="cross entropy", title="Loss by epoch")
    learning.set(xlabel="epoch", ylabel="micro-F1, %", title="F1 by epoch, one network")
    for axes in (losses, learning):
        axes.legend(frameon=False)
    if len(iterations) > 1:
        _draw_iterations(scores, iterations, reported)
    else:
        _draw_scores(scores, iterations[0]["scores"])
    for axes in (losses, learning, scores):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _draw_iterations(
    axes: Any, iterations: list[dict[str, Any]], reported: int
) -> None:
    at = [record["iteration"] for record in iterations]
    for split, style in (("train", ":"), ("validation", "--"), ("test", "-")):
        if split not in iterations[0]["scores"]:
            continue
        for metric, colour in (("micro_f1", _GREEN), ("macro_f1", _PINK)):
            values = [100 * record["scores"][split][metric] for record in iterations]
            label = f"{split} {metric.replace('_f1', '-F1')}"
            axes.plot(at, values, style, marker="o", ms=4, color=colour, label=label)
    axes.axvline(reported, color="0.8", zorder=0)
    axes.set(xlabel="iteration", ylabel="F1, %", title="F1 by iteration")
    axes.set_xticks(at)
    # Beside the lines: six entries leave no corner free.
    axes.legend(frameon=False, **_BESIDE)


def _draw_scores(axes: Any, scores: dict[str, dict[str, float]]) -> None:
    """Draw micro and macro F1 of each set as bars, from 0 to 100."""
    for values, drawn in _draw_f1_bars(axes.bar, scores):
        axes.bar_label(drawn, [f"{value:.0f}" for value in values], fontsize=8)
    axes.set_xticks(range(len(scores)), list(scores))
    axes.set(ylabel="F1, %", ylim=(0, 108), title="F1 by set")
    axes.legend(frameon=False, **_BESIDE)


def _draw_f1_bars(
    bar: Callable[..., Any], scores: Mapping[str, Mapping[str, float]]
) -> Iterator[tuple[list[float], Any]]:
    """Draw micro and macro F1 side by side; yield values in percent and their bars."""
    width = 0.38
    for place, (metric, colour) in enumerate(
        (("micro_f1", _GREEN), ("macro_f1", _PINK))
    ):
        at = [i + (place - 0.5) * width for i in range(len(scores))]
        values = [100 * each[metric] for each in scores.values()]
        label = metric.replace("_f1", "-F1")
        yield values, bar(at, values, width, color=colour, label=label)


def plot_report(report: Any) -> Picture:
    """Plot a report: F1 by class, confusion, reliability, and comparison."""
    kept = sorted(report.by_class, key=lambda each: -each.support)[:_MOST_CLASSES]
    order = [i for i, each in enumerate(report.by_class) if each in kept]
    size = max(3.6, 1.2 + 0.32 * len(order))
    figure = Picture(figsize=(13, 2 * size), layout="constrained")
    (classes, confusion), (reliability, comparison) = figure.subplots(2, 2)
    _draw_classes(classes, report, order)
    if report.confusion is None:
        _draw_supports(confusion, report, order)
    else:
        _draw_confusion(confusion, report, order)
    _draw_reliability(reliability, report)
    _draw_comparison(comparison, report)
    for axes in (classes, reliability, comparison):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _draw_classes(axes: Any, report: Any, order: list[int]) -> None:
    colours = class_colours(report.classes.tolist())
    lines = [report.by_class[i] for i in order]
    drawn = axes.barh(
        range(len(lines)),
        [100 * line.f1 for line in lines],
        color=[colours[line.label] for line in lines],
    )
    axes.bar_label(drawn, [f"{100 * line.f1:.0f}" for line in lines], padding=3)
    names = [f"{shorten(line.label)} ({line.support})" for line in lines]
    axes.set_yticks(range(len(lines)), names)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    left_out = len(report.classes) - len(lines)
    more = f"; {left_out} rarer not drawn" if left_out else ""
    axes.set(
        xlabel="F1, %", xlim=(0, 108), title=f"F1 by class (number of nodes){more}"
    )


def _draw_confusion(axes: Any, report: Any, order: list[int]) -> None:
    counts = report.confusion[np.ix_(order, order)]
    shares = counts / np.maximum(report.confusion[order].sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="cividis", vmin=0, vmax=1)
    names = [shorten(report.classes.tolist()[i]) for i in order]
    axes.set_xticks(range(len(order)), names, rotation=45, ha="right")
    axes.set_yticks(range(len(order)), names)
    for row, column in np.ndindex(counts.shape):
        colour = "black" if shares[row, column] > 0.55 else "white"
        text = str(counts[row, column])
        axes.text(column, row, text, ha="center", va="center", color=colour, size=8)
    axes.set(
        xlabel="predicted", ylabel="true", title="Confusion matrix, number of nodes"
    )


def _draw_supports(axes: Any, report: Any, order: list[int]) -> None:
    """Draw precision and recall of each label, where nodes have several."""
    lines = [report.by_class[i] for i in order]
    for name, marker, colour in (("precision", "o", _BLUE), ("recall", "D", _ORANGE)):
        values = [100 * getattr(line, name) for line in lines]
        axes.plot(values, range(len(lines)), marker, color=colour, label=name)
    axes.set_yticks(range(len(lines)), [shorten(line.label) for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set(xlabel="%", xlim=(0, 102), title="Precision and recall")
    axes.legend(frameon=False, **_BESIDE)


def _draw_reliability(axes: Any, report: Any) -> None:
    bins = report.reliability
    axes.plot([0, 100], [0, 100], color="0.8", zorder=0, label="perfect calibration")
    most = max(each.size for each in bins)
    axes.scatter(
        [100 * each.confidence for each in bins],
        [100 * each.accuracy for each in bins],
        [30 + 220 * each.size / most for each in bins],
        color=_BLUE,
        label="groups of predictions (area: how many)",
    )
    before, after = report.calibration_errors
    calibrated = "" if after is None else f", {100 * after:.1f}% after calibration"
    axes.set(
        xlabel="confidence, %",
        ylabel="accuracy, %",
        xlim=(-3, 103),
        ylim=(-3, 103),
        title=f"Calibration error {100 * before:.1f}%{calibrated}",
    )
    axes.legend(frameon=False, loc="upper left", fontsize="small")


def _draw_comparison(axes: Any, report: Any) -> None:
    scores = report.comparison
    for values, drawn in _draw_f1_bars(axes.barh, scores):
        axes.bar_label(drawn, [f"{value:.1f}" for value in values], padding=3)
    axes.set_yticks(range(len(scores)), list(scores))
    axes.set_ylim(len(scores) - 0.4, -0.6)
    axes.set(xlabel="F1, %", xlim=(0, 112), title="Compared with simple methods")
    axes.legend(frameon=False, **_BESIDE)


def shorten(label: Any, most: int = 18) -> str:
    """Return a label as text of at most this many characters."""
    text = str(label)
    return text if len(text) <= most else f"{text[: most - 3]}..."


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
    figure = Picture(figsize=(11, 5.2), layout="constrained")
    features = explanation.features(_MOST_COLUMNS)
    grid = figure.add_gridspec(2, 2, width_ratios=(2, 3))
    left = figure.add_subplot(grid[0, 0] if features else grid[:, 0])
    right = figure.add_subplot(grid[:, 1])
    label, probability = shorten(explanation.label, 30), explanation.probability
    left.set_title(f"{explanation.node}: {label}, confidence {probability:.0%}")
    shares = [(describe_share(n), share) for n, share in explanation.shares.items()]
    _draw_shares(left, shares, _BLUE)
    if features:
        below = figure.add_subplot(grid[1, 0])
        below.set_title("Strongest features, of all these nodes")
        _draw_shares(below, [(shorten(n, 24), share) for n, share in features], _ORANGE)
    _draw_edges(right, explanation.edges, places, at, parents)
    _draw_nodes(right, explanation, places, at)
    left_out = len(explanation.nodes) - len(places)
    more = f"; {left_out} more not drawn" if left_out else ""
    title = f"Nodes it depends on (area: share{more})"
    right.set(title=title, aspect="equal", xticks=[], yticks=[])
    right.margins(0.14)
    right.spines[:].set_visible(False)
    right.legend(title="predicted", frameon=False, **_BESIDE)
    return figure


def _draw_shares(axes: Any, shares: Sequence[tuple[str, float]], colour: str) -> None:
    values = [share for _, share in shares]
    drawn = axes.barh(range(len(values)), [100 * v for v in values], color=colour)
    axes.bar_label(drawn, [f"{value:.0%}" for value in values], padding=3)
    axes.set_yticks(range(len(values)), [name for name, _ in shares])
    axes.set_ylim(len(values) - 0.4, -0.6)
    axes.set_xlabel("share of the prediction, %")
    axes.set_xlim(0, 115 * max(*values, 0.01))
    axes.spines[["top", "right"]].set_visible(False)


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
    said = [explanation.predictions[place] for place in places]
    palette = class_colours(explanation.classes or sorted(set(said), key=str))
    drawn = [name for name in palette if name in said]
    for name in drawn:
        if palette[name] != _OTHERS:
            axes.scatter([], [], color=palette[name], label=shorten(name))
    if any(palette[name] == _OTHERS for name in drawn):
        axes.scatter([], [], color=_OTHERS, label="others")
    colours = [palette[name] for name in said]
    axes.scatter(*at[1:].T, s=area[1:], c=colours[1:], edgecolors="white", zorder=2)
    axes.scatter(*at[:1].T, s=area[0], c=colours[:1], marker="s", ec="k", zorder=3)
    for place, point in zip(places, at, strict=True):
        name = shorten(explanation.names[place])
        how: dict[str, Any] = {
            "ha": "center",
            "va": "center",
            "fontsize": 8,
            "zorder": 4,
        }
        if len(name) > _FITS_A_DISC and place:  # Outwards, to the side.
            turn, right = np.degrees(np.arctan2(point[1], point[0])), point[0] > -1e-9
            how |= {"ha": "left" if right else "right", "rotation_mode": "anchor"}
            how["rotation"] = turn if right else turn - 180
            outward = point / np.linalg.norm(point)
            room = _ROOM_OF_A_CHARACTER * np.linalg.norm(at, axis=1).max() * len(name)
            axes.update_datalim([point + (0.13 + room) * outward])
            point = point + 0.13 * outward
        text = axes.annotate(name, point, **how)
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

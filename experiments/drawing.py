"""Every picture of the experiments: figures of their own, no global state."""

import base64
import io
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hopf_jax.runtime import write_atomically

# Colours that those who do not see all colours tell apart (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
OURS, PAPER = COLOURS[0], "#BBBBBB"


def png(figure: Figure) -> bytes:
    """The figure as a PNG; the same figure gives the same bytes."""
    memory = io.BytesIO()
    figure.savefig(memory, format="png", dpi=110, metadata={"Software": None})
    return memory.getvalue()


def save(figure: Figure, path: pathlib.Path) -> None:
    """Write the figure as a PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, png(figure))


def inline(figure: Figure, description: str) -> str:
    """An <img> that holds the picture itself."""
    data = base64.b64encode(png(figure)).decode()
    return f'<img alt="{description}" src="data:image/png;base64,{data}">'


def new(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def tidy(axes: Axes, **labels: Any) -> None:
    """Fewer lines, a faint grid, and the labels."""
    axes.set(**labels)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)


def bars(
    models: Mapping[str, Mapping[str, Any]], title: str, metric: str = "micro_f1"
) -> Figure:
    """F1 with error bars, the paper's beside it where there is one."""
    figure = new(max(5.0, 1.1 + 0.85 * len(models)), 3.8)
    axes = figure.subplots()
    at = np.arange(len(models))
    papers = [entry["paper"] for entry in models.values()]
    beside = metric == "micro_f1" and any(value is not None for value in papers)
    width = 0.38 if beside else 0.6
    shift = width / 2 if beside else 0.0
    means = [entry[metric]["mean"] for entry in models.values()]
    stds = [entry[metric]["std"] for entry in models.values()]
    low, high = min(means), max(means)
    axes.bar(at - shift, means, width, yerr=stds, color=OURS, capsize=3, label="ours")
    if beside:
        known = [(x, value) for x, value in zip(at, papers, strict=True) if value]
        axes.bar(
            [x + shift for x, _ in known],
            [value for _, value in known],
            width,
            color=PAPER,
            label="paper",
        )
        low, high = (
            min(low, *(v for _, v in known)),
            max(high, *(v for _, v in known)),
        )
        axes.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    room = max(stds) + 2
    axes.set_ylim(max(0, 5 * np.floor((low - room - 8) / 5)), min(100, high + room))
    axes.set_xticks(at, list(models), rotation=30, ha="right")
    name = metric.replace("_f1", "-F1")
    tidy(axes, ylabel=f"{name}, % (axis cut)")
    axes.set_title(title, loc="left")
    return figure


def iterations(
    lines: Mapping[str, Sequence[float]],
    title: str,
    references: Mapping[str, Sequence[float]] | None = None,
) -> Figure:
    """F1 by iteration, a line a model; other people's dashed."""
    figure = new(6.4, 3.8)
    iteration_lines(figure.subplots(), lines, title, references=references)
    return figure


def iteration_lines(
    axes: Axes,
    lines: Mapping[str, Sequence[float]],
    title: str,
    *,
    references: Mapping[str, Sequence[float]] | None = None,
    errors: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """The same on given axes. A reference "model (whose)" has its model's colour."""
    for i, (name, values) in enumerate(lines.items()):
        axes.errorbar(
            range(1, len(values) + 1),
            values,
            yerr=None if errors is None else errors.get(name),
            marker="o",
            ms=4,
            capsize=3,
            color=COLOURS[i % len(COLOURS)],
            label=name,
        )
    for name, values in (references or {}).items():
        model = name.split(" ")[0]
        place = list(lines).index(model) if model in lines else len(lines)
        axes.plot(
            range(1, len(values) + 1),
            values,
            "--",
            marker="x",
            ms=4,
            color=COLOURS[place % len(COLOURS)],
            alpha=0.6,
            label=name,
        )
    longest = max(map(len, [*lines.values(), *(references or {}).values()]))
    axes.set_xticks(range(1, longest + 1))
    tidy(axes, xlabel="iteration", ylabel="micro-F1, %", title=title)
    axes.legend(frameon=False, fontsize="small")


def losses(runs: Mapping[str, Mapping[str, Sequence[float]]], title: str) -> Figure:
    """Training and validation loss by epoch, a panel a model."""
    columns = min(4, len(runs))
    rows = -(-len(runs) // columns)
    figure = new(2.9 * columns, 2.1 * rows + 0.4)
    panels = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    for axes, (model, run) in zip(panels, runs.items(), strict=False):
        for name, colour in (("train", COLOURS[0]), ("validation", COLOURS[1])):
            epochs = range(1, len(run[name]) + 1)
            axes.plot(epochs, run[name], color=colour, linewidth=1, label=name)
        tidy(axes)
        axes.set_title(model, fontsize="medium")
        axes.tick_params(labelsize="small")
    for axes in panels[len(runs) :]:
        axes.set_visible(False)
    panels[0].legend(frameon=False, fontsize="small")
    figure.suptitle(title)
    figure.supxlabel("epoch", fontsize="medium")
    figure.supylabel("loss", fontsize="medium")
    return figure


def critical_differences(
    ranks: Mapping[str, float], difference: float, title: str
) -> Figure:
    """Demšar's diagram: average ranks; a bar joins models that are not told apart."""
    order = sorted(ranks, key=lambda model: ranks[model])
    half = -(-len(order) // 2)
    groups = _not_told_apart([ranks[model] for model in order], difference)
    depth = 0.22 * len(groups) + 0.25
    figure = new(8.4, 1.5 + 0.26 * (half + len(groups)))
    axes = figure.subplots()
    last = len(ranks)
    axes.hlines(0, 1, last, color="black", linewidth=1)
    for tick in range(1, last + 1):
        axes.vlines(tick, 0, 0.1, color="black", linewidth=1)
        axes.text(tick, 0.18, str(tick), ha="center", va="bottom", fontsize=9)
    for place, model in enumerate(order):
        left = place < half
        row = place if left else len(order) - 1 - place
        y, edge = -depth - 0.3 * row, 0.4 if left else last + 0.6
        axes.plot([ranks[model]] * 2 + [edge], [0, y, y], color="0.4", linewidth=0.9)
        said = f" {model}  {ranks[model]:.2f} "
        axes.text(edge, y, said, ha="right" if left else "left", va="center", size=9)
    for level, (first, final) in enumerate(groups):
        y = -0.2 - 0.22 * level
        ends = ranks[order[first]] - 0.05, ranks[order[final]] + 0.05
        axes.hlines(y, *ends, color=COLOURS[1], linewidth=3.5)
    axes.hlines(0.85, 1, 1 + difference, color="black", linewidth=2)
    axes.text(
        1 + difference / 2, 0.95, f"CD = {difference:.2f}", ha="center", va="bottom"
    )
    axes.set_xlim(-1.6, last + 2.6)
    axes.set_ylim(-depth - 0.3 * half, 1.35)
    axes.axis("off")
    axes.set_title(title, fontsize="medium")
    return figure


def _not_told_apart(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """The longest runs of at least two sorted ranks within the difference."""
    groups: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        final = max(i for i, other in enumerate(ranks) if other - rank <= difference)
        if final > first and (not groups or final > groups[-1][1]):
            groups.append((first, final))
    return groups


def curves(
    axes: Axes,
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    errors: Mapping[str, Sequence[float]] | None = None,
    **labels: Any,
) -> None:
    """Lines of (x, y) on given axes, with error bars where there are some."""
    for i, (name, (at, values)) in enumerate(lines.items()):
        axes.errorbar(
            at,
            values,
            yerr=None if errors is None else errors.get(name),
            marker="osv^Dx"[i % 6],
            ms=5,
            capsize=3,
            color=COLOURS[i % len(COLOURS)],
            label=name,
        )
    tidy(axes, **labels)
    axes.legend(frameon=False, fontsize="small")


def shares(
    axes: Axes, names: Sequence[str], parts: Sequence[Sequence[float]], **labels: Any
) -> None:
    """Stacked horizontal bars of shares, one a name: hop 0 first."""
    most = max(len(row) for row in parts)
    for hop in range(most):
        sizes = [row[hop] if hop < len(row) else 0.0 for row in parts]
        left = [sum(row[:hop]) for row in parts]
        light = hop / most  # Dark for the node itself, lighter with every hop.
        colour = [channel + (1 - channel) * light for channel in (0.0, 0.35, 0.6)]
        drawn = axes.barh(
            range(len(parts)),
            sizes,
            left=left,
            color=colour,
            edgecolor="white",
            label=f"hop {hop}",
        )
        shown = [f"{100 * size:.0f}%" if size > 0.06 else "" for size in sizes]
        ink = "white" if light < 0.5 else "black"
        axes.bar_label(drawn, shown, label_type="center", color=ink, fontsize=8)
    axes.set_yticks(range(len(names)), list(names))
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set(**labels)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.legend(
        frameon=False,
        ncols=most,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
    )

"""Figures of the experiments, without global state."""

import io
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import paper
from experiments.common import output

# A palette for colour-blind readers (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
OURS, PAPER = COLOURS[0], "#BBBBBB"


def png(figure: Figure) -> bytes:
    """Return the figure as a PNG; the same figure gives the same bytes."""
    memory = io.BytesIO()
    figure.savefig(memory, format="png", dpi=110, metadata={"Software": None})
    return memory.getvalue()


def save(figure: Figure, path: pathlib.Path) -> None:
    """Write the figure as a PNG."""
    output.write_bytes(path, png(figure))


def save_results(
    folder: pathlib.Path,
    name: str,
    data: Mapping[str, Any],
    figure: Figure,
    invocation: Sequence[str],
) -> None:
    """Write NAME.json, with its provenance, and NAME.png to a folder."""
    # The figures first: a picture that cannot be drawn must not lose them.
    output.write_results(folder / f"{name}.json", data, invocation)
    save(figure, folder / f"{name}.png")


def new(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def tidy(axes: Axes, **labels: Any) -> None:
    """Set labels, a faint grid and fewer spines."""
    axes.set(**labels)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)


def bars(
    models: Mapping[str, Mapping[str, Any]], title: str, metric: str = "micro_f1"
) -> Figure:
    """Draw F1 with error bars, beside the paper's where there is one."""
    figure = new(max(5.0, 1.1 + 0.85 * len(models)), 3.8)
    axes = figure.subplots()
    at = np.arange(len(models))
    papers = [entry["paper"] for entry in models.values()]
    beside = metric == "micro_f1" and any(value is not None for value in papers)
    shift = 0.12 if beside else 0.0
    means = [entry[metric]["mean"] for entry in models.values()]
    stds = [entry[metric]["std"] for entry in models.values()]
    drawn = list(means)
    # Points: bars would have to start at 0.
    several = any(stds)
    axes.errorbar(
        at - shift,
        means,
        yerr=stds if several else None,
        fmt="o",
        color=OURS,
        capsize=3,
        label="ours",
    )
    if beside:
        known = [(x, value) for x, value in zip(at, papers, strict=True) if value]
        axes.plot(
            [x + shift for x, _ in known],
            [value for _, value in known],
            "D",
            color=PAPER,
            label="paper",
        )
        drawn += [value for _, value in known]
        axes.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    room = max(stds) + 2
    low = 5 * np.floor((min(drawn) - room - 8) / 5)
    axes.set_ylim(max(0, low), min(100, max(drawn) + room))
    axes.set_xticks(at, list(models), rotation=30, ha="right")
    name = metric.replace("_f1", "-F1")
    tidy(axes, ylabel=f"{name}, %")
    axes.set_title(title, loc="left")
    return figure


def iterations(
    axes: Axes,
    lines: Mapping[str, Sequence[float]],
    title: str,
    dataset: str,
    errors: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Draw F1 by iteration, one line per model; the authors' program dashed."""
    by_iteration = {n: (range(1, len(v) + 1), v) for n, v in lines.items()}
    curves(axes, by_iteration, errors, "o" * len(lines))
    longest = max(map(len, lines.values()))
    programs = paper.AUTHORS_PROGRAM_ITERATIONS.get(dataset, {})
    for i, model in enumerate(lines):
        if model in programs:
            longest = max(longest, len(programs[model]))
            axes.plot(
                range(1, len(programs[model]) + 1),
                programs[model],
                "--",
                marker="x",
                ms=4,
                color=COLOURS[i % len(COLOURS)],
                alpha=0.6,
                label=f"{model} (authors' program)",
            )
    axes.set_xticks(range(1, longest + 1))
    axes.set(xlabel="iteration", ylabel="micro-F1, %", title=title)
    axes.legend(frameon=False, fontsize="small")


def losses(runs: Mapping[str, Mapping[str, Sequence[float]]], title: str) -> Figure:
    """Draw training and validation loss by epoch, one panel per model."""
    columns = min(4, len(runs))
    rows = -(-len(runs) // columns)
    figure = new(2.9 * columns, 2.1 * rows + 0.4)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
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
    """Draw average ranks (Demšar); a bar joins models that do not differ."""
    order = sorted(ranks, key=lambda model: ranks[model])
    half = -(-len(order) // 2)
    groups = _indistinct([ranks[model] for model in order], difference)
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
        label = f" {model}  {ranks[model]:.2f} "
        axes.text(edge, y, label, ha="right" if left else "left", va="center", size=9)
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


def _indistinct(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """Return the longest runs of two or more sorted ranks within the difference."""
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
    markers: str = "osv^Dx",
    **labels: Any,
) -> None:
    """Draw lines of (x, y), with error bars where they are given."""
    for i, (name, (at, values)) in enumerate(lines.items()):
        axes.errorbar(
            at,
            values,
            yerr=None if errors is None else errors.get(name),
            marker=markers[i % len(markers)],
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
    """Draw shares by hop as stacked horizontal bars, one bar per name."""
    most = max(len(row) for row in parts)
    for hop in range(most):
        sizes = [row[hop] if hop < len(row) else 0.0 for row in parts]
        left = [sum(row[:hop]) for row in parts]
        light = hop / most  # Dark for the node itself, lighter for every hop.
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
        frameon=False, ncols=most, loc="upper center", bbox_to_anchor=(0.5, -0.16)
    )

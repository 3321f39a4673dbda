"""Growth curves of I-NIP-MEAN: seconds and peak memory by iterations, hops and nodes.

Every point is measured in its own process. Whole fits are timed after compilation; the
seconds of an epoch are medians. By iterations, the peak is the median of several
processes, and fits are timed in turns by one process, so that a slow minute of the
machine affects all points.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments import paper
from experiments.common import drawing, output
from experiments.common.markdown import markdown_table
from experiments.scaling import measurement

MODEL = paper.WHOLE_MODEL
LINEAR, CONSTANT, LARGEST_GB = 0.99, 0.05, 8.0
_EPOCHS = 5
_PROCESSES, _TURNS = 3, 8  # Per point of the curve by iterations.
_ARCS = 10  # Per node; an edge is two arcs.
_LARGEST = 5  # Iterations on the largest graph.

_AXES = {"iterations": "iterations", "hops": "hops", "nodes": "num_nodes"}


def plan() -> dict[str, list[dict[str, Any]]]:
    """Return the points of each curve."""

    def point(hops: int, iterations: int, nodes: int, whole: int = 1) -> dict[str, Any]:
        return {
            "model": MODEL,
            "hops": hops,
            "iterations": iterations,
            "num_nodes": nodes,
            "num_edges": nodes * _ARCS // 2,
            "epochs": _EPOCHS,
            "whole": whole,
        }

    middle = paper.SCALING["num_nodes"]
    nodes = [point(1, 2, n) for n in (10_000, 30_000, 100_000, 300_000)]
    return {
        "iterations": [point(1, t, middle, 0) for t in range(1, 11)],
        "hops": [point(k, 1, middle) for k in (1, 2, 3)],
        "nodes": [*nodes, point(1, _LARGEST, 10**6)],
    }


def report(folder: pathlib.Path, invocation: Sequence[str], timeout: float) -> None:
    """Measure all points; write growth.json, growth.md and growth.png."""
    curves: dict[str, list[dict[str, Any]]] = {}
    data: dict[str, Any] = {"curves": curves}
    provenance = output.provenance(invocation)
    for curve, asked in plan().items():
        curves[curve] = []
        cap, processes, fits = 2 * LARGEST_GB, 1, None
        if curve == "iterations":
            processes = _PROCESSES
            timed = asked[-1] | {"whole": _TURNS, "fewer": True}
            fits = measurement.in_process(timed, cap, _TURNS * timeout)
        for point in asked:
            rounds = [
                measurement.in_process(point, cap, timeout) for _ in range(processes)
            ]
            found = point | merged(rounds, fits)
            curves[curve].append(found)
            at = found[_AXES[curve]]
            print(f"{curve:<10} {at:>8}  {_describe(found)}", flush=True)
            # After every point, as the last ones take long.
            data |= summary(curves)
            output.write_json(folder / "growth.json", data | provenance)
    output.write_text(folder / "growth.md", "\n".join([*markdown(data), ""]))
    drawing.save(_draw(curves), folder / "growth.png")
    for line in statements(data):
        print(line)
    print(f"Written: {folder}/growth.json, growth.md, growth.png")


def merged(
    rounds: Sequence[dict[str, Any]], fits: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return one point from several processes that did the same.

    Its fits may have been timed by another process, in turns with fewer iterations.
    """
    lost = [f for f in (*rounds, fits) if f and f["outcome"] != "measured"]
    if lost:
        return lost[0]
    peaks = [found["peak_gb"] for found in rounds]
    found = rounds[0] | {"peak_gb": round(float(np.median(peaks)), 3)}
    if len(peaks) > 1:
        found["peaks_gb"] = peaks
    if fits is not None:
        found["fit_seconds"] = fits["fits_seconds"][found["iterations"] - 1]
    return found


def summary(curves: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the figures of the statements; None where there are too few points."""

    def met(curve: str) -> list[dict[str, Any]]:
        return [p for p in curves.get(curve, []) if p["outcome"] == "measured"]

    def linear(curve: str, name: str) -> float | None:
        at = [point[_AXES[curve]] for point in met(curve)]
        return r_squared(at, [p[name] for p in met(curve)]) if len(at) > 2 else None

    peaks = [point["peak_gb"] for point in met("iterations")]
    largest = [p for p in curves.get("nodes", []) if p["num_nodes"] >= 10**6]
    return {
        "linear_in_iterations": linear("iterations", "fit_seconds"),
        "linear_in_nodes": linear("nodes", "epoch_seconds"),
        "memory_growth": max(peaks) / min(peaks) - 1 if peaks else None,
        "largest": largest[-1] if largest else None,
    }


def r_squared(at: Sequence[float], values: Sequence[float]) -> float:
    """Return the share of the variance that a straight line explains."""
    return float(np.corrcoef(at, values)[0, 1] ** 2)


def statements(data: dict[str, Any]) -> list[str]:
    """Return what is claimed, what was found, and whether it holds."""
    found: list[tuple[str, bool]] = []
    for name, what in (("iterations", "Seconds of a fit"), ("nodes", "Epoch seconds")):
        value = data[f"linear_in_{name}"]
        if value is not None:
            text = f"{what} linear in {name}: R^2 {value:.4f}"
            found.append((text, value >= LINEAR))
    grown = data["memory_growth"]
    if grown is not None:
        text = f"Peak memory over iterations: up to {grown:.0%} more"
        found.append((text, grown <= CONSTANT))
    point = data["largest"]
    if point is not None:
        fits = point["outcome"] == "measured" and point["peak_gb"] < LARGEST_GB
        text = f"{point['num_nodes']} nodes, {point['num_edges']} edges, C = "
        text += f"{point['hops']}, T = {point['iterations']}: {_describe(point)}"
        found.append((text, fits))
    return [f"{text} ({'yes' if holds else 'NO'})" for text, holds in found]


def markdown(data: dict[str, Any]) -> list[str]:
    """Return the page: statements, and one table per curve."""
    lines = ["# Growth of I-NIP-MEAN", "", *(f"- {s}" for s in statements(data))]
    for curve, found in data["curves"].items():
        rows = []
        for point in found:
            row = [point["outcome"], "-", "-"]
            if point["outcome"] == "measured":
                row = [f"{point['fit_seconds']:.3f}", f"{point['epoch_seconds']:.4f}"]
                row.append(f"{point['peak_gb']:.2f}")
            rows.append([str(point[_AXES[curve]]), *row])
        header = [curve, "seconds, whole fit", "seconds per epoch", "GB"]
        lines += ["", markdown_table(header, rows)]
    return lines


def _describe(point: dict[str, Any]) -> str:
    if point["outcome"] != "measured":
        return point["outcome"]
    each = f"{point['iterations']} x {point['epoch_seconds']:.4f} s per epoch"
    return f"{point['fit_seconds']:.3f} s ({each}), {point['peak_gb']:.2f} GB"


def _draw(curves: dict[str, list[dict[str, Any]]]) -> Any:
    figure = drawing.new(11.0, 6.0)
    axes = figure.subplots(2, len(curves))
    for column, (curve, found) in enumerate(curves.items()):
        met = [point for point in found if point["outcome"] == "measured"]
        at = [point[_AXES[curve]] for point in met]
        seconds = "fit_seconds" if curve == "iterations" else "epoch_seconds"
        for panel, name, label in (
            (axes[0, column], seconds, "seconds"),
            (axes[1, column], "peak_gb", "peak GB"),
        ):
            line = {label: (at, [point[name] for point in met])}
            drawing.curves(panel, line, xlabel=curve, ylabel=label)
            panel.get_legend().remove()
            panel.set_ylim(0, 1.08 * max((p[name] for p in met), default=1))
            if curve != "nodes":
                panel.set_xticks(at)
    return figure

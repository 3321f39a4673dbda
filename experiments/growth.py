"""How I-NIP-MEAN grows: seconds and peak memory by iterations, hops and nodes.

Its time is linear in the iterations T and its memory constant, as nothing but label
summaries passes from one to the next; at a fixed degree an epoch is linear in the
nodes. Predictions of graphs of several chunks grow faster: each chunk of a random graph
reads from nearly all nodes.

A point is a process. Whole fits are timed when all is compiled; the seconds of an epoch
are medians. By iterations, the peak is the median of three processes, as processes that
do the same differ by some percent; and fits are timed in turns by one process, the
least of eight, so that a slow minute of the machine does not fall on one point alone.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments import drawing, folders, paper, points

MODEL = paper.WHOLE_MODEL
LINEAR, CONSTANT, LARGEST_GB = 0.99, 0.05, 8.0
_EPOCHS = 5
_PROCESSES, _TURNS = 3, 8  # of a point by iterations
_ARCS = 10  # of a node; an edge is two
_LARGEST = 5  # iterations of the largest graph


def plan(quick: bool) -> dict[str, list[dict[str, Any]]]:
    """The points of each curve."""

    def point(hops: int, iterations: int, nodes: int, whole: int = 1) -> dict[str, Any]:
        return {
            "model": MODEL,
            "hops": hops,
            "iterations": iterations,
            "num_nodes": nodes,
            "num_edges": nodes * _ARCS // 2,
            "epochs": 2 if quick else _EPOCHS,
            "whole": whole,
        }

    scale = 1000 if quick else 1
    nodes = [n // scale for n in (10_000, 30_000, 100_000, 300_000)]
    steps = (1, 3) if quick else range(1, 11)
    middle = paper.SCALING["num_nodes"] // scale
    largest = point(1, 2 if quick else _LARGEST, 10**6 // scale)
    return {
        "iterations": [point(1, t, middle, 0) for t in steps],
        "hops": [point(k, 1, middle) for k in (1, 2, 3)],
        "nodes": [*(point(1, 2, n) for n in nodes), largest],
    }


_AXES = {"iterations": "iterations", "hops": "hops", "nodes": "num_nodes"}


def report(
    folder: pathlib.Path, provenance: dict[str, Any], timeout: float, quick: bool
) -> int:
    """Measure all points, write growth.json, growth.md and growth.png."""
    curves: dict[str, list[dict[str, Any]]] = {}
    data: dict[str, Any] = {"curves": curves}
    for curve, asked in plan(quick).items():
        curves[curve] = []
        cap, processes, fits = 2 * LARGEST_GB, 1, None
        if curve == "iterations":
            processes, turns = _PROCESSES, 2 if quick else _TURNS
            timed = asked[-1] | {"whole": turns, "fewer": True}
            fits = points.in_a_process(timed, cap, turns * timeout)
        for point in asked:
            rounds = [
                points.in_a_process(point, cap, timeout) for _ in range(processes)
            ]
            found = point | merged(rounds, fits)
            curves[curve].append(found)
            print(f"{curve:<10} {found[_AXES[curve]]:>8}  {_said(found)}", flush=True)
            # After every point: the last take long, and may be interrupted.
            data |= summary(curves)
            folders.write_json(folder / "growth.json", data | provenance)
    folders.write_text(folder / "growth.md", "\n".join([*markdown(data), ""]))
    drawing.save(_draw(curves), folder / "growth.png")
    for line in statements(data):
        print(line)
    print(f"Written: {folder}/growth.json, growth.md, growth.png")
    return 0


def merged(
    rounds: Sequence[dict[str, Any]], fits: dict[str, Any] | None = None
) -> dict[str, Any]:
    """One point of several processes that did the same.

    Its fits may have been timed by another one, in turns with fewer iterations.
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
    """The figures that the statements are about; None where there are too few."""

    def met(curve: str) -> list[dict[str, Any]]:
        return [p for p in curves.get(curve, []) if p["outcome"] == "measured"]

    def linear(curve: str, of: str) -> float | None:
        at = [point[_AXES[curve]] for point in met(curve)]
        return r_squared(at, [p[of] for p in met(curve)]) if len(at) > 2 else None

    peaks = [point["peak_gb"] for point in met("iterations")]
    largest = [p for p in curves.get("nodes", []) if p["num_nodes"] >= 10**6]
    return {
        "linear_in_iterations": linear("iterations", "fit_seconds"),
        "linear_in_nodes": linear("nodes", "epoch_seconds"),
        "memory_growth": max(peaks) / min(peaks) - 1 if peaks else None,
        "largest": largest[-1] if largest else None,
    }


def r_squared(at: Sequence[float], values: Sequence[float]) -> float:
    """The share of the variance that a straight line explains."""
    return float(np.corrcoef(at, values)[0, 1] ** 2)


def statements(data: dict[str, Any]) -> list[str]:
    """What is claimed, what was found, and whether it holds."""
    found = []
    for name, what in (("iterations", "Seconds of a fit"), ("nodes", "Epoch seconds")):
        value = data[f"linear_in_{name}"]
        if value is not None:
            held = _held(value >= LINEAR)
            found.append(f"{what} linear in {name}: R^2 {value:.4f} ({held})")
    if data["memory_growth"] is not None:
        grown = data["memory_growth"]
        held = _held(grown <= CONSTANT)
        found.append(f"Peak memory over iterations: {grown:.0%} more at most ({held})")
    if data["largest"] is not None:
        point = data["largest"]
        held = _held(point["outcome"] == "measured" and point["peak_gb"] < LARGEST_GB)
        found.append(
            f"{point['num_nodes']} nodes, {point['num_edges']} edges, C = "
            f"{point['hops']}, T = {point['iterations']}: {_said(point)} ({held})"
        )
    return found


def _held(holds: bool) -> str:
    return "yes" if holds else "NO"


def markdown(data: dict[str, Any]) -> list[str]:
    """The page: statements and a table a curve."""
    lines = ["# How I-NIP-MEAN grows", "", *(f"- {s}" for s in statements(data))]
    for curve, found in data["curves"].items():
        lines += ["", f"| {curve} | seconds, whole fit | an epoch | GB |"]
        lines.append("| --- | --- | --- | --- |")
        for point in found:
            at = point[_AXES[curve]]
            if point["outcome"] != "measured":
                lines.append(f"| {at} | {point['outcome']} | - | - |")
                continue
            each, peak = point["epoch_seconds"], point["peak_gb"]
            lines.append(
                f"| {at} | {point['fit_seconds']:.3f} | {each:.4f} | {peak:.2f} |"
            )
    return lines


def _said(point: dict[str, Any]) -> str:
    if point["outcome"] != "measured":
        return point["outcome"]
    each = f"{point['iterations']} x {point['epoch_seconds']:.4f} s an epoch"
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

"""Figure 3: time and memory of a training epoch against the number of hops.

NIP-MEAN learns all K hops end to end (C = K); I-NIP-MEAN learns C = 1 or 2 of them and
iterates K / C times. An iteration of a K-hop model is an epoch, so one epoch of each of
the K / C iterations is summed. The graph is the paper's: 100k nodes and 500k edges at
random.

Every point is measured in its own process, which is ended beyond the memory cap and
shown as out of memory. Then follow the growth curves of I-NIP-MEAN by iterations, hops
and nodes (`growth_curves.py`). Writes scaling.png, scaling.json, growth.png,
growth.json and growth.md to WORKDIR/scaling.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from experiments import paper
from experiments.common import arguments, drawing
from experiments.scaling import growth_curves, measurement

_CURVES = {  # {label: (model, differentiable hops; None is all)}
    "NIP-MEAN, C = K": ("nip-mean", None),
    "I-NIP-MEAN, C = 1": ("i-nip-mean", 1),
    "I-NIP-MEAN, C = 2": ("i-nip-mean", 2),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.scaling")
    sizes = paper.SCALING
    arguments.add_counts(
        parser, hops=6, nodes=sizes["num_nodes"], edges=sizes["num_edges"]
    )
    about = "timed epochs per iteration, after one that compiles"
    parser.option("epochs", arguments.positive, 2, about)
    parser.option("memory", float, 4.0, "cap per process, GB")
    parser.option("timeout", float, 900.0, "seconds per point")
    parser.add_argument(
        "--part",
        choices=("all", "curves", "growth"),
        default="all",
        help="curves of Figure 3, growth curves of I-NIP-MEAN, or all (default)",
    )
    options = parser.parse_args(argv)
    folder = options.workdir / "scaling"
    if options.part != "growth":
        _curves(options, folder)
    if options.part != "curves":
        growth_curves.report(folder, options.invocation, options.timeout)
    return 0


def _curves(options: argparse.Namespace, folder: pathlib.Path) -> None:
    curves: dict[str, Any] = {}
    for label, (model, differentiable) in _CURVES.items():
        curves[label] = {}
        failed = ""  # More hops never need less.
        for hops in range(1, options.hops + 1):
            learned = differentiable or hops
            if hops % learned:
                continue
            point: dict[str, Any] = {"outcome": failed}
            if not failed:
                point = measurement.in_process(
                    {
                        "model": model,
                        "hops": learned,
                        "iterations": hops // learned,
                        "num_nodes": options.nodes,
                        "num_edges": options.edges,
                        "epochs": options.epochs,
                    },
                    options.memory,
                    options.timeout,
                )
            if point["outcome"] != "measured" and differentiable is None:
                failed = point["outcome"]
            curves[label][str(hops)] = point
            print(f"{label:<20} {hops} hops  {_describe(point)}", flush=True)
    data = {
        "curves": curves,
        "graph": {"nodes": options.nodes, "edges": options.edges},
        "memory_cap_gb": options.memory,
        "timeout_seconds": options.timeout,
        "epochs": options.epochs,
        "paper": dict(paper.SCALING),
    }
    figure = _draw(curves, options.memory)
    drawing.save_results(folder, "scaling", data, figure, options.invocation)


def _describe(point: dict[str, Any]) -> str:
    if point["outcome"] != "measured":
        return point["outcome"]
    each = f"{point['iterations']} x {point['epoch_seconds']:.3f} s"
    return f"{point['seconds']:8.3f} s  {point['peak_gb']:.2f} GB  ({each})"


def _draw(curves: dict[str, Any], cap: float) -> Any:
    figure = drawing.new(10.5, 4.0)
    axes = figure.subplots(1, 2)
    met = {
        label: {int(h): p for h, p in points.items() if p["outcome"] == "measured"}
        for label, points in curves.items()
    }
    for panel, name, label, title in (
        (axes[0], "seconds", "seconds (log scale)", "Training epoch"),
        (axes[1], "peak_gb", "GB", "Peak memory of the process"),
    ):
        lines = {
            curve: (list(points), [point[name] for point in points.values()])
            for curve, points in met.items()
        }
        drawing.curves(panel, lines, xlabel="hops", ylabel=label, title=title)
        most = max((int(h) for points in curves.values() for h in points), default=1)
        panel.set_xticks(range(1, most + 1))
    if any(met.values()):
        axes[0].set_yscale("log")
        axes[0].yaxis.set_major_formatter("{x:g}")
        axes[0].yaxis.set_minor_formatter("")
    axes[1].axhline(cap, color="0.5", linestyle=":", linewidth=1)
    axes[1].set_ylim(0, 1.15 * cap)
    axes[1].text(1, cap, f" cap {cap:g} GB", va="bottom", fontsize="small", color="0.4")
    for colour, points in zip(drawing.COLOURS, curves.values(), strict=False):
        lost = [(int(h), p) for h, p in points.items() if p["outcome"] != "measured"]
        for hops, point in lost[:1]:
            for panel in axes:
                at, height = panel.get_xaxis_transform(), 0.85
                panel.plot([hops], [height], "X", ms=9, color=colour, transform=at)
                panel.annotate(
                    point["outcome"], (hops, height), (5, -9), xycoords=at, va="top",
                    ha="right", textcoords="offset points", color=colour,
                    fontsize="small",
                )  # fmt: skip
    return figure


if __name__ == "__main__":
    sys.exit(main())

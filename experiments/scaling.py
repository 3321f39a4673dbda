"""Figure 3: seconds and peak memory of training against the hops that are read.

NIP-MEAN learns all K hops end to end (C = K); I-NIP-MEAN learns C = 1 or 2 of them and
iterates K / C times. An iteration of a K-hop model is an epoch, so what is compared is
an epoch of each of the K / C iterations, summed. The graph is the paper's: 100k nodes,
500k edges, all at random.

Every point is a process of its own, so that its peak memory is its own; beyond the
memory cap it is ended and shown as out of memory. After that comes how I-NIP-MEAN grows
with iterations, hops and nodes (`experiments.growth`). Writes scaling.png and
scaling.json, growth.png, growth.json and growth.md to WORKDIR/scaling.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from experiments import arguments, drawing, folders, growth, paper, points

_MODULE = "experiments.scaling"
_CURVES = {  # {label: (model, differentiable hops; None is all)}
    "NIP-MEAN, C = K": ("nip-mean", None),
    "I-NIP-MEAN, C = 1": ("i-nip-mean", 1),
    "I-NIP-MEAN, C = 2": ("i-nip-mean", 2),
}


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(argv)
    folder = options.workdir / "scaling"
    provenance = folders.provenance([_MODULE, *argv])
    if options.part != "growth":
        _curves(options, folder, provenance)
    if options.part != "curves":
        limits = options.timeout, options.quick
        return growth.report(folder, provenance, *limits)
    return 0


def _curves(
    options: argparse.Namespace, folder: Any, provenance: dict[str, Any]
) -> None:
    curves: dict[str, Any] = {}
    for label, (model, differentiable) in _CURVES.items():
        curves[label] = {}
        spent = ""  # More hops never need less.
        for hops in range(1, options.hops + 1):
            if differentiable is not None and hops % differentiable:
                continue
            point: dict[str, Any] = {"outcome": spent}
            if not spent:
                point = points.in_a_process(
                    {
                        "model": model,
                        "hops": differentiable or hops,
                        "iterations": hops // (differentiable or hops),
                        "num_nodes": options.nodes,
                        "num_edges": options.edges,
                        "epochs": options.epochs,
                    },
                    options.memory,
                    options.timeout,
                )
            if point["outcome"] != "measured" and differentiable is None:
                spent = point["outcome"]
            curves[label][str(hops)] = point
            print(f"{label:<20} {hops} hops  {_said(point)}", flush=True)
    data = {
        "curves": curves,
        "graph": {"nodes": options.nodes, "edges": options.edges},
        "memory_cap_gb": options.memory,
        "timeout_seconds": options.timeout,
        "epochs": options.epochs,
        "paper": dict(paper.SCALING),
    }
    folders.write_json(folder / "scaling.json", data | provenance)
    drawing.save(_draw(curves, options.memory), folder / "scaling.png")
    print(f"Written: {folder}/scaling.json, scaling.png")


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser(__doc__, _MODULE)
    sizes = paper.SCALING
    parser.add_argument("--hops", type=arguments.positive, default=6, help="most hops")
    parser.add_argument(
        "--nodes", type=arguments.positive, default=sizes["num_nodes"], help="of graph"
    )
    parser.add_argument(
        "--edges", type=arguments.positive, default=sizes["num_edges"], help="of graph"
    )
    parser.add_argument(
        "--epochs",
        type=arguments.positive,
        default=2,
        help="timed epochs an iteration, after one that compiles (default: 2)",
    )
    parser.add_argument(
        "--memory", type=float, default=4.0, help="cap of a process, GB (default: 4)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=900.0,
        help="of a point, seconds (default: 900)",
    )
    parser.add_argument(
        "--part",
        choices=("all", "curves", "growth"),
        default="all",
        help="the figure's curves, the growth of I-NIP-MEAN, or all (default)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="growth on small graphs: no figure"
    )
    return parser


def _said(point: dict[str, Any]) -> str:
    if point["outcome"] != "measured":
        return point["outcome"]
    each = f"{point['iterations']} x {point['epoch_seconds']:.3f} s"
    return f"{point['seconds']:8.3f} s  {point['peak_gb']:.2f} GB  ({each})"


def _draw(points: dict[str, Any], cap: float) -> Any:
    figure = drawing.new(10.5, 4.0)
    axes = figure.subplots(1, 2)
    for panel, name, label, title in (
        (axes[0], "seconds", "seconds (log scale)", "A training epoch"),
        (axes[1], "peak_gb", "GB", "Peak memory of the process"),
    ):
        lines = {}
        for curve, of in points.items():
            met = {int(h): p for h, p in of.items() if p["outcome"] == "measured"}
            lines[curve] = (list(met), [point[name] for point in met.values()])
        drawing.curves(panel, lines, xlabel="hops", ylabel=label, title=title)
        most = max((int(h) for of in points.values() for h in of), default=1)
        panel.set_xticks(range(1, most + 1))
    if any(p["outcome"] == "measured" for of in points.values() for p in of.values()):
        axes[0].set_yscale("log")
        axes[0].yaxis.set_major_formatter("{x:g}")
        axes[0].yaxis.set_minor_formatter("")
    axes[1].axhline(cap, color="0.5", linestyle=":", linewidth=1)
    axes[1].set_ylim(0, 1.15 * cap)
    axes[1].text(1, cap, f" cap {cap:g} GB", va="bottom", fontsize="small", color="0.4")
    for i, (_curve, of) in enumerate(points.items()):
        lost = [
            (int(h), p["outcome"]) for h, p in of.items() if p["outcome"] != "measured"
        ]
        if lost:
            hops, outcome = lost[0]
            at_cap = (cap, axes[1].transData)
            if outcome != "out of memory":
                at_cap = (0.5, axes[1].get_xaxis_transform())
            for panel, height, at in (
                (axes[0], 0.93, axes[0].get_xaxis_transform()),
                # Out of memory is at the cap; what took too long, anywhere.
                (axes[1], *at_cap),
            ):
                colour = drawing.COLOURS[i]
                panel.plot([hops], [height], "X", ms=9, color=colour, transform=at)
                panel.annotate(
                    outcome, (hops, height), (5, -9), xycoords=at, va="top", ha="right",
                    textcoords="offset points", color=colour, fontsize="small",
                )  # fmt: skip
    return figure


if __name__ == "__main__":
    sys.exit(main())

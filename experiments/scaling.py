"""Figure 3: seconds and peak memory of training against the hops that are read.

NIP-MEAN learns all K hops end to end (C = K); I-NIP-MEAN learns C = 1 or 2 of them and
iterates K / C times. An iteration of a K-hop model is an epoch, so what is compared is
an epoch of each of the K / C iterations, summed. The graph is the paper's: 100k nodes,
500k edges, all at random.

Every point is a process of its own, so that its peak memory is its own; beyond the
memory cap it is ended and shown as out of memory. Writes scaling.png and scaling.json
to WORKDIR/scaling.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import hopf_jax
from experiments import arguments, drawing, folders, paper
from hopf_jax.datasets import make_random

_MODULE = "experiments.scaling"
_CURVES = {  # {label: (model, differentiable hops; None is all)}
    "NIP-MEAN, C = K": ("nip-mean", None),
    "I-NIP-MEAN, C = 1": ("i-nip-mean", 1),
    "I-NIP-MEAN, C = 2": ("i-nip-mean", 2),
}
_POLL_SECONDS = 0.1


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(argv)
    if options.point is not None:
        print(json.dumps(measure(**json.loads(options.point))))
        return 0
    points: dict[str, Any] = {}
    for label, (model, differentiable) in _CURVES.items():
        points[label] = {}
        spent = ""  # More hops never need less.
        for hops in range(1, options.hops + 1):
            if differentiable is not None and hops % differentiable:
                continue
            point: dict[str, Any] = {"outcome": spent}
            if not spent:
                point = _in_a_process(
                    options,
                    {
                        "model": model,
                        "hops": differentiable or hops,
                        "iterations": hops // (differentiable or hops),
                        "num_nodes": options.nodes,
                        "num_edges": options.edges,
                        "epochs": options.epochs,
                    },
                )
            if point["outcome"] != "measured" and differentiable is None:
                spent = point["outcome"]
            points[label][str(hops)] = point
            print(f"{label:<20} {hops} hops  {_said(point)}", flush=True)
    folder = options.workdir / "scaling"
    data = {
        "curves": points,
        "graph": {"nodes": options.nodes, "edges": options.edges},
        "memory_cap_gb": options.memory,
        "timeout_seconds": options.timeout,
        "epochs": options.epochs,
        "paper": dict(paper.SCALING),
    }
    provenance = folders.provenance([_MODULE, *argv])
    folders.write_json(folder / "scaling.json", data | provenance)
    drawing.save(_draw(points, options.memory), folder / "scaling.png")
    print(f"Written: {folder}/scaling.json, scaling.png")
    return 0


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
        "--point", help=argparse.SUPPRESS
    )  # One point, in this process.
    return parser


def measure(
    model: str, hops: int, iterations: int, num_nodes: int, num_edges: int, epochs: int
) -> dict[str, Any]:
    """One point, measured in this process, whose peak memory is the point's."""
    sizes = paper.SCALING
    graph = make_random(
        num_nodes, num_edges, sizes["num_features"], sizes["num_labels"]
    )
    before = _peak_gb()
    config = hopf_jax.Config(
        num_hops=hops,
        hidden_size=sizes["hidden"],
        batch_size=sizes["batch_size"],
        num_iterations=iterations,
        dropout=0.0,
        max_epochs=epochs + 1,
        min_epochs=epochs + 1,
    )
    result = hopf_jax.fit(graph, model, config, progress=False)
    by_iteration = []
    for t in range(1, len(result.iterations) + 1):
        seconds = [r["seconds"] for r in result.history if r["iteration"] == t]
        by_iteration.append(float(np.median(seconds[1:])))  # The first compiles.
    return {
        "outcome": "measured",
        "seconds": round(sum(by_iteration), 4),
        "epoch_seconds": round(float(np.median(by_iteration)), 4),
        "inference_seconds": _inference_seconds(result),
        "iterations": len(result.iterations),
        "differentiable_hops": hops,
        "peak_gb": round(_peak_gb(), 3),
        "graph_gb": round(before, 3),
        "roots": int(graph.train.sum()),
    }


def _inference_seconds(result: hopf_jax.Result) -> float | None:
    """Of one pass over the graph; None if the only one compiled."""
    if len(result.iterations) == 1:
        return None
    last = result.iterations[-1]
    learned = [
        r["seconds"] for r in result.history if r["iteration"] == last["iteration"]
    ]
    return round(last["seconds"] - sum(learned), 4)


def _peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def _in_a_process(options: Any, point: dict[str, Any]) -> dict[str, Any]:
    """`measure` in a new process, ended at the memory cap or the time limit."""
    command = [sys.executable, "-m", _MODULE, "--point", json.dumps(point)]
    begun = time.monotonic()
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as problems,
        subprocess.Popen(
            command, stdout=out, stderr=problems, cwd=folders.ROOT, text=True
        ) as process,
    ):
        outcome, most = "", 0.0
        try:
            while process.poll() is None:
                most = max(most, resident_gb(process.pid))
                if most > options.memory:
                    outcome = "out of memory"
                elif time.monotonic() - begun > options.timeout:
                    outcome = "timed out"
                if outcome:
                    process.kill()
                    break
                time.sleep(_POLL_SECONDS)
        except BaseException:
            process.kill()
            raise
        status = process.wait()
        out.seek(0)
        problems.seek(0)
        if not outcome and status == 0:
            measured = json.loads(out.read())
            if measured["peak_gb"] <= options.memory:
                return measured
            outcome, most = "out of memory", measured["peak_gb"]
        if not outcome:
            said = problems.read().strip()
            # The kernel's own killer, or an allocation that failed.
            short = (
                status == -9 or "RESOURCE_EXHAUSTED" in said or "MemoryError" in said
            )
            outcome = "out of memory" if short else "failed"
            if not short:
                folders.say(said[-2000:])
        return {"outcome": outcome, "peak_gb": round(most, 3)}


def resident_gb(process_id: int) -> float:
    """Memory that a process holds now; 0 where the system does not tell."""
    try:
        pages = int(pathlib.Path(f"/proc/{process_id}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024**3


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
            for panel, height in ((axes[0], 0.93), (axes[1], 0.8)):
                at = panel.get_xaxis_transform()
                colour = drawing.COLOURS[i]
                panel.plot([hops], [height], "X", ms=9, color=colour, transform=at)
                panel.text(
                    hops + 0.12, height, outcome, va="center", color=colour,
                    fontsize="small", transform=at,
                )  # fmt: skip
    return figure


if __name__ == "__main__":
    sys.exit(main())

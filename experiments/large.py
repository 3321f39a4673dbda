"""A graph larger than memory: an epoch, a prediction of all nodes, and what they held.

Writes a random graph to a folder (once), opens it memory-mapped, learns for one epoch
and predicts all nodes, and says how much memory that took. RssAnon is what the process
holds; RssFile are pages of the mapped files, which the system drops when it needs the
room, but which VmHWM, the peak of the two together, counts. Exits with status 1 if
VmHWM is above the bound. Writes large.json to WORKDIR/large.
"""

import argparse
import pathlib
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import hopf_jax
from experiments import arguments, folders
from hopf_jax.datasets import write_random

_MODULE = "experiments.large"
_MODEL = "i-nip-mean"
_GB = 1e9
_POLL_SECONDS = 0.02

# What of a run is held at once, in arrays of all nodes: label summaries, as they were,
# as they will be, on the device, as logits and as probabilities; hidden states h_0 and
# two hops; and places, sets and ids, in bytes.
_SUMMARIES, _STATES, _BYTES_A_NODE = 7, 3, 64
_PROGRAM = 1.0 * _GB  # Python, jax, its compiler; and a batch or a chunk


def bound(num_nodes: int, num_labels: int, hidden: int) -> float:
    """Bytes that a run may hold, mapped files aside."""
    words = _SUMMARIES * num_labels + _STATES * hidden
    return _PROGRAM + num_nodes * (4 * words + _BYTES_A_NODE)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(argv)
    folder = options.graph or options.workdir / "large" / "graph"
    begun = time.monotonic()
    if not folder.exists():
        write_random(
            folder,
            options.nodes,
            options.edges,
            options.features,
            options.labels,
            num_train=options.train,
            num_validation=max(1, options.train // 10),
        )
        print(f"written in {time.monotonic() - begun:.0f} s: {folder}", flush=True)
    _clear_peak()
    with Peaks() as peaks:
        graph, seconds = run(folder, options)
    files = sum(path.stat().st_size for path in folder.iterdir())
    most = bound(graph.num_nodes, graph.num_labels, options.hidden)
    data: dict[str, Any] = {
        "graph": {
            "nodes": graph.num_nodes,
            "edges": graph.num_edges // 2,
            "features": graph.num_features,
            "labels": graph.num_labels,
            "bytes_on_disk": files,
        },
        "hidden": options.hidden,
        "hops": options.hops,
        "seconds": seconds,
        "bound_bytes": most,
        **{f"peak_{name}_bytes": value for name, value in peaks.peaks.items()},
    }
    path = options.workdir / "large" / "large.json"
    folders.write_json(path, data | folders.provenance([_MODULE, *argv]))
    said = ", ".join(f"{n} {v / _GB:.2f} GB" for n, v in peaks.peaks.items())
    print(f"{graph}\n{files / _GB:.2f} GB on disk; {seconds}")
    print(
        f"peaks: {said}; RssAnon bound {most / _GB:.2f} GB, VmHWM {options.most:g} GB"
    )
    within = peaks.peaks["RssAnon"] <= most
    return 0 if within and peaks.peaks["VmHWM"] <= options.most * _GB else 1


def run(folder: pathlib.Path, options: argparse.Namespace) -> tuple[Any, Any]:
    """Open, learn an epoch an iteration, predict; the graph, and seconds by part."""
    begun = time.monotonic()
    graph = hopf_jax.open_graph(folder)
    opened = time.monotonic()
    config = hopf_jax.Config(
        num_hops=options.hops,
        hidden_size=options.hidden,
        num_iterations=options.iterations,
        batch_size=1024,
        max_epochs=1,
        min_epochs=1,
    )
    streamed = hopf_jax.Execution(memory_budget=0)
    result = hopf_jax.fit(graph, _MODEL, config, progress=False, execution=streamed)
    seconds = {
        "open": round(opened - begun, 1),
        "fit": round(time.monotonic() - opened, 1),
        "epochs": [round(record["seconds"], 1) for record in result.history],
    }
    return graph, seconds


class Peaks:
    """The most memory a process held, by kind, while inside; polled but for VmHWM."""

    def __init__(self) -> None:
        self.peaks = {"RssAnon": 0, "RssFile": 0, "VmHWM": 0}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Peaks":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            self._look()

    def _look(self) -> None:
        for line in pathlib.Path("/proc/self/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in self.peaks:
                held = 1024 * int(value.split()[0])
                self.peaks[name] = max(self.peaks[name], held)


def _clear_peak() -> None:
    """Let VmHWM start anew: what writing the graph took is not the run's."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser(__doc__, _MODULE)
    parser.add_argument(
        "--graph", type=pathlib.Path, help="(default: WORKDIR/large/graph)"
    )
    for name, default in (
        ("nodes", 10_000_000),
        ("edges", 50_000_000),
        ("features", 16),
        ("labels", 5),
        ("train", 100_000),
        ("hidden", 16),
        ("hops", 2),
        ("iterations", 2),
    ):
        parser.add_argument(
            f"--{name}",
            type=arguments.positive,
            default=default,
            help="(default: %(default)s)",
        )
    parser.add_argument(
        "--most", type=float, default=6.0, help="GB of VmHWM (default: 6)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())

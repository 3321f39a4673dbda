"""Measure the memory of training and predicting on a large memory-mapped graph.

Writes a random graph to a folder (once), opens it memory-mapped, trains one epoch per
iteration and predicts all nodes. RssAnon is the memory of the process; RssFile are
pages of the mapped files, which the system drops when it needs the memory; VmHWM is the
peak of both together. Exits with status 1 if RssAnon or VmHWM is above its bound.
Writes large.json to WORKDIR/large.
"""

import argparse
import contextlib
import pathlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import hopf_jax
from experiments import paper
from experiments.common import arguments, output
from hopf_jax.datasets import write_random

_MODEL = "i-nip-mean"
_GB = 1e9
_POLL_SECONDS = 0.02

# Arrays of all nodes that a run holds at once: label summaries (previous, next, on the
# device, logits and probabilities), hidden states (h_0 and two hops), and bytes per
# node of indices, masks and ids.
_SUMMARIES, _STATES, _BYTES_PER_NODE = 7, 3, 64
_PROGRAM = 1.0 * _GB  # Python, JAX, its compiler, and one batch or chunk.


def bound(num_nodes: int, num_labels: int, hidden: int) -> float:
    """Return the bytes that a run may hold, without mapped files."""
    words = _SUMMARIES * num_labels + _STATES * hidden
    return _PROGRAM + num_nodes * (4 * words + _BYTES_PER_NODE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.scaling.large_graph")
    parser.option("graph", pathlib.Path, help="(default: WORKDIR/large/graph)")
    arguments.add_counts(
        parser,
        nodes=10_000_000,
        edges=50_000_000,
        features=16,
        labels=5,
        train=100_000,
        hidden=16,
        hops=2,
        iterations=2,
    )
    parser.option("most", float, 6.0, "bound of VmHWM in GB")
    options = parser.parse_args(argv)
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
        print(f"Written in {time.monotonic() - begun:.0f} s: {folder}", flush=True)
    # Reset VmHWM, so that it does not include writing the graph.
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    with record_peaks() as peaks:
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
        **{f"peak_{name}_bytes": value for name, value in peaks.items()},
    }
    path = options.workdir / "large" / "large.json"
    output.write_results(path, data, options.invocation)
    held = ", ".join(f"{n} {v / _GB:.2f} GB" for n, v in peaks.items())
    print(f"{graph}\n{files / _GB:.2f} GB on disk; {seconds}")
    print(f"Peaks: {held}; bounds: {most / _GB:.2f} and VmHWM {options.most:g} GB")
    within = peaks["RssAnon"] <= most
    return 0 if within and peaks["VmHWM"] <= options.most * _GB else 1


def run(folder: pathlib.Path, options: argparse.Namespace) -> tuple[Any, Any]:
    """Open the graph, train and predict; return it, and the seconds of each part."""
    begun = time.monotonic()
    graph = hopf_jax.open_graph(folder)
    opened = time.monotonic()
    config = paper.protocol_config(
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


@contextlib.contextmanager
def record_peaks() -> Iterator[dict[str, int]]:
    """Yield the peak memory of this process, by kind, complete at the end.

    The system records VmHWM; the others are polled.
    """
    peaks = {"RssAnon": 0, "RssFile": 0, "VmHWM": 0}
    ended = threading.Event()

    def poll() -> None:
        while True:
            last = ended.wait(_POLL_SECONDS)
            for line in pathlib.Path("/proc/self/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in peaks:
                    peaks[name] = max(peaks[name], 1024 * int(value.split()[0]))
            if last:
                return

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    sys.exit(main())

"""Weak scaling: seconds of an epoch by number of processes, with equal work for each.

Every process has one core and the same number of training roots; with P processes the
graph is the same, a step has P times the subgraphs, and an epoch as many steps.
Efficiency is the epoch of one process over the epoch of P: in seconds, which need an
idle machine, and in processor seconds per process, which do not, but exclude waiting.
Processes of one machine share its memory bandwidth and caches, and communicate over
loopback: this measures the overhead of the library, not of a network. Writes
weak_scaling.json to WORKDIR/weak_scaling.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from experiments import launch, paper
from experiments.common import arguments, output

_LANES_EACH = 2  # Subgraphs per process and step.


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.scaling.weak_scaling")
    parser.option("processes", arguments.numbers, (1, 2), "comma-separated")
    arguments.add_counts(
        parser, nodes=100_000, edges=500_000, roots=4096, hops=1, hidden=128, epochs=8
    )
    parser.option("into", pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.into is not None:
        _measure(options)
        return 0
    cores = len(os.sched_getaffinity(0))
    points: dict[str, Any] = {}
    for count in options.processes:
        if count > cores:
            print(f"{count} processes: left out, as there are {cores} cores")
            continue
        with tempfile.TemporaryDirectory() as folder:
            into = pathlib.Path(folder) / "point.json"
            command = [sys.executable, "-m", *options.invocation, "--into", str(into)]
            if launch.run_processes(command, count):
                output.log(f"{count} processes failed")
                return 1
            point = json.loads(into.read_text())
        points[str(count)] = point
        first = points[str(min(map(int, points)))]
        for name in ("epoch", "cpu"):
            ratio = first[f"{name}_seconds"] / point[f"{name}_seconds"]
            point[f"{name}_efficiency"] = round(ratio, 3)
        print(
            f"{count} processes: {point['roots']} roots, {point['steps']} steps per "
            f"epoch, {point['epoch_seconds']:.3f} s ({point['least_seconds']:.3f} to "
            f"{point['most_seconds']:.3f}), efficiency {point['epoch_efficiency']:.2f};"
            f" processor {point['cpu_seconds']:.3f} s each, efficiency "
            f"{point['cpu_efficiency']:.2f}",
            flush=True,
        )
    data = {"points": points, "cores": cores, "load": os.getloadavg()[0]}
    path = options.workdir / "weak_scaling" / "weak_scaling.json"
    output.write_results(path, data, options.invocation)
    return 0


def _measure(options: argparse.Namespace) -> None:
    """Measure in one process of a point; the first writes the results."""
    index, count = (
        int(os.environ[f"JAX_{n}"]) for n in ("PROCESS_ID", "NUM_PROCESSES")
    )
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[index]})  # Before JAX counts them.

    import numpy as np

    import hopf_jax
    from hopf_jax.datasets import make_random
    from hopf_jax.runtime import processes

    if count > 1:
        processes.initialize()
    graph = make_random(options.nodes, options.edges)
    rng = np.random.default_rng(0)
    chosen = rng.permutation(options.nodes)[: options.roots * count + 128]
    graph = graph.with_split(train=chosen[128:], validation=chosen[:128])
    config = paper.protocol_config(
        num_hops=options.hops,
        hidden_size=options.hidden,
        num_iterations=1,
        batches_per_step=_LANES_EACH * count,
        max_epochs=options.epochs + 1,
        min_epochs=options.epochs + 1,
    )
    marks: list[float] = []
    mark = [lambda record: marks.append(time.process_time())]
    result = hopf_jax.fit(
        graph, "i-nip-mean", config=config, progress=False, callbacks=mark
    )
    # The first epoch compiles.
    seconds = [record["seconds"] for record in result.history[1:]]
    if processes.is_main():
        each = config.batch_size * config.batches_per_step
        point = {
            "epoch_seconds": round(statistics.median(seconds), 4),
            "least_seconds": round(min(seconds), 4),
            "most_seconds": round(max(seconds), 4),
            "cpu_seconds": round(float(np.median(np.diff(marks))), 4),
            "roots": options.roots * count,
            "steps": -(-options.roots * count // each),
        }
        output.write_json(options.into, point)


if __name__ == "__main__":
    sys.exit(main())

"""Weak scaling: seconds of an epoch against processes, with as many roots for each.

Every process is held to one core and has the same number of training roots; with P
processes the graph is the same, a step has P times the subgraphs, and an epoch as many
steps. Efficiency is the epoch of one process over the epoch of P: in seconds, which
want a machine that does nothing else, and in processor seconds of a process, which do
not, but leave out what it waits. Processes of one machine share its memory bandwidth
and caches, and talk over loopback: this says what the library adds, not what a network
does. Writes weak_scaling.json to WORKDIR/weak_scaling.
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

from experiments import arguments, folders, launch

_MODULE = "experiments.weak_scaling"
_LANES_EACH = 2  # subgraphs a process and step


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(argv)
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
            command = [sys.executable, "-m", _MODULE, "--into", str(into), *argv]
            if launch.together(command, count):
                folders.say(f"{count} processes failed")
                return 1
            point = json.loads(into.read_text())
        points[str(count)] = point
        first = points[str(min(map(int, points)))]
        for name in ("epoch", "cpu"):
            ratio = first[f"{name}_seconds"] / point[f"{name}_seconds"]
            point[f"{name}_efficiency"] = round(ratio, 3)
        print(
            f"{count} processes: {point['roots']} roots, {point['steps']} steps an "
            f"epoch, {point['epoch_seconds']:.3f} s ({point['least_seconds']:.3f} to "
            f"{point['most_seconds']:.3f}), efficiency {point['epoch_efficiency']:.2f};"
            f" processor {point['cpu_seconds']:.3f} s each, efficiency "
            f"{point['cpu_efficiency']:.2f}",
            flush=True,
        )
    data = {
        "points": points,
        "cores": cores,
        "load": os.getloadavg()[0],
        "caveat": "one machine: a core each, shared memory and loopback",
    }
    path = options.workdir / "weak_scaling" / "weak_scaling.json"
    folders.write_json(path, data | folders.provenance([_MODULE, *argv]))
    folders.say(f"Wrote {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser(__doc__, _MODULE)
    parser.add_argument(
        "--processes",
        type=arguments.numbers,
        default=(1, 2),
        help="comma-separated (default: 1,2)",
    )
    for name, default in (("nodes", 100_000), ("edges", 500_000), ("roots", 4096)):
        parser.add_argument(f"--{name}", type=arguments.positive, default=default)
    parser.add_argument("--hops", type=arguments.positive, default=1)
    parser.add_argument("--hidden", type=arguments.positive, default=128)
    parser.add_argument("--epochs", type=arguments.positive, default=8)
    parser.add_argument("--into", type=pathlib.Path, help=argparse.SUPPRESS)
    return parser


def _measure(options: argparse.Namespace) -> None:
    """One process of a point; the first writes what was measured."""
    index, count = (
        int(os.environ[f"JAX_{n}"]) for n in ("PROCESS_ID", "NUM_PROCESSES")
    )
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[index]})  # Before jax counts them.

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
    config = hopf_jax.Config(
        num_hops=options.hops,
        hidden_size=options.hidden,
        num_iterations=1,
        batches_per_step=_LANES_EACH * count,
        max_epochs=options.epochs + 1,
        min_epochs=options.epochs + 1,
    )
    marks: list[float] = []
    result = hopf_jax.fit(
        graph,
        config=config,
        progress=False,
        callbacks=[lambda record: marks.append(time.process_time())],
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
        folders.write_json(options.into, point)


if __name__ == "__main__":
    sys.exit(main())

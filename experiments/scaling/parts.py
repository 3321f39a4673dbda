"""Measure a graph in parts: partitioning it, and a job of several processes on it.

Writes a random graph whose edges are mostly between nodes of near ids, to a folder
(once); partitions it; and trains and predicts in a job of several processes on this
machine. Each process records its peak memory, which is compared with what the manifest
predicts, and the bytes that are exchanged, which are compared with its count. With
several numbers of parts it draws the curve against them. Writes parts.json to
WORKDIR/parts.
"""

import argparse
import json
import os
import pathlib
import resource
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax

import hopf_jax
from experiments import launch
from experiments.common import arguments, output
from experiments.scaling.large_graph import record_peaks
from hopf_jax.datasets import write_random
from hopf_jax.kernels import find_kernel

_MODEL = "i-nip-mean"
_GB = 1e9


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.scaling.parts")
    arguments.add_counts(
        parser,
        nodes=20_000_000,
        edges=100_000_000,
        features=8,
        labels=5,
        train=100_000,
        hidden=16,
        hops=2,
        iterations=2,
        epochs=1,
        processes=2,
        reach=50,
    )
    parser.option("parts", arguments.numbers, (8,), "numbers of parts")
    parser.option("job", pathlib.Path, help="a process of a job: where to write")
    options = parser.parse_args(argv)
    if options.job is not None:
        return run_process(options)
    folder = options.workdir / "parts" / f"graph-{options.nodes}-{options.edges}"
    if not folder.exists():
        write_random(
            folder,
            options.nodes,
            options.edges,
            options.features,
            options.labels,
            num_train=options.train,
            num_validation=max(1, options.train // 10),
            reach=options.reach,
        )
    runs = [measure(folder, count, options) for count in options.parts]
    data: dict[str, Any] = {
        "nodes": options.nodes,
        "edges": options.edges,
        "hidden": options.hidden,
        "hops": options.hops,
        "processes": options.processes,
        "runs": runs,
    }
    path = options.workdir / "parts" / f"parts-{options.nodes}.json"
    output.write_results(path, data, options.invocation)
    right = all(run["exchanged"] == run["counted"] for run in runs)
    return 0 if right else 1


def measure(
    folder: pathlib.Path, count: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Partition a graph, and run a job on it; return what was measured."""
    out = folder.with_name(f"{folder.name}-{count}")
    argv = ["hopf_jax", "partition", folder, "--out", out, "--parts", count]
    argv += ["--hops", options.hops, "--method", "streaming"]
    found = out / "measured.json"
    if not found.exists():
        begun, before = time.monotonic(), _largest_child()
        status = launch.run_processes([sys.executable, "-m", *map(str, argv)], 1)
        assert status == 0, f"the partitioning ended with status {status}"
        peak = _largest_child()
        timed = {
            "seconds": round(time.monotonic() - begun, 1),
            # Of all children so far: known only if this one was the largest.
            "peak_bytes": peak if peak > before else None,
        }
        output.write_json(found, timed)
    partitioned = output.read_json(found)
    job = out / "job"
    job.mkdir(exist_ok=True)
    keep = ("features", "labels", "hidden", "hops", "iterations", "epochs")
    own = [f"--{name}={getattr(options, name)}" for name in keep]
    command = [sys.executable, "-m", "experiments.scaling.parts", *own]
    begun = time.monotonic()
    status = launch.run_processes([*command, f"--job={job}"], options.processes, 1)
    assert status == 0, f"the job ended with status {status}"
    seconds = time.monotonic() - begun
    each = [
        json.loads((job / f"process-{i}.json").read_text())
        for i in range(options.processes)
    ]
    parts = hopf_jax.open_parts(out, check=False)
    run = {
        "parts": count,
        "cut": parts.cut / parts.num_edges,
        "halo": parts.halo_factor,
        "balance": parts.balance,
        "partition": partitioned,
        "seconds": round(seconds, 1),
        "process": each,
        "exchanged": each[0]["exchanged"],
        "counted": parts.exchanged_bytes(options.processes),
        "predicted_bytes": each[0]["predicted"],
    }
    peaks = " and ".join(f"{p['RssAnon'] / _GB:.2f}" for p in each)
    print(
        f"{count} parts: {parts!r}; partitioned in {partitioned['seconds']} s; job "
        f"{seconds:.0f} s; RssAnon {peaks} GB, predicted "
        f"{run['predicted_bytes'] / _GB:.2f}; exchanged {run['exchanged']} bytes an "
        f"iteration, counted {run['counted']}",
        flush=True,
    )
    return run


def _largest_child() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def run_process(options: argparse.Namespace) -> int:
    """Run one process of a job; write what it measured."""
    hopf_jax.processes.initialize()
    config = hopf_jax.Config(
        num_hops=options.hops,
        hidden_size=options.hidden,
        num_iterations=options.iterations,
        batch_size=1024,
        max_epochs=options.epochs,
        min_epochs=options.epochs,
        folds=0,
    )
    streamed = hopf_jax.Execution(memory_budget=0)
    with record_peaks() as peaks:
        begun = time.monotonic()
        parts = hopf_jax.open_parts(options.job.parent)
        result = hopf_jax.fit(parts, _MODEL, config, progress=False, execution=streamed)
        fitted = time.monotonic()
        result.write_predictions(options.job / "predictions")
        written = time.monotonic()
    kernel, count = find_kernel(_MODEL), jax.process_count()
    data = {
        **peaks,
        "fit_seconds": round(fitted - begun, 1),
        "epoch_seconds": [round(r["seconds"], 1) for r in result.history],
        "iteration_seconds": [round(r["seconds"], 1) for r in result.iterations],
        "write_seconds": round(written - fitted, 1),
        "exchanged": result.iterations[-1]["exchanged_bytes"],
        "predicted": parts.peak_bytes(kernel, config, count, streamed),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
    output.write_json(options.job / f"process-{jax.process_index()}.json", data)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The measurement of one point of a scaling curve: seconds and peak memory of training.

Every point has its own process, so that its peak memory is its own; beyond the memory
cap or the time limit it is ended. That process runs this module.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

import hopf_jax
from experiments import paper
from experiments.common import output, workers
from hopf_jax.datasets import make_random

_MODULE = "experiments.scaling.measurement"
_POLL_SECONDS = 0.1


def measure(
    model: str,
    hops: int,
    iterations: int,
    num_nodes: int,
    num_edges: int,
    epochs: int,
    whole: int = 0,
    fewer: bool = False,
) -> dict[str, Any]:
    """Measure one point in this process.

    Args:
      model: Name of the model.
      hops: Number of hops.
      iterations: Number of iterations.
      num_nodes: Nodes of the random graph.
      num_edges: Edges of the random graph.
      epochs: Timed epochs per iteration, after one that compiles.
      whole: Number of further fits, with nothing left to compile; `fit_seconds` is the
        least of them, with batches, all iterations and their predictions.
      fewer: Also time fits with fewer iterations, in turns: `fits_seconds`.
    """
    sizes = paper.SCALING
    graph = make_random(
        num_nodes, num_edges, sizes["num_features"], sizes["num_labels"]
    )
    config = paper.protocol_config(
        num_hops=hops,
        hidden_size=sizes["hidden"],
        batch_size=sizes["batch_size"],
        num_iterations=iterations,
        dropout=0.0,
        max_epochs=epochs + 1,
        min_epochs=epochs + 1,
        **paper.AS_PRINTED,
    )
    result = hopf_jax.fit(graph, model, config, progress=False)
    by_iteration = []
    for t in range(1, len(result.iterations) + 1):
        seconds = [r["seconds"] for r in result.history if r["iteration"] == t]
        by_iteration.append(float(np.median(seconds[1:])))  # The first compiles.
    peak = workers.peak_gb()
    fits: dict[int, list[float]] = {}
    for _ in range(whole):
        for t in range(1 if fewer else iterations, iterations + 1):
            shorter = dataclasses.replace(config, num_iterations=t)
            begun = time.perf_counter()
            hopf_jax.fit(graph, model, shorter, progress=False)
            fits.setdefault(t, []).append(time.perf_counter() - begun)
    least = [round(min(seconds), 4) for seconds in fits.values()]
    return {
        "outcome": "measured",
        "fit_seconds": least[-1] if least else None,
        "fits_seconds": least,
        "seconds": round(sum(by_iteration), 4),
        "epoch_seconds": round(float(np.median(by_iteration)), 4),
        "inference_seconds": _inference_seconds(result),
        "iterations": len(result.iterations),
        "peak_gb": round(peak, 3),
        "roots": int(graph.train.sum()),
    }


def _inference_seconds(result: hopf_jax.Result) -> float | None:
    """Return the seconds of one pass over the graph; None if the only one compiled."""
    if len(result.iterations) == 1:
        return None
    last = result.iterations[-1]
    training = [
        r["seconds"] for r in result.history if r["iteration"] == last["iteration"]
    ]
    return round(last["seconds"] - sum(training), 4)


def in_process(point: dict[str, Any], memory: float, timeout: float) -> dict[str, Any]:
    """Measure a point in a new process, ended at the memory cap or the time limit."""
    command = [sys.executable, "-m", _MODULE, json.dumps(point)]
    begun = time.monotonic()
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as problems,
        subprocess.Popen(
            command, stdout=out, stderr=problems, cwd=output.ROOT, text=True
        ) as process,
    ):
        outcome, most = "", 0.0
        try:
            while not outcome and process.poll() is None:
                most = max(most, resident_gb(process.pid))
                if most > memory:
                    outcome = "out of memory"
                elif time.monotonic() - begun > timeout:
                    outcome = "timed out"
                else:
                    time.sleep(_POLL_SECONDS)
        finally:
            process.kill()  # Does nothing if it has ended.
        status = process.wait()
        out.seek(0)
        problems.seek(0)
        if not outcome and status == 0:
            measured = json.loads(out.read())
            if measured["peak_gb"] <= memory:
                return measured
            outcome, most = "out of memory", measured["peak_gb"]
        if not outcome:
            message = problems.read().strip()
            outcome = "out of memory"
            if not workers.ran_out_of_memory(status, message):
                outcome = "failed"
                output.log(message[-2000:])
        return {"outcome": outcome, "peak_gb": round(most, 3)}


def resident_gb(process_id: int) -> float:
    """Return the memory that a process holds now; 0 if the system does not tell."""
    try:
        pages = int(pathlib.Path(f"/proc/{process_id}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024**3


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))

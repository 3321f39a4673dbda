"""Whole runs of I-NIP-MEAN: seconds from a graph to its reported test score.

Ours is `fit`, with batching and compilation; the peer's is a straightforward loop in
PyTorch Geometric with the same stopping rule (`experiments.peer_whole`). Every run is a
process of its own, so that each compiles, and the sides take turns. Run as a module
this is our side's worker.
"""

import dataclasses
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import hopf_jax
from experiments import (
    benchmark_jax,
    benchmark_report,
    benchmark_sums,
    folders,
    paper,
    turns,
)
from experiments.turns import Worker, WorkerError
from hopf_jax.datasets import load_dataset, make_planted


@dataclasses.dataclass(frozen=True)
class Run:
    """A graph with its split, the settings, and how often each side runs."""

    name: str
    load: Callable[[], hopf_jax.Graph]
    config: hopf_jax.Config
    rounds: int


RUNS = (
    Run("cora", lambda: load_dataset("cora", fold=1), paper.config_for("cora"), 1),
    Run(
        "pubmed", lambda: load_dataset("pubmed", fold=1), paper.config_for("pubmed"), 1
    ),
)
QUICK = Run(
    "quick",
    lambda: make_planted(300, 900, 8, 3, homophily=0.9, seed=1),
    hopf_jax.Config(
        hidden_size=8, num_iterations=2, max_epochs=30, min_epochs=5, patience=5
    ),
    1,
)
_TOLD = (
    *("num_hops", "hidden_size", "batch_size", "fanouts", "dropout", "learning_rate"),
    *("l2", "clip", "memory_budget", "num_iterations", "max_epochs", "min_epochs"),
    *("patience", "average_labels", "warm_start", "weighted_loss"),
)
_PEER_SIDE = "pyg_cached"


def measure(run: Run, peer: str | None, threads: int, timeout: float, folder: str):
    """Both sides' runs, in turns; {"sides", "ratio" of seconds, "settings"}."""
    graph = run.load()
    benchmark_jax.store(graph, pathlib.Path(folder))
    told = {name: getattr(run.config, name) for name in _TOLD}
    told |= {"multilabel": graph.multilabel}
    del graph
    sides: dict[str, dict[str, Any]] = {
        side: {"outcome": "measured", "runs": []} for side in ("ours", _PEER_SIDE)
    }
    commands = {"ours": (sys.executable, "experiments.whole_runs")}
    extra: dict[str, dict[str, Any]] = {"ours": {}}
    if peer is None:
        sides[_PEER_SIDE]["outcome"] = benchmark_report.NOT_INSTALLED
    else:
        commands[_PEER_SIDE] = (peer, "experiments.peer_whole")

    def ask(side: str, what: str, **asked: Any) -> dict[str, Any] | None:
        """In a process of its own; a side that fails is out, and the others go on."""
        python, module = commands[side]
        command = [python, "-m", module, "--threads", str(threads)]
        worker = Worker(command, folders.ROOT, timeout)
        try:
            return worker.ask(what, folder=folder, case=told, **asked)
        except WorkerError as ended:
            folders.say(f"{benchmark_report.SIDES[side]}: {ended}")
            sides[side]["outcome"] = str(ended).splitlines()[-1]
            del commands[side]
            return None
        finally:
            worker.end()

    if peer is not None:
        chosen = ask(_PEER_SIDE, "choose")
        if chosen is not None:
            extra[_PEER_SIDE] = {"way": chosen["way"]}
    for seed in range(run.rounds):
        for side in list(commands):
            done = ask(side, "whole", seed=seed, **extra[side])
            if done is not None:
                sides[side]["runs"].append(done)
    pairs = zip(sides[_PEER_SIDE]["runs"], sides["ours"]["runs"], strict=False)
    ratios = [theirs["seconds"] / own["seconds"] for theirs, own in pairs]
    return {
        "sides": sides,
        "ratio": benchmark_sums.spread(ratios) if ratios else None,
        "settings": told,
    }


def whole(folder: str, case: dict[str, Any], seed: int) -> dict[str, Any]:
    """Our side: `fit`, nothing compiled before."""
    graph, _ = benchmark_jax.read(pathlib.Path(folder), case["multilabel"])
    settings = {name: case[name] for name in _TOLD}
    begun = time.perf_counter()
    result = hopf_jax.fit(
        graph,
        paper.WHOLE_MODEL,
        hopf_jax.Config(**settings),
        seed=seed,
        progress=False,
    )
    return {
        "seconds": time.perf_counter() - begun,
        "epochs": len(result.history),
        "iteration": result.iteration,
        "test_micro_f1": result.scores["test"]["micro_f1"],
        "peak_gb": turns.peak_gb(),
    }


if __name__ == "__main__":
    sys.exit(turns.work(__doc__, lambda threads: {"whole": whole}))

"""Whole runs of I-NIP-MEAN: seconds from a graph to its reported test score.

Ours is `fit`, with batching and compilation; the peer's is a straightforward loop in
PyTorch Geometric with the same stopping rule (`pyg_whole_run`). Every run is a process,
so that each compiles, and the sides take turns. Run as a module, this is our worker.
"""

import dataclasses
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import hopf_jax
from experiments import paper
from experiments.benchmark import library_worker, report, summary
from experiments.common import output, workers
from hopf_jax.datasets import load_dataset, make_planted


@dataclasses.dataclass(frozen=True)
class Run:
    """A graph with its split, and the settings."""

    name: str
    load: Callable[[], hopf_jax.Graph]
    config: hopf_jax.Config


RUNS = (
    Run("cora", lambda: load_dataset("cora", fold=1), paper.config_for("cora")),
    Run("pubmed", lambda: load_dataset("pubmed", fold=1), paper.config_for("pubmed")),
)
QUICK = Run(
    "quick",
    lambda: make_planted(300, 900, 8, 3, homophily=0.9, seed=1),
    hopf_jax.Config(
        hidden_size=8, num_iterations=2, max_epochs=30, min_epochs=5, patience=5
    ),
)
_SETTINGS = (
    *("num_hops", "hidden_size", "batch_size", "fanouts", "dropout", "learning_rate"),
    *("l2", "clip", "num_iterations", "max_epochs", "min_epochs"),
    *("patience", "average_labels", "warm_start", "weighted_loss"),
)
_PEER_SIDE = "pyg_cached"


def measure(
    run: Run, peer: str | None, threads: int, timeout: float, folder: str
) -> dict[str, Any]:
    """Run both sides in turns; return their runs and the ratio of seconds."""
    graph = run.load()
    library_worker.store(graph, pathlib.Path(folder))
    settings = {name: getattr(run.config, name) for name in _SETTINGS}
    settings |= {"multilabel": graph.multilabel}
    del graph
    sides: dict[str, dict[str, Any]] = {
        side: {"outcome": "measured", "runs": []} for side in ("ours", _PEER_SIDE)
    }
    commands = {"ours": (sys.executable, "experiments.benchmark.whole_runs")}
    extra: dict[str, dict[str, Any]] = {"ours": {}}
    if peer is None:
        sides[_PEER_SIDE]["outcome"] = report.NOT_INSTALLED
    else:
        commands[_PEER_SIDE] = (peer, "experiments.benchmark.pyg_whole_run")

    def ask(side: str, action: str, **asked: Any) -> dict[str, Any] | None:
        """Ask a new process; a side that fails is dropped, and the other goes on."""
        python, module = commands[side]
        worker = workers.start(module, python, threads, timeout)
        try:
            return worker.ask(action, folder=folder, case=settings, **asked)
        except workers.WorkerError as error:
            output.log(f"{report.SIDES[side]}: {error}")
            sides[side]["outcome"] = str(error).splitlines()[-1]
            del commands[side]
            return None
        finally:
            worker.end()

    if peer is not None:
        chosen = ask(_PEER_SIDE, "choose")
        if chosen is not None:
            extra[_PEER_SIDE] = {"way": chosen["way"]}
    for side in list(commands):
        done = ask(side, "whole", seed=0, **extra[side])
        if done is not None:
            sides[side]["runs"].append(done)
    pairs = zip(sides[_PEER_SIDE]["runs"], sides["ours"]["runs"], strict=False)
    ratios = [theirs["seconds"] / own["seconds"] for theirs, own in pairs]
    return {
        "sides": sides,
        "ratio": summary.spread(ratios) if ratios else None,
        "settings": settings,
    }


def whole(folder: str, case: dict[str, Any], seed: int) -> dict[str, Any]:
    """Run our side: `fit`, with compilation."""
    graph, _ = library_worker.read(pathlib.Path(folder), case["multilabel"])
    settings = {name: case[name] for name in _SETTINGS}
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
        "peak_gb": workers.peak_gb(),
    }


if __name__ == "__main__":
    sys.exit(workers.main(__doc__, lambda threads: {"whole": whole}))

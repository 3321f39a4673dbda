"""Whole runs of I-NIP-MEAN: seconds from a graph to its reported test score.

Ours is `fit`, with batching and compilation; the peer's is a straightforward loop in
PyTorch Geometric with the same stopping rule (`pyg_whole_run`). Every run is a process,
so that each compiles. Run as a module, this is our worker.
"""

import pathlib
import sys
import time
from typing import Any

import hopf_jax
from experiments import paper
from experiments.benchmark import library_worker, report
from experiments.benchmark.cases import Case
from experiments.common import output, workers
from hopf_jax.datasets import load_dataset, make_planted


def _paper_case(name: str) -> Case:
    return Case(name, lambda: load_dataset(name, fold=1), paper.config_for(name))


RUNS = (_paper_case("cora"), _paper_case("pubmed"))
QUICK = Case(
    "quick",
    lambda: make_planted(300, 900, 8, 3, homophily=0.9, seed=1),
    paper.protocol_config(
        hidden_size=8,
        num_iterations=2,
        max_epochs=30,
        min_epochs=5,
        patience=5,
        **paper.AS_PRINTED,
    ),
)


def measure(
    case: Case, peer: str | None, threads: int, timeout: float, folder: str
) -> dict[str, Any]:
    """Run both sides; return their runs and the ratio of seconds."""
    graph = case.load()
    library_worker.store(graph, pathlib.Path(folder))
    settings = case.settings(graph.multilabel)
    del graph

    def ask(module: str, python: str, action: str, **asked: Any) -> dict[str, Any]:
        worker = workers.start(module, python, threads, timeout)
        try:
            return worker.ask(action, folder=folder, case=settings, **asked)
        finally:
            worker.end()

    def ours() -> dict[str, Any]:
        return ask("experiments.benchmark.whole_runs", sys.executable, "whole", seed=0)

    def theirs() -> dict[str, Any]:
        if peer is None:
            raise workers.WorkerError(report.NOT_INSTALLED)
        worker = "experiments.benchmark.pyg_whole_run", peer
        way = ask(*worker, "choose")["way"]
        return ask(*worker, "whole", seed=0, way=way)

    sides: dict[str, dict[str, Any]] = {}
    for side, run in (("ours", ours), ("pyg_cached", theirs)):
        try:
            sides[side] = {"outcome": "measured", "runs": [run()]}
        except workers.WorkerError as error:
            output.log(f"{report.SIDES[side]}: {error}")
            sides[side] = {"outcome": str(error).splitlines()[-1], "runs": []}
    own, other = (side["runs"] for side in sides.values())
    ratio = None
    if own and other:
        ratio = report.spread([other[0]["seconds"] / own[0]["seconds"]])
    return {"sides": sides, "ratio": ratio, "settings": settings}


def whole(folder: str, case: dict[str, Any], seed: int) -> dict[str, Any]:
    """Run our side: `fit`, with compilation."""
    graph, _ = library_worker.read(pathlib.Path(folder), case.pop("multilabel"))
    config = hopf_jax.Config(**case)
    begun = time.perf_counter()
    result = hopf_jax.fit(graph, paper.WHOLE_MODEL, config, seed=seed, progress=False)
    return {
        "seconds": time.perf_counter() - begun,
        "epochs": len(result.history),
        "iteration": result.iteration,
        "test_micro_f1": result.scores["test"]["micro_f1"],
        "peak_gb": workers.peak_gb(),
    }


if __name__ == "__main__":
    sys.exit(workers.main(__doc__, lambda threads: {"whole": whole}))

"""What tests of the experiments share."""

import time

import numpy as np
import pytest
import scipy.sparse as sp

from experiments import inductive, job, reproduce
from experiments.common import cells, drawing
from hopf_jax import Graph
from hopf_jax.datasets import make_planted, paper_split
from hopf_jax.graph import SPLITS
from hopf_jax.kernels import MODELS


def two_graphs():
    """Two graphs in one: the first to learn from, the second new."""
    first, second = make_planted(60, 150, 6, 3), make_planted(30, 60, 6, 3, seed=1)
    both = first, second
    return Graph.from_scipy(
        sp.block_diag([graph.adjacency for graph in both]),
        np.concatenate([graph.features for graph in both]),
        np.concatenate([graph.labels for graph in both]),
        train=np.arange(40),
        validation=np.arange(40, 60),
        test=np.arange(60, 90),
        multilabel=False,
    )


@pytest.fixture
def tiny(monkeypatch):
    """A small graph in place of any dataset."""

    def load(name, fold=1, percent=10, split="transductive"):
        if split == "inductive":
            return two_graphs()
        graph = make_planted(60, 150, 6, 3, noise=0.3)
        return paper_split(graph, percent=60, fold=fold)

    cells._load.cache_clear()
    # Cells of one thread are run in this process, which has the small graph.
    monkeypatch.setenv("PJRT_NPROC", "1")
    for module in (cells, inductive, job, reproduce):
        monkeypatch.setattr(module, "load_dataset", load)
    yield
    cells._load.cache_clear()


@pytest.fixture
def pretended(tiny, monkeypatch):
    """Records that depend on the cell alone, without training."""

    def record(cell):
        rng = np.random.default_rng(int(cell.key, 16))
        count = cell.config.num_iterations if MODELS[cell.model].iterative else 1

        def iteration(t):
            pairs = rng.uniform(20, 50, (3, 2)).tolist()
            scores = {
                split: {"micro_f1": micro, "macro_f1": macro}
                for split, (micro, macro) in zip(SPLITS, pairs, strict=True)
            }
            plain = {"iteration": t, "epochs": 1, "seconds": 1.0, "scores": scores}
            guess = {"1": rng.uniform(), "2": rng.uniform()}
            return plain | (
                {"summary_f1": dict.fromkeys(SPLITS, guess)} if t > 1 else {}
            )

        iterations = [iteration(t) for t in range(1, count + 1)]
        return {
            "scores": iterations[-1]["scores"],
            "iteration": count,
            "iterations": iterations,
            "epochs": count,
            "seconds": time.perf_counter() % 1,  # No two runs take the same time.
            "losses": {"train": [1.0, 0.5], "validation": [1.0, 0.7]},
            "peak_mb": 1,
        }

    def pretend(cell, workdir=None, log=None):
        return {each: record(each) for each in cell.siblings}

    monkeypatch.setattr(cells, "run", pretend)
    # Rendering is slow; tests without this fixture do it.
    monkeypatch.setattr(drawing, "png", lambda figure: b"\x89PNG")

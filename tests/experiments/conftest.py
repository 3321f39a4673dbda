"""What tests of the experiments share."""

import time

import numpy as np
import pytest

from experiments import cells, reproduce
from hopf_jax.graph.graph import SPLITS
from hopf_jax.kernels.table import MODELS


@pytest.fixture
def pretended(monkeypatch):
    """Records that depend on the cell alone, in no time: the rest is tested."""

    def pretend(cell, workdir=None, watch=None):
        rng = np.random.default_rng(int(cell.key, 16))
        count = cell.config.num_iterations if MODELS[cell.model].iterative else 1

        def iteration(t):
            pairs = rng.uniform(20, 50, (3, 2)).tolist()
            scores = {
                split: {"micro_f1": micro, "macro_f1": macro}
                for split, (micro, macro) in zip(SPLITS, pairs, strict=True)
            }
            return {"iteration": t, "epochs": 1, "seconds": 1.0, "scores": scores}

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

    monkeypatch.setattr(cells, "run", pretend)
    # Fetches what is missing; no cell reads it.
    monkeypatch.setattr(reproduce, "load_dataset", lambda name, fold: None)

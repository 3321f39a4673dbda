"""Updates of a changing graph against replays."""

import numpy as np

from experiments import updating
from hopf_jax import Config, fit
from hopf_jax.datasets import make_planted


def test_updates_are_compared_with_replays():
    graph = make_planted(60, 150, 4, 2, homophily=0.8)
    graph = graph.with_split(train=np.arange(20), validation=np.arange(20, 30))
    config = Config(hidden_size=4, num_iterations=2, max_epochs=2, min_epochs=1)
    result = fit(graph, "i-nip-mean", config)
    found = updating.compare(result, graph, changes=6, check=3, seed=0)
    assert found["largest_difference"] < 1e-5
    assert set(found["by_kind"]) == set(updating._KINDS)
    assert found["update"]["seconds"] > 0 and found["times_as_fast"] > 0

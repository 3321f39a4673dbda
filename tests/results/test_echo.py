"""The echo is measured: how well what a node reads gives its own label away."""

import dataclasses

import numpy as np
import pytest

from hopf_jax import Config, Graph, fit
from hopf_jax.kernels import MODELS
from hopf_jax.learning.teams import make_team
from hopf_jax.results.echo import summary_scores

KERNEL = MODELS["i-nip-mean"]


def pairs(count=40):
    """Pairs of nodes: the first of a pair is known, the second says the contrary."""
    first = np.arange(0, 2 * count, 2)
    labels = np.tile([0, 0, 1, 1], count // 2)
    return Graph.from_edges(
        first,
        first + 1,
        np.ones((2 * count, 1), np.float32),
        labels,
        train=first,
        validation=first + 1,
    )


def scores(config, summaries):
    graph = pairs()
    team = make_team(graph, KERNEL, config, 0)
    return summary_scores(team, config, summaries, 2)


def test_a_node_finds_its_own_label_at_two_hops():
    graph = pairs()
    summary = 1.0 - graph.labels  # Neighbours are wrong of it.
    summary[graph.train] = graph.labels[graph.train]
    printed = Config(training_summaries="as-printed")
    found = scores(printed, summary[None])
    assert found["train"] == {"1": 0.0, "2": 1.0}
    assert found["validation"] == {"1": 1.0, "2": 0.0}
    masked = scores(Config(), summary[None])
    # It reads its neighbour, and its own label is hidden: nothing is left at two hops.
    assert masked["train"] == {"1": 0.0, "2": 0.0}
    assert masked["validation"] == found["validation"]


def test_parts_are_scored_by_what_they_read():
    graph = pairs()
    config = Config(training_summaries="cross-fitted")
    right, wrong = graph.labels.astype(float), 1.0 - graph.labels
    found = scores(config, np.stack([right, wrong, right]))
    assert found["train"]["1"] == pytest.approx(0.5)
    assert found["validation"]["1"] == 1


def test_fit_records_it_from_the_second_iteration_on():
    config = Config(
        hidden_size=4, num_iterations=3, max_epochs=3, min_epochs=1, features="as-is"
    )
    records = fit(pairs(), "i-nip-mean", config=config).iterations
    assert "summary_f1" not in records[0]
    for record in records[1:]:
        assert record["summary_f1"].keys() == {"train", "validation"}
        assert record["summary_f1"]["train"].keys() == {"1", "2"}
    hidden = dataclasses.replace(config, summary="hidden")
    assert "summary_f1" not in fit(pairs(), "i-nip-mean", config=hidden).iterations[1]

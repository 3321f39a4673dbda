"""Scores of multi-label nodes: by a threshold, or by their true number of labels."""

import jax.numpy as jnp
import numpy as np

from hopf_jax.fitting import _as_good_as_any
from hopf_jax.result import likeliest, score
from hopf_jax.training import Objective, predicted_labels
from tests import graphs


def test_as_many_labels_as_a_node_has():
    probabilities = np.array([[0.1, 0.9, 0.3], [0.2, 0.1, 0.4], [0.6, 0.7, 0.8]])
    counts = np.array([2, 0, 1])
    want = [[0, 1, 1], [0, 0, 0], [0, 0, 1]]
    np.testing.assert_array_equal(likeliest(probabilities, counts), want)


def test_the_device_and_the_host_agree():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(40, 5)).astype(np.float32)
    true = rng.random((40, 5)) < 0.4
    objective = Objective(True, 0.0, 5.0, cardinality=True)
    got = predicted_labels(jnp.asarray(logits), jnp.asarray(true), objective)
    np.testing.assert_array_equal(got, likeliest(logits, true.sum(axis=1)))
    plain = predicted_labels(
        jnp.asarray(logits), jnp.asarray(true), Objective(True, 0.0, 5.0)
    )
    np.testing.assert_array_equal(plain, logits > 0)


def test_the_setting_changes_the_scores():
    graph = graphs.tiny("all", multilabel=True)
    rng = np.random.default_rng(1)
    probabilities = rng.random(graph.labels.shape).astype(np.float32) / 2
    # Nothing is above one half, yet some are likelier than others.
    assert score(graph, probabilities)["test"]["micro_f1"] == 0
    assert score(graph, probabilities, "cardinality")["test"]["micro_f1"] > 0
    perfect = score(graph, graph.labels / 2.5, "cardinality")
    assert all(s["micro_f1"] == 1 for s in perfect.values())


def test_the_last_iteration_as_good_as_any_is_reported():
    def iterations(*merits):
        return [
            {"scores": {"validation": {"micro_f1": m, "macro_f1": m}}} for m in merits
        ]

    # The standard error of 0.8 among 64 nodes is 0.05.
    assert _as_good_as_any(iterations(0.1), 64)
    assert _as_good_as_any(iterations(0.8, 0.7, 0.76), 64)
    assert not _as_good_as_any(iterations(0.8, 0.74), 64)
    assert not _as_good_as_any(iterations(0.8, 0.76), 6400)
    assert _as_good_as_any(iterations(0.8, 0.76, 0.9), 6400)
    assert _as_good_as_any(iterations(1.0, 1.0), 1)
    assert not _as_good_as_any(iterations(1.0, 0.99), 1)

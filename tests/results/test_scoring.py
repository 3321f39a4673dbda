"""Scores with several labels per node: by a threshold, or by their true number."""

import jax.numpy as jnp
import numpy as np

from hopf_jax.learning.loss import Objective, predicted_labels
from hopf_jax.learning.stopping import as_good_as_any
from hopf_jax.results.decisions import likeliest, node_scores, score
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
    on_device = jnp.asarray(logits), jnp.asarray(true)
    got = predicted_labels(*on_device, objective)
    np.testing.assert_array_equal(got, likeliest(logits, true.sum(axis=1)))
    plain = predicted_labels(*on_device, Objective(True, 0.0, 5.0))
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
    def reported(*right):
        held = [np.asarray(r, float) for r in right]
        scores = [{"micro_f1": r.mean(), "macro_f1": r.mean()} for r in held]
        return as_good_as_any(scores, held)

    assert reported([0, 0, 1])
    assert reported([1] * 64, [1] * 64)
    # Two nodes more of 64, gained and lost by three: nodes cannot tell.
    assert reported(
        [1] * 50 + [0] * 14, [0] * 4 + [1] * 46 + [0, 0, *[1] * 2, *[0] * 10]
    )
    # Three lost and none gained might be chance; five are not.
    assert reported([1] * 50 + [0] * 14, [0] * 3 + [1] * 47 + [0] * 14)
    assert not reported([1] * 50 + [0] * 14, [0] * 5 + [1] * 45 + [0] * 14)
    assert reported([1] * 50 + [0] * 14, [0] * 64, [1] * 51 + [0] * 13)


def test_scores_of_nodes():
    graph = graphs.tiny("all", multilabel=True)
    nodes = np.flatnonzero(graph.labels.sum(axis=1) > 0)
    count = graph.labels[nodes].sum(axis=1)
    for predicted, expected in (
        (graph.labels * 0.9, np.ones(len(nodes))),
        (np.zeros(graph.labels.shape), np.zeros(len(nodes))),
        (np.ones(graph.labels.shape), 2 * count / (graph.num_labels + count)),
    ):
        got = node_scores(graph, nodes, predicted, "threshold")
        np.testing.assert_allclose(got, expected)
    single = graphs.tiny()
    right = node_scores(single, single.test, np.eye(3)[np.zeros(18, int)], "threshold")
    assert set(right) <= {0, 1}
    np.testing.assert_array_equal(right, single.labels[single.test][:, 0])

"""Simple methods to compare with."""

import numpy as np
import pytest

import hopf_jax
from hopf_jax import Config, learning
from hopf_jax.baselines import (
    BASELINES,
    correct_and_smooth,
    ica,
    logistic_regression,
    predict_baseline,
    wvrn,
)
from hopf_jax.datasets import make_planted
from hopf_jax.graph import split_graph
from tests import graphs


def accuracy(graph, said):
    right = said.argmax(axis=1) == graph.labels.argmax(axis=1)
    return right[graph.test].mean()


@pytest.fixture(scope="module")
def planted():
    graph = make_planted(300, 1200, noise=0.7)
    return split_graph(graph, train=0.2, validation=0.1, test=0.7)


@pytest.mark.parametrize("name", BASELINES)
def test_probabilities(name, planted):
    said = BASELINES[name](planted)
    assert said.shape == (300, 4) and (said >= 0).all()
    np.testing.assert_allclose(said.sum(axis=1), 1, atol=1e-5)
    if name != "majority":
        assert accuracy(planted, said) > 0.4  # Of four classes of one size.


@pytest.mark.parametrize("name", BASELINES)
def test_several_labels(name):
    graph = graphs.tiny("weighted", multilabel=True)
    said = BASELINES[name](graph)
    assert said.shape == graph.labels.shape
    assert ((said >= 0) & (said <= 1)).all()


@pytest.mark.parametrize("name", BASELINES)
def test_test_labels_are_not_read(name, planted):
    labels = planted.labels.copy()
    labels[planted.test] = np.roll(labels[planted.test], 1, axis=1)
    other = (
        type(planted)
        .from_scipy(planted.adjacency, planted.features, labels, multilabel=False)
        .with_split(planted.train, planted.validation, planted.test)
    )
    np.testing.assert_array_equal(BASELINES[name](planted), BASELINES[name](other))


def test_correction_and_smoothing_help_where_neighbours_agree(planted):
    def guess(nodes):
        return np.full((300, 4), 0.25, np.float32)

    assert accuracy(planted, correct_and_smooth(planted, guess)) > 0.6


def test_other_spellings_of_names():
    assert BASELINES["Correct & Smooth"] is BASELINES["correct-and-smooth"]
    assert BASELINES["logistic regression"] is logistic_regression
    assert learning.BASELINES is BASELINES
    with pytest.raises(KeyError):
        BASELINES["nothing"]


def test_labels_of_neighbours_help_where_neighbours_agree(planted):
    alone = accuracy(planted, logistic_regression(planted))
    assert accuracy(planted, ica(planted)) > alone
    assert accuracy(planted, wvrn(planted)) > alone


def test_votes_reach_nodes_by_unlabelled_ones_and_leave_others_with_the_shares():
    # 0 - 1 - 2 - 3 - 4, and 5 alone; 0 is of one class, 4 of the other.
    graph = hopf_jax.Graph.from_edges(
        [0, 1, 2, 3],
        [1, 2, 3, 4],
        np.eye(6, dtype=np.float32),
        [0, 0, 0, 1, 1, 0],
        train=[0, 4],
        validation=[1],
        test=[2, 3, 5],
    )
    said = predict_baseline(graph, "wvrn").held_out
    np.testing.assert_allclose(said[[0, 4]], np.eye(2))
    assert said[1, 0] > said[2, 0] > said[3, 0]
    np.testing.assert_allclose(said[2], 0.5, atol=0.05)
    np.testing.assert_allclose(said[5], 0.5)


def test_results_are_corrected(planted):
    result = hopf_jax.fit(planted, "bl-node", Config(max_epochs=40), progress=False)
    smoothed = correct_and_smooth(planted, base=result)
    assert accuracy(planted, smoothed) > accuracy(planted, result.predict_proba())
    same = correct_and_smooth(planted, base=result.predict_proba())
    np.testing.assert_array_equal(smoothed, same)
    with pytest.raises(
        ValueError, match=r"shape \(3, 4\); give probabilities \(300, 4"
    ):
        correct_and_smooth(planted, base=result.predict_proba()[:3])


def test_graphs_without_a_split_are_refused(planted):
    with pytest.raises(ValueError, match="no validation nodes"):
        logistic_regression(planted.with_split(planted.train, test=planted.test))


def test_what_is_held_out_was_not_learned_from(planted):
    said = predict_baseline(planted, "label-propagation")
    known = planted.labels[planted.validation].argmax(axis=1)
    held, final = (p[planted.validation, known] for p in said)
    assert final.mean() > held.mean() + 0.1

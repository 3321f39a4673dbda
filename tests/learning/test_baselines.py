"""Simple methods to compare with."""

import numpy as np
import pytest

from hopf_jax.datasets import make_planted
from hopf_jax.graph import split_graph
from hopf_jax.learning import BASELINES, correct_and_smooth
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
    graph = graphs.tiny("multilabel")
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

"""Synthetic graphs have the sizes, homophily and noise that they should."""

import numpy as np
import pytest

from hopf_jax.datasets import make_chain, make_planted, make_random


def test_the_graph_of_the_papers_run_times():
    graph = make_random()
    assert graph.num_nodes == 100_000
    assert graph.num_edges == 2 * 500_000, "distinct, and no loops"
    assert (graph.num_features, graph.num_labels) == (100, 10)
    assert graph.train.sum() == 8000


def test_edges_are_uniform_over_nodes():
    graph = make_random(200, 5000, 2, 2)
    halves = graph.degree.reshape(2, 100).sum(1) / graph.num_edges
    np.testing.assert_allclose(halves, 0.5, atol=0.02)


@pytest.mark.parametrize("make", [make_random, make_planted])
def test_the_seed_decides(make):
    first, again, other = (make(200, 400, 4, 3, seed=seed) for seed in (3, 3, 4))
    for name in ("indices", "features"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
        assert not np.array_equal(getattr(first, name), getattr(other, name))


@pytest.mark.parametrize("homophily", [0.0, 0.3, 1.0])
def test_homophily(homophily):
    graph = make_planted(500, 3000, 8, 5, homophily=homophily)
    assert graph.num_edges == 6000
    classes = graph.labels.argmax(1)
    receivers = np.repeat(np.arange(500), np.diff(graph.indptr))
    share = (classes[receivers] == classes[graph.indices]).mean()
    np.testing.assert_allclose(share, homophily, atol=1e-6)
    assert (graph.labels.sum(0) == 100).all()


def test_noise():
    quiet = make_planted(noise=0)
    assert len(np.unique(quiet.features, axis=0)) == quiet.num_labels
    np.testing.assert_allclose(np.linalg.norm(quiet.features, axis=1), 1, rtol=1e-5)
    loud = make_planted(noise=3)
    residual = loud.features - quiet.features
    np.testing.assert_allclose(residual.std(), 3, rtol=0.03)


def test_the_chain_of_the_papers_figure():
    graph = make_chain()
    reach = np.linalg.matrix_power(graph.adjacency.toarray() + np.eye(6), 2) > 0
    attributes = ["".join(np.array(list("ABCDEF"))[row]) for row in reach]
    assert attributes[0] == "ABC", "what a second-order kernel reads at node 1"
    assert graph.num_edges == 10
    assert graph.train.tolist() == [True, False, False, False, False, True]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_random(10, 40), "40 edges of 45 possible"),
        (lambda: make_planted(homophily=1.1), "homophily is 1.1"),
        (lambda: make_planted(noise=-1), "noise is -1"),
        (lambda: make_planted(6, 2, 2, 4), "cannot hold 4 classes"),
        (lambda: make_chain(3), "num_nodes is 3"),
    ],
)
def test_impossible_graphs(make, message):
    with pytest.raises(ValueError, match=message):
        make()

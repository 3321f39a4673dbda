"""Ghost edges: those of the dense formulas, and what they let `fit` read."""

import dataclasses

import numpy as np
import pytest

from hopf_jax import Config, Graph, fit, fit_folds, load, open_graph, write_graph
from hopf_jax.graph import add_ghost_edges, ghost_edges
from tests import graphs


def oracle(graph, count, restart, steps):
    """A with ghost edges; infinitely many steps if None."""
    real = graph.adjacency.toarray().astype(np.float64)
    degree = real.sum(axis=1)
    walk = (1 - restart) * real / np.where(degree > 0, degree, 1)[:, None]
    one = np.eye(len(real))
    if steps is None:
        near = restart * np.linalg.solve(one - walk, one)
    else:
        near = restart * sum(np.linalg.matrix_power(walk, k) for k in range(steps + 1))
    near[:, ~graph.train] = 0
    near *= 1 - one
    for v, row in enumerate(near.astype(np.float32)):
        best = sorted(np.flatnonzero(row), key=lambda u, row=row: (-row[u], u))[:count]
        if best:
            real[v, best] += degree[v] * near[v, best] / near[v, best].sum()
    return real


def same(left, right):
    for name in ("indptr", "indices", "weights"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))


@pytest.mark.parametrize("kind", graphs.KINDS)
@pytest.mark.parametrize(
    ("count", "restart", "steps"), [(1, 0.15, 20), (3, 0.5, 2), (100, 0.9, None)]
)
def test_it_equals_the_dense_formula(kind, count, restart, steps):
    graph = graphs.tiny(kind)
    found = add_ghost_edges(graph, count, restart, 300 if steps is None else steps)
    wanted = oracle(graph, count, restart, steps)
    np.testing.assert_allclose(found.adjacency.toarray(), wanted, rtol=1e-5)
    assert found.num_edges == np.count_nonzero(wanted) > graph.num_edges
    assert found.adjacency.has_canonical_format and found.directed
    types = [(a.indptr.dtype, a.indices.dtype) for a in (graph, found)]
    assert types[0] == types[1] and found.weights.dtype == np.float32
    np.testing.assert_array_equal(
        found.adjacency.diagonal(), graph.adjacency.diagonal()
    )


@pytest.mark.parametrize("kind", ["isolated", "all"])
def test_isolated_nodes_stay_isolated(kind):
    graph = graphs.tiny(kind)
    found = add_ghost_edges(graph, 4)
    assert (found.degree[list(graphs.ISOLATED)] == 0).all()
    grown = found.degree != graph.degree
    np.testing.assert_allclose(found.degree[grown], 2 * graph.degree[grown], rtol=1e-6)
    assert grown.any()


def test_there_may_be_nothing_to_add():
    graph = graphs.tiny()
    assert add_ghost_edges(graph, 0) is graph
    unlabelled = graph.with_split()
    assert add_ghost_edges(unlabelled, 3) is unlabelled
    edgeless = Graph.from_edges([], [], np.ones((3, 1)), [0, 1, 0], train=[0, 1])
    assert add_ghost_edges(edgeless, 3).num_edges == 0


def test_ties_go_to_the_lower_id():
    leaves = np.array([1, 2, 3, 4, 5])
    star = Graph.from_edges(leaves * 0, leaves, np.ones((6, 1)), np.arange(6) % 2)
    found = add_ghost_edges(star.with_split([5, 4, 2]), 2).adjacency.toarray()
    np.testing.assert_allclose(found[0], [0, 1, 3.5, 1, 3.5, 1])
    np.testing.assert_allclose(found[2], [1, 0, 0, 0, 0.5, 0.5])


@pytest.mark.parametrize("count", [1, 3, 8])
def test_blocks_of_columns_do_not_matter(monkeypatch, count):
    graph = graphs.tiny("weighted")
    wanted = add_ghost_edges(graph, count)
    same(add_ghost_edges(graph, count), wanted)
    monkeypatch.setattr(ghost_edges, "_VALUES_AT_ONCE", 1)
    same(add_ghost_edges(graph, count), wanted)


def test_a_mapped_graph(tmp_path):
    graph = graphs.tiny("weighted")
    write_graph(graph, tmp_path / "graph")
    mapped = open_graph(tmp_path / "graph")
    found = add_ghost_edges(mapped, 3)
    same(found, add_ghost_edges(graph, 3))
    assert found.features is mapped.features


@pytest.mark.parametrize(
    ("name", "value"),
    [("count", -1), ("count", 1.5), ("restart", 0), ("restart", 1), ("steps", 0)],
)
def test_wrong_arguments(name, value):
    with pytest.raises(ValueError, match=f"^{name} is {value}"):
        add_ghost_edges(graphs.tiny(), **{"count": 3} | {name: value})


# In a run

CONFIG = Config(
    num_hops=1,
    hidden_size=8,
    num_iterations=2,
    average_labels=False,
    dropout=0.0,
    max_epochs=60,
    features="as-is",
    bias=False,
    init_weights="fan-out",
    weighted_loss=True,
    l2=1e-3,
)


def paths(num_paths=12, length=10, seed=0):
    """Paths of one class each, labelled at both ends; features say nothing."""
    nodes = np.arange(num_paths * length)
    at, path = nodes % length, nodes // length
    inner = nodes[at < length - 1]
    features = np.random.default_rng(seed).normal(0, 0.3, (len(nodes), 2))
    return Graph.from_edges(
        inner,
        inner + 1,
        features,
        path % 2,
        train=(at == 0) | (at == length - 1),
        validation=at == 3,
        test=(at == 5) | (at == 6),
    )


def test_fit_reads_labels_that_are_far(tmp_path):
    graph = paths()
    without = fit(graph, "i-nip-mean", CONFIG)
    config = dataclasses.replace(CONFIG, ghost_edges=3)
    result = fit(graph, "i-nip-mean", config)
    assert without.scores["test"]["micro_f1"] < 0.75
    assert result.scores["test"]["micro_f1"] > 0.9
    result.save(tmp_path / "result.npz")
    again = load(tmp_path / "result.npz")
    np.testing.assert_array_equal(again.predict_proba(graph), result.probabilities)
    # Another graph has its own labels to lead to, or none.
    other = paths(num_paths=5, seed=1)
    right = result.predict(other) == other.labels.argmax(axis=1)
    assert right[other.test].mean() > 0.8
    assert result.predict(other.with_split()).shape == (50,)
    explained = result.explain(5)
    assert set(explained.nodes) == {5, 4, 6, 0, 9} and explained.shares["labels"] > 0.5


def test_folds_have_their_own_ghost_edges():
    graph = paths(num_paths=4)
    splits = [graph, graph.with_split(graph.test, graph.validation, graph.train)]
    config = dataclasses.replace(CONFIG, ghost_edges=2, max_epochs=3)
    wanted = [fit(split, "i-nip-mean", config) for split in splits]
    found = fit_folds(splits, "i-nip-mean", config)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one.probabilities, other.probabilities)

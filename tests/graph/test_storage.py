"""Graphs on disk: mapped, the same as in memory, complete or absent."""

import dataclasses
import json
import mmap

import numpy as np
import pytest
import scipy.sparse as sp

import hopf_jax
from hopf_jax import Config, Execution, open_graph, write_graph
from hopf_jax.datasets import synthetic, write_random
from tests import graphs


def same(left, right):
    for field in dataclasses.fields(left):
        a, b = getattr(left, field.name), getattr(right, field.name)
        if sp.issparse(a):
            assert sp.issparse(b) and (a != b).nnz == 0
        elif isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
        else:
            assert a == b
    return True


def mapped(array):
    """Return whether an array is a memory map."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("kind", ["plain", "all"])
def test_what_is_written_is_opened(tmp_path, kind, sparse):
    graph = graphs.tiny(kind, sparse=sparse, multilabel=sparse)
    write_graph(graph, tmp_path / "deep" / "graph")
    again = open_graph(tmp_path / "deep" / "graph")
    assert same(graph, again)
    assert isinstance(again.indices, np.memmap)
    assert isinstance(again.indptr, np.memmap)
    assert mapped(again.features.data if sparse else again.features)
    assert [p.name for p in tmp_path.iterdir()] == ["deep"]
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["graph"]


def test_a_graph_without_edges(tmp_path):
    graph = hopf_jax.Graph.from_edges([], [], np.ones((3, 2)), [0, 1, 0])
    write_graph(graph, tmp_path / "graph")
    assert same(graph, open_graph(tmp_path / "graph"))


@pytest.mark.parametrize("chunk_edges", [20, 10_000], ids=["chunks", "one chunk"])
def test_a_mapped_graph_is_learned_from_the_same(tmp_path, chunk_edges):
    graph = graphs.tiny()
    write_graph(graph, tmp_path / "graph")
    config = Config(num_hops=1, hidden_size=4, num_iterations=2, max_epochs=3)
    small = Execution(memory_budget=0, chunk_edges=chunk_edges)
    one = hopf_jax.fit(graph, "i-nip-mean", config=config)
    two = hopf_jax.fit(
        open_graph(tmp_path / "graph"), "i-nip-mean", config=config, execution=small
    )
    np.testing.assert_allclose(two.probabilities, one.probabilities, atol=1e-5)


def test_nothing_is_written_over_or_left_half_done(tmp_path, monkeypatch):
    graph = graphs.tiny()
    write_graph(graph, tmp_path / "graph")
    with pytest.raises(ValueError, match="graph already exists"):
        write_graph(graph, tmp_path / "graph")
    monkeypatch.setattr(np, "save", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_graph(graph, tmp_path / "other")
    assert [p.name for p in tmp_path.iterdir()] == ["graph"]


def spoil(folder, name, at, value):
    array = np.load(folder / f"{name}.npy")
    array[at] = value
    np.save(folder / f"{name}.npy", array)


@pytest.mark.parametrize(
    ("name", "at", "value", "message"),
    [
        ("indices", 3, 18, r"indices\[3\] is 18, but there are 18 columns"),
        ("indices", 0, -1, r"indices\[0\] is -1"),
        ("indptr", 2, 1000, "indptr falls at 2"),
        ("indptr", -1, 10**6, "indptr runs from 0 to 1000000"),
        ("weights", 1, np.nan, r"weights\[1\] is nan"),
        ("features", (4, 2), np.inf, r"features\[4, 2\] is inf"),
        ("labels", (5, 0), 2, r"labels\[5\] is"),
        ("test", 0, True, "node 0 is in both train and test"),
        ("known", 1, False, "node 1 is in train but its label is unknown"),
    ],
)
def test_a_stored_graph_is_checked(tmp_path, name, at, value, message):
    write_graph(graphs.tiny("weighted"), tmp_path / "graph")
    spoil(tmp_path / "graph", name, at, value)
    with pytest.raises(ValueError, match=message):
        open_graph(tmp_path / "graph")
    open_graph(tmp_path / "graph", check=False)


def test_what_is_no_graph(tmp_path):
    with pytest.raises(ValueError, match=r"not a graph .*graph.json is missing"):
        open_graph(tmp_path)
    write_graph(graphs.tiny(), tmp_path / "graph")
    about = tmp_path / "graph" / "graph.json"
    meta = json.loads(about.read_text())
    about.write_text(json.dumps(meta | {"format": 9}))
    with pytest.raises(ValueError, match="format 9, this version reads 1"):
        open_graph(tmp_path / "graph")
    about.write_text(json.dumps(meta))
    (tmp_path / "graph" / "indices.npy").write_bytes(b"not numpy" * 100)
    with pytest.raises(ValueError, match="not a graph written by this library"):
        open_graph(tmp_path / "graph")


def test_a_random_graph_is_written_piece_by_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "_EDGES_AT_ONCE", 100)
    monkeypatch.setattr(synthetic, "_ROWS_AT_ONCE", 50)
    sizes = {"num_train": 40, "num_validation": 20}
    for name in ("one", "two"):
        write_random(tmp_path / name, 300, 900, 4, 3, **sizes)
    graph = open_graph(tmp_path / "one")
    assert same(graph, open_graph(tmp_path / "two"))
    matrix = graph.adjacency.toarray()
    assert graph.num_nodes == 300 and 850 < graph.num_edges / 2 <= 900
    assert matrix.max() == 1 and not np.diagonal(matrix).any()
    np.testing.assert_array_equal(matrix, matrix.T)
    for start, stop in zip(graph.indptr[:-1], graph.indptr[1:], strict=True):
        assert (np.diff(graph.indices[start:stop]) > 0).all()
    degrees = np.diff(graph.indptr)
    assert degrees[:150].mean() == pytest.approx(degrees[150:].mean(), rel=0.15)
    assert (graph.train.sum(), graph.validation.sum()) == (40, 20)
    np.testing.assert_array_equal(graph.labels.sum(axis=1), np.ones(300))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "two"]


def test_a_random_graph_that_cannot_be(tmp_path):
    with pytest.raises(ValueError, match="no more nodes to the sets"):
        write_random(tmp_path / "graph", 10, 5, num_train=10, num_validation=1)
    assert not list(tmp_path.iterdir())

"""Nodes keep their names, and labels their types."""

import datetime
import json

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from hopf_jax import Graph, open_graph, split_graph, write_graph
from hopf_jax.graph import draw_folds

EDGES = pd.DataFrame({"source": ["Ann", "Bob"], "target": ["Bob", "Eve"]})
NODES = pd.DataFrame(
    {"age": [50, 30, 40], "club": ["b", "a", None]}, index=["Eve", "Ann", "Bob"]
)


def test_networkx_names_are_kept(tmp_path):
    graph = Graph.from_networkx(nx.les_miserables_graph(), train=None)
    assert graph.node_names[:2] == ("Napoleon", "Myriel")
    assert graph.with_split().node_names == graph.undirected().node_names
    write_graph(graph, tmp_path / "graph")
    assert open_graph(tmp_path / "graph").node_names == graph.node_names


def test_ids_in_order_are_no_names():
    assert Graph.from_networkx(nx.path_graph(4)).node_names == ()
    assert Graph.from_edges([0], [1], np.eye(3), node_names=range(3)).node_names == ()
    assert Graph.from_edges([0, 1], [1, 2], np.eye(3)).node_names == ()


def test_edges_may_be_names():
    graph = Graph.from_edges(["c", "a"], ["a", "b"], labels={"b": "x", "d": "y"})
    assert graph.node_names == ("c", "a", "b", "d")
    assert graph.degree.tolist() == [1, 2, 1, 0]
    assert graph.known.tolist() == [False, False, True, True]
    with pytest.raises(ValueError, match=r"'c'.*rows of features need names"):
        Graph.from_edges(["c", "a"], ["a", "b"], np.eye(3))
    with pytest.raises(ValueError, match=r"'c'.*rows of labels need names"):
        Graph.from_edges(["c", "a"], ["a", "b"], labels=[0, 1, 0])
    given = Graph.from_edges(
        ["c", "a"], ["a", "b"], np.eye(3), [0, 1, 0], node_names=["a", "b", "c"]
    )
    assert given.degree.tolist() == [2, 1, 1]
    np.testing.assert_array_equal(given.features, np.eye(3))
    with pytest.raises(ValueError, match=r"senders\[0\] is 'cc'.*mean 'c'"):
        Graph.from_edges(["cc"], ["a"], np.eye(2), node_names=["a", "c"])


def test_the_index_of_features_names_nodes():
    frame = pd.DataFrame({"x": [1.0, 2, 3]}, index=[30, 10, 20])
    graph = Graph.from_edges([10, 20], [20, 30], frame, pd.Series({10: "a"}))
    assert graph.node_names == (30, 10, 20) and graph.degree.tolist() == [1, 1, 2]
    assert np.flatnonzero(graph.known).tolist() == [1]


@pytest.mark.parametrize("make", ["from_scipy", "from_csr"])
def test_matrices_have_names_if_they_are_given(make):
    matrix = sp.csr_array(np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]))
    parts = [matrix] if make == "from_scipy" else [matrix.indptr, matrix.indices]
    frame = pd.DataFrame({"x": [1.0, 2, 3]}, index=[7, 8, 5])
    graph = getattr(Graph, make)(*parts, frame, node_names=[5, 7, 8])
    assert graph.node_names == (5, 7, 8) and graph.degree.tolist() == [1, 1, 0]
    assert graph.features[:, 0].tolist() == [3, 1, 2]


def test_nodes_are_found_by_name_id_and_mask():
    graph = Graph.from_networkx(nx.Graph([("c", "a"), ("a", "b")]), labels={
        "a": 1, "b": 0, "c": 1})  # fmt: skip
    index = graph.node_index
    for nodes in (
        ["b", "c"],
        [2, 0],
        np.array(["b", "c"]),
        pd.Index(["b", "c"]),
        ("b", 0),
    ):
        assert index.find(nodes).tolist() == [2, 0]
    assert index.find([True, False, True]).tolist() == [0, 2]
    mask = pd.Series([True, False, True], index=["b", "a", "c"])
    assert index.find(mask).tolist() == [0, 2]
    assert index.find("b").tolist() == [2] and index.find_one("b") == 2
    split = graph.with_split(train=["c"], validation=[2])
    assert (np.flatnonzero(split.train), np.flatnonzero(split.validation)) == (0, 2)
    with pytest.raises(ValueError, match=r"nodes\[1\] is 'B'.*Did you mean 'b'"):
        index.find(["a", "B"])
    with pytest.raises(ValueError, match="node 'c' is in both"):
        graph.with_split(["c"], ["c"])
    with pytest.raises(ValueError, match="have no names"):
        Graph.from_networkx(nx.path_graph(3)).node_index.find(["a"])


def test_names_may_be_tuples_and_numbers(tmp_path):
    graph = Graph.from_networkx(nx.grid_2d_graph(2, 2))
    assert graph.node_names[1] == (0, 1)
    assert graph.node_index.find([(1, 1), (0, 0)]).tolist() == [3, 0]
    assert graph.node_index.find((1, 1)).tolist() == [3]
    assert graph.node_index.find([1, 2]).tolist() == [1, 2]
    write_graph(graph, tmp_path / "grid")
    assert open_graph(tmp_path / "grid").node_names == graph.node_names
    turned = Graph.from_networkx(nx.Graph([(2, 0), (0, 1)]))
    assert turned.node_index.find([0, np.int64(2)]).tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"nodes\[0\] is 3"):
        turned.node_index.find([3])


def test_other_names_are_saved_as_text(tmp_path):
    days = [datetime.date(2020, 1, d) for d in (1, 2)]
    graph = Graph.from_edges([0], [1], np.eye(2), node_names=days)
    assert graph.node_index.find([days[1]]).tolist() == [1]
    write_graph(graph, tmp_path / "days")
    assert open_graph(tmp_path / "days").node_names == ("2020-01-01", "2020-01-02")


@pytest.mark.parametrize(
    "names", [["a"], ["a", "a", "b"], [{"a": 1}] * 3, [None, "a", "b"], "abc",
              ["a", "b", float("nan")], [[[[[[[[[[["a"]]]]]]]]]], "a", "b"]]
)  # fmt: skip
def test_names_in_a_damaged_folder_are_refused(names, tmp_path):
    graph = Graph.from_networkx(nx.Graph([("c", "a"), ("a", "b")]))
    write_graph(graph, tmp_path / "graph")
    (tmp_path / "graph" / "node_names.json").write_text(json.dumps(names))
    with pytest.raises(ValueError, match="not a graph written by this library"):
        open_graph(tmp_path / "graph")


@pytest.mark.parametrize("names", [["a", "a"], ["a", None], [["a"], ["b"]], "ab", 3])
def test_wrong_names_are_refused(names):
    with pytest.raises(ValueError, match="node_names"):
        Graph.from_edges([0], [1], np.eye(2), node_names=names)
    with pytest.raises(ValueError, match="node_names has 3 names"):
        Graph.from_edges([0], [1], np.eye(2), node_names=["a", "b", "c"])


@pytest.mark.parametrize(
    ("labels", "classes", "names"),
    [
        ([3, 5, -1], (3, 5), ("3", "5")),
        ([1.0, 0.0, np.nan], (0, 1), ("0", "1")),
        ([True, False, True], (False, True), ("0", "1")),
        ([True, None, False], (False, True), ("0", "1")),
        (["a", "b", None], (), ("a", "b")),
        (["3", "5", ""], (), ("3", "5")),
        ([[0, 1], [1, 0], [1, 0]], (0, 1), ("0", "1")),
        (pd.Series([2, pd.NA, 1], dtype="Int64"), (1, 2), ("1", "2")),
    ],
)
def test_labels_keep_their_type(labels, classes, names, tmp_path):
    graph = Graph.from_edges([0], [1], np.eye(3), labels)
    assert (graph.classes, graph.label_names) == (classes, names)
    assert list(map(type, graph.classes)) == list(map(type, classes))
    write_graph(graph, tmp_path / "graph")
    assert open_graph(tmp_path / "graph").classes == classes


def test_pandas_there_and_back():
    graph = Graph.from_pandas(EDGES, NODES, labels="club", directed=True)
    assert graph.node_names == ("Eve", "Ann", "Bob")
    assert graph.features[:, 0].tolist() == [50, 30, 40]
    assert graph.known.tolist() == [True, True, False]
    assert graph.degree.tolist() == [1, 0, 1]
    graph = graph.with_split(["Ann"], ["Eve"])
    edges, nodes = graph.to_pandas()
    again = Graph.from_pandas(edges, nodes, labels="label", split="set", directed=True)
    for name in ("node_names", "feature_names", "label_names"):
        assert getattr(again, name) == getattr(graph, name)
    for name in ("indptr", "indices", "features", "labels", "train", "validation"):
        np.testing.assert_array_equal(getattr(again, name), getattr(graph, name))


def test_pandas_in_other_forms():
    edges = EDGES.assign(times=[1.0, 2.0]).rename(columns={"source": "from"})
    nodes = NODES.rename_axis("who").reset_index()
    graph = Graph.from_pandas(
        edges, nodes, source="from", target="target", weight="times", node="who",
        features=["age"], labels={"Ann": 1, "Eve": 0},
    )  # fmt: skip
    assert graph.degree.tolist() == [2, 1, 3] and graph.classes == (0, 1)
    alone = Graph.from_pandas(EDGES)
    assert alone.node_names == ("Ann", "Bob", "Eve") and alone.positional
    numbered = pd.DataFrame({"a": [0, 2], "b": [1, 1]})
    ids = Graph.from_pandas(numbered, pd.DataFrame({"x": [3.0, 1, 2]}, index=[2, 0, 1]))
    assert ids.node_names == () and ids.features[:, 0].tolist() == [1, 2, 3]
    both = NODES.assign(red=[0, 1, 1], blue=[1, 1, 0])
    many = Graph.from_pandas(EDGES, both, features=["age"], labels=["red", "blue"])
    assert many.multilabel and many.label_names == ("red", "blue")


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"labels": "clubs"}, "Did you mean 'club'"),
        ({"labels": "club", "weight": "w"}, "edges has no column 'w'"),
        ({"source": "source"}, "target is not given"),
        ({"nodes": NODES.iloc[:2]}, "Row 1 of edges has 'Bob'"),
        ({"edges": [("a", "b")]}, "edges is a list"),
        ({"edges": EDGES.where(EDGES != "Eve")}, "no value in column 'target', row 1"),
        ({"split": "club"}, "Column 'club' of nodes holds 'b'"),
        ({"nodes": None, "labels": "club"}, "nodes is None"),
    ],
)
def test_mistakes_with_frames_are_named(keywords, message):
    with pytest.raises(ValueError, match=message):
        Graph.from_pandas(**{"edges": EDGES, "nodes": NODES} | keywords)


@pytest.mark.parametrize("directed", [False, True])
def test_networkx_there_and_back(directed):
    network = nx.gnp_random_graph(12, 0.3, seed=1, directed=directed)
    network = nx.relabel_nodes(network, {i: f"n{i}" for i in range(12)})
    nx.set_edge_attributes(network, 2.0, "weight")
    labels = {f"n{i}": i % 3 for i in range(9)}
    graph = Graph.from_networkx(network, np.eye(12), labels, weight="weight")
    made = graph.to_networkx(features=True)
    assert nx.utils.edges_equal(
        made.edges(data=True), network.edges(data=True), directed=directed
    )
    again = Graph.from_networkx(made, "features", "label", weight="weight")
    assert again.classes == (0, 1, 2) and again.node_names == graph.node_names
    for name in ("indptr", "indices", "weights", "features", "labels", "known"):
        np.testing.assert_array_equal(getattr(again, name), getattr(graph, name))
    np.testing.assert_array_equal(graph.to_scipy().toarray(), graph.adjacency.toarray())


def test_splits_are_drawn_from_nodes_whose_names_are_other_numbers():
    names = [3, 2, 1, 0, 5, 4, 7, 6]
    graph = Graph.from_edges(
        [3, 2], [1, 0], np.ones((8, 1)), [0, 1, 0, 1, -1, -1, -1, -1], node_names=names
    )
    split = split_graph(graph)
    assert (split.train | split.validation).tolist() == graph.known.tolist()
    for fold in draw_folds(graph, 2):
        assert not ((fold.train | fold.validation | fold.test) & ~graph.known).any()

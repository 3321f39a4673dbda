"""Tables, names, missing values, graphs without features, and likely mistakes."""

import types

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from hopf_jax import Config, Graph, HopfWarning, fit, load, open_graph, write_graph

QUICK = Config(num_hops=1, hidden_size=4, max_epochs=3, min_epochs=1)
N = 40
RNG = np.random.default_rng(0)
EDGES = RNG.integers(N, size=(2, 3 * N))
SETS = {"train": range(0, N, 2), "validation": range(1, N, 2)}
LABELS = np.arange(N) % 3


def table(num_rows=N):
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 60, num_rows),
            "pet": np.array(["cat", "dog", "eel"])[np.arange(num_rows) % 3],
            "member": rng.random(num_rows) < 0.5,
        }
    )


def make(features, **keywords):
    return Graph.from_edges(*EDGES, features, LABELS, **SETS | keywords)


def test_columns_are_encoded_and_named(tmp_path):
    graph = make(table())
    assert graph.feature_names == ("age", "pet=cat", "pet=dog", "pet=eel", "member")
    np.testing.assert_array_equal(graph.features[:2, 1:4], np.eye(3)[:2])
    assert graph.with_split().feature_names == graph.feature_names
    write_graph(graph, tmp_path / "graph")
    assert open_graph(tmp_path / "graph").feature_names == graph.feature_names


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([f"user {i}" for i in range(100)], "'new'.*100 different texts.*like an id"),
        (pd.date_range("2020-01-01", periods=100), "'new'.*cannot be encoded"),
        ([[1, 2]] * 100, "'new'.*nested"),
        ([1.0] * 99 + [np.nan], "'new'.* no value in row 99"),
        (["a"] * 99 + [None], "'new'.* no value in row 99.*missing='mean'"),
    ],
)
def test_columns_that_cannot_be_read_are_named(column, message):
    frame = table(100).assign(new=column)
    with pytest.raises(ValueError, match=message):
        Graph.from_edges([0], [1], frame)


def test_columns_of_a_new_graph_are_matched_by_name(tmp_path):
    result = fit(make(table()), "i-nip-mean", config=QUICK, progress=False)
    result.save(tmp_path / "result.npz")
    result = load(tmp_path / "result.npz")
    frame = table()
    frame["pet"] = np.where(frame["pet"] == "cat", "dog", frame["pet"])
    said = result.predict_proba(make(frame))  # Without "pet=cat".
    other = frame[["member", "pet", "age"]].assign(unknown=1.0)
    np.testing.assert_allclose(result.predict_proba(make(other)), said, rtol=1e-5)
    strange = frame.assign(pet=frame["pet"].replace("eel", "fox"))
    assert result.predict(make(strange)).shape == (N,)
    with pytest.raises(ValueError, match="no feature 'age'"):
        result.predict(make(frame.drop(columns="age")))
    with pytest.raises(ValueError, match="no feature 'pet=cat'"):
        result.predict(make(frame.drop(columns="pet")))


def test_missing_values_are_filled_as_in_the_graph_that_was_fitted(tmp_path):
    frame = table().astype({"age": float})
    frame.loc[[3, 5], "age"] = np.nan
    frame.loc[7, "pet"] = None
    graph = make(frame, missing="mean")
    assert graph.missing_values and "pet is missing" in graph.feature_names
    assert "indicator for each: age" in graph.describe()
    result = fit(graph, "i-nip-mean", config=QUICK, progress=False)
    assert np.isfinite(result.probabilities).all()
    scaled = result.scaling.apply(graph.features)
    assert np.isfinite(scaled).all() and scaled.shape[1] == graph.num_features + 1
    assert scaled[3, 0] == 0 and scaled[3, -1] > 0 > scaled[4, -1]
    # A new graph is filled with the same mean, whatever its own is.
    new = make(frame.assign(age=frame["age"] + 1000), missing="mean")
    assert result.scaling.apply(new.features)[3, 0] == 0
    assert np.isfinite(result.predict_proba(new)).all()
    write_graph(graph, tmp_path / "graph")
    assert open_graph(tmp_path / "graph").missing_values
    config = Config(features="as-is", max_epochs=2, min_epochs=1)
    with pytest.raises(ValueError, match="missing values"):
        fit(graph, "i-nip-mean", config=config, progress=False)


def test_the_index_of_a_table_places_its_rows():
    order = RNG.permutation(N)
    graph, labels = make(table()), pd.Series(LABELS)
    moved = Graph.from_edges(
        *EDGES, table().iloc[order], labels.iloc[order[::-1]], **SETS
    )
    np.testing.assert_array_equal(moved.features, graph.features)
    np.testing.assert_array_equal(moved.labels, graph.labels)
    some = Graph.from_edges(*EDGES, table(), labels.iloc[[5, 2]])
    assert np.flatnonzero(some.known).tolist() == [2, 5]
    mask = pd.Series(np.arange(N) < 4).iloc[order]
    np.testing.assert_array_equal(graph.with_split(mask).train, np.arange(N) < 4)
    for index in ([f"n{i}" for i in range(N)], np.arange(N) + 1, [0] * N):
        with pytest.raises(ValueError, match="index of features"):
            Graph.from_edges(*EDGES, table().set_index(pd.Index(index)))


def test_the_index_names_nodes_of_networkx():
    network = nx.Graph([("c", "a"), ("a", "b")])  # In the order c, a, b.
    frame = pd.DataFrame({"x": [1.0, 2, 3]}, index=["a", "b", "c"])
    labels = pd.Series(["one", "two"], index=["b", "c"])
    graph = Graph.from_networkx(network, frame, labels)
    assert graph.features[:, 0].tolist() == [3, 1, 2]
    assert graph.known.tolist() == [True, False, True]
    same = Graph.from_networkx(network, frame, labels.to_dict())
    np.testing.assert_array_equal(same.labels, graph.labels)
    with pytest.raises(ValueError, match="index of features"):
        Graph.from_networkx(network, frame.reset_index(drop=True))
    with pytest.raises(ValueError, match="no row 'c'"):
        Graph.from_networkx(network, frame.iloc[:2])


def test_attributes_by_a_wrong_name_are_refused():
    network = nx.path_graph(3)
    for node in network:
        network.nodes[node].update(topic="a", age=node, pet="cat")
        nx.set_edge_attributes(network, 2.0, "weight")
    graph = Graph.from_networkx(network, ["age", "pet"], "topic", weight="weight")
    assert graph.feature_names == ("age", "pet=cat")
    with pytest.raises(ValueError, match="Did you mean 'topic'"):
        Graph.from_networkx(network, "age", "topics")
    with pytest.raises(ValueError, match=r"No edge has an attribute 'wt'.*'weight'"):
        Graph.from_networkx(network, "age", weight="wt")


def test_ids_of_classes_may_have_gaps():
    graph = Graph.from_edges([0], [1], np.eye(4), [1000, 0, 5, -1])
    assert graph.label_names == ("0", "5", "1000")
    assert graph.labels.argmax(axis=1)[:3].tolist() == [2, 0, 1]
    named = Graph.from_edges([0], [1], np.eye(3), [1000, 0, 5], label_names=[
        "0", "5", "7", "1000"])  # fmt: skip
    assert named.labels.argmax(axis=1).tolist() == [3, 0, 1]
    by_id = Graph.from_edges(
        [0], [1], np.eye(3), [5, 0, -1], label_names={0: "a", 5: "b"}
    )
    assert by_id.label_names == ("a", "b") and by_id.labels[0, 1] == 1


def test_columns_of_labels():
    frame = pd.DataFrame({"ham": [1, 0], "spam": [0, 1]})
    assert Graph.from_edges([0], [1], np.eye(2), frame).label_names == ("ham", "spam")
    column = Graph.from_edges([0], [1], np.eye(3), np.array([[0], [1], [1]]))
    assert column.known.all() and column.num_labels == 2


def test_edge_attributes_of_pyg():
    data = types.SimpleNamespace(x=np.eye(3), edge_index=np.array([[0, 1], [1, 2]]))
    data.edge_attr = np.array([[2.0], [3.0]])
    assert Graph.from_pyg(data).degree.tolist() == [2, 5, 3]
    data.edge_attr = np.ones((2, 4))
    with pytest.raises(ValueError, match="edge_attr has shape"):
        Graph.from_pyg(data)
    assert Graph.from_pyg(data, weights=None).weights is None
    data.edge_weight = np.ones(2)
    assert Graph.from_pyg(data).num_edges == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((EDGES, np.eye(N), LABELS), "edge_index"),
        ((EDGES.T.tolist(), np.eye(N), LABELS), "list of pairs"),
        ((np.eye(N), np.eye(N), LABELS), "adjacency matrix.*from_scipy"),
        ((sp.eye_array(N), np.eye(N)), "from_scipy"),
        ((nx.path_graph(3), np.eye(3)), "from_networkx"),
        ((*EDGES, LABELS, RNG.normal(size=(N, 5))), "swapped"),
        ((*EDGES, RNG.normal(size=(5, N)), LABELS), "transposed"),
        (([1, 2], [2, 3], np.eye(3)), "Subtract 1"),
        (([0, 1], [1, 2], np.ones((3, 2)), [0, 1]), "labels has shape"),  # No guess.
    ],
)
def test_likely_mistakes_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Graph.from_edges(*arguments)


def test_numbers_that_may_be_names_are_warned_of():
    with pytest.warns(HopfWarning, match="join 2 nodes, but their ids make 2,003"):
        graph = Graph.from_edges([1001], [2002], labels={1001: "a"})
    assert graph.num_nodes == 2003
    for ends, more in ((([0], [9]), {}), (([1001], [2002]), {"num_nodes": 2003})):
        assert Graph.from_edges(*ends, **more).num_nodes in (10, 2003)


def test_one_attribute_or_column_may_be_named_by_itself():
    network = nx.Graph([("Ann", "Bob"), ("Bob", "Cem")])
    nx.set_node_attributes(network, {"Ann": "Rome", "Bob": "Oslo"}, "town")
    graph = Graph.from_networkx(network, "town", missing="mean")
    expected = ("town=Oslo", "town=Rome", "town is missing")
    assert graph.feature_names == expected
    edges = pd.DataFrame({"source": ["Ann"], "target": ["Bob"]})
    people = pd.DataFrame({"age": [1, 2], "size": [3, 4]}, index=["Ann", "Bob"])
    assert Graph.from_pandas(edges, people, features="age").feature_names == ("age",)


def test_a_mask_of_numbers_is_not_taken_for_ids():
    with pytest.raises(ValueError, match="looks like a mask"):
        make(np.eye(N), train=np.arange(N) % 2)


# Graphs without features


@pytest.mark.parametrize(
    "network",
    [
        nx.karate_club_graph(),
        nx.path_graph(3),
        nx.empty_graph(4),
        nx.disjoint_union(nx.path_graph(9), nx.cycle_graph(5)),
        nx.gnp_random_graph(60, 0.1, seed=0, directed=True),
        nx.gnp_random_graph(500, 0.02, seed=0),
    ],
)
def test_edges_make_features(network):
    one, two = Graph.from_networkx(network), Graph.from_networkx(network)
    assert one.positional and one.features.shape == (len(network), one.num_features)
    assert np.isfinite(one.features).all() and one.num_features <= 65
    np.testing.assert_allclose(one.features, two.features, atol=1e-5)
    assert "made from the edges" in one.describe()


def test_positions_mean_nothing_in_another_graph(tmp_path):
    network = nx.karate_club_graph()
    graph = Graph.from_networkx(network, labels="club")
    graph = graph.with_split(range(0, 34, 2), range(1, 34, 2))
    result = fit(graph, "i-nip-mean", config=QUICK, progress=False)
    result.save(tmp_path / "result.npz")
    loaded = load(tmp_path / "result.npz")
    np.testing.assert_allclose(loaded.predict_proba(graph), result.probabilities)
    network.remove_edge(0, 1)
    with pytest.raises(ValueError, match="positions in another graph"):
        loaded.predict(Graph.from_networkx(network))
    given = fit(
        make(RNG.normal(size=(N, 4))), "i-nip-mean", config=QUICK, progress=False
    )
    with pytest.raises(ValueError, match="no features of its own"):
        given.predict(graph)


def test_a_graph_describes_itself():
    text = make(table()).describe()
    for part in (f"{N} nodes", "mean degree", "isolated", "connected components",
                 "3 classes: 0 14, 1 13, 2 13", "homophily", "by chance",
                 "5 columns standardised", "20 train, 20 validation"):  # fmt: skip
        assert part in text

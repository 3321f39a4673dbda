"""Predictions follow changes of a graph, and equal those of a replay."""

import dataclasses
import pickle

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from hopf_jax import MODELS, Config, Graph, Kernel, fit, load
from hopf_jax.kernels import mean, symmetric
from tests import graphs
from tests.changes import PlainGraph, random_changes

QUICK = Config(hidden_size=5, num_iterations=3, max_epochs=3, min_epochs=1)
# The others, by an aggregator or a readout of their own, take longer.
FIRST = ("i-nip-mean", "gcn", "i-sgc")


def named(graph):
    names = tuple(f"n{i}" for i in range(graph.num_nodes))
    return dataclasses.replace(graph, node_names=names)


def fitted(graph, model="i-nip-mean", **settings):
    result = fit(graph, model, QUICK, **settings)
    return dataclasses.replace(result, iteration=len(result.weights))


def assert_same_graph(one, other):
    for name in ("indptr", "indices", "train", "labels", "known", "validation"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    assert (one.weights is None) == (other.weights is None)
    if one.weights is not None:
        np.testing.assert_allclose(one.weights, other.weights, rtol=1e-5)
    assert one.node_names == other.node_names
    np.testing.assert_array_equal(*map(graphs.dense_features, (one, other)))


def change_and_compare(result, graph, count, **how):
    plain, rng, now = PlainGraph(graph), np.random.default_rng(0), result.update(graph)
    for i in range(count):
        now = now.update(**random_changes(plain, rng, i), **how)
        anew = plain.graph()
        assert_same_graph(now.graph, anew)
    want = result.predict_proba(anew)
    np.testing.assert_allclose(now.predict_proba(), want, atol=1e-5)
    return now


@pytest.mark.parametrize("kind", ["plain", "all"])
@pytest.mark.parametrize(
    "model",
    [pytest.param(m, marks=[pytest.mark.slow] * (m not in FIRST)) for m in MODELS],
)
def test_it_equals_a_replay_on_the_graph_made_anew(model, kind):
    graph = named(graphs.tiny(kind))
    change_and_compare(fitted(graph, model), graph, 10)


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("sgc", {"members": 2}),
        ("i-sgc", {"num_hops": 0, "members": 2}),
        ("i-sgc", {"members": 2, "summary": "hidden"}),
        (Kernel(("h0",), ("h",), mean, learned_hops=False), {"members": 2}),
        (Kernel(("h",), ("h",), mean, votes=symmetric), {"members": 2}),
    ],
    ids=("sgc", "no hop", "hidden", "h0", "learned"),
)
def test_hops_without_weights_and_votes(model, settings):
    graph = named(graphs.tiny("all", sparse=True))
    change_and_compare(fitted(graph, model, **settings), graph, 8)


@pytest.mark.parametrize(
    "settings",
    [
        {"members": 2, "caution": "share", "scale_summaries": True},
        {"members": 2, "summary": "hidden"},
        {"directions": "given", "caution": "confidence", "average_labels": False},
        {"ghost_edges": 2},
    ],
    ids=lambda settings: next(iter(settings.values())),
)
def test_settings_of_iterations(settings):
    graph = named(graphs.tiny("directed", sparse=True))
    now = change_and_compare(fitted(graph, **settings), graph, 8)
    assert bool(now.reason) == ("ghost_edges" in settings)


def test_several_labels_per_node():
    graph = named(graphs.tiny("weighted", multilabel=True))
    change_and_compare(fitted(graph, folds=2), graph, 8)


# Locality


def path(count=60, **keywords):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(count, 4))
    ends = np.arange(count - 1)
    labels = np.arange(count) % 3
    return Graph.from_edges(ends, ends + 1, features, labels, **keywords)


@pytest.fixture(scope="module")
def on_a_path():
    graph = path(train=range(0, 40), validation=range(40, 60))
    return graph, fitted(graph, num_hops=1)


def test_nothing_else_is_computed(on_a_path):
    graph, result = on_a_path
    start = result.update(graph)
    now = start.update(features={50: [9, -9, 9, -9]}, tolerance=0)
    iterations, reach = result.iteration, 1
    assert now.recomputed == 1 + 2 * reach * iterations
    far = abs(np.arange(60) - 50) > reach * iterations
    before, after = start.predict_proba(), now.predict_proba()
    np.testing.assert_array_equal(before[far], after[far])
    assert set(now.changed) <= set(np.flatnonzero(~far).tolist()) and 50 in now.changed
    assert set(now.relabelled) <= set(now.changed)
    frame = now.to_frame()
    assert frame["node"].tolist() == now.changed
    assert frame["before"].tolist() == start.predict(now.changed).tolist()
    np.testing.assert_array_equal(frame["label"], now.predict(now.changed))


def test_a_known_label_is_read_by_others_from_the_second_iteration(on_a_path):
    graph, result = on_a_path
    now = result.update(graph, labels={50: 2}, tolerance=0)
    assert now.graph.train[50] and not now.graph.validation[50]
    np.testing.assert_allclose(
        now.predict_proba(), result.predict_proba(now.graph), atol=1e-5
    )
    assert 49 in now.changed and now.recomputed == 1 + 2 * (result.iteration - 1)
    assert now.update(labels={50: None}).graph.known.sum() == 59


def test_votes_reach_one_hop_further_per_iteration():
    graph = path(train=range(0, 40), validation=range(40, 60))
    kernel = Kernel(("h",), ("h",), mean, learned_hops=False, votes=symmetric)
    result = fitted(graph, kernel, num_hops=0)
    now = result.update(graph, features={50: [9, -9, 9, -9]}, tolerance=0)
    assert now.recomputed == 1 + 2 * (result.iteration - 1)
    # Others read the degrees of 10 and 30, whose labels are known.
    later = now.update(add_edges=[(10, 30)])
    for each in (now, later):
        want = result.predict_proba(each.graph)
        np.testing.assert_allclose(each.predict_proba(), want, atol=1e-6)


def test_frozen_summaries_reach_one_iteration_only(on_a_path):
    graph, result = on_a_path
    now = result.update(graph, features={50: [9, -9, 9, -9]}, frozen=True, tolerance=0)
    assert now.recomputed == 3
    far = abs(np.arange(60) - 50) > 1
    np.testing.assert_array_equal(
        now.predict_proba()[far], result.update(graph).predict_proba()[far]
    )
    # What stayed behind is made good by an update that is not frozen.
    later = now.update(features={49: [0, 0, 0, 1]})
    np.testing.assert_allclose(
        later.predict_proba(), result.predict_proba(later.graph), atol=1e-5
    )


def test_small_changes_add_up_until_they_are_followed(on_a_path):
    graph, result = on_a_path
    now, row = result.update(graph), graph.features[50].copy()
    for _ in range(40):
        row += 1e-5
        now = now.update(features={50: row})
    want = result.predict_proba(now.graph)
    np.testing.assert_allclose(now.predict_proba(), want, atol=1e-5)


def test_every_version_stays_what_it_was(on_a_path):
    graph, result = on_a_path
    first = result.update(graph)
    one = first.update(drop=[3])
    two = one.update(add_nodes=[[1, 2, 3, 4]], add_edges=[(59, 0)])
    other = first.update(drop=[5])  # Takes another turn from the first.
    for version in (first, one, two, other):
        want = result.predict_proba(version.graph)
        np.testing.assert_allclose(version.predict_proba(), want, atol=1e-5)
    assert [v.num_nodes for v in (first, one, two, other)] == [60, 59, 60, 59]
    assert one.dropped == [3] and two.added == [59]
    again = two.result.update(two.graph, drop=[0])
    np.testing.assert_allclose(
        again.predict_proba(), result.predict_proba(again.graph), atol=1e-5
    )


# One new node


@pytest.mark.parametrize("model", ["i-nip-mean", "gcn", "i-sgc"])
def test_predict_new_is_what_update_gives(model):
    graph = named(graphs.tiny("weighted"))
    result = fitted(graph, model)
    row = np.linspace(-1, 1, graphs.NUM_FEATURES)
    links = {"n1": 0.5, "n5": 2.0}
    new = result.predict_new(row, links)
    now = result.update(
        add_nodes={"Zoe": row}, add_edges=[("Zoe", n, w) for n, w in links.items()]
    )
    np.testing.assert_allclose(
        new.probabilities, now.predict_proba(["Zoe"])[0], atol=1e-6
    )
    assert new.label == now.predict(["Zoe"])[0]
    sure = now.result.confidence(["Zoe"]).probabilities[0]
    np.testing.assert_allclose(new.confidence, sure, atol=1e-6)
    # It was not added.
    np.testing.assert_allclose(
        result.update().predict_proba(), result.predict_proba(), atol=1e-5
    )
    assert "new" not in result.graph.node_names
    assert result.predict_new(row).probabilities.shape == (3,)


# What a user gives


@pytest.fixture(scope="module")
def club():
    network = nx.karate_club_graph()
    for i, node in enumerate(network):
        network.nodes[node].update(age=20.0 + i, town=["Paris", "Rome"][i % 2])
    network = nx.relabel_nodes(network, "member {}".format)
    graph = Graph.from_networkx(network, features=["age", "town"], labels="club")
    return fitted(graph, "gcn", folds=2)


def test_features_are_given_as_the_graph_was_given_them(club):
    row = {"age": 31, "town": "Rome"}
    asked = {"add_edges": [("Zoe", "member 3")]}
    one = club.update(add_nodes={"Zoe": row}, **asked).predict_proba(["Zoe"])
    frame = pd.DataFrame([row], index=["Zoe"])
    for nodes in (frame, {"Zoe": pd.Series(row)}, {"Zoe": [31, 0, 1]}):
        other = club.update(add_nodes=nodes, **asked).predict_proba(["Zoe"])
        np.testing.assert_allclose(one, other, atol=1e-7)
    edges = pd.DataFrame({"source": ["Zoe"], "target": ["member 3"]})
    other = club.update(add_nodes=frame, add_edges=edges).predict_proba(["Zoe"])
    np.testing.assert_allclose(one, other, atol=1e-7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"add_nodes": {"Zoe": {"age": 1}}}, "have no column 'town'.*'age', 'town'"),
        ({"add_nodes": {"Zoe": {"age": 1, "city": 1}}}, "a column 'city'"),
        ({"add_nodes": {"Zoe": [1, 2]}}, r"'Zoe' have shape \(2,\).*3 columns"),
        ({"add_nodes": {"Zoe": [1, 2, np.nan]}}, "features.* is nan"),
        ({"add_nodes": {"Zoe": None}}, "'Zoe' has no features"),
        ({"add_nodes": [[1, 2, 3]]}, "has no names"),
        ({"add_nodes": {"member 1": [1, 2, 3]}}, "'member 1', which is a node already"),
        (
            {"add_edges": [("member 1", "membr 2")]},
            r"add_edges\[0\]\[1\].*mean 'member",
        ),
        ({"add_edges": [("member 1",)]}, "an edge is a pair"),
        (
            {"add_edges": [("member 1", "member 9", 2.0)]},
            "edges of the graph have none",
        ),
        ({"drop_edges": [("member 1", "member 9")]}, "no such edge"),
        ({"drop": "membr 1"}, r"drop\[0\] is 'membr 1'"),
        ({"drop": ["member 1"], "labels": {"member 1": "Officer"}}, "dropped in the"),
        ({"labels": {"member 1": "Oficer"}}, "'Oficer'.*mean 'Officer'"),
        ({"labels": ["Officer"]}, "give a dictionary from nodes to labels"),
        ({"features": {"member 77": [1, 2, 3]}}, "'member 77', which is not a node"),
        ({"tolerance": -1}, "tolerance is -1"),
        ({"drop": [f"member {i}" for i in range(34)]}, "one at least"),
    ],
)
def test_mistakes_change_nothing(club, changes, message):
    with pytest.raises(ValueError, match=message):
        club.update(**changes)
    now = club.update()
    assert now.num_nodes == 34 and now.graph.num_edges == club.graph.num_edges


def test_a_result_is_pickled_without_what_it_keeps(on_a_path):
    graph, result = on_a_path
    now = result.update(graph)
    copy = pickle.loads(pickle.dumps(now.result))
    np.testing.assert_array_equal(copy.predict(), now.predict())


def test_what_no_update_can_follow(tmp_path):
    bare = Graph.from_networkx(nx.karate_club_graph(), labels="club")
    result = fitted(bare, "gcn", folds=2)
    with pytest.raises(ValueError, match="no features of its own"):
        result.update(add_nodes=[[1, 2]])
    with pytest.raises(ValueError, match="no features of its own"):
        result.update(add_edges=[(0, 9)])
    assert result.update(labels={0: "Officer"}).graph.train[0]
    result.save(tmp_path / "model.npz")
    with pytest.raises(ValueError, match=r"holds no graph.*result\.update"):
        load(tmp_path / "model.npz").update()

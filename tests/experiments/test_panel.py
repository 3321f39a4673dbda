"""The panel: graphs of many kinds, scored fairly, summed up rightly."""

import dataclasses

import numpy as np
import pytest

import hopf_jax
from experiments import panel, panel_graphs
from hopf_jax.graph import split_graph

SCORES = {
    "a": {panel.OURS: 80.0, "SGC": 78.0, "MLP": 70.0},
    "b": {panel.OURS: 60.0, "SGC": 65.0, "MLP": 60.0},
}


def records():
    return {
        name: {"about": "x", "scores": scores, "choice": ["gcn"]}
        | {"seconds": dict.fromkeys(scores, 2.0)}
        for name, scores in SCORES.items()
    }


def kind(**changes):
    plain = panel_graphs.Kind(
        num_nodes=400,
        num_classes=3,
        equal=True,
        labels=10,
        degree=6.0,
        mixing="strong",
        heavy_tail=False,
        features="dense 8",
        signal="mid",
        noise=False,
        scales=False,
        isolated=0.0,
        directed=False,
        weighted=False,
    )
    return dataclasses.replace(plain, **changes)


def make(**changes):
    return panel_graphs.make_graph(kind(**changes), np.random.default_rng(0))


def homophily(graph, classes):
    edges = graph.adjacency.tocoo()
    return (classes[edges.row] == classes[edges.col]).mean()


def test_labels_are_known_as_often_as_asked_for():
    graph, classes = make()
    assert np.bincount(classes[graph.known]).tolist() == [10, 10, 10]
    np.testing.assert_array_equal(
        graph.labels[graph.known].argmax(axis=1), classes[graph.known]
    )
    assert not graph.labels[~graph.known].any()


def test_edges_mix_classes_as_named():
    found = {
        mixing: homophily(*make(mixing=mixing))
        for mixing in ("strong", "medium", "weak", "random", "cyclic")
    }
    assert found["strong"] > found["medium"] > found["weak"] > found["random"]
    assert found["cyclic"] < found["random"]


def test_traits_are_those_of_the_graph():
    graph, _ = make(isolated=0.2, directed=True, weighted=True, noise=True)
    assert graph.directed
    assert graph.weights is not None
    assert graph.features.shape == (400, 8 + 20 + 1)
    both = graph.undirected().adjacency
    assert 0.15 < (np.diff(both.indptr) == 0).mean() < 0.3


@pytest.mark.parametrize("features", ["dense 500", "words", "id", "none"])
def test_every_kind_of_features_is_made(features):
    graph, _ = make(features=features, signal="none")
    assert graph.num_nodes == 400
    assert graph.positional == (features == "none")


def test_kinds_have_something_to_learn_from():
    rng = np.random.default_rng(0)
    drawn = [panel_graphs.draw_kind(rng) for _ in range(200)]
    assert not [k for k in drawn if k.signal == "none" and k.mixing == "random"]
    assert len({k.mixing for k in drawn}) == 5


def test_the_summary_ranks_and_counts_what_falls_short():
    summary = panel.summarise(records())
    assert list(summary) == [panel.OURS, "SGC", "MLP"] or summary["SGC"]["rank"] == 1.5
    assert summary[panel.OURS]["rank"] == pytest.approx((1 + 2.5) / 2)
    assert summary[panel.OURS]["shortfall"] == pytest.approx((-2 + 5) / 2)
    assert summary[panel.OURS]["worst_shortfall"] == 5.0
    assert summary[panel.OURS]["short_by_more"] == 1
    text = panel.report(summary, 2)
    assert "more than 1 on 1 graphs" in text
    assert "-5.0" in panel.line_of("b", records()["b"])


def test_saved_graphs_are_not_run_again(tmp_path, monkeypatch):
    saved = {"source": panel.code_digest(), "record": records()["a"]}
    panel.output.write_json(tmp_path / "a.json", saved)
    monkeypatch.setattr(panel, "run_graph", None)  # Would fail if it were called.
    assert dict(panel.run_graphs(["a"], tmp_path)) == {"a": records()["a"]}


def test_methods_are_scored_on_nodes_that_they_did_not_see(monkeypatch):
    graph, classes = make(signal="high")
    labels = np.eye(3)[classes]
    monkeypatch.setattr(panel, "PEER", panel.pathlib.Path("missing"))
    monkeypatch.setattr(
        panel, "graph_of", lambda name: ("made", graph, labels, ~graph.known)
    )
    monkeypatch.setattr(panel, "_PENALTIES", (0.1,))
    few = hopf_jax.Config(max_epochs=5, min_epochs=1, folds=2)
    fit = hopf_jax.fit
    monkeypatch.setattr(hopf_jax, "fit", lambda g, **kw: fit(g, "gcn", few, **kw))
    record = panel.run_graph("x")
    assert set(record["scores"]) == {
        panel.OURS, "logistic-regression", "label-propagation", "wvrn", "ica",
        "sgc-logistic", "correct-and-smooth", "MLP",
    }  # fmt: skip
    assert record["scores"]["sgc-logistic"] > 60
    assert record["choice"] == []


def test_the_mlp_is_tuned_on_validation_nodes():
    graph, classes = make(signal="high", labels=50)
    said = panel.mlp(split_graph(graph))
    assert said.shape == (400, 3)
    assert (said.argmax(axis=1) == classes)[~graph.known].mean() > 0.6

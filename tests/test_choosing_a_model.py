"""`fit` on a graph without a split, without a model, with settings as keywords."""

import dataclasses

import numpy as np
import pytest

import hopf_jax
from hopf_jax import Config, Graph, fit, load
from hopf_jax.datasets import make_planted
from hopf_jax.graph import complete_split
from hopf_jax.kernels import CANDIDATES, LINEAR_MODEL, VOTING_MODEL
from hopf_jax.learning import make_team, teams
from tests import graphs

QUICK = Config(hidden_size=8, max_epochs=30, min_epochs=5, num_iterations=2)


def partly_labelled(num_labelled=40, **settings):
    graph = make_planted(200, 800, noise=0.5, **settings)
    labels = np.full(200, -1)
    labels[:num_labelled] = graph.labels[:num_labelled].argmax(axis=1)
    made = Graph.from_scipy(graph.adjacency, graph.features, labels)
    return made, graph.labels.argmax(axis=1)


def test_all_labels_are_learned_from_without_a_split():
    graph, true = partly_labelled()
    result = fit(graph, "gcn", QUICK)
    assert result.config.folds == 5 and result.config.num_members == 5
    np.testing.assert_array_equal(result.graph.train, graph.known)
    assert not result.graph.test.any()
    assert (result.predict()[40:] == true[40:]).mean() > 0.6
    assert result.scores["validation"]["micro_f1"] > 0.6


@pytest.mark.parametrize("model", ["nip-mean", "i-nip-mean"])
@pytest.mark.parametrize("settings", [{}, {"members": 2}, {"summary": "hidden"}])
def test_folds_are_saved_loaded_and_replayed(model, settings, tmp_path):
    graph, _ = partly_labelled()
    result = fit(graph, model, QUICK, folds=3, **settings)
    result.save(tmp_path / "r.npz")
    loaded = load(tmp_path / "r.npz")
    replayed = loaded.predict_proba(result.graph)
    np.testing.assert_allclose(replayed, result.probabilities, atol=1e-6)


def test_a_label_is_judged_by_nets_that_never_saw_it():
    graph, _ = partly_labelled()
    graph = graph.with_split(train=graph.known)
    team = make_team(graph, hopf_jax.MODELS["gcn"], Config(folds=4, members=2), 0)
    assert len(team.members) == 8
    first, again = (team.folds[i].validation for i in (0, 4))
    assert first.sum() == again.sum() and (first != again).any()  # Divided anew.
    seen = np.zeros(200, int)
    for member in team.members:
        assert not (member.graph.train & member.graph.validation).any()
        np.testing.assert_array_equal(
            member.graph.train | member.graph.validation, graph.train
        )
        seen += member.graph.validation
    np.testing.assert_array_equal(seen, 2 * graph.train)


def test_nets_of_a_pool_are_stopped_together():
    graph, _ = partly_labelled()
    config = dataclasses.replace(QUICK, max_epochs=200, patience=3)
    history = fit(graph, "gcn", config, folds=4).history
    by_epoch = {}
    for record in history:
        by_epoch.setdefault(record["epoch"], []).append(record)
    assert {len(records) for records in by_epoch.values()} == {4}
    assert len(by_epoch) < 200
    for records in by_epoch.values():
        assert len({record["learning_rate"] for record in records}) == 1
        assert len({record["validation_loss"] for record in records}) == 4


def test_other_labels_of_a_fold_do_not_change_what_judges_it(monkeypatch):
    """A net learns nothing from the labels of the part that it is judged by.

    They choose the weights that are kept, so later iterations may differ.
    """
    graph, _ = partly_labelled()
    graph = graph.with_split(train=graph.known)
    config = dataclasses.replace(QUICK, folds=2, training_summaries="as-printed")
    team = make_team(graph, hopf_jax.MODELS["i-nip-mean"], config, 0)
    part = team.folds[0].validation
    parts = np.where(graph.train, np.where(part, 0, 1), -1)
    monkeypatch.setattr(teams, "stratified_folds", lambda *drawn: parts)
    labels = graph.labels.copy()
    labels[part] = np.roll(labels[part], 1, axis=1)
    first = [
        [
            record["train_loss"]
            for record in fit(each, "i-nip-mean", config).history
            if record["member"] == 0 and record["epoch"] <= 5
        ]
        for each in (graph, dataclasses.replace(graph, labels=labels))
    ]
    assert first[0][:5] == first[1][:5] and len(first[0]) == 10


@pytest.mark.parametrize(
    ("train", "validation", "test", "folds", "pool", "wanted"),
    [
        (None, None, None, None, False, (40, 0, 0, 5)),
        (None, None, range(10), None, False, (30, 0, 10, 5)),
        (range(20), None, None, None, False, (20, 0, 0, 5)),
        (range(20), range(20, 30), None, None, False, (20, 10, 0, 0)),
        (range(20), range(20, 30), None, None, True, (30, 0, 0, 5)),
        (None, range(10), None, None, False, (30, 10, 0, 0)),
        (None, None, None, 0, False, (32, 8, 0, 0)),
        (range(3), None, None, None, False, (3, 0, 0, 3)),
    ],
)
def test_what_is_learned_from(train, validation, test, folds, pool, wanted):
    graph, _ = partly_labelled()
    sets = [None if s is None else list(s) for s in (train, validation, test)]
    found, count, _ = complete_split(graph.with_split(*sets), folds, 0, pool=pool)
    sizes = (found.train.sum(), found.validation.sum(), found.test.sum())
    assert (*sizes, count) == wanted


def test_a_model_is_chosen_on_held_out_labels(tmp_path):
    graph, _ = partly_labelled()
    result = fit(graph, config=QUICK, num_iterations=Config.num_iterations)
    names = [record["model"] for record in result.choice]
    solved = {LINEAR_MODEL, VOTING_MODEL}  # The third is for several labels per node.
    assert sorted(names) == sorted([*(name for name, _ in CANDIDATES), *solved])
    scores = [record["score"] for record in result.choice]
    assert scores[1:] == sorted(scores[1:], reverse=True)
    # Of scores that 40 labels cannot tell apart, the least loss is chosen.
    assert scores[0] > max(scores) - 0.1
    near = [r["loss"] for r in result.choice if r["score"] >= scores[0]]
    assert result.choice[0]["loss"] == min(near)
    assert result.kernel == hopf_jax.MODELS[names[0]]
    assert names[0] in result.describe()
    result.save(tmp_path / "r.npz")
    assert [r["model"] for r in load(tmp_path / "r.npz").choice] == names


def test_without_edges_the_node_alone_is_read():
    graph, _ = partly_labelled()
    alone = Graph.from_edges([], [], graph.features, graph.labels.argmax(axis=1))
    result = fit(alone, config=QUICK, num_iterations=Config.num_iterations)
    assert {r["model"] for r in result.choice} == {"bl-node", "sgc"}
    if result.kernel == hopf_jax.MODELS["sgc"]:
        assert result.config.num_hops == 0


def test_settings_are_keywords():
    graph = graphs.tiny()
    result = fit(graph, "gcn", QUICK, hidden_size=3)
    assert result.config.hidden_size == 3 and result.config.max_epochs == 30
    with pytest.raises(ValueError, match=r"'num_hop'\. Did you mean 'num_hops'"):
        fit(graph, "gcn", num_hop=3)


def test_directed_graphs_are_read_in_both_directions_unless_asked():
    graph = graphs.tiny("directed")
    assert graph.directed
    other = graph.undirected()
    both = [fit(each, "gcn", QUICK).probabilities for each in (graph, other)]
    np.testing.assert_array_equal(*both)
    given = fit(graph, "gcn", QUICK, directions="given").probabilities
    assert not np.array_equal(both[0], given)
    np.testing.assert_array_equal(
        other.adjacency.toarray(), other.adjacency.toarray().T
    )

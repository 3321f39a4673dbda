"""The linear model that is solved: its weights are those of a kernel."""

import dataclasses

import numpy as np
import pytest

import hopf_jax
from hopf_jax import Config, fit
from hopf_jax.baselines import fit_logistic, smoothing_matrix
from hopf_jax.fitting import sizes_of
from hopf_jax.inference import WholeGraph, predict_logits
from hopf_jax.learning import can_solve, make_team, solve
from hopf_jax.results import make_net
from tests import graphs

KERNEL = hopf_jax.MODELS["sgc"]


def solved(graph):
    team = make_team(graph, KERNEL, Config(folds=2), 0)
    return team, solve(team.graph, team.members)


@pytest.mark.parametrize("kind", [{}, {"multilabel": True}, {"sparse": True}])
def test_the_kernel_predicts_what_the_regression_does(kind):
    graph = graphs.tiny(**kind)
    _, solution = solved(graph)
    config = Config(num_hops=solution.num_hops)
    net = make_net(KERNEL, config, sizes_of(graph, KERNEL, config))
    rows = graph.features
    rows = rows.toarray() if hasattr(rows, "toarray") else rows
    for _ in range(solution.num_hops):
        rows = smoothing_matrix(graph, loops=True) @ rows
    for params in solution.params:
        logits, _ = predict_logits(net, params, WholeGraph(graph, 1000), None, False)
        expected = rows @ params["w_output"] + params["b_output"]
        np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_the_best_strength_is_one_of_scikit_learn():
    graph = graphs.tiny()
    team, solution = solved(graph)
    rows = graph.features
    for _ in range(solution.num_hops):
        rows = np.asarray(smoothing_matrix(graph, loops=True) @ rows, np.float32)
    nodes = team.members[0].graph.train
    found = []
    for strength in (0.1, 1.0, 10.0, 100.0):
        ((_, model),) = fit_logistic(graph, rows, strength, nodes)
        found.append(np.abs(model.coef_.T - solution.params[0]["w_output"]).max())
    assert min(found) < 1e-4


def test_labels_that_are_not_learned_from_are_not_predicted():
    graph = graphs.tiny()
    nodes = graph.train & (graph.labels[:, 0] == 0)
    member = make_team(graph.with_split(nodes, graph.validation), KERNEL, Config(), 0)
    params = solve(member.graph, member.members).params[0]
    assert params["b_output"][0] == -20 and not params["w_output"][:, 0].any()


def test_large_graphs_are_not_solved():
    graph = graphs.tiny()
    assert can_solve(graph)
    wide = np.broadcast_to(np.float32(1), (graph.num_nodes, 10**7))
    assert not can_solve(dataclasses.replace(graph, features=wide))


def test_fit_tries_it_and_the_result_is_like_any_other(tmp_path):
    # Noisy features, alike neighbours and few labels: smoothing is what helps.
    graph = hopf_jax.datasets.make_planted(300, 1500, noise=3.0)
    known = np.arange(300) < 24
    labels = np.where(known, graph.labels.argmax(axis=1), -1)
    given = hopf_jax.Graph.from_scipy(graph.adjacency, graph.features, labels)
    quick = Config(hidden_size=4, max_epochs=3, min_epochs=1, num_iterations=1)
    result = fit(given, config=quick)
    assert {each["model"] for each in result.choice} >= {"sgc", "gcn", "bl-node"}
    assert result.choice[0]["model"] == "sgc"
    assert result.history[0]["train_micro_f1"] > 0.5
    result.save(tmp_path / "r.npz")
    again = hopf_jax.load(tmp_path / "r.npz").predict_proba(result.graph)
    np.testing.assert_allclose(again, result.probabilities, atol=1e-6)
    assert str(result.report()) and result.plot() is not None


@pytest.mark.parametrize("settings", [{"num_hops": 3}, {"bias": False}])
def test_settings_that_it_cannot_have_leave_it_out(settings):
    graph = graphs.tiny()
    quick = Config(hidden_size=4, max_epochs=2, min_epochs=1, num_iterations=1)
    result = fit(graph, config=dataclasses.replace(quick, folds=2, **settings))
    assert "sgc" not in {each["model"] for each in result.choice}

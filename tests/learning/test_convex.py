"""The linear models that are solved: their weights are those of kernels."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp

import hopf_jax
from hopf_jax import Config, fit
from hopf_jax.baselines import mean_matrix, smoothing_matrix
from hopf_jax.datasets import make_planted
from hopf_jax.fitting import sizes_of
from hopf_jax.inference import WholeGraph, predict_logits
from hopf_jax.learning import can_solve, can_vote, likely_best, make_team, solve
from hopf_jax.learning.convex import average
from hopf_jax.learning.votes import sample_edges, vote
from hopf_jax.results import make_net
from tests import graphs

KERNEL = hopf_jax.MODELS["sgc"]


def solved(graph, num_iterations=0):
    team = make_team(graph, KERNEL, Config(folds=2), 0)
    return team, solve(team.graph, team.members, num_iterations)


def smoothed(graph, num_hops):
    rows = graph.features
    rows = rows.toarray() if sp.issparse(rows) else rows
    for _ in range(num_hops):
        rows = np.asarray(smoothing_matrix(graph, loops=True) @ rows, np.float32)
    return rows


def cyclic(num_nodes=600, num_labels=3, degree=10):
    """A graph whose neighbours are of the next class or the one before."""
    rng = np.random.default_rng(0)
    classes = np.arange(num_nodes) % num_labels
    senders = rng.integers(0, num_nodes, num_nodes * degree // 2)
    towards = (classes[senders] + rng.choice([1, -1], senders.size)) % num_labels
    receivers = rng.integers(0, num_nodes // num_labels, senders.size) * num_labels
    features = rng.normal(size=(num_nodes, 4)).astype(np.float32)
    features[:, 0] += classes - 1
    known = np.where(np.arange(num_nodes) < 40, classes, -1)
    made = hopf_jax.Graph.from_edges(senders, receivers + towards, features, known)
    return made, classes


@pytest.mark.parametrize("kind", [{}, {"multilabel": True}, {"sparse": True}])
def test_the_kernel_predicts_what_the_regression_does(kind):
    graph = graphs.tiny(**kind)
    solution = solved(graph)[1]["sgc"]
    config = Config(num_hops=solution.num_hops)
    net = make_net(KERNEL, config, sizes_of(graph, KERNEL, config))
    rows = smoothed(graph, solution.num_hops)
    (members,) = solution.params
    for params in members:
        logits, _ = predict_logits(net, params, WholeGraph(graph, 1000), None, False)
        expected = rows @ params["w_output"] + params["b_output"]
        np.testing.assert_allclose(logits, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("plain", "i-sgc"), ("weighted", "i-sgc"), ("plain", "i-sgc-mean")],
)
def test_the_kernel_with_votes_adds_the_labels_of_neighbours(kind, name):
    graph = graphs.tiny(kind, multilabel=name == "i-sgc-mean")
    solution = solved(graph, 4)[1][name]
    kernel = hopf_jax.MODELS[name]
    config = Config(num_hops=solution.num_hops)
    net = make_net(kernel, config, sizes_of(graph, kernel, config))
    rows = smoothed(graph, solution.num_hops)
    read = mean_matrix if name == "i-sgc-mean" else lambda graph: graph.adjacency
    summary = graphs.random_summary(graph)
    assert len(solution.params) == 4
    if kernel.reads_out == "ends" and solution.num_hops:
        rows = np.concatenate([smoothed(graph, 0), rows], axis=1)
    assert not solution.params[0][0]["w_output"][rows.shape[1] :].any()
    for params in solution.params[-1]:
        own, votes = np.split(params["w_output"], [rows.shape[1]])
        expected = rows @ own + read(graph) @ summary @ votes + params["b_output"]
        for chunk_edges in (1000, 5):  # As one program, and in chunks.
            whole = WholeGraph(graph, chunk_edges)
            logits, _ = predict_logits(net, params, whole, summary, False)
            np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_mean_labels_of_neighbours_are_learned_from_where_nodes_have_several():
    graph = make_planted(400, 2000, noise=0.9)
    both = np.hstack([graph.labels, graph.labels[:, :1] | graph.labels[:, 1:2]])
    known = np.arange(400) < 80
    graph = hopf_jax.Graph.from_scipy(
        graph.adjacency, np.zeros((400, 1), np.float32) + graph.features[:, :1], both
    ).with_split(known, test=~known)
    found = solved(graph, 3)[1]
    assert found["i-sgc-mean"].loss < found["sgc"].loss


def test_an_average_predicts_better_than_what_it_is_of():
    """Candidates that err on different nodes make up for each other."""
    rng = np.random.default_rng(0)
    true = np.eye(3)[rng.integers(0, 3, 300)]
    said = [rng.dirichlet(np.ones(3), 300) + 0.7 * true for _ in range(4)]
    said = [each / each.sum(axis=1, keepdims=True) for each in said]
    shares = average([*said, rng.dirichlet(np.ones(3), 300)], true)
    assert shares.sum() == pytest.approx(1)
    assert shares[:4].min() > 0 and shares[4] == 0


def test_the_votes_of_few_labels_are_an_average():
    graph, _ = cyclic()
    _, solutions = solved(graph.with_split(graph.known), 10)
    losses = [r["validation_loss"] for r in solutions["i-sgc"].records[-1]]
    assert solutions["i-sgc"].loss == pytest.approx(np.mean(losses), rel=0.05)
    assert solutions["i-sgc"].loss < solutions["sgc"].loss


def test_labels_that_are_not_learned_from_are_not_predicted():
    graph = graphs.tiny()
    nodes = graph.train & (graph.labels[:, 0] == 0)
    member = make_team(graph.with_split(nodes, graph.validation), KERNEL, Config(), 0)
    params = solve(member.graph, member.members)["sgc"].params[0][0]
    assert params["b_output"][0] == -20 and not params["w_output"][:, 0].any()


def test_large_graphs_are_not_solved():
    graph = graphs.tiny()
    assert can_solve(graph) and can_vote(graph)
    wide = np.broadcast_to(np.float32(1), (graph.num_nodes, 10**8))
    assert not can_solve(dataclasses.replace(graph, features=wide))


def test_votes_spread_few_labels_without_features():
    graph = make_planted(400, 2000)
    classes = graph.labels.argmax(axis=1)
    few = graph.with_split(np.arange(20))
    logits = np.zeros(graph.labels.shape, np.float32)
    found = vote(few, sample_edges(few), logits, 1.0, 10)
    votes = found.votes[-1]
    np.testing.assert_allclose(votes, votes.T, atol=1e-5)
    assert np.diag(votes).min() > 0 > votes[~np.eye(len(votes), dtype=bool)].max()
    right = [(each.argmax(1) == classes)[20:].mean() for each in found.probabilities]
    assert right[0] < 0.4 and right[-1] > 0.6


def test_votes_grow_sharp_as_labels_become_sure():
    """The last ones, read from the start, drive a sparse graph to one label."""
    graph = make_planted(1000, 2500)
    few = graph.with_split(np.arange(20))
    logits = np.zeros(graph.labels.shape, np.float32)
    found = vote(few, sample_edges(few), logits, 1.0, 10)
    sizes = [np.abs(each).mean() for each in found.votes]
    assert sizes == sorted(sizes) and sizes[0] == 0
    right = found.probabilities[-1].argmax(1) == graph.labels.argmax(1)
    assert right[20:].mean() > 0.7


def test_a_scale_makes_votes_weaker_and_weights_of_edges_do_not_matter():
    graph, _ = cyclic()
    graph = graph.with_split(graph.known)
    logits = np.zeros((graph.num_nodes, 3), np.float32)
    whole = vote(graph, sample_edges(graph), logits, 1.0, 2).votes[1]
    third = vote(graph, sample_edges(graph), logits, 1 / 3, 2).votes[1]
    assert np.abs(third).max() < np.abs(whole).max()
    # Of equal weights it is only their ratio to the mean that counts.
    heavy = dataclasses.replace(graph, weights=np.full(graph.num_edges, 7, np.float32))
    same = vote(heavy, sample_edges(heavy), logits, 1.0, 2).votes[1]
    np.testing.assert_allclose(7 * same, whole, rtol=1e-4)


def test_features_can_tell_what_neighbours_are_like():
    """With few labels, no edge may link two of them."""
    graph, classes = cyclic()
    few = graph.with_split(np.flatnonzero(graph.known)[:6])
    logits = np.stack([-((graph.features[:, 0] - c) ** 2) for c in (-1, 0, 1)], axis=1)
    found = vote(few, sample_edges(few), logits, 1.0, 10, alike=False)
    votes = found.votes[-1]
    assert (found.probabilities[-1].argmax(1) == classes).mean() > 0.9
    # A neighbour of one's own label speaks against it.
    assert np.diag(votes).max() < 0 < votes[~np.eye(3, dtype=bool)].min()


def test_the_likely_best_has_the_least_loss_of_near_scores():
    evidence = [(0.8, 0.9), (0.78, 0.6), (0.5, 0.4)]
    assert likely_best(evidence, 50) == 1
    assert likely_best(evidence, 50_000) == 0
    assert likely_best([(1.0, 0.2), (1.0, 0.1)], 3) == 1


QUICK = Config(hidden_size=4, max_epochs=3, min_epochs=1)


def test_fit_tries_them_and_the_result_is_like_any_other(tmp_path):
    graph, classes = cyclic()
    result = fit(graph, config=QUICK)
    names = [each["model"] for each in result.choice]
    assert set(names) >= {"i-sgc", "sgc", "gcn", "bl-node"} and names[0] == "i-sgc"
    assert result.config.num_iterations == len(result.iterations) == 10
    assert result.config.members == 5  # As labels are few.
    right = (result.predict() == classes)[~graph.known]
    assert right.mean() > 0.8
    assert len(result.history) == 10 * 5 * 5
    result.save(tmp_path / "r.npz")
    again = hopf_jax.load(tmp_path / "r.npz").predict_proba(result.graph)
    np.testing.assert_allclose(again, result.probabilities, atol=1e-6)
    assert str(result.report()) and result.plot() is not None
    assert result.explain(50).shares["labels"] > 0


@pytest.mark.parametrize(
    "settings", [{"num_hops": 3}, {"bias": False}, {"num_iterations": 2}]
)
def test_settings_that_they_cannot_have_leave_them_out(settings):
    result = fit(graphs.tiny(), config=dataclasses.replace(QUICK, folds=2, **settings))
    assert not {"sgc", "i-sgc"} & {each["model"] for each in result.choice}

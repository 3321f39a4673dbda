"""Loss, step and stopping rule against their formulas."""

import jax
import numpy as np
import pytest

from hopf_jax import Config, Execution
from hopf_jax.batching.loader import Loader, LoaderSettings
from hopf_jax.kernels import threefry
from hopf_jax.learning.epoch import Program, run_epoch
from hopf_jax.learning.loss import (
    Inputs,
    Objective,
    batch_loss,
    cross_entropy,
    label_weights,
    predicted_labels,
    zero_totals,
)
from hopf_jax.learning.plan import make_plan
from hopf_jax.learning.population import Member, Population
from hopf_jax.learning.run_state import State
from hopf_jax.learning.stopping import Patience
from hopf_jax.learning.training import learn
from tests import graphs, oracle

# Weights of the labels


def test_weights_are_the_papers_formula():
    labels = np.array([[1, 0, 0]] * 6 + [[0, 1, 0]] * 3 + [[0, 0, 1]])
    np.testing.assert_allclose(label_weights(labels), [10 / 18, 10 / 9, 10 / 3])
    both = np.array([[1, 1], [1, 0], [1, 0]])
    np.testing.assert_allclose(label_weights(both), [4 / 6, 4 / 2])


def test_a_label_without_a_sample_weighs_nothing():
    labels = np.array([[1, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(label_weights(labels), [2 / 3, 0, 2 / 3], rtol=1e-6)


def test_weights_can_be_left_out():
    labels = np.array([[1, 0], [1, 0]])
    np.testing.assert_array_equal(label_weights(labels, weighted=False), [1, 1])


# Loss


@pytest.mark.parametrize("multilabel", [False, True])
def test_cross_entropy(multilabel):
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(6, 4)).astype(np.float32)
    labels = np.eye(4, dtype=np.float32)[rng.integers(0, 4, 6)]
    if multilabel:
        labels = rng.integers(0, 2, (6, 4)).astype(np.float32)
    omega = np.array([0, 0.5, 1, 3], np.float32)
    got = cross_entropy(logits, labels, omega, multilabel)
    want = oracle.cross_entropy(logits.astype(np.float64), labels, omega, multilabel)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_cross_entropy_of_certain_mistakes_is_finite():
    logits = np.array([[1e4, -1e4]], np.float32)
    labels = np.array([[0, 1]], np.float32)
    for multilabel in (False, True):
        loss = cross_entropy(logits, labels, np.ones(2, np.float32), multilabel)
        assert np.isfinite(loss).all()


@pytest.mark.parametrize("multilabel", [False, True])
def test_loss_of_a_batch(multilabel):
    graph = graphs.tiny("all", multilabel=multilabel)
    net, params = graphs.net_of("nip-mean")
    roots = np.arange(5)
    omega = np.array([0.5, 1, 2], np.float32)
    x = graphs.dense_features(graph)
    logits = oracle.forward(net.kernel, params, graph, x, None, 2)[0][roots]
    labels = graph.labels[roots]
    each = oracle.cross_entropy(logits, labels, omega, multilabel)
    squares = sum((np.asarray(w, np.float64) ** 2).sum() for w in params.values())
    guess = logits > 0
    if not multilabel:
        guess = np.eye(3, dtype=bool)[logits.argmax(axis=1)]
    for layout in (graphs.SMALL, graphs.LARGE):  # Padded roots count for nothing.
        batch = graphs.batch_of(graph, roots, net.kernel, layout=layout)
        objective = Objective(multilabel, l2=0.3, clip=5.0)
        inputs = Inputs(None, None, omega)
        loss, totals = batch_loss(
            net, objective, params, jax.device_put(batch), inputs, None
        )
        np.testing.assert_allclose(loss, each.mean() + 0.15 * squares, rtol=1e-5)
        np.testing.assert_allclose(totals.loss, each.sum(), rtol=1e-5)
        assert totals.roots == 5
        truth = labels > 0
        np.testing.assert_array_equal(totals.outcomes[0], (guess & truth).sum(axis=0))
        np.testing.assert_array_equal(totals.outcomes[1], (guess & ~truth).sum(axis=0))
        np.testing.assert_array_equal(totals.outcomes[2], (~guess & truth).sum(axis=0))


def test_l2_leaves_biases_alone():
    graph = graphs.tiny()
    net, params = graphs.net_of("nip-mean", bias=True)
    batch = jax.device_put(graphs.batch_of(graph, np.arange(5), net.kernel))
    inputs = Inputs(None, None, np.ones(3, np.float32))
    with_l2, without = (
        batch_loss(net, Objective(False, l2, 5.0), params, batch, inputs, None)[0]
        for l2 in (2.0, 0.0)
    )
    squares = sum((w**2).sum() for k, w in params.items() if k.startswith("w_"))
    np.testing.assert_allclose(with_l2 - without, squares, rtol=1e-4)


def test_predicted_labels():
    logits = np.array([[0.5, -1, 2], [-3, -1, -2]], np.float32)
    true = np.zeros((2, 3), bool)
    one, many = (Objective(several, 0.0, 5.0) for several in (False, True))
    np.testing.assert_array_equal(
        predicted_labels(logits, true, one), [[0, 0, 1], [0, 1, 0]]
    )
    np.testing.assert_array_equal(
        predicted_labels(logits, true, many), [[1, 0, 1], [0, 0, 0]]
    )


# A step


def loaders_of(graph, net, batch_size=100, memory_budget=10**9):
    reach = net.kernel.reach(net.sizes.num_hops)
    how = LoaderSettings(reach, batch_size, memory_budget=memory_budget)
    return tuple(
        Loader(graph, np.flatnonzero(mask), how, 0)
        for mask in (graph.train, graph.validation)
    )


@pytest.mark.parametrize("clip", [5.0, 1e-3])
def test_a_step_is_adams_on_clipped_gradients(clip):
    graph = graphs.tiny("weighted")
    net, params = graphs.net_of("nip-mean")
    objective = Objective(False, l2=0.1, clip=clip)
    loaders = loaders_of(graph, net)
    inputs = Inputs(jax.device_put(graph.features), None, np.ones(3, np.float32))
    state = State(params, objective.optimizer.init(params))
    key, rate = threefry.new_key(0), np.float32(0.01)
    after, totals, held = run_epoch(
        Program(net, objective), loaders, state, inputs, key, 1, rate, zero_totals(3)
    )
    assert totals.roots == 8
    assert held.roots == 5
    batch = jax.device_put(graphs.batch_of(graph, np.arange(8), net.kernel))
    grads = jax.grad(batch_loss, argnums=2, has_aux=True)(
        net, objective, params, batch, inputs, None
    )[0]
    for name, w in params.items():
        g = np.clip(np.asarray(grads[name], np.float64), -clip, clip)
        # The first step of Adam: both averages are corrected to g and g^2.
        want = np.asarray(w) - 0.01 * g / (np.abs(g) + 1e-8)
        sure = np.abs(g) > 1e-5
        np.testing.assert_allclose(
            np.asarray(after.params[name])[sure], want[sure], rtol=1e-4, atol=1e-5
        )


def test_totals_become_scores():
    totals = zero_totals(2)._replace(
        loss=np.float32(6),
        roots=np.float32(3),
        outcomes=np.array([[2, 0], [1, 0], [0, 1]]),
    )
    scores = totals.scores()
    assert scores["loss"] == 2
    np.testing.assert_allclose(scores["micro_f1"], 4 / 6)
    np.testing.assert_allclose(scores["macro_f1"], (4 / 5 + 0) / 2)


def test_divergence_is_told():
    graph = graphs.tiny()
    net, params = graphs.net_of("nip-mean")
    bad = params | {"w_output": np.full_like(params["w_output"], np.inf)}
    config, objective = Config(max_epochs=3), Objective(False, l2=0.0, clip=5.0)
    plan = make_plan(graph, net.kernel, config, Execution())
    whole = plan.whole_graph(graph)
    members = [Member(graph, 0)]
    population = Population(net, objective, members, plan, whole, config)
    with pytest.raises(ValueError, match="diverged at epoch 1"):
        inputs = population.inputs([None], 1)
        learn(population, [bad], inputs, config, [threefry.new_key(0)])


# The stopping rule


STUCK = {"loss": 1.0, "micro_f1": 0.5, "macro_f1": 0.5}  # On training nodes.


def play(rule, losses, first=1):
    """What the rule says of each loss, until it stops."""
    said = []
    for epoch, loss in enumerate(losses, start=first):
        scores = {"loss": loss, "micro_f1": 0, "macro_f1": 0}
        said.append(rule.update(epoch, STUCK, scores))
        if rule.stopped:
            break
    return said


def test_nothing_is_kept_before_the_least_epochs():
    rule = Patience(0.1, patience=2, min_epochs=4)
    assert play(rule, [5, 1, 1]) == ["wait"] * 3
    assert play(rule, [9], first=4) == ["keep"]  # Though there were better before.
    assert (rule.kept_loss, rule.kept_epoch) == (9, 4)


def test_patience_annealing_step_by_step():
    rule = Patience(0.1, patience=4, min_epochs=0)
    assert play(rule, [5, 4, 4.5, 3]) == ["keep", "keep", "wait", "keep"]
    # Four epochs without a better loss: half the rate, half the patience, go back.
    assert play(rule, [3, 3.1, 9, 3], 5) == ["wait"] * 3 + ["restore"]
    assert (rule.learning_rate, rule.patience) == (0.05, 2)
    assert not rule.stopped
    # A better loss within the window: all is forgiven.
    assert play(rule, [4, 2], 9) == ["wait", "keep"]
    assert play(rule, [4, 4], 11) == ["wait", "restore"]
    assert (rule.learning_rate, rule.patience) == (0.025, 1)
    assert not rule.stopped
    # The second time in a row it is over.
    assert play(rule, [4, 1], 13) == ["restore"]
    assert rule.stopped
    assert (rule.kept_loss, rule.kept_epoch) == (2, 10)


def test_f1_chooses_the_weights_and_either_buys_patience():
    rule = Patience(0.1, patience=2, min_epochs=0)
    seen = [(3, 0.1), (2, 0.1), (4, 0.2), (1, 0.1), (4, 0.1), (3, 0.2)]
    said = [
        rule.update(epoch, STUCK, {"loss": loss, "micro_f1": f1, "macro_f1": f1})
        for epoch, (loss, f1) in enumerate(seen, start=1)
    ]
    # Kept: the better F1, or as good a one with less loss. Epoch 4 has the least loss
    # of all: not kept, but waited for. Epoch 6 is kept, though patience is out.
    assert said == ["keep", "keep", "keep", "wait", "wait", "keep"]
    assert (rule.kept_epoch, rule.kept_loss) == (6, 3)
    assert (rule.learning_rate, rule.patience, rule.lost) == (0.05, 1, 1)


def epochs_until_stopped(losses, f1=0.5):
    """Epochs until the rule gives up, validation nodes showing nothing."""
    rule = Patience(0.1, patience=4, min_epochs=0)
    for epoch, loss in enumerate(losses, start=1):
        train = {"loss": loss, "micro_f1": f1, "macro_f1": f1}
        rule.update(epoch, train, STUCK)
        if rule.stopped:
            return epoch
    return None


def test_a_falling_training_loss_buys_patience_on_a_plateau():
    falling = 0.99 ** np.arange(100)
    stuck = epochs_until_stopped(np.ones(100))
    assert stuck == 7  # The first counts as progress; then 4 and 2 epochs.
    assert epochs_until_stopped(falling) is None
    assert epochs_until_stopped(falling, f1=0.96) == stuck  # It has learned them.
    assert epochs_until_stopped(0.9999 ** np.arange(100)) == stuck  # Too slow.
    # Noise around a loss that does not fall is not progress for long.
    noisy = 1 + 0.1 * np.random.default_rng(0).standard_normal(1000)
    assert epochs_until_stopped(noisy) < 100


def test_patience_is_never_less_than_an_epoch():
    rule = Patience(0.1, patience=1, min_epochs=0)
    assert (
        play(rule, [1, 2, 0.5, 3, 4]) == ["keep", "restore", "keep"] + ["restore"] * 2
    )
    assert rule.patience == 1


def test_the_rule_of_a_pool_ignores_f1():
    rule = Patience(0.1, patience=2, min_epochs=0, by_loss=True)
    seen = [(3, 0.1), (2, 0.1), (4, 0.9), (1, 0.1)]
    said = [
        rule.update(epoch, STUCK, {"loss": loss, "micro_f1": f1, "macro_f1": f1})
        for epoch, (loss, f1) in enumerate(seen, start=1)
    ]
    assert said == ["keep", "keep", "wait", "keep"]

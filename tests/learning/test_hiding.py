"""Masked summaries: hidden training nodes read nothing of their own labels."""

import dataclasses

import jax
import numpy as np
import pytest

from hopf_jax import Config, Execution, fit
from hopf_jax.learning.loss import Hiding, Inputs, Objective, batch_loss
from tests import graphs

CONFIG = Config(
    hidden_size=5,
    num_iterations=3,
    batch_size=3,
    max_epochs=4,
    min_epochs=1,
    training_summaries="masked",
)


def hiding_of(graph, share, key=0):
    threshold = np.uint32(share * (2**32 - 1))
    hiding = Hiding(graph.train, np.flatnonzero(graph.train), threshold)
    return hiding.draw(jax.random.key(key))


def test_only_training_nodes_are_hidden_at_about_the_share():
    graph = graphs.tiny()
    drawn = [hiding_of(graph, 0.3, key).hides(np.arange(18)) for key in range(400)]
    share = np.mean(drawn, axis=0)
    np.testing.assert_array_equal(share[~graph.train], 0)
    np.testing.assert_allclose(share[graph.train], 0.3, atol=0.1)
    assert all(each.any() for each in drawn)
    everyone = hiding_of(graph, 1.0).hides(np.arange(18))
    np.testing.assert_array_equal(everyone, graph.train)


def test_one_node_at_least_is_hidden():
    graph = graphs.tiny()
    for key in range(20):
        assert hiding_of(graph, 1e-9, key).hides(np.arange(18)).sum() == 1


@pytest.mark.parametrize("model", ["i-nip-mean", "ss-ica"])
def test_the_loss_is_on_hidden_roots_and_reads_none_of_their_labels(model):
    graph = graphs.tiny()
    net, params = graphs.net_of(model)
    roots = np.arange(8)
    batch = graphs.batch_of(graph, roots, net.kernel)
    hiding = hiding_of(graph, 0.5, key=3)
    hidden = np.asarray(hiding.hides(np.arange(18)))
    assert 0 < hidden[roots].sum() < 8
    summary = graphs.random_summary(graph)
    objective = Objective(False, l2=0.0, clip=5.0)

    def loss_of(summary, hiding):
        inputs = Inputs(None, summary, np.ones(3, np.float32), hiding=hiding)
        return batch_loss(net, objective, params, batch, inputs, None)

    loss, totals = loss_of(summary, hiding)
    assert totals.roots == hidden[roots].sum()
    changed = summary + hidden[:, None]  # What the hidden nodes would have said.
    np.testing.assert_array_equal(loss_of(changed, hiding)[0], loss)
    assert loss_of(changed, None)[0] != loss_of(summary, None)[0]
    # The same as by hand: zeros for the hidden, and a mask on the roots.
    zeroed = np.where(hidden[:, None], 0, summary)
    masked = batch._replace(mask=batch.mask * hidden[batch.graph.nodes["id"]][:8])
    inputs = Inputs(None, zeroed, np.ones(3, np.float32))
    want = batch_loss(net, objective, params, masked, inputs, None)
    np.testing.assert_allclose(loss, want[0], rtol=1e-6)


def test_the_first_iteration_learns_from_all_roots():
    graph = graphs.tiny()
    masked = fit(graph, config=CONFIG)
    printed = dataclasses.replace(CONFIG, training_summaries="as-printed")
    found, want = (
        [r["train_loss"] for r in result.history if r["iteration"] == 1]
        for result in (masked, fit(graph, config=printed))
    )
    np.testing.assert_allclose(found, want, rtol=1e-5)
    later = [r["train_loss"] for r in masked.history if r["iteration"] == 2]
    assert later != [r["train_loss"] for r in fit(graph, config=printed).history][4:8]


@pytest.mark.parametrize("model", ["i-nip-mean", "ss-ica"])
@pytest.mark.parametrize("multilabel", [False, True])
def test_a_precomputed_first_hop_hides_the_same_labels(model, multilabel):
    graph = graphs.tiny("weighted", multilabel=multilabel)
    config = dataclasses.replace(CONFIG, dropout=0.0)
    other = dataclasses.replace(config, precompute=False)
    one, two = fit(graph, model, config), fit(graph, model, other)
    for a, b in zip(one.history, two.history, strict=True):
        assert a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-3)
        assert a["validation_loss"] == pytest.approx(b["validation_loss"], rel=1e-3)


def test_streamed_batches_hide_the_same_labels_to_the_bit():
    graph = graphs.tiny(sparse=True)
    resident = fit(graph, config=CONFIG)
    streamed = fit(graph, config=CONFIG, execution=Execution(memory_budget=0))
    np.testing.assert_array_equal(resident.probabilities, streamed.probabilities)


def test_it_works_with_sampled_neighbours_and_hidden_states():
    graph = graphs.tiny()
    for change in ({"fanouts": (3, 2)}, {"summary": "hidden"}):
        config = dataclasses.replace(CONFIG, **change)
        result = fit(graph, config=config)
        np.testing.assert_allclose(
            result.predict_proba(graph), result.probabilities, atol=1e-6
        )
        assert len(result.iterations) == 3

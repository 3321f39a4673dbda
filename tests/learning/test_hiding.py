"""Masked summaries: hidden training nodes read nothing of their own labels."""

import dataclasses

import numpy as np
import pytest

from hopf_jax import MODELS, Config, Execution, fit
from hopf_jax.learning.loss import Hiding, Inputs, Objective, batch_loss
from hopf_jax.learning.plan import make_plan
from tests import graphs

CONFIG = Config(
    hidden_size=5,
    num_iterations=3,
    batch_size=3,
    max_epochs=4,
    min_epochs=1,
    training_summaries="masked",
)


WORDS = np.random.default_rng(0).integers(2**32, size=(400, 2), dtype=np.uint32)


def hidden_in(graph, batch, share, num_batches, words):
    """Which of all nodes are hidden in a step on a batch that reaches them all."""
    hiding = Hiding.at_rate(graph.train, share, num_batches)
    hidden = np.zeros(graph.num_nodes, bool)
    real = np.asarray(batch.graph.n_node[0])
    ids = np.asarray(batch.graph.nodes["id"])[:real]
    hidden[ids] = np.asarray(hiding.hides(batch, words))[:real]
    return hidden


@pytest.mark.parametrize(
    ("share", "roots", "others"), [(0.25, 1, 0), (0.6, 1, 0.4667), (1, 1, 1)]
)
def test_the_roots_are_hidden_and_a_share_of_the_other_training_nodes(
    share, roots, others
):
    graph = graphs.tiny()
    kernel = graphs.net_of("i-nip-mean")[0].kernel
    batch = graphs.batch_of(graph, [0, 5], kernel)  # Of four batches of two roots.
    reached = np.isin(np.arange(18), batch.graph.nodes["id"])
    drawn = [hidden_in(graph, batch, share, 4, words) for words in WORDS]
    found = np.mean(drawn, axis=0)
    assert not found[~graph.train].any()
    np.testing.assert_allclose(found[[0, 5]], roots)
    rest = graph.train & reached
    rest[[0, 5]] = False
    assert rest.sum() > 2
    np.testing.assert_allclose(found[rest], others, atol=0.1)


def test_of_a_batch_of_all_roots_a_share_is_hidden_and_one_at_least():
    graph = graphs.tiny()
    kernel = graphs.net_of("i-nip-mean")[0].kernel
    batch = graphs.batch_of(graph, np.arange(8), kernel)
    drawn = [hidden_in(graph, batch, 0.3, 1, words) for words in WORDS]
    np.testing.assert_allclose(np.mean(drawn, axis=0)[:8], 0.3, atol=0.1)
    for words in WORDS[:20]:
        assert hidden_in(graph, batch, 1e-9, 1, words).sum() == 1


@pytest.mark.parametrize("model", ["i-nip-mean", "ss-ica"])
def test_the_loss_is_on_hidden_roots_and_reads_none_of_their_labels(model):
    graph = graphs.tiny()
    net, params = graphs.net_of(model)
    roots = np.arange(8)
    batch = graphs.batch_of(graph, roots, net.kernel)
    hiding = Hiding.at_rate(graph.train, 0.5, 1)
    words = WORDS[3]
    hidden = hidden_in(graph, batch, 0.5, 1, words)
    assert 0 < hidden[roots].sum() < 8
    summary = graphs.random_summary(graph)
    objective = Objective(False, l2=0.0, clip=5.0)

    def loss_of(summary, hiding, batch=batch):
        inputs = Inputs(None, summary, np.ones(3, np.float32), hiding=hiding)
        return batch_loss(net, objective, params, batch, inputs, words)

    loss, totals = loss_of(summary, hiding)
    assert totals.roots == hidden[roots].sum()
    changed = summary + hidden[:, None]  # What the hidden nodes would have said.
    np.testing.assert_array_equal(loss_of(changed, hiding)[0], loss)
    assert loss_of(changed, None)[0] != loss_of(summary, None)[0]
    # The same as by hand: zeros for the hidden, and a mask on the roots.
    zeroed = np.where(hidden[:, None], 0, summary)
    masked = batch._replace(mask=batch.mask * hidden[batch.graph.nodes["id"]][:8])
    want, _ = loss_of(zeroed, None, masked)
    np.testing.assert_allclose(loss, want, rtol=1e-6)


def test_the_first_iteration_learns_from_all_roots():
    graph = graphs.tiny()
    masked = fit(graph, "i-nip-mean", config=CONFIG)
    printed = dataclasses.replace(CONFIG, training_summaries="as-printed")
    found, want = (
        [r["train_loss"] for r in result.history if r["iteration"] == 1]
        for result in (masked, fit(graph, "i-nip-mean", config=printed))
    )
    np.testing.assert_allclose(found, want, rtol=1e-5)
    later = [r["train_loss"] for r in masked.history if r["iteration"] == 2]
    assert (
        later
        != [r["train_loss"] for r in fit(graph, "i-nip-mean", config=printed).history][
            4:8
        ]
    )


def test_hidden_labels_leave_nothing_to_precompute():
    graph, kernel = graphs.tiny(), MODELS["i-nip-mean"]
    config = dataclasses.replace(CONFIG, dropout=0.0)
    assert not make_plan(graph, kernel, config, Execution()).precompute
    printed = dataclasses.replace(config, training_summaries="as-printed")
    assert make_plan(graph, kernel, printed, Execution()).precompute
    assert make_plan(graph, MODELS["nip-mean"], config, Execution()).precompute


def test_streamed_batches_hide_the_same_labels_to_the_bit():
    graph = graphs.tiny(sparse=True)
    resident = fit(graph, "i-nip-mean", config=CONFIG)
    streamed = fit(
        graph, "i-nip-mean", config=CONFIG, execution=Execution(memory_budget=0)
    )
    np.testing.assert_array_equal(resident.probabilities, streamed.probabilities)


def test_it_works_with_sampled_neighbours_and_hidden_states():
    graph = graphs.tiny()
    for change in ({"fanouts": (3, 2)}, {"summary": "hidden"}):
        config = dataclasses.replace(CONFIG, **change)
        result = fit(graph, "i-nip-mean", config=config)
        np.testing.assert_allclose(
            result.predict_proba(graph), result.probabilities, atol=1e-6
        )
        assert len(result.iterations) == 3

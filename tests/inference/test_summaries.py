"""What one iteration hands to the next (Algorithm 1)."""

import dataclasses

import numpy as np
import pytest

from hopf_jax import Config, fit
from hopf_jax.inference import summaries
from hopf_jax.inference.summaries import (
    as_read,
    first_summaries,
    mean_change,
    next_summary,
    output,
    probabilities,
)
from tests import graphs, oracle


def arrays():
    rng = np.random.default_rng(0)
    return (rng.random((graphs.NUM_NODES, w)).astype(np.float32) for w in (3, 3, 5))


def test_nothing_is_known_before_the_first():
    graph = graphs.tiny()
    summary = first_summaries(graph, graphs.net_of("i-nip-mean")[0], Config())[0]
    np.testing.assert_array_equal(summary, np.zeros((graphs.NUM_NODES, 3)))
    assert first_summaries(graph, graphs.net_of("nip-mean")[0], Config()) is None


@pytest.mark.parametrize("t", [1, 2, 5])
def test_labels_are_averaged_over_time(t):
    graph = graphs.tiny()
    last, predicted, hidden = arrays()
    config = Config(num_iterations=5)
    got = next_summary(graph, config, t, last, predicted, hidden)
    a = (t - 1) / 5
    unknown = ~graph.train  # Validation nodes too: their labels are not to be seen.
    want = (1 - a) * predicted + a * last
    np.testing.assert_allclose(got[unknown], want[unknown], rtol=1e-6)
    np.testing.assert_array_equal(got[graph.train], graph.labels[graph.train])
    assert got.dtype == np.float32


def test_pieces_do_not_matter(monkeypatch):
    graph, config = graphs.tiny(), Config(num_iterations=5)
    last, predicted, _ = arrays()
    logits = np.log(predicted)

    def all_of_it():
        new = next_summary(graph, config, 4, last, predicted, None)
        return new, probabilities(logits, False), mean_change(predicted, last)

    whole = all_of_it()
    monkeypatch.setattr(summaries, "_ROWS_AT_ONCE", 5)  # Of 18: the last has 3.
    pieces = all_of_it()
    np.testing.assert_array_equal(pieces[0], whole[0])
    np.testing.assert_array_equal(pieces[1], whole[1])
    want = np.abs(predicted - last).mean()
    assert pieces[2] == pytest.approx(whole[2]) == pytest.approx(want, rel=1e-6)


def test_averaging_can_be_left_out():
    graph = graphs.tiny()
    last, predicted, hidden = arrays()
    config = Config(num_iterations=5, average_labels=False)
    got = next_summary(graph, config, 4, last, predicted, hidden)
    np.testing.assert_array_equal(got[~graph.train], predicted[~graph.train])


def test_hidden_states_are_the_other_summary():
    graph = graphs.tiny()
    _, predicted, hidden = arrays()
    config = Config(num_iterations=4, summary="hidden")
    got = next_summary(graph, config, 3, 2 * hidden, predicted, hidden)
    np.testing.assert_allclose(got, 1.5 * hidden, rtol=1e-6)


def test_a_graph_without_labels_lends_none():
    graph = graphs.tiny()
    last, predicted, hidden = arrays()
    plain = type(graph).from_scipy(graph.adjacency, graph.features)
    got = next_summary(plain, Config(), 1, last, predicted, hidden)
    np.testing.assert_array_equal(got, predicted)


def test_probabilities():
    logits = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    np.testing.assert_allclose(
        probabilities(logits, False), oracle.softmax(logits), rtol=1e-5
    )
    np.testing.assert_allclose(
        probabilities(logits, True), oracle.sigmoid(logits), rtol=1e-5
    )


def test_what_is_given_out_is_averaged_but_for_training_nodes():
    graph = graphs.tiny()
    rng = np.random.default_rng(0)
    first, second = rng.random((2, *graph.labels.shape)).astype(np.float32)
    config = Config(num_iterations=4)
    summary = next_summary(graph, config, 1, np.zeros_like(first), first, first)
    np.testing.assert_allclose(output(graph, config, first, summary), first)
    summary = next_summary(graph, config, 2, summary, second, second)
    given = output(graph, config, second, summary)
    others = ~graph.train
    np.testing.assert_allclose(
        given[others], 0.75 * second[others] + 0.25 * first[others], rtol=1e-6
    )
    np.testing.assert_array_equal(given[graph.train], second[graph.train])
    np.testing.assert_array_equal(summary[graph.train], graph.labels[graph.train])
    hidden = Config(num_iterations=4, summary="hidden")
    assert output(graph, hidden, second, summary) is second
    assert output(graph, config, second, None) is second


# Caution


def test_only_the_most_confident_are_committed_and_more_later():
    graph = graphs.tiny()
    summary = graphs.random_summary(graph)
    summary /= summary.sum(axis=1, keepdims=True)
    config = Config(caution="share", num_iterations=5)
    others = np.flatnonzero(~graph.train)
    order = others[np.argsort(-summary[others].max(axis=1), kind="stable")]
    for t, committed in ((2, 2), (3, 5), (4, 8), (5, 10)):
        read = as_read(graph, config, t, summary, 1.0)
        np.testing.assert_array_equal(read[graph.train], summary[graph.train])
        np.testing.assert_array_equal(
            read[order[:committed]], summary[order[:committed]]
        )
        assert not read[order[committed:]].any()
    assert as_read(graph, Config(), 3, summary, 1.0) is summary


@pytest.mark.parametrize("multilabel", [False, True])
def test_confidence_weighs_what_is_read(multilabel):
    graph = graphs.tiny(multilabel=multilabel)
    summary = np.full((18, 3), 1 / 3, np.float32)
    summary[14] = [1, 0, 0]
    read = as_read(graph, Config(caution="confidence"), 2, summary, 0.5)
    np.testing.assert_allclose(read[14], [0.5, 0, 0])
    least = 0.5 * 1 / 3 * 1 / 3 if multilabel else 0
    np.testing.assert_allclose(read[15], least, atol=1e-6)
    np.testing.assert_allclose(read[graph.train], 0.5 / 3, rtol=1e-6)


@pytest.mark.parametrize("caution", ["share", "confidence"])
def test_a_cautious_run_replays(caution):
    graph = graphs.tiny()
    config = Config(
        hidden_size=4, num_iterations=3, max_epochs=3, min_epochs=1, caution=caution
    )
    result = fit(graph, "i-nip-mean", config=config)
    np.testing.assert_allclose(
        result.predict_proba(graph), result.probabilities, atol=1e-6
    )
    plain = fit(graph, "i-nip-mean", config=dataclasses.replace(config, caution="none"))
    assert (plain.probabilities != result.probabilities).any()
    with pytest.raises(ValueError, match="caution weighs predicted labels"):
        dataclasses.replace(config, summary="hidden")

"""Which labels are predicted: corrected probabilities, and a rule for each metric."""

import dataclasses
import functools
import json

import numpy as np
import pytest

from hopf_jax import Config, Graph, fit, load
from hopf_jax.metrics import f1_scores, one_hot
from hopf_jax.results import Decision, make_decision
from hopf_jax.results.decisions import _choose_power, _choose_thresholds

METRICS = ("micro", "macro", "balanced")
CONFIG = Config(
    num_hops=1,
    hidden_size=16,
    batch_size=4000,
    bias=True,
    dropout=0.0,
    l2=0.0,
    max_epochs=300,
    metric="as-trained",
)
SHARES = np.array([0.75, 0.17, 0.08])


def unbalanced(multilabel=False, num_nodes=8000, seed=0):
    """Overlapping labels of unequal shares; a tenth learns, a tenth validates."""
    rng = np.random.default_rng(seed)
    if multilabel:
        labels = (rng.random((num_nodes, 3)) < [0.5, 0.15, 0.04]).astype(int)
        means = 1.3 * labels
    else:
        labels = rng.choice(3, num_nodes, p=SHARES)
        means = np.eye(3)[labels]
    features = means + rng.normal(size=(num_nodes, 3))
    sets = np.split(np.arange(num_nodes), [num_nodes // 10, num_nodes // 5])
    ends = rng.integers(num_nodes, size=(2, num_nodes))
    return Graph.from_edges(
        *ends,
        features,
        labels,
        multilabel=multilabel,
        **dict(zip(("train", "validation", "test"), sets, strict=True)),
    )


@functools.cache
def trained(multilabel=False, weighted=True):
    graph = unbalanced(multilabel)
    config = dataclasses.replace(CONFIG, weighted_loss=weighted)
    return fit(graph, "bl-node", config, progress=False)


def rule(result, metric, **changes):
    config = dataclasses.replace(result.config, metric=metric, **changes)
    return make_decision(config, result.graph, result.probabilities)


def decided(result, metric):
    """Predicted test labels, as a matrix."""
    made = rule(result, metric)
    said = made.correct(result.probabilities)[result.graph.test]
    found = made.decide(said)
    return found if result.multilabel else one_hot(found, said.shape[1])


def recall(true, found):
    return float(((true * found).sum(axis=0) / true.sum(axis=0)).mean())


@pytest.mark.parametrize("weighted", [True, False])
def test_probabilities_have_the_true_shares(weighted):
    result = trained(weighted=weighted)
    graph = result.graph
    mean = rule(result, "micro").correct(result.probabilities)[graph.test].mean(axis=0)
    np.testing.assert_allclose(mean, SHARES, atol=0.03)
    if weighted:  # The net itself says otherwise.
        own = result.probabilities[graph.test].mean(axis=0)
        assert np.abs(own - SHARES).max() > 0.15


@pytest.mark.parametrize("multilabel", [False, True])
def test_each_metric_is_best_by_its_own_score(multilabel):
    result = trained(multilabel)
    true = result.graph.labels[result.graph.test]
    found = {metric: decided(result, metric) for metric in (*METRICS, "as-trained")}
    micro = {m: f1_scores(true, matrix)["micro_f1"] for m, matrix in found.items()}
    macro = {m: f1_scores(true, matrix)["macro_f1"] for m, matrix in found.items()}
    mean_recall = {m: recall(true, matrix) for m, matrix in found.items()}
    assert max(micro, key=micro.get) == "micro", micro
    assert max(macro, key=macro.get) == "macro", macro
    best = mean_recall["balanced"]
    assert best > max(mean_recall["micro"], mean_recall["macro"]), mean_recall


def test_the_likeliest_label_of_a_weighted_net_is_the_balanced_choice():
    result = trained()
    own = one_hot(result.predict(result.graph.test), 3)
    np.testing.assert_array_equal(decided(result, "balanced"), own)


def test_training_does_not_depend_on_the_metric():
    graph = unbalanced(num_nodes=600)
    config = dataclasses.replace(CONFIG, max_epochs=5, min_epochs=1)
    one = fit(graph, "bl-node", config, progress=False)
    for metric in METRICS:
        own = dataclasses.replace(config, metric=metric)
        other = fit(graph, "bl-node", own, progress=False)
        for mine, yours in zip(one.weights, other.weights, strict=True):
            assert all((mine[name] == yours[name]).all() for name in mine)
        assert other.decision == rule(one, metric)
        expected = other.decision.correct(one.probabilities)
        np.testing.assert_array_equal(other.probabilities, expected)
        test = graph.labels[graph.test]
        found = one_hot(other.predict(graph.test), 3)
        assert other.scores["test"] == f1_scores(test, found)
        assert other.iterations[-1]["scores"] == other.scores


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_a_decision_is_saved_and_applied_to_a_new_graph(metric, multilabel, tmp_path):
    graph = unbalanced(multilabel, num_nodes=300)
    config = dataclasses.replace(CONFIG, max_epochs=3, min_epochs=1, metric=metric)
    result = fit(graph, "nip-mean", config, progress=False)
    result.save(tmp_path / "r.npz")
    loaded = load(tmp_path / "r.npz")
    assert loaded.decision == result.decision != Decision()
    np.testing.assert_array_equal(loaded.predict(graph), result.predict())
    np.testing.assert_array_equal(loaded.predict_proba(graph), result.probabilities)
    explained = result.explain(7)
    if not multilabel:
        assert explained.label == result.predict([7])[0]


@pytest.mark.parametrize(
    "change",
    [
        {"metric": "macro"},
        {"multilabel": True},
        {"weights": [1.0]},
        {"weights": [1.0, 1.0, -1.0]},
        {"power": float("nan")},
        {"prior": []},
        {"unknown": 1},
    ],
)
def test_a_damaged_decision_is_refused(change, tmp_path):
    graph = unbalanced(num_nodes=60)
    config = dataclasses.replace(CONFIG, max_epochs=1, min_epochs=0, metric="balanced")
    fit(graph, "bl-node", config, progress=False).save(tmp_path / "r.npz")
    with np.load(tmp_path / "r.npz") as archive:
        arrays = dict(archive)
    meta = json.loads(arrays["meta"].tobytes())
    meta["decision"] |= change
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    np.savez(tmp_path / "r.npz", **arrays)
    with pytest.raises(ValueError, match="is not a result saved by this library"):
        load(tmp_path / "r.npz")


# What is chosen on validation nodes


def test_few_validation_nodes_choose_little():
    true = one_hot([0, 0, 0, 1], 2)
    said = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]], np.float32)
    found = Decision("macro", prior=(0.9, 0.1))
    # Power 1/4 is the best of those offered, and 1/2 is neutral.
    few, many = (
        _choose_power(found, np.tile(said, (times, 1)), np.tile(true, (times, 1)))
        for times in (1, 50)
    )
    assert many < few < 0.5
    assert few == pytest.approx(0.5 + 4 / 50 * (many - 0.5))
    assert _choose_power(found, said[:0], true[:0]) == 0.5


@pytest.mark.parametrize("by_label", [False, True])
def test_thresholds(by_label):
    rng = np.random.default_rng(0)
    truth = rng.random((4000, 2)) < [0.5, 0.1]
    # Probabilities that are right on average: the best threshold is half of F1.
    logits = rng.normal(size=truth.shape) + 1.5 * truth
    odds = np.exp(1.5 * logits - 1.5**2 / 2) * [1, 0.1 / 0.9]
    said = (odds / (1 + odds)).astype(np.float32)
    found = _choose_thresholds(said, truth.astype(np.uint8), by_label)
    assert (found > 0.2).all() and (found < 0.5).all()
    assert (found[0] == found[1]) == (not by_label)
    few = _choose_thresholds(said[:5], truth[:5].astype(np.uint8), by_label)
    assert (np.abs(few - 0.5) < 0.25).all()
    none = _choose_thresholds(said[:0], truth[:0].astype(np.uint8), by_label)
    np.testing.assert_array_equal(none, 0.5)


def test_a_label_with_few_positives_keeps_near_the_common_threshold():
    rng = np.random.default_rng(1)
    truth = np.zeros((1000, 2), np.uint8)
    truth[:500, 0] = truth[0, 1] = 1
    said = np.clip(0.3 + 0.4 * truth + 0.2 * rng.normal(size=truth.shape), 0.01, 0.99)
    said[0, 1] = 0.02  # Alone it would be predicted above 0.02 only.
    common = _choose_thresholds(said, truth, False)[1]
    own = _choose_thresholds(said, truth, True)[1]
    assert abs(own - common) < 0.2


def test_labels_without_training_nodes():
    graph = unbalanced(num_nodes=300)
    kept = graph.train & (graph.labels[:, 2] == 0)
    graph = graph.with_split(kept, graph.validation, graph.test)
    for metric in METRICS:
        config = dataclasses.replace(CONFIG, max_epochs=3, metric=metric)
        result = fit(graph, "bl-node", config, progress=False)
        assert np.isfinite(result.probabilities).all()
        np.testing.assert_allclose(result.probabilities.sum(axis=1), 1, rtol=1e-5)

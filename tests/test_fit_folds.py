"""Folds trained in one program: what `fit` finds for each of them."""

import dataclasses
import functools
import shutil
from unittest import mock

import numpy as np
import pytest

from hopf_jax import MODELS, Config, Execution, fit, fit_folds
from hopf_jax.batching import grouping, loader
from hopf_jax.learning.plan import make_plan
from hopf_jax.learning.population import (
    CannotJoinError,
    Member,
    _JointLoader,
    check_same,
)
from hopf_jax.runtime import checkpoints
from tests import graphs

CONFIG = Config(
    bias=False,
    init_weights="fan-out",
    weighted_loss=True,
    l2=1e-3,
    hidden_size=5,
    batch_size=3,
    num_iterations=2,
    min_epochs=2,
    max_epochs=25,
    patience=2,
)
# By how much label summaries move after iteration 2 of the two folds: between them.
TOLERANCE = 0.06


def vary(**settings):
    return dataclasses.replace(CONFIG, **settings)


def folds(graph=None, count=2, train=8):
    """A graph with several splits."""
    graph = graphs.tiny("weighted") if graph is None else graph
    orders = [np.random.default_rng(n).permutation(18) for n in range(count)]
    return [
        graph.with_split(order[:train], order[train : train + 5], order[train + 5 :])
        for order in orders
    ]


def plan_of(config, graph=None, model="i-nip-mean"):
    graph = graphs.tiny() if graph is None else graph
    return make_plan(graph, MODELS[model], config, Execution())


def assert_agree(results, others):
    """The same epochs, and numbers that differ by rounding."""
    for one, other in zip(results, others, strict=True):
        assert len(one.history) == len(other.history)
        for record, wanted in zip(one.history, other.history, strict=True):
            assert record.keys() == wanted.keys()
            for name in record.keys() - {"seconds"}:
                np.testing.assert_allclose(record[name], wanted[name], atol=1e-4)
        assert one.iteration == other.iteration
        assert len(one.iterations) == len(other.iterations) == len(one.weights)
        np.testing.assert_allclose(one.probabilities, other.probabilities, atol=1e-4)
        for record, wanted in zip(one.iterations, other.iterations, strict=True):
            assert record["epochs"] == wanted["epochs"]
            for name, scores in wanted["scores"].items():
                assert record["scores"][name] == pytest.approx(scores, abs=1e-6)
        assert one.scores == one.iterations[one.iteration - 1]["scores"]
        temperature = other.calibration.temperature
        assert one.calibration.temperature == pytest.approx(temperature, rel=1e-2)
        assert one.graph is other.graph


SPLITS = folds()


@functools.cache
def alone(model):
    """What `fit` finds for each fold."""
    return [fit(graph, model, CONFIG, seed=3) for graph in SPLITS]


@pytest.mark.parametrize(
    ("model", "mapping"),
    [("nip-mean", "loop"), ("i-nip-mean", "loop"), ("i-nip-mean", "vmap")],
)
def test_each_fold_is_as_fit_learns_it(model, mapping):
    # With dropout, in batches: draws and orders have to be the same.
    told = []
    results = fit_folds(
        SPLITS, model, CONFIG, seed=3, mapping=mapping, callbacks=[told.append]
    )
    assert_agree(results, alone(model))
    # They stopped at different epochs, before the last.
    lengths = {len(result.history) for result in results}
    assert len(lengths) == 2
    assert max(r.iterations[0]["epochs"] for r in results) < CONFIG.max_epochs
    for fold, result in enumerate(results):
        own = [
            {k: v for k, v in r.items() if k != "fold"}
            for r in told
            if r["fold"] == fold
        ]
        assert own == result.history


@pytest.mark.parametrize(
    "change",
    [
        {"warm_start": False, "average_labels": False, "neighbor_fraction": 0.8},
        {"summary": "hidden", "scoring": "cardinality", "dropout": 0.0},
    ],
    ids=["alone", "hidden"],
)
def test_the_rules_are_those_of_fit(change):
    config = vary(max_epochs=12, **change)
    splits = folds(graphs.tiny("weighted", multilabel="scoring" in change))
    wanted = [fit(graph, "i-nip-mean", config, seed=3) for graph in splits]
    assert_agree(fit_folds(splits, "i-nip-mean", config, seed=3), wanted)


@pytest.mark.parametrize("mapping", ["loop", "vmap"])
def test_folds_finish_their_iterations_one_by_one(mapping):
    # Without dropout the first hop is precomputed, and differs by fold.
    config = vary(num_iterations=3, tolerance=TOLERANCE, dropout=0.0)
    config = dataclasses.replace(
        config,
        training_summaries="as-printed",
        scale_summaries=False,
        features="as-is",
    )
    assert plan_of(config).precompute
    splits = folds()
    wanted = [fit(graph, "i-nip-mean", config, seed=3) for graph in splits]
    assert {len(result.iterations) for result in wanted} == {2, 3}
    found = fit_folds(splits, "i-nip-mean", config, seed=3, mapping=mapping)
    assert_agree(found, wanted)


def test_batches_are_taken_in_the_order_of_fit(monkeypatch):
    # As on large graphs: batches grouped by size, otherwise in each fold.
    monkeypatch.setattr(loader, "_FEW_BATCHES", 0)
    monkeypatch.setattr(grouping, "_WASTE", -1.0)
    monkeypatch.setattr(grouping, "_MOST_GROUPS", 2)
    config, splits = (
        vary(batch_size=2, max_epochs=3),
        folds(graphs.tiny("weighted", sparse=True)),
    )
    how = plan_of(config, splits[0], "nip-mean").training
    assert _JointLoader([Member(g, 3) for g in splits], "train", how).axes.order == 0
    wanted = [fit(graph, "nip-mean", config, seed=3) for graph in splits]
    assert_agree(fit_folds(splits, "nip-mean", config, seed=3), wanted)


def test_members_with_seeds_of_their_own():
    config = vary(max_epochs=4)
    found = fit_folds(SPLITS, "i-nip-mean", config, seed=[3, 5])
    wanted = [
        fit(g, "i-nip-mean", config, seed=s)
        for g, s in zip(SPLITS, (3, 5), strict=True)
    ]
    assert_agree(found, wanted)
    assert [result.seed for result in found] == [3, 5]
    with pytest.raises(ValueError, match="2 graphs, but 1 seeds"):
        fit_folds(SPLITS, "i-nip-mean", config, seed=[3])


def test_a_joint_run_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "_COST", float("inf"))  # Save every epoch.

    class StopError(Exception):
        pass

    config = vary(max_epochs=6, num_iterations=2)

    def stop(record):
        if record["iteration"] == 2 and record["epoch"] == 2 and record["fold"] == 1:
            raise StopError

    whole = fit_folds(SPLITS, "i-nip-mean", config, seed=3)
    with pytest.raises(StopError):
        fit_folds(
            *(SPLITS, "i-nip-mean", config),
            seed=3,
            workdir=tmp_path,
            callbacks=[stop],
        )
    # With too little memory for a joint run each member goes on by itself.
    shutil.copytree(tmp_path, tmp_path / "less")
    told = []
    alone = fit_folds(
        *(SPLITS, "i-nip-mean", config),
        seed=3,
        workdir=tmp_path / "less",
        execution=Execution(memory_budget=1000),
        callbacks=[told.append],
    )
    assert {record["iteration"] for record in told} == {2}
    assert_agree(alone, whole)
    resumed = fit_folds(SPLITS, "i-nip-mean", config, seed=3, workdir=tmp_path)
    for one, other in zip(resumed, whole, strict=True):
        np.testing.assert_array_equal(one.probabilities, other.probabilities)


def test_a_single_fold_is_a_fit(tmp_path):
    config = vary(max_epochs=3, num_iterations=1)
    fit(SPLITS[0], "i-nip-mean", config, workdir=tmp_path)
    (found,) = fit_folds(
        SPLITS[:1], "i-nip-mean", config, workdir=tmp_path, callbacks=[pytest.fail]
    )
    assert len(found.history) == 3


def test_checkpoints_count_an_epoch_of_several_members_once():
    states = []

    class Saves:
        def __call__(self, run):
            states.append(run.num_epochs)

    config = vary(max_epochs=3, num_iterations=2, min_epochs=3)
    with mock.patch("hopf_jax.fitting.checkpointed") as made:
        made.return_value.__enter__.return_value = None, Saves()
        fit_folds(SPLITS, "i-nip-mean", config)
    assert states == [1, 2, 3, 3, 4, 5, 6, 6]


@pytest.mark.parametrize(
    ("change", "execution"),
    [
        ({"fanouts": (2, 2)}, Execution()),
        ({"batches_per_step": 2}, Execution()),
        ({}, Execution(memory_budget=1000)),
    ],
    ids=["sampled", "two batches per step", "streamed"],
)
def test_members_that_cannot_be_joined_are_trained_one_by_one(change, execution):
    config, splits = vary(max_epochs=2, num_iterations=1, **change), folds()
    told = []
    found = fit_folds(
        *(splits, "nip-mean", config),
        seed=3,
        execution=execution,
        callbacks=[told.append],
    )
    for graph, result in zip(splits, found, strict=True):
        alone = fit(graph, "nip-mean", config, seed=3, execution=execution)
        np.testing.assert_array_equal(result.probabilities, alone.probabilities)
    assert {record["fold"] for record in told} == {0, 1}


def test_arguments_that_are_refused():
    first, second = folds()
    with pytest.raises(ValueError, match="graphs is empty"):
        fit_folds([], "nip-mean", CONFIG)
    with pytest.raises(ValueError, match="no train nodes"):
        fit_folds([first, first.with_split()], "nip-mean", CONFIG)
    with pytest.raises(ValueError, match="mapping is 'pmap'"):
        fit_folds([first, second], "nip-mean", CONFIG, mapping="pmap")


def test_only_folds_of_one_graph_are_joined():
    first, second = folds()
    plan = plan_of(CONFIG)
    check_same([first, second])
    one, other = (folds(graphs.tiny(sparse=True))[0] for _ in range(2))
    assert one.features is not other.features
    check_same([one, other])
    for other, differs in (
        (dataclasses.replace(second, features=second.features + 1), "in features"),
        (folds(graphs.tiny(seed=1))[0], "in indptr and indices"),
        (dataclasses.replace(second, features=one.features), "in features"),
        (dataclasses.replace(second, multilabel=True), "in multilabel"),
    ):
        with pytest.raises(CannotJoinError, match=differs):
            check_same([first, other])
    few = folds(train=3)[1]
    with pytest.raises(CannotJoinError, match=r"train nodes make \[3, 1\] batches"):
        _JointLoader([Member(first, 0), Member(few, 0)], "train", plan.training)


def test_a_fold_that_diverges_is_named():
    config = vary(learning_rate=1e30, max_epochs=8)
    with pytest.raises(ValueError, match=r"Net [01]: Training diverged"):
        fit_folds(folds(), "nip-mean", config)

"""Members: several nets on one graph, by seeds or by parts of the training nodes."""

import dataclasses

import numpy as np
import pytest

import hopf_jax
from hopf_jax import Config, fit, fit_folds, fitting
from hopf_jax.inference import member_of
from hopf_jax.kernels import MODELS
from hopf_jax.learning import population
from hopf_jax.learning.teams import divide, make_team
from tests import graphs

SHORT = Config(
    hidden_size=5, num_iterations=2, batch_size=3, max_epochs=4, min_epochs=1
)
# Summaries are read as they are, so that labels can be found in them.
CROSSED = dataclasses.replace(
    SHORT, training_summaries="cross-fitted", parts=3, scale_summaries=False
)


def vary(config, **changes):
    return dataclasses.replace(config, **changes)


def test_members_are_nets_of_their_own_seeds_and_their_mean():
    graph = graphs.tiny()
    config = vary(SHORT, metric="as-trained")  # Others correct the mean.
    result = fit(graph, "nip-mean", config, members=2, seed=4)
    team = make_team(graph, MODELS["nip-mean"], vary(SHORT, members=2), 4)
    alone = [fit(graph, "nip-mean", config, seed=m.seed) for m in team.members]
    assert alone[0].seed == 4 != alone[1].seed
    mean = np.mean([a.probabilities for a in alone], axis=0)
    np.testing.assert_allclose(result.probabilities, mean, rtol=1e-6)
    for m, each in enumerate(alone):
        own = member_of(result.weights[0], m, 2)
        for name, weights in each.weights[0].items():
            np.testing.assert_array_equal(own[name], weights)
    assert {record["member"] for record in result.history} == {0, 1}
    assert "member" not in alone[0].history[0]


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (vary(SHORT, members=2), "plain"),
        (vary(SHORT, members=2), "hidden"),
        (CROSSED, "multilabel"),
        (CROSSED, "hidden"),
        (vary(CROSSED, members=2, parts=2), "sparse"),
    ],
)
def test_several_are_saved_loaded_replayed_and_explained_like_one(
    tmp_path, config, kind
):
    graph = graphs.tiny(multilabel=kind == "multilabel", sparse=kind == "sparse")
    config = vary(config, summary="hidden") if kind == "hidden" else config
    result = fit(graph, "i-nip-mean", config=config)
    assert len(result.weights) == 2
    assert result.weights[0]["w_output"].ndim == 2 + (config.members > 1)
    result.save(tmp_path / "several.npz")
    loaded = hopf_jax.load(tmp_path / "several.npz")
    assert loaded.config == config
    for each in (result, loaded):
        np.testing.assert_allclose(
            each.predict_proba(graph), result.probabilities, atol=2e-6
        )
    assert 0 <= result.confidence().values.min() <= 1
    explanation = loaded.explain(14, graph)
    assert sum(explanation.shares.values()) == pytest.approx(1)


def test_weights_of_a_member_too_few_are_refused(tmp_path):
    graph = graphs.tiny()
    result = fit(graph, "nip-mean", SHORT, members=2)
    fewer = tuple({n: w[:1] for n, w in each.items()} for each in result.weights)
    dataclasses.replace(result, weights=fewer).save(tmp_path / "bad.npz")
    with pytest.raises(ValueError, match="holds weights"):
        hopf_jax.load(tmp_path / "bad.npz")


def test_parts_are_even_in_size_and_labels():
    graph = graphs.tiny()
    parts = divide(graph, 3, 0)
    assert ((parts >= 0) == graph.train).all()
    assert np.ptp(np.bincount(parts[graph.train])) <= 1
    np.testing.assert_array_equal(parts, divide(graph, 3, 0))
    labels = graph.labels[graph.train].argmax(axis=1)
    for label in range(3):
        counts = np.bincount(parts[graph.train][labels == label], minlength=3)
        assert np.ptp(counts) <= 1
    with pytest.raises(ValueError, match="divides 8 training nodes into 9 parts"):
        divide(graph, 9, 0)


def test_a_part_reads_nothing_of_nets_or_labels_that_saw_it():
    graph = graphs.tiny()
    kernel = MODELS["i-nip-mean"]
    team = make_team(graph, kernel, CROSSED, 0)
    changed = graph.labels.copy()
    first = team.parts == 0
    changed[first] = np.roll(changed[first], 1, axis=1)
    seen = {}

    def spy(name):
        def inputs(self, summaries, iteration, real=population.Population.inputs):
            seen.setdefault(name, []).append(np.array(summaries[1]))
            return real(self, summaries, iteration)

        return inputs

    trained = {}

    def learn(*arguments, real=fitting.learn, **more):
        trained.setdefault(name, []).append(real(*arguments, **more))
        return trained[name][-1]

    for name, labels in (("before", graph.labels), ("after", changed)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(population.Population, "inputs", spy(name))
            patch.setattr("hopf_jax.learning.teams.divide", lambda *_: team.parts)
            patch.setattr(fitting, "learn", learn)
            fit(dataclasses.replace(graph, labels=labels), "i-nip-mean", config=CROSSED)
    # Net 1 is the helper that never saw part 0, and net 2 did.
    before, after = (trained[name][0] for name in ("before", "after"))
    for name in before[1]:
        np.testing.assert_array_equal(before[1][name], after[1][name])
    assert any((before[2][name] != after[2][name]).any() for name in before[2])
    before, after = (seen[name][1] for name in ("before", "after"))
    assert before.shape == (4, 18, 3)  # Three parts, and everybody else.
    np.testing.assert_array_equal(before[0], after[0])
    assert (before[1] != after[1]).any()
    # Labels of other parts are known, and of its own predicted.
    np.testing.assert_array_equal(
        before[0][team.parts == 1], graph.labels[team.parts == 1]
    )
    assert (before[0][first] != graph.labels[first]).any()
    np.testing.assert_array_equal(before[3][graph.train], graph.labels[graph.train])


@pytest.mark.parametrize(
    ("model", "change"),
    [
        ("i-nip-mean", {}),
        ("ss-ica", {"dropout": 0.0}),
        ("i-nip-mean", {"fanouts": (3, 2)}),
    ],
)
def test_cross_fitting_streams_what_it_holds(model, change):
    graph, config = graphs.tiny("weighted"), vary(CROSSED, **change)
    held = fit(graph, model, config)
    streamed = fit(graph, model, config, execution=hopf_jax.Execution(memory_budget=0))
    np.testing.assert_array_equal(held.probabilities, streamed.probabilities)


def test_a_precomputed_first_hop_has_a_block_per_part():
    graph, config = graphs.tiny("weighted"), vary(CROSSED, dropout=0.0)
    one = fit(graph, "i-nip-mean", config=config)
    two = fit(graph, "i-nip-mean", config=vary(config, precompute=False))
    for a, b in zip(one.history, two.history, strict=True):
        assert a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-3)


def test_one_program_for_all_members_agrees(monkeypatch):
    graph, config = graphs.tiny(sparse=True), vary(SHORT, members=2)
    apart = fit(graph, "i-nip-mean", config=config)
    made = []

    def joint(mapping, *arguments):
        made.append(population.JointPopulation(*arguments, mapping="vmap"))
        return made[-1]

    monkeypatch.setattr("hopf_jax.fitting._make_population", joint)
    together = fit(graph, "i-nip-mean", config=config)
    assert made
    for a, b in zip(apart.history[:6], together.history[:6], strict=True):
        assert a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-3)


def test_folds_have_members_too():
    graph = graphs.tiny()
    folds = [graph, graph.with_split(np.arange(4, 12), [0, 1, 2], np.arange(13, 18))]
    found = fit_folds(folds, "i-nip-mean", vary(SHORT, members=2))
    for fold, each in zip(folds, found, strict=True):
        alone = fit(fold, "i-nip-mean", vary(SHORT, members=2))
        assert [r["train_loss"] for r in each.history[:2]] == pytest.approx(
            [r["train_loss"] for r in alone.history[:2]], rel=1e-3
        )
        assert each.weights[0]["w_output"].shape[0] == 2

"""`tune`: trials share programs, a search resumes, and the best is fitted again."""

import dataclasses

import numpy as np
import pytest

from hopf_jax import Config, Execution, fit, tune
from hopf_jax.datasets import make_planted, paper_split
from hopf_jax.runtime import held_folder, programs

pytest.importorskip("optuna")
GRAPH = paper_split(make_planted(300, 900, seed=1), percent=40, seed=0)
SHORT = Config(hidden_size=8, max_epochs=12, min_epochs=2, num_iterations=2)
MODELS = ["bl-node", "appnp"]


def search(budget, **keywords):
    return tune(GRAPH, MODELS, budget, SHORT, progress=False, **keywords)


@pytest.fixture
def made(monkeypatch):
    """Names of functions, one per program that is made."""
    names, make = [], programs._Entry.__init__

    def init(self, function, num_static, quickly):
        names.append(function.__name__)
        make(self, function, num_static, quickly)

    monkeypatch.setattr(programs._Entry, "__init__", init)
    monkeypatch.setattr(programs, "_programs", type(programs._programs)())
    return names


def test_trials_of_a_model_share_programs_and_the_best_is_fitted(made):
    found = search(12, workers=2)
    assert len(found.trials) == 12
    assert made.count("resident_epoch") == len({t["model"] for t in found.trials})
    first, *others = found.trials[1:]  # Of both models: the settings given.
    assert first["dropout"] == SHORT.dropout
    assert len({trial["dropout"] for trial in others}) == 10
    best = found.table[0]
    assert best["value"] == max(trial["value"] for trial in found.table)
    assert found.model == best["model"]
    for name in ("dropout", "l2", "learning_rate"):
        assert getattr(found.config, name) == best[name]
    score = found.result.scores["validation"]["micro_f1"]
    np.testing.assert_allclose(score, best["score"], atol=1e-6)
    again = {t["model"]: t["num_hops"] for t in found.trials}
    assert again == {m: h for m, h in (("bl-node", 2), ("appnp", 10)) if m in again}
    assert "12 trials" in str(found)
    assert set(found.importances) == {"model", "dropout", "l2", "learning_rate"}
    assert len(found.plot().axes) == 5


def test_a_search_is_continued_and_not_mixed_up(tmp_path):
    first = search(2, workers=1, workdir=tmp_path)
    both = search(4, workers=1, workdir=tmp_path)
    assert [t["number"] for t in both.trials] == [0, 1, 2, 3]
    assert both.trials[:2] == first.trials
    assert both.trials[2]["dropout"] != first.trials[0]["dropout"]
    log = tmp_path / "trials.log"
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"op_code": 4, "tri')  # A kill while it was written.
    same = search(4, workers=1, workdir=tmp_path)
    assert same.trials == both.trials
    with pytest.raises(
        ValueError, match=r"another search: seed 0 is 1, but 0 in its notes"
    ):
        search(4, workdir=tmp_path, seed=1)
    with held_folder(tmp_path), pytest.raises(ValueError, match="in use by process"):
        search(5, workdir=tmp_path)
    for damaged in (whole.replace(b"op_code", b"op_kode", 1), whole[9:]):
        log.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"trials\.log is damaged"):
            search(5, workdir=tmp_path)
        assert log.read_bytes() == damaged


def test_linear_models_are_solved_beside_the_trials():
    config = dataclasses.replace(SHORT, num_iterations=Config.num_iterations)
    found = tune(GRAPH, ["i-sgc", "appnp"], 1, config, progress=False, workers=1)
    assert [each["model"] for each in found.solved] == ["sgc", "i-sgc"]
    assert {trial["model"] for trial in found.trials} == {"appnp"}
    assert "solved" in str(found) and f"Best: {found.model}" in str(found)
    best = max((*found.table, *found.solved), key=lambda each: each["score"])
    score = found.result.iterations[found.result.iteration - 1]["scores"]
    np.testing.assert_allclose(score["validation"]["micro_f1"], best["score"])
    alone = tune(GRAPH, "i-sgc", progress=False)
    assert not alone.trials and alone.model in ("sgc", "i-sgc")
    assert alone.config.folds == 5  # Training and validation labels, cross-validated.


def test_few_programs_are_compiled(made):
    tune(GRAPH, budget=4, progress=False, workers=1)
    assert len(made) <= 10, made


def test_without_validation_nodes_labels_are_cross_validated():
    graph = GRAPH.with_split()
    config = dataclasses.replace(SHORT, folds=2)
    found = tune(graph, "bl-node", 2, config, progress=False, workers=1)
    assert found.config.folds == 2
    assert found.result.predict_proba().shape == (300, 4)


def test_wrong_arguments():
    for keywords, message in (
        ({"budget": 0}, "budget is 0"),
        ({"models": []}, "models is empty"),
        ({"models": ["gnc"]}, "No model is called 'gnc'"),
        ({"models": "sgc", "config": SHORT}, "sgc cannot be solved"),
        ({"timeout": -1.0}, "timeout is -1"),
    ):
        with pytest.raises(ValueError, match=message):
            tune(GRAPH, **keywords)


def test_programs_with_numbers_as_data_compute_the_same():
    config = dataclasses.replace(SHORT, dropout=0.3, l2=1e-2)
    for model in ("gcn", "i-nip-mean"):
        plain = fit(
            GRAPH,
            model,
            config,
            progress=False,
            execution=Execution(shared_programs=False),
        )
        shared = fit(
            GRAPH,
            model,
            config,
            progress=False,
            execution=Execution(shared_programs=True),
        )
        losses = (
            [record["train_loss"] for record in result.history]
            for result in (plain, shared)
        )
        np.testing.assert_allclose(*losses, rtol=1e-3)
        np.testing.assert_allclose(
            plain.predict_proba(), shared.predict_proba(), atol=1e-2
        )

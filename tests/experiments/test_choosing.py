"""Rules are chosen on nodes that are neither learned from nor tested on."""

import numpy as np
import pytest

from experiments import choosing
from experiments.common import cells, output
from hopf_jax import fitting
from hopf_jax.datasets import make_planted, paper_split
from hopf_jax.learning import stopping, training


@pytest.fixture(scope="module")
def graph():
    return paper_split(make_planted(), seed=0)


def test_known_nodes_are_parted_and_test_nodes_are_out_of_it(graph):
    known = graph.train | graph.validation
    parted = [cells.split_known(graph, turn, seed=3) for turn in range(4)]
    for each in parted:
        masks = np.stack([each.train, each.validation, each.test])
        np.testing.assert_array_equal(masks.sum(0), known)
        assert not (masks.any(0) & graph.test).any()
        assert masks.any(1).all()
    held = np.stack([each.test for each in parted])
    np.testing.assert_array_equal(held.sum(0), known)


def test_the_best_mean_is_chosen_with_and_without_each_dataset():
    def scores(**best):
        return {
            f"m | {s} | {r}": [best.get(s, 0) + (r == "last"), 1]
            for s in choosing.STOPPING
            for r in choosing.REPORTING
        }

    found = {"a": scores(never=8), "b": scores(fresh=2), "c": scores(fresh=3)}
    report = choosing.choose(found)
    assert report["chosen"] == "never | last"
    assert report["means"]["never | last"]["a"] == 5
    assert report["without"] == dict.fromkeys("bc", "never | last") | {
        "a": "fresh | last"
    }


def test_last_within_errors_is_what_fit_reports():
    rng = np.random.default_rng(0)
    for _ in range(50):
        right = [rng.random(20) < 0.6 for _ in range(5)]
        right = [each.astype(float) for each in right]
        held = [{"micro_f1": r.mean(), "macro_f1": r.mean()} for r in right]
        reported = 0
        for t in range(1, 6):
            if stopping.as_good_as_any(held[:t], right[:t]):
                reported = t - 1
        assert choosing.REPORTING["last within 2 errors"](held, right) == reported


def test_fit_is_as_it_was_after_a_trial():
    before = training.Patience, stopping._FALLS, fitting.as_good_as_any
    falling = {"loss": 1.0, "micro_f1": 0.5}
    with choosing.stopping_by("fresh, 1%") as seen:
        assert stopping._FALLS == 0.99
        assert training.Patience(0.1, 3, 5)._learns(falling)
        fitting.as_good_as_any([falling], [np.ones(3)])  # An iteration is over.
        assert len(seen) == 1
        assert not training.Patience(0.1, 3, 5)._learns(falling)
    assert before == (training.Patience, stopping._FALLS, fitting.as_good_as_any)


def test_kinds_of_summaries_are_compared_on_held_out_nodes(pretended, tmp_path, capsys):
    argv = ["--dataset", "cora,citeseer", "--folds", "1,2", "--kinds", "1,4"]
    assert choosing.main([*argv, "--workers", "1", "--workdir", str(tmp_path)]) == 0
    found = output.read_json(tmp_path / "choosing" / "summaries.json")
    assert set(found["kinds"]) == {"as printed", "masked"}
    means = {
        kind: np.mean([entry["reported"] for entry in row.values()])
        for kind, row in found["kinds"].items()
    }
    assert found["chosen"] == max(means, key=means.get)
    assert found["without"].keys() == {"cora", "citeseer"}
    for entry in found["kinds"]["masked"].values():
        assert len(entry["each"]) == 2 and set(entry["leak"]) == {"1", "2"}
    assert "Chosen: " in capsys.readouterr().out
    saved = list((tmp_path / "choosing" / "cells").iterdir())
    splits = {output.read_json(path)["settings"]["split"] for path in saved}
    assert len(saved) == 8 and splits == {"held-out 0"}
    with pytest.raises(SystemExit):
        choosing.main(["--kinds", "99"])
    assert "give some of 1: as printed" in capsys.readouterr().err


def test_the_kind_without_a_dataset_may_be_another():
    means = {"one": {"a": 5.0, "b": 1.0}, "two": {"a": 2.0, "b": 3.0}}
    found = choosing.best_of(means)
    assert found == {"chosen": "one", "without": {"a": "two", "b": "one"}}

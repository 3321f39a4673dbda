"""Logistic regression on the folds, beside bl-node."""

import json

import pytest

from experiments import attributes
from tests import graphs


def test_it_scores_each_fold_above_chance(tmp_path):
    run = ["--dataset", "planted", "--folds", "1,2", "--workdir", str(tmp_path)]
    assert attributes.main(run) == 0
    found = json.loads((tmp_path / "attributes.json").read_text())
    entry = found["micro_f1"]["planted"]
    assert len(entry["folds"]) == 2 and entry["mean"] > 30  # Of four classes.
    assert "experiments.attributes" in found["command"]


def test_several_labels_a_node_are_refused(monkeypatch):
    graph = graphs.tiny(multilabel=True)
    monkeypatch.setattr(attributes, "load_dataset", lambda name, fold: graph)
    with pytest.raises(SystemExit, match="several labels"):
        attributes._score("yeast", 1)

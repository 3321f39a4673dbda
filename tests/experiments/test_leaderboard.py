"""make leaderboard, on a tiny graph and with few epochs."""

import concurrent.futures
import json

import numpy as np
import pytest

import hopf_jax
from experiments import leaderboard
from hopf_jax.datasets import make_planted
from hopf_jax.graph import split_graph

FOLDS = {
    fold: {
        leaderboard.TUNED: {"micro_f1": 80.0 + fold, "macro_f1": 70.0, "seconds": 2.0},
        "majority": {"micro_f1": 30.0, "macro_f1": 10.0, "seconds": 0.1},
        "ica": {"micro_f1": 70.0 + fold / 2, "macro_f1": 75.0, "seconds": 1.0},
        "PyG GCN": {"micro_f1": 90.0, "macro_f1": 60.0, "seconds": 1.0},
    }
    for fold in range(1, 6)
}


def test_the_summary_compares_with_the_best_baseline():
    board = leaderboard.summarise("cora", FOLDS)
    assert list(board)[:2] == ["PyG GCN", leaderboard.TUNED]
    line = board[leaderboard.TUNED]
    assert line["micro_f1"] == pytest.approx(83)
    assert line["micro_f1_std"] == pytest.approx(2**0.5)
    assert line["micro_f1_against"] == "ica"
    assert line["micro_f1_p_value"] == pytest.approx(1 / 32)
    assert line["macro_f1_p_value"] > 0.9
    assert "micro_f1_p_value" not in board["PyG GCN"]
    best = max(leaderboard.paper.published("cora", m) for m in ("gcn-s", "i-nip-mean"))
    assert board[leaderboard.PAPER]["micro_f1"] >= best
    text = leaderboard.as_text({"cora": board})
    assert "83.0 ± 1.4*" in text and "70.0 ± 0.0 " in text
    page = leaderboard.as_html({"a<b": board}, {"seed": 0}, "abc")
    assert "a&lt;b" in page and "Commit abc; seed 0" in page
    assert "<tr class=ours><td>tuned</td>" in page


def test_labels_are_decided_for_each_score_by_held_out_nodes():
    planted = make_planted(400, 800)
    labels = np.hstack([planted.labels, planted.labels[:, :1]])  # Several per node.
    graph = split_graph(
        hopf_jax.Graph.from_scipy(planted.adjacency, planted.features, labels),
        train=0.4,
        validation=0.2,
        test=0.4,
    )
    assert graph.multilabel
    said = np.where(labels > 0, 0.3, 0.1).astype(np.float32)
    nodes = np.flatnonzero(graph.train | graph.validation)
    scores = leaderboard._percent(graph, said, nodes, said[nodes], 0.0)
    assert scores["counted_micro_f1"] == 100  # The right order, whatever the threshold.
    assert scores["micro_f1"] > 99 and scores["macro_f1"] > 99
    misled = leaderboard._percent(graph, said, nodes, 3 * said[nodes], 0.0)
    assert misled["micro_f1"] < 1 and misled["counted_micro_f1"] == 100


def test_groups_are_chosen_by_name(capsys):
    assert leaderboard.groups_named("solved,peer") == ("solved", "peer")
    with pytest.raises(SystemExit):
        leaderboard.main(["--groups", "solvd"])
    assert "give some of baselines" in capsys.readouterr().err


def test_a_run_writes_a_page_and_is_not_repeated(tmp_path, monkeypatch, capsys):
    pytest.importorskip("optuna")
    monkeypatch.setattr(leaderboard.panel, "PEER", tmp_path / "python")
    asked = []

    class Pool:
        """Runs everything at once, in this process."""

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def submit(self, function, *arguments):
            asked.append(arguments[:3])
            done = concurrent.futures.Future()
            done.set_result(function(*arguments))
            return done

    monkeypatch.setattr(leaderboard.runner, "pool", lambda workers: Pool())
    options = ["--dataset", "planted", "--folds", "1", "--budget", "2"]
    options += ["--max-epochs", "3", "--workdir", str(tmp_path)]
    assert leaderboard.main(options) == 0
    assert len(asked) == len(leaderboard.GROUPS)
    found = json.loads((tmp_path / "leaderboard/leaderboard.json").read_text())
    board = found["boards"]["planted"]
    assert set(board) == {
        *leaderboard.OURS,
        leaderboard.PRINTED,
        *leaderboard.BASELINES,
    }
    assert all(line["folds"] == 1 for line in board.values())
    assert all(0 <= line["micro_f1"] <= 100 for line in board.values())
    assert {"commit", "command", "settings"} <= set(found)
    assert "planted" in (tmp_path / "leaderboard/leaderboard.html").read_text()
    assert leaderboard.main(options) == 0
    assert len(asked) == len(leaderboard.GROUPS)
    assert leaderboard.TUNED in capsys.readouterr().out

"""The measurement of folds learned together against `fit` on each."""

import pytest

from experiments import folders, together, turns

SECONDS = {"fit": [10.0, 30.0], "loop": [8.0, 8.0], "vmap": [40.0, 40.0]}


def test_ratios_are_of_medians_in_turns(monkeypatch, tmp_path, capsys):
    asked = []

    class Worker:
        def __init__(self, command, folder, timeout):
            self.cores = int(command[-1])

        def ask(self, what, *, way, **others):
            turn = asked.count((self.cores, way))
            asked.append((self.cores, way))
            return {
                "seconds": SECONDS[way][turn],
                "cpu_seconds": 2 * SECONDS[way][turn],
                "epochs": 100,
                "epoch_seconds": 0.01,
                "test_micro_f1": [0.7, 0.8],
            }

        def end(self):
            pass

    monkeypatch.setattr(turns, "Worker", Worker)
    monkeypatch.setattr(together, "load_dataset", lambda name, fold: None)
    monkeypatch.setattr(together.os, "sched_getaffinity", lambda who: {0})
    arguments = ["--models", "gcn", "--repeats", "2", "--workdir", str(tmp_path)]
    assert together.main(arguments) == 0
    ways = ["fit", "loop", "vmap"]
    assert asked == [(1, way) for way in ways] * 2
    found = folders.read_json(tmp_path / "together.json")
    assert [row["way"] for row in found["rows"]] == ways
    assert [row["ratio"] for row in found["rows"]] == [1, 2.5, 0.5]
    assert [row["cpu_ratio"] for row in found["rows"]] == [1, 2.5, 0.5]
    assert found["command"].startswith("python -m experiments.together --models gcn")
    printed = capsys.readouterr().out
    assert "2 cores: left out" in printed
    assert ["gcn", "1", "loop", "8.0", "2.50", "16.0", "2.50", "10.00", "75.00"] in [
        line.split() for line in printed.splitlines()
    ]


@pytest.mark.slow
def test_it_measures(tmp_path):
    arguments = ["--dataset", "planted", "--models", "bl-node", "--folds", "1,2"]
    arguments += ["--cores", "1", "--repeats", "1", "--max-epochs", "2"]
    assert together.main([*arguments, "--workdir", str(tmp_path)]) == 0
    rows = folders.read_json(tmp_path / "together.json")["rows"]
    assert all(row["epochs"] == 4 and row["seconds"] > 0 for row in rows)
    assert len({tuple(row["test_micro_f1"]) for row in rows}) == 1

"""make reproduce: its table, resuming, starting over, and what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import hopf_jax
from experiments import paper, reproduce
from experiments.common import cells, output, runner, score_table
from experiments.reproduce import choose_hops
from hopf_jax.datasets import DatasetError
from hopf_jax.kernels import MODELS

MODELS_RUN = "bl-node,ss-ica"


def run(workdir, *more, models=MODELS_RUN, dataset="planted", folds="1,2"):
    arguments = ["--dataset", dataset, "--models", models, "--folds", folds]
    arguments += ["--workers", "1", "--max-epochs", "1", "--workdir", str(workdir)]
    status = reproduce.main([*arguments, *more])
    return status, output.read_json(workdir / dataset / "table.json")


def without_times(table):
    """What a second run must give again."""

    def timeless(entry):
        kept = {k: v for k, v in entry.items() if "seconds" not in k and k != "peak_mb"}
        return {k: timeless(v) if isinstance(v, dict) else v for k, v in kept.items()}

    kept = {model: timeless(entry) for model, entry in table["models"].items()}
    return table | {"models": kept, "command": "", "total_seconds": 0, "peak_mb": 0}


def kept(workdir, dataset="planted"):
    folder = workdir / dataset / "cells"
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.json")}


def test_table_and_reports_are_complete(tiny, tmp_path, capsys):
    status, table = run(tmp_path, models="bl-node,ss-ica", dataset="cora")
    assert status == 0
    assert list(table["models"]) == ["bl-node", "ss-ica"]
    for model, entry in table["models"].items():
        for metric in ("micro_f1", "macro_f1"):
            assert set(entry[metric]) == {"mean", "std", "folds"}
            assert len(entry[metric]["folds"]) == 2
            assert 0 <= entry[metric]["mean"] <= 100
        assert entry["paper"] == paper.TRANSDUCTIVE[model]["cora"]
        assert entry["hops"] == 2 and entry["epochs"] > 0 and entry["seconds"] > 0
        iterations = paper.NUM_ITERATIONS if MODELS[model].iterative else 1
        assert len(entry["iterations_micro_f1"]) == iterations
    assert {"versions", "commit", "settings", "command", "seed"} <= set(table)
    assert "--max-epochs 1" in table["command"]
    printed = capsys.readouterr().out
    assert "bl-node" in printed and "59.85" in printed
    folder = tmp_path / "cora"
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 4
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "@pictures" not in page and "**" not in page and ">ss-ica</td>" in page
    text = (folder / "report.md").read_text()
    assert "| ss-ica |" in text and "75.34" in text
    for name in ("micro_f1.png", "iterations.png", "losses.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG") and name in text


def test_resuming_gives_what_an_unbroken_run_gives(
    pretended, tmp_path, monkeypatch, capsys
):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    _, expected = run(whole)
    real, done = cells.run, []

    def stop_at_third(cell, *more):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(cell)
        return real(cell, *more)

    monkeypatch.setattr(cells, "run", stop_at_third)
    with pytest.raises(SystemExit) as stopped:
        run(broken)
    assert stopped.value.code == 130
    assert not (broken / "planted" / "table.json").exists()
    assert "Ctrl-C: 2 of 6 cells are done and saved" in capsys.readouterr().err
    before = kept(broken)
    assert len(before) == 2
    monkeypatch.setattr(cells, "run", real)
    status, table = run(broken)
    after = kept(broken)
    assert status == 0 and len(after) == 6  # ss-ica has two kinds of summaries.
    assert all(after[name] == at for name, at in before.items())  # Not run again.
    assert without_times(table)["models"] == without_times(expected)["models"]


def test_saved_cells_are_reused_until_a_fresh_start(pretended, tmp_path, monkeypatch):
    _, first = run(tmp_path)
    before, pretend = kept(tmp_path), cells.run
    monkeypatch.setattr(cells, "run", lambda *given: pytest.fail("computed again"))
    _, second = run(tmp_path)
    assert without_times(second) == without_times(first)
    assert second["models"] == first["models"]  # Times too: they are the cells'.
    monkeypatch.setattr(cells, "run", pretend)
    _, third = run(tmp_path, "--fresh", models="bl-node")
    after = kept(tmp_path)
    assert set(after) == set(before)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {name for name in before if name.startswith("bl-node")}
    again = without_times(third)["models"]["bl-node"]
    assert again == without_times(first)["models"]["bl-node"]


def test_other_settings_are_other_cells(pretended, tmp_path, monkeypatch):
    run(tmp_path, models="bl-node", folds="1")
    run(tmp_path, "--seed", "1", models="bl-node", folds="1")
    assert len(kept(tmp_path)) == 2
    monkeypatch.setattr(cells, "code_digest", lambda: "other code")
    _, first = run(tmp_path, models="bl-node", folds="1")
    assert len(kept(tmp_path)) == 3
    # A damaged cell is computed again.
    for path in (tmp_path / "planted" / "cells").glob("*.json"):
        path.write_text(path.read_text()[:100])
    _, second = run(tmp_path, models="bl-node", folds="1")
    assert without_times(second) == without_times(first)


def test_folds_trained_together_are_cells_and_logs_of_their_own(tiny, tmp_path):
    _, apart = run(tmp_path, models="bl-node")
    before, log = kept(tmp_path), tmp_path / "log"
    status, table = run(
        tmp_path, "--together", "--log-json", str(log), models="bl-node"
    )
    assert status == 0 and len(before) == 2
    after = kept(tmp_path)
    assert len(after) == 4 and before.items() <= after.items()
    assert {path.suffix for path in (tmp_path / "planted/cells").iterdir()} == {".json"}
    for metric in ("micro_f1", "train_micro_f1", "iteration", "epochs"):
        one, other = (t["models"]["bl-node"][metric] for t in (table, apart))
        assert one == other
    events = {}
    for line in map(json.loads, log.read_text().splitlines()):
        assert "fold" not in line
        events.setdefault(line["run"].rsplit("/", 1)[0], []).append(line["event"])
    whole = ["started", "epoch", "iteration", "finished"]
    assert events == {f"planted/bl-node/fold-{n}": whole for n in (1, 2)}


def test_folds_together_are_one_job_and_saved_one_by_one(
    pretended, tmp_path, monkeypatch
):
    pretend, asked = cells.run, []

    def note(cell, *others):
        asked.append((cell.model, cell.fold))
        return pretend(cell)

    monkeypatch.setattr(cells, "run", note)
    _, first = run(tmp_path, "--together")
    assert asked == [("bl-node", 1), ("ss-ica", 1), ("ss-ica", 1)]
    before = kept(tmp_path)
    assert len(before) == 6
    lost, _ = (tmp_path / "planted" / "cells").glob("ss-ica-fold2-*.json")
    lost.unlink()
    _, second = run(tmp_path, "--together")
    assert asked[3:] == [("ss-ica", 2)]
    assert without_times(second)["models"] == without_times(first)["models"]
    after = kept(tmp_path)
    assert {name for name in after if after[name] != before[name]} == {lost.name}


def test_folds_that_fit_no_one_program_are_trained_one_by_one(tiny, tmp_path):
    # Sampled neighbours cannot be joined; nothing of that remains but records.
    config = hopf_jax.Config(
        num_hops=1, fanouts=(2,), hidden_size=4, max_epochs=1, num_iterations=1
    )
    cell = cells.Cell("planted", "gcn", 1, config, together=(1, 2))
    _, record, problem = runner.run_and_save(cell, tmp_path)
    assert record is not None and not problem
    assert all(each.read(tmp_path) is not None for each in cell.siblings)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json"}


@pytest.mark.parametrize("together", [False, True])
def test_a_cell_that_fails_leaves_the_others(
    pretended, tmp_path, monkeypatch, capsys, together
):
    real = cells.run

    def fail(cell, *more):
        if cell.model == "ss-ica" and cell.siblings[-1].fold == 2:
            raise ValueError("Training diverged at epoch 1.")
        return real(cell, *more)

    monkeypatch.setattr(cells, "run", fail)
    status, table = run(tmp_path, *["--together"] * together)
    assert status == 1 and list(table["models"]) == ["bl-node"]
    failed = ["ss-ica fold 1", "ss-ica fold 2"] if together else ["ss-ica fold 2"]
    failed *= 2  # As printed, and without the echo.
    assert [failure.split(":")[0] for failure in table["failures"]] == failed
    assert "diverged" in (tmp_path / "planted" / "report.md").read_text()
    assert "FAILED" in capsys.readouterr().err


def test_hops_are_chosen_by_validation(pretended, tmp_path):
    _, table = run(tmp_path, "--hops", "1,2", models="nip-mean,ss-ica", folds="1")
    tried = table["models"]["nip-mean"]["hops_tried"]
    assert set(tried) == {"1", "2"}
    merit = {h: sum(entry["validation"].values()) for h, entry in tried.items()}
    assert merit["1"] != merit["2"]
    assert merit[str(table["models"]["nip-mean"]["hops"])] == max(merit.values())
    # Its one hop says it all: there is nothing to choose.
    assert "hops_tried" not in table["models"]["ss-ica"]
    assert "validation micro" in (tmp_path / "planted" / "report.md").read_text()


def test_test_nodes_do_not_choose():
    def record(validation, test):
        score = {"micro_f1": validation, "macro_f1": validation}
        return {"scores": {"validation": score, "test": {"micro_f1": test}}}

    records = {1: [record(50, 99)], 2: [record(60, 10)], 3: [record(60, 98)]}
    assert choose_hops(records) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dataset", "coral"], "no dataset is called 'coral'; known: cora,"),
        (["--dataset", "cora", "--models", "gnc"], "no model is called 'gnc'"),
        (["--dataset", "cora", "--models", "gcn,"], "empty model"),
        (["--dataset", "cora", "--folds", "6"], "they are 1 to 5"),
        (["--dataset", "cora", "--folds", "x"], "they are 1 to 5"),
        (["--dataset", "cora", "--seed", "-1"], "whole number"),
        (["--dataset", "cora", "--hops", "two"], "whole number above 0"),
        ([], "--dataset"),
    ],
)
def test_mistakes_are_named(arguments, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        reproduce.main(arguments)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_a_dataset_that_cannot_be_had_is_a_mistake_too(monkeypatch, capsys):
    def refuse(name, fold):
        raise DatasetError("Put the files of blog in /somewhere.")

    monkeypatch.setattr(reproduce, "load_dataset", refuse)
    with pytest.raises(SystemExit):
        reproduce.main(["--dataset", "blog"])
    assert "Put the files of blog" in capsys.readouterr().err


def test_check_fails_below_the_goal(pretended, tmp_path, capsys):
    assert run(tmp_path, models="bl-node", dataset="cora")[0] == 0
    status, table = run(tmp_path, "--check", models="bl-node", dataset="cora")
    assert score_table.verdict(table["models"]["bl-node"]).startswith("short")
    assert status == 1 and "cora bl-node" in capsys.readouterr().err


def test_several_datasets_are_aggregated(pretended, tmp_path, capsys):
    models = "bl-node,gcn,nip-mean"
    status, _ = run(tmp_path, models=models, dataset="cora,citeseer", folds="1")
    assert status == 0
    found = output.read_json(tmp_path / "all" / "table.json")
    assert set(found["ours"]["shortfall"]) == set(models.split(","))
    assert found["datasets"] == ["cora", "citeseer"]
    assert any(f["paper_all"]["holds"] for f in found["findings"])
    assert (tmp_path / "all" / "report.html").read_text().count("<img") == 2
    assert "shortfall" in capsys.readouterr().out
    # One model stands beside the paper's, but differs from none.
    status, _ = run(tmp_path, models="gcn", dataset="cora,citeseer", folds="1")
    assert status == 0
    assert "<img" not in (tmp_path / "all" / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_killed_processes_resume(tmp_path, how):
    """The real thing: processes, killed from outside while they work."""
    command = [sys.executable, "-m", "experiments.reproduce", "--dataset", "planted"]
    command += ["--models", "bl-node,gcn", "--folds", "1,2", "--max-epochs", "2"]
    command += ["--workers", "2", "--workdir"]

    def start(workdir):
        return subprocess.Popen(
            [*command, str(workdir)],
            cwd=output.ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(output.ROOT)},
        )

    with start(tmp_path / "killed") as process:
        for _ in range(600):
            if kept(tmp_path / "killed"):
                break
            time.sleep(0.1)
        process.send_signal(how)
        said = process.communicate(timeout=30)[1]
        assert process.returncode != 0
    # Who is killed outright says nothing; the others never end silently.
    assert ("are done and saved" in said) == (how != signal.SIGKILL)
    time.sleep(2.5)  # Orphans notice within a second.
    before = kept(tmp_path / "killed")
    assert 0 < len(before) < 4
    for workdir in ("killed", "whole"):
        with start(tmp_path / workdir) as process:
            process.communicate(timeout=240)
            assert process.returncode == 0
    tables_ = [
        json.loads((tmp_path / workdir / "planted" / "table.json").read_text())
        for workdir in ("killed", "whole")
    ]
    first, second = (without_times(table)["models"] for table in tables_)
    assert first == second
    after = kept(tmp_path / "killed")
    assert all(after[name] == at for name, at in before.items())

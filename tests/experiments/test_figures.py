"""make inductive, neighbors, iterations and data, and logistic regression."""

import json
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from experiments import (
    data,
    inductive,
    iterations,
    logistic_regression,
    neighbors,
    paper,
)
from experiments.common import arguments, cells, drawing, output, runner
from hopf_jax import Config, fit
from hopf_jax.datasets import locations
from tests import graphs
from tests.experiments.conftest import two_graphs

QUICK = ["--max-epochs", "1", "--workers", "1", "--workdir"]


@pytest.mark.parametrize("dataset", ["human", "human-go2022"])
def test_inductive_compares_with_the_paper_where_labels_agree(
    pretended, tmp_path, capsys, dataset
):
    arguments = ["--dataset", dataset, "--models", "nip-mean", "--hops", "1"]
    assert inductive.main([*arguments, *QUICK, str(tmp_path)]) == 0
    agrees, folder = dataset == "human", tmp_path / "inductive"
    found = output.read_json(folder / "inductive.json")
    assert found["labels_are_the_papers"] is agrees
    published = paper.INDUCTIVE["nip-mean"] if agrees else None
    assert found["models"]["nip-mean"]["paper"] == published
    for text in (capsys.readouterr().out, (folder / "report.md").read_text()):
        assert ("not the paper's" in text) is not agrees
        assert "stops at epoch 1," in text
    assert (folder / "inductive.png").exists()


def test_inductive_limits_epochs_unless_told_otherwise(
    tiny, monkeypatch, tmp_path, capsys
):
    asked = []
    monkeypatch.setattr(
        runner, "run_cells", lambda wanted, *_, **__: asked.extend(wanted)
    )
    arguments = ["--dataset", "human-go2022", "--workdir", str(tmp_path)]
    assert inductive.main(arguments) == 0
    assert {cell.model for cell in asked} == set(paper.INDUCTIVE)
    assert {cell.config.max_epochs for cell in asked} == {30}
    # The longest does not come last, when the other core has nothing left to do.
    assert {cell.model for cell in asked[:3]} == {"gs-lstm", "i-nip-mean", "gs-max"}
    asked.clear()
    assert inductive.main([*arguments, "--max-epochs", "2000"]) == 0
    assert {cell.config.max_epochs for cell in asked} == {2000}
    assert "by the validation tissues alone" in capsys.readouterr().out


def test_replaying_equals_learning_beside_the_new_graph():
    """The graphs are not joined, so seeing the new one could not have helped."""
    config = paper.protocol_config(
        hidden_size=4, num_iterations=2, max_epochs=2, dropout=0.0
    )
    cell = cells.Cell("human", "i-nip-mean", 1, config, split="inductive")
    _, apart = cells._learn_inductively(cell, two_graphs(), fit)
    _, joined = cells._learn(cell, two_graphs(), fit)
    for one, other in zip(apart, joined, strict=True):
        assert one["scores"] == other["scores"]


def test_neighbors(pretended, tmp_path, capsys):
    arguments = ["--dataset", "cora", "--percentages", "50,100", "--folds", "1"]
    assert neighbors.main([*arguments, *QUICK, str(tmp_path)]) == 0
    found = output.read_json(tmp_path / "neighbors" / "neighbors.json")
    assert list(found["micro_f1"]["cora"]) == ["50", "100"]
    assert (tmp_path / "neighbors" / "neighbors.png").exists()
    with pytest.raises(SystemExit):
        neighbors.main(["--percentages", "50,101"])
    assert "more than 100%" in capsys.readouterr().err


def test_iterations(pretended, tmp_path, capsys):
    arguments = ["--dataset", "cora", "--folds", "1,2"]
    assert iterations.main([*arguments, *QUICK, str(tmp_path)]) == 0
    found = output.read_json(tmp_path / "iterations" / "iterations.json")
    for entry in found["datasets"]["cora"].values():
        assert len(entry["micro_f1"]) == len(entry["std"]) == paper.NUM_ITERATIONS
        assert len(entry["leak"]["2"]["train"]) == paper.NUM_ITERATIONS - 1
    assert set(found["datasets"]["cora"]) == {
        f"i-nip-mean, {kind}" for kind in iterations.KINDS
    }
    for name in ("iterations.png", "leak.png"):
        assert (tmp_path / "iterations" / name).exists()
    with pytest.raises(SystemExit):
        iterations.main(["--models", "gcn"])
    assert "do not iterate" in capsys.readouterr().err


def test_a_worker_that_is_killed_is_tried_alone(tmp_path, monkeypatch):
    """Two cells at once may need too much memory where one does not."""
    wanted = [
        cells.Cell("cora", "gcn", fold, Config(), split="transductive")
        for fold in (1, 2, 3)
    ]
    record = {"scores": {}}

    class Pool:
        def __init__(self, workers):
            self.workers = workers

        def submit(self, call, cell):
            future = Future()
            if cell.fold == 2 or (cell.fold == 3 and self.workers > 1):
                future.set_exception(BrokenProcessPool())
            else:
                future.set_result((cell, record, ""))
            return future

    @contextmanager
    def pool(workers):
        yield Pool(workers)

    monkeypatch.setattr(runner, "pool", pool)
    problems = {}
    found = runner.run_cells(
        wanted,
        tmp_path,
        workers=2,
        on_done=lambda cell, record, problem: problems.update({cell.fold: problem}),
    )
    assert {cell.fold for cell in found} == {1, 3}
    assert "perhaps out of memory" in problems[2]


@pytest.mark.parametrize(("threads", "pools"), [("1", []), ("2", [1])])
def test_a_cell_alone_has_one_thread_like_those_of_a_pool(
    threads, pools, tmp_path, monkeypatch
):
    cell = cells.Cell("cora", "gcn", 1, Config(), split="transductive")
    started = []

    class Pool:
        def submit(self, call, cell):
            future = Future()
            future.set_result(call(cell))
            return future

    @contextmanager
    def pool(workers):
        started.append(workers)
        yield Pool()

    monkeypatch.setenv("PJRT_NPROC", threads)
    monkeypatch.setattr(runner, "pool", pool)
    monkeypatch.setattr(cells, "run", lambda cell, *_: {cell: {"scores": {}}})
    assert set(runner.run_cells([cell], tmp_path, workers=2)) == {cell}
    assert started == pools


# Provenance


def test_results_name_the_commit_at_the_start(monkeypatch, request):
    heads = ["first", "second"]

    def git(command, **_):
        return SimpleNamespace(stdout="" if "status" in command else heads.pop(0))

    output.commit.cache_clear()
    request.addfinalizer(output.commit.cache_clear)
    monkeypatch.setattr(output.subprocess, "run", git)
    options = arguments.parser(None, "experiments.neighbors").parse_args([])
    assert heads == ["second"]
    assert output.provenance(options.invocation)["commit"] == "first"


def test_a_picture_that_fails_loses_no_results(tmp_path):
    class Broken:
        def savefig(self, *_, **__):
            raise RuntimeError("no fonts")

    with pytest.raises(RuntimeError, match="no fonts"):
        drawing.save_results(tmp_path, "found", {"f1": 80.0}, Broken(), ["x"])
    assert output.read_json(tmp_path / "found.json")["f1"] == 80.0


# make data


@pytest.fixture
def bare_machine(monkeypatch, tmp_path):
    monkeypatch.delenv("HOPF_DATA", raising=False)
    monkeypatch.setenv("HOPF_CACHE", str(tmp_path))
    monkeypatch.setattr(locations, "CHECKOUT", tmp_path / "project" / "checkout")


def test_data_prints_a_row_per_dataset(bare_machine, capsys):
    assert data.main(["chain"]) == 0
    printed = capsys.readouterr()
    assert "Loading chain" in printed.err
    header, row = printed.out.splitlines()[:2]
    assert header.split()[:3] == ["dataset", "task", "nodes"]
    assert row.split()[:5] == ["chain", "multi-class", "6", "10", "5"]


def test_missing_datasets_are_listed_and_are_no_error(bare_machine, capsys):
    assert data.main([]) == 0
    assert "Not on this machine: cora" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["reddit", "nonsense"])
def test_a_dataset_that_cannot_be_fetched_is_an_error(bare_machine, capsys, name):
    assert data.main([name]) == 1
    assert name in capsys.readouterr().err


# Logistic regression


def test_logistic_regression_scores_each_fold_above_chance(tmp_path):
    run = ["--dataset", "planted", "--folds", "1,2", "--workdir", str(tmp_path)]
    assert logistic_regression.main(run) == 0
    found = json.loads((tmp_path / "logistic_regression.json").read_text())
    entry = found["micro_f1"]["planted"]
    assert len(entry["folds"]) == 2 and entry["mean"] > 30  # Of four classes.
    assert "experiments.logistic_regression" in found["command"]


def test_logistic_regression_refuses_several_labels_per_node(monkeypatch):
    graph = graphs.tiny(multilabel=True)
    monkeypatch.setattr(logistic_regression, "load_dataset", lambda name, fold: graph)
    with pytest.raises(SystemExit, match="several labels"):
        logistic_regression._score("yeast", 1)

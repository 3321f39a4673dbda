"""make inductive, neighbors, iterations and scaling, on small graphs."""

import numpy as np
import pytest

from experiments import (
    cells,
    folders,
    growth,
    inductive,
    iterations,
    neighbors,
    paper,
    points,
    running,
    scaling,
)
from hopf_jax import Config, Graph, fit
from hopf_jax.datasets import make_planted, split_graph

QUICK = ["--max-epochs", "1", "--workers", "1", "--workdir"]


def two_graphs():
    """Two graphs side by side: the first to learn from, the second new."""
    first, second = make_planted(60, 150, 6, 3), make_planted(30, 60, 6, 3, seed=1)
    halves = [
        np.repeat(np.arange(len(g.indptr) - 1), np.diff(g.indptr))
        for g in (first, second)
    ]
    return Graph.from_edges(
        np.concatenate([first.indices, second.indices + 60]),
        np.concatenate([halves[0], halves[1] + 60]),
        np.concatenate([first.features, second.features]),
        np.concatenate([first.labels, second.labels]),
        train=np.arange(40),
        validation=np.arange(40, 60),
        test=np.arange(60, 90),
        multilabel=False,
    )


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    def load(name, fold=1, percent=10, split="transductive"):
        if split == "inductive":
            return two_graphs()
        return split_graph(make_planted(60, 150, 6, 3), percent=60, fold=fold)

    cells._load.cache_clear()
    monkeypatch.setattr(cells, "load_dataset", load)
    monkeypatch.setattr(inductive, "load_dataset", load)
    yield
    cells._load.cache_clear()


def test_inductive_says_whose_labels(pretended, tmp_path, capsys):
    arguments = ["--dataset", "human-go2022", "--models", "nip-mean", "--hops", "1"]
    assert inductive.main([*arguments, *QUICK, str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "not the paper's" in said
    assert "stops at epoch 1," in said
    found = folders.read_json(tmp_path / "inductive" / "inductive.json")
    assert found["labels_are_the_papers"] is False
    assert found["models"]["nip-mean"]["paper"] is None
    report = (tmp_path / "inductive" / "report.md").read_text()
    assert "not the paper's" in report
    assert "stops at epoch 1," in report


def test_inductive_ends_in_hours_unless_it_is_to_go_on(monkeypatch, tmp_path, capsys):
    asked = []
    monkeypatch.setattr(
        running, "run_cells", lambda wanted, *_, **__: asked.extend(wanted)
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


def test_inductive_compares_where_it_can(pretended, tmp_path):
    arguments = ["--dataset", "human", "--models", "nip-mean", "--hops", "1"]
    assert inductive.main([*arguments, *QUICK, str(tmp_path)]) == 0
    found = folders.read_json(tmp_path / "inductive" / "inductive.json")
    assert found["models"]["nip-mean"]["paper"] == paper.INDUCTIVE["nip-mean"]
    assert (tmp_path / "inductive" / "inductive.png").exists()


def test_replaying_equals_learning_beside_the_new_graph():
    """The graphs are not joined, so seeing the new one could not have helped."""
    config = Config(hidden_size=4, num_iterations=2, max_epochs=2, dropout=0.0)
    cell = cells.Cell("human", "i-nip-mean", 1, config, split="inductive")
    _, apart = cells._learn_inductively(cell, two_graphs(), fit)
    _, joined = cells._learn(cell, two_graphs(), fit)
    for one, other in zip(apart, joined, strict=True):
        assert one["scores"] == other["scores"]


def test_neighbors(pretended, tmp_path, capsys):
    arguments = ["--dataset", "cora", "--percentages", "50,100", "--folds", "1"]
    assert neighbors.main([*arguments, *QUICK, str(tmp_path)]) == 0
    found = folders.read_json(tmp_path / "neighbors" / "neighbors.json")
    assert list(found["micro_f1"]["cora"]) == ["50", "100"]
    assert (tmp_path / "neighbors" / "neighbors.png").exists()
    with pytest.raises(SystemExit):
        neighbors.main(["--percentages", "50,101"])
    assert "more than all" in capsys.readouterr().err


def test_iterations(pretended, tmp_path, capsys):
    arguments = ["--dataset", "cora", "--folds", "1,2"]
    assert iterations.main([*arguments, *QUICK, str(tmp_path)]) == 0
    found = folders.read_json(tmp_path / "iterations" / "iterations.json")
    for entry in found["datasets"]["cora"].values():
        assert len(entry["micro_f1"]) == len(entry["std"]) == paper.NUM_ITERATIONS
    assert (tmp_path / "iterations" / "iterations.png").exists()
    with pytest.raises(SystemExit):
        iterations.main(["--models", "gcn"])
    assert "do not iterate" in capsys.readouterr().err


def test_scaling_measures_a_point():
    point = points.measure("i-nip-mean", 1, 2, 200, 400, 1, whole=1, fewer=True)
    assert point["outcome"] == "measured" and point["iterations"] == 2
    assert point["seconds"] == pytest.approx(2 * point["epoch_seconds"], rel=1)
    assert point["peak_gb"] >= point["graph_gb"] > 0
    assert len(point["fits_seconds"]) == 2  # Of one iteration and of two.
    assert point["fit_seconds"] == point["fits_seconds"][-1] > 0


def test_scaling_shows_what_did_not_fit(tmp_path, monkeypatch, capsys):
    def pretend(point, memory, timeout):
        assert memory == 4 and timeout == 900
        if point["hops"] > 1:
            return {"outcome": "out of memory", "peak_gb": 9.0}
        measured = {"outcome": "measured", "seconds": 0.1 * point["iterations"]}
        return measured | {"epoch_seconds": 0.1, "peak_gb": 1.0, "iterations": 1}

    monkeypatch.setattr(points, "in_a_process", pretend)
    assert (
        scaling.main(["--hops", "3", "--part", "curves", "--workdir", str(tmp_path)])
        == 0
    )
    found = folders.read_json(tmp_path / "scaling" / "scaling.json")["curves"]
    outcomes = [p["outcome"] for p in found["NIP-MEAN, C = K"].values()]
    assert outcomes == ["measured", "out of memory", "out of memory"]
    assert list(found["I-NIP-MEAN, C = 2"]) == ["2"]
    assert (tmp_path / "scaling" / "scaling.png").exists()
    assert "out of memory" in capsys.readouterr().out


def test_growth_is_told_in_figures(tmp_path, monkeypatch, capsys):
    def pretend(point, memory, timeout):
        iterations, nodes = point["iterations"], point["num_nodes"]
        return {
            "outcome": "measured",
            "fit_seconds": 1e-3 * iterations * nodes + 5,
            "seconds": 1e-3 * nodes,
            "epoch_seconds": 1e-3 * nodes,
            "inference_seconds": None,
            "peak_gb": 1 + 0.01 * iterations,
            "iterations": iterations,
            "fits_seconds": [1e-3 * t * nodes + 5 for t in range(1, iterations + 1)],
        }

    monkeypatch.setattr(points, "in_a_process", pretend)
    arguments = ["--part", "growth", "--workdir", str(tmp_path)]
    assert scaling.main(arguments) == 0
    found = folders.read_json(tmp_path / "scaling" / "growth.json")
    assert found["linear_in_iterations"] == pytest.approx(1)
    assert found["linear_in_nodes"] == pytest.approx(1)
    assert found["memory_growth"] == pytest.approx(1.1 / 1.01 - 1)
    assert found["largest"]["num_nodes"] == 10**6
    assert found["largest"]["num_edges"] == 5 * 10**6
    assert (tmp_path / "scaling" / "growth.png").exists()
    assert "NO" in (tmp_path / "scaling" / "growth.md").read_text()
    assert "9% more" in capsys.readouterr().out


def test_rounds_of_a_point_are_one():
    found = [
        {"outcome": "measured", "iterations": 2, "fit_seconds": 3.0, "peak_gb": peak}
        for peak in (0.7, 0.9, 0.6)
    ]
    fits = {"outcome": "measured", "fits_seconds": [1.0, 2.0, 3.0]}
    one = growth.merged(found, fits)
    assert (one["fit_seconds"], one["peak_gb"]) == (2.0, 0.7)
    assert one["peaks_gb"] == [0.7, 0.9, 0.6]
    lost = {"outcome": "timed out", "peak_gb": 0.8}
    assert growth.merged([found[0], lost]) == growth.merged(found, lost) == lost
    assert growth.merged(found[:1]) == found[0]


def test_how_linear():
    assert growth.r_squared([1, 2, 3], [2.0, 4.0, 6.0]) == pytest.approx(1)
    assert growth.r_squared([1, 2, 3], [1.0, 4.0, 1.0]) == pytest.approx(0)


@pytest.mark.slow
def test_scaling_ends_a_process_at_the_cap(tmp_path):
    arguments = ["--hops", "1", "--nodes", "200", "--edges", "400", "--epochs", "1"]
    arguments += ["--part", "curves", "--workdir", str(tmp_path)]
    assert scaling.main([*arguments, "--memory", "0.05"]) == 0
    found = folders.read_json(tmp_path / "scaling" / "scaling.json")["curves"]
    assert found["NIP-MEAN, C = K"]["1"]["outcome"] == "out of memory"
    assert scaling.main(arguments) == 0
    found = folders.read_json(tmp_path / "scaling" / "scaling.json")["curves"]
    assert found["NIP-MEAN, C = K"]["1"]["outcome"] == "measured"


def test_a_worker_that_is_killed_is_tried_alone(tmp_path, monkeypatch):
    """Two at once may be too much for the memory where one is not."""
    from concurrent.futures import Future
    from concurrent.futures.process import BrokenProcessPool
    from contextlib import contextmanager

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

    monkeypatch.setattr(running, "_pool", pool)
    problems = {}
    found = running.run_cells(
        wanted,
        tmp_path,
        workers=2,
        on_done=lambda cell, record, problem: problems.update({cell.fold: problem}),
    )
    assert {cell.fold for cell in found} == {1, 3}
    assert "out of memory?" in problems[2]

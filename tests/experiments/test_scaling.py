"""make scaling, halos, hosts, memory-mapped graphs, and the tables of the docs."""

import json
import subprocess
import sys

import numpy as np
import pytest

import hopf_jax
from experiments.common import output, workers
from experiments.scaling import __main__ as scaling
from experiments.scaling import (
    doc_tables,
    growth_curves,
    halos,
    large_graph,
    measurement,
    parts,
    weak_scaling,
)
from hopf_jax.datasets import make_planted


def test_scaling_measures_a_point(monkeypatch):
    fits = []

    def fit(*arguments, fit=hopf_jax.fit, **more):
        fits.append(fit(*arguments, **more))
        return fits[-1]

    monkeypatch.setattr(hopf_jax, "fit", fit)
    before = workers.peak_gb()
    point = measurement.measure("i-nip-mean", 1, 2, 200, 400, 1, whole=1, fewer=True)
    assert point["outcome"] == "measured" and point["iterations"] == 2
    # One epoch of each iteration counts, after one that compiles.
    timed = [r["seconds"] for r in fits[0].history if r["epoch"] == 2]
    assert len(timed) == 2 and len(fits[0].history) == 4
    assert point["seconds"] == pytest.approx(sum(timed), abs=1e-4)
    assert point["epoch_seconds"] == pytest.approx(sum(timed) / 2, abs=1e-4)
    assert point["inference_seconds"] > 0
    assert point["roots"] == fits[0].graph.train.sum() > 0
    least, most = round(before, 3), round(workers.peak_gb(), 3)
    assert 0 < least <= point["peak_gb"] <= most
    assert len(point["fits_seconds"]) == 2  # Of one iteration and of two.
    assert point["fit_seconds"] == point["fits_seconds"][-1] > 0


def test_scaling_shows_what_did_not_fit(tmp_path, monkeypatch, capsys):
    def pretend(point, memory, timeout):
        assert memory == 4 and timeout == 900
        if point["hops"] > 1:
            return {"outcome": "out of memory", "peak_gb": 9.0}
        measured = {"outcome": "measured", "seconds": 0.1 * point["iterations"]}
        return measured | {"epoch_seconds": 0.1, "peak_gb": 1.0, "iterations": 1}

    monkeypatch.setattr(measurement, "in_process", pretend)
    arguments = ["--hops", "3", "--part", "curves", "--workdir", str(tmp_path)]
    assert scaling.main(arguments) == 0
    found = output.read_json(tmp_path / "scaling" / "scaling.json")["curves"]
    outcomes = [p["outcome"] for p in found["NIP-MEAN, C = K"].values()]
    assert outcomes == ["measured", "out of memory", "out of memory"]
    assert list(found["I-NIP-MEAN, C = 2"]) == ["2"]
    assert (tmp_path / "scaling" / "scaling.png").exists()
    assert "out of memory" in capsys.readouterr().out


def test_growth_is_summarised(tmp_path, monkeypatch, capsys):
    def pretend(point, memory, timeout):
        iterations, nodes = point["iterations"], point["num_nodes"]
        fits = [1e-3 * t * nodes + 5 for t in range(1, iterations + 1)]
        times = {"epoch_seconds": 1e-3 * nodes, "fit_seconds": fits[-1]}
        about = {"outcome": "measured", "peak_gb": 1 + 0.01 * iterations}
        return about | times | {"iterations": iterations, "fits_seconds": fits}

    monkeypatch.setattr(measurement, "in_process", pretend)
    assert scaling.main(["--part", "growth", "--workdir", str(tmp_path)]) == 0
    found = output.read_json(tmp_path / "scaling" / "growth.json")
    assert found["linear_in_iterations"] == pytest.approx(1)
    assert found["linear_in_nodes"] == pytest.approx(1)
    assert found["memory_growth"] == pytest.approx(1.1 / 1.01 - 1)
    assert found["largest"]["num_nodes"] == 10**6
    assert found["largest"]["num_edges"] == 5 * 10**6
    assert (tmp_path / "scaling" / "growth.png").exists()
    assert "NO" in (tmp_path / "scaling" / "growth.md").read_text()
    assert "up to 9% more" in capsys.readouterr().out
    assert growth_curves.r_squared([1, 2, 3], [1.0, 4.0, 1.0]) == pytest.approx(0)


def test_processes_of_a_point_are_merged():
    merged = growth_curves.merged
    found = [
        {"outcome": "measured", "iterations": 2, "fit_seconds": 3.0, "peak_gb": peak}
        for peak in (0.7, 0.9, 0.6)
    ]
    one = merged(found, {"outcome": "measured", "fits_seconds": [1.0, 2.0, 3.0]})
    assert (one["fit_seconds"], one["peak_gb"]) == (2.0, 0.7)
    assert one["peaks_gb"] == [0.7, 0.9, 0.6]
    lost = {"outcome": "timed out", "peak_gb": 0.8}
    assert merged([found[0], lost]) == merged(found, lost) == lost
    assert merged(found[:1]) == found[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("memory", "outcome"), [("0.05", "out of memory"), ("4", "measured")]
)
def test_scaling_ends_a_process_at_the_cap(tmp_path, memory, outcome):
    arguments = ["--hops", "1", "--nodes", "200", "--edges", "400", "--epochs", "1"]
    arguments += ["--part", "curves", "--workdir", str(tmp_path), "--memory", memory]
    assert scaling.main(arguments) == 0
    found = output.read_json(tmp_path / "scaling" / "scaling.json")["curves"]
    assert found["NIP-MEAN, C = K"]["1"]["outcome"] == outcome


# Partitioned graphs


def test_halos_of_a_path():
    nodes = np.arange(6)
    path = hopf_jax.Graph.from_edges(nodes[:-1], nodes[1:], np.ones((6, 1)))
    found = halos.measure(path, np.array([0, 0, 0, 1, 1, 1]), 3)
    np.testing.assert_allclose(found["nodes"], np.round([8 / 6, 10 / 6, 2], 4))
    # Into the own nodes; into those and their neighbours (5 + 2 each); ...
    np.testing.assert_allclose(found["arcs"], np.round([1, 14 / 10, 18 / 10], 4))
    np.testing.assert_allclose(found["most"], np.round([4 / 6, 5 / 6, 1], 4))


def test_parts_are_even_and_metis_cuts_less():
    graph = make_planted(300, 1200, homophily=0.98, seed=1)
    for kind in ("metis", "random"):
        sizes = np.bincount(halos.partition(graph, kind, 4))
        assert len(sizes) == 4 and sizes.max() < 90
    cut, shuffled = (
        halos.measure(graph, halos.partition(graph, kind, 4), 1)["nodes"][0]
        for kind in ("metis", "random")
    )
    assert 1 < cut < 0.8 * shuffled


def test_a_mapped_graph_is_measured(tmp_path):
    # In a process of its own: this one holds what other tests compiled.
    sizes = {"nodes": 3000, "edges": 9000, "train": 60, "hidden": 4, "hops": 1}
    argv = [f"--{name}={value}" for name, value in sizes.items()]
    argv += ["--iterations=1", f"--workdir={tmp_path}", "--most=0.01"]
    done = subprocess.run(
        [sys.executable, "-m", "experiments.scaling.large_graph", *argv],
        cwd=output.ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr  # No process is that small.
    found = json.loads((tmp_path / "large" / "large.json").read_text())
    assert found["graph"]["nodes"] == 3000
    assert 0 < found["peak_RssAnon_bytes"] < found["peak_VmHWM_bytes"] < 6e9
    assert found["peak_RssAnon_bytes"] < found["bound_bytes"]


@pytest.mark.slow
def test_a_graph_in_parts_is_measured(tmp_path, capfd):
    sizes = {"nodes": 2000, "edges": 6000, "train": 60, "hidden": 4, "hops": 1}
    argv = [f"--{name}={value}" for name, value in sizes.items()]
    assert parts.main([*argv, "--parts=2,4", f"--workdir={tmp_path}"]) == 0
    found = json.loads((tmp_path / "parts" / "parts-2000.json").read_text())
    assert [run["parts"] for run in found["runs"]] == [2, 4]
    for run in found["runs"]:
        assert run["exchanged"] == run["counted"] > 0
        assert len(run["process"]) == 2 and run["predicted_bytes"] > 0
    assert "4 parts: Parts(4 of 2000 nodes" in capfd.readouterr().out
    table = doc_tables.parts_table(found)
    assert f"{found['runs'][1]['counted']:,}" in table


def test_the_bound_grows_with_the_nodes():
    assert large_graph.bound(0, 5, 16) == 1e9
    each = 4 * (7 * 5 + 3 * 16) + 64
    assert large_graph.bound(10**7, 5, 16) == 1e9 + each * 10**7 < 6e9


@pytest.mark.slow
def test_weak_scaling_is_measured(tmp_path, capfd):
    argv = ["--nodes=500", "--edges=1500", "--roots=256", "--hidden=4", "--epochs=2"]
    assert weak_scaling.main([*argv, f"--workdir={tmp_path}"]) == 0
    assert "2 processes: 512 roots, 1 steps per epoch" in capfd.readouterr().out


# The page


def test_the_page_says_what_was_measured():
    text = doc_tables.DOC.read_text()
    assert doc_tables.render(text, doc_tables.read()) == text


def test_a_table_without_a_place_is_told():
    with pytest.raises(ValueError, match="has 0 places for the table 'halos'"):
        doc_tables.render("", doc_tables.read())


def test_the_count_at_random_is_an_upper_bound():
    graph = make_planted(2000, 6000, seed=5)
    size = doc_tables.Size(graph.num_nodes, graph.num_edges, 1, 1)
    for hosts in (2, 8):
        measured = halos.measure(graph, halos.partition(graph, "random", hosts), 2)[
            "nodes"
        ]
        bounds = [doc_tables.held_at_random(size, hosts, c) for c in (1, 2)]
        assert measured[0] < bounds[0] < 1.25 * measured[0]
        assert measured[1] < bounds[1]

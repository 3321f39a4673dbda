"""make benchmark without its peer, profiles, precisions, and joint folds."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

import hopf_jax
from experiments.benchmark import __main__ as benchmark
from experiments.benchmark import (
    joint_folds,
    layers,
    library_worker,
    limits,
    precision,
    profile,
    report,
    whole_runs,
)
from experiments.benchmark.cases import QUICK
from experiments.common import output, workers
from hopf_jax.batching import Loader, LoaderSettings
from hopf_jax.datasets import make_random


def test_a_quick_run_without_the_peer(tmp_path, capsys):
    nobody = str(tmp_path / "python")
    options = ["--quick", "--peer", nobody, "--workdir", str(tmp_path)]
    assert benchmark.main(options) == 0
    assert capsys.readouterr().out.count("not installed") == 6
    found = json.loads((tmp_path / "benchmark.json").read_text())
    assert (tmp_path / "benchmark.png").stat().st_size > 1000
    assert found["peer"] == "not installed"
    assert {"versions", "commit", "command", "load_before"} <= set(found)
    assert min(found["machine_limit"].values()) > 0
    (case,) = found["cases"].values()
    assert set(case["ratios"].values()) == {"not installed"}
    # With and without the first hop computed ahead, the loss is the same.
    assert case["same_loss"] is True
    ours, plain = case["sides"]["ours"], case["sides"]["ours_plain"]
    assert plain["outcome"] == "measured" and plain["ahead_seconds"] is None
    assert ours["ahead"] and ours["ahead_seconds"] > 0
    # One hop less: no edges, and the work is what that side does.
    assert ours["edges"] == 0 < plain["edges"] and ours["edge_waste"] == 0
    assert ours["work"] != plain["work"]
    table = (tmp_path / "benchmark.md").read_text()
    assert "| quick K=1 |" in table and "not installed" in table
    assert ours["outcome"] == "measured"
    assert [len(turn) for turn in ours["turns"]] == [1, found["epochs_a_turn"]]
    seconds = ours["seconds"]
    assert 0 < seconds["least"] <= seconds["median"] <= seconds["most"]
    assert ours["peak_gb"] > 0 and ours["extraction"]["edges_per_s"] > 0
    assert min(near["share"] for near in case["limit"].values()) > 0
    # An epoch of resident batches is one program, and the rest is small change.
    assert ours["resident"] and 1 <= ours["compilations"] <= 6


def test_a_whole_run_is_timed_to_its_score(tmp_path):
    run = dataclasses.replace(
        whole_runs.QUICK,
        config=dataclasses.replace(
            whole_runs.QUICK.config, max_epochs=2, min_epochs=1, num_iterations=1
        ),
    )
    found = whole_runs.measure(run, None, 1, 600.0, str(tmp_path))
    (ours,) = found["sides"]["ours"]["runs"]
    assert ours["seconds"] > 0 and ours["epochs"] == 2 and ours["iteration"] == 1
    graph = run.load()
    want = hopf_jax.fit(graph, "i-nip-mean", config=run.config, seed=0, progress=False)
    assert ours["test_micro_f1"] == want.scores["test"]["micro_f1"]
    assert found["ratio"] is None
    assert "| quick | PyG, stored batches | not installed |" in report.whole_table(
        {"quick": found}
    )


@pytest.mark.slow
@pytest.mark.skipif(benchmark.find_peer(None) is None, reason="no PyG here")
def test_the_peer_computes_the_same(tmp_path):
    asked = ["--quick", "--whole-runs", "--workdir", str(tmp_path)]
    assert benchmark.main(asked) == 0
    found = json.loads((tmp_path / "benchmark.json").read_text())
    (case,) = found["cases"].values()
    assert case["same_loss"] is True
    assert case["ratios"]["pyg"]["median"] > 0
    batches = {side["batches"] for side in case["sides"].values()}
    assert len(batches) == 1
    both = found["whole_runs"]["quick"]["sides"]
    assert all(side["runs"][0]["epochs"] > 0 for side in both.values())


@pytest.mark.parametrize("hops", [1, 2])
def test_padding_and_bytes_stay_within_bounds(hops):
    graph = make_random(5000, 25_000, 10, 5)
    roots = np.arange(1600)
    how = LoaderSettings(hops, 32, memory_budget=10**9)
    loader = Loader(graph, roots, how, seed=0)
    counted = library_worker.counts(loader)
    assert counted["batches"] == 50
    assert 0 <= counted["node_waste"] < 0.25
    assert 0 <= counted["edge_waste"] < 0.25
    # What the loader plans with is never less than what it holds, nor far more.
    assert counted["resident_bytes"] <= loader.nbytes < 1.3 * counted["resident_bytes"]
    # Ids and degrees of a node; ends and weight of an edge; each hop's rows, twice,
    # and edges, twice, for the gradient: with padding, at most so many words.
    words = (2 + 3 * hops) * counted["nodes"] + (3 + 2 * hops) * counted["edges"]
    assert counted["resident_bytes"] < 4 * 1.25 * (words + 50 * 40 * 6)


def test_streamed_batches_hold_nothing():
    graph = make_random(300, 900, 4, 2)
    loader = Loader(graph, np.arange(64), LoaderSettings(2, 32), seed=0)
    counted = library_worker.counts(loader)
    assert not counted["resident"] and counted["resident_bytes"] == 0


def test_the_stored_graph_is_the_graph(tmp_path):
    graph = make_random(50, 100, 4, 3)
    library_worker.store(graph, tmp_path)
    read, omega = library_worker.read(tmp_path, multilabel=False)
    for name in ("indptr", "indices", "features", "labels", "train"):
        np.testing.assert_array_equal(getattr(read, name), getattr(graph, name))
    assert omega.shape == (3,)


@pytest.mark.parametrize(
    ("sizes", "ahead", "sums", "moved"),
    [
        # 2 roots, 5 nodes, 6 edges, dense features. Means first: 6 x 3 sums, and a row
        # read per edge and written per receiver.
        ([2, 5, 6, 0], False, 2 * 6 * 3, 8 * 5 * 3 + 4 * (6 * 3 + 2 * 3)),
        # The same batch with its hop precomputed: no sums.
        ([2, 0], True, 0, 8 * 2 * 3 + 8 * 2 * 3),
    ],
)
def test_work_of_one_hop_by_hand(sizes, ahead, sums, moved):
    # 2 x 3 x 4 for each of the two products, forward and for the weights; 2 x 4 x 7
    # three times.
    found = limits.work(np.array([sizes]), 1, 3, 4, 7, ahead=ahead)
    flops = 2 * 2 * (2 * 3 * 4 + 2 * 3 * 4) + 2 * 3 * 2 * 4 * 7 + sums
    assert found["gflop"] * 1e9 == pytest.approx(flops)
    assert found["gb"] * 1e9 == pytest.approx(moved)


def test_work_of_a_second_hop_does_not_depend_on_the_first():
    plain = limits.work(np.array([[2, 5, 9, 6, 20, 0]]), 2, 3, 4, 7)
    known = limits.work(np.array([[2, 5, 6, 0]]), 2, 3, 4, 7, ahead=True)
    sums = 2 * 20 * 3  # In the cheaper order, after which the products are the same.
    assert (plain["gflop"] - known["gflop"]) * 1e9 == pytest.approx(sums)


def test_too_much_padding_is_said():
    def side(nodes, edges):
        return {"node_waste": nodes, "edge_waste": edges}

    assert report.waste({"ours": side(0.2, 0.1), "pyg": {}}).endswith("yes")
    assert report.waste({"ours": side(0.2, 0.3)}).endswith("NO")
    assert report.waste({"pyg": {}}) == "-"


def test_a_worker_that_fails_says_why(tmp_path):
    code = "raise SystemExit('There is no such case.')"
    worker = workers.Worker([sys.executable, "-c", code], 60)
    with pytest.raises(workers.WorkerError, match=r"^There is no such case\.$"):
        worker.ask("epochs", count=1)
    worker.end()


def test_cases_are_what_they_are_called():
    for case in benchmark.CASES:
        if "K=" in case.name:
            assert case.config.num_hops == int(case.name.split("=")[1])
        assert case.config.batch_size == 128


def test_the_peer_reads_the_rules_without_jax():
    code = (
        "import sys; sys.modules |= {'jax': None, 'jraph': None}  # Imports fail.\n"
        "from experiments.common import workers; workers.library_without_jax()\n"
        "from hopf_jax.learning.stopping import Patience, as_good_as_any\n"
        "from hopf_jax.metrics import f1_from_counts\n"
        "print(f1_from_counts([1, 1], [0, 1], [1, 0])['micro_f1'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=output.ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(2 / 3)


# Profiles and precisions, with workers in this process


@pytest.fixture
def in_process(monkeypatch):
    class Worker:
        def __init__(self, *command):
            self.actions = library_worker.actions(1)

        def ask(self, action, **arguments):
            return self.actions[action](**arguments)

        def end(self):
            pass

    monkeypatch.setattr(workers, "start", Worker)
    monkeypatch.setattr(library_worker, "cache_programs", lambda folder: None)


def test_operations_are_counted_once_and_by_kind():
    def event(operation, start, seconds, **more):
        times = {"ts": 1e6 * start, "dur": 1e6 * seconds}
        return times | {"ph": "X", "args": {"hlo_op": operation}} | more

    events = [
        event("while.2", 0, 9),  # Holds the others.
        event("dot.3", 0, 2),
        event("ynn_fusion", 3, 1),
        event("bcsr_dot_general.1", 4, 0.1),  # Goes on till the next begins.
        event("gather_bitcast_fusion", 4.5, 0.3),
        event("add_select_fusion", 5, 0.1),
        event("dot.3", 6, 7, ph="M"),
        {"ph": "X", "ts": 7e6, "dur": 8e6, "name": "end: dot.3"},
    ]
    spent = profile.by_kind(events)
    assert spent["matrix products"] == pytest.approx(3)
    assert spent["sparse products"] == pytest.approx(0.5)
    assert spent["gathers"] == pytest.approx(0.3)
    assert spent["arithmetic"] == pytest.approx(0.1)


def test_an_epoch_is_profiled(in_process):
    config = dataclasses.replace(QUICK.config, precompute=False)
    case = dataclasses.replace(QUICK, config=config)
    entry = profile.measure(case, epochs=2, threads=1)
    assert entry["seconds"] > 0 and entry["limit"] > 0
    assert entry["shares"]["matrix products"] > 0
    assert entry["shares"]["sparse products"] > 0


def test_both_precisions_are_measured_from_the_same_weights(in_process):
    entry = precision.measure(QUICK, rounds=1, threads=1)
    losses = entry["loss"]
    assert losses["float32"] != losses["bfloat16"]
    assert abs(losses["float32"] - losses["bfloat16"]) < 0.01 * losses["float32"]
    assert 0 < entry["ratio"]["least"] <= entry["ratio"]["most"]


# Joint folds


def test_ratios_are_of_medians_in_turns(monkeypatch, tmp_path, capsys):
    seconds = {"fit": [10.0, 30.0], "loop": [8.0, 8.0], "vmap": [40.0, 40.0]}
    asked = []

    class Worker:
        def __init__(self, command, timeout):
            self.cores = int(command[-1])

        def ask(self, what, *, way, **others):
            took = seconds[way][asked.count((self.cores, way))]
            asked.append((self.cores, way))
            times = {"seconds": took, "cpu_seconds": 2 * took, "epoch_seconds": 0.01}
            return times | {"epochs": 100, "test_micro_f1": [0.7, 0.8]}

        def end(self):
            pass

    monkeypatch.setattr(workers, "Worker", Worker)
    monkeypatch.setattr(joint_folds, "load_dataset", lambda name, fold: None)
    monkeypatch.setattr(joint_folds.os, "sched_getaffinity", lambda who: {0})
    arguments = ["--models", "gcn", "--repeats", "2", "--workdir", str(tmp_path)]
    assert joint_folds.main(arguments) == 0
    assert asked == [(1, way) for way in seconds] * 2
    found = output.read_json(tmp_path / "joint_folds.json")
    assert [row["way"] for row in found["rows"]] == list(seconds)
    for ratio in ("ratio", "cpu_ratio"):
        assert [row[ratio] for row in found["rows"]] == [1, 2.5, 0.5]
    assert "-m experiments.benchmark.joint_folds --models gcn" in found["command"]
    printed = capsys.readouterr().out
    line = ["gcn", "1", "loop", "8.0", "2.50", "16.0", "2.50", "10.00", "75.00"]
    assert line in [each.split() for each in printed.splitlines()]
    assert "2 cores: left out" in printed


@pytest.mark.slow
def test_it_measures(tmp_path):
    arguments = ["--dataset", "planted", "--models", "bl-node", "--folds", "1,2"]
    arguments += ["--cores", "1", "--repeats", "1", "--max-epochs", "2"]
    assert joint_folds.main([*arguments, "--workdir", str(tmp_path)]) == 0
    rows = output.read_json(tmp_path / "joint_folds.json")["rows"]
    assert all(row["epochs"] == 4 and row["seconds"] > 0 for row in rows)
    assert len({tuple(row["test_micro_f1"]) for row in rows}) == 1


@pytest.mark.slow
@pytest.mark.skipif(not layers.PEER.exists(), reason="PyG is not installed")
def test_hops_equal_the_layers_of_pyg(capsys):
    assert layers.main([]) == 0
    printed = capsys.readouterr().out
    for model in ("gcn", "sgc", "appnp", "gcnii", "gat", "gin", "gs-max"):
        assert f"{model} " in printed


def test_layers_are_not_compared_without_the_peer(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(layers, "PEER", tmp_path / "python")
    assert layers.main([]) == 2
    assert "make .venv-benchmark/.installed" in capsys.readouterr().err

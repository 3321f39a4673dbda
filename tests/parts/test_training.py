"""A graph in parts: the same run as on the whole graph, in one or several processes."""

import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest
import scipy.sparse as sp

import hopf_jax
from hopf_jax import MODELS, Config
from hopf_jax.datasets import make_planted
from hopf_jax.learning import population
from hopf_jax.runtime import processes
from tests.project.test_architecture import ROOT

HOPS = 2
SETTINGS = Config(
    num_hops=HOPS,
    hidden_size=4,
    num_iterations=2,
    batch_size=7,
    max_epochs=3,
    min_epochs=1,
    folds=0,
    noise="node",
)
LINEAR = [
    name
    for name, kernel in MODELS.items()
    if kernel.aggregate.linear and not kernel.aggregate.ordered
]
QUICK = ["i-nip-mean", "gcn"]


def whole(seed=5):
    """The graph that is divided: its classes are communities."""
    graph = make_planted(160, 480, 6, 3, homophily=0.9, seed=seed)
    return hopf_jax.split_graph(graph, train=0.3, validation=0.2, test=0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts") / "graph"
    hopf_jax.partition(whole(), folder, parts=4, hops=HOPS)
    return folder


def keep(result, path):
    """Write what a process has of a result, for `compare`."""
    arrays = {f"proba/{p}": result.predict_proba(p) for p in result.held}
    arrays |= {f"nodes/{p}": result.nodes(p) for p in result.held}
    loss = [[r["train_loss"], r["validation_loss"]] for r in result.history]
    sent = [record.get("exchanged_bytes", 0) for record in result.iterations]
    scores = json.dumps(result.scores)
    np.savez(path, loss=np.array(loss), sent=sent, scores=scores, **arrays)


def job(out, folder, models, kill_at=0):
    """What every process of the tests' jobs runs.

    In the first attempt, process 1 is killed as it begins its `kill_at`-th epoch.
    """
    assert processes.initialize(heartbeat_seconds=10)
    out, me = pathlib.Path(out), jax.process_index()
    with open(out / f"started-{me}", "a") as file:
        file.write("once\n")
    first = (out / f"started-{me}").read_text().count("once") == 1
    run_epoch, begun = population.run_epoch, []

    def counted(*arguments):
        begun.append(1)
        if kill_at == len(begun) and first and me == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return run_epoch(*arguments)

    population.run_epoch = counted
    opened, open_part = [], hopf_jax.Parts.open

    def noted(parts, number):
        opened.append(number)
        return open_part(parts, number)

    hopf_jax.Parts.open = noted
    for model in models:
        parts = hopf_jax.open_parts(folder)
        workdir = out / f"kept-{model}" if kill_at else None
        result = hopf_jax.fit(parts, model, SETTINGS, seed=1, workdir=workdir)
        # Each process opens its own parts only.
        assert set(opened) == set(parts.held_by(me, jax.process_count()))
        assert result.model.probabilities.shape == (0, 3)
        keep(result, out / f"{model}-{me}.npz")
        result.write_predictions(out / f"predictions-{model}")
    (out / f"epochs-{me}").write_text(str(len(begun)))


def launch(out, folder, models, count=2, restarts=0, **keywords):
    given = f"{str(out)!r}, {str(folder)!r}, {models!r}, **{keywords!r}"
    code = f"from tests.parts.test_training import job; job({given})"
    return subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-m", "experiments.launch"),
            *("--processes", str(count), "--restarts", str(restarts), "--"),
            *(sys.executable, "-W", "ignore", "-c", code),
        ],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


_alone = {}


def alone(model):
    """The run of one process on the whole graph."""
    if model not in _alone:
        _alone[model] = hopf_jax.fit(whole(), model, SETTINGS, seed=1)
    return _alone[model]


def compare(paths, one):
    """Compare what processes have with the run of one process on the whole graph."""
    found = [dict(np.load(path)) for path in paths]
    wanted = [[r["train_loss"], r["validation_loss"]] for r in one.history]
    seen = set()
    for each in found:
        np.testing.assert_allclose(each["loss"], wanted, rtol=1e-5)
        for name in one.scores:
            scores = json.loads(str(each["scores"]))[name]
            assert scores == pytest.approx(one.scores[name])
        for part in [name.split("/")[1] for name in each if name.startswith("nodes/")]:
            nodes = each[f"nodes/{part}"]
            given = each[f"proba/{part}"]
            np.testing.assert_allclose(given, one.probabilities[nodes], atol=1e-4)
            seen |= set(nodes.tolist())
    assert seen == set(range(len(one.probabilities)))
    return found


@pytest.fixture(scope="module")
def two(folder, tmp_path_factory):
    """The folder in which two processes wrote what they have."""
    out = tmp_path_factory.mktemp("two")
    done = launch(out, folder, QUICK)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.filterwarnings("ignore::hopf_jax.HopfWarning")
def test_one_process_works_through_all_parts(folder, tmp_path):
    parts, calls = hopf_jax.open_parts(folder), []
    keywords = {"seed": 1, "workdir": tmp_path / "kept", "callbacks": [calls.append]}
    result = hopf_jax.fit(parts, "i-nip-mean", SETTINGS, **keywords)
    keep(result, tmp_path / "all.npz")
    (found,) = compare([tmp_path / "all.npz"], alone("i-nip-mean"))
    assert found["sent"].tolist() == [0, 0]
    # The model predicts the whole graph, and a finished run is only read.
    result.save(tmp_path / "model.npz")
    said = hopf_jax.load(tmp_path / "model.npz").predict_proba(whole())
    for part in range(4):
        own = result.predict_proba(part)
        np.testing.assert_allclose(own, said[result.nodes(part)], atol=1e-4)
    assert len(calls) == len(result.history)
    again = hopf_jax.fit(parts, "i-nip-mean", SETTINGS, **keywords)
    assert len(calls) == len(result.history)
    np.testing.assert_array_equal(again.predict_proba(2), result.predict_proba(2))
    (damaged,) = (tmp_path / "kept" / "parts" / "part-0002").rglob("output.npy")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match="needed to resume"):
        hopf_jax.fit(parts, "i-nip-mean", SETTINGS, **keywords)


def check_processes(out, folder, model, count):
    """Compare what processes wrote with one process, and what they sent."""
    found = compare([out / f"{model}-{me}.npz" for me in range(count)], alone(model))
    parts = hopf_jax.open_parts(folder)
    each = parts.exchanged_bytes(count) if MODELS[model].iterative else 0
    assert all(set(one["sent"].tolist()) == {each} for one in found)
    assert MODELS[model].iterative == (each > 0)


@pytest.mark.filterwarnings("ignore::hopf_jax.HopfWarning")
@pytest.mark.parametrize("model", QUICK)
def test_two_processes_are_as_one_on_the_whole_graph(two, folder, model):
    check_processes(two, folder, model, 2)


@pytest.mark.filterwarnings("ignore::hopf_jax.HopfWarning")
def test_four_processes_are_as_one_on_the_whole_graph(folder, tmp_path):
    done = launch(tmp_path, folder, ["i-nip-mean"], 4)
    assert done.returncode == 0, done.stderr
    check_processes(tmp_path, folder, "i-nip-mean", 4)


def test_predictions_are_written_by_part(two):
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = two / "predictions-i-nip-mean"
    assert sorted(path.name for path in folder.iterdir()) == [
        f"part-000{part}.parquet" for part in range(4)
    ]
    kept = [dict(np.load(two / f"i-nip-mean-{me}.npz")) for me in (0, 1)]
    for part in range(4):
        table = parquet.read_table(folder / f"part-000{part}.parquet").to_pandas()
        (own,) = (each for each in kept if f"nodes/{part}" in each)
        np.testing.assert_array_equal(table["node"], own[f"nodes/{part}"])
        said = own[f"proba/{part}"]
        np.testing.assert_allclose(table["probability"], said.max(axis=1))
        assert table["label"].tolist() == [str(i) for i in said.argmax(axis=1)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hopf_jax.HopfWarning")
@pytest.mark.parametrize("kind", ["sparse", "weighted", "multilabel", "streamed"])
def test_other_graphs_are_as_whole_too(tmp_path, kind):
    graph, execution = whole(), hopf_jax.Execution()
    if kind == "sparse":
        words = sp.csr_array((graph.features > 0.5).astype(np.float32))
        graph = dataclasses.replace(graph, features=words)
    elif kind == "weighted":
        near = graph.adjacency
        near.data = (1 + (near.indices + near.tocoo().row) % 3).astype(np.float32)
        graph = dataclasses.replace(graph, weights=near.data)
    elif kind == "multilabel":
        labels = np.roll(graph.labels, 1, axis=0) | graph.labels
        graph = dataclasses.replace(graph, labels=labels, multilabel=True)
    else:
        execution = hopf_jax.Execution(memory_budget=0, chunk_edges=50)
    parts = hopf_jax.partition(graph, tmp_path / "p", parts=2, hops=HOPS)
    settings = dataclasses.replace(SETTINGS, weighted_loss=kind == "weighted")
    given = "i-nip-mean", settings
    result = hopf_jax.fit(parts, *given, seed=1, execution=execution)
    keep(result, tmp_path / "all.npz")
    compare([tmp_path / "all.npz"], hopf_jax.fit(graph, *given, seed=1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hopf_jax.HopfWarning")
@pytest.mark.parametrize("count", [2, 4])
def test_every_linear_kernel_is_as_in_one_process(folder, tmp_path, count):
    done = launch(tmp_path, folder, LINEAR, count)
    assert done.returncode == 0, done.stderr
    for model in LINEAR:
        paths = [tmp_path / f"{model}-{me}.npz" for me in range(count)]
        compare(paths, alone(model))


@pytest.mark.filterwarnings("ignore::hopf_jax.HopfWarning")
def test_a_process_killed_ends_the_job_which_goes_on_from_its_checkpoint(
    folder, tmp_path
):
    done = launch(tmp_path, folder, ["i-nip-mean"], restarts=1, kill_at=5)
    assert done.returncode == 0, done.stderr
    assert "process 1 failed with status -9" in done.stderr
    assert re.search(r"process 0 ended with status -?[1-9]", done.stderr), done.stderr
    assert (tmp_path / "started-0").read_text() == "once\nonce\n"
    one = alone("i-nip-mean")
    compare([tmp_path / f"i-nip-mean-{me}.npz" for me in (0, 1)], one)
    # It went on from a checkpoint, rather than from the start.
    assert int((tmp_path / "epochs-1").read_text()) < len(one.history)

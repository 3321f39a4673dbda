"""Several processes: the same result as one, also when one of them is killed."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

import hopf_jax
from hopf_jax import Config
from hopf_jax.batching.sharded_loader import ShardedLoader
from hopf_jax.learning import population
from hopf_jax.runtime import processes
from tests import graphs
from tests.project.test_architecture import ROOT
from tests.runtime.test_sharding import SMALL, losses, run, small_graph

NAMES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")


def train(large=False, **keywords):
    """The run that is compared, on a small graph or on PubMed."""
    if not large:
        return hopf_jax.fit(small_graph(), "i-nip-mean", config=SMALL, **keywords)
    config = Config(
        num_hops=2,
        hidden_size=16,
        num_iterations=2,
        batches_per_step=4,
        max_epochs=8,
        min_epochs=4,
    )
    graph = hopf_jax.load_dataset("pubmed", fold=1)
    return hopf_jax.fit(graph, "i-nip-mean", config=config, **keywords)


def job(folder, kill_at=0, large=False):
    """What every process of the tests' jobs runs.

    In the first attempt, process 1 is killed as it begins its `kill_at`-th epoch.
    """
    assert processes.initialize(heartbeat_seconds=10)
    assert (jax.process_count(), len(jax.local_devices())) == (2, 2)
    folder = pathlib.Path(folder)
    me = jax.process_index()
    with open(folder / f"started-{me}", "a") as file:
        file.write("once\n")
    first = (folder / f"started-{me}").read_text().count("once") == 1
    run_epoch, begun = population.run_epoch, []

    def counted(*arguments):
        begun.append(1)
        if kill_at == len(begun) and first and me == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return run_epoch(*arguments)

    population.run_epoch = counted
    padded, pad = [], ShardedLoader._padded

    def noted(loader, number, *arguments):
        padded.append((len(loader.roots), number))
        return pad(loader, number, *arguments)

    ShardedLoader._padded = noted
    calls = []
    result = train(large, callbacks=[calls.append], workdir=folder / "kept")
    assert bool(calls) == (me == 0)
    if not large:
        # Eight lanes and eight training batches: those of the own lanes, no others.
        assert {n for of, n in padded if of == 8} == {*range(4 * me, 4 * me + 4)}
    (folder / f"epochs-{me}").write_text(str(len(begun)))
    np.save(folder / f"probabilities-{me}.npy", result.probabilities)
    result.save(folder / ("result.npz" if me == 0 else "other.npz"))


def launch(folder, restarts=0, **keywords):
    job = f"job({str(folder)!r}, **{keywords})"
    code = f"from tests.runtime.test_processes import job; {job}"
    return subprocess.run(
        [
            *(sys.executable, "-m", "experiments.launch", "--devices", "2"),
            *("--restarts", str(restarts), "--", sys.executable, "-c", code),
        ],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def check(folder, alone):
    result = hopf_jax.load(folder / "result.npz")
    np.testing.assert_allclose(losses(result), losses(alone), rtol=1e-5)
    np.testing.assert_allclose(result.probabilities, alone.probabilities, atol=1e-5)
    # Every process knows the result, and the first wrote it.
    other = np.load(folder / "probabilities-1.npy")
    np.testing.assert_array_equal(other, result.probabilities)
    assert not (folder / "other.npz").exists()


@pytest.mark.parametrize(
    "large",
    [
        pytest.param(False, id="small"),
        pytest.param(
            True, id="pubmed", marks=[pytest.mark.slow, graphs.needs("pubmed")]
        ),
    ],
)
def test_two_processes_are_as_one_and_as_one_device(tmp_path, large):
    done = launch(tmp_path, large=large)
    assert done.returncode == 0, done.stderr
    check(tmp_path, train(large))
    code = (
        "import json; from tests.runtime import test_processes as t\n"
        f"result = t.train({large}, execution=t.hopf_jax.Execution(devices=4))\n"
        f"result.save({str(tmp_path / 'devices.npz')!r}); print(json.dumps(1))"
    )
    assert run(4, code) == 1
    check(tmp_path, hopf_jax.load(tmp_path / "devices.npz"))


def test_a_process_killed_ends_the_job_which_restarts_and_ends_the_same(tmp_path):
    done = launch(tmp_path, restarts=1, kill_at=6)
    assert done.returncode == 0, done.stderr
    assert "process 1 failed with status -9" in done.stderr
    ended = re.search(
        r"process 0 ended with status (-?\d+), ([\d.]+) s later", done.stderr
    )
    assert ended and ended[1] != "0" and float(ended[2]) < 25, done.stderr
    assert (tmp_path / "started-0").read_text() == "once\nonce\n"
    alone = train()
    check(tmp_path, alone)
    # It went on from a checkpoint, rather than from the start.
    assert int((tmp_path / "epochs-1").read_text()) < len(alone.history)


# Joining


@pytest.fixture
def joined(monkeypatch):
    """What jax is told, which then does as it does without a job around."""
    told = []

    def initialize(*given, **others):
        told.append(given)
        if given[0] is None:
            raise ValueError("coordinator_address should be defined.")
        if None in given:
            raise ValueError("Number of processes must be defined.")

    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    return told


def test_alone_there_is_nothing_to_join(joined):
    assert not processes.initialize()
    assert joined == [(None, None, None)]
    assert processes.is_main()


def test_too_late_is_no_matter_unless_there_is_a_job(monkeypatch):
    jax.devices()
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    assert not processes.initialize()
    with pytest.raises(RuntimeError, match="before"):
        processes.initialize("host:1", 4, 0)
    monkeypatch.setenv("SLURM_STEP_NODELIST", "a,b")
    with pytest.raises(RuntimeError, match="before"):
        processes.initialize()


def test_flags_come_before_the_environment(joined, monkeypatch):
    assert processes.initialize("host:1", 4, 0)
    for name, value in zip(NAMES, ("other:2", "8", "7"), strict=True):
        monkeypatch.setenv(name, value)
    assert processes.initialize()
    assert processes.initialize("host:1", 4, 0)
    assert joined == [("host:1", 4, 0), ("other:2", 8, 7), ("host:1", 4, 0)]


def test_half_a_job_is_refused(joined, monkeypatch):
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "host:1")
    with pytest.raises(ValueError, match=r"needs num_processes .*JAX_NUM_PROCESSES"):
        processes.initialize(process_id=0)
    monkeypatch.setenv("JAX_NUM_PROCESSES", "two")
    with pytest.raises(ValueError, match="num_processes is 'two'; give a whole number"):
        processes.initialize(process_id=0)


@pytest.mark.parametrize("kind", ["none", "slurm"])
def test_what_jax_detects_is_joined(kind):
    # Slurm as it is with one task; the real thing, in a process of its own.
    slurm = {
        "SLURM_JOB_ID": "1234",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "1",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
    }
    with socket.socket() as probe:  # A port that nothing listens on.
        probe.bind(("127.0.0.1", 0))
        slurm["JAX_COORDINATOR_PORT"] = str(probe.getsockname()[1])
    code = (
        "import jax; from hopf_jax import processes; "
        "print(processes.initialize(), jax.distributed.is_initialized())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"JAX_PLATFORMS": "cpu"} | (slurm if kind == "slurm" else {}),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(kind == "slurm")] * 2


def test_alone_everything_is_ones_own_share():
    rows = np.arange(6).reshape(3, 2)
    (mine,) = processes.gather_rows(rows)
    np.testing.assert_array_equal(mine, rows)
    measured = processes.share_out(3, lambda own: np.array([[i, i * i] for i in own]))
    np.testing.assert_array_equal(measured, [[0, 0], [1, 1], [2, 4]])

"""`fit` in a workdir: stopped anywhere, it resumes and ends with the same bytes."""

import dataclasses
import os
import shutil
import signal
import threading
import warnings

import numpy as np
import pytest

import hopf_jax
from hopf_jax import Config, Execution, fit
from hopf_jax.learning import run_state
from hopf_jax.learning.plan import Plan
from hopf_jax.learning.run_state import RunState, TeamState
from hopf_jax.runtime import checkpoints
from hopf_jax.runtime.checkpoints import Checkpoints
from hopf_jax.runtime.publishing import TemporaryError
from hopf_jax.runtime.signals import saved_at_signals
from tests import buckets, graphs

# Patience is lost within an iteration, so that "restore" is passed through too.
SHORT = Config(
    *(2, 5, 2),
    batch_size=3,
    max_epochs=7,
    min_epochs=2,
    patience=1,
    learning_rate=0.2,
)


@pytest.fixture(autouse=True)
def at_any_price(monkeypatch):
    """Every epoch is kept, whatever share of the time that takes."""
    monkeypatch.setattr(checkpoints, "_COST", float("inf"))


class StoppedError(Exception):
    pass


def saved(result, tmp_path):
    path = tmp_path / "result.npz"
    result.save(path)
    return path.read_bytes()


def run(workdir=None, stop_after=None, model="i-nip-mean", config=SHORT, **more):
    seen = []

    def count(record):
        seen.append((record["iteration"], record["epoch"]))
        if len(seen) == stop_after:
            raise StoppedError

    graph = more.pop("graph", None) or graphs.tiny("weighted")
    result = fit(graph, model, config, workdir=workdir, callbacks=[count], **more)
    return result, seen


def stop(workdir, after, **more):
    with pytest.raises(StoppedError):
        run(workdir, after, **more)


def steps(workdir):
    return sorted(int(p.name) for p in (workdir / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def whole():
    return run()


def test_stopped_at_every_epoch_it_ends_the_same(whole, tmp_path):
    result, every = whole
    assert len(every) > 4 and every[-1][0] == 2
    rates = [record["learning_rate"] for record in result.history]
    assert len(set(rates)) > 1  # Patience was lost: weights were restored.
    workdir = tmp_path / "work"
    for _ in every[1:]:
        stop(workdir, 2)  # One epoch is kept; the second is told, but not kept.
    again, now = run(workdir)
    assert now == every[-1:]
    assert saved(again, tmp_path) == saved(result, tmp_path)
    assert len(steps(workdir)) == 2  # Old ones are pruned, partial ones gone.


@pytest.mark.parametrize("after", [1, 5, 9])
def test_a_start_does_only_what_is_left(whole, tmp_path, after):
    result, every = whole
    stop(tmp_path, after)
    again, now = run(tmp_path)
    # The epoch whose callback failed was not kept.
    assert now == every[after - 1 :]
    assert saved(again, tmp_path) == saved(result, tmp_path)
    assert all("seconds" in record for record in again.history)


def test_a_finished_run_trains_nothing(whole, tmp_path, monkeypatch):
    first, _ = run(tmp_path)
    # Nor does it cut batches, which takes long on a large graph. Not the name of the
    # class: a default argument holds the class itself.
    for name in (
        "hopf_jax.fitting.learn",
        "hopf_jax.fitting.Population.__init__",
        "hopf_jax.learning.plan.WholeGraph",
    ):
        monkeypatch.setattr(name, lambda *_, name=name, **__: pytest.fail(name))
    second, seen = run(tmp_path)
    assert seen == []
    assert second.history == first.history and second.iterations == first.iterations
    assert saved(second, tmp_path) == saved(first, tmp_path)
    assert saved(first, tmp_path) == saved(whole[0], tmp_path)


@pytest.mark.parametrize(
    ("model", "config", "graph", "budget"),
    [
        # Nothing but an output layer, no summaries, sparse features.
        ("wl", SHORT, {"sparse": True}, 10**9),
        # Streamed, with neighbours drawn anew every epoch, several labels.
        (
            "i-nip-mean",
            dataclasses.replace(SHORT, fanouts=(3, 2), summary="hidden", bias=True),
            {"multilabel": True},
            0,
        ),
        (
            "i-nip-mean",
            dataclasses.replace(SHORT, training_summaries="cross-fitted", members=2),
            {},
            10**9,
        ),
    ],
    ids=["plain", "streamed", "cross-fitted"],
)
def test_every_kind_of_run_resumes(tmp_path, model, config, graph, budget):
    more = {"model": model, "config": config, "graph": graphs.tiny(**graph)}
    more["execution"] = Execution(memory_budget=budget)
    result, every = run(**more)
    stop(tmp_path, len(every) - 1, **more)
    again, now = run(tmp_path, **more)
    assert 2 <= len(now) <= 5  # All nets of the epoch that was not kept.
    assert saved(again, tmp_path) == saved(result, tmp_path)


# What is refused, and what is mended


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"seed": 1}, "seed 0 is 1, but 0 in the checkpoint"),
        ({"config": dataclasses.replace(SHORT, l2=0.5)}, "config.l2 is 0.5, but"),
        ({"model": "ss-ica"}, "kernel.psi is ['y'], but ['h', 'y']"),
        ({"graph": graphs.tiny("plain")}, "graph 0 is '"),
    ],
    ids=["seed", "config", "kernel", "graph"],
)
def test_the_workdir_of_another_run_is_refused(whole, tmp_path, other, said):
    stop(tmp_path, 2)
    with pytest.raises(ValueError, match="holds another run") as refused:
        run(tmp_path, **other)
    assert said in str(refused.value)
    assert saved(run(tmp_path)[0], tmp_path) == saved(whole[0], tmp_path)


def test_a_run_resumes_with_less_memory(whole, tmp_path):
    # Streamed, to the bit the same; with other chunks up to rounding, which is told.
    stop(tmp_path, 4)
    again, now = run(tmp_path, execution=Execution(memory_budget=0))
    assert now == whole[1][3:]
    assert saved(again, tmp_path) == saved(whole[0], tmp_path)
    stop(tmp_path / "chunks", 4)
    with pytest.warns(UserWarning, match="chunk_edges is 9, but 2000000 .* digits"):
        again, _ = run(tmp_path / "chunks", execution=Execution(chunk_edges=9))
    np.testing.assert_allclose(again.probabilities, whole[0].probabilities, atol=1e-4)


def test_another_number_of_devices_is_refused_unless_it_is_wanted(
    tmp_path, monkeypatch
):
    stop(tmp_path, 4)
    kept = steps(tmp_path)
    several = property(lambda plan: dict.fromkeys(one(plan), 4))
    one = Plan.identity.fget
    monkeypatch.setattr(Plan, "identity", several)
    said = r"number of devices, .*other_devices=True\), is 4, but 1 in the checkpoint"
    with pytest.raises(ValueError, match=said):
        run(tmp_path)
    assert steps(tmp_path) == kept
    with pytest.warns(UserWarning, match=f"{said}.* digits"):
        run(tmp_path, execution=Execution(other_devices=True))
    run(tmp_path)  # It is a run of four devices now.


def test_a_checkpoint_of_version_0_1_is_refused_by_name(tmp_path, monkeypatch):
    def seal_as_then(meta, arrays, seal=checkpoints._seal):
        identity = {"format": 1, "seed": 0, "version of hopf_jax": "0.1.0"}
        return seal({"identity": identity, "history": [], "best": 0}, arrays)

    monkeypatch.setattr(checkpoints, "_seal", seal_as_then)
    stop(tmp_path, 3)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"checkpoints of hopf_jax 0\.1\.0, .*cannot"):
        run(tmp_path)
    assert len(steps(tmp_path)) == 2  # They are still there.


def test_another_version_is_another_run(tmp_path, monkeypatch):
    stop(tmp_path, 2)
    monkeypatch.setattr(run_state.importlib.metadata, "version", lambda name: "9")
    with pytest.raises(ValueError, match="version of jax is '9', but"):
        run(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(hopf_jax, "__version__", "9")
    with pytest.raises(ValueError, match="run: version of hopf_jax is '9', but"):
        run(tmp_path)


def test_a_graph_is_known_by_all_that_is_in_it():
    graph = graphs.tiny("weighted")
    seen = {run_state._digest_graph(graph)}
    assert run_state._digest_graph(graphs.tiny("weighted")) in seen
    changed = graph.features.copy()
    changed[3, 2] += 1
    for other in (
        dataclasses.replace(graph, features=changed),
        dataclasses.replace(graph, features=changed.astype(np.float64)),
        dataclasses.replace(graph, test=np.zeros_like(graph.test)),
        dataclasses.replace(graph, weights=None),
        dataclasses.replace(graph, label_names=("x", "y", "z")),
        graphs.tiny("weighted", sparse=True),
        graphs.tiny("weighted", sparse=True, seed=1),
    ):
        seen.add(run_state._digest_graph(other))
    assert len(seen) == 8


def damage(folder, how):
    files = [p for p in folder.rglob("*") if p.is_file()]
    largest = max(files, key=lambda p: p.stat().st_size)
    if how == "cut":
        largest.write_bytes(largest.read_bytes()[:-50])
    elif how == "emptied":
        for path in files:
            path.write_bytes(b"")
    elif how == "without its contents":
        shutil.rmtree(folder / "default")
    elif how == "with a pipe":
        largest.unlink()
        os.mkfifo(largest)
    else:
        for path in files:
            path.unlink()


DAMAGE = "cut", "emptied", "removed", "without its contents", "with a pipe"


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(whole, tmp_path, how):
    stop(tmp_path, 5)
    older, newer = steps(tmp_path)
    damage(tmp_path / "checkpoints" / str(newer), how)
    with pytest.warns(UserWarning, match=f"{newer} cannot be read and is set aside"):
        again, now = run(tmp_path)
    assert now == whole[1][3:]
    assert saved(again, tmp_path) == saved(whole[0], tmp_path)
    assert older not in steps(tmp_path)


def test_with_all_damaged_a_run_refuses_to_begin_again(tmp_path):
    stop(tmp_path, 4)
    before = steps(tmp_path)
    for step in before:
        damage(tmp_path / "checkpoints" / str(step), "cut")
    with pytest.raises(TemporaryError, match=r"None of the checkpoints .*can be read"):
        run(tmp_path)
    assert steps(tmp_path) == before  # Nothing was deleted, nor renamed.


@pytest.mark.parametrize("stray", ["99", "99/x", "notes", "07.txt"])
def test_stray_folders_cost_nothing(whole, tmp_path, stray):
    stop(tmp_path, 4)
    (tmp_path / "checkpoints" / stray).mkdir(parents=True)
    with warnings.catch_warnings(action="ignore"):
        again, now = run(tmp_path)
    assert now == whole[1][3:]
    assert saved(again, tmp_path) == saved(whole[0], tmp_path)


@pytest.mark.parametrize("name", ["0", "99"])
def test_what_a_link_leads_to_is_not_deleted(whole, tmp_path, name):
    stop(tmp_path, 4)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    (tmp_path / "checkpoints" / name).symlink_to(tmp_path / "other")
    with warnings.catch_warnings(action="ignore"):
        assert run(tmp_path)[1] == whole[1][3:]
    assert (tmp_path / "other" / "file").exists()


def test_a_read_error_that_passes_loses_nothing(whole, tmp_path, monkeypatch):
    stop(tmp_path, 5)
    before = steps(tmp_path)

    def fail(self, path):
        raise OSError(5, "Input/output error", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("orbax.checkpoint.StandardCheckpointer.restore", fail)
        with pytest.raises(TemporaryError, match="Input/output error"):
            run(tmp_path)
    assert steps(tmp_path) == before
    again, now = run(tmp_path)
    assert now == whole[1][4:]
    assert saved(again, tmp_path) == saved(whole[0], tmp_path)


def test_a_second_live_run_is_refused(tmp_path):
    def second(record):
        with pytest.raises(TemporaryError, match=f"in use by process {os.getpid()} on"):
            run(tmp_path)
        raise StoppedError

    with pytest.raises(StoppedError):
        fit(
            graphs.tiny("weighted"),
            *("i-nip-mean", SHORT),
            workdir=tmp_path,
            callbacks=[second],
        )
    run(tmp_path)


def test_a_flipped_bit_is_seen():
    state, arrays = RunState((TeamState(np.ones((1, 4, 2), np.float32), []),)).pack()
    arrays = checkpoints._seal({"state": state}, arrays)
    whole = {name: array.copy() for name, array in arrays.items()}
    assert checkpoints._unseal(dict(whole))["state"]["teams"][0]["best"] == 0
    whole["0.summaries"].view(np.uint8)[0, 3, 1] ^= 1
    with pytest.raises(ValueError, match="digest"):
        checkpoints._unseal(whole)


def test_what_a_crash_left_half_written_is_removed(whole, tmp_path):
    stop(tmp_path, 3)
    newest = steps(tmp_path)[-1]
    partial = tmp_path / "checkpoints" / f"{newest + 1}.orbax-checkpoint-tmp"
    (partial / "default.orbax-checkpoint-tmp").mkdir(parents=True)
    (partial / "default.orbax-checkpoint-tmp" / "_METADATA").write_text("{")
    again, now = run(tmp_path)
    assert now == whole[1][2:]
    assert saved(again, tmp_path) == saved(whole[0], tmp_path)
    assert not partial.exists() and len(steps(tmp_path)) == 2


@pytest.mark.parametrize("every", [0, 1.5, True, None])
def test_checkpoint_every_is_checked(every):
    with pytest.raises(ValueError, match=r"checkpoint_every is .*1 or more"):
        fit(graphs.tiny(), "ss-ica", checkpoint_every=every)


def test_a_workdir_that_is_none_is_told(tmp_path):
    (tmp_path / "file").touch()
    for bad in (3, "", tmp_path / "file", "gs://bucket/run"):
        with pytest.raises(ValueError, match="workdir is"):
            fit(graphs.tiny(), "ss-ica", workdir=bad)


def test_a_workdir_of_object_storage(whole, tmp_path, monkeypatch):
    # What speaks to the store is real: orbax, tensorstore, etils. The store is not.
    store = buckets.google_storage(monkeypatch)
    stop("gs://bucket/run", 5)
    assert all(name.startswith("bucket/run/checkpoints/") for name in store.objects)
    again, now = run("gs://bucket/run")
    assert now == whole[1][4:]
    assert saved(again, tmp_path) == saved(whole[0], tmp_path)
    assert run("gs://bucket/run")[1] == []
    kept = {name.split("/")[3] for name in store.objects}
    assert len(kept) == 2
    again.save("gs://bucket/run/result.npz")
    assert store.objects["bucket/run/result.npz"][0] == saved(again, tmp_path)


# How often


def saves(monkeypatch, tmp_path, count, *, every=1, takes=0.0):
    """After which epochs a checkpoint was kept; an epoch takes a second."""
    now, kept = [100.0], []
    keeper = Checkpoints(tmp_path, {}, every, {})

    def save(step, args):
        now[0] += takes
        kept.append(keeper._latest.num_epochs)

    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(keeper._manager, "save", save)
    member = TeamState(None, [])
    with saved_at_signals(keeper.save) as interruption:
        for epoch in range(1, count + 1):
            now[0] += 1
            keeper.offer(RunState((member,), None, epoch), interruption)
        last = member._replace(finished=True)
        keeper.offer(RunState((last,), None, count), interruption)
    keeper.close()
    return kept


def test_checkpoints_are_every_so_many_epochs(monkeypatch, tmp_path):
    assert saves(monkeypatch, tmp_path, 10, every=3) == [3, 6, 9, 10]


def test_checkpoints_take_a_twentieth_of_the_time(monkeypatch, tmp_path):
    monkeypatch.setattr(checkpoints, "_COST", 0.05)
    kept = saves(monkeypatch, tmp_path, 100, takes=0.5)
    assert kept == [1, 11, 21, 31, 41, 51, 61, 71, 81, 91, 100]


# Signals


def test_handlers_are_put_back_and_other_threads_set_none(tmp_path):
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
    inside = []

    def look(*ignored):
        inside.append(signal.getsignal(signal.SIGTERM))

    def work():
        fit(
            graphs.tiny("weighted"),
            *("i-nip-mean", SHORT),
            workdir=tmp_path / threading.current_thread().name,
            callbacks=[look],
        )

    work()
    assert inside[0] != before[0]
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == before
    inside.clear()
    thread = threading.Thread(target=work, name="other")
    thread.start()
    thread.join()
    assert inside and set(inside) == {before[0]}


def test_a_signal_in_a_callback_keeps_the_epoch_before(whole, tmp_path):
    def interrupt(record):
        if (record["iteration"], record["epoch"]) == (2, 2):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit(
            graphs.tiny("weighted"),
            *("i-nip-mean", SHORT),
            workdir=tmp_path,
            checkpoint_every=1000,
            callbacks=[interrupt],
        )
    assert len(steps(tmp_path)) == 1
    again, now = run(tmp_path)
    assert now[0] == (2, 2)
    assert saved(again, tmp_path) == saved(whole[0], tmp_path)

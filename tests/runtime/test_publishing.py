"""Files and folders appear complete or not at all; what killed writers leave goes."""

import contextlib
import json
import multiprocessing
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import pytest

from hopf_jax.runtime import publishing
from hopf_jax.runtime.publishing import (
    TemporaryError,
    held_folder,
    new_folder,
    scratch_folder,
    sweep,
    write_atomically,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# Files


def test_a_file_keeps_its_mode_and_a_link_its_place(tmp_path):
    real, link = tmp_path / "folder" / "real", tmp_path / "link"
    real.parent.mkdir()
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(pathlib.Path("folder") / "real")
    write_atomically(link, b"new")
    assert link.is_symlink() and real.read_bytes() == b"new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert names(tmp_path) == ["folder", "link"] and names(real.parent) == ["real"]
    # A link to nothing yet makes what it points to.
    real.unlink()
    write_atomically(link, b"newer")
    assert link.is_symlink() and real.read_bytes() == b"newer"


def test_a_new_file_has_the_mode_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "x", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


@pytest.mark.parametrize("kind", ["FIFO", "device", "socket", "folder"])
def test_only_files_are_replaced(tmp_path, kind):
    path = tmp_path / "it"
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/null")
    elif kind == "folder":
        path.mkdir()
    else:
        bound = socket.socket(socket.AF_UNIX)
        bound.bind(os.path.relpath(path))
        bound.close()
    with pytest.raises(ValueError, match=f"is a {kind}; give the path of a file"):
        write_atomically(path, b"x")
    assert names(tmp_path) == ["it"]
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def stop(file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_atomically(path, stop)
    assert names(tmp_path) == ["x"] and path.read_bytes() == b"old"


def test_long_names_are_written(tmp_path):
    path = tmp_path / ("ü" * 127)
    write_atomically(path, b"x")
    assert path.read_bytes() == b"x"


# What killed writers leave

KILLED = """
import os, pathlib, sys
from hopf_jax.runtime import publishing
where = pathlib.Path(sys.argv[1])
def stop(file):
    file.write(b"half")
    file.flush()
    with publishing.new_folder(where / "graph") as made:
        (made / "x.npy").write_bytes(b"half")
        os.kill(os.getpid(), 9)
publishing.write_atomically(where / "a[1].npz", stop)
"""


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path], cwd=os.getcwd())
    assert done.returncode == -signal.SIGKILL
    left = names(tmp_path)
    assert len(left) == 2 and all(name.endswith(".part") for name in left)
    write_atomically(tmp_path / "other", b"all of it")
    assert names(tmp_path) == ["other"]


def test_scratch_goes_at_the_end_or_with_the_next(tmp_path):
    with scratch_folder(tmp_path) as scratch:
        (scratch / "x").write_bytes(b"x")
    assert names(tmp_path) == []
    code = "import os, sys; from hopf_jax.runtime import scratch_folder\n"
    code += "with scratch_folder(sys.argv[1]): os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=os.getcwd())
    assert len(names(tmp_path)) == 1
    with scratch_folder(tmp_path) as scratch:
        assert names(tmp_path) == [scratch.name]


def test_what_may_be_at_work_stays(tmp_path, monkeypatch):
    inside = []

    def look(file):
        sweep(tmp_path)
        inside.extend(names(tmp_path))

    write_atomically(tmp_path / "x", look)
    (own,) = inside
    assert socket.gethostname()[:8] in own and f".{os.getpid()}." in own
    # Of this process, of another host, and nothing of ours at all.
    kept = [own, own.replace(publishing._host(), "elsewhere"), ".x.0123456789abcdef"]
    for name in kept:
        (tmp_path / name).touch()
    sweep(tmp_path)
    assert names(tmp_path) == sorted([*kept, "x"])
    # A process that took the number of a dead one did not write its files.
    reused = re.sub(rf"\.{os.getpid()}\.(\d+)\.", rf".{os.getpid()}.1\1.", own)
    (tmp_path / reused).touch()
    yesterday = time.time() - 25 * 3600
    os.utime(tmp_path / kept[1], (yesterday, yesterday))
    sweep(tmp_path)
    assert names(tmp_path) == sorted([own, ".x.0123456789abcdef", "x"])


# Folders


def test_a_folder_is_synced_before_it_has_its_name(tmp_path, monkeypatch):
    synced = []
    real = os.fsync

    def note(handle):
        assert not (tmp_path / "graph").exists() or len(synced) >= 3
        synced.append(os.readlink(f"/proc/self/fd/{handle}").rsplit("/")[-1])
        real(handle)

    monkeypatch.setattr(os, "fsync", note)
    with new_folder(tmp_path / "graph") as made:
        (made / "in").mkdir()
        (made / "in" / "x.npy").write_bytes(b"x")
    assert {"x.npy", "in", tmp_path.name} < set(synced)
    assert names(tmp_path) == ["graph"]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_folder_is_not_replaced(tmp_path, when):
    target = tmp_path / "graph"
    if when == "before":
        target.mkdir()
    with (
        pytest.raises(ValueError, match="already exists"),
        new_folder(target) as made,
    ):
        (made / "x").touch()
        target.mkdir()  # By another writer.
    assert names(tmp_path) == ["graph"] and names(target) == []


# Locks


def hold(folder, held, end):
    with held_folder(folder):
        held.set()
        end.wait(60)


@pytest.mark.parametrize("ended", ["at once", "by a kill"])
def test_a_held_folder_is_refused_by_the_name_of_its_holder(tmp_path, ended):
    spawn = multiprocessing.get_context("spawn")
    held, end = spawn.Event(), spawn.Event()
    other = spawn.Process(target=hold, args=(tmp_path, held, end))
    other.start()
    assert held.wait(60)
    said = f"in use by process {other.pid} on {re.escape(socket.gethostname())}"
    with pytest.raises(TemporaryError, match=said), held_folder(tmp_path):
        pass
    if ended == "by a kill":
        other.kill()  # It waits for `end`, which must not be touched any more.
    else:
        end.set()
    other.join()
    assert (names(tmp_path) == ["run.lock"]) == (ended == "by a kill")
    with held_folder(tmp_path):
        holder = json.loads((tmp_path / "run.lock").read_text())
        assert holder["process"] == os.getpid()
    assert names(tmp_path) == []


def test_a_lock_is_no_way_to_another_file(tmp_path):
    (tmp_path / "precious").write_text("x" * 99)
    (tmp_path / "run.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match=r"run\.lock"), held_folder(tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "x" * 99


def test_a_thread_of_the_same_process_is_refused_too(tmp_path):
    found = []

    def work():
        try:
            with held_folder(tmp_path):
                found.append("held")
        except TemporaryError as error:
            found.append(str(error))

    with held_folder(tmp_path):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert f"process {os.getpid()} on" in found[0]


def test_many_processes_never_hold_it_at_the_same_time(tmp_path):
    # The file is removed by each holder: a lock of a removed file must not count.
    (tmp_path / "work").mkdir()
    script = """
import os, pathlib, sys
from hopf_jax.runtime.publishing import TemporaryError, held_folder
folder, count = pathlib.Path(sys.argv[1]), 0
while count < 200:
    try:
        with held_folder(folder / "work"):
            os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))
            os.unlink(folder / "inside")
            count += 1
    except TemporaryError:
        pass
"""
    command = [sys.executable, "-c", script, tmp_path]
    both = [subprocess.Popen(command, cwd=os.getcwd()) for _ in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]


def test_where_nothing_can_be_locked_nothing_is_held(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(publishing.fcntl, "flock", none)
    with held_folder(tmp_path), held_folder(tmp_path):
        pass


def test_a_folder_is_replaced_once_the_new_one_is_complete(tmp_path):
    for content in ("old", "new"):
        with new_folder(tmp_path / "x", replace=True) as made:
            (made / "file").write_text(content)
            if content == "new":
                assert (tmp_path / "x" / "file").read_text() == "old"
    assert names(tmp_path) == ["x"] and (tmp_path / "x" / "file").read_text() == "new"
    with (
        contextlib.suppress(KeyboardInterrupt),
        new_folder(tmp_path / "x", replace=True),
    ):
        raise KeyboardInterrupt
    assert names(tmp_path) == ["x"] and (tmp_path / "x" / "file").read_text() == "new"

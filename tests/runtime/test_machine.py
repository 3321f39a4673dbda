"""Versions, devices, kept programs and the line of progress."""

import os
import pathlib
import stat
import subprocess
import sys
import time
import types

import jax
import pytest

import hopf_jax
from hopf_jax.datasets import make_chain
from hopf_jax.runtime import (
    ProgressLine,
    TimeLeft,
    compiled,
    keep_programs_by_default,
    machine,
    progress,
)

ROOT = pathlib.Path(__file__).parents[2]
QUICK = hopf_jax.Config(num_iterations=2, max_epochs=2, min_epochs=1, hidden_size=3)


@pytest.fixture
def settings(monkeypatch):
    """What would be set in JAX, which tests leave alone."""
    found: dict = {}
    monkeypatch.setattr(machine.jax.config, "update", found.__setitem__)
    return found


def test_programs_are_kept_in_a_private_folder(tmp_path, settings, monkeypatch):
    monkeypatch.setenv("HOPF_CACHE", str(tmp_path))
    assert hopf_jax.keep_programs() == tmp_path / "programs"
    assert stat.S_IMODE((tmp_path / "programs").stat().st_mode) == 0o700
    assert settings["jax_compilation_cache_dir"] == str(tmp_path / "programs")
    assert hopf_jax.keep_programs(tmp_path / "mine") == tmp_path / "mine"


def test_folders_of_others_are_refused(tmp_path, settings, monkeypatch):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(ValueError, match="Other users may write to"):
        hopf_jax.keep_programs(shared)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="not a folder"):
        hopf_jax.keep_programs(tmp_path / "link")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(ValueError, match="belongs to another user"):
        hopf_jax.keep_programs(tmp_path / "mine")
    assert not settings


@pytest.mark.parametrize(
    ("told", "kept"), [("0", False), ("off", False), ("", True), ("1", True)]
)
def test_commands_keep_programs_unless_told(
    told, kept, tmp_path, settings, monkeypatch
):
    monkeypatch.setenv("HOPF_CACHE", str(tmp_path))
    monkeypatch.setenv("HOPF_KEEP_PROGRAMS", told)
    monkeypatch.setattr(machine, "cache_of_programs", lambda: None)
    keep_programs_by_default()
    assert bool(settings) == kept


def test_a_command_goes_on_without_a_folder(tmp_path, settings, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOPF_KEEP_PROGRAMS", str(tmp_path / "file"))
    keep_programs_by_default()
    assert "Compiled programs are not kept" in capsys.readouterr().err
    assert not settings


def test_programs_are_found_again(tmp_path):
    code = (
        "import hopf_jax; from hopf_jax.datasets import make_chain; "
        "hopf_jax.fit(make_chain(), 'gcn', max_epochs=2, min_epochs=1, progress=False)"
    )
    environment = os.environ | {"HOPF_KEEP_PROGRAMS": str(tmp_path / "programs")}
    command = [sys.executable, "-W", "ignore", "-c", code]
    counts = []
    for _ in range(2):
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        counts.append(len(list((tmp_path / "programs").glob("*-cache"))))
    assert 0 < counts[0] == counts[1]


def test_versions_and_devices_are_shown(capsys):
    hopf_jax.show_versions()
    text = capsys.readouterr().out
    assert jax.__version__ in text and "devices" in text and "python" in text
    assert hopf_jax.devices() == jax.local_devices()


def test_what_is_public_is_listed():
    assert dir(hopf_jax) == sorted([*hopf_jax.__all__, "__version__"])
    with pytest.raises(AttributeError, match="Did you mean 'split_graph'"):
        hopf_jax.split_grpah  # noqa: B018


def test_progress_says_what_is_compiled_and_ends_with_a_summary(capsys):
    # A width that no other test has compiled.
    hopf_jax.fit(make_chain(), "i-nip-mean", QUICK, hidden_size=11, progress=True)
    text = capsys.readouterr().err
    assert "fit i-nip-mean: compiling 1 of 2: training" in text
    assert "fit i-nip-mean: compiling 2 of 2: prediction" in text
    last = text.rstrip("\n").split("\r")[-1]
    assert "2 iterations, 4 epochs" in last and text.endswith("\n")
    hopf_jax.fit(make_chain(), "i-nip-mean", QUICK, progress=False)
    assert capsys.readouterr().err == ""


def test_progress_counts_seconds_while_it_compiles(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_TICK", 0.02)
    slow = compiled(stage="prediction")(lambda x: time.sleep(0.3) or x + 1)
    with ProgressLine("work", True) as line:
        slow(1)
        line.say("at it", "done")
    shown = [text.strip("\033[K\n") for text in capsys.readouterr().err.split("\r")]
    said = "work: compiling 2 of 2: prediction"
    assert said in shown and f"{said}, 0.1 s" in shown
    assert shown[-1].startswith("work: done, ")  # Nothing ticks after the end.


def test_progress_is_on_off_or_automatic():
    with pytest.raises(ValueError, match="progress is 'yes'; use True, False or"):
        ProgressLine("work", "yes")


def test_a_notebook_has_one_output(monkeypatch, capsys):
    shown: list = []
    handle = types.SimpleNamespace(update=lambda data, raw: shown.append(data))

    def display(data, raw, display_id):
        shown.append(data)
        return handle

    fake = types.SimpleNamespace(display=display, get_ipython=lambda: True)
    for name in ("IPython", "IPython.display", "ipykernel"):
        monkeypatch.setitem(sys.modules, name, fake)
    with ProgressLine("work") as line:
        line.say("at it", "done")
    assert shown[0] == {"text/plain": "work: at it"}
    assert shown[-1]["text/plain"].startswith("work: done, ")
    assert capsys.readouterr() == ("", "")


def test_the_time_left_is_a_bound_until_an_iteration_has_ended(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    left = TimeLeft(num_iterations=3, max_epochs=10)
    assert left.epoch(1, 1) == ""  # It may have compiled.
    assert left.epoch(1, 2) == ", at most 28 s left"
    assert left.epoch(1, 3) == ", at most 27 s left"
    assert left.epoch(2, 1) == ", about 5.0 s left"
    assert left.epoch(2, 2) == ", about 4.0 s left"

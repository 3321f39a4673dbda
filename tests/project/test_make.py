"""The files around the code: do they say what they do, and agree with each other?"""

import os
import pathlib
import re
import shutil
import subprocess
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).parents[2]
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="no make")


def make(*arguments):
    # Only PATH: options of a `make test` around this one are not meant for it.
    return subprocess.run(
        ["make", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )


def command(*arguments):
    """The last command `make` would run."""
    joined = make("--dry-run", *arguments).stdout.replace("\\\n", " ")
    return " ".join(joined.splitlines()[-1].split()[1:])


def targets():
    phony = re.search(
        r"^\.PHONY:((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(), re.M
    )
    return set(phony[1].replace("\\", "").split())


def pinned():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    requirements = [
        Requirement(line.split("#")[0]) for line in lines if line[:1].isalnum()
    ]
    return {canonicalize_name(r.name): r for r in requirements}


@needs_make
def test_help_is_the_default_and_lists_every_target():
    done = make()
    assert done.returncode == 0
    listed = set(re.findall(r"^  make ([a-z-]+) ", done.stdout, re.M))
    assert listed == targets() >= {"setup", "check", "test", "test-all", "reproduce"}


@needs_make
def test_reproduce_passes_on_what_it_is_given():
    ran = command("reproduce", "DATASET=pubmed")
    assert ran == "-m experiments.reproduce --dataset 'pubmed'"
    ran = command(
        *("reproduce", "DATASET=all", "MODELS=gcn,gcn-s", "FOLDS=1,2", "SEED=0"),
        *("HOPS=auto", "TOGETHER=1", "FRESH=1", "WORKDIR=my results"),
    )
    assert ran == (
        "-m experiments.reproduce --dataset 'all' --models 'gcn,gcn-s' --folds '1,2' "
        "--seed '0' --hops 'auto' --together --fresh --workdir 'my results'"
    )
    ran = command("reproduce", "DATASET=pubmed", "FRESH=0", "TOGETHER=0")
    assert "--fresh" not in ran and "--together" not in ran


@needs_make
def test_reproduce_asks_for_a_dataset():
    done = make("--dry-run", "reproduce")
    assert done.returncode != 0
    assert "DATASET=pubmed" in done.stderr


@needs_make
def test_data_takes_several_names():
    assert command("data", "DATASET=cora,pubmed") == "-m experiments.data cora pubmed"
    assert command("data") == "-m experiments.data"


@needs_make
def test_an_old_python_is_refused(tmp_path):
    # A directory of its own, so that set-up is due, with a Python that says it is 3.10.
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("requirements.txt", "pyproject.toml"):
        (tmp_path / name).touch()
    old = tmp_path / "old"
    old.write_text(
        '#!/bin/sh\nexec python3 -c "import sys; sys.version_info = (3, 10); $2"\n'
    )
    old.chmod(0o755)
    done = make("-C", str(tmp_path), "setup", f"PYTHON={old}")
    assert done.returncode != 0
    assert "needs Python 3.11 or newer" in done.stderr
    assert "is 3.10" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_ci_runs():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_every_requirement_is_pinned_within_its_range():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    pins = pinned()
    for requirement in map(Requirement, direct):
        pin = pins[canonicalize_name(requirement.name)]
        (version,) = [spec.version for spec in pin.specifier if spec.operator == "=="]
        assert requirement.specifier.contains(version, prereleases=True), requirement


def test_every_pin_is_exact():
    for name, pin in pinned().items():
        assert [spec.operator for spec in pin.specifier] == ["=="], name

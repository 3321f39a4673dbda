"""The files around the code: do they say what they do, and agree with each other?"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
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
        Requirement(line.rstrip(" \\")) for line in lines if line[:1].isalnum()
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
    assert ran == '-m experiments.reproduce --dataset "$DATASET"'
    ran = command(
        *("reproduce", "DATASET=all", "MODELS=gcn,gcn-s", "FOLDS=1,2", "SEED=0"),
        *("HOPS=auto", "TOGETHER=1", "FRESH=1", "WORKDIR=my results"),
    )
    assert ran == (
        '-m experiments.reproduce --dataset "$DATASET" --models "$MODELS" '
        '--folds "$FOLDS" --seed "$SEED" --hops "$HOPS" --together --fresh '
        '--workdir "$WORKDIR"'
    )
    ran = command("reproduce", "DATASET=pubmed", "FRESH=0", "TOGETHER=0")
    assert "--fresh" not in ran and "--together" not in ran


@needs_make
def test_tpu_programs_are_compiled_in_an_environment_of_their_own():
    done = make("--dry-run", "test-tpu", "WORKDIR=my results")
    last = done.stdout.splitlines()[-1]
    assert last == (
        '.venv-tpu/bin/python -m experiments.accelerators --workdir "$WORKDIR"'
    )
    last = make("--dry-run", "test-tpu", "ARGS=--chips 1").stdout.splitlines()[-1]
    assert last.startswith(".venv-tpu/bin/python -c")


@needs_make
def test_reproduce_asks_for_a_dataset():
    done = make("--dry-run", "reproduce")
    assert done.returncode != 0
    assert "DATASET=pubmed" in done.stderr


@needs_make
def test_data_takes_several_names():
    assert command("data", "DATASET=cora,pubmed") == '-m experiments.data "$DATASET"'
    assert command("data") == "-m experiments.data"


# Commands that make or a shell would execute, in any quoting; FILE is a file.
COMMANDS = (
    "x; touch FILE",
    "x'; touch FILE; '",
    'x"; touch FILE; "',
    "$(shell touch FILE)",
    "$$(touch FILE)",
    "`touch FILE`",
    "${x:-$(touch FILE)}",
    "x && touch FILE #",
)
GIVEN = ("DATASET", "MODELS", "FOLDS", "SEED", "HOPS", "WORKDIR", "TOGETHER", "FRESH")


def scratch(folder):
    """Make a folder in which everything seems to be set up."""
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("requirements.txt", "pyproject.toml"):
        (folder / name).touch()
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / ".installed").touch()
    return folder / ".venv" / "bin" / "python"


@needs_make
@pytest.mark.parametrize("text", COMMANDS)
def test_nothing_that_is_given_is_executed(text, tmp_path):
    program, told = scratch(tmp_path), tmp_path / "told"
    program.write_text(f'#!/bin/sh\nprintf "<%s>" "$@" >> {told}\n')
    program.chmod(0o755)
    pwned = tmp_path / "pwned"
    value = text.replace("FILE", str(pwned))
    for name in (*GIVEN, "ARGS", "PYTHON", "PEER", "HOPF_KEEP_PROGRAMS", "OTHER"):
        for target in ("reproduce", "data", "test"):
            needed = () if name == "DATASET" else ("DATASET=cora",)
            make("-C", str(tmp_path), target, f"{name}={value}", *needed)
            assert not pwned.exists(), (name, target)
    told.unlink()
    make("-C", str(tmp_path), "reproduce", f"DATASET={value}")
    assert f"<--dataset><{value}>" in told.read_text()


@needs_make
def test_extra_arguments_are_split_as_a_shell_does(tmp_path):
    scratch(tmp_path).symlink_to(sys.executable)
    (tmp_path / "pytest.py").write_text("import sys; print(sys.argv[1:])")
    done = make("-C", str(tmp_path), "test", "ARGS=-k 'a or b' --x=\"$(HOME) *\"")
    wanted = ["-n", "2", "--dist", "worksteal", "-k", "a or b", "--x=$(HOME) *"]
    assert str(wanted) in done.stdout, done.stderr


TOOLS = """#!/bin/sh
# Stands for Python: makes an environment in which nothing is what it seems.
mkdir -p "$3/bin"
printf '#!/bin/sh\\ncase "$*" in *requests*) exit %s;; esac\\n' > "$3/bin/python"
printf '#!/bin/sh\\ncase "$*" in *-tools.txt) exit %s;; esac\\n' > "$3/bin/pip-audit"
chmod +x "$3"/bin/*
"""


@needs_make
@pytest.mark.parametrize("reached", [True, False])
def test_audit_looks_at_every_list_or_says_that_it_did_not(reached, tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    tools = tmp_path / "python"
    tools.write_text(TOOLS % (0 if reached else 1, 1))  # One list has a finding.
    tools.chmod(0o755)
    done = make("-C", str(tmp_path), "audit", f"PYTHON={tools}")
    assert done.returncode != 0
    assert ("Nothing was audited" in done.stderr) is not reached
    listed = re.findall(r"^\S*requirements\S*\.txt$", done.stdout, re.M)
    assert len(listed) == (4 if reached else 0)


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
    extras = project["optional-dependencies"]
    direct = [Requirement(r) for r in (*project["dependencies"], *extras["dev"])]
    for own in [r for r in direct if r.name == project["name"]]:  # hopf-jax[docs]
        direct.remove(own)
        direct += [Requirement(r) for extra in own.extras for r in extras[extra]]
    pins = pinned()
    for requirement in direct:
        pin = pins[canonicalize_name(requirement.name)]
        (version,) = [spec.version for spec in pin.specifier if spec.operator == "=="]
        assert requirement.specifier.contains(version, prereleases=True), requirement


@pytest.mark.parametrize(
    "name",
    [
        *("requirements.txt", "requirements-notebook.txt", "requirements-tools.txt"),
        "experiments/jobs/requirements.txt",
    ],
)
def test_every_pin_has_hashes(name):
    text = (ROOT / name).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line[:1].isalnum()]
    assert len(lines) > 20
    for line in lines:
        assert re.search(r"^[^=]+==\S+.* --hash=sha256:[0-9a-f]{64}", line), line


def test_the_list_with_hashes_is_the_list():
    lines = (ROOT / "requirements.in").read_text().splitlines()
    listed = [Requirement(x.split("#")[0]) for x in lines if x[:1].isalnum()]
    assert {canonicalize_name(r.name): r.specifier for r in listed} == {
        name: pin.specifier for name, pin in pinned().items()
    }


def test_every_pin_is_exact():
    for name, pin in pinned().items():
        assert [spec.operator for spec in pin.specifier] == ["=="], name

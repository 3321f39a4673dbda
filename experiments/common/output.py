"""Result files, written atomically, with the provenance of their figures."""

import functools
import importlib.metadata
import json
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import hopf_jax
from hopf_jax.runtime import write_atomically

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = pathlib.Path("results")


def write_bytes(path: pathlib.Path, content: bytes) -> None:
    """Write a file, and make its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)


def write_text(path: pathlib.Path, text: str) -> None:
    """Write text as UTF-8, and make the folder if necessary."""
    write_bytes(path, text.encode())


def write_json(path: pathlib.Path, data: Any) -> None:
    """Write data as indented JSON, and make the folder if necessary."""
    write_text(path, json.dumps(data, indent=1, allow_nan=False) + "\n")


def write_results(
    path: pathlib.Path, data: Mapping[str, Any], invocation: Sequence[str]
) -> None:
    """Write data with its provenance as JSON, and print the path."""
    write_json(path, {**data, **provenance(invocation)})
    print(f"Written: {path}", flush=True)


def read_json(path: pathlib.Path) -> Any:
    """Return the content of a file; None if it does not exist or is not JSON."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
        return None


def remove(path: pathlib.Path) -> None:
    """Remove a file, or a folder with its contents, if it exists."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
    elif "://" in os.fspath(path):
        path.rmtree()  # type: ignore[attr-defined]
    else:
        shutil.rmtree(path)


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of the packages that the numbers depend on."""
    packages = ("jax", "jaxlib", "flax", "optax", "numpy", "scipy")
    found = {name: importlib.metadata.version(name) for name in packages}
    own = {"hopf_jax": hopf_jax.__version__, "python": platform.python_version()}
    return own | found


def provenance(invocation: Sequence[str]) -> dict[str, Any]:
    """Return where figures come from: versions, commit, command and machine.

    Args:
      invocation: The module and its arguments, as in `python -m`.
    """
    return {
        "versions": versions(),
        "commit": commit(),
        "command": shlex.join(["python", "-m", *invocation]),
        "machine": {"cpus": os.cpu_count(), "platform": platform.platform()},
    }


@functools.cache
def commit() -> str | None:
    """Return the commit of the checkout, marked if files differ, or None.

    It is looked up once, when the command line is parsed: the checkout may change
    before a long run ends.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("-changed" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def log(text: str) -> None:
    """Print a message that is not a result, to stderr."""
    print(text, file=sys.stderr, flush=True)

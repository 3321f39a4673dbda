"""Result folders: JSON written whole or not at all, and where a figure comes from."""

import ast
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import sys
from typing import Any

import hopf_jax
from hopf_jax.runtime import write_atomically

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = pathlib.Path("results")


def write_json(path: pathlib.Path, data: Any) -> None:
    """Write data as indented JSON, making the folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    write_atomically(path, text.encode())


def write_text(path: pathlib.Path, text: str) -> None:
    """Write text as UTF-8, making the folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())


def read_json(path: pathlib.Path) -> Any:
    """What a file holds; None if it is not there, or is not JSON."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
        return None


def sweep(path: pathlib.Path) -> None:
    """Remove what processes that were killed left of writing this file."""
    if "://" not in os.fspath(path):
        for left in path.parent.glob(f".{path.name}.*"):
            left.unlink(missing_ok=True)


def remove(path: pathlib.Path) -> None:
    """Remove a file, or a folder and all that is in it, if it is there."""
    if "://" in os.fspath(path):
        if path.is_dir():
            path.rmtree()  # type: ignore[attr-defined]
        else:
            path.unlink(missing_ok=True)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    packages = ("jax", "jaxlib", "flax", "optax", "numpy", "scipy")
    found = {name: importlib.metadata.version(name) for name in packages}
    return {
        "hopf_jax": hopf_jax.__version__,
        "python": platform.python_version(),
    } | found


def provenance(argv: list[str] | None = None) -> dict[str, Any]:
    """Where figures come from: versions, commit, command, machine."""
    module = "experiments" if argv is None else argv[0]
    arguments = [] if argv is None else argv[1:]
    return {
        "versions": versions(),
        "commit": commit(),
        "command": shlex.join(["python", "-m", module, *arguments]),
        "machine": {"cpus": os.cpu_count(), "platform": platform.platform()},
    }


def commit() -> str | None:
    """The checkout's commit, marked where files differ; None outside a checkout."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("-changed" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


@functools.cache
def code_digest() -> str:
    """A digest of the library's code, comments and docstrings aside.

    Figures computed by other code are not this code's, whatever its version says.
    """
    package = pathlib.Path(hopf_jax.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        if file.name in ("__init__.py", "plotting.py", "logs.py", "interruption.py"):
            continue  # They compute nothing.
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                node.value.value = None  # A docstring.
        digest.update(f"{file.relative_to(package)}\n{ast.dump(tree)}\n".encode())
    return digest.hexdigest()[:16]


def say(text: str) -> None:
    """To stderr: what is not a result."""
    print(text, file=sys.stderr, flush=True)

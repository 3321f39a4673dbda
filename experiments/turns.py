"""Processes that take turns: one works while the others wait.

Both sides of the talk, with nothing but the standard library: the peer's interpreter
has no JAX. A request and a reply are a line of JSON.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_MARK = "reply "  # Libraries print too; only lines that begin so are replies.


class WorkerError(Exception):
    """A worker ended, or was ended at its time limit; the message says why."""


class Worker:
    """A process that does what it is asked, and sleeps in between."""

    def __init__(self, command: Sequence[str], folder: pathlib.Path, timeout: float):
        self._timeout = timeout
        self._problems = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed in `end`
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._problems,
            cwd=folder,
            text=True,
        )

    def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        """One request and its reply."""
        assert self._process.stdin is not None and self._process.stdout is not None
        late = threading.Timer(self._timeout, self._process.kill)
        late.start()
        try:
            print(json.dumps([what, arguments]), file=self._process.stdin, flush=True)
            for line in self._process.stdout:
                if line.startswith(_MARK):
                    return json.loads(line.removeprefix(_MARK))
        except BrokenPipeError:
            pass
        finally:
            expired = late.finished.is_set()
            late.cancel()
        if expired:
            raise WorkerError(f"timed out after {self._timeout:g} s")
        status = self._process.wait()
        self._problems.seek(0)
        said = self._problems.read().strip()
        if status == -9 or "MemoryError" in said or "RESOURCE_EXHAUSTED" in said:
            raise WorkerError("out of memory")
        raise WorkerError(said[-2000:] or f"ended with status {status}")

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.communicate()
        self._problems.close()


def work(says: str | None, make: Callable[[int], Mapping[str, Any]]) -> int:
    """A worker's command line: serves what `make` makes of its number of threads."""
    parser = argparse.ArgumentParser(description=says)
    parser.add_argument("--threads", type=int, default=2)
    threads = parser.parse_args().threads
    serve(make(threads), threads)
    return 0


def library_without_jax() -> None:
    """Let those modules of hopf_jax be imported that need no JAX.

    The package as such imports it; so it stands here as a folder and no more.
    """
    package = types.ModuleType("hopf_jax")
    package.__path__ = [str(pathlib.Path(__file__).parent.parent / "hopf_jax")]
    sys.modules["hopf_jax"] = package


def serve(actions: Mapping[str, Any], threads: int | None = None) -> None:
    """The worker's side: replies to requests until there are no more."""
    if threads is not None and hasattr(os, "sched_setaffinity"):
        # Before any library makes its threads: they are as many as there are cores.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    for line in sys.stdin:
        what, arguments = json.loads(line)
        reply = json.dumps(actions[what](**arguments), allow_nan=False)
        print(_MARK + reply, flush=True)


def peak_gb() -> float:
    """Most memory this process has held.

    `ru_maxrss` is not it: a child inherits what its parent held when it started it.
    """
    try:
        status = pathlib.Path("/proc/self/status").read_text()
        held = next(part for part in status.splitlines() if part.startswith("VmHWM"))
        return int(held.split()[1]) / 1024**2
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2

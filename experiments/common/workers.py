"""Worker processes that answer requests and sleep in between.

Uses only the standard library, as the interpreter with PyTorch Geometric has no JAX. A
request and its reply are one line of JSON each.
"""

import argparse
import importlib
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_REPLY = "reply "  # Libraries print too; only lines that begin so are replies.
_ROOT = pathlib.Path(__file__).resolve().parents[2]


class WorkerError(Exception):
    """A worker ended, or was killed at its time limit."""


class Worker:
    """A process that serves requests."""

    def __init__(self, command: Sequence[str], timeout: float):
        self._timeout = timeout
        self._problems = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed in `end`
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._problems,
            cwd=_ROOT,
            text=True,
        )

    def ask(self, action: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and return its reply."""
        assert self._process.stdin is not None and self._process.stdout is not None
        late = threading.Timer(self._timeout, self._process.kill)
        late.start()
        try:
            print(json.dumps([action, arguments]), file=self._process.stdin, flush=True)
            for line in self._process.stdout:
                if line.startswith(_REPLY):
                    return json.loads(line.removeprefix(_REPLY))
        except BrokenPipeError:
            pass
        finally:
            expired = late.finished.is_set()
            late.cancel()
        if expired:
            raise WorkerError(f"timed out after {self._timeout:g} s")
        status = self._process.wait()
        self._problems.seek(0)
        message = self._problems.read().strip()
        if ran_out_of_memory(status, message):
            raise WorkerError("out of memory")
        raise WorkerError(message[-2000:] or f"ended with status {status}")

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.communicate()
        self._problems.close()


def ran_out_of_memory(status: int, message: str) -> bool:
    """Return whether a process was killed by the kernel, or an allocation failed."""
    return status == -9 or "MemoryError" in message or "RESOURCE_EXHAUSTED" in message


def start(module: str, python: str, threads: int, timeout: float) -> Worker:
    """Start a module that calls `main` as a worker with this number of cores."""
    return Worker([python, "-m", module, "--threads", str(threads)], timeout)


def main(doc: str | None, make: Callable[[int], Mapping[str, Any]]) -> int:
    """Run the command line of a worker's module; return the exit status.

    Args:
      doc: The docstring of the module.
      make: Returns the actions by name, given the number of threads.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--threads", type=int, default=2)
    threads = parser.parse_args().threads
    use_cores(threads)
    serve(make(threads))
    return 0


def use_cores(count: int) -> None:
    """Keep this process to some cores; call before any library starts its threads."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def serve(actions: Mapping[str, Any]) -> None:
    """Reply to requests on stdin until there are no more."""
    for line in sys.stdin:
        action, arguments = json.loads(line)
        reply = json.dumps(actions[action](**arguments), allow_nan=False)
        print(_REPLY + reply, flush=True)


def timed(run: Callable[[], Any], count: int) -> dict[str, Any]:
    """Return the seconds of each run, processor seconds per run, and peak memory."""
    seconds, begun_cpu = [], time.process_time()
    for _ in range(count):
        begun = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begun)
    cpu = (time.process_time() - begun_cpu) / count
    return {"seconds": seconds, "cpu_seconds": cpu, "peak_gb": peak_gb()}


def library_without_jax() -> None:
    """Make `hopf_jax.metrics` and `hopf_jax.learning.stopping` importable without JAX.

    Their packages import JAX, so empty packages with the same folders take their place.
    """
    rooms = ("graph", "learning", "runtime")
    for name in ("hopf_jax", *(f"hopf_jax.{room}" for room in rooms)):
        package = types.ModuleType(name)
        package.__path__ = [str(_ROOT / name.replace(".", "/"))]
        sys.modules[name] = package
    # What the graph room's checks use of the runtime, and the metrics of the checks.
    memory = importlib.import_module("hopf_jax.runtime.memory")
    vars(sys.modules["hopf_jax.runtime"])["check_memory"] = memory.check_memory
    validation = importlib.import_module("hopf_jax.graph.validation")
    vars(sys.modules["hopf_jax.graph"]).update(
        {name: value for name, value in vars(validation).items() if name[0] != "_"}
    )


def peak_gb() -> float:
    """Return the peak memory of this process, in GB.

    Not `ru_maxrss`: a child inherits what its parent held when it was started.
    """
    try:
        status = pathlib.Path("/proc/self/status").read_text()
        peak = next(part for part in status.splitlines() if part.startswith("VmHWM"))
        return int(peak.split()[1]) / 1024**2
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2

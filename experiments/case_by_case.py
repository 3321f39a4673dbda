"""What commands share that measure the benchmark's cases, one after another."""

import argparse
import contextlib
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from experiments import arguments, benchmark_jax, folders
from experiments.benchmark_cases import Case, named
from experiments.turns import Worker

_TIMEOUT = 900.0  # of a request, seconds


class Started(NamedTuple):
    """Processes of ours, and what they are told of a case."""

    workers: list[Worker]
    folder: str  # with the graph
    told: dict[str, Any]


def parser(says: str | None, module: str) -> argparse.ArgumentParser:
    """With options that choose cases and cores."""
    made = arguments.parser(says, module)
    made.add_argument("--cases", type=named, help='such as "cora K=2"')
    made.add_argument("--threads", type=arguments.positive, default=2)
    return made


def start(module: str, python: str, threads: int, timeout: float) -> Worker:
    """A worker's module, as a process of so many cores."""
    command = [python, "-m", module, "--threads", str(threads)]
    return Worker(command, folders.ROOT, timeout)


@contextlib.contextmanager
def started(case: Case, count: int, threads: int) -> Iterator[Started]:
    """So many processes of ours and the case's graph stored for them; then neither."""
    graph = case.load()
    with tempfile.TemporaryDirectory() as folder:
        benchmark_jax.store(graph, pathlib.Path(folder))
        told = case.told(graph.multilabel)
        del graph
        own = "experiments.benchmark_jax", sys.executable
        workers = [start(*own, threads, _TIMEOUT) for _ in range(count)]
        try:
            yield Started(workers, folder, told)
        finally:
            for worker in workers:
                worker.end()


def report(
    cases: Sequence[Case],
    measure: Callable[[Case], dict[str, Any]],
    said: Callable[[dict[str, Any]], str],
    path: pathlib.Path,
    command: list[str],
) -> int:
    """Measure, print and write case by case; returns the exit status."""
    found = {}
    for case in cases:
        found[case.name] = entry = measure(case)
        print(f"{case.name:<16} {said(entry)}", flush=True)
        data = {"cases": found} | folders.provenance(command)
        folders.write_json(path, data)
    print(f"Written: {path}")
    return 0

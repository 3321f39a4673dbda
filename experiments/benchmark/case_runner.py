"""Commands that measure the benchmark's cases one after another."""

import argparse
import contextlib
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from experiments.benchmark import library_worker
from experiments.benchmark.cases import Case, named
from experiments.common import arguments, output, workers

_TIMEOUT = 900.0  # Seconds per request.


class Started(NamedTuple):
    """Workers of the library, and what they need to know of a case."""

    workers: list[workers.Worker]
    folder: str  # With the graph.
    settings: dict[str, Any]


def parser(doc: str | None, module: str) -> argparse.ArgumentParser:
    """Return a parser with options that choose cases and cores."""
    made = arguments.parser(doc, module)
    add_options(made)
    return made


def add_options(made: argparse.ArgumentParser) -> None:
    """Add --cases and --threads."""
    made.add_argument("--cases", type=named, help='comma-separated, as "cora K=2"')
    arguments.add_counts(made, threads=2)


@contextlib.contextmanager
def started(case: Case, count: int, threads: int) -> Iterator[Started]:
    """Yield workers of the library that can read the graph of a case."""
    graph = case.load()
    with tempfile.TemporaryDirectory() as folder:
        library_worker.store(graph, pathlib.Path(folder))
        settings = case.settings(graph.multilabel)
        del graph
        own = [
            workers.start(library_worker.MODULE, sys.executable, threads, _TIMEOUT)
            for _ in range(count)
        ]
        try:
            yield Started(own, folder, settings)
        finally:
            for worker in own:
                worker.end()


def report(
    cases: Sequence[Case],
    measure: Callable[[Case], dict[str, Any]],
    describe: Callable[[dict[str, Any]], str],
    path: pathlib.Path,
    invocation: Sequence[str],
) -> int:
    """Measure and print case by case, write the results, and return the exit status."""
    found = {}
    for case in cases:
        found[case.name] = entry = measure(case)
        print(f"{case.name:<16} {describe(entry)}", flush=True)
        output.write_json(path, {"cases": found} | output.provenance(invocation))
    print(f"Written: {path}")
    return 0

"""Cases of the benchmark: graphs and nets, and commands that measure them."""

import argparse
import contextlib
import dataclasses
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from experiments import paper
from experiments.benchmark import library_worker
from experiments.common import arguments, output, workers
from hopf_jax import Config, Graph
from hopf_jax.datasets import load_dataset, make_random

_SIZES = paper.SCALING
Started = tuple[list[workers.Worker], str, dict[str, Any]]
_TIMEOUT = 900.0  # Seconds per request.


@dataclasses.dataclass(frozen=True)
class Case:
    """A graph and the net that is trained on it."""

    name: str
    load: Callable[[], Graph]
    config: Config
    extended: bool = False  # Measured with --all only.

    def settings(self, multilabel: bool) -> dict[str, Any]:
        """Return what the workers of all sides need to know."""
        return dataclasses.asdict(self.config) | {"multilabel": multilabel}


def _synthetic(num_nodes: int = _SIZES["num_nodes"]) -> Graph:
    edges = num_nodes * _SIZES["num_edges"] // _SIZES["num_nodes"]
    return make_random(num_nodes, edges, _SIZES["num_features"], _SIZES["num_labels"])


def _paper_case(dataset: str, hidden: int, extended: bool = False) -> Case:
    config = dataclasses.replace(
        paper.config_for(dataset, 2), hidden_size=hidden, fanouts=None, batch_size=128
    )
    return Case(f"{dataset} K=2", lambda: load_dataset(dataset), config, extended)


def _synthetic_case(
    name: str, hops: int, fanouts: tuple[int, ...] | None = None, extended: bool = False
) -> Case:
    config = paper.protocol_config(
        num_hops=hops,
        hidden_size=_SIZES["hidden"],
        batch_size=_SIZES["batch_size"],
        fanouts=fanouts,
        dropout=0.0,  # As in `make scaling`.
    )
    return Case(f"synthetic {name}", _synthetic, config, extended)


CASES = (
    _paper_case("cora", 16),
    _paper_case("pubmed", 16),
    _synthetic_case("K=1", 1),
    _synthetic_case("K=2", 2),
    _synthetic_case("K=3", 3, extended=True),
    _synthetic_case("25,10", 2, (25, 10), extended=True),
    _paper_case("human-go2022", 128, extended=True),
)
QUICK = Case(
    "quick K=1",
    lambda: _synthetic(1000),
    paper.protocol_config(num_hops=1, hidden_size=8, batch_size=32, dropout=0.0),
)


def named(names: str) -> list[Case]:
    """Return the cases whose names occur in a text, at least one."""
    # A name may contain a comma: "synthetic 25,10".
    chosen = [case for case in CASES if case.name in names]
    if not chosen:
        known = "; ".join(case.name for case in CASES)
        raise argparse.ArgumentTypeError(f"{names!r} has none of: {known}")
    return chosen


def add_options(made: arguments.Parser) -> None:
    """Add --cases and --threads."""
    made.option("cases", named, help='comma-separated, as "cora K=2"')
    arguments.add_counts(made, threads=2)


@contextlib.contextmanager
def started(case: Case, count: int, threads: int) -> Iterator[Started]:
    """Yield workers of the library, the folder of the graph, and the settings."""
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
            yield own, folder, settings
        finally:
            for worker in own:
                worker.end()


def main(
    parser: arguments.Parser,
    argv: Sequence[str] | None,
    cases: Sequence[Case],
    measure: Callable[[Case, argparse.Namespace], dict[str, Any]],
    describe: Callable[[dict[str, Any]], str],
    file: str,
) -> int:
    """Run a command line that measures cases, prints and writes them.

    Args:
      parser: The parser, to which --cases and --threads are added.
      argv: Arguments of the command line; None for those of the process.
      cases: The cases to measure by default.
      measure: Returns the entry of a case, given the options.
      describe: Returns an entry as text.
      file: Name of the file to write in WORKDIR, after every case.
    """
    add_options(parser)
    options = parser.parse_args(argv)
    found = {}
    for case in options.cases or cases:
        found[case.name] = entry = measure(case, options)
        print(f"{case.name:<16} {describe(entry)}", flush=True)
        data = {"cases": found} | output.provenance(options.invocation)
        output.write_json(options.workdir / file, data)
    print(f"Written: {options.workdir / file}")
    return 0

"""The command `hopf serve`: a saved model and a graph, as an HTTP service."""

import argparse
import dataclasses
import pathlib
import sys

from hopf_jax.cli.model_folder import load_model, read_new_graph
from hopf_jax.config import Number, Whole, check
from hopf_jax.graph import Graph, open_graph
from hopf_jax.results import Result, load
from hopf_jax.runtime import import_or_explain

_TABLES = (".parquet", ".csv", ".tsv", ".csv.gz", ".tsv.gz", ".npz")


def run(options: argparse.Namespace) -> int:
    """Serve until the process is told to stop."""
    for module in ("starlette", "uvicorn", "pydantic", "prometheus_client"):
        try:
            import_or_explain(module, "hopf serve", "'hopf-jax[serve]'")
        except ImportError as error:
            raise ValueError(str(error)) from None
    # Lazy: what was just looked for is not always installed.
    from hopf_jax.serving import Journal, Limits, Live, identify, serve

    for name, constraint in (
        ("port", Whole(0, 65_535)),
        ("max_body", Whole(1, 1 << 30)),
        ("timeout", Number(0.01, 3600)),
        ("queue", Whole(1, 100_000)),
    ):
        check(constraint, f"--{name.replace('_', '-')}", getattr(options, name))
    limits = Limits(options.max_body, options.timeout, options.queue)
    result, graph = read_served(options.model, options.graph)
    journal = None
    if options.state is not None:
        journal = Journal(options.state, identify(result, graph))
    try:
        live = Live(result, graph, journal, changeable=not options.read_only)
        live.warm_up()
        print(f"{graph!r}, {live.view.version} updates", file=sys.stderr)
        serve(
            live,
            options.host,
            options.port,
            limits=limits,
            hosts=options.allow_host,
            announce=lambda address: print(f"Serving at {address}", flush=True),
        )
    finally:
        if journal is not None:
            journal.close()
    print("Stopped.", file=sys.stderr)
    return 0


def read_served(model: pathlib.Path, folder: pathlib.Path) -> tuple[Result, Graph]:
    """Return a model and the graph in a folder: a mapped one, or tables.

    Args:
      model: A folder of `hopf fit`, or a file of `Result.save`.
      folder: One of `write_graph`; or one that holds tables called edges, features and
        possibly labels.
    """
    if not folder.is_dir():
        raise ValueError(f"--graph {folder} is not a folder.")
    if not model.exists():
        raise ValueError(f"There is no {model}. `hopf fit` makes a model.")
    if (folder / "graph.json").exists():
        result = load_model(model)[0] if model.is_dir() else load(model)
        return result, open_graph(folder)
    edges, features, labels = (
        _table(folder, name) for name in ("edges", "features", "labels")
    )
    if edges is None or features is None:
        raise ValueError(
            f"{folder} is no graph. It must be a folder that hopf_jax.write_graph "
            "wrote, or hold the tables edges and features, and possibly labels, as "
            f"{', '.join(_TABLES)}."
        )
    if not model.is_dir():
        raise ValueError(
            f"{folder} holds tables, and {model} does not say how to read them. Give "
            "the folder of a model that hopf fit wrote, or write the graph with "
            "hopf_jax.write_graph."
        )
    result, settings = load_model(model)
    nodes, graph = read_new_graph(edges, features, labels, True, result, settings)
    columns = tuple(settings.features)
    graph = dataclasses.replace(graph, node_names=tuple(nodes), feature_names=columns)
    # So that explanations name the columns as the tables do.
    scaling = result.scaling and dataclasses.replace(result.scaling, names=columns)
    named = dataclasses.replace(result, feature_names=columns, scaling=scaling)
    return named, graph


def _table(folder: pathlib.Path, name: str) -> pathlib.Path | None:
    found = [folder / f"{name}{kind}" for kind in _TABLES]
    there = [path for path in found if path.exists()]
    if len(there) > 1:
        raise ValueError(f"{folder} holds {there[0].name} and {there[1].name}.")
    return there[0] if there else None

"""The commands of `hopf`: the functions of `hopf_jax`, on tables in files."""

import argparse
import dataclasses
import functools
import importlib
import os
import pathlib
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import hopf_jax
from hopf_jax import datasets
from hopf_jax.cli import scoring, serving, tables
from hopf_jax.cli.model_folder import (
    load_model,
    read_graph,
    read_new_graph,
    save_model,
)
from hopf_jax.cli.options import DRAWN_SHARES, make_parser, settings_of
from hopf_jax.comparison import compare
from hopf_jax.config import Config, Execution
from hopf_jax.fitting import describe_choice, fit
from hopf_jax.graph import GRAPH_FILE, SPLITS, Graph, split_graph
from hopf_jax.kernels import find_kernel
from hopf_jax.parts import import_tables, partition
from hopf_jax.results import Result
from hopf_jax.runtime import (
    keep_programs_by_default,
    write_atomically,
)
from hopf_jax.suggestions import did_you_mean
from hopf_jax.tuning import tune

_BAD_INPUT, _INTERRUPTED, _PIPE_CLOSED = 2, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    parser = make_parser(hopf_jax.__version__)
    options, rest = parser.parse_known_args(arguments)
    if arguments is None:  # A process of its own.
        keep_programs_by_default()
    if options.command == "reproduce":
        options.rest = rest  # Options of another parser.
    elif rest:
        known = [f"--{name.replace('_', '-')}" for name in vars(options)]
        hint = did_you_mean(rest[0], known)
        hint = f" ({hint[0].lower()}{hint[1:]})" if hint else ""
        parser.error(f"unrecognized arguments: {' '.join(rest)}{hint}")

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"hopf {options.command}: warning: {message}", file=sys.stderr)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = show  # Without the line of this library.
            status = _COMMANDS[options.command](options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # For example `| head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except (ValueError, OSError, datasets.DatasetError) as error:
        message = " ".join(str(error).split())
        print(f"hopf {options.command}: {message}", file=sys.stderr)
        return _BAD_INPUT
    except KeyboardInterrupt:
        print(f"hopf {options.command}: interrupted", file=sys.stderr)
        return _INTERRUPTED


def _fit(options: argparse.Namespace) -> int:
    keywords = _fit_keywords(options)
    if options.model is not None:
        find_kernel(options.model)  # Before any table is read.
    if options.out.exists() and not options.out.is_dir():
        raise ValueError(f"--out {options.out} is a file; give a folder.")
    graph, settings, sets = read_graph(options)
    if options.split is not None:
        sets = tables.read_split(options.split, settings.nodes, not options.no_header)
    shares = {name: getattr(options, name) for name in SPLITS}
    shares = {name: share for name, share in shares.items() if share is not None}
    if sets is not None:
        if shares:
            raise ValueError(
                f"--{next(iter(shares))} draws a split, but the tables have one. Leave "
                "out one of the two."
            )
        graph = graph.with_split(**sets)
    elif shares:
        graph = split_graph(graph, **DRAWN_SHARES | shares, seed=options.seed)
    _report(options, repr(graph))
    result = fit(graph, options.model, **keywords)
    save_model(options.out, result, settings)
    if result.choice and not sys.stderr.isatty():  # Else `fit` has said it.
        _report(options, describe_choice(result.choice))
    _print_scores(result, graph)
    _report(options, f"Written to {options.out}.")
    return 0


def _print_scores(result: Result, graph: Graph) -> None:
    """Print the scores of each set of nodes, tab-separated."""
    _print_row("set", "nodes", "micro_f1", "macro_f1")
    fitted = graph if result.graph is None else result.graph
    for name, scores in result.scores.items():
        nodes = int(getattr(fitted, name).sum())
        if name == "validation" and result.cross_validated is not None:
            name, nodes = "cross-validated", len(result.cross_validated[0])
        values = (f"{scores[metric]:.4f}" for metric in ("micro_f1", "macro_f1"))
        _print_row(name, nodes, *values)


def _fit_keywords(options: argparse.Namespace) -> dict[str, Any]:
    """Return settings as `fit` and `compare` take them, before any table is read."""
    return {
        "config": settings_of(options, Config),
        "seed": options.seed,
        "progress": False if options.quiet else "auto",
        "execution": settings_of(options, Execution),
    }


def _predict(options: argparse.Namespace) -> int:
    result, settings = load_model(options.model)
    if options.chunk_edges is not None:
        execution = Execution(chunk_edges=options.chunk_edges)
        result = dataclasses.replace(result, execution=execution)
    nodes: Sequence[str] = settings.nodes
    graph = None
    if options.edges is None:
        if options.labels is not None:
            raise ValueError(
                "--labels are of a new graph: give its EDGES and FEATURES."
            )
    elif options.features is None:
        raise ValueError("a new graph needs EDGES and FEATURES.")
    else:
        nodes, graph = read_new_graph(
            *(options.edges, options.features, options.labels),
            not options.no_header,
            *(result, settings),
        )
    probabilities = result.predict_proba(graph)
    names = list(result.label_names)
    decided = result.decision.decide(probabilities)
    if result.multilabel:
        header = ["node", "labels"]
        cells = [[";".join(np.array(names)[row > 0].tolist())] for row in decided]
    else:
        header = ["node", "label", "probability"]
        own = np.take_along_axis(probabilities, decided[:, None], axis=1)[:, 0].tolist()
        cells = [[names[i], p] for i, p in zip(decided, own, strict=True)]
    shown = probabilities if options.probabilities else probabilities[:, :0]
    text = tables.to_csv(
        header + names[: shown.shape[1]],
        (
            [node, *cell, *row.tolist()]
            for node, cell, row in zip(nodes, cells, shown, strict=True)
        ),
    )
    if options.out is None:
        sys.stdout.write(text)
    else:
        write_atomically(options.out, text.encode())
    return 0


def _compare(options: argparse.Namespace) -> int:
    keywords = _fit_keywords(options)
    models = [name.strip() for name in options.models.split(",")]
    for name in models:
        find_kernel(name)  # Before any table is read.
    graph, _, sets = read_graph(options)
    if sets is not None:
        graph = graph.with_split(**sets)
    _report(options, repr(graph))
    found = compare(
        graph,
        models,
        options.folds,
        share=options.share,
        on=options.on,
        metric=options.score,
        **keywords,
    )
    if options.csv:
        sys.stdout.write(tables.to_csv(found.lines[0]._fields, found.lines))
    else:
        print(found)
    return 0


def _tune(options: argparse.Namespace) -> int:
    keywords = _fit_keywords(options)
    if options.out.exists() and not options.out.is_dir():
        raise ValueError(f"--out {options.out} is a file; give a folder.")
    graph, settings, sets = read_graph(options)
    if options.split is not None:
        sets = tables.read_split(options.split, settings.nodes, not options.no_header)
    if sets is not None:
        graph = graph.with_split(**sets)
    _report(options, repr(graph))
    found = tune(
        graph,
        [name.strip() for name in options.models.split(",")],
        options.budget,
        timeout=options.timeout,
        workers=options.workers,
        workdir=options.workdir,
        **keywords,
    )
    save_model(options.out, found.result, settings)
    print(found)
    _report(options, f"Written to {options.out}.")
    return 0


def _data(options: argparse.Namespace) -> int:
    if options.export is not None:
        if len(options.names) != 1:
            raise ValueError("--export writes one dataset: name it.")
        graph = datasets.load_dataset(options.names[0], fold=options.fold)
        print(*tables.export_graph(graph, options.export), sep="\n")
    elif options.names:
        graphs = [datasets.load_dataset(name) for name in options.names]
        _print_row("name", "nodes", "edges", "features", "labels", *SPLITS)
        for name, graph in zip(options.names, graphs, strict=True):
            sizes = graph.num_nodes, graph.num_edges, graph.num_features
            sets = (int(getattr(graph, each).sum()) for each in SPLITS)
            _print_row(name, *sizes, graph.num_labels, *sets)
    else:
        _print_row("name", "task", "nodes", "features", "labels", "folder")
        for name, entry in datasets.DATASETS.items():
            counts = entry.counts.nodes, entry.counts.features, entry.counts.labels
            shown = ("-" if count is None else count for count in counts)
            _print_row(name, entry.task, *shown, datasets.find(entry) or "-")
    return 0


def _partition(options: argparse.Namespace) -> int:
    report = functools.partial(_report, options)
    graph = options.graph
    if not (graph / GRAPH_FILE).exists():
        graph = options.keep or options.out.with_name(f"{options.out.name}-graph")
        if graph.exists():
            report(f"{graph} is read, which an earlier run wrote.")
        else:
            import_tables(
                options.graph,
                graph,
                options.nodes,
                options.labels,
                directed=options.directed,
                memory=options.memory,
                say=report,
            )
    parts = partition(
        graph,
        options.out,
        parts=options.parts,
        hops=options.hops,
        method=options.method,
        features=options.features,
        memory=options.memory,
        seed=options.seed,
        say=report,
    )
    print(parts.report())
    return 0


def _reproduce(options: argparse.Namespace) -> int:
    here = pathlib.Path.cwd()
    if (here / "experiments" / "reproduce.py").is_file():
        # A console script has its own folder on the path, not the current one.
        sys.path.insert(0, str(here))
    try:
        module = importlib.import_module("experiments.reproduce")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "experiments":
            raise ValueError(f"{error}. `make setup` installs what it needs.") from None
        raise ValueError(
            "the experiments are not installed with the package. Clone the repository, "
            "and run this in its folder."
        ) from None
    return int(module.main(options.rest))


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "fit": _fit,
    "predict": _predict,
    "compare": _compare,
    "tune": _tune,
    "score": scoring.run,
    "serve": serving.run,
    "data": _data,
    "partition": _partition,
    "reproduce": _reproduce,
}


def _print_row(*cells: Any) -> None:
    print(*cells, sep="\t")


def _report(options: argparse.Namespace, message: str) -> None:
    if not options.quiet:
        print(message, file=sys.stderr)

"""`hopf`: the command line over the same functions as `hopf_jax`."""

import argparse
import dataclasses
import importlib
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

import hopf_jax
from hopf_jax import datasets
from hopf_jax.cli import model_folder, tables
from hopf_jax.cli.options import config_of, execution_of, make_parser
from hopf_jax.comparison import compare
from hopf_jax.fitting import fit
from hopf_jax.graph import SPLITS, Graph
from hopf_jax.results import Result, decide
from hopf_jax.runtime import write_atomically

_BAD_INPUT, _INTERRUPTED, _PIPE_CLOSED = 2, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status."""
    parser = make_parser(hopf_jax.__version__)
    options, rest = parser.parse_known_args(arguments)
    if options.command == "reproduce":
        options.rest = rest  # They are another parser's.
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        status = _COMMANDS[options.command](options)
        sys.stdout.flush()
        return status
    except (ValueError, OSError, datasets.DatasetError) as error:
        if isinstance(error, BrokenPipeError):  # As `| head` does.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _PIPE_CLOSED
        said = " ".join(str(error).split())
        print(f"hopf {options.command}: {said}", file=sys.stderr)
        return _BAD_INPUT
    except KeyboardInterrupt:
        print(f"hopf {options.command}: interrupted", file=sys.stderr)
        return _INTERRUPTED


# Commands


def _fit(options: argparse.Namespace) -> int:
    config = config_of(options)  # What is wrong is said before anything is read.
    if options.out.exists() and not options.out.is_dir():
        raise ValueError(f"--out {options.out} is a file; give a folder.")
    graph, reading, sets = _read(options)
    if options.split is not None:
        header = not options.no_header
        sets = tables.read_split(options.split, reading.nodes, header=header)
    if sets is None:
        percent = 10.0 if options.percent is None else options.percent
        sets = datasets.draw_split(
            graph.known, percent=percent, fold=options.fold, seed=options.seed
        )
        _say(options, f"No split is given: drawn, fold {options.fold}, {percent:g}%.")
    graph = graph.with_split(**sets)
    _say(options, repr(graph))
    result = fit(
        graph,
        options.model,
        config,
        seed=options.seed,
        progress=False if options.quiet else "auto",
        execution=execution_of(options),
    )
    model_folder.save_model(options.out, result, reading)
    print("set", "nodes", "micro_f1", "macro_f1", sep="\t")
    for name in SPLITS:
        if name in result.scores:
            scores = [f"{result.scores[name][m]:.4f}" for m in ("micro_f1", "macro_f1")]
            print(name, int(getattr(graph, name).sum()), *scores, sep="\t")
    _say(options, f"Written to {options.out}.")
    return 0


def _predict(options: argparse.Namespace) -> int:
    result, reading = model_folder.load_model(options.model)
    if options.edges is None:
        if options.labels is not None:
            raise ValueError(
                "--labels are of a new graph: give its EDGES and FEATURES."
            )
        nodes: Sequence[str] = reading.nodes
        probabilities = result.predict_proba()
    elif options.features is None:
        raise ValueError("a new graph needs EDGES and FEATURES.")
    else:
        nodes, graph = _read_new(options, result, reading)
        probabilities = result.predict_proba(graph)
    text = _predictions(nodes, probabilities, result, options.probabilities)
    if options.out is None:
        sys.stdout.write(text)
    else:
        write_atomically(options.out, text.encode())
    return 0


def _compare(options: argparse.Namespace) -> int:
    config = config_of(options)
    graph, _, sets = _read(options)
    if sets is not None:
        graph = graph.with_split(**sets)
    _say(options, repr(graph))
    found = compare(
        graph,
        [name.strip() for name in options.models.split(",")],
        options.folds,
        config,
        seed=options.seed,
        percent=options.percent,
        on=options.on,
        metric=options.metric,
        progress=False if options.quiet else "auto",
    )
    if options.csv:
        lines = found.lines
        sys.stdout.write(tables.to_csv(lines[0]._fields, iter(lines)))
    else:
        print(found)
    return 0


def _data(options: argparse.Namespace) -> int:
    known = datasets.DATASETS
    if options.export is not None:
        if len(options.names) != 1:
            raise ValueError("--export writes one dataset: name it.")
        graph = datasets.load_dataset(options.names[0], fold=options.fold)
        _export(graph, options.export)
        print(*(options.export / name for name in _EXPORTED), sep="\n")
        return 0
    if not options.names:
        print("name", "task", "nodes", "features", "labels", "folder", sep="\t")
        for name, entry in known.items():
            counts = (entry.counts.nodes, entry.counts.features, entry.counts.labels)
            said = ["-" if count is None else count for count in counts]
            print(name, entry.task, *said, datasets.find(entry) or "-", sep="\t")
        return 0
    rows: list[list[Any]] = [["name", "nodes", "edges", "features", "labels", *SPLITS]]
    for name in options.names:
        graph = datasets.load_dataset(name)
        sets = [int(getattr(graph, each).sum()) for each in SPLITS]
        sizes = (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_labels)
        rows.append([name, *sizes, *sets])
    for row in rows:
        print(*row, sep="\t")
    return 0


def _reproduce(options: argparse.Namespace) -> int:
    here = pathlib.Path.cwd()
    if (here / "experiments" / "reproduce.py").is_file():
        sys.path.insert(0, str(here))  # A script's path does not start with its folder.
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
    "data": _data,
    "reproduce": _reproduce,
}


# Graphs from tables, and tables from graphs


def _read(options: argparse.Namespace) -> tuple[Graph, model_folder.Reading, Any]:
    """The graph of the tables, how they were read, and the sets they name."""
    header = not options.no_header
    features = tables.read_features(options.features, header=header)
    edges = tables.read_edges(options.edges, features.nodes, header=header)
    labels = tables.read_labels(options.labels, features.nodes, header=header)
    sparse = sp.issparse(features.matrix)
    if options.features_as != "auto":
        sparse = options.features_as == "sparse"
    reading = model_folder.Reading(
        tuple(features.nodes),
        tuple(features.names),
        options.directed,
        options.self_loops,
        options.normalize,
        sparse,
    )
    names: Any = labels.names
    if options.label_names is not None:
        names = [name.strip() for name in options.label_names.split(",")]
    elif names is None:
        names = tables.sort_classes(labels.values)
    graph = _graph(features, edges, labels.values, names, reading)
    return graph, reading, labels.sets


def _graph(
    features: tables.Features,
    edges: tables.Edges,
    labels: Any,
    label_names: Any,
    reading: model_folder.Reading,
) -> Graph:
    graph = Graph.from_edges(
        edges.senders,
        edges.receivers,
        model_folder.as_read(features.matrix, reading),
        labels,
        weights=edges.weights,
        directed=reading.directed,
        self_loops=reading.self_loops,
        label_names=label_names,
        multilabel=None if labels is None else np.ndim(labels) == 2,
    )
    if not reading.normalize:
        return graph
    return dataclasses.replace(graph, features=datasets.normalize_rows(graph.features))


def _read_new(
    options: argparse.Namespace, result: Result, reading: model_folder.Reading
) -> tuple[list[str], Graph]:
    header = not options.no_header
    features = tables.read_features(options.features, header=header)
    edges = tables.read_edges(options.edges, features.nodes, header=header)
    if header and tuple(features.names) != reading.features:
        features = _reorder(features, reading.features)
    labels = sets = None
    if options.labels is not None:
        known = tables.read_labels(options.labels, features.nodes, header=header)
        labels, sets = known.values, known.sets
    names = None if labels is None else result.label_names
    graph = _graph(features, edges, labels, names, reading)
    if labels is not None:
        lent = graph.known if sets is None else sets["train"]
        graph = graph.with_split(train=lent)
    return features.nodes, graph


def _reorder(features: tables.Features, wanted: tuple[str, ...]) -> tables.Features:
    """Columns in the order of the fit."""
    place = {name: i for i, name in enumerate(features.names)}
    missing = [name for name in wanted if name not in place]
    if missing or len(place) != len(wanted):
        said = f"{missing[0]!r} is missing" if missing else "there are others too"
        raise ValueError(
            f"The features must have the {len(wanted)} columns of the fit; {said}."
        )
    columns = [place[name] for name in wanted]
    return features._replace(names=list(wanted), matrix=features.matrix[:, columns])


def _predictions(
    nodes: Sequence[str], probabilities: np.ndarray, result: Result, all_of_them: bool
) -> str:
    names = result.label_names
    decided = decide(probabilities, result.multilabel)
    if result.multilabel:
        header = ["node", "labels"]
        cells = [[";".join(np.array(names)[row > 0].tolist())] for row in decided]
    else:
        header = ["node", "label", "probability"]
        likeliest = probabilities.max(axis=1).tolist()
        cells = [[names[i], p] for i, p in zip(decided, likeliest, strict=True)]

    def rows() -> Iterator[list[Any]]:
        for node, cell, row in zip(nodes, cells, probabilities, strict=True):
            yield [node, *cell, *(row.tolist() if all_of_them else ())]

    return tables.to_csv([*header, *(names if all_of_them else ())], rows())


_EXPORTED = ("edges.csv", "features.csv", "labels.csv")


def _export(graph: Graph, target: pathlib.Path) -> None:
    """A graph as the tables that `fit` reads; nodes are called 0, 1, 2, ..."""
    target.mkdir(parents=True, exist_ok=True)
    arcs = graph.adjacency.tocoo()
    once = arcs.row <= arcs.col if not graph.directed else np.ones(arcs.nnz, bool)
    ends = [arcs.col[once].tolist(), arcs.row[once].tolist()]
    header = ["source", "target"]
    if graph.weights is not None:
        ends.append(arcs.data[once].tolist())
        header.append("weight")
    edges = tables.to_csv(header, zip(*ends, strict=True))
    names = ["node", *(f"x{j}" for j in range(graph.num_features))]
    features = tables.to_csv(names, _feature_rows(graph))
    sets = np.full(graph.num_nodes, "", object)
    for each in SPLITS:
        sets[getattr(graph, each)] = each
    labels = tables.to_csv(
        ["node", *(graph.label_names if graph.multilabel else ["label"]), "set"],
        _label_rows(graph, sets),
    )
    for name, text in zip(_EXPORTED, (edges, features, labels), strict=True):
        write_atomically(target / name, text.encode())


def _feature_rows(graph: Graph) -> Iterator[list[Any]]:
    for i in range(graph.num_nodes):
        row: Any = graph.features[[i]]
        row = row.toarray() if sp.issparse(row) else np.asarray(row)
        # 0 rather than 0.0: most of a bag of words is zeros.
        yield [i, *(v or 0 for v in row[0].tolist())]


def _label_rows(graph: Graph, sets: np.ndarray) -> Iterator[list[Any]]:
    for i in np.flatnonzero(graph.known).tolist():
        row = graph.labels[i]
        said = row.tolist() if graph.multilabel else [graph.label_names[row.argmax()]]
        yield [i, *said, sets[i]]


def _say(options: argparse.Namespace, remark: str) -> None:
    if not options.quiet:
        print(remark, file=sys.stderr)

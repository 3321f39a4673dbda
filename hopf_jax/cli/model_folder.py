"""The folder of a model, and graphs from tables that are read as those of its fit."""

import argparse
import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from hopf_jax import datasets
from hopf_jax.cli import tables
from hopf_jax.config import check_fields
from hopf_jax.graph import Graph
from hopf_jax.results import Result, load_with_notes, save
from hopf_jax.runtime import MALFORMED, read_json, sha256

_RESULT = "result.npz"
_DESCRIPTION = "model.json"  # Of version 0.1; results hold it now.


@dataclasses.dataclass(frozen=True)
class ReadSettings:
    """How tables were read, so that those of a new graph are read the same way.

    Attributes:
      nodes: Names of the fitted nodes, in the order of the result.
      features: Names of the columns.
      directed, self_loops: As `Graph.from_edges` takes them.
      normalize: Rows of features were scaled to sum to 1.
      sparse: Features were kept as a sparse matrix.
    """

    nodes: Sequence[str]
    features: Sequence[str]
    directed: bool
    self_loops: Literal["drop", "keep"]
    normalize: bool
    sparse: bool

    def __post_init__(self) -> None:
        """Raise `ValueError` for settings that `hopf fit` does not write."""
        check_fields(self)
        for name in ("nodes", "features"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not all(isinstance(v, str) for v in (*self.nodes, *self.features)):
            raise ValueError("names of nodes and features must be text")

    def graph(
        self,
        matrix: Any,
        edges: tables.Edges,
        labels: Any,
        label_names: Any,
        nodes: Sequence[str],
    ) -> Graph:
        """Return the graph of these features, edges, labels and names of nodes."""
        if self.sparse:
            matrix = sp.csr_array(matrix)
        elif sp.issparse(matrix):
            matrix = matrix.toarray()
        graph = Graph.from_edges(
            edges.senders,
            edges.receivers,
            matrix,
            labels,
            weights=edges.weights,
            directed=self.directed,
            self_loops=self.self_loops,
            label_names=label_names,
            multilabel=None if labels is None else np.ndim(labels) == 2,
        )
        # Not before: the ends of edges are ids, which names could look like.
        graph = dataclasses.replace(
            graph, node_names=tuple(nodes), feature_names=tuple(self.features)
        )
        if self.normalize:
            features = datasets.normalize_rows(graph.features)
            graph = dataclasses.replace(graph, features=features)
        return graph


def _read_tables(
    edge_path: tables.Path, path: tables.Path, labels: tables.Path | None, header: bool
) -> tuple[tables.Features, tables.Edges, tables.Labels]:
    features = tables.read_features(path, header)
    edges = tables.read_edges(edge_path, features.nodes, header)
    known = tables.Labels(None, None, None)
    if labels is not None:
        known = tables.read_labels(labels, features.nodes, header)
    return features, edges, known


def read_graph(options: argparse.Namespace) -> tuple[Graph, ReadSettings, Any]:
    """Return the graph of the tables, how they were read, and the sets they name."""
    features, edges, labels = _read_tables(
        options.edges, options.features, options.labels, not options.no_header
    )
    sparse = sp.issparse(features.matrix)
    if options.features_as != "auto":
        sparse = options.features_as == "sparse"
    names = ("directed", "self_loops", "normalize")
    given = {name: getattr(options, name) for name in names}
    settings = ReadSettings(features.nodes, features.columns, sparse=sparse, **given)
    classes: Any = labels.names
    if options.label_names is not None:
        classes = [name.strip() for name in options.label_names.split(",")]
    elif classes is None:
        classes = tables.sort_classes(labels.values)
    graph = settings.graph(
        features.matrix, edges, labels.values, classes, features.nodes
    )
    return graph, settings, labels.sets


def read_new_graph(
    edges: tables.Path,
    features: tables.Path,
    labels: tables.Path | None,
    header: bool,
    result: Result,
    settings: ReadSettings,
) -> tuple[Sequence[str], Graph]:
    """Return the names of the nodes, and the graph with known labels as training.

    Args:
      edges, features, labels: The tables.
      header: Whether their first lines name the columns.
      result, settings: The model, and how the tables of its fit were read.
    """
    found = _read_tables(edges, features, labels, header)
    return found[0].nodes, new_graph(*found, header, result, settings)


def place_columns(columns: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the place of each wanted column; raise if they are not the same ones."""
    place = {name: i for i, name in enumerate(columns)}
    missing = [name for name in wanted if name not in place]
    if missing or len(place) != len(wanted):
        problem = f"{missing[0]!r} is missing" if missing else "there are others too"
        raise ValueError(
            f"The features must have the {len(wanted)} columns of the fit; {problem}."
        )
    return [place[name] for name in wanted]


def new_graph(
    features: tables.Features,
    edges: tables.Edges,
    labels: tables.Labels,
    header: bool,
    result: Result,
    settings: ReadSettings,
) -> Graph:
    """Return the graph of these tables; see `read_new_graph`."""
    matrix, wanted = features.matrix, settings.features
    if header and tuple(features.columns) != wanted:
        matrix = matrix[:, place_columns(features.columns, wanted)]
    graph = settings.graph(
        matrix, edges, labels.values, result.label_names, features.nodes
    )
    known = graph.known if labels.sets is None else labels.sets["train"]
    return graph.with_split(train=known)


# The folder of a model


def save_model(folder: pathlib.Path, result: Result, settings: ReadSettings) -> None:
    """Write the result and how its tables were read, as one file."""
    folder.mkdir(parents=True, exist_ok=True)
    save(result, folder / _RESULT, dataclasses.asdict(settings))
    (folder / _DESCRIPTION).unlink(missing_ok=True)  # Of the model it replaced.


def load_model(folder: pathlib.Path) -> tuple[Result, ReadSettings]:
    """Return what `save_model` wrote, in this version or in 0.1."""
    path = _part(folder, _RESULT)
    result, reading = load_with_notes(path)
    if reading is None:
        path = _part(folder, _DESCRIPTION)
    try:
        settings = ReadSettings(**reading or _read_description(folder))
    except (*MALFORMED, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from None
    if len(settings.nodes) != len(result.probabilities):
        raise ValueError(f"{path} does not list the nodes that were fitted.")
    return result, settings


def _part(folder: pathlib.Path, name: str) -> pathlib.Path:
    if not (folder / name).exists():
        raise ValueError(
            f"{folder} holds no model: {name} is missing. `hopf fit` makes one."
        )
    return folder / name


def _read_description(folder: pathlib.Path) -> dict[str, Any]:
    """Return how tables were read, from the second file that version 0.1 wrote."""
    data = read_json(folder / _DESCRIPTION)
    if data["format"] != 1:
        raise ValueError(f"format {data['format']}, this version reads 1")
    if sha256(folder / _RESULT) != data["sha256"]:
        raise ValueError(f"{_RESULT} is of another fit; fit again")
    return data["reading"]

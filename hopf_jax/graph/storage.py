"""Graphs as folders of .npy files, which are mapped into memory.

For graphs larger than memory: training and prediction read the rows of a batch or of a
chunk. A few arrays [N] stay in memory, beside label summaries and hidden states.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.graph.graph import SPLITS, Graph
from hopf_jax.graph.validation import (
    check_csr,
    check_features,
    check_finite,
    check_nodes,
    check_range,
    check_split,
    check_weights,
    refuse_where,
)
from hopf_jax.runtime import new_folder

_FORMAT = 1
_META = "graph.json"
_LATER = ("feature_names", "missing_values", "positional")  # Not in older folders.
_SPARSE = ("indptr", "indices", "data")


def open_graph(folder: str | os.PathLike, *, check: bool = True) -> Graph:
    """Open a graph that `write_graph` wrote; its arrays are memory maps.

    Args:
      folder: Where the graph is.
      check: Read all arrays once, piece by piece, and check them as `Graph` does. Not
        checked is that an undirected graph holds each edge in both directions.

    Raises:
      ValueError: The folder does not hold a graph, or the graph is not valid.
    """
    folder = pathlib.Path(folder)
    try:
        meta = json.loads((folder / _META).read_text())
        if meta["format"] != _FORMAT:
            raise ValueError(f"format {meta['format']}, this version reads {_FORMAT}")
        arrays: dict[str, Any] = {name: _map(folder, name) for name in meta["arrays"]}
        features: Any = arrays.pop("features", None)
        if features is None:
            parts = [arrays.pop(f"features.{part}") for part in _SPARSE]
            shape = (len(parts[0]) - 1, meta["num_features"])
            features = sp.csr_array((parts[2], parts[1], parts[0]), shape, copy=False)
        graph = Graph(
            **{"weights": None} | arrays,
            features=features,
            multilabel=meta["multilabel"],
            label_names=tuple(meta["label_names"]),
            directed=meta["directed"],
            feature_names=tuple(meta.get("feature_names", ())),
            missing_values=meta.get("missing_values", False),
            positional=meta.get("positional", False),
        )
    except (ValueError, KeyError, TypeError, OSError) as error:
        reason = str(error)
        if isinstance(error, FileNotFoundError):
            reason = f"{error.filename} is missing"
        raise ValueError(
            f"{folder} is not a graph written by this library: {reason}."
        ) from error
    if check:
        _check(graph)
    return graph


def write_graph(graph: Graph, folder: str | os.PathLike) -> None:
    """Write a graph to a new folder, for `open_graph`; complete, or not at all."""
    names = ("num_features", "multilabel", "label_names", "directed", *_LATER)
    fields = {name: getattr(graph, name) for name in names}
    with new_graph_folder(folder, **fields) as made:
        for field in dataclasses.fields(graph):
            value = getattr(graph, field.name)
            if isinstance(value, np.ndarray):
                np.save(made / f"{field.name}.npy", value)
        if sp.issparse(graph.features):
            for part in _SPARSE:
                value = getattr(graph.features, part)
                np.save(made / f"features.{part}.npy", value)


@contextlib.contextmanager
def new_graph_folder(
    folder: str | os.PathLike, **fields: Any
) -> Iterator[pathlib.Path]:
    """Yield a folder for the .npy files of a graph; it gets its name once complete.

    Args:
      folder: Where the graph will be.
      fields: What is not an array: num_features, multilabel, label_names, directed;
        and if they are not the defaults feature_names, missing_values, positional.
    """
    with new_folder(folder) as made:
        yield made
        arrays = sorted(path.stem for path in made.glob("*.npy"))
        meta = {"format": _FORMAT, "arrays": arrays} | fields
        (made / _META).write_text(json.dumps(meta, indent=1) + "\n")


def _check(graph: Graph) -> None:
    features: Any = graph.features
    num_nodes = features.shape[0]
    check_csr(graph.indptr, graph.indices, num_nodes)
    check_range(graph.indices, num_nodes, "indices")
    if graph.weights is not None:
        check_weights(graph.weights, graph.num_edges)
    if sp.issparse(features):
        check_csr(features.indptr, features.indices, num_nodes)
        check_finite(features)
    else:
        check_features(features, missing=graph.missing_values)
    labels = graph.labels
    if labels.ndim != 2 or len(labels) != num_nodes:
        raise ValueError(
            f"labels has shape {labels.shape}; it must be [{num_nodes}, C]."
        )
    refuse_where(
        labels,
        lambda part: np.any(part > 1, axis=1),
        lambda i: f"labels[{i}] is {labels[i]}; a label matrix holds 0 and 1 only.",
    )
    masks = {name: getattr(graph, name) for name in SPLITS}
    for name, mask in {"known": graph.known, **masks}.items():
        check_nodes(mask, num_nodes, name)
    check_split(masks, graph.known)


def _map(folder: pathlib.Path, name: str) -> np.ndarray:
    path = folder / f"{name}.npy"
    empty = path.stat().st_size <= 128  # The header alone, which cannot be mapped.
    return np.load(path, mmap_mode=None if empty else "r", allow_pickle=False)

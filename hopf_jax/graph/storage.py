"""Graphs as folders of .npy files, which are mapped into memory.

For graphs larger than memory: training and prediction read the rows of a batch or of a
chunk. A few arrays [N] stay in memory, beside label summaries and hidden states.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import reprlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.config import Whole
from hopf_jax.graph.graph import SPLITS, Graph
from hopf_jax.graph.labels import check_distinct, classes_from_json
from hopf_jax.graph.names import names_from_json, names_to_json
from hopf_jax.graph.validation import (
    check_csr,
    check_features,
    check_finite,
    check_nodes,
    check_split,
    check_weights,
    refuse_first,
    refuse_where,
)
from hopf_jax.runtime import MALFORMED, check_encoding, map_npy, new_folder, read_json

_FORMAT = 1
GRAPH_FILE = "graph.json"
_NAMES = "node_names.json"
_LATER = (  # Not in older folders.
    *("feature_names", "missing_values", "positional", "classes"),
)
_SPARSE = ("indptr", "indices", "data")
_ARRAYS = {"indptr", "indices", "weights", "features", "labels", "known", *SPLITS}
_ARRAYS |= {f"features.{part}" for part in _SPARSE}


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
        meta = _read_meta(folder)
        arrays: dict[str, Any] = {
            name: map_npy(folder / f"{name}.npy") for name in meta["arrays"]
        }
        features: Any = arrays.pop("features", None)
        if features is None:
            parts = [arrays.pop(f"features.{part}") for part in _SPARSE]
            if check:  # Native code, such as scipy's own checks, reads them next.
                num_rows, width = max(0, len(parts[0]) - 1), meta["num_features"]
                check_csr(parts[0], parts[1], num_rows, width, "features")
            shape = (len(parts[0]) - 1, meta["num_features"])
            features = sp.csr_array((parts[2], parts[1], parts[0]), shape, copy=False)
        graph = Graph(
            **{"weights": None} | arrays,
            features=features,
            multilabel=meta["multilabel"],
            label_names=tuple(meta["label_names"]),
            directed=meta["directed"],
            feature_names=tuple(meta["feature_names"]),
            missing_values=meta["missing_values"],
            positional=meta["positional"],
            classes=classes_from_json(
                meta.get("classes", []), len(meta["label_names"])
            ),
        )
        if (folder / _NAMES).exists():
            names = names_from_json(read_json(folder / _NAMES), graph.num_nodes)
            graph = dataclasses.replace(graph, node_names=names)
        if check:
            _check(graph)
    except FileNotFoundError as error:
        raise ValueError(
            f"{folder} is not a graph written by this library: {error.filename} is "
            "missing."
        ) from error
    except (*MALFORMED, OSError) as error:
        raise ValueError(
            f"{folder} is not a graph written by this library: {error}"
        ) from error
    return graph


def write_graph(graph: Graph, folder: str | os.PathLike) -> None:
    """Write a graph to a new folder, for `open_graph`; complete, or not at all."""
    names = ("num_features", "multilabel", "label_names", "directed", *_LATER)
    fields = {name: getattr(graph, name) for name in names}
    with new_graph_folder(folder, **fields) as made:
        if listed := names_to_json(graph.node_names):
            (made / _NAMES).write_text(json.dumps(listed) + "\n")
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
        and if they are not the defaults feature_names, missing_values, positional,
        classes.
    """
    with new_folder(folder) as made:
        yield made
        arrays = sorted(path.stem for path in made.glob("*.npy"))
        meta = {"format": _FORMAT, "arrays": arrays} | fields
        (made / GRAPH_FILE).write_text(json.dumps(meta, indent=1) + "\n")


def _read_meta(folder: pathlib.Path) -> dict[str, Any]:
    """Return the description of a graph, each part of the right type."""
    meta = read_json(folder / GRAPH_FILE)
    if meta["format"] != _FORMAT:
        raise ValueError(f"format {meta['format']}, this version reads {_FORMAT}.")
    names, arrays = meta["label_names"], meta["arrays"]
    valid = {
        "arrays": isinstance(arrays, list) and set(arrays) <= _ARRAYS,
        "num_features": Whole(0, 2**62).accepts(meta["num_features"]),
        "multilabel": isinstance(meta["multilabel"], bool),
        "label_names": isinstance(names, list)
        and all(isinstance(name, str) for name in names),
        "directed": isinstance(meta["directed"], bool),
    }
    columns = meta.setdefault("feature_names", [])
    valid["feature_names"] = (
        isinstance(columns, list)
        and all(isinstance(name, str) for name in columns)
        and len(columns) in (0, meta["num_features"])
    )
    for name in ("missing_values", "positional"):
        valid[name] = isinstance(meta.setdefault(name, False), bool)
    for name, holds in valid.items():
        if not holds:
            raise ValueError(f"{name} of {GRAPH_FILE} is {reprlib.repr(meta[name])}.")
    return meta


def _check(graph: Graph) -> None:
    """Raise `ValueError` for what the constructors of `Graph` would not make."""
    features: Any = graph.features
    num_nodes = features.shape[0]
    if num_nodes == 0:
        raise ValueError("The graph is empty: features has no rows.")
    check_csr(graph.indptr, graph.indices, num_nodes, num_nodes)
    if graph.weights is not None:
        _check_dtype("weights", graph.weights, "f")
        check_weights(graph.weights, graph.num_edges)
    if sp.issparse(features):
        _check_dtype("features.data", features.data, "fiub")
        check_finite(features)
    else:
        _check_dtype("features", features, "fiub")
        check_features(features, missing=graph.missing_values)
    _check_labels(graph, num_nodes)
    masks = {name: getattr(graph, name) for name in SPLITS}
    for name, mask in {"known": graph.known, **masks}.items():
        _check_dtype(name, mask, "b")
        check_encoding(mask)
        check_nodes(mask, num_nodes, name)
    check_split(masks, graph.known)


def _check_labels(graph: Graph, num_nodes: int) -> None:
    labels = graph.labels
    _check_dtype("labels", labels, "u")
    if labels.ndim != 2 or len(labels) != num_nodes:
        raise ValueError(
            f"labels has shape {labels.shape}; it must be [{num_nodes}, C]."
        )
    if len(graph.label_names) != labels.shape[1]:
        raise ValueError(
            f"there are {len(graph.label_names)} names of {labels.shape[1]} labels."
        )
    check_distinct(graph.label_names)
    refuse_where(
        labels,
        lambda part: np.any(part > 1, axis=1),
        lambda i: f"labels[{i}] is {labels[i]}; a label matrix holds 0 and 1 only.",
    )
    if not graph.multilabel:
        refuse_where(
            labels,
            lambda part: part.sum(axis=1) > 1,
            lambda i: f"labels[{i}] has several labels in a multi-class graph.",
        )
        counts = np.asarray(labels.sum(axis=1))
        refuse_first(
            np.asarray(graph.known) & (counts == 0),
            lambda i: f"known[{i}] is true, but node {i} has no label.",
        )


def _check_dtype(name: str, array: np.ndarray, kinds: str) -> None:
    if array.dtype.kind not in kinds:
        raise ValueError(f"{name} has dtype {array.dtype}, which is never written.")

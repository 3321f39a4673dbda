"""Graphs as folders of .npy files, mapped into memory rather than read.

For graphs larger than memory: `open_graph` copies nothing, and training and prediction
then touch the rows of a batch or of a chunk. Arrays that stay in memory are the sets
and a few [N], beside what `fit` itself holds: label summaries and hidden states.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import secrets
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.graph.graph import SPLITS, Graph
from hopf_jax.graph.validation import check_nodes, check_split, check_stored

_FORMAT = 1
_META = "graph.json"
_SPARSE = ("indptr", "indices", "data")


def open_graph(folder: str | os.PathLike, *, check: bool = True) -> Graph:
    """A graph from a folder that `write_graph` or `new_folder` wrote, mapped, not read.

    Args:
      folder: where it is.
      check: read all of it once, piece by piece, for edges, weights, features or labels
        that cannot be. That an undirected graph holds each edge both ways is not
        checked: it is `write_graph`'s to see to.
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
        )
    except FileNotFoundError as error:
        raise ValueError(
            f"{folder} is not a graph written by this library: {error.filename} is "
            "missing."
        ) from error
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise ValueError(
            f"{folder} is not a graph written by this library: {error}."
        ) from error
    if check:
        check_stored(
            graph.indptr, graph.indices, graph.weights, graph.features, graph.labels
        )
        masks = {name: getattr(graph, name) for name in SPLITS}
        for name, mask in {"known": graph.known, **masks}.items():
            check_nodes(mask, graph.num_nodes, name)
        check_split(masks, graph.known)
    return graph


def write_graph(graph: Graph, folder: str | os.PathLike) -> None:
    """Write a graph as a folder of .npy files, whole or not at all."""
    with new_folder(folder) as made:
        for field in dataclasses.fields(graph):
            value = getattr(graph, field.name)
            if isinstance(value, np.ndarray):
                np.save(made / f"{field.name}.npy", value)
        if sp.issparse(graph.features):
            for part in _SPARSE:
                value = getattr(graph.features, part)
                np.save(made / f"features.{part}.npy", value)
        describe(
            made,
            num_features=graph.num_features,
            multilabel=graph.multilabel,
            label_names=graph.label_names,
            directed=graph.directed,
        )


@contextlib.contextmanager
def new_folder(folder: str | os.PathLike) -> Iterator[pathlib.Path]:
    """A folder to fill, which takes its name only when it is complete."""
    target = pathlib.Path(folder)
    if target.exists():
        raise ValueError(f"{target} is there already. Give another name, or remove it.")
    target.parent.mkdir(parents=True, exist_ok=True)
    made = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    made.mkdir()
    try:
        yield made
        os.replace(made, target)
    except BaseException:
        shutil.rmtree(made)
        raise


def describe(
    folder: pathlib.Path,
    *,
    num_features: int,
    multilabel: bool,
    label_names: tuple[str, ...],
    directed: bool,
) -> None:
    """Write what is not an array; the arrays are those in the folder by now."""
    meta = {
        "format": _FORMAT,
        "arrays": sorted(path.stem for path in folder.glob("*.npy")),
        "num_features": num_features,
        "multilabel": multilabel,
        "label_names": label_names,
        "directed": directed,
    }
    (folder / _META).write_text(json.dumps(meta, indent=1) + "\n")


def _map(folder: pathlib.Path, name: str) -> np.ndarray:
    path = folder / f"{name}.npy"
    # Nothing of nothing cannot be mapped.
    empty = path.stat().st_size <= 128
    return np.load(path, mmap_mode=None if empty else "r", allow_pickle=False)

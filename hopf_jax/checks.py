"""What `Graph` accepts: every check says what is wrong, where, and what to do."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

# Rows looked at in one go, so that a memory-mapped matrix is never held whole.
_ROWS_AT_ONCE = 65_536


def check_edges(
    senders: Any, receivers: Any, weights: Any, num_nodes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Arc lists as integer arrays in range, with non-negative finite weights."""
    senders = _integers(senders, "senders")
    receivers = _integers(receivers, "receivers")
    if senders.shape != receivers.shape:
        raise ValueError(
            f"senders and receivers differ in length: {senders.size} and "
            f"{receivers.size}. Give one sender and one receiver an edge."
        )
    for name, ends in (("senders", senders), ("receivers", receivers)):
        _first(
            (ends < 0) | (ends >= num_nodes),
            lambda i, name=name, ends=ends: (
                f"{name}[{i}] is {ends[i]}, but the graph has {num_nodes} nodes "
                f"(0 to {num_nodes - 1}). Renumber the nodes, or give more features."
            ),
        )
    if weights is None:
        return senders, receivers, None
    weights = _numbers(weights, "weights")
    if weights.shape != senders.shape:
        raise ValueError(
            f"weights has shape {weights.shape}, but there are {senders.size} edges. "
            "Give one weight an edge."
        )
    check_weights(weights)
    return senders, receivers, weights


def check_weights(weights: np.ndarray) -> None:
    """Edge weights are finite and non-negative (the paper's setting)."""
    _first(
        ~np.isfinite(weights),
        lambda i: f"weights[{i}] is {weights[i]}. Replace it or drop the edge.",
    )
    _first(
        weights < 0,
        lambda i: (
            f"weights[{i}] is {weights[i]}. Edge weights must be non-negative: "
            "shift or drop the negative ones."
        ),
    )


def check_csr(indptr: Any, indices: Any, num_nodes: int) -> tuple[np.ndarray, ...]:
    """Row pointers that start at 0, never fall, and end at the number of arcs."""
    indptr, indices = _integers(indptr, "indptr"), _integers(indices, "indices")
    if indptr.size != num_nodes + 1:
        raise ValueError(
            f"indptr has {indptr.size} entries, but {num_nodes} nodes need "
            f"{num_nodes + 1}: one a node, and the end."
        )
    _first(
        np.diff(indptr) < 0,
        lambda i: (
            f"indptr falls at {i}: {indptr[i]} to {indptr[i + 1]}. Sort the rows."
        ),
    )
    if indptr[0] != 0 or indptr[-1] != indices.size:
        raise ValueError(
            f"indptr runs from {indptr[0]} to {indptr[-1]}; it must run from 0 to "
            f"{indices.size}, the length of indices."
        )
    return indptr, indices


def check_features(features: Any) -> np.ndarray | sp.csr_array:
    """Features [N, F] as float32, dense or CSR; a memory map stays on disk."""
    if sp.issparse(features):
        matrix = sp.csr_array(features)
        with np.errstate(over="ignore"):  # Refused below, by its place.
            data = matrix.data.astype(np.float32)
        _first(
            ~np.isfinite(data),
            lambda i: _not_finite(
                data[i],
                int(np.searchsorted(matrix.indptr, i, side="right")) - 1,
                int(matrix.indices[i]),
            ),
        )
        # A copy: merging duplicates sorts in place, and the caller's stays as it was.
        indices, indptr = matrix.indices.copy(), matrix.indptr.copy()
        matrix = sp.csr_array((data, indices, indptr), matrix.shape)
        matrix.sum_duplicates()
        return matrix
    if features is None:
        raise ValueError(
            "features is None. Give a matrix [N, F]; for a graph without attributes "
            "scipy.sparse.eye_array(N) makes each node its own feature."
        )
    matrix = features if isinstance(features, np.memmap) else np.asarray(features)
    if matrix.dtype.kind not in "fiub":
        raise ValueError(
            f"features has dtype {matrix.dtype}. Encode it as numbers first "
            "(one-hot, or a bag of words)."
        )
    if matrix.ndim != 2:
        raise ValueError(
            f"features has shape {matrix.shape}; it must be [nodes, features]. "
            "Reshape a single feature with features[:, None]."
        )
    for start in range(0, matrix.shape[0], _ROWS_AT_ONCE):
        with np.errstate(over="ignore"):
            rows = np.asarray(matrix[start : start + _ROWS_AT_ONCE], np.float32)
        bad = ~np.isfinite(rows)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise ValueError(_not_finite(rows[row, column], start + row, column))
    if isinstance(matrix, np.memmap):
        return matrix
    return np.ascontiguousarray(matrix, np.float32)


def check_stored(
    indptr: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray | None,
    features: Any,
    labels: np.ndarray,
) -> None:
    """What a stored graph holds is as `Graph` makes it; read piece by piece."""
    num_nodes = features.shape[0]
    check_csr(indptr, indices, num_nodes)
    for start, part in _pieces(indices):
        _first(
            (part < 0) | (part >= num_nodes),
            lambda i, start=start, part=part: (
                f"indices[{start + i}] is {part[i]}, but the graph has {num_nodes} "
                f"nodes (0 to {num_nodes - 1})."
            ),
        )
    if weights is not None:
        if weights.shape != indices.shape:
            raise ValueError(
                f"weights has shape {weights.shape}, but there are {indices.size} "
                "edges. Give one weight an edge."
            )
        for _, part in _pieces(weights):
            check_weights(part)
    if sp.issparse(features):
        check_csr(features.indptr, features.indices, num_nodes)
        for start, part in _pieces(features.data):
            _first(
                ~np.isfinite(part),
                lambda i, start=start, part=part: (
                    f"features.data[{start + i}] is {part[i]}; write numbers."
                ),
            )
    else:
        check_features(features)
    if labels.ndim != 2 or len(labels) != num_nodes:
        raise ValueError(
            f"labels has shape {labels.shape}; it must be [{num_nodes}, C]."
        )
    for start, part in _pieces(labels):
        _first(
            np.any(part > 1, axis=1),
            lambda i, start=start, part=part: (
                f"labels[{start + i}] is {part[i]}; a label matrix holds 0 and 1 only."
            ),
        )


def _pieces(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    for start in range(0, len(array), 64 * _ROWS_AT_ONCE):
        yield start, np.asarray(array[start : start + 64 * _ROWS_AT_ONCE])


def check_labels(
    labels: Any, num_nodes: int, multilabel: bool | None, label_names: Any
) -> tuple[np.ndarray, np.ndarray, bool, tuple[str, ...]]:
    """Labels as a 0/1 matrix [N, C], which nodes are known, multi-label?, names.

    Class ids: -1, NaN, None or "" is unknown. A matrix: a row with a NaN is unknown,
    and so is an all-zero row of a one-hot matrix.
    """
    array = _plain(np.asarray(labels))
    if array.ndim not in (1, 2):
        raise ValueError(
            f"labels has shape {array.shape}; give class ids [N] or a matrix [N, C]."
        )
    if array.shape[0] != num_nodes:
        raise ValueError(
            f"labels has {array.shape[0]} rows, but there are {num_nodes} nodes. "
            "Give one a node; -1 (or a row of NaN) marks an unknown label."
        )
    if array.ndim == 1:
        if multilabel:
            raise ValueError(
                "multilabel=True needs labels as a matrix [N, C], not class ids."
            )
        matrix, known, found = _from_ids(array, label_names)
        multilabel = False
    else:
        matrix, known, multilabel = _from_matrix(array, multilabel)
        found = tuple(str(c) for c in range(matrix.shape[1]))
    names = found if label_names is None else tuple(str(n) for n in label_names)
    if len(names) != matrix.shape[1]:
        raise ValueError(
            f"label_names has {len(names)} names, but there are {matrix.shape[1]} "
            "labels. Give one a label, in the order of the ids or columns."
        )
    return matrix, known, multilabel, names


def check_nodes(nodes: Any, num_nodes: int, name: str) -> np.ndarray:
    """A boolean mask [N], or node ids, as a boolean mask [N]."""
    if nodes is None:
        return np.zeros(num_nodes, bool)
    array = np.asarray(nodes)
    if array.dtype == bool:
        if array.shape != (num_nodes,):
            raise ValueError(
                f"{name} is a mask of shape {array.shape}; it must be ({num_nodes},)."
            )
        return array
    mask = np.zeros(num_nodes, bool)
    mask[check_ids(array, num_nodes, name)] = True
    return mask


def check_ids(nodes: Any, num_nodes: int, name: str) -> np.ndarray:
    """Node ids in range, as int64 [R]."""
    ids = _integers(nodes, name)
    _first(
        (ids < 0) | (ids >= num_nodes),
        lambda i: (
            f"{name}[{i}] is {ids[i]}, but the graph has {num_nodes} nodes "
            f"(0 to {num_nodes - 1})."
        ),
    )
    return ids


def check_split(masks: dict[str, np.ndarray], known: np.ndarray) -> None:
    """No node in two sets, and a label for every node of a set."""
    names = list(masks)
    for i, name in enumerate(names):
        for other in names[i + 1 :]:
            _first(
                masks[name] & masks[other],
                lambda v, name=name, other=other: (
                    f"node {v} is in both {name} and {other}. Take it out of one: "
                    "scores on nodes that were trained on mean nothing."
                ),
            )
        _first(
            masks[name] & ~known,
            lambda v, name=name: (
                f"node {v} is in {name} but its label is unknown. Give its label, or "
                f"take it out of {name}: unlabelled nodes need no set."
            ),
        )


def _first(bad: np.ndarray, message: Any) -> None:
    if bad.any():
        raise ValueError(message(int(np.argmax(bad))))


def _not_finite(value: float, row: int, column: int) -> str:
    return (
        f"features[{row}, {column}] is {value}. Replace it, for example by "
        "numpy.nan_to_num, or drop the column."
    )


def _integers(values: Any, name: str) -> np.ndarray:
    array = np.asarray(values)
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be a list of whole numbers; it has dtype {array.dtype} and "
            f"shape {array.shape}."
        )
    if array.dtype.kind == "u" and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} holds {array.max()}, beyond 64-bit node ids.")
    return array if isinstance(array, np.memmap) else array.astype(np.int64, copy=False)


def _numbers(values: Any, name: str) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be numbers; it has dtype {array.dtype}.")
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def _plain(labels: np.ndarray) -> np.ndarray:
    """Class ids among None as floats with NaN; names stay names."""
    if labels.dtype != object or labels.ndim != 1:
        return labels
    known = [v for v in labels.tolist() if v is not None]
    if all(isinstance(v, int | float | np.number) for v in known):
        return np.array([np.nan if v is None else v for v in labels.tolist()], float)
    return labels


def _from_ids(
    array: np.ndarray, label_names: Sequence[str] | None
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    if array.dtype.kind in "OUS":
        text = np.array(["" if v is None or v != v else str(v) for v in array.tolist()])
        known = text != ""
        if label_names is None:
            names = tuple(np.unique(text[known]).tolist())
        else:
            names = tuple(str(n) for n in label_names)
        place = {name: i for i, name in enumerate(names)}
        ids = np.array([place.get(value, -1) for value in text.tolist()], np.int64)
        _first(
            known & (ids < 0),
            lambda i: (
                f"labels[{i}] is {str(text[i])!r}, which label_names does not list."
            ),
        )
    else:
        if array.dtype.kind not in "fiub":
            raise ValueError(f"labels has dtype {array.dtype}; give ids or names.")
        known = (
            ~np.isnan(array) if array.dtype.kind == "f" else np.ones(array.size, bool)
        )
        ids = np.where(known, array, -1)
        _first(
            (ids != np.floor(ids)) | (ids < -1) | (ids > 1e6),
            lambda i: (
                f"labels[{i}] is {array[i]}; class ids are 0, 1, 2, ... up to a "
                "million, and -1 where unknown."
            ),
        )
        ids = ids.astype(np.int64)
        known = ids >= 0
        count = int(ids.max(initial=-1)) + 1
        if label_names is not None:
            count = max(count, len(label_names))
        names = tuple(str(c) for c in range(count))
    matrix = np.zeros((array.size, len(names)), np.uint8)
    matrix[np.flatnonzero(known), ids[known]] = 1
    return matrix, known, names


def _from_matrix(
    array: np.ndarray, multilabel: bool | None
) -> tuple[np.ndarray, np.ndarray, bool]:
    if array.dtype.kind not in "fiub":
        raise ValueError(f"labels has dtype {array.dtype}; a matrix must be 0 and 1.")
    known = np.ones(array.shape[0], bool)
    if array.dtype.kind == "f":
        known = ~np.isnan(array).any(axis=1)
    matrix = np.where(known[:, None], array, 0)
    _first(
        ((matrix != 0) & (matrix != 1)).any(axis=1),
        lambda i: f"labels[{i}] is {array[i]}; a label matrix holds 0 and 1 only.",
    )
    matrix = matrix.astype(np.uint8)
    counts = matrix.sum(axis=1)
    if multilabel is None:
        multilabel = bool((counts > 1).any())
    if not multilabel:
        _first(
            counts > 1,
            lambda i: (
                f"labels[{i}] has {counts[i]} labels, but multilabel=False. "
                "Pass multilabel=True."
            ),
        )
        known &= counts == 1
    return matrix, known, multilabel

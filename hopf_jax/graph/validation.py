"""What `Graph` accepts: every check says what is wrong, where, and what to do."""

import reprlib
from collections.abc import Iterator
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
        refuse_first(
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
    refuse_first(
        ~np.isfinite(weights),
        lambda i: f"weights[{i}] is {weights[i]}. Replace it or drop the edge.",
    )
    refuse_first(
        weights < 0,
        lambda i: (
            f"weights[{i}] is {weights[i]}. Edge weights must be non-negative: "
            "shift or drop the negative ones."
        ),
    )


def check_csr(indptr: Any, indices: Any, num_nodes: int) -> tuple[np.ndarray, ...]:
    """Kernel pointers that start at 0, never fall, and end at the number of arcs."""
    indptr, indices = _integers(indptr, "indptr"), _integers(indices, "indices")
    if indptr.size != num_nodes + 1:
        raise ValueError(
            f"indptr has {indptr.size} entries, but {num_nodes} nodes need "
            f"{num_nodes + 1}: one a node, and the end."
        )
    refuse_first(
        indptr[1:] < indptr[:-1],  # Not their difference, which can overflow.
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
        _check_matrix(features)
        matrix = sp.csr_array(features)
        with np.errstate(over="ignore"):  # Refused below, by its place.
            data = matrix.data.astype(np.float32)
        # A copy: merging duplicates sorts in place, and the caller's stays as it was.
        indices, indptr = matrix.indices.copy(), matrix.indptr.copy()
        matrix = sp.csr_array((data, indices, indptr), matrix.shape)
        matrix.sum_duplicates()
        refuse_first(
            ~np.isfinite(matrix.data),
            lambda i: _not_finite(
                matrix.data[i],
                int(np.searchsorted(matrix.indptr, i, side="right")) - 1,
                int(matrix.indices[i]),
            ),
        )
        return matrix
    if features is None:
        raise ValueError(
            "features is None. Give a matrix [N, F]; for a graph without attributes "
            "scipy.sparse.eye_array(N) makes each node its own feature."
        )
    matrix = features
    if not isinstance(features, np.memmap):
        matrix = to_array(features, "features")
    _check_matrix(matrix)
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
        refuse_first(
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
            refuse_first(
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
        refuse_first(
            np.any(part > 1, axis=1),
            lambda i, start=start, part=part: (
                f"labels[{start + i}] is {part[i]}; a label matrix holds 0 and 1 only."
            ),
        )


def _pieces(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    for start in range(0, len(array), 64 * _ROWS_AT_ONCE):
        yield start, np.asarray(array[start : start + 64 * _ROWS_AT_ONCE])


def check_nodes(nodes: Any, num_nodes: int, name: str) -> np.ndarray:
    """A boolean mask [N], or node ids, as a boolean mask [N]."""
    if nodes is None:
        return np.zeros(num_nodes, bool)
    array = to_array(nodes, name)
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
    refuse_first(
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
            refuse_first(
                masks[name] & masks[other],
                lambda v, name=name, other=other: (
                    f"node {v} is in both {name} and {other}. Take it out of one: "
                    "scores on nodes that were trained on mean nothing."
                ),
            )
        refuse_first(
            masks[name] & ~known,
            lambda v, name=name: (
                f"node {v} is in {name} but its label is unknown. Give its label, or "
                f"take it out of {name}: unlabelled nodes need no set."
            ),
        )


def check_whole(value: Any, name: str, least: int = 0) -> int:
    """A whole number, `least` or more, that fits 64 bits."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not least <= value < 2**63:
        raise ValueError(
            f"{name} is {reprlib.repr(value)}; give a whole number, {least} or more."
        )
    return int(value)


def check_number(value: Any, name: str, good: Any, says: str) -> float:
    """A number for which `good` holds."""
    if isinstance(value, np.integer | np.floating):
        value = value.item()  # A comparison with 1e100 overflows 32 bits.
    number = isinstance(value, int | float)
    if not number or isinstance(value, bool) or not good(value):
        raise ValueError(f"{name} is {reprlib.repr(value)}; give a number {says}.")
    return value


def check_degrees(degrees: np.ndarray) -> None:
    """The weights of a node's edges add up to a 32-bit number."""
    refuse_first(
        ~(degrees <= np.finfo(np.float32).max),
        lambda i: (
            f"The weights of the edges of node {i} add up to {degrees[i]:g}, beyond "
            "32-bit floats. Scale all the weights down."
        ),
    )


def to_array(values: Any, name: str) -> np.ndarray:
    """NumPy's array of some values; what cannot be one is refused by its name."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(
            f"{name} cannot be made an array ({error}). Are its rows of one length?"
        ) from None


def _check_matrix(matrix: Any) -> None:
    if matrix.dtype.kind not in "fiub":
        raise ValueError(
            f"features has dtype {matrix.dtype}. Encode it as numbers first "
            "(one-hot, or a bag of words)."
        )
    if len(matrix.shape) != 2:
        raise ValueError(
            f"features has shape {matrix.shape}; it must be [nodes, features]. "
            "Reshape a single feature with features[:, None]."
        )


def refuse_first(bad: np.ndarray, message: Any) -> None:
    """Raises `message(i)` of the first i where `bad` [n] is true."""
    if bad.any():
        raise ValueError(message(int(np.argmax(bad))))


def _not_finite(value: float, row: int, column: int) -> str:
    return (
        f"features[{row}, {column}] is {value}. Replace it, for example by "
        "numpy.nan_to_num, or drop the column."
    )


def _integers(values: Any, name: str) -> np.ndarray:
    array = to_array(values, name)
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
    array = to_array(values, name)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be numbers; it has dtype {array.dtype}.")
    with np.errstate(over="ignore"):
        return array.astype(np.float32)

"""Checks of what users pass: each error says what is wrong, where, and what to do."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.config import Number, Whole, check
from hopf_jax.runtime import check_memory

# Larger arrays are checked piece by piece, so that a memory map is never held whole.
_VALUES_AT_ONCE = 1 << 22
_BYTES_PER_COLUMN = 32  # At least: what a scaling keeps, also of an empty column.


def check_value(value: Any, name: str, constraint: Whole | Number) -> Any:
    """Return a Python number, or raise `ValueError` if it breaks the constraint."""
    if isinstance(value, np.integer | np.floating):
        value = value.item()
    check(constraint, name, value)
    return value


def check_whole(value: Any, name: str, least: int = 0) -> int:
    """Return a whole number, `least` or more, that fits 64 bits."""
    return check_value(value, name, Whole(least, 2**63 - 1))


def check_edges(
    senders: Any, receivers: Any, weights: Any, num_nodes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return node ids [E] and [E] within range, and float32 weights [E] or None."""
    senders = _integers(senders, "senders")
    receivers = _integers(receivers, "receivers")
    if senders.shape != receivers.shape:
        raise ValueError(
            f"senders and receivers differ in length: {senders.size} and "
            f"{receivers.size}. Give one sender and one receiver per edge."
        )
    for name, ends in (("senders", senders), ("receivers", receivers)):
        advice = "Renumber the nodes, or give more rows of features."
        check_range(ends, num_nodes, name, advice)
    if weights is not None:
        weights = to_array(weights, "weights")
        if weights.dtype.kind not in "fiub":
            raise ValueError(f"weights must be numbers; the dtype is {weights.dtype}.")
        with np.errstate(over="ignore"):
            weights = weights.astype(np.float32)
        check_weights(weights, senders.size)
    return senders, receivers, weights


def check_weights(weights: np.ndarray, num_edges: int) -> None:
    """Raise `ValueError` unless there is one non-negative finite weight per edge."""
    if weights.shape != (num_edges,):
        raise ValueError(
            f"weights has shape {weights.shape}, but there are {num_edges} edges. "
            "Give one weight per edge."
        )
    refuse_where(
        weights,
        lambda part: ~((part >= 0) & np.isfinite(_to_float32(part))),
        lambda i: (
            f"weights[{i}] is {weights[i]}. Edge weights must be finite and "
            "non-negative: replace it, or drop the edge."
        ),
    )


def check_csr(
    indptr: Any, indices: Any, num_rows: int, num_columns: int, name: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """Return row pointers that start at 0, never fall and end at E, and columns [E].

    Native code follows both without looking: this comes before any of it.

    Args:
      indptr, indices: As in scipy's CSR matrices.
      num_rows, num_columns: The shape; that of a transposed matrix for CSC.
      name: Of the matrix, for the message.
    """
    dot = f"{name}." if name else ""
    indptr = _whole_numbers(indptr, f"{dot}indptr")
    indices = _whole_numbers(indices, f"{dot}indices")
    if indptr.size != num_rows + 1:
        raise ValueError(
            f"{dot}indptr has {indptr.size} entries, but {num_rows} rows need "
            f"{num_rows + 1}: the start of each row, and the end of the last."
        )
    refuse_first(
        indptr[1:] < indptr[:-1],  # Their difference can overflow.
        lambda i: (
            f"{dot}indptr falls at {i}: {indptr[i]} to {indptr[i + 1]}. Sort the rows."
        ),
    )
    if indptr[0] != 0 or indptr[-1] != indices.size:
        raise ValueError(
            f"{dot}indptr runs from {indptr[0]} to {indptr[-1]}; it must run from 0 to "
            f"{indices.size}, the length of indices."
        )
    refuse_where(
        indices,
        lambda part: (part < 0) | (part >= num_columns),
        lambda i: (
            f"{dot}indices[{i}] is {indices[i]}, but there are {num_columns} columns "
            f"(0 to {num_columns - 1})."
        ),
    )
    return indptr, indices


def check_sparse(matrix: Any, name: str) -> Any:
    """Return a scipy matrix, some kinds as COO, whose entries lie within its shape.

    scipy checks a matrix when it is made, and not after its arrays were changed.
    """
    if len(matrix.shape) != 2:
        raise ValueError(f"{name} has shape {matrix.shape}; it must have two axes.")
    if matrix.format in ("csr", "csc", "bsr"):
        shape = matrix.shape
        if matrix.format == "bsr":
            blocks = np.shape(matrix.data)[1:]
            if len(blocks) != 2 or 0 in blocks or any(np.remainder(shape, blocks)):
                raise ValueError(f"{name} has blocks {blocks} in shape {shape}.")
            shape = tuple(n // b for n, b in zip(shape, blocks, strict=True))
        rows, columns = shape[::-1] if matrix.format == "csc" else shape
        check_csr(matrix.indptr, matrix.indices, rows, columns, name)
        if len(matrix.data) != len(matrix.indices):
            raise ValueError(
                f"{name}.data has {len(matrix.data)} entries, but {name}.indices has "
                f"{len(matrix.indices)}."
            )
        return matrix
    if matrix.format == "lil":
        lengths = [list(map(len, part.tolist())) for part in (matrix.rows, matrix.data)]
        if lengths[0] != lengths[1] or len(lengths[0]) != matrix.shape[0]:
            raise ValueError(f"{name}.rows and {name}.data differ in length.")
    found = sp.coo_array(matrix)
    for end, count in zip(found.coords, found.shape, strict=True):
        check_range(_whole_numbers(end, f"{name}.coords"), count, f"{name}.coords")
    if found.data.shape != found.coords[0].shape:
        raise ValueError(f"{name}.data and {name}.coords differ in length.")
    return found


def check_features(
    features: Any, *, missing: bool = False
) -> np.ndarray | sp.csr_array:
    """Return features [N, F] as float32, dense or CSR; a memory map stays as it is.

    Dense ones may hold NaN, if values may be `missing`.
    """
    sparse = sp.issparse(features)
    matrix = features
    if not sparse and not isinstance(features, np.memmap):
        matrix = to_array(features, "features")
    if matrix.dtype.kind not in "fiub":
        raise ValueError(
            f"features has dtype {matrix.dtype}, not numbers. If it holds numbers as "
            "text, use features.astype(float). Other texts are encoded if features is "
            "a DataFrame."
        )
    if len(matrix.shape) != 2:
        raise ValueError(
            f"features has shape {matrix.shape}; it must be [nodes, features]. "
            "Reshape a single feature with features[:, None]."
        )
    check_memory(
        _BYTES_PER_COLUMN * matrix.shape[1],
        f"{matrix.shape[1]:,} columns of features",
        "Leave out the empty ones.",
    )
    if sparse:
        with np.errstate(over="ignore"):
            # A copy: merging duplicates works in place.
            checked = check_sparse(matrix, "features")
            matrix = sp.csr_array(checked, dtype=np.float32, copy=True)
            matrix.sum_duplicates()
    check_finite(matrix, missing=missing and not sparse)
    if sparse or isinstance(matrix, np.memmap):
        return matrix
    return np.ascontiguousarray(matrix, np.float32)


def check_finite(features: Any, *, missing: bool = False) -> None:
    """Raise `ValueError` for the first feature that is not a finite 32-bit number.

    NaN is one, if values may be `missing`.
    """

    def usable(values: np.ndarray) -> Any:
        finite = np.isfinite(values)
        return finite | np.isnan(values) if missing else finite

    def message(i: int) -> str:
        if sp.issparse(features):
            row = int(np.searchsorted(features.indptr, np.int64(i), side="right")) - 1
            column, value = features.indices[i], features.data[i]
        else:
            row, values = i, _to_float32(features[i])
            column = int(np.argmin(usable(values)))
            value = values[column]
        dense = not sp.issparse(features)
        mean = ", or pass missing='mean'" if np.isnan(value) and dense else ""
        return (
            f"features[{row}, {column}] is {value}. Replace it, for example by "
            f"numpy.nan_to_num, or drop the column{mean}."
        )

    def bad(part: np.ndarray) -> np.ndarray:
        finite = usable(_to_float32(part))
        return ~finite.all(axis=tuple(range(1, finite.ndim)))

    refuse_where(features.data if sp.issparse(features) else features, bad, message)


def check_nodes(nodes: Any, num_nodes: int, name: str) -> np.ndarray:
    """Return a boolean mask [N] from a mask, node ids, or None for no nodes."""
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
    """Return node ids [R] within range, as integers."""
    ids = _integers(nodes, name)
    check_range(ids, num_nodes, name)
    return ids


def check_range(ids: np.ndarray, num_nodes: int, name: str, advice: str = "") -> None:
    """Raise `ValueError` for the first id that is not a node."""
    refuse_where(
        ids,
        lambda part: (part < 0) | (part >= num_nodes),
        lambda i: (
            f"{name}[{i}] is {ids[i]}, but the graph has {num_nodes} nodes "
            f"(0 to {num_nodes - 1}). {advice}".rstrip()
        ),
    )


def check_split(
    masks: dict[str, np.ndarray], known: np.ndarray, names: Sequence[Any] = ()
) -> None:
    """Raise `ValueError` if a node is in two sets, or is in a set without a label."""

    def call(node: int) -> str:
        return repr(names[node]) if names else str(node)

    for name, other in itertools.combinations(masks, 2):
        shared = np.flatnonzero(masks[name] & masks[other])
        if shared.size:
            raise ValueError(
                f"node {call(shared[0])} is in both {name} and {other}. Remove it from "
                "one: scores on training nodes mean nothing."
            )
    for name, mask in masks.items():
        unknown = np.flatnonzero(mask & ~known)
        if unknown.size:
            raise ValueError(
                f"node {call(unknown[0])} is in {name} but its label is unknown. Give "
                f"its label, or remove it from {name}: an unlabelled node needs no set."
            )


def to_array(values: Any, name: str) -> np.ndarray:
    """Return `np.asarray(values)`, or raise `ValueError` with their name."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(
            f"{name} cannot become an array ({error}). Are its rows of one length?"
        ) from None


def refuse_first(bad: np.ndarray, message: Callable[[int], str]) -> None:
    """Raise `ValueError(message(i))` for the first i where `bad` [n] is true."""
    refuse_where(bad, lambda part: part, message)


def refuse_where(
    values: np.ndarray,
    bad: Callable[[np.ndarray], np.ndarray],
    message: Callable[[int], str],
) -> None:
    """Raise as `refuse_first` does; `bad` is applied to some rows at a time."""
    step = max(1, _VALUES_AT_ONCE // max(1, int(np.prod(values.shape[1:]))))
    for start in range(0, len(values), step):
        found = bad(np.asarray(values[start : start + step]))
        if found.any():
            raise ValueError(message(start + int(np.argmax(found))))


def _to_float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # Infinite values are refused by their place.
        return np.asarray(values).astype(np.float32, copy=False)


def _integers(values: Any, name: str) -> np.ndarray:
    array = _whole_numbers(values, name)
    return array if isinstance(array, np.memmap) else array.astype(np.int64, copy=False)


def _whole_numbers(values: Any, name: str) -> np.ndarray:
    array = to_array(values, name)
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        whole = array.dtype.kind == "f" and bool(np.all(array == np.floor(array)))
        hint = f" Convert it with numpy.asarray({name}, int)." if whole else ""
        raise ValueError(
            f"{name} must be a list of whole numbers; it has dtype {array.dtype} and "
            f"shape {array.shape}.{hint}"
        )
    if array.dtype.kind == "u" and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} holds {array.max()}, beyond 64-bit node ids.")
    return array

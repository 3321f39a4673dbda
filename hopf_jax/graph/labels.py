"""Conversion of labels in any form that `Graph` accepts to a 0/1 matrix."""

from typing import Any

import numpy as np

from hopf_jax.graph.validation import refuse_first, to_array
from hopf_jax.runtime import check_memory

# Class ids beyond the number of nodes are taken for something else, such as postcodes,
# if their label matrix would have more entries than this.
_MAX_ENTRIES = 2**31


def check_labels(
    labels: Any, num_nodes: int, multilabel: bool | None, label_names: Any
) -> tuple[np.ndarray, np.ndarray, bool, tuple[str, ...]]:
    """Return labels in the form that `Graph` stores.

    Args:
      labels: As in `Graph`: class ids or names [N], a 0/1 matrix [N, C], or None.
      num_nodes: Number of nodes, N.
      multilabel: True, False, or None to infer it from the labels.
      label_names: C names, or None.

    Returns:
      A 0/1 matrix [N, C]; a mask [N] of the nodes whose label is known; whether there
      are several labels per node; the C names.
    """
    if not (multilabel is None or isinstance(multilabel, bool | np.bool_)):
        raise ValueError(
            f"multilabel is {multilabel!r}; use True, False, or None to infer it from "
            "the labels."
        )
    if labels is None:
        matrix = np.zeros((num_nodes, 0), np.uint8)
        return matrix, np.zeros(num_nodes, bool), bool(multilabel), ()
    if label_names is not None:
        label_names = _check_names(label_names)
    array = _plain(to_array(labels, "labels"))
    if array.ndim not in (1, 2) or len(array) != num_nodes:
        raise ValueError(
            f"labels has shape {array.shape}, but there are {num_nodes} nodes. Give "
            "[N] or [N, C]; -1 (or a row of NaN) marks an unknown label."
        )
    if array.ndim == 1:
        if multilabel:
            raise ValueError(
                "multilabel=True needs labels as a matrix [N, C], not class ids."
            )
        matrix, known, found = _from_ids(array, label_names)
    else:
        matrix, known, multilabel = _from_matrix(array, multilabel)
        found = tuple(str(c) for c in range(matrix.shape[1]))
    names = found if label_names is None else label_names
    if len(names) != matrix.shape[1]:
        raise ValueError(
            f"label_names has {len(names)} names, but there are {matrix.shape[1]} "
            "labels. Give one per label, in the order of the ids or columns."
        )
    return matrix, known, bool(multilabel), names


def gather_labels(values: list[Any]) -> Any:
    """Return labels, one value per node and None where unknown, as `Graph` takes them.

    The values are class ids or names, or rows of 0 and 1.
    """
    values = [np.atleast_1d(v) if isinstance(v, np.ndarray) else v for v in values]
    rows = [v for v in values if isinstance(v, list | tuple | np.ndarray)]
    if rows:
        unknown = [np.nan] * max(map(len, rows))
        return [unknown if v is None else v for v in values]
    array = np.empty(len(values), object)  # np.array could nest some values.
    array[:] = values
    return array


def _check_names(label_names: Any) -> tuple[str, ...]:
    try:
        names = tuple(_text(name) for name in label_names)
    except TypeError:
        raise ValueError(
            f"label_names is {label_names!r}; give a list of names."
        ) from None
    check_distinct(names)
    return names


def check_distinct(label_names: tuple[str, ...]) -> None:
    """Raise `ValueError` for the first name that occurs twice."""
    seen: set[str] = set()
    for i, name in enumerate(label_names):
        if name in seen:
            raise ValueError(
                f"label_names[{i}] is {name!r}, as is an earlier name. Use each once."
            )
        seen.add(name)


def _plain(labels: np.ndarray) -> np.ndarray:
    """Return class ids mixed with None as floats with NaN; names stay as they are."""
    if labels.dtype != object or labels.ndim != 1:
        return labels
    values = labels.tolist()
    if not all(
        v is None or isinstance(v, int | float | np.integer | np.floating)
        for v in values
    ):
        return labels
    # Integers may be too large for a float; such ids are refused later.
    return np.array(
        [np.nan if v is None else v if v < 2**53 else np.inf for v in values], float
    )


def _text(value: Any) -> str:
    """Return a name as text; "" for None, NaN and the missing values of pandas."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    missing = value is None or type(value).__name__ in ("NAType", "NaTType")
    if missing or (isinstance(value, float) and value != value):
        return ""
    return str(value)


def _from_ids(
    array: np.ndarray, names: tuple[str, ...] | None
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    if array.dtype.kind in "OUS":
        text = [_text(value) for value in array.tolist()]
        known = np.array([value != "" for value in text], bool)
        if names is None:
            names = tuple(sorted(set(text) - {""}))
        place = {name: i for i, name in enumerate(names)}
        ids = np.array([place.get(value, -1) for value in text], np.int64)
        refuse_first(
            known & (ids < 0),
            lambda i: f"labels[{i}] is {text[i]!r}, which label_names does not list.",
        )
    else:
        if array.dtype.kind not in "fiub":
            raise ValueError(f"labels has dtype {array.dtype}; give ids or names.")
        # Unsigned integers cannot hold -1, nor 16-bit floats a million.
        numbers = array.astype(np.float64)
        numbers[np.isnan(numbers)] = -1
        refuse_first(
            (numbers != np.floor(numbers)) | (numbers < -1) | (numbers > 1e6),
            lambda i: (
                f"labels[{i}] is {array[i]}; class ids are 0, 1, 2, ... up to a "
                "million, and -1 where unknown."
            ),
        )
        ids = numbers.astype(np.int64)
        known = ids >= 0
        count = int(ids.max(initial=-1)) + 1
        if names is not None:
            count = max(count, len(names))
        elif count > array.size and count * array.size > _MAX_ENTRIES:
            raise ValueError(
                f"labels[{int(ids.argmax())}] is {count - 1}, but there are "
                f"{array.size} nodes. Number the classes 0, 1, 2, ..., or give "
                "label_names."
            )
        names = tuple(str(c) for c in range(count))
    check_memory(
        array.size * len(names),
        f"A label matrix of {array.size} nodes and {len(names)} labels",
        "Are the labels ids of something else? Merge rare ones, or leave them out.",
    )
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
    refuse_first(
        ((matrix != 0) & (matrix != 1)).any(axis=1),
        lambda i: f"labels[{i}] is {array[i]}; a label matrix holds 0 and 1 only.",
    )
    matrix = matrix.astype(np.uint8)
    counts = matrix.sum(axis=1)
    if multilabel is None:
        multilabel = bool((counts > 1).any())
    if not multilabel:
        refuse_first(
            counts > 1,
            lambda i: (
                f"labels[{i}] has {counts[i]} labels, but multilabel=False. "
                "Pass multilabel=True."
            ),
        )
        known &= counts == 1
    return matrix, known, multilabel

"""Conversion of labels in any form that `Graph` accepts to a 0/1 matrix."""

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hopf_jax.graph.frames import align, is_frame, is_series, plain
from hopf_jax.graph.validation import refuse_first, to_array
from hopf_jax.runtime import check_memory

# Labels are taken for something else, such as postcodes, if their matrix would have
# more entries than this.
_MAX_ENTRIES = 2**31

_SEVERAL_LABELS = (
    "labels {}. For several labels per node give a matrix of 0 and 1 with a row per "
    "node, as sklearn.preprocessing.MultiLabelBinarizer makes it."
)

Label = str | int | bool


class NodeLabels(NamedTuple):
    """Labels in the form that `Graph` stores.

    Attributes:
      matrix: [N, C] of 0 and 1.
      known: [N] whether the label of a node is known.
      multilabel: Several labels per node.
      names: C names.
      classes: C labels as they were given, if they were not text; else ().
    """

    matrix: np.ndarray
    known: np.ndarray
    multilabel: bool
    names: tuple[str, ...]
    classes: tuple[Label, ...] = ()


def check_labels(
    labels: Any,
    nodes: Sequence[Any],
    multilabel: bool | None,
    label_names: Any,
) -> NodeLabels:
    """Return labels in the form that `Graph` stores.

    Args:
      labels: As in `Graph`: class ids or names [N], a 0/1 matrix [N, C], or None. The
        rows of a table are placed by its index; nodes without a row are unlabelled.
      nodes: What an index calls the nodes: their names, or range(N).
      multilabel: True, False, or None to infer it from the labels.
      label_names: C names, or None; or a dictionary from ids to names.
    """
    num_nodes = len(nodes)
    if not (multilabel is None or isinstance(multilabel, bool | np.bool_)):
        raise ValueError(
            f"multilabel is {multilabel!r}; use True, False, or None to infer it from "
            "the labels."
        )
    if labels is None:
        matrix = np.zeros((num_nodes, 0), np.uint8)
        return NodeLabels(matrix, np.zeros(num_nodes, bool), bool(multilabel), ())
    if isinstance(labels, str | set | frozenset):
        raise ValueError(
            f"labels is {reprlib.repr(labels)}; give one label per node, or a "
            "dictionary by node. Names of attributes and columns are for from_networkx "
            "and from_pandas."
        )
    labels, found = _from_table(labels, nodes)
    if isinstance(label_names, Mapping):
        labels, label_names = _rename(labels, label_names)
    if label_names is not None:
        label_names = _check_names(label_names)
    given = _to_array(labels)
    array = _plain(given)
    if array.ndim == 2 and array.shape[1] == 1 and not multilabel and not found:
        array = _plain(array[:, 0])  # A column of class ids, not a one-hot matrix.
    if array.ndim not in (1, 2) or len(array) != num_nodes:
        raise ValueError(
            f"labels has shape {array.shape}, but there are {num_nodes} nodes. Give "
            "one label per node, in the order of the nodes (None or -1 if it is not "
            "known), a 0/1 matrix with a row per node, or a dictionary by node."
        )
    if array.ndim == 1:
        if multilabel:
            raise ValueError(
                "multilabel=True needs labels as a matrix [N, C], not class ids."
            )
        matrix, known, found = _from_ids(array, label_names)
        classes = _own_labels(given, found)
    else:
        matrix, known, multilabel = _from_matrix(array, multilabel)
        numbers = range(matrix.shape[1])
        classes = () if found else tuple(numbers)
        found = found or tuple(map(str, numbers))
    names = found if label_names is None else label_names
    if label_names is not None:
        classes = ()
    if len(names) != matrix.shape[1]:
        raise ValueError(
            f"label_names has {len(names)} names, but there are {matrix.shape[1]} "
            "labels. Give one per label, in the order of the ids or columns."
        )
    return NodeLabels(matrix, known, bool(multilabel), names, classes)


def classes_from_json(data: Any, num_labels: int) -> tuple[Label, ...]:
    """Return saved classes, C or none; raise `ValueError` for anything else."""
    valid = isinstance(data, list) and len(data) in (0, num_labels)
    if not valid or not all(isinstance(each, str | int) for each in data):
        raise ValueError(f"classes are not {num_labels} labels")
    if len(set(data)) < len(data):
        raise ValueError("classes lists a label twice")
    return tuple(data)


def _own_labels(given: np.ndarray, names: tuple[str, ...]) -> tuple[Label, ...]:
    """Return classes as they were given, whole numbers or truth values; () for text."""
    flat = given.reshape(-1)
    if flat.dtype.kind == "b":
        return tuple(name == "1" for name in names)
    if flat.dtype.kind in "fiu":
        return tuple(map(int, names))
    kinds = {type(value) for value in flat.tolist() if _text(value) != ""}
    if kinds and kinds <= {bool, np.bool_}:
        return tuple(name in ("1", "True") for name in names)
    whole = kinds and all(issubclass(k, int | np.integer | float) for k in kinds)
    if whole and all(name.isdecimal() for name in names):
        return tuple(map(int, names))
    return ()


def _from_table(labels: Any, nodes: Sequence[Any]) -> tuple[Any, tuple[str, ...]]:
    """Return labels without an index, and the names of the columns of a matrix."""
    mapped = isinstance(labels, Mapping)
    labels = align(labels, nodes, "labels", partial=True)
    if mapped:
        return gather_labels(labels), ()
    if is_frame(labels):
        names = tuple(str(name) for name in labels.columns)
        if len(names) > 1:
            return labels.to_numpy(), names
        labels = labels.iloc[:, 0]
    return plain(labels) if is_series(labels) else labels, ()


def _rename(labels: Any, names: Mapping) -> tuple[Any, list[Any]]:
    """Return labels and label_names, given a dictionary from ids to names."""
    array = _to_array(labels)
    ids = sorted(names)
    if array.ndim != 1:
        return labels, [names[i] for i in ids]
    values = _plain(array).tolist()
    unknown = [v is None or v == "" or v == -1 or v != v for v in values]
    pairs = list(zip(unknown, values, strict=True))
    refuse_first(
        np.array([not u and v not in names for u, v in pairs], bool),
        lambda i: f"labels[{i}] is {values[i]!r}, which label_names does not list.",
    )
    renamed = np.empty(len(values), object)
    renamed[:] = [None if u else names[v] for u, v in pairs]
    return renamed, [names[i] for i in ids]


def _to_array(labels: Any) -> np.ndarray:
    try:
        return to_array(labels, "labels")
    except ValueError as error:
        rows = (list, tuple, set)
        if any(isinstance(label, rows) for label in labels):
            raise ValueError(
                _SEVERAL_LABELS.format("are lists of different lengths")
            ) from None
        raise error


def gather_labels(values: list[Any]) -> Any:
    """Return labels, one value per node and None where unknown, as `Graph` takes them.

    The values are class ids or names, or rows of 0 and 1.
    """
    values = [np.atleast_1d(v) if isinstance(v, np.ndarray) else v for v in values]
    rows = [v for v in values if isinstance(v, list | tuple | np.ndarray)]
    if rows:
        if any(isinstance(each, str) for row in rows for each in row):
            raise ValueError(_SEVERAL_LABELS.format("hold lists of names"))
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
            (numbers != np.floor(numbers)) | (numbers < -1) | (numbers >= 2**53),
            lambda i: (
                f"labels[{i}] is {array[i]}; class ids are whole numbers, 0 or more, "
                "and -1 where unknown."
            ),
        )
        ids = numbers.astype(np.int64)
        known = ids >= 0
        ids, names = _number_classes(ids, names)
    check_memory(
        array.size * len(names),
        f"A label matrix of {array.size} nodes and {len(names)} labels",
        "Are the labels ids of something else? Merge rare ones, or leave them out.",
    )
    matrix = np.zeros((array.size, len(names)), np.uint8)
    matrix[np.flatnonzero(known), ids[known]] = 1
    return matrix, known, names


def _number_classes(
    ids: np.ndarray, names: tuple[str, ...] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return class ids [N] as 0 to C - 1, and C names.

    Ids that are not, such as 0, 5 and 1000, are names of their own.
    """
    found = np.unique(ids[ids >= 0])
    count = int(found[-1]) + 1 if found.size else 0
    own = tuple(str(i) for i in found.tolist())
    if names is None:
        names = own
    elif count <= len(names):
        return ids, tuple(str(c) for c in range(len(names)))
    elif not set(own) <= set(names):
        return ids, tuple(str(c) for c in range(count))  # Refused: too few names.
    if len(names) * ids.size > _MAX_ENTRIES:
        raise ValueError(
            f"labels holds {len(names)} different ids among {ids.size} nodes. Classes "
            "are shared by several nodes: are these the ids of something else?"
        )
    place = {name: i for i, name in enumerate(names)}
    codes = np.array([place[name] for name in own], np.int64)
    numbered = np.full(ids.shape, -1)
    numbered[ids >= 0] = codes[np.searchsorted(found, ids[ids >= 0])]
    return numbered, names


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

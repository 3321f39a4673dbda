"""Tables with an index, as of pandas: rows are placed by it, never by their order.

pandas is not imported: a table is recognised by what it offers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.graph.encoding import encode_columns
from hopf_jax.suggestions import suggest


def is_frame(values: Any) -> bool:
    """Return whether this is a DataFrame."""
    return hasattr(values, "columns") and hasattr(values, "iloc")


def is_series(values: Any) -> bool:
    """Return whether this is a Series."""
    return hasattr(values, "iloc") and not hasattr(values, "columns")


def align(
    values: Any, nodes: Sequence[Any], name: str, *, partial: bool = False
) -> Any:
    """Return a DataFrame or Series with rows in the order of nodes.

    Anything else is returned as it is.

    Args:
      values: Anything; a dictionary by node is a Series, if `partial`.
      nodes: What the index calls the nodes: names, or 0 to N - 1.
      name: What the values are, for messages.
      partial: Nodes may be absent; their values are missing.

    Raises:
      ValueError: The index is not that of the nodes.
    """
    if partial and isinstance(values, Mapping):
        return _from_mapping(values, nodes, name)
    if not is_frame(values) and not is_series(values):
        return values
    place = {label: i for i, label in enumerate(values.index.tolist())}
    if len(place) < len(values.index):
        repeated = values.index[values.index.duplicated()][0]
        raise ValueError(
            f"The index of {name} holds {repeated!r} twice. Give one row per node; "
            f"{name}[~{name}.index.duplicated()] keeps the first of each."
        )
    absent = [node for node in nodes if node not in place]
    numbered = isinstance(nodes, range)
    strange = numbered and any(not _is_id(label, len(nodes)) for label in place)
    if strange or (absent and (not partial or len(absent) == len(nodes))):
        said = "0 to N - 1" if numbered else f"{nodes[0]!r}, ..."
        few = ", ".join(repr(label) for label in list(place)[:3])
        problem = f"; there is no row {absent[0]!r}" if absent else ""
        order = "their ids" if numbered else "graph.nodes"
        raise ValueError(
            f"The index of {name} ({few}, ...) is not that of the {len(nodes)} nodes "
            f"({said}){problem}. Set the index to the nodes with {name}.set_index(...)"
            f"; or, if rows are in the order of {order}, pass "
            f"{name}.reset_index(drop=True)"
            + ("." if numbered else ".to_numpy(), without an index.")
        )
    if absent:
        return values.reindex(list(nodes))
    return values.iloc[[place[node] for node in nodes]]


def _is_id(label: Any, num_nodes: int) -> bool:
    whole = isinstance(label, int | np.integer) and not isinstance(label, bool)
    return whole and 0 <= label < num_nodes


def _from_mapping(values: Mapping, nodes: Sequence[Any], name: str) -> list[Any]:
    known = set(nodes)
    strange = [node for node in values if node not in known]
    if strange:
        raise ValueError(
            f"{name} has an entry for {strange[0]!r}, which is not a node of the "
            f"graph. {suggest(strange[0], nodes, 'The nodes')}"
        )
    return [values.get(node) for node in nodes]


def encode_frame(
    frame: Any, missing: str
) -> tuple[np.ndarray | sp.csr_array, tuple[str, ...]]:
    """Return a DataFrame as a matrix of numbers [N, F], and the names of its columns.

    Args:
      frame: A DataFrame; see `encode_columns` for what becomes of its columns.
      missing: As there.
    """
    names = [str(label) for label in frame.columns]
    dtypes = list(frame.dtypes)
    if names and all(getattr(dtype, "fill_value", 1) == 0 for dtype in dtypes):
        return sp.csr_array(frame.sparse.to_coo()), tuple(names)
    columns = [(n, _column(frame.iloc[:, i])) for i, n in enumerate(names)]
    return encode_columns(columns, frame.index.tolist(), missing)


def _column(series: Any) -> np.ndarray:
    values = plain(series)
    if getattr(series.dtype, "name", "") != "category":
        return values
    # Numbers of a categorical column are names.
    gone = np.asarray(series.isna())
    texts = np.empty(len(values), object)
    texts[:] = [None if g else str(v) for v, g in zip(values, gone, strict=True)]
    return texts


def plain(series: Any) -> np.ndarray:
    """Return the values of a Series; missing ones of pandas' own types as None."""
    values = np.asarray(series)
    if values.dtype.kind == "O" and not isinstance(series.dtype, np.dtype):
        gone = np.asarray(series.isna())
        values = values.copy()
        values[gone] = None
    return values

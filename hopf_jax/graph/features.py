"""Features in any form that `Graph` accepts, and functions of feature matrices."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hopf_jax.config import Choice, check
from hopf_jax.graph.encoding import MISSING
from hopf_jax.graph.frames import align, encode_frame, is_frame, is_series
from hopf_jax.graph.validation import check_features

# Dense products are faster on a narrow matrix, however many zeros it holds.
_MIN_SPARSE_COLUMNS = 256
_MAX_SPARSE_DENSITY = 0.25
_ROWS_READ = 10_000  # By `row_norm`.


class NodeFeatures(NamedTuple):
    """Features in the form that `Graph` stores.

    Attributes:
      matrix: [N, F] float32, dense or CSR, or a memory map.
      names: F names, or () if the columns have none.
      missing: Whether there are missing values, NaN.
      positional: Whether the features were made from the edges.
    """

    matrix: Any
    names: tuple[str, ...] = ()
    missing: bool = False
    positional: bool = False


def read_features(
    features: Any, missing: str, nodes: Sequence[Any] | None = None
) -> NodeFeatures:
    """Return features as `Graph` stores them; rows of a table are placed by its index.

    Args:
      features: [N, F] as an array, a sparse matrix, a memory map or a DataFrame.
      missing: "refuse" missing values, or use the "mean" of the column.
      nodes: What an index calls the nodes; None for 0 to N - 1.
    """
    check(Choice(MISSING), "missing", missing)
    if isinstance(features, NodeFeatures):
        return features
    names: tuple[str, ...] = ()
    if is_series(features):
        features = features.to_frame()
    if is_frame(features):
        order = range(len(features)) if nodes is None else nodes
        features, names = encode_frame(align(features, order, "features"), missing)
    matrix = check_features(features, missing=missing == "mean")
    gaps = missing == "mean" and not sp.issparse(matrix)
    return NodeFeatures(matrix, names, gaps and bool(np.isnan(matrix.sum())))


def prefers_sparse(features: Any) -> bool:
    """Return whether features [N, F] should be stored sparse.

    They should be where they are wide and mostly zero, as a bag of words is.
    """
    rows, columns = features.shape
    filled = features.nnz if sp.issparse(features) else np.count_nonzero(features)
    sparse = filled < _MAX_SPARSE_DENSITY * rows * columns
    return bool(sparse and columns >= _MIN_SPARSE_COLUMNS)


def normalize_rows(features: Any) -> np.ndarray | sp.csr_array:
    """Scale each row of [N, F] to absolute values that sum to 1, or leave it zero."""
    with np.errstate(over="ignore"):
        sums = np.asarray(abs(features).sum(axis=1), np.float32)
        scale = np.divide(1, sums, out=np.zeros_like(sums), where=sums > 0)
    if not (np.isfinite(sums) & np.isfinite(scale)).all():  # Beyond 32 bits.
        features = features.astype(np.float64)
        sums = np.asarray(abs(features).sum(axis=1))
        scale = np.divide(1, sums, out=np.zeros_like(sums), where=sums > 0)
    if sp.issparse(features):
        data = features.data * np.repeat(scale, np.diff(features.indptr))
        return sp.csr_array((data, features.indices, features.indptr), features.shape)
    return np.asarray(features) * scale[:, None]


def sample_rows(features: Any) -> Any:
    """Return some thousands of the rows of [N, F], evenly spaced, or all of fewer."""
    return features[:: max(1, -(-features.shape[0] // _ROWS_READ))]


def row_norm(features: Any) -> float:
    """Return the root mean square of the norms of the rows of [N, F]; 1 if it is 0.

    Of many rows some are read: `sample_rows`.
    """
    rows = sample_rows(features)
    squares = rows.multiply(rows) if sp.issparse(rows) else np.square(rows, dtype=float)
    norm = float(np.sqrt(squares.sum() / rows.shape[0]))
    return norm if 0 < norm < np.inf else 1.0

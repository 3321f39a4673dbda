"""Scaling of features, and the choice between dense and sparse storage."""

from typing import Any

import numpy as np
import scipy.sparse as sp

# Dense products are faster on a narrow matrix, however many zeros it holds.
_MIN_SPARSE_COLUMNS = 256
_MAX_SPARSE_DENSITY = 0.25
_ROWS_READ = 10_000  # By `row_norm`.


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


def row_norm(features: Any) -> float:
    """Return the root mean square of the norms of the rows of [N, F]; 1 if it is 0.

    Of many rows some thousands are read, evenly spaced.
    """
    step = -(-features.shape[0] // _ROWS_READ)
    rows = features[::step]
    squares = rows.multiply(rows) if sp.issparse(rows) else np.square(rows, dtype=float)
    norm = float(np.sqrt(squares.sum() / rows.shape[0]))
    return norm if 0 < norm < np.inf else 1.0

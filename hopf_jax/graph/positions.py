"""Features of a graph without any: where nodes are in it, and their degrees."""

import numpy as np
import scipy.sparse as sp

_MAX_COLUMNS = 64
_NODES_PER_COLUMN = 4  # Fewer columns for small graphs.
_MAX_VALUES = 1 << 24  # Fewer columns for huge graphs.
_MIN_COLUMNS = 8
_SMALL = 300  # Number of nodes up to which all eigenvectors are computed.
_EXTRA = 8  # Columns beyond those wanted, which let the wanted ones converge.
_ROUNDS = 24  # Of subspace iteration.


def make_positions(adjacency: sp.csr_array) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return features [N, F] made from the edges alone, and their names.

    Positions are the leading eigenvectors of the symmetric matrix

        (D + d I)^-1/2 A (D + d I)^-1/2

    with the mean degree d as a regulariser (Qin and Rohe 2013, "Regularized spectral
    clustering under the degree-corrected stochastic blockmodel"): without it they
    would tell small components and the ends of paths from everything else. Nodes of
    components too small for one of them, and isolated nodes, are at 0. The last feature
    is the logarithm of one plus the degree.

    Work is bounded: a fixed number of products with A, on fewer columns where there are
    millions of nodes. The same graph gives the same features.

    Args:
      adjacency: A, [N, N]; of a directed graph, edges of both directions count.
    """
    matrix = sp.csr_array(adjacency.maximum(adjacency.T), dtype=np.float64)
    degree = matrix.sum(axis=1)
    count = _num_columns(matrix.shape[0]) if matrix.nnz else 0
    positions = _eigenvectors(matrix, degree, count)
    # As if of unit variance, so that features as they are can be learned from too.
    positions *= np.sqrt(matrix.shape[0])
    names = [f"position {i + 1}" for i in range(positions.shape[1])] + ["log degree"]
    features = np.column_stack([positions, np.log1p(degree)])
    return features.astype(np.float32), tuple(names)


def fingerprint(positions: np.ndarray) -> tuple[float, ...]:
    """Return some numbers that other positions [N, F] would not give."""
    weights = np.random.default_rng(1).standard_normal(len(positions))
    total = weights @ np.asarray(positions, np.float64)
    return tuple((total / np.sqrt(len(positions))).tolist())


def _num_columns(num_nodes: int) -> int:
    most = min(_MAX_COLUMNS, max(_MIN_COLUMNS, _MAX_VALUES // num_nodes))
    return min(most, max(2, num_nodes // _NODES_PER_COLUMN), num_nodes - 1)


def _eigenvectors(matrix: sp.csr_array, degree: np.ndarray, count: int) -> np.ndarray:
    """Return eigenvectors [N, count] of the largest absolute eigenvalues."""
    num_nodes = matrix.shape[0]
    if count == 0:
        return np.zeros((num_nodes, 0))
    root = 1 / np.sqrt(degree + degree.mean())
    scaled = sp.csr_array(sp.diags_array(root) @ matrix @ sp.diags_array(root))
    if num_nodes <= _SMALL:
        values, vectors = np.linalg.eigh(scaled.toarray())
    else:
        values, vectors = _iterate_subspace(scaled, min(num_nodes, count + _EXTRA))
    order = np.argsort(-abs(values), kind="stable")[:count]
    vectors = vectors[:, order]
    # Of v and -v, take the one whose largest entry is positive.
    largest = abs(vectors).argmax(axis=0)
    signs = np.sign(vectors[largest, np.arange(vectors.shape[1])])
    return vectors * np.where(signs == 0, 1, signs)


def _iterate_subspace(
    matrix: sp.csr_array, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return approximate eigenvalues and eigenvectors of a symmetric matrix."""
    rng = np.random.default_rng(0)
    basis = rng.standard_normal((matrix.shape[0], width))
    for _ in range(_ROUNDS):
        basis, _ = np.linalg.qr(matrix @ (matrix @ basis))
    values, turn = np.linalg.eigh(basis.T @ (matrix @ basis))
    return values, basis @ turn

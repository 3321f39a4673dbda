"""Sparse matrices, and `spmm`: sparse times dense, with a gradient of the same kind.

All sparse computation is such a product: F(A) h, and X W of a bag of words.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import sequential_vmap
from jax.experimental import sparse as jax_sparse

# NumPy until a batch is put on the device.
Array = jax.Array | np.ndarray
# Array | SparseMatrix | None: mypy cannot follow which of them a signal is.
Matrix = Any


class Rows(NamedTuple):
    """The positions of the entries of a sparse matrix [P, S], in CSR form.

    Entries from `indptr[-1]` on are padding and never read. With the transpose the
    gradient is a row-wise product, not a scatter; without it there is no gradient.
    """

    indptr: Array  # [P + 1]
    indices: Array  # [E], the column of each entry
    transpose: "Transpose | None" = None


class Transpose(NamedTuple):
    """The same matrix in CSC form."""

    indptr: Array  # [S + 1]
    indices: Array  # [E], the row of each entry
    order: Array  # [E], the position of each entry in `Rows`


class SparseMatrix(NamedTuple):
    """A sparse matrix with its values, for features [N, F]."""

    rows: Rows
    values: Array  # [E]

    @property
    def num_rows(self) -> int:
        """Number of rows, N."""
        return self.rows.indptr.shape[0] - 1


@jax.custom_vjp
def spmm(rows: Rows, values: jax.Array, dense: jax.Array) -> jax.Array:
    """Return M @ dense, [P, S] @ [S, H] -> [P, H], for M with `values` [E] at `rows`.

    Sums are float32 for any type of `dense`, as sums over many neighbours need.
    """
    return _product(rows.indptr, rows.indices, values, dense)


def _forward(rows, values, dense):
    return spmm(rows, values, dense), (rows, values, dense)


def _backward(saved, cotangent):
    rows, values, dense = saved
    if rows.transpose is None:
        raise ValueError("Rows without a transpose have no gradient.")
    indptr, indices, order = rows.transpose
    to_dense = _product(indptr, indices, values[order], cotangent)
    # XLA removes this where the values are constant, which is nearly everywhere.
    receivers = row_of_entry(rows.indptr, values.shape[0])
    to_values = jnp.sum(
        jnp.take(cotangent, receivers, axis=0, mode="fill", fill_value=0)
        * jnp.take(dense, rows.indices, axis=0, mode="clip"),
        axis=1,
        dtype=values.dtype,
    )
    return None, to_values, to_dense


spmm.defvjp(_forward, _backward)


def row_of_entry(indptr: Array, num_entries: int) -> jax.Array:
    """Return the row of each entry, [E]; padding entries get P, which is no row."""
    steps = jnp.zeros(num_entries + 1, indptr.dtype).at[indptr[1:]].add(1)
    return jnp.cumsum(steps[:-1])


_portable = contextvars.ContextVar("portable", default=False)


@contextlib.contextmanager
def portable_products() -> Iterator[None]:
    """Trace products that run on any device: without the CSR kernel of CPUs."""
    token = _portable.set(True)
    try:
        yield
    finally:
        _portable.reset(token)


def _product(indptr, indices, values, dense):
    wide = dense.astype(jnp.float32)
    if _portable.get():
        return segment_product(indptr, indices, values, wide).astype(dense.dtype)
    # Faster than the segment sum, but only CPUs have the CSR kernel.
    cpu = jax.default_backend() == "cpu"
    product = csr_product if cpu else segment_product
    return product(indptr, indices, values, wide).astype(dense.dtype)


@sequential_vmap  # One call per member under vmap: the batched kernel is slower.
def csr_product(indptr, indices, values, dense):
    """Return the product through the CSR kernel of `jax.experimental.sparse`."""
    shape = (indptr.shape[0] - 1, dense.shape[0])
    return jax_sparse.BCSR((values, indices, indptr), shape=shape) @ dense


def segment_product(indptr, indices, values, dense):
    """Return the product as a gather and a sum over sorted segments."""
    messages = jnp.take(dense, indices, axis=0, mode="clip") * values[:, None]
    return jax.ops.segment_sum(
        messages,
        row_of_entry(indptr, values.shape[0]),
        num_segments=indptr.shape[0] - 1,
        indices_are_sorted=True,
    )


def matmul(left: Matrix, weights: jax.Array | None) -> Matrix:
    """Return `left @ weights` for a dense or sparse left side; None is the identity.

    The product has the precision of the weights.
    """
    if weights is None:
        return left
    if isinstance(left, SparseMatrix):
        return spmm(left.rows, left.values, weights)
    return left.astype(weights.dtype) @ weights


def to_dense(matrix: Matrix, num_columns: int) -> jax.Array:
    """Return the matrix [N, F] as a dense array."""
    if not isinstance(matrix, SparseMatrix):
        return matrix
    rows = row_of_entry(matrix.rows.indptr, matrix.values.shape[0])
    zeros = jnp.zeros((matrix.num_rows, num_columns), matrix.values.dtype)
    return zeros.at[rows, matrix.rows.indices].add(matrix.values, mode="drop")

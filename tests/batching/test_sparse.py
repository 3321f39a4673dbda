"""Sparse times dense: two implementations and their gradients against dense ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from hopf_jax.batching.padding import _transpose
from hopf_jax.batching.sparse import (
    Rows,
    SparseMatrix,
    csr_product,
    matmul,
    row_of_entry,
    segment_product,
    spmm,
    to_dense,
)

CASES = {
    "plain": ((5, 4), 0.5, 0),
    "empty-rows": ((9, 3), 0.1, 0),
    "no-entries": ((4, 3), 0.0, 0),
    "padded": ((5, 4), 0.5, 7),
    "only-padding": ((4, 3), 0.0, 6),
    "wide": ((2, 30), 0.3, 2),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def matrix(shape, density, padding):
    """A random matrix: dense; and its rows and values, with garbage as padding."""
    rng = np.random.default_rng(0)
    dense = rng.normal(size=shape) * (rng.random(shape) < density)
    csr = sp.csr_array(dense.astype(np.float32))
    indices = np.concatenate([csr.indices, rng.integers(0, shape[1], padding)])
    values = np.concatenate([csr.data, np.full(padding, 1e6)])
    indptr, indices = csr.indptr.astype(np.int32), indices.astype(np.int32)
    transpose = _transpose(indptr, indices, csr.nnz, shape[1])
    rows = Rows(indptr, indices, transpose)
    right = rng.normal(size=(shape[1], 3)).astype(np.float32)
    return jax.device_put((csr.toarray(), rows, values.astype(np.float32), right))


@every_case
def test_both_products_equal_the_dense_one(case):
    dense, rows, values, right = matrix(*case)
    want = np.asarray(dense) @ np.asarray(right)
    for product in (csr_product, segment_product):
        got = product(rows.indptr, rows.indices, values, right)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(spmm(rows, values, right), want, rtol=1e-5, atol=1e-6)
    jitted = jax.jit(spmm)(rows, values, right)
    np.testing.assert_allclose(jitted, want, rtol=1e-5, atol=1e-6)


@every_case
def test_gradients_equal_the_dense_ones(case):
    dense, rows, values, right = matrix(*case)
    cotangent = np.random.default_rng(1).normal(size=(dense.shape[0], 3))
    cotangent = jnp.asarray(cotangent, jnp.float32)

    def loss(values, right):
        return jnp.sum(spmm(rows, values, right) * cotangent)

    to_values, to_right = jax.grad(loss, (0, 1))(values, right)
    np.testing.assert_allclose(to_right, dense.T @ cotangent, rtol=1e-5, atol=1e-5)
    of_matrix = np.asarray(cotangent @ right.T)
    used = int(rows.indptr[-1])
    at = np.asarray(row_of_entry(rows.indptr, len(values)))[:used]
    want = np.zeros(len(values))  # And 0 for padding.
    want[:used] = of_matrix[at, np.asarray(rows.indices)[:used]]
    np.testing.assert_allclose(to_values, want, rtol=1e-5, atol=1e-5)


def test_gradients_need_the_transpose():
    _, rows, values, right = matrix(*CASES["plain"])
    bare = rows._replace(transpose=None)
    assert spmm(bare, values, right).shape == (5, 3)
    with pytest.raises(ValueError, match="without a transpose"):
        jax.grad(lambda r: spmm(bare, values, r).sum())(right)


@every_case
def test_rows_of_entries(case):
    dense, rows, values, _ = matrix(*case)
    got = np.asarray(row_of_entry(rows.indptr, len(values)))
    used = int(rows.indptr[-1])
    np.testing.assert_array_equal(got[:used], np.nonzero(np.asarray(dense))[0])
    np.testing.assert_array_equal(got[used:], len(dense))  # Which is no row.


@every_case
def test_sparse_features_written_out(case):
    dense, rows, values, right = matrix(*case)
    sparse = SparseMatrix(rows, values)
    assert sparse.num_rows == dense.shape[0]
    np.testing.assert_array_equal(to_dense(sparse, dense.shape[1]), dense)
    assert to_dense(dense, dense.shape[1]) is dense
    np.testing.assert_allclose(
        matmul(sparse, right), matmul(dense, right), rtol=1e-5, atol=1e-6
    )
    assert matmul(sparse, None) is sparse

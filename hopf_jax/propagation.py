"""The one propagation rule (Eq. 1): reads a row, computes a hop.

Letters, here and everywhere: N nodes and E edges of a padded subgraph, R roots or
receivers (its first R nodes), S senders, F features, H hidden width, C labels.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jraph

from hopf_jax.models import Row, Signal
from hopf_jax.sparse import Matrix, SparseMatrix, matmul

# A sparse product moves an entry in the time a matrix product does so many of its
# multiplications (CPU, `experiments/benchmark.py`); only the order of magnitude counts.
_SPARSE_COST = 40


class Signals(NamedTuple):
    """What a node can read, each [S, *]; padding rows hold any finite value."""

    h0: Matrix  # the embedding, or X itself
    h: Matrix  # the last hop
    y: Matrix  # the label summary, or None where the row reads none


class HopWeights(NamedTuple):
    """Weights of one hop; None is the identity."""

    phi: jax.Array | None
    psi: jax.Array | None
    aggregate: dict[str, jax.Array]
    bias: jax.Array | None = None


def propagate(
    row: Row,
    weights: HopWeights,
    graph: jraph.GraphsTuple,
    signals: Signals,
    num_receivers: int,
    draws: jax.Array | None = None,
) -> jax.Array:
    """One hop, before the nonlinearity (Eq. 1): alpha Phi W_phi + beta F(A) Psi W_psi.

    Args:
      row: the model; static under jit.
      weights: of this hop.
      graph: the edges from S senders to the first R nodes, with `nodes["degree"]` [S]
        of the whole graph, `edges["weight"]` [E] and the CSR rows in `globals`.
      signals: arrays on the S nodes; padding rows may hold any finite value.
      num_receivers: R.
      draws: random bits [E] for aggregators that read neighbours in random order.

    Returns:
      [R, H], or [R, 2H] for a row that concatenates. Rows of real nodes do not depend
      on the padding.
    """
    degree = graph.nodes["degree"][
        :num_receivers
    ]  # In the whole graph, not in this one.
    parts = []
    if row.psi:
        read = _read(signals, row.psi)
        early = row.aggregate.linear and _multiply_first(
            read, weights.psi, num_receivers, graph.senders.shape[0]
        )
        if early:
            read = matmul(read, weights.psi)[: graph.nodes["degree"].shape[0]]
        neighbours = row.aggregate.apply(
            graph, read, num_receivers, weights.aggregate, draws
        )
        if row.shared_weights:
            # One product for both parts, as the weights are one.
            both = _gate(row.alpha(degree), read[:num_receivers])
            both += _gate(row.beta(degree), neighbours)
            return _biased(both if early else matmul(both, weights.psi), weights.bias)
        if not early:
            neighbours = matmul(neighbours, weights.psi)
        parts.append(_gate(row.beta(degree), neighbours))  # [R, H]
    if row.phi:
        read = _read(signals, row.phi)
        own = matmul(_head(read, num_receivers), weights.phi)[:num_receivers]
        parts.insert(0, _gate(row.alpha(degree), own))  # [R, H]
    return _biased(
        jnp.concatenate(parts, axis=1) if row.concat else sum(parts[1:], parts[0]),
        weights.bias,
    )


def _read(signals: Signals, names: tuple[Signal, ...]) -> Matrix:
    """The named signals side by side, [S, *]."""
    read = [getattr(signals, name) for name in names]
    return read[0] if len(read) == 1 else jnp.concatenate(read, axis=1)


def _head(read: Matrix, num_receivers: int) -> Matrix:
    return read if isinstance(read, SparseMatrix) else read[:num_receivers]


def _multiply_first(
    read: Matrix,
    weights: jax.Array | None,
    num_receivers: int,
    num_edges: int,
) -> bool:
    """Whether (F(A) x) W or F(A) (x W) costs less; the result is the same."""
    if weights is None:
        return False
    if isinstance(read, SparseMatrix):
        return True
    num_senders, (width, hidden) = read.shape[0], weights.shape
    first = num_senders * width * hidden + _SPARSE_COST * num_edges * hidden
    after = num_receivers * width * hidden + _SPARSE_COST * num_edges * width
    return first < after


def _gate(gate: jax.Array | float, x: jax.Array) -> jax.Array:
    if isinstance(gate, float):
        return x if gate == 1 else gate * x
    return gate[:, None] * x


def _biased(x: jax.Array, bias: jax.Array | None) -> jax.Array:
    return x if bias is None else x + bias[None, :]

"""Eq. 1: one hop of any kernel, as a pure function.

Letters, here and everywhere: N nodes and E edges of a padded subgraph, R roots or
receivers (its first R nodes), S senders, F features, H hidden width, C labels.
"""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hopf_jax.batching import HopGraph, Matrix, SparseMatrix, matmul
from hopf_jax.kernels.table import Kernel, Signal

# Multiplications of a dense product in the time that a sparse product takes for one
# entry, on a CPU; only the order of magnitude counts.
_SPARSE_COST = 40


class Signals(NamedTuple):
    """What a node can read, each [S, *]; padding rows hold any finite value."""

    h0: Matrix  # The embedding; at a first hop without an input layer, X.
    h: Matrix  # The previous hop; likewise.
    y: Matrix  # The label summary, or None where the kernel reads none.


class HopWeights(NamedTuple):
    """Weights of one hop; None is the identity."""

    phi: jax.Array | None
    psi: jax.Array | None
    aggregate: dict[str, jax.Array]
    bias: jax.Array | None = None
    alpha: jax.Array | None = None  # Learned scales of the gates, [1].
    beta: jax.Array | None = None


class Products(NamedTuple):
    """Products of features with the weights of the first hop, each [S, H]."""

    own: jax.Array  # X W_phi
    read: Any  # X W_psi
    neighbours: Any = None  # F(A) X W_psi [R, H] where known: `read` is not needed.


def first_products(
    kernel: Kernel, weights: HopWeights, x: SparseMatrix, num_features: int
) -> Products:
    """Return X [W_phi | W_psi] with one pass over the sparse features."""
    both = [
        feature_rows(names, w, num_features)
        for names, w in ((kernel.phi, weights.phi), (kernel.psi, weights.psi))
    ]
    product = matmul(x, jnp.concatenate(both, axis=1))
    return Products(*jnp.split(product, 2, axis=1))


def propagate(
    kernel: Kernel,
    weights: HopWeights,
    hop: HopGraph,
    signals: Signals,
    draws: jax.Array | None = None,
    neighbours: Any = None,
    products: Products | None = None,
    labels: jax.Array | None = None,
) -> jax.Array:
    """Compute one hop before the nonlinearity: alpha Phi W_phi + beta F(A) Psi W_psi.

    Args:
      kernel: The kernel; static under jit.
      weights: Weights of this hop.
      hop: The edges from S senders to the first R nodes, with degrees of the whole
        graph.
      signals: Arrays on the S nodes; padding rows may hold any finite value.
      draws: Random bits [E] for aggregators that read neighbours in random order.
      neighbours: F(A) Psi [R, *] where it is known already; edges are not read then.
      products: Products of sparse features with the weights, where known already.
      labels: F(A) Y [R, C] of a kernel whose Psi has the label summary, where it is
        known already; `signals.y` is not read from neighbours then.

    Returns:
      [R, H], or [R, 2H] for a kernel that concatenates. Rows of real nodes do not
      depend on the padding.
    """
    graph, num_receivers = hop.graph, hop.num_receivers
    # In the whole graph, not in this one.
    degree = graph.nodes["degree"][:num_receivers]
    alpha = kernel.alpha(degree, weights.alpha)
    beta = kernel.beta(degree, weights.beta)
    parts = []
    if kernel.psi:
        names, psi = kernel.psi, weights.psi
        of_labels: Any = None
        if labels is not None:
            names, psi, rows = _without_labels(names, psi, labels.shape[1])
            of_labels = matmul(labels, rows)
        read = _read(signals, names)
        num_edges = graph.senders.shape[0]
        early = bool(names) and neighbours is None and kernel.aggregate.linear
        early = early and _multiply_first(read, psi, num_receivers, num_edges)
        if kernel.shared_weights and kernel.phi != kernel.psi:
            early = False  # One product for both parts comes after the sum.
        if kernel.aggregate.of_products:
            early = True
        if products is not None and products.neighbours is not None:
            read, neighbours, early = (products.own,), products.neighbours, True
        elif early:
            senders = graph.nodes["degree"].shape[0]
            known = None if products is None else products.read
            read = (_product(read, psi, known)[:senders],)
        if neighbours is None and names:
            # Concatenated after aggregation, when only the receivers are left.
            linear = kernel.aggregate.linear
            apart = read if linear or early else (_side_by_side(read),)
            neighbours = _side_by_side(
                tuple(kernel.aggregate(hop, r, weights.aggregate, draws) for r in apart)
            )
        if kernel.shared_weights:
            # One product for both parts, as the weights are one.
            same = read if kernel.phi == kernel.psi else _read(signals, kernel.phi)
            both = _gate(alpha, _side_by_side(same)[:num_receivers])
            both += _gate(beta, neighbours)
            return _biased(both if early else matmul(both, weights.psi), weights.bias)
        if not early and names:
            neighbours = matmul(neighbours, psi)
        if of_labels is not None:
            neighbours = of_labels + neighbours if names else of_labels
        parts.append(_gate(beta, neighbours))  # [R, H]
    if kernel.phi:
        read = tuple(
            r if isinstance(r, SparseMatrix) else r[:num_receivers]
            for r in _read(signals, kernel.phi)
        )
        known = None if products is None else products.own[:num_receivers]
        own = _product(read, weights.phi, known)[:num_receivers]
        parts.insert(0, _gate(alpha, own))  # [R, H]
    return _biased(
        jnp.concatenate(parts, axis=1) if kernel.concat else sum(parts[1:], parts[0]),
        weights.bias,
    )


def _read(signals: Signals, names: tuple[Signal, ...]) -> tuple[Matrix, ...]:
    """Return the named signals, each [S, *]."""
    return tuple(getattr(signals, name) for name in names)


def _without_labels(
    names: tuple[Signal, ...], weights: Any, width: int
) -> tuple[tuple[Signal, ...], jax.Array, jax.Array]:
    """Return the other signals, their rows of the weights, and those of the labels."""
    if names[0] == "y":
        return names[1:], weights[width:], weights[:width]
    return names[:-1], weights[:-width], weights[-width:]


def _side_by_side(read: tuple[Matrix, ...]) -> Matrix:
    return read[0] if len(read) == 1 else jnp.concatenate(read, axis=1)


def feature_rows(
    names: tuple[Signal, ...], weights: Any, num_features: int
) -> jax.Array:
    """Return the rows of a first hop's weights that multiply the features, [F, H]."""
    summary = weights.shape[0] - (len(names) - names.count("y")) * num_features
    widths = [summary if name == "y" else num_features for name in names]
    blocks = jnp.split(weights, list(itertools.accumulate(widths))[:-1])
    parts = [b for name, b in zip(names, blocks, strict=True) if name != "y"]
    return sum(parts[1:], parts[0])


def _product(
    read: tuple[Matrix, ...], weights: Any, known: jax.Array | None = None
) -> jax.Array:
    """Return the concatenated signals times the weights, [S, H].

    Sparse signals are multiplied separately, unless their product is known.
    """
    if weights is None or not any(isinstance(r, SparseMatrix) for r in read):
        return matmul(_side_by_side(read), weights)
    dense = [0 if isinstance(r, SparseMatrix) else r.shape[1] for r in read]
    # Only features are sparse, and at a first hop both h_0 and h are the features.
    rest = (weights.shape[0] - sum(dense)) // dense.count(0)
    stops = list(itertools.accumulate(width or rest for width in dense))
    blocks = jnp.split(weights, stops[:-1])
    pairs = list(zip(read, blocks, strict=True))
    if known is not None:
        pairs = [(r, b) for r, b in pairs if not isinstance(r, SparseMatrix)]
    products = [matmul(r, block) for r, block in pairs]
    products = products if known is None else [known, *products]
    return sum(products[1:], products[0])


def _multiply_first(
    read: tuple[Matrix, ...],
    weights: jax.Array | None,
    num_receivers: int,
    num_edges: int,
) -> bool:
    """Return whether F(A) (x W) costs less than (F(A) x) W, which is equal."""
    if weights is None:
        return False
    if any(isinstance(r, SparseMatrix) for r in read):
        return True
    num_senders, (width, hidden) = read[0].shape[0], weights.shape
    first = num_senders * width * hidden + _SPARSE_COST * num_edges * hidden
    after = num_receivers * width * hidden + _SPARSE_COST * num_edges * width
    return first < after


def _gate(gate: jax.Array | float, x: jax.Array) -> jax.Array:
    if isinstance(gate, float):
        return x if gate == 1 else gate * x
    return (gate[:, None] * x).astype(x.dtype)


def _biased(x: jax.Array, bias: jax.Array | None) -> jax.Array:
    return x if bias is None else x + bias[None, :]

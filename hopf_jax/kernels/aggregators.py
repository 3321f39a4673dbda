"""Aggregators F(A): what a node computes from its neighbours.

An aggregator is a pure function on a `GraphsTuple` of S nodes, of which the first R
receive. `receivers` are sorted, and padding edges have receiver R or more.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from hopf_jax.batching import HopGraph, matmul, spmm
from hopf_jax.kernels.lstm import last_outputs

Weights = dict[str, jax.Array]
Shapes = dict[str, tuple[int, int]]


def _no_weights(width: int, hidden: int) -> Shapes:
    return {}


def _pool(width: int, hidden: int) -> Shapes:
    return {"pool": (width, hidden)}


def _gates(width: int, hidden: int) -> Shapes:
    return {"input": (width, 4 * hidden), "recurrent": (hidden, 4 * hidden)}


@dataclasses.dataclass(frozen=True)
class Aggregate:
    """An aggregator F(A).

    Attributes:
      name: How it is saved and printed.
      apply: (graph, x [S, *], num_receivers, weights, draws) -> [R, *]. `draws` are
        random bits [E] while training an ordered aggregator, and None otherwise.
      shapes: (width of x, hidden width) -> shapes of its own weights, if any.
      linear: The result is linear in x and of the same width, so weights may be
        applied on either side of it.
      ordered: The result depends on the order of a node's neighbours.
      sparse: Not linear, but x may be sparse features: `matmul` reads it first.
      csr: `apply` takes a keyword `rows`, the edges of the graph in CSR form, for
        `spmm`.
    """

    name: str
    apply: Callable[..., jax.Array]
    shapes: Callable[[int, int], Shapes] = _no_weights
    linear: bool = True
    ordered: bool = False
    sparse: bool = False
    csr: bool = False

    def __post_init__(self) -> None:
        """Raise `ValueError` for an aggregator that cannot be called or saved."""
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"name is {self.name!r}; give the aggregate a name.")
        for field in ("apply", "shapes"):
            if not callable(getattr(self, field)):
                raise ValueError(
                    f"{field} of {self.name!r} is {getattr(self, field)!r}; it must "
                    "be a function."
                )

    def width(self, width: int, hidden: int) -> int:
        """Return the number of columns of the result for an x of `width` columns."""
        return width if self.linear else hidden

    def __call__(
        self, hop: HopGraph, x: Any, weights: Weights, draws: jax.Array | None = None
    ) -> jax.Array:
        """Return F(A) x [R, *] over the edges of a hop."""
        rows = {"rows": hop.rows} if self.csr else {}
        return self.apply(hop.graph, x, hop.num_receivers, weights, draws, **rows)


def _sum(graph, x, num_receivers, weights, draws, rows):
    """A x."""
    return spmm(rows, graph.edges["weight"], x)


def _mean(graph, x, num_receivers, weights, draws, rows):
    """D^-1 A x."""
    degree = graph.nodes["degree"][:num_receivers, None]
    total = _sum(graph, x, num_receivers, weights, draws, rows)
    return total / jnp.where(degree > 0, degree, 1)  # Isolated nodes: 0, not 0/0.


def _symmetric(graph, x, num_receivers, weights, draws, rows):
    """(D + I)^-1/2 A (D + I)^-1/2 x."""
    scale = jax.lax.rsqrt(graph.nodes["degree"] + 1)[:, None]
    scaled = (scale * x).astype(x.dtype)
    total = _sum(graph, scaled, num_receivers, weights, draws, rows)
    return scale[:num_receivers] * total


def _max(graph, x, num_receivers, weights, draws):
    """max over the neighbours j of relu(x_j W); edge weights are ignored."""
    pooled = jax.nn.relu(matmul(x, weights["pool"]))  # [S, H]
    messages = jnp.take(pooled, graph.senders, axis=0, mode="clip")  # [E, H]
    largest = jax.ops.segment_max(
        messages, graph.receivers, num_receivers, indices_are_sorted=True
    )
    return jnp.maximum(largest, 0)  # Isolated nodes: 0, not -inf.


def _lstm(graph, x, num_receivers, weights, draws, rows, *, max_neighbors):
    """Last output of an LSTM over a node's neighbours, in random order.

    Neighbours beyond the first `max_neighbors` are left out; training draws a new order
    in every step.
    """
    entries = jnp.arange(graph.senders.shape[0])
    if draws is not None:
        entries = jax.lax.sort((graph.receivers, draws, entries), num_keys=2)[2]
    inputs = matmul(x, weights["input"])  # [S, 4H]
    recurrent = weights["recurrent"]
    if not entries.size:
        return jnp.zeros((num_receivers, recurrent.shape[0]), inputs.dtype)
    return last_outputs(max_neighbors, rows, entries, inputs, recurrent)


def lstm(max_neighbors: int = 32) -> Aggregate:
    """Return GraphSAGE's LSTM over at most `max_neighbors` neighbours."""
    return Aggregate(
        f"lstm-{max_neighbors}",
        functools.partial(_lstm, max_neighbors=max_neighbors),
        _gates,
        linear=False,
        ordered=True,
        sparse=True,
        csr=True,
    )


total = Aggregate("sum", _sum, csr=True)
mean = Aggregate("mean", _mean, csr=True)
symmetric = Aggregate("symmetric", _symmetric, csr=True)
pooled_max = Aggregate("max", _max, _pool, linear=False, sparse=True)
random_lstm = lstm()

AGGREGATES = {a.name: a for a in (total, mean, symmetric, pooled_max, random_lstm)}

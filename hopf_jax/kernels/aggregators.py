"""Aggregators F(A): what a node computes from its neighbours.

An aggregator is a pure function on a `GraphsTuple` of S nodes, of which the first R
receive. `receivers` are sorted, and padding edges have receiver R or more.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hopf_jax.batching import HopGraph, matmul, spmm
from hopf_jax.kernels.lstm import last_outputs

_MOST_HEADS = 8
_LEAST_DEGREE = 1e-30
_SLOPE = 0.2  # Of the leaky ReLU of attention, below 0.

Weights = dict[str, jax.Array]
Shapes = dict[str, tuple[int, int]]


def _no_weights(width: int, hidden: int) -> Shapes:
    return {}


def _pool(width: int, hidden: int) -> Shapes:
    return {"pool": (width, hidden)}


def _gates(width: int, hidden: int) -> Shapes:
    return {"input": (width, 4 * hidden), "recurrent": (hidden, 4 * hidden)}


def _heads(width: int, hidden: int) -> Shapes:
    """Return the shapes of two vectors per head; heads divide the hidden width."""
    heads = math.gcd(_MOST_HEADS, hidden)
    return {"sender": (heads, hidden // heads), "receiver": (heads, hidden // heads)}


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
      of_products: Not linear, but x is Psi W_psi already, of the hidden width, and so
        is the result (attention).
      share: (degree of the receiver, degree of the sender) -> how much of x of a sender
        reaches a receiver over an edge of weight 1; None if unknown. It depends on the
        sender's degree where `apply` reads that. If `linear`, `apply` is the sum of
        weight * share * x over the edges, otherwise it changes by so much at most.
      loops: With `share`: every node also reads itself, over an edge of weight 1.
    """

    name: str
    apply: Callable[..., jax.Array]
    shapes: Callable[[int, int], Shapes] = _no_weights
    linear: bool = True
    ordered: bool = False
    sparse: bool = False
    csr: bool = False
    of_products: bool = False
    share: Callable[[Any, Any], Any] | None = None
    loops: bool = False

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
        if self.of_products and self.linear:
            raise ValueError(
                f"{self.name!r} is linear, so weights may come before or after it: "
                "set linear=False or of_products=False."
            )

    def width(self, width: int, hidden: int) -> int:
        """Return the number of columns of the result for an x of `width` columns."""
        return width if self.linear or self.of_products else hidden

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


def _share_of_sum(receiver, sender):
    return 1.0


def _share_of_mean(receiver, sender):
    return 1 / np.maximum(receiver, _LEAST_DEGREE)


def _share_of_symmetric(receiver, sender):
    return 1 / np.sqrt((receiver + 1) * (sender + 1))


def _symmetric_loops(graph, x, num_receivers, weights, draws, rows):
    """(D + I)^-1/2 (A + I) (D + I)^-1/2 x."""
    read = _symmetric(graph, x, num_receivers, weights, draws, rows)
    degree = graph.nodes["degree"][:num_receivers, None]
    return read + (x[:num_receivers] / (degree + 1)).astype(x.dtype)


def _attention(graph, x, num_receivers, weights, draws, rows):
    """Mean of x over a node's neighbours and itself, by weights that depend on x.

    Head by head, w_vu is the softmax over u of leaky(x_u a + x_v b), with a and b the
    weights "sender" and "receiver"; each head reads columns of its own. Edge weights
    are ignored.
    """
    heads, width = weights["sender"].shape
    parts = x.reshape(-1, heads, width).astype(jnp.float32)  # [S, heads, H / heads]
    sent, received = (
        jnp.sum(parts * weights[name][None].astype(jnp.float32), axis=2)  # [S, heads]
        for name in ("sender", "receiver")
    )
    received = received[:num_receivers]
    real = (graph.receivers < num_receivers)[:, None]
    to = jnp.minimum(graph.receivers, num_receivers - 1)
    score = jax.nn.leaky_relu(
        jnp.take(sent, graph.senders, axis=0, mode="clip") + received[to], _SLOPE
    )  # [E, heads]
    own = jax.nn.leaky_relu(sent[:num_receivers] + received, _SLOPE)  # [R, heads]
    largest = jax.ops.segment_max(
        score, graph.receivers, num_receivers, indices_are_sorted=True
    )
    top = jax.lax.stop_gradient(jnp.maximum(largest, own))
    # Padding edges: a finite number before exp, or the gradient would be inf * 0.
    score = jnp.where(real, score - top[to], 0)
    share = jnp.where(real, jnp.exp(score), 0)
    share_of_own = jnp.exp(own - top)
    whole = share_of_own + jax.ops.segment_sum(
        share, graph.receivers, num_receivers, indices_are_sorted=True
    )
    read = [spmm(rows, share[:, i], parts[:, i]) for i in range(heads)]
    total = jnp.stack(read, axis=1)  # [R, heads, H / heads]
    total = total + share_of_own[:, :, None] * parts[:num_receivers]
    mixed = total / whole[:, :, None]
    return mixed.reshape(num_receivers, heads * width).astype(x.dtype)


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


total = Aggregate("sum", _sum, csr=True, share=_share_of_sum)
mean = Aggregate("mean", _mean, csr=True, share=_share_of_mean)
symmetric = Aggregate("symmetric", _symmetric, csr=True, share=_share_of_symmetric)
symmetric_loops = Aggregate(
    "symmetric-loops",
    _symmetric_loops,
    csr=True,
    share=_share_of_symmetric,
    loops=True,
)
attention = Aggregate(
    "attention", _attention, _heads, linear=False, csr=True, of_products=True
)
pooled_max = Aggregate("max", _max, _pool, linear=False, sparse=True)
random_lstm = lstm()

_KNOWN = (
    total, mean, symmetric, symmetric_loops, attention, pooled_max, random_lstm,
)  # fmt: skip
AGGREGATES = {a.name: a for a in _KNOWN}

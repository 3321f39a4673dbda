"""F(A): what a node makes of its neighbours, as pure functions on a GraphsTuple.

The graph of one hop has S nodes; the first R of them receive. `receivers` are sorted,
padding edges have receiver R or more, and `globals` holds the CSR rows of the hop.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jraph

from hopf_jax.recurrent import last_outputs, num_steps
from hopf_jax.sparse import matmul, spmm

Weights = dict[str, jax.Array]
Shapes = dict[str, tuple[int, int]]


def _no_weights(width: int, hidden: int) -> Shapes:
    del width, hidden
    return {}


@dataclasses.dataclass(frozen=True)
class Aggregate:
    """One F(A).

    Attributes:
      name: how it is saved and printed.
      apply: (graph, x [S, *], num_receivers, weights, draws) -> [R, *]. The draws are
        random bits [E] while training an ordered aggregate, and None otherwise.
      shapes: (width of x, hidden width) -> shapes of its own weights, if any.
      linear: the result is linear in x and of the same width, so weights may be
        applied on either side of it.
      ordered: the result depends on the order of a node's neighbours.
      sparse: not linear, but x may be sparse features: it goes through `matmul` first.
    """

    name: str
    apply: Callable[[jraph.GraphsTuple, jax.Array, int, Weights, Any], jax.Array]
    shapes: Callable[[int, int], Shapes] = _no_weights
    linear: bool = True
    ordered: bool = False
    sparse: bool = False

    def __post_init__(self) -> None:
        """An aggregate that cannot be called or saved fails here."""
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"name is {self.name!r}; give the aggregate a name.")
        for field in ("apply", "shapes"):
            if not callable(getattr(self, field)):
                raise ValueError(
                    f"{field} of {self.name!r} is {getattr(self, field)!r}; it must "
                    "be a function."
                )

    def width(self, width: int, hidden: int) -> int:
        """Columns of the result for an x of `width` columns."""
        return width if self.linear else hidden


def _sum(graph, x, num_receivers, weights, draws):
    """A x."""
    del num_receivers, weights, draws
    return spmm(graph.globals, graph.edges["weight"], x)


def _mean(graph, x, num_receivers, weights, draws):
    """D^-1 A x."""
    degree = graph.nodes["degree"][:num_receivers, None]
    total = _sum(graph, x, num_receivers, weights, draws)
    return total / jnp.where(degree > 0, degree, 1)  # Isolated nodes: 0, not 0/0.


def _symmetric(graph, x, num_receivers, weights, draws):
    """(D + I)^-1/2 A (D + I)^-1/2 x."""
    scale = jax.lax.rsqrt(graph.nodes["degree"] + 1)[:, None]
    scaled = (scale * x).astype(x.dtype)
    total = _sum(graph, scaled, num_receivers, weights, draws)
    return scale[:num_receivers] * total


def _max(graph, x, num_receivers, weights, draws):
    """max over the neighbours j of relu(x_j W); weights of edges play no part."""
    del draws
    pooled = jax.nn.relu(matmul(x, weights["pool"]))  # [S, H]
    messages = jnp.take(pooled, graph.senders, axis=0, mode="clip")  # [E, H]
    largest = jax.ops.segment_max(
        messages, graph.receivers, num_receivers, indices_are_sorted=True
    )
    return jnp.maximum(largest, 0)  # Isolated nodes: 0, not -inf.


def _lstm(graph, x, num_receivers, weights, draws, *, max_neighbors):
    """Last output of an LSTM over a node's neighbours, in random order.

    Beyond `max_neighbors` the rest of the order is left out; while training it is a
    new order every time.
    """
    entries = jnp.arange(graph.senders.shape[0])
    if draws is not None:
        entries = jax.lax.sort((graph.receivers, draws, entries), num_keys=2)[2]
    inputs = matmul(x, weights["input"])  # [S, 4H]
    recurrent = weights["recurrent"]
    if not entries.size:
        return jnp.zeros((num_receivers, recurrent.shape[0]), inputs.dtype)
    return last_outputs(max_neighbors, graph.globals, entries, inputs, recurrent)


def lstm_slots(num_receivers: int, num_edges: int, max_neighbors: int = 32) -> int:
    """Inputs [4H] that one pass of the LSTM holds: its memory bound, in rows."""
    steps, size = num_steps(num_receivers, num_edges, max_neighbors)
    return steps * size


def lstm(max_neighbors: int = 32) -> Aggregate:
    """GraphSAGE's LSTM over at most `max_neighbors` neighbours in random order."""

    def apply(graph, x, num_receivers, weights, draws):
        return _lstm(
            graph, x, num_receivers, weights, draws, max_neighbors=max_neighbors
        )

    def shapes(width: int, hidden: int) -> Shapes:
        return {"input": (width, 4 * hidden), "recurrent": (hidden, 4 * hidden)}

    return Aggregate(
        f"lstm-{max_neighbors}", apply, shapes, linear=False, ordered=True, sparse=True
    )


def _pool(width: int, hidden: int) -> Shapes:
    return {"pool": (width, hidden)}


total = Aggregate("sum", _sum)
mean = Aggregate("mean", _mean)
symmetric = Aggregate("symmetric", _symmetric)
pooled_max = Aggregate("max", _max, _pool, linear=False, sparse=True)
random_lstm = lstm()

AGGREGATES = {a.name: a for a in (total, mean, symmetric, pooled_max, random_lstm)}

"""All iterations on a graph as one traceable function, for export."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jraph

from hopf_jax.batching import HopGraph, Rows
from hopf_jax.config import Config
from hopf_jax.inference.summaries import reads_apart
from hopf_jax.kernels import Net, Signals, run_hops


class EdgeList(NamedTuple):
    """The edges of a graph as a program takes them.

    Attributes:
      senders, receivers: [E] ids; a receiver of N or more is padding.
      weights: [E].
    """

    senders: jax.Array
    receivers: jax.Array
    weights: jax.Array


def whole_program(
    net: Net, weights: Sequence[dict], config: Config, multilabel: bool
) -> Callable[..., jax.Array]:
    """Return a function from a graph to the output [N, C] of the last iteration.

    It takes features [N, F] as the net reads them, an `EdgeList`, the mask [N] of
    training nodes and their labels [N, C]; it computes what `replay` does, in JAX.

    Args:
      net: The net, without dropout.
      weights: The weights of each iteration.
      config: Settings.
      multilabel: Several labels per node.
    """
    act = jax.nn.sigmoid if multilabel else jax.nn.softmax
    count = config.num_members
    views = count if reads_apart(config) else 1

    def predict(params: Any, hop: HopGraph, x: Any, y: Any) -> tuple[Any, Any]:
        steps = _Steps(net, params, hop, x, y)
        h = run_hops(net.kernel, net.num_layers, steps)
        return act(steps.call("readout", h)), h.astype(jnp.float32)

    def program(x: Any, edges: EdgeList, train: Any, labels: Any) -> jax.Array:
        hop = _hop_graph(edges, x.shape[0])
        known = train[:, None]
        summary = None  # [views, N, *]
        if net.kernel.iterative:
            summary = jnp.zeros((views, x.shape[0], net.sizes.summary))
        out: Any = None
        for t, params in enumerate(weights, start=1):
            read = summary
            if summary is not None:
                read = _as_read(net, config, t, summary, train, multilabel)
            if count == 1:
                y = None if read is None else read[0]
                said, hidden = (each[None] for each in predict(params, hop, x, y))
            else:
                axis = 0 if views > 1 else None
                y = None if read is None else read if views > 1 else read[0]
                mapped = jax.vmap(
                    lambda p, own: predict(p, hop, x, own), in_axes=(0, axis)
                )
                said, hidden = mapped(params, y)
            out = said.mean(axis=0)
            if summary is None:
                continue
            new = hidden if config.summary == "hidden" else said
            new = new if views > 1 else new.mean(axis=0, keepdims=True)
            share = (t - 1) / config.num_iterations if config.average_labels else 0.0
            summary = (1 - share) * new + share * summary
            if config.summary == "labels":
                mixed = summary[-1]
                out = jnp.where(known, out, mixed)
                summary = jnp.where(known[None], labels[None], summary)
        return out

    return program


class _Steps:
    """The steps of `run_hops` on a whole graph within one program."""

    def __init__(self, net: Net, params: Any, graph: HopGraph, x: Any, y: Any) -> None:
        self.net, self.params, self.graph, self.x, self.y = net, params, graph, x, y

    def call(self, method: str, *arguments: Any) -> Any:
        return self.net.apply({"params": self.params}, *arguments, method=method)

    def features(self) -> Any:
        return self.x

    def embed(self, away: int) -> Any:
        return self.call("embed", self.x)

    def hop(self, k: int, away: int, h0: Any, h: Any) -> Any:
        return self.call("hop", k, self.graph, Signals(h0, h, self.y))

    def join(self, hops: list[Any]) -> Any:
        return jnp.concatenate(hops, axis=1)


def _as_read(
    net: Net, config: Config, t: int, summary: Any, train: Any, multilabel: bool
) -> Any:
    """Return label summaries as iteration t (from 1) reads them; as `as_read`."""
    scale = jnp.float32(net.sizes.summary_scale)
    if config.caution == "none" or t == 1:
        return scale * summary
    count = summary.shape[2]
    if multilabel or count == 1:
        confidence = jnp.abs(2 * summary - 1).mean(axis=2)
    else:
        confidence = (summary.max(axis=2) - 1 / count) / (1 - 1 / count)
    if config.caution == "share":
        # Training nodes first, then the others by confidence, equals in order of id.
        order = jnp.argsort(jnp.where(train, -jnp.inf, -confidence), axis=1)
        rank = jnp.argsort(order, axis=1)
        share = (t - 1) / (config.num_iterations - 1)
        committed = train.sum() + jnp.round(share * (~train).sum()).astype(int)
        confidence = jnp.where(rank < committed, 1.0, 0.0)
    confidence = jnp.where(train, 1.0, confidence)
    return summary * (scale * confidence)[:, :, None]


def _hop_graph(edges: EdgeList, num_nodes: Any) -> HopGraph:
    """Return the edges of all nodes, sorted by receiver."""
    receivers, senders, weights = jax.lax.sort(
        (edges.receivers, edges.senders, edges.weights), num_keys=1
    )
    weights = jnp.where(receivers < num_nodes, weights, 0)
    counts = jax.ops.segment_sum(
        jnp.ones_like(receivers), receivers, num_nodes, indices_are_sorted=True
    )
    degree = jax.ops.segment_sum(weights, receivers, num_nodes, indices_are_sorted=True)
    indptr = jnp.concatenate([jnp.zeros(1, counts.dtype), jnp.cumsum(counts)])
    graph = jraph.GraphsTuple(
        nodes={"degree": degree},
        edges={"weight": weights},
        senders=senders,
        receivers=receivers,
        n_node=None,
        n_edge=None,
        globals=None,
    )
    return HopGraph(graph, Rows(indptr.astype(jnp.int32), senders), num_nodes)

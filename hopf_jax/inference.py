"""Predictions for all nodes, hop by hop over the whole graph: linear in its edges."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse as sp

from hopf_jax.batching import (
    Batch,
    Layout,
    Neighborhoods,
    fill,
    node_features,
    num_values,
    pad,
    round_up,
)
from hopf_jax.graph import Graph
from hopf_jax.nets import Net
from hopf_jax.propagation import Signals
from hopf_jax.sparse import to_dense

_NODES_A_CHUNK = 1 << 17


class Chunk(NamedTuple):
    """Some consecutive nodes and the nodes they read from, their own first."""

    start: int
    stop: int
    nodes: np.ndarray
    batch: Batch

    @property
    def size(self) -> int:
        """Padded number of nodes, S."""
        return self.batch.graph.nodes["id"].shape[0]


class WholeGraph:
    """A graph cut into chunks, each with its one-hop neighbourhood.

    What is held at once is one chunk and a few arrays [all nodes, H]. A graph that is
    one chunk is prepared once.
    """

    def __init__(self, graph: Graph, chunk_edges: int):
        self.graph = graph
        self.bounds = cut(graph.indptr, chunk_edges)
        self._hoods = Neighborhoods(graph, 1)
        self._kept: dict[Any, Any] = {}

    @property
    def single(self) -> bool:
        """One chunk holds all: no padding, and its nodes are all nodes in order."""
        return len(self.bounds) == 2

    def chunks(self) -> Iterator[Chunk]:
        """The chunks in order of their nodes."""
        for i, (start, stop) in enumerate(
            zip(self.bounds[:-1], self.bounds[1:], strict=True)
        ):
            yield self._keep(("chunk", i), lambda a=start, b=stop: self._chunk(a, b))

    def features(self, chunk: Chunk, *, senders: bool) -> Any:
        """Features of a chunk's own nodes, or of all it reads from."""
        return self._keep(
            ("features", chunk.start, senders),
            lambda: self._features(chunk, chunk.nodes if senders else None),
        )

    def _keep(self, name: Any, make: Any) -> Any:
        if not self.single:
            return make()
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def _chunk(self, start: int, stop: int) -> Chunk:
        subgraph = self._hoods.subgraph(np.arange(start, stop))
        layout = Layout.over(np.array([(*subgraph.size, 0)]), 1)
        if self.single:
            layout = Layout(subgraph.node_counts, subgraph.edge_counts)
        batch = pad(self.graph, subgraph, layout, features="resident", transposed=False)
        return Chunk(int(start), int(stop), subgraph.nodes, jax.device_put(batch))

    def _features(self, chunk: Chunk, nodes: np.ndarray | None) -> Any:
        count = chunk.size
        if nodes is None:
            nodes = chunk.nodes[: chunk.stop - chunk.start]
            count = chunk.batch.labels.shape[0]
        how = "sparse" if sp.issparse(self.graph.features) else "dense"
        values = num_values(self.graph, nodes)
        layout = Layout((count,), (), values if self.single else round_up(values))
        return jax.device_put(node_features(self.graph, nodes, layout, how, False))


def cut(indptr: np.ndarray, chunk_edges: int) -> np.ndarray:
    """Bounds of chunks of about that many edges, each of at least one node."""
    bounds, last = [0], len(indptr) - 1
    while bounds[-1] < last:
        start = bounds[-1]
        stop = np.searchsorted(indptr, indptr[start] + chunk_edges, side="right") - 1
        bounds.append(int(min(max(stop, start + 1), start + _NODES_A_CHUNK, last)))
    return np.array(bounds)


@functools.partial(jax.jit, static_argnames=("net",))
def _embed(net, params, x):
    return net.apply({"params": params}, x, method="embed")


@functools.partial(jax.jit, static_argnames=("net", "k"))
def _hop(net, k, params, batch, signals):
    graph, receivers = batch.hop_graph(0)
    return net.apply({"params": params}, k, graph, signals, receivers, method="hop")


@functools.partial(jax.jit, static_argnames=("net",))
def _readout(net, params, h):
    return net.apply({"params": params}, h, method="readout")


def predict_logits(
    net: Net, params: dict, whole: WholeGraph, summary: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Logits [all nodes, C] and h_K [all nodes, *].

    Args:
      net: the row and its widths.
      params: its weights.
      whole: the graph in chunks.
      summary: label summaries [all nodes, C], or None where the row reads none.
    """

    def embed(chunk: Chunk, senders: bool) -> Any:
        return _embed(net, params, whole.features(chunk, senders=senders))

    def signals(chunk: Chunk, h0: Any, h: Any) -> Signals:
        if h0 is None:  # The row reads the features themselves.
            raw = embed(chunk, senders=True)
            here = raw if h is None else _rows_of(chunk, h, whole.single)
            return Signals(raw, here, _rows_of(chunk, summary, whole.single))
        return Signals(
            *(_rows_of(chunk, signal, whole.single) for signal in (h0, h, summary))
        )

    layers = net.row.num_layers(net.sizes.num_hops)
    h0: Any = None
    if net.row.learned_input or not layers:
        h0 = _collect(
            # Without a hop, h_0 = X may still be sparse here.
            (c, to_dense(embed(c, senders=False), net.sizes.features))
            for c in whole.chunks()
        )
    h = h0
    for k in range(1, layers + 1):
        h = _collect(
            (c, _hop(net, k, params, c.batch, signals(c, h0, h)))
            for c in whole.chunks()
        )
    bounds = zip(whole.bounds[:-1], whole.bounds[1:], strict=True)
    logits = []
    for a, b in bounds:
        rows = h[a:b] if whole.single else fill(h[a:b], round_up(int(b - a)), 0)
        logits.append(jax.device_get(_readout(net, params, rows))[: b - a])
    return np.concatenate(logits), h


def _rows_of(chunk: Chunk, array: np.ndarray | None, single: bool) -> Any:
    """Rows of an array on all nodes for the nodes of a chunk, padded with zeros."""
    if array is None or single:
        return array
    out = np.zeros((chunk.size, array.shape[1]), np.float32)
    out[: len(chunk.nodes)] = array[chunk.nodes]
    return out


def _collect(parts: Iterator[tuple[Chunk, jax.Array]]) -> np.ndarray:
    """Results of chunks [R, *], real rows only, as one array [all nodes, *]."""
    return np.concatenate(
        [jax.device_get(part)[: c.stop - c.start] for c, part in parts]
    )

"""Predictions for all nodes, hop by hop over the whole graph: linear in its edges."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from hopf_jax import processes
from hopf_jax.batching import (
    Batch,
    Layout,
    Neighborhoods,
    fill,
    fill_rows,
    new_nodes,
    node_features,
    num_values,
    pad,
    ranges,
    round_up,
)
from hopf_jax.graph import Graph
from hopf_jax.nets import Net
from hopf_jax.propagation import Signals
from hopf_jax.sparse import SparseMatrix, to_dense

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

    Args:
      graph: the graph.
      chunk_edges: edges of a chunk, about.
      own: nodes to predict, where others predict the rest; None for all. What they
        read from, their halo, is then computed here as well, and nothing is asked of
        anyone.
      halo: hops from the own nodes to the farthest they read from.
    """

    def __init__(
        self,
        graph: Graph,
        chunk_edges: int,
        own: np.ndarray | None = None,
        halo: int = 0,
    ):
        self.graph, self.shared = graph, own is not None
        self._hoods = Neighborhoods(graph, 1)
        self._kept: dict[Any, Any] = {}
        if own is None:
            self.counts: tuple[int, ...] = (graph.num_nodes,)
            self.bounds = cut(graph.indptr, chunk_edges)
            return
        # By hop, the own first: what a hop computes is a prefix.
        self._nodes, self.counts, self._place = rings(graph, own, halo)
        lengths = graph.indptr[self._nodes + 1] - graph.indptr[self._nodes]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        starts = (0, *self.counts[:-1])
        bounds = [
            start + cut(ends[start : stop + 1], chunk_edges)[1:]
            for start, stop in zip(starts, self.counts, strict=True)
        ]
        self.bounds = np.concatenate([[0], *bounds])

    @property
    def single(self) -> bool:
        """One chunk holds all: no padding, and its nodes are all nodes in order."""
        return len(self.bounds) == 2 and not self.shared

    def count(self, away: int = 0) -> int:
        """Nodes within `away` hops of the own."""
        return self.counts[min(away, len(self.counts) - 1)]

    def spans(self, away: int = 0) -> Iterator[tuple[int, int]]:
        """Places of the chunks of the nodes within `away` hops of the own."""
        last = self.count(away)
        for start, stop in zip(self.bounds[:-1], self.bounds[1:], strict=True):
            if stop <= last:
                yield int(start), int(stop)

    def place(self, nodes: np.ndarray) -> np.ndarray:
        """Where results of these nodes stand; anywhere for nodes beyond the halo."""
        return self._place[nodes] if self.shared else nodes

    def chunks(self, away: int = 0) -> Iterator[Chunk]:
        """The chunks of the nodes within `away` hops of the own, in order."""
        for i, (start, stop) in enumerate(self.spans(away)):
            yield self._keep(("chunk", i), lambda a=start, b=stop: self._chunk(a, b))

    def rows(self, chunk: Chunk, array: np.ndarray, *, placed: bool = False) -> Any:
        """Rows of an array [all nodes, *] for a chunk's nodes, padded with zeros.

        Results of `collect` are `placed`: they stand by hop, not by the nodes' ids.
        """
        if self.single:  # All of them, in order.
            return array
        nodes = self.place(chunk.nodes) if placed else chunk.nodes
        return fill_rows(array, nodes, chunk.size)

    def all_features(self) -> jax.Array:
        """Dense features of all nodes, on the device."""
        features = self.graph.features
        return self._keep(
            "features", lambda: jax.device_put(np.asarray(features, np.float32))
        )

    def features(self, chunk: Chunk, *, senders: bool) -> Any:
        """Features of a chunk's own nodes, or of all it reads from."""
        if not self.single:
            return self._features(chunk, chunk.nodes if senders else None)
        if not sp.issparse(self.graph.features):
            return self.all_features()
        return self._keep("features", lambda: self._features(chunk, None))

    def _keep(self, name: Any, make: Any) -> Any:
        if not self.single:
            return make()
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def _chunk(self, start: int, stop: int) -> Chunk:
        nodes = self._nodes[start:stop] if self.shared else np.arange(start, stop)
        subgraph = self._hoods.subgraph(nodes)
        layout = Layout.over(np.array([(*subgraph.size, 0)]), 1)
        if self.single:
            layout = Layout(subgraph.node_counts, subgraph.edge_counts)
        batch = pad(self.graph, subgraph, layout, features="resident", transposed=False)
        return Chunk(start, stop, subgraph.nodes, jax.device_put(batch))

    def _features(self, chunk: Chunk, nodes: np.ndarray | None) -> Any:
        count = chunk.size
        if nodes is None:
            nodes = chunk.nodes[: chunk.stop - chunk.start]
            count = chunk.batch.labels.shape[0]
        how = "sparse" if sp.issparse(self.graph.features) else "dense"
        values = num_values(self.graph, nodes)
        layout = Layout((count,), (), values if self.single else round_up(values))
        return jax.device_put(node_features(self.graph, nodes, layout, how, False))


def rings(
    graph: Graph, own: np.ndarray, num_hops: int
) -> tuple[np.ndarray, tuple[int, ...], np.ndarray]:
    """Nodes within so many hops of some, by hop; how many within 0, 1, ...; places.

    The places [N] of nodes farther away are 0.
    """
    place = np.full(graph.num_nodes, -1, np.int32)
    place[own] = np.arange(len(own), dtype=np.int32)
    found, counts = [own], [len(own)]
    for _ in range(num_hops):
        starts = graph.indptr[found[-1]]
        senders = graph.indices[ranges(starts, graph.indptr[found[-1] + 1] - starts)]
        found.append(new_nodes(senders, place, counts[-1]))
        counts.append(counts[-1] + len(found[-1]))
    return np.concatenate(found), tuple(counts), np.maximum(place, 0)


def share(indptr: np.ndarray, index: int, count: int) -> np.ndarray:
    """The nodes that process `index` of `count` predicts: about as many edges each."""
    num_nodes = len(indptr) - 1
    if num_nodes < count:
        raise ValueError(f"{count} processes cannot share out {num_nodes} nodes.")
    steps = np.arange(count + 1)
    bounds = np.searchsorted(indptr, indptr[-1] * steps // count, side="left")
    # A node each at least, whatever the degrees.
    bounds = np.maximum.accumulate(bounds - steps) + steps
    bounds = np.minimum(bounds, num_nodes - count + steps)
    bounds[0], bounds[-1] = 0, num_nodes
    return np.arange(bounds[index], bounds[index + 1])


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


@functools.partial(jax.jit, static_argnames=("net",))
def _readable(net, params, x):
    return net.apply({"params": params}, x, method="readable")


@functools.partial(jax.jit, static_argnames=("net", "k"))
def _hop(net, k, params, batch, signals):
    graph, receivers = batch.hop_graph(0)
    return net.apply({"params": params}, k, graph, signals, receivers, method="hop")


@functools.partial(jax.jit, static_argnames=("net",))
def _readout(net, params, h):
    return net.apply({"params": params}, h, method="readout")


@functools.partial(jax.jit, static_argnames=("net", "with_hidden"))
def _pass(net, with_hidden, params, batch, x, summary):
    """`predict_logits` of a graph that is one chunk, as one program a pass."""

    def call(method, *arguments):
        # Not fused with what comes next: rounded as by programs of their own.
        out = net.apply({"params": params}, *arguments, method=method)
        return jax.lax.optimization_barrier(out)

    row, layers = net.row, net.row.num_layers(net.sizes.num_hops)
    graph, receivers = batch.hop_graph(0)
    h = call("embed", x) if row.input_layer else call("readable", x)
    h0 = h
    for k in range(1, layers + 1):
        h = call("hop", k, graph, Signals(h0, h, summary), receivers)
        if k == 1 and k < layers and row.embeds and not row.input_layer:
            h0 = call("embed", x)
    h = to_dense(h, net.sizes.features)
    return call("readout", h), h.astype(jnp.float32) if with_hidden else None


def predict_logits(
    net: Net,
    params: dict,
    whole: WholeGraph,
    summary: np.ndarray | None,
    with_hidden: bool = False,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Logits [all nodes, C] and, if asked for, h_K [all nodes, *]; of a share its own.

    Args:
      net: the row and its widths.
      params: its weights.
      whole: the graph in chunks.
      summary: label summaries [all nodes, C], or None where the row reads none.
      with_hidden: whether h_K is asked for; else it is None.
    """

    row, layers = net.row, net.row.num_layers(net.sizes.num_hops)
    # Other rows pass once, and the symmetric ones would round otherwise in one program.
    if whole.single and row.iterative:
        (chunk,) = whole.chunks()
        x = whole.features(chunk, senders=True)
        return jax.device_get(_pass(net, with_hidden, params, chunk.batch, x, summary))

    def rows(chunk: Chunk, array: np.ndarray | None) -> Any:
        """Of a chunk's nodes; None for an h_0 or h that is the features."""
        if array is None:
            x = whole.features(chunk, senders=True)
            return _readable(net, params, x) if isinstance(x, SparseMatrix) else x
        return whole.rows(chunk, array, placed=True)

    def signals(chunk: Chunk, h0: Any, h: Any) -> Signals:
        y = None if summary is None else whole.rows(chunk, summary)
        own = rows(chunk, h0)
        return Signals(own, own if h is h0 else rows(chunk, h), y)

    h0: Any = None
    if row.embeds and (layers > 1 or row.input_layer):  # Read by later hops only.
        h0 = collect(
            (
                (c, _embed(net, params, whole.features(c, senders=False)))
                for c in whole.chunks(layers)
            ),
            whole.count(layers),
        )
    elif not layers:  # The output layer reads the features.
        h0 = np.concatenate(
            [
                to_dense(whole.features(c, senders=False), net.sizes.features)[
                    : c.stop - c.start
                ]
                for c in whole.chunks()
            ]
        )
    h: Any = h0 if row.input_layer or not layers else None
    for k in range(1, layers + 1):
        # A first hop without an input layer reads the features for both; later h_0 is
        # not gathered for rows that do not read it.
        apart = h is not None and "h0" in row.phi + row.psi
        read = (h0 if apart else h, h)
        h = collect(
            (
                (c, _hop(net, k, params, c.batch, signals(c, *read)))
                for c in whole.chunks(layers - k)
            ),
            whole.count(layers - k),
        )
    logits = np.zeros((whole.counts[0], net.sizes.labels), np.float32)
    for a, b in whole.spans():
        part = h[a:b] if whole.single else fill(h[a:b], round_up(b - a), 0)
        logits[a:b] = jax.device_get(_readout(net, params, part))[: b - a]
    return logits, h if with_hidden else None


def predict_together(
    net: Net,
    params: dict,
    whole: WholeGraph,
    summary: np.ndarray | None,
    with_hidden: bool,
) -> tuple[np.ndarray, np.ndarray | None]:
    """`predict_logits` by all processes of a job, each its share, for all of them.

    This is the one exchange of an iteration; h_K takes part only `with_hidden`.
    """
    logits, hidden = predict_logits(net, params, whole, summary, with_hidden)
    if whole.shared:
        logits = np.concatenate(processes.gather_rows(logits))
        if hidden is not None:
            hidden = np.concatenate(processes.gather_rows(hidden))
    return logits, hidden


def collect(parts: Iterator[tuple[Chunk, jax.Array]], count: int) -> np.ndarray:
    """Results of chunks [R, *], real rows only, as one array [count, *].

    Filled piece by piece: of a large graph it is not to be held twice.
    """
    out = np.zeros((0, 0))
    for chunk, part in parts:
        if chunk.stop - chunk.start == count == len(part):  # All of it: no copy.
            return jax.device_get(part).astype(np.float32, copy=False)
        if not out.size:
            out = np.empty((count, part.shape[1]), np.float32)
        rows = chunk.stop - chunk.start
        out[chunk.start : chunk.stop] = jax.device_get(part)[:rows]
    return out

"""A whole graph in chunks, each with the nodes it reads from."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse as sp

from hopf_jax.batching import (
    Batch,
    Layout,
    Neighborhoods,
    fill_rows,
    new_nodes,
    node_features,
    num_values,
    pad,
    ranges,
    round_up,
)
from hopf_jax.graph import Graph
from hopf_jax.runtime import is_small

LEAST_CHUNK_EDGES = 2_000_000  # What a machine holds, whatever the graph.
_NODES_PER_CHUNK = 1 << 17
_EDGE_BYTES, _NODE_BYTES = 20, 16
_WHOLE_BYTES, _CHUNK_BYTES = 1_000_000_000, 500_000_000


def edges_per_chunk(graph: Graph, hidden_size: int, wanted: int | None) -> int:
    """Return the number of edges per chunk, if that is not what is wanted already.

    All of them where that needs little memory: then nodes read states where they are,
    and nothing is copied. A chunk holds a copy of all that its nodes read.
    """
    if wanted is not None:
        return wanted
    columns = hidden_size
    if isinstance(graph.features, np.memmap):  # Else it is in memory anyway.
        columns += graph.num_features
    node = 4 * columns + _NODE_BYTES
    if graph.num_nodes * node + graph.num_edges * _EDGE_BYTES <= _WHOLE_BYTES:
        return max(graph.num_nodes, graph.num_edges, LEAST_CHUNK_EDGES)
    return max(LEAST_CHUNK_EDGES, _CHUNK_BYTES // (node + _EDGE_BYTES))


def is_small_graph(graph: Graph, hidden_size: int) -> bool:
    """Return whether programs for a graph take longer to compile than to run."""
    matrix: Any = graph.features
    values = matrix.nnz if sp.issparse(matrix) else matrix.size
    return is_small(values + graph.num_nodes * hidden_size + graph.num_edges)


class Chunk(NamedTuple):
    """Some consecutive nodes, followed by the nodes they read from."""

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

    Memory holds one chunk at a time and a few arrays [all nodes, H]. A graph that is
    one chunk is prepared once.

    Args:
      graph: The graph.
      chunk_edges: Approximate number of edges per chunk.
      own: Nodes to predict where other processes predict the rest; None for all. Their
        halo, the nodes they read from, is computed here too, without communication.
      halo: Number of hops from the own nodes to the farthest they read from.
      counts: Number of nodes within 0, 1, ... hops of the own ones, if the nodes of the
        graph are in that order; None to look for them.
    """

    def __init__(
        self,
        graph: Graph,
        chunk_edges: int,
        own: np.ndarray | None = None,
        halo: int = 0,
        counts: Sequence[int] | None = None,
    ):
        self.graph, self.shared = graph, own is not None or counts is not None
        self._hoods = Neighborhoods(graph, 1)
        self._kept: dict[Any, Any] = {}
        # Predict by one program per kernel: fewer to compile, rounded differently.
        self.few_programs = False
        if not self.shared:
            self.counts: tuple[int, ...] = (graph.num_nodes,)
            self.bounds = np.array([0, graph.num_nodes])
            if max(graph.num_nodes, graph.num_edges) > chunk_edges:
                self.bounds = chunk_bounds(graph.indptr, chunk_edges)
            return
        # By distance, own nodes first: what a hop computes is a prefix.
        if counts is not None:
            self.counts = tuple(counts[: halo + 1])
            self._nodes = self._place = np.arange(graph.num_nodes, dtype=np.int32)
            ends = graph.indptr
        else:
            found = nodes_by_distance(graph, np.asarray(own), halo)
            self._nodes, self.counts, self._place = found
            lengths = graph.indptr[self._nodes + 1] - graph.indptr[self._nodes]
            ends = np.concatenate([[0], np.cumsum(lengths)])
        starts = (0, *self.counts[:-1])
        bounds = [
            start + chunk_bounds(ends[start : stop + 1], chunk_edges)[1:]
            for start, stop in zip(starts, self.counts, strict=True)
        ]
        self.bounds = np.concatenate([[0], *bounds])

    @property
    def single(self) -> bool:
        """Whether one chunk holds all nodes, in order and without padding."""
        return len(self.bounds) == 2 and not self.shared

    def count(self, away: int = 0) -> int:
        """Return the number of nodes within `away` hops of the own nodes."""
        return self.counts[min(away, len(self.counts) - 1)]

    def spans(self, away: int = 0) -> Iterator[tuple[int, int]]:
        """Yield the bounds of the chunks within `away` hops of the own nodes."""
        last = self.count(away)
        for start, stop in zip(self.bounds[:-1], self.bounds[1:], strict=True):
            if stop <= last:
                yield int(start), int(stop)

    def chunks(self, away: int = 0) -> Iterator[Chunk]:
        """Yield the chunks within `away` hops of the own nodes, in order."""
        for i, (start, stop) in enumerate(self.spans(away)):
            yield self.keep(("chunk", i), lambda a=start, b=stop: self._chunk(a, b))

    def rows(self, chunk: Chunk, array: np.ndarray, *, placed: bool = False) -> Any:
        """Return rows of an array [all nodes, *] for a chunk, padded with zeros.

        Results of `collect` are `placed`: sorted by distance, not by node id. Nodes
        beyond the halo get any row.
        """
        if self.single:  # All of them, in order.
            return array
        placed = placed and self.shared
        nodes = self._place[chunk.nodes] if placed else chunk.nodes
        return fill_rows(array, nodes, chunk.size)

    def all_features(self) -> jax.Array:
        """Return the dense features of all nodes, on the device."""
        features = self.graph.features
        return self.keep(
            "features", lambda: jax.device_put(np.asarray(features, np.float32))
        )

    def features(self, chunk: Chunk, *, senders: bool) -> Any:
        """Return the features of a chunk's own nodes, or of all nodes it reads."""
        if not self.single:
            return self._features(chunk, senders)
        if not sp.issparse(self.graph.features):
            return self.all_features()
        return self.keep("features", lambda: self._features(chunk, False))

    def keep(self, name: Any, make: Any) -> Any:
        """Return what `make` returns, made once if the graph is one chunk."""
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

    def _features(self, chunk: Chunk, senders: bool) -> Any:
        nodes, count = chunk.nodes, chunk.size
        if not senders:
            nodes = nodes[: chunk.stop - chunk.start]
            count = chunk.batch.labels.shape[0]
        how = "sparse" if sp.issparse(self.graph.features) else "dense"
        values = num_values(self.graph, nodes)
        layout = Layout((count,), (), values if self.single else round_up(values))
        return jax.device_put(node_features(self.graph, nodes, layout, how, False))


def nodes_by_distance(
    graph: Graph, own: np.ndarray, num_hops: int
) -> tuple[np.ndarray, tuple[int, ...], np.ndarray]:
    """Return the nodes within some hops of others, sorted by distance.

    Returns:
      The nodes; how many are within 0, 1, ... hops; and the place of each node of the
      graph among them, [N], 0 for nodes farther away.
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


def process_share(indptr: np.ndarray, index: int, count: int) -> np.ndarray:
    """Return the nodes that process `index` of `count` predicts.

    Every process gets about the same number of edges.
    """
    num_nodes = len(indptr) - 1
    if num_nodes < count:
        raise ValueError(f"{count} processes cannot share {num_nodes} nodes.")
    steps = np.arange(count + 1)
    bounds = np.searchsorted(indptr, indptr[-1] * steps // count, side="left")
    # At least one node each, whatever the degrees.
    bounds = np.maximum.accumulate(bounds - steps) + steps
    bounds = np.minimum(bounds, num_nodes - count + steps)
    bounds[0], bounds[-1] = 0, num_nodes
    return np.arange(bounds[index], bounds[index + 1])


def nodes_per_chunk(chunk_edges: int) -> int:
    """Return the maximal number of nodes of a chunk."""
    return max(_NODES_PER_CHUNK, chunk_edges // 16)


def chunk_bounds(indptr: np.ndarray, chunk_edges: int) -> np.ndarray:
    """Return the bounds of chunks of about `chunk_edges`, of at least one node each."""
    bounds, last = [0], len(indptr) - 1
    most = nodes_per_chunk(chunk_edges)
    while bounds[-1] < last:
        start = bounds[-1]
        stop = np.searchsorted(indptr, indptr[start] + chunk_edges, side="right") - 1
        bounds.append(int(min(max(stop, start + 1), start + most, last)))
    return np.array(bounds)


def collect(parts: Iterator[tuple[Chunk, jax.Array]], count: int) -> np.ndarray:
    """Gather the real rows of chunks [R, *] into one array [count, *].

    Filled piece by piece, so that results of a large graph are not held twice.
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

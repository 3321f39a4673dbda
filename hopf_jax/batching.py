"""NumPy: the K-hop subgraph of some roots, roots first, by hop, padded to a size.

Within a subgraph the roots come first, then the nodes one hop away, and so on; edges
are sorted by receiver; padding is at the end. What hop k of a net needs is then a
prefix of the nodes and of the edges.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jraph
import numpy as np
import scipy.sparse as sp

from hopf_jax.graph import Graph
from hopf_jax.sparse import Array, Matrix, Rows, SparseMatrix, Transpose


class Batch(NamedTuple):
    """A padded subgraph and what its roots should be predicted as.

    `graph.nodes` holds "id" [N] (0 for padding) and "degree" [N] of the whole graph;
    `graph.edges` holds "weight" [E] (0 for padding).
    """

    graph: jraph.GraphsTuple
    hops: tuple["Hop", ...]  # hops[m]: into the nodes within m hops of the roots
    features: Matrix  # None: gathered from the whole graph's
    labels: Array  # [R, C]
    mask: Array  # [R], 1 for a real root

    def hop_graph(self, away: int) -> tuple[jraph.GraphsTuple, int]:
        """Edges into the nodes within `away` hops of the roots, and R, their number.

        Beyond the last hop these are all nodes, and there are no edges into them.
        """
        if away >= len(self.hops):
            return self.graph, self.graph.nodes["degree"].shape[0]
        indptr, transpose = self.hops[away]
        receivers = indptr.shape[0] - 1
        num_edges = (self.graph.senders if transpose is None else transpose.order).size
        senders = self.graph.senders[:num_edges]
        num_senders = self.graph.nodes["degree"].shape[0]
        if away + 1 < len(self.hops):
            num_senders = self.hops[away + 1].indptr.shape[0] - 1
        prefix = self.graph.receivers[:num_edges]
        # Edges of nodes farther away share the prefix: send them nowhere.
        real = jnp.arange(num_edges) < indptr[-1]
        graph = self.graph._replace(
            nodes={"degree": self.graph.nodes["degree"][:num_senders]},
            edges={"weight": self.graph.edges["weight"][:num_edges]},
            senders=senders,
            receivers=jnp.where(real, prefix, receivers),
            globals=Rows(indptr, senders, transpose),
        )
        return graph, receivers


class Hop(NamedTuple):
    """CSR rows of the edges into the nodes within some hops; a prefix of all edges."""

    indptr: Array  # [R + 1]
    transpose: Transpose | None  # what the gradient needs


@dataclasses.dataclass(frozen=True)
class Subgraph:
    """The K-hop neighbourhood of some roots, before padding."""

    nodes: np.ndarray  # [n] ids in the whole graph, by hop
    node_counts: tuple[int, ...]  # nodes within 0, 1, ... K hops
    edge_counts: tuple[int, ...]  # edges into the nodes within 0, ... K - 1 hops
    indptr: np.ndarray  # rows of the receivers
    senders: np.ndarray  # [e] places in `nodes`
    weights: np.ndarray | None

    @property
    def size(self) -> tuple[int, ...]:
        """Everything that padding has to cover."""
        return self.node_counts + self.edge_counts


class Neighborhoods:
    """Extracts K-hop subgraphs of one graph.

    Args:
      graph: where from.
      num_hops: K.
      fanouts: at most so many neighbours a node at each hop, roots first; None for all.
        The weights of the neighbours drawn are scaled up to the node's whole degree, so
        a mean is over the ones drawn, and a sum is the expected one.
    """

    def __init__(
        self, graph: Graph, num_hops: int, fanouts: Sequence[int] | None = None
    ):
        self.graph = graph
        self.num_hops = num_hops
        self.fanouts = fanouts
        self._degree = graph.degree if fanouts is not None else None
        self._place = np.full(graph.num_nodes, -1, np.int32)  # Clean between calls.

    def subgraph(self, roots: np.ndarray, seed: Iterable[int] = ()) -> Subgraph:
        """The subgraph of these roots; what is drawn depends on `seed` alone."""
        graph, place = self.graph, self._place
        rng = np.random.default_rng(list(seed)) if self.fanouts is not None else None
        place[roots] = np.arange(len(roots), dtype=np.int32)
        nodes, frontier = [roots], roots
        counts, edge_counts = [len(roots)], []
        senders, degrees, weights = [], [], []
        for hop in range(self.num_hops):
            starts = graph.indptr[frontier]
            taken = graph.indptr[frontier + 1] - starts
            at = ranges(starts, taken)
            if rng is not None and self.fanouts is not None:
                keep, taken = draw(rng, taken, np.minimum(taken, self.fanouts[hop]))
                at = at[keep]
            ids = graph.indices[at]
            if graph.weights is not None or rng is not None:
                weights.append(self._weights(at, taken, frontier))
            frontier = new_nodes(ids, place, counts[-1])
            nodes.append(frontier)
            senders.append(ids)
            degrees.append(taken)
            counts.append(counts[-1] + len(frontier))
            edge_counts.append(sum(map(len, senders)))
        found = np.concatenate(nodes)
        local = place[np.concatenate(senders)] if senders else np.zeros(0, np.int32)
        place[found] = -1
        return Subgraph(
            nodes=found,
            node_counts=tuple(counts),
            edge_counts=tuple(edge_counts),
            indptr=np.cumsum(np.concatenate([np.zeros(1, np.int64), *degrees])),
            senders=local,
            weights=np.concatenate(weights) if weights else None,
        )

    def _weights(self, at: np.ndarray, taken: np.ndarray, nodes: np.ndarray):
        weights = self.graph.weights
        weights = np.ones(len(at), np.float32) if weights is None else weights[at]
        if self._degree is None:
            return weights
        ends = np.cumsum(taken)
        sums = np.concatenate([[0.0], np.cumsum(weights, dtype=np.float64)])
        drawn = sums[ends] - sums[ends - taken]
        scale = self._degree[nodes] / np.where(taken > 0, drawn, 1)
        return weights * np.repeat(scale, taken).astype(np.float32)


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """`start, start + 1, ...` for each start, one after another."""
    offsets = np.cumsum(lengths) - lengths
    return np.repeat(starts - offsets, lengths) + np.arange(lengths.sum())


def new_nodes(ids: np.ndarray, place: np.ndarray, count: int) -> np.ndarray:
    """The ids that have no place yet, once each; gives them places from `count` on."""
    fresh = ids[place[ids] < 0]
    # Each id keeps the last write: one of its occurrences, found without a sort.
    place[fresh] = np.arange(len(fresh), dtype=np.int32)
    once = fresh[place[fresh] == np.arange(len(fresh), dtype=np.int32)]
    place[once] = np.arange(count, count + len(once), dtype=np.int32)
    return once


def draw(
    rng: np.random.Generator, lengths: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of runs of these lengths, `wanted` entries each, without replacement.

    Returns:
      Which entries of all the runs (in their order), and how many of each run.
    """
    run = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((rng.random(len(run)), run))
    first = np.cumsum(lengths) - lengths
    rank = np.arange(len(run)) - first[run]  # `order` keeps the runs in place.
    return np.sort(order[rank < wanted[run]]), wanted


def thin(graph: Graph, fraction: float, seed: int) -> Graph:
    """The graph with that fraction of each node's neighbours, at least one, drawn once.

    Weights are scaled up to the whole degree, as with fan-outs (the paper's Figure 2).
    """
    lengths = np.diff(graph.indptr)
    wanted = np.ceil(fraction * lengths).astype(np.int64)
    keep, wanted = draw(np.random.default_rng(seed), lengths, wanted)
    indptr = np.concatenate([[0], np.cumsum(wanted)])
    weights = graph.weights
    weights = np.ones(graph.num_edges, np.float32) if weights is None else weights
    kept = dataclasses.replace(
        graph, indptr=indptr, indices=graph.indices[keep], weights=weights[keep]
    )
    scale = graph.degree / np.where(kept.degree > 0, kept.degree, 1)
    scaled = weights[keep] * np.repeat(scale, wanted)
    return dataclasses.replace(kept, weights=scaled.astype(np.float32))


def shuffle_neighbors(graph: Graph, seed: int) -> Graph:
    """The graph with each node's neighbours in random order, for rows that read one."""
    rng = np.random.default_rng(seed)
    run = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    order = np.lexsort((rng.random(graph.num_edges), run))
    weights = None if graph.weights is None else graph.weights[order]
    return dataclasses.replace(graph, indices=graph.indices[order], weights=weights)


@dataclasses.dataclass(frozen=True)
class Layout:
    """The padded size of a subgraph: one bucket, one compilation."""

    nodes: tuple[int, ...]  # within 0, 1, ... K hops
    edges: tuple[int, ...]  # into the nodes within 0, ... K - 1 hops
    values: int = 0  # non-zeros of sparse features

    @classmethod
    def over(cls, sizes: np.ndarray, num_hops: int) -> "Layout":
        """The smallest layout that holds subgraphs of all these sizes [B, 2K + 2]."""
        most = [int(n) for n in sizes.max(axis=0)]
        most[num_hops] += 1  # A padded node, for padded edges to end at.
        most = [round_up(n) for n in most]
        return cls(
            tuple(most[: num_hops + 1]), tuple(most[num_hops + 1 : -1]), most[-1]
        )

    def holds(self, size: Sequence[int]) -> bool:
        """A subgraph of this size (nodes, edges, values) fits, with a node to spare."""
        room = (*self.nodes[:-1], self.nodes[-1] - 1, *self.edges, self.values)
        return all(s <= r for s, r in zip(size, room, strict=True))


def round_up(count: int) -> int:
    """Up to a multiple of a sixteenth of its power of two: few sizes, little waste."""
    step = max(8, 1 << max(count.bit_length() - 5, 0))
    return -(-max(count, 1) // step) * step


def pad(
    graph: Graph,
    subgraph: Subgraph,
    layout: Layout,
    *,
    features: str,
    transposed: bool = True,
) -> Batch:
    """The subgraph as a batch of this layout, in NumPy arrays.

    Args:
      graph: the whole graph, for features, labels and degrees.
      subgraph: within the layout.
      layout: the padded size.
      features: "resident" leaves them to the device, "sparse" and "dense" bring them.
      transposed: hold what the gradient needs.
    """
    n, e = len(subgraph.nodes), len(subgraph.senders)
    num_nodes = layout.nodes[-1]
    num_edges = layout.edges[-1] if layout.edges else 0
    ids = fill(subgraph.nodes, num_nodes, 0).astype(np.int32)
    degree = fill(degree_of(graph, subgraph.nodes), num_nodes, 0)
    weights = np.ones(e, np.float32) if subgraph.weights is None else subgraph.weights
    receivers = np.repeat(np.arange(len(subgraph.indptr) - 1), np.diff(subgraph.indptr))
    # Spread over the padding: on a GPU, many edges into one node are very slow.
    spread = np.linspace(min(n, num_nodes - 1), num_nodes - 1, num_edges - e)
    receivers = np.concatenate([receivers, spread]).astype(np.int32)
    senders = fill(subgraph.senders, num_edges, num_nodes - 1)
    hops = []
    for m, (rows, edges) in enumerate(zip(layout.nodes, layout.edges, strict=False)):
        real, used = subgraph.node_counts[m], subgraph.edge_counts[m]
        indptr = fill(subgraph.indptr[: real + 1], rows + 1, used).astype(np.int32)
        transpose = None
        if transposed:
            transpose = _transpose(indptr, senders[:edges], used, layout.nodes[m + 1])
        hops.append(Hop(indptr, transpose))
    roots = subgraph.nodes[: subgraph.node_counts[0]]
    labels = np.zeros((layout.nodes[0], graph.num_labels), np.float32)
    labels[: len(roots)] = graph.labels[roots]
    mask = fill(np.ones(len(roots), np.float32), layout.nodes[0], 0)
    return Batch(
        graph=jraph.GraphsTuple(
            nodes={"id": ids, "degree": degree},
            edges={"weight": fill(weights, num_edges, 0)},
            senders=senders,
            receivers=receivers,
            n_node=np.array([n, num_nodes - n], np.int32),
            n_edge=np.array([e, num_edges - e], np.int32),
            globals=None,
        ),
        hops=tuple(hops),
        features=node_features(graph, subgraph.nodes, layout, features, transposed),
        labels=labels,
        mask=mask,
    )


def node_features(
    graph: Graph, nodes: np.ndarray, layout: Layout, how: str, transposed: bool
) -> Matrix:
    """Features of these nodes, padded with rows of zeros."""
    if how == "resident":
        return None
    num_nodes = layout.nodes[-1]
    if how == "dense":
        if not sp.issparse(graph.features):
            return fill_rows(graph.features, nodes, num_nodes)
        return fill(graph.features[nodes].toarray(), num_nodes, 0)
    rows = graph.features[nodes]
    indptr = fill(rows.indptr, num_nodes + 1, rows.nnz).astype(np.int32)
    indices = fill(rows.indices, layout.values, 0).astype(np.int32)
    values = fill(rows.data, layout.values, 0)
    transpose = None
    if transposed:
        transpose = _transpose(indptr, indices, rows.nnz, graph.num_features)
    return SparseMatrix(Rows(indptr, indices, transpose), values)


def num_values(graph: Graph, nodes: np.ndarray) -> int:
    """Non-zeros in the sparse features of these nodes; 0 where features are dense."""
    if isinstance(graph.features, np.ndarray):
        return 0
    indptr = graph.features.indptr
    return int((indptr[nodes + 1] - indptr[nodes]).sum())


def degree_of(graph: Graph, nodes: np.ndarray) -> np.ndarray:
    """Degrees in the whole graph, without touching the rest of it."""
    starts, ends = graph.indptr[nodes], graph.indptr[nodes + 1]
    if graph.weights is None:
        return (ends - starts).astype(np.float32)
    weights = graph.weights[ranges(starts, ends - starts)]
    sums = np.concatenate([[0.0], np.cumsum(weights, dtype=np.float64)])
    stops = np.cumsum(ends - starts)
    return (sums[stops] - sums[stops - (ends - starts)]).astype(np.float32)


def _transpose(
    indptr: np.ndarray, indices: np.ndarray, used: int, num_columns: int
) -> Transpose:
    shape = (len(indptr) - 1, num_columns)
    # scipy's CSR to CSC is a counting sort, in compiled code.
    matrix = sp.csr_array(
        (np.arange(used, dtype=np.int32), indices[:used], indptr), shape
    ).tocsc()
    return Transpose(
        indptr=matrix.indptr.astype(np.int32),
        indices=fill(matrix.indices.astype(np.int32), len(indices), 0),
        order=fill(matrix.data, len(indices), 0),
    )


def fill(array: np.ndarray, length: int, value: float) -> np.ndarray:
    """The array with `value` at its end, up to `length`."""
    out = np.full((length, *array.shape[1:]), value, array.dtype)
    out[: len(array)] = array
    return out


def fill_rows(array: np.ndarray, rows: np.ndarray, length: int) -> np.ndarray:
    """These rows of a matrix, float32, with rows of zeros at the end up to `length`."""
    flags = array.flags
    if array.dtype != np.float32 or not (flags.c_contiguous and flags.aligned):
        # Of these `take` would first make an array that is, all of it.
        return fill(array[rows].astype(np.float32), length, 0)
    out = np.zeros((length, array.shape[1]), np.float32)
    # Every row is there; with a check of that, `take` would copy twice.
    np.take(array, rows, axis=0, out=out[: len(rows)], mode="clip")
    return out


def stack(batches: Sequence[Batch]) -> Batch:
    """Batches of one layout as one, with a leading axis of at least two.

    A single batch is there twice: to take one of one is nothing to XLA, which would
    then fuse the step otherwise than among several, and round otherwise. Streamed and
    resident training are to give the same bits.
    """
    batches = batches if len(batches) > 1 else [*batches, *batches]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *batches)

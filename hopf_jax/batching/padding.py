"""Batches: subgraphs padded to few fixed sizes, so that few programs are compiled.

Padding is at the end of the nodes and of the edges, so that prefixes stay prefixes.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jraph
import numpy as np
import scipy.sparse as sp

from hopf_jax.batching.sparse import Array, Matrix, Rows, SparseMatrix, Transpose
from hopf_jax.batching.subgraphs import Subgraph, ranges, run_sums
from hopf_jax.graph import Graph, PartGraph


class HopGraph(NamedTuple):
    """The edges that one hop reads: from S senders to the first R of them."""

    graph: jraph.GraphsTuple  # nodes: "degree" [S]; edges: "weight" [E]
    rows: Rows | None  # The same edges in CSR form; None where there are none.
    num_receivers: int  # R


class Local(NamedTuple):
    """What the nodes of a batch read, where no array of all nodes is in memory."""

    summary: Array | None  # [N, *], their label summaries
    train: Array  # [N], whether each is a training node
    root: Array  # [N], whether each is a root of the batch, here or in another part


class Batch(NamedTuple):
    """A padded subgraph and the labels of its roots.

    `graph.nodes` holds "id" [N] (0 for padding) and "degree" [N] of the whole graph;
    `graph.edges` holds "weight" [E] (0 for padding).
    """

    graph: jraph.GraphsTuple
    hops: tuple["Hop", ...]  # hops[m]: into the nodes within m hops of the roots
    features: Matrix  # None: gathered from the features of the whole graph
    labels: Array  # [R, C]
    mask: Array  # [R], 1 for a real root
    # Which of several label summaries its nodes read, []; None if there is one.
    view: Array | None = None
    local: Local | None = None  # None: gathered from arrays of all nodes

    def hop_graph(self, away: int) -> HopGraph:
        """Return the edges into the nodes within `away` hops of the roots.

        Beyond the last hop these are all nodes, without any edges into them.
        """
        if away >= len(self.hops):
            return HopGraph(self.graph, None, self.graph.nodes["degree"].shape[0])
        indptr, transpose = self.hops[away]
        receivers = indptr.shape[0] - 1
        num_edges = (self.graph.senders if transpose is None else transpose.order).size
        senders = self.graph.senders[:num_edges]
        num_senders = self.graph.nodes["degree"].shape[0]
        if away + 1 < len(self.hops):
            num_senders = self.hops[away + 1].indptr.shape[0] - 1
        prefix = self.graph.receivers[:num_edges]
        # The prefix may hold edges of nodes farther away: send them nowhere.
        real = jnp.arange(num_edges) < indptr[-1]
        graph = self.graph._replace(
            nodes={"degree": self.graph.nodes["degree"][:num_senders]},
            edges={"weight": self.graph.edges["weight"][:num_edges]},
            senders=senders,
            receivers=jnp.where(real, prefix, receivers),
        )
        return HopGraph(graph, Rows(indptr, senders, transpose), receivers)


class Hop(NamedTuple):
    """CSR rows of the edges into the nodes within some hops; a prefix of all edges."""

    indptr: Array  # [R + 1]
    transpose: Transpose | None  # what the gradient needs


@dataclasses.dataclass(frozen=True)
class Layout:
    """The padded size of subgraphs that share one compiled program."""

    nodes: tuple[int, ...]  # within 0, 1, ... K hops
    edges: tuple[int, ...]  # into the nodes within 0, ... K - 1 hops
    values: int = 0  # non-zeros of sparse features

    @classmethod
    def over(cls, sizes: np.ndarray, num_hops: int) -> "Layout":
        """Return the smallest layout that fits all these sizes [B, 2K + 2]."""
        most = [int(n) for n in sizes.max(axis=0)]
        most[num_hops] += 1  # A padded node, for padded edges to end at.
        most = [round_up(n) for n in most]
        return cls(
            tuple(most[: num_hops + 1]), tuple(most[num_hops + 1 : -1]), most[-1]
        )

    def holds(self, size: Sequence[int]) -> bool:
        """Return whether a subgraph of this size fits, with one node to spare."""
        room = (*self.nodes[:-1], self.nodes[-1] - 1, *self.edges, self.values)
        return all(s <= r for s, r in zip(size, room, strict=True))


def round_up(count: int) -> int:
    """Round up to a multiple of a sixteenth of the power of two below.

    This gives few distinct sizes with little waste.
    """
    step = max(8, 1 << max(count.bit_length() - 5, 0))
    return -(-max(count, 1) // step) * step


def pad(
    graph: Graph,
    subgraph: Subgraph,
    layout: Layout,
    *,
    features: str,
    transposed: bool = True,
    view: int | None = None,
) -> Batch:
    """Return the subgraph as a batch of this layout, in NumPy arrays.

    Args:
      graph: The whole graph, for features, labels and degrees.
      subgraph: A subgraph that fits the layout.
      layout: The padded size.
      features: "resident" leaves features to the device; "sparse" and "dense" add them
        to the batch.
      transposed: Add the transposed edges, which the gradient needs.
      view: Which of several label summaries its nodes read.
    """
    n, e = len(subgraph.nodes), len(subgraph.senders)
    num_nodes = layout.nodes[-1]
    num_edges = layout.edges[-1] if layout.edges else 0
    ids = fill(subgraph.nodes, num_nodes, 0).astype(np.int32)
    degree = fill(degree_of(graph, subgraph.nodes), num_nodes, 0)
    weights = np.ones(e, np.float32) if subgraph.weights is None else subgraph.weights
    receivers = np.repeat(np.arange(len(subgraph.indptr) - 1), np.diff(subgraph.indptr))
    # Spread over the padding nodes: on a GPU, many edges into one node are very slow.
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
        view=None if view is None else np.array(view, np.int32),
    )


def feature_placement(graph: Graph) -> str:
    """Return where the features of batches are, as `pad` takes it.

    Dense features in memory are put on the device once, and batches read them there.
    """
    if sp.issparse(graph.features):
        return "sparse"
    return "dense" if isinstance(graph.features, np.memmap) else "resident"


def node_features(
    graph: Graph, nodes: np.ndarray, layout: Layout, how: str, transposed: bool
) -> Matrix:
    """Return the features of these nodes, padded with rows of zeros."""
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
    """Return the number of non-zero features of these nodes; 0 for dense features."""
    if isinstance(graph.features, np.ndarray):
        return 0
    indptr = graph.features.indptr
    return int((indptr[nodes + 1] - indptr[nodes]).sum())


def degree_of(graph: Graph, nodes: np.ndarray) -> np.ndarray:
    """Return degrees in the whole graph, reading these nodes only."""
    if isinstance(graph, PartGraph):
        return graph.degrees[nodes]
    starts, ends = graph.indptr[nodes], graph.indptr[nodes + 1]
    if graph.weights is None:
        return (ends - starts).astype(np.float32)
    weights = graph.weights[ranges(starts, ends - starts)]
    return run_sums(weights, ends - starts).astype(np.float32)


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
    """Return the array, extended to `length` with `value`."""
    out = np.full((length, *array.shape[1:]), value, array.dtype)
    out[: len(array)] = array
    return out


def fill_rows(array: np.ndarray, rows: np.ndarray, length: int) -> np.ndarray:
    """Return some rows of a matrix as float32, extended to `length` with zeros."""
    flags = array.flags
    if array.dtype != np.float32 or not (flags.c_contiguous and flags.aligned):
        # `take` would first copy the whole array.
        return fill(array[rows].astype(np.float32), length, 0)
    out = np.zeros((length, array.shape[1]), np.float32)
    # With mode="raise", `take` would copy twice.
    np.take(array, rows, axis=0, out=out[: len(rows)], mode="clip")
    return out


def stack(batches: Sequence[Batch]) -> Batch:
    """Stack batches of one layout along a new leading axis of at least two.

    A single batch is stacked twice: XLA would fuse a step on a stack of one
    differently, and round differently. Streamed and resident training must agree to
    the bit.
    """
    batches = batches if len(batches) > 1 else [*batches, *batches]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *batches)

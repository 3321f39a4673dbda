"""Extraction of K-hop subgraphs, in NumPy.

Within a subgraph the roots come first, then the nodes one hop away, and so on; edges
are sorted by receiver. What hop k of a net needs is then a prefix of the nodes and of
the edges.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from hopf_jax.graph import Graph, ranges


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
        """All counts that padding must cover."""
        return self.node_counts + self.edge_counts


class Neighborhoods:
    """Extracts K-hop subgraphs of a graph.

    Args:
      graph: The graph.
      num_hops: K.
      fanouts: Maximum number of neighbours per node at each hop, roots first; None for
        all. Weights of sampled neighbours are scaled up to the node's whole degree: a
        mean is over the sample, and a sum has the right expectation.
    """

    def __init__(
        self, graph: Graph, num_hops: int, fanouts: Sequence[int] | None = None
    ):
        self.graph, self.num_hops, self.fanouts = graph, num_hops, fanouts
        self._degree = graph.degree if fanouts is not None else None
        self._place = np.full(graph.num_nodes, -1, np.int32)  # Clean between calls.

    def subgraph(self, roots: np.ndarray, seed: Iterable[int] = ()) -> Subgraph:
        """Return the subgraph of these roots; samples depend on `seed` alone."""
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
        drawn = np.where(taken > 0, run_sums(weights, taken), 1)
        scale = self._degree[nodes] / drawn
        return weights * np.repeat(scale, taken).astype(np.float32)


def run_sums(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the sums of runs of values, given the length of each run."""
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    stops = np.cumsum(lengths)
    return sums[stops] - sums[stops - lengths]


def new_nodes(ids: np.ndarray, place: np.ndarray, count: int) -> np.ndarray:
    """Return the ids without a place, once each, and give them places from `count`."""
    fresh = ids[place[ids] < 0]
    # Each id keeps the last write: one of its occurrences, found without a sort.
    place[fresh] = np.arange(len(fresh), dtype=np.int32)
    once = fresh[place[fresh] == np.arange(len(fresh), dtype=np.int32)]
    place[once] = np.arange(count, count + len(once), dtype=np.int32)
    return once


def draw(
    rng: np.random.Generator, lengths: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sample `wanted` entries from each of some runs, without replacement.

    Returns:
      The sampled entries of all runs, in their order, and their number per run.
    """
    run = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((rng.random(len(run)), run))
    first = np.cumsum(lengths) - lengths
    rank = np.arange(len(run)) - first[run]  # `order` keeps the runs in place.
    return np.sort(order[rank < wanted[run]]), wanted


def thin(graph: Graph, fraction: float, seed: int) -> Graph:
    """Return the graph with a fraction of each node's neighbours, at least one.

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
    """Return the graph with each node's neighbours in random order."""
    rng = np.random.default_rng(seed)
    run = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    order = np.lexsort((rng.random(graph.num_edges), run))
    weights = None if graph.weights is None else graph.weights[order]
    return dataclasses.replace(graph, indices=graph.indices[order], weights=weights)

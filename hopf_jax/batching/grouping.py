"""Which roots share a batch, and which batches share a padded size."""

import itertools
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from hopf_jax.batching.padding import Layout, fill
from hopf_jax.batching.subgraphs import ranges, run_sums
from hopf_jax.graph import Graph

_MOST_GROUPS = 3
_WASTE = 0.15  # Padding that is worth another compilation.
_MOST_WASTE = 0.25  # Padding that is worth a search in another order.


def deal(
    graph: Graph,
    roots: np.ndarray,
    batch_size: int,
    rng: np.random.Generator,
    apart: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Deal roots into as few batches as possible, similar in roots and neighbours.

    Roots are sorted by the size of their neighbourhood and dealt like cards, each round
    in random order: batches then have about the same size, and need little padding.
    Where several components (`apart`, per node) have more roots than a batch, each is
    dealt separately: a batch that reaches into all of them is as large as all of them.
    """
    if apart is not None:
        of = apart[roots]
        large = np.flatnonzero(np.bincount(of) > batch_size)
        if len(large) > 1:
            sets = [roots[of == c] for c in large] + [roots[~np.isin(of, large)]]
            dealt = [deal(graph, s, batch_size, rng) for s in sets if len(s)]
            return list(itertools.chain.from_iterable(dealt))
    return deal_evenly(roots, lambda some: neighbourhood(graph, some), batch_size, rng)


def deal_evenly(
    roots: np.ndarray,
    size_of: Callable[[np.ndarray], np.ndarray],
    batch_size: int,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Deal roots as `deal` does, given how to measure their neighbourhoods."""
    count = max(1, -(-len(roots) // batch_size))
    rounds = -(-len(roots) // count)
    by_size = rng.permutation(roots)
    by_size = by_size[np.argsort(-size_of(by_size), kind="stable")]
    cards = fill(by_size, rounds * count, -1).reshape(rounds, count)
    shuffled = rng.permuted(cards, axis=1).T
    return [batch[batch >= 0] for batch in shuffled]


def components(graph: Graph) -> np.ndarray:
    """Return the component of each node, [all nodes]."""
    if isinstance(graph.indices, np.memmap):  # It may not fit into memory: one for all.
        return np.zeros(graph.num_nodes, np.int32)
    ones = np.ones(graph.num_edges, np.int8)
    shape = (graph.num_nodes, graph.num_nodes)
    adjacency = sp.csr_array((ones, graph.indices, graph.indptr), shape)
    return connected_components(adjacency, graph.directed, "weak")[1]


def neighbourhood(graph: Graph, roots: np.ndarray) -> np.ndarray:
    """Return the sum of the degrees of each root's neighbours."""
    starts, ends = graph.indptr[roots], graph.indptr[roots + 1]
    senders = graph.indices[ranges(starts, ends - starts)]
    degrees = graph.indptr[senders + 1] - graph.indptr[senders]
    return run_sums(degrees, ends - starts)


def group_by_size(
    sizes: np.ndarray, num_hops: int
) -> tuple[list[Layout], list[np.ndarray]]:
    """Choose few layouts for subgraphs of these sizes, and the members of each.

    One layout, unless its padding would waste more than a sixth of the nodes or edges;
    then the subgraphs are split by size into two or three. Size is the number of nodes
    and edges; where that leaves too much padding, each as a share of its mean.
    """
    best = _cut(sizes, sizes.sum(axis=1), num_hops)
    if best[0] >= _MOST_WASTE:
        share = sizes / np.maximum(sizes.mean(axis=0), 1)
        other = _cut(sizes, share[:, [num_hops, -2]].sum(axis=1), num_hops)
        best = min(best, other, key=lambda found: found[0])
    return best[1], [m.astype(np.int32) for m in best[2]]


def _cut(
    sizes: np.ndarray, measure: np.ndarray, num_hops: int
) -> tuple[float, list[Layout], list[np.ndarray]]:
    """Sort subgraphs by a measure and split them; return the waste, too."""
    by_size = np.argsort(measure, kind="stable")
    places = np.unique(np.linspace(0, len(sizes), 17).astype(int)[1:-1])
    best: tuple[float, list[Layout], list[np.ndarray]] | None = None
    for count in range(_MOST_GROUPS):
        for cuts in itertools.combinations(places, count):
            members = [np.sort(m) for m in np.split(by_size, cuts) if len(m)]
            layouts = [Layout.over(sizes[m], num_hops) for m in members]
            waste = waste_of(sizes, layouts, members, num_hops)
            if best is None or waste < best[0]:
                best = waste, layouts, members
        if best is not None and best[0] <= _WASTE:
            break
    assert best is not None
    return best


def waste_of(
    sizes: np.ndarray, layouts: list[Layout], members: list[np.ndarray], num_hops: int
) -> float:
    """Return padding as a share of real nodes or edges, whichever is larger."""
    real = sizes[:, [num_hops, -2]].sum(axis=0)  # With no hops, of nodes twice.
    padded = sum(
        len(m) * np.array([layout.nodes[-1], (layout.nodes + layout.edges)[-1]])
        for layout, m in zip(layouts, members, strict=True)
    )
    return float(np.max(padded / np.maximum(real, 1)) - 1)

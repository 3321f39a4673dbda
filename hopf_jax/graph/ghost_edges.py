"""Ghost edges: weighted links to labelled nodes, however far they are.

Gallagher, Tong, Eliassi-Rad and Faloutsos, "Using ghost edges for classification in
sparsely labeled networks", KDD 2008.
"""

import dataclasses

import numpy as np
import scipy.sparse as sp

from hopf_jax.config import Number
from hopf_jax.graph.graph import Graph
from hopf_jax.graph.validation import check_value, check_whole

# Proximities computed at once: few enough for the cache of a processor.
_VALUES_AT_ONCE = 1 << 19
_LOW = 2**32 - 1


def add_ghost_edges(
    graph: Graph, count: int, restart: float = 0.15, steps: int = 20
) -> Graph:
    """Return the graph with edges from the nearest training nodes into every node.

    Proximity is that of random walks with restart, along the edges that nodes read. A
    walk from v restarts with probability c at every step; r_vu is the share of its time
    that it spends at u, over walks of at most S steps between restarts:

        R = c sum_{k=0..S} ((1 - c) D^-1 A)^k

    The `count` training nodes u != v of the largest r_vu > 0 send to v; among equals,
    those of the lowest ids. These edges weigh as much as all others of v together, d_v:

        A_vu + d_v r_vu / sum_u' r_vu'

    A node without edges, or none of whose walks meets a training node, stays as it is.
    Memory holds the edges and some arrays [N, count]; features of a memory-mapped graph
    stay on disk. Time is proportional to S times edges times training nodes.

    Args:
      graph: The graph; without training nodes it is returned unchanged.
      count: Number of ghost edges per node, 0 or more.
      restart: Probability c, above 0 and below 1.
      steps: Number of steps S, 1 or more.

    Returns:
      A directed graph with weights, or `graph` itself if there is nothing to add.

    >>> graph = Graph.from_edges([0, 1], [1, 2], [[1], [2], [3]], [0, 1, 1], train=[0])
    >>> add_ghost_edges(graph, 1).adjacency.toarray().tolist()
    [[0.0, 1.0, 0.0], [3.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """
    count = min(check_whole(count, "count"), int(graph.train.sum()))
    check_value(restart, "restart", Number(0, 1, open_below=True, open_above=True))
    check_whole(steps, "steps", 1)
    if count == 0:
        return graph
    nodes, near = _nearest(graph, count, restart, steps)  # Both [N, count].
    scale = graph.degree / np.maximum(near.sum(axis=1, dtype=np.float64), 1e-300)
    weights = (near * scale[:, None]).astype(np.float32)
    rows, places = np.nonzero(weights)
    edges = weights[rows, places], (rows, nodes[rows, places])
    real = graph.adjacency
    total = sp.csr_array(real + sp.coo_array(edges, real.shape).tocsr())
    total.sort_indices()
    return dataclasses.replace(
        graph,
        indptr=total.indptr.astype(np.int64),
        indices=total.indices.astype(graph.indices.dtype),
        weights=total.data,
        directed=True,
    )


def _nearest(
    graph: Graph, count: int, restart: float, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest training nodes of all nodes and their proximities [N, count].

    Where there are fewer, proximities are 0.
    """
    degree = graph.degree.astype(np.float64)
    scale = np.divide(1 - restart, degree, out=np.zeros_like(degree), where=degree > 0)
    walk = sp.csr_array(sp.diags_array(scale) @ graph.adjacency)  # [N, N]
    train = np.flatnonzero(graph.train)
    width = max(count, _VALUES_AT_ONCE // graph.num_nodes)
    best = np.zeros((graph.num_nodes, count), np.int64)
    for start in range(0, len(train), width):
        some = train[start : start + width]
        own = some, np.arange(len(some))
        p = np.zeros((graph.num_nodes, len(some)))
        p[own] = restart
        for _ in range(steps):
            p = walk @ p
            p[own] += restart
        p[own] = 0
        # One number to sort by: the bits of a positive float32 rise with its value, and
        # below them lower ids count more. Rounding makes equals of those that differ by
        # the order of a sum only.
        bits = p.astype(np.float32).view(np.int32).astype(np.int64)
        best = np.hstack([best, bits << 32 | (_LOW - some)])
        best.partition(-count, axis=1)
        best = best[:, -count:].copy()
    best.sort(axis=1)  # So that sums do not depend on the blocks.
    return _LOW - (best & _LOW), (best >> 32).astype(np.int32).view(np.float32)

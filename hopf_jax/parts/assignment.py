"""Assignment of nodes to parts by METIS, or by streaming for larger graphs.

The streaming partitioner reads the graph block by block, several times. A block's nodes
go where most of their neighbours are; in the first pass less where a part is full (LDG,
Stanton and Kliot 2012), in later ones up to a limit (Nishimura and Ugander 2013).
"""

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np

from hopf_jax.batching import ranges
from hopf_jax.graph import Graph
from hopf_jax.runtime import import_or_explain

METHODS = ("auto", "metis", "streaming")

_PASSES = 4
_GAINS = 0.99  # Continue while a pass reduces the cut below this share.
_STAYS = 0.5  # Bonus of the current part of a node, in neighbours.
_SLACK = 1.05  # Maximal size of a part, as a multiple of the mean.
_SCORES_AT_ONCE = 1 << 21
_EDGES_AT_ONCE = 1 << 21
_BLOCKS = 64  # At least: nodes of a block are placed at once, so blocks must be small.
# METIS's working memory: 32-bit copies of the graph and of its coarser versions.
_METIS_PER_EDGE, _METIS_PER_NODE = 40, 120


def assign(graph: Graph, parts: int, method: str, memory: int, seed: int) -> np.ndarray:
    """Return the part of each node, [N] int32; no part is empty.

    Args:
      graph: The graph, which may be mapped.
      parts: Number of parts.
      method: One of `METHODS`; "auto" is METIS if it is installed and memory suffices.
      memory: Memory limit in bytes.
      seed: Seed of METIS.
    """
    fits = metis_bytes(graph) <= memory
    if method == "metis" and not fits:
        raise ValueError(
            f"METIS would take {metis_bytes(graph) / 1e9:.1f} GB, but memory is "
            f"{memory / 1e9:.1f} GB. Give more, or method='streaming'."
        )
    installed = importlib.util.find_spec("pymetis") is not None
    if method == "auto":
        usable = fits and installed and not graph.directed
        method = "metis" if usable else "streaming"
    found = _metis(graph, parts, seed) if method == "metis" else stream(graph, parts)
    return _without_empty(found, parts)


def metis_bytes(graph: Graph) -> int:
    """Estimate the memory in bytes that METIS needs for a graph."""
    return _METIS_PER_EDGE * graph.num_edges + _METIS_PER_NODE * graph.num_nodes


def _metis(graph: Graph, parts: int, seed: int) -> np.ndarray:
    pymetis = import_or_explain("pymetis", "METIS")
    if graph.directed:
        raise ValueError(
            "METIS divides undirected graphs. Give method='streaming', or "
            "graph.undirected()."
        )
    adjacency = pymetis.CSRAdjacency(
        np.asarray(graph.indptr, np.int32 if graph.num_edges < 2**31 else np.int64),
        np.asarray(graph.indices),
    )
    options = pymetis.Options(seed=seed)
    _, found = pymetis.part_graph(parts, adjacency, options=options)
    return np.asarray(found, np.int32)


def stream(graph: Graph, parts: int, passes: int = _PASSES) -> np.ndarray:
    """Return the part of each node, [N] int32, reading the graph block by block.

    It starts from equal ranges of ids, which serve graphs that were numbered by a
    crawl, or from a greedy pass, whichever cuts less. Memory holds 8 bytes per node,
    and one block.
    """
    num_nodes = graph.num_nodes
    found = (np.arange(num_nodes) * parts // num_nodes).astype(np.int32)
    greedy = np.full(num_nodes, -1, np.int32)
    _pass(graph, greedy, parts, first=True)
    cut, other = count_cut(graph, found), count_cut(graph, greedy)
    if other < cut:
        cut, found = other, greedy
    del greedy
    for _ in range(passes):
        better = found.copy()
        _pass(graph, better, parts, first=False)
        before, cut = cut, count_cut(graph, better)
        if cut >= before:
            break
        found = better
        if cut > _GAINS * before:
            break
    return found


def _pass(graph: Graph, found: np.ndarray, parts: int, *, first: bool) -> None:
    """Reassign every node, in place, by the current parts of its neighbours."""
    limit = int(np.ceil(_SLACK * graph.num_nodes / parts))
    sizes = np.bincount(found[found >= 0], minlength=parts)
    for start, stop in blocks(graph, parts):
        own = found[start:stop]
        score = _count_neighbours(graph, found, start, stop, parts).astype(np.float32)
        # Nodes whose neighbours are not assigned yet follow the rest of the block.
        score += 0.1 * score.sum(axis=0) / max(1.0, float(score.sum()))
        if not first:
            sizes -= np.bincount(own, minlength=parts)
            score[np.arange(len(own)), own] += _STAYS
        own[:] = _place(score, sizes, limit, weigh=first)
        sizes += np.bincount(own, minlength=parts)


def blocks(graph: Graph, parts: int = 1) -> Iterator[tuple[int, int]]:
    """Yield bounds of consecutive nodes, limited in nodes and edges."""
    num_nodes, start = graph.num_nodes, 0
    most = _SCORES_AT_ONCE // parts
    if parts > 1:
        most = min(most, num_nodes // (_BLOCKS * parts))
    while start < num_nodes:
        end = np.searchsorted(
            graph.indptr, graph.indptr[start] + _EDGES_AT_ONCE, side="right"
        )
        stop = min(max(start + 1, int(end) - 1), start + max(1, most), num_nodes)
        yield start, stop
        start = stop


def _count_neighbours(
    graph: Graph, found: np.ndarray, start: int, stop: int, parts: int
) -> np.ndarray:
    """Count the neighbours of each node of a block in each part, [n, P]."""
    first, last = int(graph.indptr[start]), int(graph.indptr[stop])
    rows = np.repeat(np.arange(stop - start), np.diff(graph.indptr[start : stop + 1]))
    near = found[np.asarray(graph.indices[first:last])]
    keys = (rows * parts + near)[near >= 0]
    counts = np.bincount(keys, minlength=(stop - start) * parts)
    return counts.reshape(stop - start, parts)


def _place(
    score: np.ndarray, sizes: np.ndarray, limit: int, *, weigh: bool
) -> np.ndarray:
    """Return the part of each node of a block, by the scores of the parts.

    If more nodes prefer a part than fit into it, those with the highest scores get
    it, and the others choose again.

    Args:
      score: Score of each part, [n, P].
      sizes: Current number of nodes per part.
      limit: Maximal number of nodes per part.
      weigh: Multiply scores by the remaining capacity.
    """
    placed = np.full(len(score), -1, np.int32)
    room = limit - sizes
    left = np.arange(len(score))
    while left.size:
        free = np.maximum(room, 0) / limit
        # Without any preference, the part with the largest remaining capacity.
        want = score[left] * (free if weigh else 1) + 1e-3 * free
        want = np.where(room > 0, want, -1.0)
        wanted = want.argmax(axis=1)
        best = np.take_along_axis(want, wanted[:, None], axis=1)[:, 0]
        order = np.lexsort((-best, wanted))
        starts = np.searchsorted(wanted[order], np.arange(len(sizes)))
        rank = np.arange(left.size) - starts[wanted[order]]
        taken = order[rank < room[wanted[order]]]
        placed[left[taken]] = wanted[taken]
        room = room - np.bincount(wanted[taken], minlength=len(sizes))
        left = np.delete(left, taken)
    return placed


def _without_empty(found: np.ndarray, parts: int) -> np.ndarray:
    """Move a node of the largest part into every empty one."""
    sizes = np.bincount(found, minlength=parts)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        found[np.flatnonzero(found == largest)[0]] = empty
        sizes[largest] -= 1
        sizes[empty] += 1
    return found


def count_cut(graph: Graph, found: np.ndarray) -> int:
    """Count the entries of A between nodes of different parts."""
    cut = 0
    for start, stop in blocks(graph):
        first, last = int(graph.indptr[start]), int(graph.indptr[stop])
        own = np.repeat(found[start:stop], np.diff(graph.indptr[start : stop + 1]))
        cut += int((found[np.asarray(graph.indices[first:last])] != own).sum())
    return cut


def mark_within(graph: Graph, own: np.ndarray, hops: int) -> np.ndarray:
    """Return the distance of each node to the own nodes, [N] uint8; 255 beyond `hops`.

    Args:
      graph: The graph, which is read block by block.
      own: Ids of the own nodes.
      hops: Maximal distance.
    """
    distance = np.full(graph.num_nodes, 255, np.uint8)
    distance[own] = 0
    front = own
    for hop in range(1, hops + 1):
        for places in edge_blocks(graph, front):
            near = graph.indices[places]
            distance[near[distance[near] == 255]] = hop
        front = np.flatnonzero(distance == hop)
    return distance


def edge_blocks(graph: Graph, nodes: np.ndarray) -> Iterator[np.ndarray]:
    """Yield positions of the edges into some nodes, in order and in pieces."""
    for some in node_blocks(graph, nodes):
        starts: Any = graph.indptr[some]
        yield ranges(starts, graph.indptr[some + 1] - starts)


def node_blocks(graph: Graph, nodes: np.ndarray) -> Iterator[np.ndarray]:
    """Yield nodes in order, in pieces with a bounded number of edges."""
    for start in range(0, len(nodes), _SCORES_AT_ONCE):
        some = nodes[start : start + _SCORES_AT_ONCE]
        ends = np.cumsum(graph.indptr[some + 1] - graph.indptr[some])
        yield from np.split(
            some, np.flatnonzero(np.diff(ends // _EDGES_AT_ONCE) > 0) + 1
        )

"""A text about a graph, for the person who made it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from hopf_jax.graph.scaling import learn_scaling
from hopf_jax.runtime import html_table

if TYPE_CHECKING:
    from hopf_jax.graph.graph import Graph

_CLASSES_SHOWN = 10
_ROWS = 1 << 20  # Read at once.


def describe_graph(graph: "Graph") -> str:
    """Return what `Graph.describe` says."""
    return "\n".join(
        [*_edges(graph), *_labels(graph), *_features(graph), *_split(graph)]
    )


def graph_to_html(graph: "Graph") -> str:
    """Return a table for a notebook: sizes, names, labels and split."""
    kind = "directed" if graph.directed else "undirected"
    count = count_edges(graph)
    cells = [("Graph", ""), ("nodes", f"{graph.num_nodes:,}")]
    if graph.node_names:
        cells.append(("names", _few(list(map(str, graph.node_names)), 5)))
    weighted = "" if graph.weights is None else ", weighted"
    cells.append(("edges", f"{count:,} {kind}{weighted}"))
    made = " (made from the edges)" if graph.positional else ""
    named = f": {_few(graph.feature_names, 5)}" if graph.feature_names else ""
    cells.append(("features", f"{graph.num_features:,}{made}{named}"))
    if graph.known.any():
        known, *classes = _labels(graph)[:2]
        cells.append(("labels", known.removeprefix("labels: ")))
        cells += [("", line.strip()) for line in classes]
    else:
        cells.append(("labels", "none"))
    cells.append(("split", _split(graph)[0].removeprefix("split: ")))
    return html_table("", cells)


def _few(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + ", ..." * (len(names) > most)


def count_edges(graph: "Graph") -> int:
    """Return the number of edges; each undirected one, stored twice, counts once."""
    if graph.directed:
        return graph.num_edges
    loops = 0
    for begin in range(0, graph.num_nodes, _ROWS):  # The graph may be on disk.
        part = np.asarray(graph.indptr[begin : begin + _ROWS + 1])
        readers = begin + np.repeat(np.arange(len(part) - 1), np.diff(part))
        read = np.asarray(graph.indices[part[0] : part[-1]])
        loops += int(np.count_nonzero(read == readers))
    return (graph.num_edges + loops) // 2


def _edges(graph: "Graph") -> list[str]:
    adjacency = graph.adjacency
    count = count_edges(graph)
    kind = "directed" if graph.directed else "undirected"
    weighted = "" if graph.weights is None else ", weighted"
    linked = sp.csr_array(adjacency + adjacency.T)
    isolated = int(np.count_nonzero(np.diff(linked.indptr) == 0))
    parts, _ = sp.csgraph.connected_components(linked, directed=False)
    return [
        f"{graph.num_nodes} nodes, {count} {kind} edges{weighted}",
        f"  mean degree {graph.num_edges / graph.num_nodes:.1f}, {isolated} isolated "
        f"nodes, {parts} connected components",
    ]


def _labels(graph: "Graph") -> list[str]:
    if not graph.known.any():
        return ["labels: none"]
    counts = graph.labels[graph.known].sum(axis=0, dtype=np.int64)
    pairs = [
        f"{name} {count}"
        for name, count in zip(graph.label_names, counts.tolist(), strict=True)
    ]
    shown = _few(pairs, _CLASSES_SHOWN)
    kind = "labels, several per node" if graph.multilabel else "classes"
    return [
        f"labels: {int(graph.known.sum())} of {graph.num_nodes} nodes",
        f"  {graph.num_labels} {kind}: {shown}",
        *_homophily(graph),
    ]


def _homophily(graph: "Graph") -> list[str]:
    """Return how often edges join nodes that share a label, and chance alone would."""
    readers = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    read = np.asarray(graph.indices)
    both = graph.known[readers] & graph.known[read] & (readers != read)
    if not both.any():
        return ["  no edge joins two labelled nodes"]
    one, other = readers[both], read[both]
    shuffled = np.random.default_rng(0).permutation(other)
    shares = [
        float(np.mean((graph.labels[one] & graph.labels[ends]).any(axis=1)))
        for ends in (other, shuffled)
    ]
    if not graph.multilabel:  # Then it can be computed.
        ends = [graph.labels[nodes].mean(axis=0) for nodes in (one, other)]
        shares[1] = float(ends[0] @ ends[1])
    same = "share a label" if graph.multilabel else "are of the same class"
    return [
        f"  homophily: the ends of {shares[0]:.0%} of the edges between labelled nodes "
        f"{same}; {shares[1]:.0%} by chance"
    ]


def _features(graph: "Graph") -> list[str]:
    kind = "a sparse matrix" if sp.issparse(graph.features) else "a dense matrix"
    lines = [f"features: {graph.num_features} columns, {kind}"]
    if graph.positional:
        lines[0] += ", made from the edges: positions and degrees"
    try:
        decisions = learn_scaling(graph.features, graph.feature_names).describe()
    except ValueError as error:  # All columns are constant.
        decisions = [str(error)]
    return lines + [f"  {decision}" for decision in decisions]


def _split(graph: "Graph") -> list[str]:
    sets = ("train", "validation", "test")
    counts = [(name, int(getattr(graph, name).sum())) for name in sets]
    if not any(count for _, count in counts):
        return ["split: none"]
    return ["split: " + ", ".join(f"{count} {name}" for name, count in counts)]

"""Graphs made here: for timing, for tests, and the paper's chain."""

import types
from collections.abc import Callable, Mapping

import numpy as np

from hopf_jax.graph import Graph, check_number, check_whole, draw_split


def make_random(
    num_nodes: int = 100_000,
    num_edges: int = 500_000,
    num_features: int = 100,
    num_labels: int = 10,
    *,
    seed: int = 0,
) -> Graph:
    """The graph of the paper's run times (and of GCN's): all of it at random.

    `num_edges` distinct undirected edges without loops, uniform; normal features;
    uniform classes. There is nothing to learn in it. Ten million nodes with 50 million
    edges and 10 features took 110 s and at most 5.6 GB; a feature more, 40 MB more.
    """
    _check_sizes(num_nodes, num_edges, num_features, num_labels, seed)
    rng = np.random.default_rng(seed)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.integers(0, num_nodes, count), rng.integers(0, num_nodes, count)

    senders, receivers = _distinct_edges(draw, num_edges, num_nodes)
    features = rng.standard_normal((num_nodes, num_features), np.float32)
    labels = rng.integers(0, num_labels, num_nodes)
    return _graph(senders, receivers, features, labels, num_labels, seed)


def make_planted(
    num_nodes: int = 1000,
    num_edges: int = 4000,
    num_features: int = 16,
    num_labels: int = 4,
    *,
    homophily: float = 0.8,
    noise: float = 1.0,
    seed: int = 0,
) -> Graph:
    """A planted partition: classes of equal size, tied by who links to whom.

    Args:
      homophily: the share of edges within a class, in [0, 1]; 1 / num_labels says
        nothing about the classes.
      noise: the standard deviation, a feature, around a class's centre; centres are
        random directions of length 1. 0 makes the features tell the class.
    """
    _check_sizes(num_nodes, num_edges, num_features, num_labels, seed)
    check_number(homophily, "homophily", lambda h: 0 <= h <= 1, "in [0, 1]")
    check_number(noise, "noise", lambda s: 0 <= s < 1e30, "from 0, below 1e30")
    if num_labels < 2 or num_nodes < 2 * num_labels:
        raise ValueError(
            f"{num_nodes} nodes cannot hold {num_labels} classes; a class needs two "
            "nodes, and a partition two classes."
        )
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(num_nodes) % num_labels)
    order = np.argsort(labels, kind="stable")  # Nodes by class.
    start = np.searchsorted(labels[order], np.arange(num_labels + 1))

    def draw(count: int, shift: bool) -> tuple[np.ndarray, np.ndarray]:
        """Ends in one class, or in two where `shift`."""
        senders = rng.integers(0, num_nodes, count)
        kind = labels[senders]
        if shift:
            kind = (kind + rng.integers(1, num_labels, count)) % num_labels
        return senders, order[rng.integers(start[kind], start[kind + 1])]

    num_within = round(homophily * num_edges)
    inner = int((np.diff(start) * (np.diff(start) - 1) // 2).sum())
    pairs = num_nodes * (num_nodes - 1) // 2
    within = _distinct_edges(lambda c: draw(c, False), num_within, num_nodes, inner)
    between = _distinct_edges(
        lambda c: draw(c, True), num_edges - num_within, num_nodes, pairs - inner
    )
    senders, receivers = np.concatenate([within, between], axis=1)
    centres = rng.standard_normal((num_labels, num_features), np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    features = centres[labels]
    features += noise * rng.standard_normal(features.shape, np.float32)
    return _graph(senders, receivers, features, labels, num_labels, seed)


def make_chain(num_nodes: int = 6) -> Graph:
    """The chain that explains HOPF in the paper: 1 - 2 - ... - 6, attributes A to F.

    Node i has attribute i alone, so what reached a node can be read from its
    aggregate. The first half is one class, the second half another; the ends are
    trained on, their neighbours validate, and the middle is the test.
    """
    if check_whole(num_nodes, "num_nodes") < 5:
        raise ValueError(f"num_nodes is {num_nodes}; a chain with all sets needs 5.")
    nodes = np.arange(num_nodes)
    return Graph.from_edges(
        nodes[:-1],
        nodes[1:],
        np.eye(num_nodes, dtype=np.float32),
        (nodes >= num_nodes / 2).astype(np.int64),
        train=[0, num_nodes - 1],
        validation=[1, num_nodes - 2],
        test=nodes[2:-2],
    )


def _check_sizes(
    num_nodes: int, num_edges: int, num_features: int, num_labels: int, seed: int
) -> None:
    check_whole(num_nodes, "num_nodes", 1)
    check_whole(num_edges, "num_edges")
    check_whole(num_features, "num_features", 1)
    check_whole(num_labels, "num_labels", 1)
    check_whole(seed, "seed")


def _distinct_edges(
    draw: Callable[[int], tuple[np.ndarray, np.ndarray]],
    count: int,
    num_nodes: int,
    possible: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """`count` distinct undirected edges without loops, out of those `draw` draws."""
    if possible is None:
        possible = num_nodes * (num_nodes - 1) // 2
    if not 0 <= count <= possible / 2:
        raise ValueError(
            f"{count} edges of {possible} possible ones were asked for; ask for at "
            "most half of them, or for more nodes."
        )
    edges = np.zeros(0, np.int64)
    while edges.size < count:
        missing = count - edges.size
        first, second = draw(missing + missing // 4 + 16)
        low, high = np.minimum(first, second), np.maximum(first, second)
        drawn = (low * num_nodes + high)[low != high]
        fresh = np.unique(np.concatenate([edges, drawn]), return_index=True)[1]
        # In the order drawn: the smallest would favour low node ids.
        edges = np.concatenate([edges, drawn])[np.sort(fresh)[:count]]
    return edges // num_nodes, edges % num_nodes


def _graph(
    senders: np.ndarray,
    receivers: np.ndarray,
    features: np.ndarray,
    labels: np.ndarray,
    num_labels: int,
    seed: int,
) -> Graph:
    names = [str(c) for c in range(num_labels)]
    masks = draw_split(np.ones(len(labels), bool), seed=seed)
    graph = Graph.from_edges(senders, receivers, features, labels, label_names=names)
    return graph.with_split(**masks)


SYNTHETIC: Mapping[str, Callable[..., Graph]] = types.MappingProxyType(
    {"random": make_random, "planted": make_planted, "chain": make_chain}
)

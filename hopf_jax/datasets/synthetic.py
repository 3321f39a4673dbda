"""Synthetic graphs."""

import os
import pathlib
import types
from collections.abc import Callable, Mapping

import numpy as np

from hopf_jax.config import Number
from hopf_jax.graph import (
    Graph,
    check_value,
    check_whole,
    new_graph_folder,
    paper_masks,
)
from hopf_jax.runtime import create_npy

_EDGES_AT_ONCE = 1 << 22
_FAR = 1e-3  # Share of edges between any two nodes, where most are between near ones.
_ROWS_AT_ONCE = 1 << 18


def make_random(
    num_nodes: int = 100_000,
    num_edges: int = 500_000,
    num_features: int = 100,
    num_labels: int = 10,
    *,
    seed: int = 0,
) -> Graph:
    """Make a graph with nothing to learn, on which the paper measures run times.

    Its `num_edges` undirected edges are distinct, uniform and without loops; features
    are normal, classes uniform.
    """
    _check_sizes(num_nodes, num_edges, num_features, num_labels, seed)
    rng = np.random.default_rng(seed)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.integers(0, num_nodes, count), rng.integers(0, num_nodes, count)

    possible = num_nodes * (num_nodes - 1) // 2
    edges = _distinct_edges(draw, num_edges, num_nodes, possible)
    features = rng.standard_normal((num_nodes, num_features), np.float32)
    labels = rng.integers(0, num_labels, num_nodes)
    return _split(edges, features, labels, num_labels, seed)


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
    """Make a planted partition: classes of equal size, with edges mostly within them.

    Args:
      num_nodes: Number of nodes, at least two per class.
      num_edges: Number of undirected edges, at most half of the possible ones.
      num_features: Number of features.
      num_labels: Number of classes, 2 or more.
      homophily: Share of edges within a class, from 0 to 1; with 1 / num_labels edges
        say nothing about the classes.
      noise: Standard deviation of each feature around the centre of its class; centres
        are random directions of length 1.
      seed: Seed of the graph and of its split.
    """
    _check_sizes(num_nodes, num_edges, num_features, num_labels, seed)
    check_value(homophily, "homophily", Number(0, 1))
    check_value(noise, "noise", Number(0, 1e30, open_above=True))
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
        """Draw edges within a class, or between two if `shift`."""
        senders = rng.integers(0, num_nodes, count)
        kind = labels[senders]
        if shift:
            kind = (kind + rng.integers(1, num_labels, count)) % num_labels
        return senders, order[rng.integers(start[kind], start[kind + 1])]

    num_within = round(homophily * num_edges)
    inner = int((np.diff(start) * (np.diff(start) - 1) // 2).sum())
    outer = num_nodes * (num_nodes - 1) // 2 - inner
    within = _distinct_edges(lambda c: draw(c, False), num_within, num_nodes, inner)
    between = _distinct_edges(
        lambda c: draw(c, True), num_edges - num_within, num_nodes, outer
    )
    edges = np.concatenate([within, between], axis=1)
    centres = rng.standard_normal((num_labels, num_features), np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    features = centres[labels]
    features += noise * rng.standard_normal(features.shape, np.float32)
    return _split(edges, features, labels, num_labels, seed)


def make_chain(num_nodes: int = 6) -> Graph:
    """Make the chain that explains HOPF in the paper: 1 - 2 - ... - 6.

    Node i has feature i alone, so that its aggregate shows which nodes it has read. The
    two halves are two classes. The ends are training nodes, their neighbours validation
    nodes, the others test nodes.
    """
    check_whole(num_nodes, "num_nodes", 5)
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


SYNTHETIC: Mapping[str, Callable[..., Graph]] = types.MappingProxyType(
    {"random": make_random, "planted": make_planted, "chain": make_chain}
)


def write_random(
    folder: str | os.PathLike,
    num_nodes: int = 10_000_000,
    num_edges: int = 50_000_000,
    num_features: int = 16,
    num_labels: int = 5,
    *,
    num_train: int = 100_000,
    num_validation: int = 10_000,
    reach: int | None = None,
    seed: int = 0,
) -> None:
    """Write a random graph for `hopf_jax.open_graph` that may be larger than memory.

    Edges are drawn with replacement; loops and repetitions are then left out. Features
    are normal, with a mean per class. Only pieces of the graph and a few arrays [N] are
    in memory at any time.

    With `reach` most edges are between nodes whose ids differ by so much in the mean,
    as in graphs that were numbered by a crawl, and one in a thousand between any two.
    """
    sets = num_train + num_validation
    if num_nodes < 2 or num_labels < 1 or not 0 < num_train < sets <= num_nodes:
        raise ValueError(
            f"{num_nodes} nodes, {num_labels} labels, {num_train} training and "
            f"{num_validation} validation nodes: give at least two nodes and one "
            "label, and no more nodes to the sets than there are."
        )
    rng = np.random.default_rng(seed)
    with new_graph_folder(
        folder,
        num_features=num_features,
        multilabel=False,
        label_names=tuple(map(str, range(num_labels))),
        directed=False,
    ) as made:
        _write_edges(made, num_nodes, num_edges, reach, rng)
        labels = rng.integers(0, num_labels, num_nodes)
        centres = rng.standard_normal((num_labels, num_features), np.float32)
        features = create_npy(
            made / "features.npy", np.float32, (num_nodes, num_features)
        )
        one_hot = create_npy(made / "labels.npy", np.uint8, (num_nodes, num_labels))
        for start in range(0, num_nodes, _ROWS_AT_ONCE):
            kinds = labels[start : start + _ROWS_AT_ONCE]
            noise = rng.standard_normal((len(kinds), num_features), np.float32)
            features[start : start + len(kinds)] = centres[kinds] + noise
            one_hot[start : start + len(kinds)] = np.eye(num_labels)[kinds]
        order = rng.permutation(num_nodes)
        chosen = {"train": order[:num_train], "validation": order[num_train:sets]}
        chosen |= {"test": order[sets:][:num_validation], "known": order}
        for name, nodes in chosen.items():
            mask = np.zeros(num_nodes, bool)
            mask[nodes] = True
            np.save(made / f"{name}.npy", mask)


def _write_edges(
    folder: pathlib.Path,
    num_nodes: int,
    num_edges: int,
    reach: int | None,
    rng: np.random.Generator,
) -> None:
    """Write the CSR rows of random edges; files of some receivers each are sorted."""
    count = max(1, -(-2 * num_edges // _EDGES_AT_ONCE))
    width = -(-num_nodes // count)  # Number of receivers per file.
    paths = [folder / f"arcs-{i}" for i in range(count)]
    for start in range(0, num_edges, _EDGES_AT_ONCE):
        drawn = min(_EDGES_AT_ONCE, num_edges - start)
        ends = rng.integers(0, num_nodes, (2, drawn), dtype=np.int64)
        if reach is not None:
            near = rng.random(drawn) >= _FAR
            ends[1, near] = ends[0, near] + rng.geometric(1 / reach, near.sum())
            ends[1] %= num_nodes
        ends = ends[:, ends[0] != ends[1]]
        arcs = np.concatenate([ends, ends[::-1]], axis=1)
        arcs = arcs[:, np.argsort(arcs[1] // width, kind="stable")]
        bounds = np.searchsorted(arcs[1] // width, np.arange(count + 1))
        for i, path in enumerate(paths):
            part = arcs[:, bounds[i] : bounds[i + 1]]
            with open(path, "ab") as file:
                file.write((part[1] * num_nodes + part[0]).tobytes())
    indptr = np.zeros(num_nodes + 1, np.int64)
    for i, path in enumerate(paths):
        path.touch()  # Without edges there is no file.
        arcs = np.unique(np.fromfile(path, np.int64))
        arcs.tofile(path)
        lengths = np.bincount(arcs // num_nodes - i * width)
        indptr[i * width + 1 :][: len(lengths)] = lengths
    np.cumsum(indptr, out=indptr)
    np.save(folder / "indptr.npy", indptr)
    indices = create_npy(folder / "indices.npy", np.int32, (int(indptr[-1]),))
    start = 0
    for path in paths:
        arcs = np.fromfile(path, np.int64)
        indices[start : start + len(arcs)] = arcs % num_nodes
        start += len(arcs)
        path.unlink()


def _check_sizes(*values: int) -> None:
    names = ("num_nodes", "num_edges", "num_features", "num_labels", "seed")
    for value, name, least in zip(values, names, (1, 0, 1, 1, 0), strict=True):
        check_whole(value, name, least)


def _distinct_edges(
    draw: Callable[[int], tuple[np.ndarray, np.ndarray]],
    count: int,
    num_nodes: int,
    possible: int,
) -> np.ndarray:
    """Return `count` distinct undirected edges [2, E], without loops, out of `draw`."""
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
    return np.stack([edges // num_nodes, edges % num_nodes])


def _split(
    edges: np.ndarray,
    features: np.ndarray,
    labels: np.ndarray,
    num_labels: int,
    seed: int,
) -> Graph:
    names = tuple(map(str, range(num_labels)))
    graph = Graph.from_edges(edges[0], edges[1], features, labels, label_names=names)
    return graph.with_split(**paper_masks(graph.known, seed=seed))

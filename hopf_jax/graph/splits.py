"""Random splits: of the labelled nodes, by shares; and as in the paper."""

import math

import numpy as np
import scipy.sparse as sp

from hopf_jax.config import Choice, Number, check
from hopf_jax.graph.graph import SPLITS, Graph
from hopf_jax.graph.validation import check_nodes, check_value, check_whole, to_array
from hopf_jax.suggestions import answering_typos

_FOLDS = 5
_MOST_CROSS_VALIDATED = (
    2000  # Labelled nodes; with more, one set for validation will do.
)
_TEST_SHARE = 0.2  # Of all nodes.
_VALIDATION_SHARE = 0.2  # Of the nodes drawn for training and validation.
_SORTED_BY = 3  # Number of a node's labels that it is sorted by.


def paper_masks(
    known: np.ndarray,
    *,
    percent: float = 10,
    fold: int = 1,
    seed: int = 0,
    test: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Draw the masks [N] of the paper's split: "train", "validation" and "test".

    A fifth of all nodes is drawn for testing. Of the `percent` that is drawn from the
    rest, a fifth is for validation. Numbers of nodes are rounded down, as in the
    authors' files, but no set is empty. Test nodes depend on `seed` alone.

    Args:
      known: Mask [N] of the nodes that have a label; only these are drawn.
      percent: Share of all nodes for training and validation together.
      fold: Number of the fold, 1 or more; the paper uses five.
      seed: Seed of the random draws, 0 or more.
      test: Mask [N] or node ids to test on, instead of drawing them.

    >>> masks = paper_masks(np.ones(100, bool))
    >>> {name: int(mask.sum()) for name, mask in masks.items()}
    {'train': 8, 'validation': 2, 'test': 20}
    """
    known = to_array(known, "known")
    if known.ndim != 1 or (known.size and known.dtype != bool):
        raise ValueError(
            f"known has dtype {known.dtype} and shape {known.shape}; give a mask [N], "
            "true where a node has a label."
        )
    known = known.astype(bool)
    check_draw(percent, fold, seed)
    num_nodes = known.size
    if test is None:
        nodes = np.random.default_rng([seed, 0]).permutation(np.flatnonzero(known))
        test = nodes[: _share(_TEST_SHARE, num_nodes)]
    test = check_nodes(test, num_nodes, "test")
    rest = np.flatnonzero(known & ~test)
    num_validation = _share(percent / 100 * _VALIDATION_SHARE, num_nodes)
    num_train = _share(percent / 100 * (1 - _VALIDATION_SHARE), num_nodes)
    if num_train + num_validation > rest.size:
        raise ValueError(
            f"percent is {percent}: {num_train + num_validation} of {num_nodes} nodes, "
            f"but only {rest.size} labelled nodes are not test nodes. Lower it."
        )
    drawn = np.random.default_rng([seed, fold]).permutation(rest)
    train, validation, _ = np.split(drawn, [num_train, num_train + num_validation])
    return {
        "train": check_nodes(train, num_nodes, "train"),
        "validation": check_nodes(validation, num_nodes, "validation"),
        "test": test,
    }


def check_draw(percent: float, fold: int, seed: int) -> None:
    """Raise `ValueError` for the first argument of `paper_masks` out of range."""
    check_value(percent, "percent", Number(0, 100, open_below=True))
    check_whole(fold, "fold", 1)
    check_whole(seed, "seed")


def paper_split(
    graph: Graph, *, percent: float = 10, fold: int = 1, seed: int = 0
) -> Graph:
    """Return the graph with a random split as in the paper.

    A fifth of all nodes is drawn for testing. Of the `percent` drawn from the rest, a
    fifth is for validation. This is meant for comparison with published scores, and
    leaves most labels unused; `split_graph` uses all of them.

    Args:
      graph: A graph with labels; only labelled nodes are drawn.
      percent: Percentage of all nodes for training and validation together.
      fold: Number of the fold, 1 or more; the paper uses five. All have the same test
        nodes.
      seed: Seed of the random draws, 0 or more.
    """
    _check_graph(graph)
    masks = paper_masks(graph.known, percent=percent, fold=fold, seed=seed)
    return graph.with_split(**masks)


@answering_typos
def split_graph(
    graph: Graph,
    *,
    train: float = 0.8,
    validation: float = 0.2,
    test: float = 0.0,
    seed: int = 0,
    stratified: bool = True,
) -> Graph:
    """Return the graph with its labelled nodes split at random.

    Every set with a share above 0 gets at least one node, if there are enough. The
    choice of test nodes depends only on `seed` and `test`.

    Args:
      graph: A graph with labels; nodes without one are in no set.
      train, validation, test: Shares of the labelled nodes, each from 0 to 1, which add
        up to 1 at most.
      seed: Seed of the random draws, 0 or more.
      stratified: Spread every class evenly over the sets, with at least one node of
        each class in the training set. False to ignore labels.

    >>> labels = [0] * 60 + [1] * 40 + [-1] * 900
    >>> graph = Graph.from_edges([], [], np.ones((1000, 1)), labels)
    >>> split_graph(graph, train=0.6, test=0.2)
    Graph(1000 nodes, 0 undirected edges, 1 features, 2 classes; 100 nodes labelled, 60 train, 20 validation, 20 test)
    """  # noqa: E501
    _check_graph(graph)
    shares = {"train": train, "validation": validation, "test": test}
    sizes = _sizes(shares, _count_labelled(graph))
    check_whole(seed, "seed")
    check(Choice((True, False)), "stratified", stratified)
    left = np.flatnonzero(graph.known)
    drawn = {}
    for place, name in enumerate(("test", "validation", "train")):
        rng = np.random.default_rng([seed, place, 1])
        keep = name == "train" if sizes["train"] else None
        nodes = _draw(graph, left, sizes[name], rng, stratified, keep)
        left = np.setdiff1d(left, nodes, assume_unique=True)
        drawn[name] = _mask(graph, nodes)
    return graph.with_split(**drawn)


def _mask(graph: Graph, nodes: np.ndarray) -> np.ndarray:
    """Return ids as a mask [N]: numbers may be names of other nodes."""
    mask = np.zeros(graph.num_nodes, bool)
    mask[nodes] = True
    return mask


def draw_folds(
    graph: Graph, count: int, *, share: float | None = None, seed: int = 0
) -> tuple[Graph, ...]:
    """Return stratified splits with the same test nodes and different training nodes.

    Args:
      graph: A graph with labels. Its test nodes, if it has any, are kept; otherwise a
        fifth of the labelled nodes is drawn for testing.
      count: Number of splits, 1 or more.
      share: Share of the labelled nodes for training and validation together, a fifth
        of which are for validation. None for as many as in the graph's own split, or
        for all but the test nodes if it has none.
      seed: Seed of the random draws, 0 or more.
    """
    _check_graph(graph)
    check_whole(count, "count", 1)
    total = _count_labelled(graph)
    own = graph.train | graph.validation
    if not graph.test.any():
        drawn = split_graph(graph, test=_TEST_SHARE, validation=0, seed=seed)
        graph = graph.with_split(test=drawn.test)
    pool = np.flatnonzero(graph.known & ~graph.test)
    size = min(int(own.sum()), pool.size) if own.any() else pool.size
    if share is not None:
        size = _sizes({"share": share}, total)["share"]
        if not 0 < size <= pool.size:
            raise ValueError(
                f"share is {share}: {size} of {total} labelled nodes, but {pool.size} "
                "of them are not test nodes. Lower it."
            )
    check_whole(seed, "seed")
    folds = []
    for fold in range(1, count + 1):
        rng = np.random.default_rng([seed, fold, 2])
        both = _draw(graph, pool, size, rng, True, True)
        held = _draw(graph, both, _rounded(_VALIDATION_SHARE, size), rng, True, False)
        learned = np.setdiff1d(both, held, assume_unique=True)
        sets = _mask(graph, learned), _mask(graph, held), graph.test
        folds.append(graph.with_split(*sets))
    return tuple(folds)


def stratified_folds(
    graph: Graph, nodes: np.ndarray, count: int, seed: int
) -> np.ndarray:
    """Return the fold of each node, 0 to `count` - 1, and -1 for nodes not in `nodes`.

    Folds differ by one node at most, and so do the numbers of nodes of a class. With
    several labels per node, the rarest are spread first.

    Args:
      graph: A graph with labels.
      nodes: Mask [N] or ids of labelled nodes, at least `count` of them.
      count: Number of folds, 1 or more.
      seed: Seed of the random draws, 0 or more.

    >>> graph = Graph.from_edges([], [], np.ones((6, 1)), [0, 0, 1, 1, 1, 1])
    >>> stratified_folds(graph, graph.known, 2, seed=0).tolist()
    [1, 0, 0, 0, 1, 1]
    """
    chosen = np.flatnonzero(check_nodes(nodes, graph.num_nodes, "nodes"))
    check_whole(count, "count", 1)
    check_whole(seed, "seed")
    if chosen.size < count:
        raise ValueError(
            f"{count} folds need {count} labelled nodes at least, but the graph has "
            f"{chosen.size}. Label more{', or ask for fewer folds' * (count > 2)}."
        )
    folds = np.full(graph.num_nodes, -1)
    order = _spread(graph, chosen, np.random.default_rng([seed, 3]))
    folds[order] = np.arange(chosen.size) % count
    return folds


def decode_split(codes: np.ndarray) -> dict[str, np.ndarray]:
    """Return masks [N] from one code per node: 1 training, 2 validation, 3 test."""
    return {name: codes == code for code, name in enumerate(SPLITS, start=1)}


def _share(share: float, num_nodes: int) -> int:
    # 0.29 * 100 is 28.999999999999996: round before rounding down.
    return max(1, math.floor(round(share * num_nodes, 6)))


def _check_graph(graph: Graph) -> None:
    if not isinstance(graph, Graph):
        raise ValueError(f"graph is a {type(graph).__name__}; give a hopf_jax.Graph.")


def _count_labelled(graph: Graph) -> int:
    count = int(graph.known.sum())
    if not count:
        raise ValueError("The graph has no labelled nodes to split. Give it labels.")
    return count


def _sizes(shares: dict[str, float], total: int) -> dict[str, int]:
    """Return the number of nodes of each set; shares that add up to 1 use all nodes."""
    for name, share in shares.items():
        if isinstance(share, np.integer | np.floating):
            share = share.item()
        if not Number(0, 1).accepts(share):
            like = share / 100 if Number(1, 100).accepts(share) else 0.8
            raise ValueError(
                f"{name} is {share!r}; give a share of the labelled nodes between 0 "
                f"and 1, such as {like:g}."
            )
    whole = sum(shares.values())
    if whole > 1 + 1e-9:
        listed = ", ".join(f"{name} {share:g}" for name, share in shares.items())
        raise ValueError(
            f"{listed} add up to {whole:g} of the labelled nodes; lower one of them, "
            "so that they add up to 1 at most."
        )
    sizes = {name: _rounded(share, total) for name, share in shares.items()}
    first = next(iter(sizes))
    others = sum(sizes.values()) - sizes[first]
    if sizes[first]:
        left = max(1, total - others)
        sizes[first] = left if whole > 1 - 1e-9 else min(sizes[first], left)
    return sizes


def _rounded(share: float, total: int) -> int:
    """Return the nearest number of nodes; 1 at least if the share is above 0."""
    return max(math.floor(share * total + 0.5 + 1e-9), int(share > 0))


def _draw(
    graph: Graph,
    nodes: np.ndarray,
    count: int,
    rng: np.random.Generator,
    stratified: bool,
    covers: bool | None,
) -> np.ndarray:
    """Draw `count` of these nodes, or as many as there are.

    Args:
      graph: The graph that they are of.
      nodes: Ids.
      count: Number of nodes to draw.
      rng: Random number generator.
      stratified: Draw evenly from every class.
      covers: True if the nodes drawn must have every label that `nodes` have; False if
        those left must; None if neither.
    """
    if not stratified:
        return rng.permutation(nodes)[:count]
    order = _spread(graph, nodes, rng)
    needed = order[:0] if covers is None else _cover(graph, order)
    others = order[~np.isin(order, needed)]
    if not covers:
        return _every_so_many(others, count, rng)
    more = max(0, count - needed.size)
    return np.concatenate([needed, _every_so_many(others, more, rng)])


def _every_so_many(
    order: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Return `count` entries at equal distances, from a random start.

    A run of r entries out of n contributes r * count / n of them, rounded up or down.
    """
    count = min(count, order.size)
    places = (np.arange(count) + rng.random()) * (order.size / max(1, count))
    return order[np.minimum(places.astype(np.int64), order.size - 1)]


def _spread(graph: Graph, nodes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the nodes in a random order that puts those of one class side by side.

    With several labels per node, nodes are sorted by their rarest label, then by the
    next ones (iterative stratification, Sechidis et al. 2011, without its recounts).
    """
    nodes = rng.permutation(nodes)
    labels = graph.labels[nodes]
    if not graph.multilabel:
        kinds = rng.permutation(graph.num_labels)[labels.argmax(axis=1)]
        return nodes[np.argsort(kinds, kind="stable")]
    by_rarity = np.argsort(labels.sum(axis=0, dtype=np.int64), kind="stable")
    matrix = sp.csr_array(labels[:, by_rarity])
    matrix.sort_indices()
    held = np.diff(matrix.indptr)
    keys = []
    for place in range(min(_SORTED_BY, graph.num_labels)):
        key = np.full(nodes.size, graph.num_labels)
        some = held > place
        key[some] = matrix.indices[matrix.indptr[:-1][some] + place]
        keys.append(key)
    return nodes[np.lexsort(keys[::-1])] if keys else nodes


def _cover(graph: Graph, nodes: np.ndarray) -> np.ndarray:
    """Return some of these nodes that have every label that any of them has."""
    labels = graph.labels[nodes]
    if not graph.multilabel:
        return nodes[np.unique(labels.argmax(axis=1), return_index=True)[1]]
    by_label = sp.csc_array(labels)
    counts = np.diff(by_label.indptr)
    covered = counts == 0
    chosen = []
    for label in np.argsort(counts, kind="stable"):  # The rarest have least choice.
        if not covered[label]:
            chosen.append(by_label.indices[by_label.indptr[label]])
            covered |= labels[chosen[-1]] > 0
    return nodes[np.array(chosen, np.int64)]


def complete_split(
    graph: Graph, folds: int | None, seed: int, *, pool: bool = False
) -> tuple[Graph, int, str]:
    """Return a graph that `fit` can learn from, the number of folds, and a sentence.

    Without training nodes, all labelled nodes that are not for testing are learned
    from. Without validation nodes they are cross-validated, if they are few, or a fifth
    of them is drawn for validation. The sentence says what was done, or is empty.

    Args:
      graph: A graph.
      folds: Number of folds; None to choose it.
      seed: Seed of the random draws.
      pool: Cross-validate training and validation nodes together, if they are few.
    """
    train, validation = graph.train, graph.validation
    if not train.any():
        train = graph.known & ~validation & ~graph.test
    labelled = train | validation
    count = int(labelled.sum())
    if folds is None:
        few = 2 <= count <= _MOST_CROSS_VALIDATED
        folds = min(_FOLDS, count) if few and (pool or not validation.any()) else 0
    if folds:
        graph = graph.with_split(labelled, test=graph.test)
        return (
            graph,
            folds,
            f"{folds}-fold cross-validation over {count} labelled nodes.",
        )
    if validation.any() or count < 2:
        same = not count or graph.train.any()
        return (
            (graph if same else graph.with_split(train, validation, graph.test)),
            0,
            "",
        )
    drawn = stratified_folds(graph, train, _FOLDS if count >= _FOLDS else 2, seed) == 0
    graph = graph.with_split(train & ~drawn, drawn, graph.test)
    held = int(drawn.sum())
    said = f"{count - held} labelled nodes to learn from, {held} for validation."
    return graph, 0, said

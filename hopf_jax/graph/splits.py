"""Random splits as in the paper."""

import math

import numpy as np

from hopf_jax.config import Number
from hopf_jax.graph.graph import SPLITS, Graph
from hopf_jax.graph.validation import check_nodes, check_value, check_whole, to_array

_TEST_SHARE = 0.2  # Of all nodes.
_VALIDATION_SHARE = 0.2  # Of the nodes drawn for training and validation.


def draw_split(
    known: np.ndarray,
    *,
    percent: float = 10,
    fold: int = 1,
    seed: int = 0,
    test: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Draw the masks [N] of a split: "train", "validation" and "test".

    A fifth of all nodes is drawn for testing. Of the `percent` that is drawn from the
    rest, a fifth is for validation. Numbers of nodes are rounded down, as in the
    authors' files, but no set is empty. Test nodes depend on `seed` alone.

    Args:
      known: Mask [N] of the nodes that have a label; only these are drawn.
      percent: Share of all nodes for training and validation together.
      fold: Number of the fold, 1 or more; the paper uses five.
      seed: Seed of the random draws, 0 or more.
      test: Mask [N] or node ids to test on, instead of drawing them.

    >>> masks = draw_split(np.ones(100, bool))
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
    """Raise `ValueError` for the first argument of `draw_split` out of range."""
    check_value(percent, "percent", Number(0, 100, open_below=True))
    check_whole(fold, "fold", 1)
    check_whole(seed, "seed")


def split_graph(
    graph: Graph, *, percent: float = 10, fold: int = 1, seed: int = 0
) -> Graph:
    """Return the graph with a random split; see `draw_split`."""
    if not isinstance(graph, Graph):
        raise ValueError(f"graph is a {type(graph).__name__}; give a hopf_jax.Graph.")
    masks = draw_split(graph.known, percent=percent, fold=fold, seed=seed)
    return graph.with_split(**masks)


def decode_split(codes: np.ndarray) -> dict[str, np.ndarray]:
    """Return masks [N] from one code per node: 1 training, 2 validation, 3 test."""
    return {name: codes == code for code, name in enumerate(SPLITS, start=1)}


def _share(share: float, num_nodes: int) -> int:
    # 0.29 * 100 is 28.999999999999996: round before rounding down.
    return max(1, math.floor(round(share * num_nodes, 6)))

"""The paper's splits: 20% of all nodes to test on, 10% to learn from, a fifth of it
held for validation."""

import math

import numpy as np

from hopf_jax.graph.graph import Graph
from hopf_jax.graph.validation import check_nodes, check_number, check_whole, to_array

TEST_SHARE = 0.2
VALIDATION_SHARE = 0.2  # Of the labelled nodes given to a model.


def draw_split(
    known: np.ndarray,
    *,
    percent: float = 10,
    fold: int = 1,
    seed: int = 0,
    test: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Masks train, validation and test [N], drawn as the paper says.

    Shares are of all nodes and rounded down, as in the authors' files, but no set is
    empty. The test nodes depend on `seed` alone, and are the same for every `fold` and
    `percent`; the fold's labelled nodes are drawn from the rest.

    Args:
      known: [N], the nodes that have a label; only these are drawn.
      percent: of all nodes, for training and validation together.
      fold: 1, 2, ...; the paper uses five.
      test: a mask to use instead of drawing one.

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
    if test is not None:
        test = check_nodes(test, num_nodes, "test")
    else:
        nodes = np.random.default_rng([seed, 0]).permutation(np.flatnonzero(known))
        test = np.zeros(num_nodes, bool)
        test[nodes[: _share(TEST_SHARE, num_nodes)]] = True
    rest = np.flatnonzero(known & ~test)
    num_validation = _share(percent / 100 * VALIDATION_SHARE, num_nodes)
    num_train = _share(percent / 100 * (1 - VALIDATION_SHARE), num_nodes)
    if num_train + num_validation > rest.size:
        raise ValueError(
            f"percent is {percent}: {num_train + num_validation} of {num_nodes} nodes, "
            f"but only {rest.size} labelled nodes are not test nodes. Ask for less."
        )
    drawn = np.random.default_rng([seed, fold]).permutation(rest)
    train, validation = np.zeros(num_nodes, bool), np.zeros(num_nodes, bool)
    train[drawn[:num_train]] = True
    validation[drawn[num_train : num_train + num_validation]] = True
    return {"train": train, "validation": validation, "test": test}


def check_draw(percent: float, fold: int, seed: int) -> None:
    """What a split can be drawn by."""
    check_number(percent, "percent", lambda p: 0 < p <= 100, "in (0, 100]")
    check_whole(fold, "fold", 1)
    check_whole(seed, "seed")


def split_graph(
    graph: Graph, *, percent: float = 10, fold: int = 1, seed: int = 0
) -> Graph:
    """The graph with a split drawn as the paper says; see `draw_split`."""
    if not isinstance(graph, Graph):
        raise ValueError(f"graph is a {type(graph).__name__}; give a hopf_jax.Graph.")
    masks = draw_split(graph.known, percent=percent, fold=fold, seed=seed)
    return graph.with_split(**masks)


def decode_split(codes: np.ndarray) -> dict[str, np.ndarray]:
    """Masks from a code a node: 1 training, 2 validation, 3 test."""
    return {
        name: codes == code
        for code, name in enumerate(("train", "validation", "test"), start=1)
    }


def _share(share: float, num_nodes: int) -> int:
    # 0.29 * 100 is 28.999999999999996: round before rounding down.
    return max(1, math.floor(round(share * num_nodes, 6)))

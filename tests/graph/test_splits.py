"""Random splits: shares, folds, seeds."""

import numpy as np
import pytest

from hopf_jax.datasets import make_planted
from hopf_jax.graph import draw_split, split_graph


def sizes(masks):
    return tuple(int(masks[s].sum()) for s in ("train", "validation", "test"))


@pytest.mark.parametrize(
    ("num_nodes", "expected"),
    [
        (2708, (216, 54, 541)),
        (16553, (1324, 331, 3310)),
        (1240, (99, 24, 248)),
        (56944, (4555, 1138, 11388)),
    ],
)
def test_shares_are_those_of_the_authors_files(num_nodes, expected):
    assert sizes(draw_split(np.ones(num_nodes, bool))) == expected


def test_test_nodes_are_fixed_and_folds_differ():
    known = np.ones(1000, bool)
    folds = [draw_split(known, fold=fold) for fold in range(1, 6)]
    for masks in folds:
        np.testing.assert_array_equal(masks["test"], folds[0]["test"])
        assert (sum(m.astype(int) for m in masks.values()) <= 1).all()
    assert len({m["train"].tobytes() for m in folds}) == 5
    other = draw_split(known, percent=40)
    np.testing.assert_array_equal(other["test"], folds[0]["test"])
    assert sizes(other) == (320, 80, 200)
    assert (draw_split(known, seed=1)["test"] != folds[0]["test"]).any()
    again = draw_split(known)
    assert all((again[s] == folds[0][s]).all() for s in again)


def test_only_labelled_nodes_are_drawn():
    known = np.arange(100) % 2 == 0
    masks = draw_split(known, percent=20)
    assert sizes(masks) == (16, 4, 20)
    assert not any((mask & ~known).any() for mask in masks.values())


@pytest.mark.parametrize("test", [np.arange(50) < 10, range(10)])
def test_a_given_test_set_is_kept(test):
    masks = draw_split(np.ones(50, bool), test=test)
    np.testing.assert_array_equal(np.flatnonzero(masks["test"]), range(10))
    assert sizes(masks) == (4, 1, 10)


def test_no_set_is_empty_in_a_small_graph():
    assert sizes(draw_split(np.ones(6, bool))) == (1, 1, 1)


def test_split_graph():
    graph = split_graph(make_planted(), percent=30, fold=2)
    assert sizes(vars(graph)) == (240, 60, 200)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"percent": 0}, "percent is 0"),
        ({"percent": 90}, "only 80 labelled nodes are not test nodes"),
        ({"fold": 0}, "fold is 0"),
        ({"fold": 1.5}, "fold is 1.5"),
    ],
)
def test_impossible_splits(arguments, message):
    with pytest.raises(ValueError, match=message):
        draw_split(np.ones(100, bool), **arguments)

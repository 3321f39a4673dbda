"""Random splits: of labelled nodes by shares, in folds, and as in the paper."""

import numpy as np
import pytest

from hopf_jax.datasets import make_planted
from hopf_jax.graph import (
    Graph,
    draw_folds,
    paper_masks,
    paper_split,
    split_graph,
    stratified_folds,
)


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
    assert sizes(paper_masks(np.ones(num_nodes, bool))) == expected


def test_test_nodes_are_fixed_and_folds_differ():
    known = np.ones(1000, bool)
    folds = [paper_masks(known, fold=fold) for fold in range(1, 6)]
    for masks in folds:
        np.testing.assert_array_equal(masks["test"], folds[0]["test"])
        assert (sum(m.astype(int) for m in masks.values()) <= 1).all()
    assert len({m["train"].tobytes() for m in folds}) == 5
    other = paper_masks(known, percent=40)
    np.testing.assert_array_equal(other["test"], folds[0]["test"])
    assert sizes(other) == (320, 80, 200)
    assert (paper_masks(known, seed=1)["test"] != folds[0]["test"]).any()
    again = paper_masks(known)
    assert all((again[s] == folds[0][s]).all() for s in again)


def test_only_labelled_nodes_are_drawn():
    known = np.arange(100) % 2 == 0
    masks = paper_masks(known, percent=20)
    assert sizes(masks) == (16, 4, 20)
    assert not any((mask & ~known).any() for mask in masks.values())


@pytest.mark.parametrize("test", [np.arange(50) < 10, range(10)])
def test_a_given_test_set_is_kept(test):
    masks = paper_masks(np.ones(50, bool), test=test)
    np.testing.assert_array_equal(np.flatnonzero(masks["test"]), range(10))
    assert sizes(masks) == (4, 1, 10)


def test_no_set_is_empty_in_a_small_graph():
    assert sizes(paper_masks(np.ones(6, bool))) == (1, 1, 1)


def test_paper_split():
    graph = paper_split(make_planted(), percent=30, fold=2)
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
        paper_masks(np.ones(100, bool), **arguments)


def bare(labels):
    """A graph without edges."""
    labels = np.asarray(labels)
    many = True if labels.ndim == 2 else None
    return Graph.from_edges([], [], np.ones((len(labels), 1)), labels, multilabel=many)


def unbalanced(num_nodes=1000, num_labelled=100):
    """Four classes, of which the rarest has one labelled node."""
    rng = np.random.default_rng(0)
    counts = np.array([num_labelled - 36, 30, 5, 1])
    labels = np.full(num_nodes, -1)
    labels[rng.permutation(num_nodes)[:num_labelled]] = np.repeat(range(4), counts)
    return bare(labels), counts


def by_class(graph, name):
    return graph.labels[getattr(graph, name)].sum(axis=0, dtype=int).tolist()


def test_shares_are_of_labelled_nodes_and_classes_are_spread():
    graph, counts = unbalanced()
    split = split_graph(graph, train=0.6, validation=0.2, test=0.2)
    assert sizes(vars(split)) == (60, 20, 20)
    for name, share in (("train", 0.6), ("validation", 0.2), ("test", 0.2)):
        found = np.array(by_class(split, name))
        assert (np.abs(found - share * counts) <= 1.5).all()
    assert by_class(split, "train")[3] == 1
    unstratified = split_graph(graph, stratified=False)
    assert sizes(vars(unstratified)) == (80, 20, 0)


def test_the_default_uses_all_labels_and_draws_no_test_nodes():
    split = split_graph(unbalanced()[0])
    assert sizes(vars(split)) == (80, 20, 0)
    np.testing.assert_array_equal(split.train | split.validation, split.known)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([0, 1, 1, -1, -1], (2, 1, 0)),
        ([0, 1, 2, -1, -1], (3, 0, 0)),  # Every class is in training first.
        ([0, 0], (1, 1, 0)),
        ([0, -1], (1, 0, 0)),
        ([0] * 5 + [1] * 5 + [2] * 5, (12, 3, 0)),
    ],
)
def test_few_labels(labels, expected):
    split = split_graph(bare(labels))
    assert sizes(vars(split)) == expected
    assert set(np.flatnonzero(split.labels[split.train].any(axis=0))) == {
        label for label in labels if label >= 0
    }


def test_more_classes_than_training_nodes_asked_for():
    split = split_graph(bare(np.arange(40) % 20), train=0.1, validation=0.2)
    assert by_class(split, "train") == [1] * 20
    assert split.validation.sum() == 8


def test_test_nodes_depend_on_the_seed_alone():
    graph, _ = unbalanced()
    first = split_graph(graph, train=0.6, validation=0.2, test=0.2)
    other = split_graph(graph, train=0.3, validation=0.1, test=0.2)
    np.testing.assert_array_equal(first.test, other.test)
    again = split_graph(graph, train=0.6, validation=0.2, test=0.2, seed=1)
    assert (again.test != first.test).any() and (again.train != first.train).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"train": 80},
            "train is 80; give a share of the labelled nodes between 0 and 1, "
            r"such as 0.8\.",
        ),
        ({"validation": -0.1}, "validation is -0.1"),
        ({"test": True}, "test is True"),
        ({"test": np.nan}, "test is nan"),
        ({"test": 0.2}, "train 0.8, validation 0.2, test 0.2 add up to 1.2"),
        ({"seed": -1}, "seed is -1"),
        ({"stratified": "yes"}, "stratified is 'yes'"),
    ],
)
def test_impossible_shares(arguments, message):
    with pytest.raises(ValueError, match=message):
        split_graph(unbalanced()[0], **arguments)


def test_a_graph_without_labels_cannot_be_split():
    with pytest.raises(ValueError, match="no labelled nodes"):
        split_graph(bare([-1, -1]))


def several_labels(num_nodes=3000):
    """Labels with shares from 40% down to three nodes, that occur together."""
    rng = np.random.default_rng(1)
    shares = np.array([0.4, 0.3, 0.1, 0.03, 0.01])
    common = rng.random((num_nodes, 1)) < 0.5  # What makes them occur together.
    labels = rng.random((num_nodes, 5)) < shares * (0.4 + 1.2 * common)
    rare = np.zeros((num_nodes, 1), bool)
    rare[[5, 50, 500]] = True
    return bare(np.hstack([labels, rare]).astype(int))


def test_several_labels_are_spread_and_all_are_in_training():
    graph = several_labels()
    total = graph.labels.sum(axis=0, dtype=int)
    split = split_graph(graph, train=0.6, validation=0.2, test=0.2)
    assert sizes(vars(split)) == (1800, 600, 600)
    found = np.array([by_class(split, name) for name in ("validation", "test")])
    # Drawn at random, they would differ by sqrt(n p (1 - p)): 12 nodes at p = 0.4.
    assert (np.abs(found - 0.2 * total) <= 5).all(), found
    assert (np.array(by_class(split, "train")) > 0).all()


def test_labels_that_only_occur_beside_rarer_ones_are_in_training():
    labels = np.zeros((20, 6), int)
    labels[:10, 0] = 1
    labels[np.arange(10), 1 + np.arange(10) % 5] = 1
    for seed in range(20):
        split = split_graph(bare(labels), train=0.25, validation=0.75, seed=seed)
        assert (np.array(by_class(split, "train")) > 0).all()


@pytest.mark.parametrize("many", [False, True])
def test_stratified_folds(many):
    graph = several_labels() if many else unbalanced()[0]
    nodes = graph.known & (np.arange(graph.num_nodes) % 7 > 0)
    folds = stratified_folds(graph, nodes, 5, seed=0)
    assert (folds[~nodes] == -1).all()
    counts = np.bincount(folds[nodes], minlength=5)
    assert counts.max() - counts.min() <= 1
    found = np.array([graph.labels[folds == k].sum(axis=0) for k in range(5)], int)
    assert (found.max(axis=0) - found.min(axis=0) <= (10 if many else 1)).all()
    np.testing.assert_array_equal(folds, stratified_folds(graph, nodes, 5, seed=0))
    assert (folds != stratified_folds(graph, nodes, 5, seed=1)).any()
    with pytest.raises(
        ValueError, match="3 folds need 3 labelled nodes at least, but the graph has 2"
    ):
        stratified_folds(graph, np.flatnonzero(nodes)[:2], 3, seed=0)


def test_folds_share_test_nodes_and_use_all_labels():
    graph, _ = unbalanced()
    folds = draw_folds(graph, 3)
    for fold in folds:
        np.testing.assert_array_equal(fold.test, folds[0].test)
        np.testing.assert_array_equal(
            fold.train | fold.validation | fold.test, graph.known
        )
        assert (np.array(by_class(fold, "train")) > 0).all()
    assert len({fold.train.tobytes() for fold in folds}) == 3
    own = split_graph(graph, train=0.2, validation=0.1, test=0.3)
    again = draw_folds(own, 2)[1]
    np.testing.assert_array_equal(again.test, own.test)
    assert sizes(vars(again)) == (24, 6, 30)
    assert sizes(vars(draw_folds(own, 1, share=0.5)[0])) == (40, 10, 30)
    with pytest.raises(
        ValueError, match=r"share is 0\.8: 80 of 100 labelled nodes, but"
    ):
        draw_folds(own, 1, share=0.8)

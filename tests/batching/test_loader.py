"""Batches of a run: dealt once, grouped, prefetched."""

import threading

import jax
import numpy as np
import pytest

from hopf_jax.batching.grouping import components, deal, group_by_size
from hopf_jax.batching.loader import Loader, LoaderSettings, prefetch
from hopf_jax.graph.graph import Graph
from tests import graphs


def threads():
    return [t for t in threading.enumerate() if t.name == "hopf-prefetch"]


def test_prefetched_items_come_in_order():
    assert list(prefetch(iter(range(20)))) == list(range(20))
    assert list(prefetch(iter(()))) == []
    assert threads() == []


def test_an_error_in_the_thread_is_raised_by_the_reader():
    def items():
        yield 1
        raise RuntimeError("disk gone")

    reader = prefetch(items())
    assert next(reader) == 1
    with pytest.raises(RuntimeError, match="disk gone"):
        next(reader)
    assert threads() == []


def test_a_reader_that_stops_early_ends_the_thread():
    made = []

    def items():
        for i in range(10**6):
            made.append(i)
            yield i

    reader = prefetch(items())
    assert next(reader) == 0
    assert len(threads()) == 1
    reader.close()
    assert threads() == []
    assert len(made) < 10  # It stayed a little ahead, no more.


def test_the_thread_works_while_the_reader_does():
    ready = threading.Event()

    def items():
        yield 1
        ready.set()
        yield 2

    reader = prefetch(items())
    next(reader)
    assert ready.wait(5)  # Before it was asked for.
    reader.close()


def loader_of(budget, seed=0, kind="all", sparse=False, **settings):
    graph = graphs.tiny(kind, sparse=sparse)
    how = LoaderSettings(2, 3, memory_budget=budget, **settings)
    return Loader(graph, np.flatnonzero(graph.train), how, seed)


def flat(groups):
    """(number, batch) in the order they are taken in."""
    out = []
    for one in groups:
        host = jax.device_get(one)
        assert len(host.order) == max(2, host.trips)
        for place in host.order[: host.trips]:
            batch = jax.tree.map(lambda leaf, at=place: leaf[at], host.batches)
            out.append((int(host.numbers[place]), batch))
    return out


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_streamed_batches_are_the_resident_ones(sparse):
    kept, streamed = loader_of(10**9, sparse=sparse), loader_of(0, sparse=sparse)
    assert kept.resident
    assert not streamed.resident
    for epoch in (1, 2):
        one, other = flat(kept.groups(epoch)), flat(streamed.stream(epoch))
        assert [number for number, _ in one] == [number for number, _ in other]
        for (_, a), (_, b) in zip(one, other, strict=True):
            jax.tree.map(np.testing.assert_array_equal, a, b)
    orders = {tuple(n for n, _ in flat(kept.groups(epoch))) for epoch in range(9)}
    assert len(orders) > 1  # Every epoch has an order of its own.


def test_every_root_is_in_one_batch():
    fed = loader_of(10**9)
    roots = np.concatenate(fed.roots)
    assert sorted(roots) == list(range(8))
    assert sorted(len(r) for r in fed.roots) == [2, 3, 3]
    found = [batch.graph.nodes["id"][:3] for _, batch in flat(fed.groups(1))]
    masks = [batch.mask for _, batch in flat(fed.groups(1))]
    real = [i for ids, m in zip(found, masks, strict=True) for i in ids[m[:3] > 0]]
    assert sorted(real) == list(range(8))


def test_bytes_are_told_rightly():
    for sparse in (False, True):
        fed = loader_of(10**9, sparse=sparse)
        leaves = jax.tree.leaves([batches for batches, _ in fed._kept])
        assert sum(leaf.nbytes for leaf in leaves) <= 1.1 * fed.nbytes
        assert fed.nbytes <= 1.3 * sum(leaf.nbytes for leaf in leaves)
        assert loader_of(fed.nbytes, sparse=sparse).resident
        assert not loader_of(fed.nbytes - 1, sparse=sparse).resident


def edges_of(fed, epoch):
    return [
        np.where(batch.graph.edges["weight"] > 0, batch.graph.senders, -1).tolist()
        + batch.graph.nodes["id"].tolist()
        for _, batch in sorted(flat(fed.stream(epoch)), key=lambda pair: pair[0])
    ]


def test_drawn_neighbours_differ_by_epoch_and_are_the_same_by_seed():
    fed = loader_of(10**9, fanouts=(2, 2), kind="plain")
    assert not fed.resident
    assert edges_of(fed, 1) != edges_of(fed, 2)
    assert edges_of(fed, 1) == edges_of(loader_of(0, fanouts=(2, 2), kind="plain"), 1)
    assert edges_of(fed, 1) != edges_of(
        loader_of(0, 1, fanouts=(2, 2), kind="plain"), 1
    )


def test_neighbours_drawn_once_stay():
    fed = loader_of(0, fanouts=(2, 2), resample=False, kind="plain")
    assert edges_of(fed, 1) == edges_of(fed, 2)
    assert loader_of(10**9, fanouts=(2, 2), resample=False).resident


def test_roots_are_dealt_evenly():
    graph = graphs.tiny()
    for count in (1, 7, 12, 18):
        for size in (1, 5, 100):
            roots = np.arange(count)
            dealt = deal(graph, roots, size, np.random.default_rng(0))
            sizes = [len(batch) for batch in dealt]
            assert sorted(np.concatenate(dealt)) == list(roots)
            assert max(sizes) <= size
            assert max(sizes) - min(sizes) <= 1
            assert len(sizes) == -(-count // size)


def test_large_components_are_dealt_apart():
    ring = np.arange(30)
    edges = np.stack([ring, np.roll(ring, -1)])
    pair = np.array([[90], [91]])
    edges = np.concatenate([edges, edges + 30, edges + 60, pair], axis=1)
    graph = Graph.from_edges(*edges, np.eye(92, dtype=np.float32))
    apart = components(graph)
    assert len(set(apart)) == 4
    rng = np.random.default_rng(0)
    dealt = deal(graph, np.arange(92), 12, rng, apart)
    assert sorted(np.concatenate(dealt)) == list(range(92))
    assert all(len(set(apart[batch])) == 1 for batch in dealt)
    assert max(map(len, dealt)) <= 12
    # One large component, or none: dealt all together, as without components.
    for roots in (np.arange(40), np.arange(0, 92, 10)):
        together = deal(graph, roots, 12, np.random.default_rng(1), apart)
        plain = deal(graph, roots, 12, np.random.default_rng(1))
        for one, other in zip(together, plain, strict=True):
            np.testing.assert_array_equal(one, other)


def test_batches_of_very_different_sizes_are_grouped():
    alike = np.array([[100, 300, 500, 200, 700, 0]] * 20)
    layouts, members = group_by_size(alike, 2)
    assert len(layouts) == 1
    np.testing.assert_array_equal(members[0], np.arange(20))
    mixed = alike.copy()
    mixed[[3, 8]] *= 30
    layouts, members = group_by_size(mixed, 2)
    assert 1 < len(layouts) <= 3
    assert sorted(np.concatenate(members)) == list(range(20))
    for layout, some in zip(layouts, members, strict=True):
        assert all(layout.holds(mixed[i]) for i in some)

"""K-hop subgraphs against a breadth-first search, and their padding."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopf_jax import Graph
from hopf_jax.batching.padding import Layout, fill_rows, pad, round_up, stack
from hopf_jax.batching.subgraphs import (
    Neighborhoods,
    draw,
    new_nodes,
    ranges,
    shuffle_neighbors,
    thin,
)
from tests import graphs


def search(graph, roots, num_hops):
    """Distance from the roots of every node within so many hops, node by node."""
    away = dict.fromkeys(roots, 0)
    frontier = list(roots)
    for hop in range(1, num_hops + 1):
        found = []
        for node in frontier:
            for other in graph.indices[graph.indptr[node] : graph.indptr[node + 1]]:
                if other not in away:
                    away[other] = hop
                    found.append(other)
        frontier = found
    return away


def random_graph(seed, num_nodes=20, num_edges=40, **keywords):
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, num_nodes, (2, num_edges))
    features = np.eye(num_nodes, 3, dtype=np.float32)
    labels = rng.integers(0, 2, num_nodes)
    return Graph.from_edges(*ends, features, labels, **keywords)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    num_hops=st.integers(0, 3),
    num_roots=st.integers(1, 6),
    directed=st.booleans(),
    loops=st.sampled_from(["drop", "keep"]),
)
def test_subgraphs_equal_a_search(seed, num_hops, num_roots, directed, loops):
    graph = random_graph(seed, directed=directed, self_loops=loops)
    roots = np.random.default_rng(seed).permutation(20)[:num_roots]
    hoods = Neighborhoods(graph, num_hops)
    found = hoods.subgraph(roots)
    away = search(graph, roots, num_hops)
    # Roots first, in their order; then hop by hop, each node once.
    np.testing.assert_array_equal(found.nodes[:num_roots], roots)
    assert sorted(found.nodes) == sorted(away)
    distances = [away[node] for node in found.nodes]
    assert distances == sorted(distances)
    counts = [sum(d <= hop for d in distances) for hop in range(num_hops + 1)]
    assert found.node_counts == tuple(counts)
    # All the edges of every node but the farthest, in the order of the graph's.
    assert len(found.indptr) == (counts[-2] if num_hops else 0) + 1
    for place in range(len(found.indptr) - 1):
        node = found.nodes[place]
        senders = found.senders[found.indptr[place] : found.indptr[place + 1]]
        want = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
        np.testing.assert_array_equal(found.nodes[senders], want)
    ends = [found.indptr[counts[hop]] for hop in range(num_hops)]
    assert found.edge_counts == tuple(ends)
    assert (hoods._place == -1).all()  # Clean for the next call.
    again = hoods.subgraph(roots)
    np.testing.assert_array_equal(again.nodes, found.nodes)


# Fan-outs


@pytest.mark.parametrize("kind", ["plain", "weighted", "directed", "all"])
def test_fanouts_draw_so_many_neighbours_each_once(kind):
    graph = graphs.tiny(kind)
    fanouts = (3, 2)
    for seed in range(5):
        found = Neighborhoods(graph, 2, fanouts).subgraph(np.arange(6), (seed,))
        for place in range(len(found.indptr) - 1):
            node = found.nodes[place]
            span = slice(found.indptr[place], found.indptr[place + 1])
            drawn = found.nodes[found.senders[span]]
            row = slice(graph.indptr[node], graph.indptr[node + 1])
            all_of_them = graph.indices[row]
            hop = 0 if place < found.node_counts[0] else 1
            assert len(drawn) == min(len(all_of_them), fanouts[hop])
            assert len(set(drawn)) == len(drawn)
            assert set(drawn) <= set(all_of_them)
            if len(drawn):
                # Scaled to the whole degree: D^-1 A is the mean over the drawn ones.
                weights = (
                    np.ones(graph.num_edges)
                    if graph.weights is None
                    else (graph.weights)
                )
                of = dict(zip(all_of_them, weights[row], strict=True))
                raw = np.array([of[i] for i in drawn])
                np.testing.assert_allclose(
                    found.weights[span] / graph.degree[node], raw / raw.sum(), rtol=1e-5
                )


def test_fanouts_depend_on_the_seed_alone():
    graph = graphs.tiny("plain")
    hoods = Neighborhoods(graph, 2, (2, 2))
    one = hoods.subgraph(np.arange(6), (0, 1))
    hoods.subgraph(np.arange(6), (5, 5))
    same = hoods.subgraph(np.arange(6), (0, 1))
    other = hoods.subgraph(np.arange(6), (0, 2))
    np.testing.assert_array_equal(one.nodes, same.nodes)
    np.testing.assert_array_equal(one.senders, same.senders)
    assert list(one.nodes[one.senders]) != list(other.nodes[other.senders])


def test_fanouts_favour_no_neighbour():
    star = Graph.from_edges(np.zeros(5, int), np.arange(1, 6), np.eye(6))
    hoods = Neighborhoods(star, 1, (2,))
    drawn = np.zeros(6)
    for seed in range(600):
        found = hoods.subgraph(np.array([0]), (seed,))
        drawn[found.nodes[found.senders]] += 1
    np.testing.assert_allclose(drawn[1:] / 600, 2 / 5, atol=0.07)


def test_wide_fanouts_take_everyone():
    graph = graphs.tiny("weighted")
    all_of_them = Neighborhoods(graph, 2).subgraph(np.arange(4))
    wide = Neighborhoods(graph, 2, (99, 99)).subgraph(np.arange(4), (0,))
    np.testing.assert_array_equal(wide.nodes, all_of_them.nodes)
    np.testing.assert_array_equal(wide.senders, all_of_them.senders)
    np.testing.assert_allclose(wide.weights, all_of_them.weights, rtol=1e-6)


@pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["isolated", "all"])
def test_thinned_graphs_keep_a_fraction_and_the_degrees(kind, fraction):
    graph = graphs.tiny(kind)
    thinned = thin(graph, fraction, 0)
    kept, all_of_them = np.diff(thinned.indptr), np.diff(graph.indptr)
    np.testing.assert_array_equal(kept, np.ceil(fraction * all_of_them))
    np.testing.assert_allclose(thinned.degree, graph.degree, rtol=1e-5)
    for i in range(graph.num_nodes):
        mine = thinned.indices[thinned.indptr[i] : thinned.indptr[i + 1]]
        row = graph.indices[graph.indptr[i] : graph.indptr[i + 1]]
        assert set(mine) <= set(row)
        assert len(set(mine)) == len(mine)
    same, other = thin(graph, fraction, 0), thin(graph, fraction, 1)
    np.testing.assert_array_equal(thinned.indices, same.indices)
    if fraction < 1:
        assert list(thinned.indices) != list(other.indices)


def test_shuffled_neighbours_are_the_same_ones():
    graph = graphs.tiny("all")
    shuffled = shuffle_neighbors(graph, 0)
    assert list(shuffled.indices) != list(graph.indices)
    np.testing.assert_array_equal(
        shuffled.adjacency.toarray(), graph.adjacency.toarray()
    )


# Layouts and padding


@given(st.integers(0, 10**7))
def test_rounded_sizes_are_few_and_near(count):
    up = round_up(count)
    assert up >= max(count, 1)
    assert up % 8 == 0
    assert up <= max(8, 1.125 * count + 8)
    assert round_up(up) == up


def test_there_are_few_sizes():
    assert len({round_up(n) for n in range(1, 100_000)}) < 200


@given(st.lists(st.integers(1, 400), min_size=2, max_size=2), st.integers(1, 50))
def test_layouts_hold_what_they_were_made_for(steps, batches):
    rng = np.random.default_rng(batches)
    nodes = np.cumsum(rng.integers(0, steps[0], (batches, 3)) + 1, axis=1)
    edges = np.cumsum(rng.integers(0, steps[1], (batches, 2)), axis=1)
    sizes = np.concatenate([nodes, edges, rng.integers(0, 99, (batches, 1))], axis=1)
    layout = Layout.over(sizes, 2)
    assert all(layout.holds(size) for size in sizes)
    assert list(layout.nodes) == sorted(layout.nodes)
    assert list(layout.edges) == sorted(layout.edges)
    assert layout.nodes[-1] > nodes[:, -1].max()  # A node for padded edges to end at.
    too_many = sizes[0].copy()
    too_many[0] = layout.nodes[0] + 1
    assert not layout.holds(too_many)


@pytest.mark.parametrize("kind", ["isolated", "all"])
@pytest.mark.parametrize("sparse", [False, True])
def test_padded_batches(kind, sparse):
    graph = graphs.tiny(kind, sparse=sparse)
    roots = np.array([7, 3, 11])
    found = Neighborhoods(graph, 2).subgraph(roots)
    layout = graphs.LARGE
    how = "sparse" if sparse else "dense"
    batch = pad(graph, found, layout, features=how)
    n, e = len(found.nodes), len(found.senders)
    nodes, edges = batch.graph.nodes, batch.graph.edges
    assert nodes["id"].shape == (layout.nodes[-1],)
    assert batch.graph.senders.shape == (layout.edges[-1],)
    np.testing.assert_array_equal(batch.graph.n_node, [n, layout.nodes[-1] - n])
    np.testing.assert_array_equal(batch.graph.n_edge, [e, layout.edges[-1] - e])
    np.testing.assert_array_equal(nodes["id"][:n], found.nodes)
    # Degrees are the whole graph's.
    np.testing.assert_allclose(
        nodes["degree"][:n], graph.degree[found.nodes], rtol=1e-6
    )
    np.testing.assert_array_equal(edges["weight"][e:], 0)
    receivers = batch.graph.receivers
    assert (np.diff(receivers) >= 0).all()
    # Padding edges end at padding nodes, and not all at one.
    assert (receivers[e:] >= n).all()
    assert (receivers[e:] < layout.nodes[-1]).all()
    _, each = np.unique(receivers[e:], return_counts=True)
    room = layout.nodes[-1] - n
    assert each.max() <= -(-(layout.edges[-1] - e) // room) + 1
    np.testing.assert_array_equal(batch.mask, [1, 1, 1] + [0] * 13)
    np.testing.assert_array_equal(batch.labels[:3], graph.labels[roots])
    np.testing.assert_array_equal(batch.labels[3:], 0)
    x = graphs.dense_features(graph)[found.nodes]
    if sparse:
        assert batch.features.rows.indptr[n] == batch.features.rows.indptr[-1]
    else:
        np.testing.assert_array_equal(batch.features[:n], x)
        np.testing.assert_array_equal(batch.features[n:], 0)


def test_hops_are_prefixes():
    graph = graphs.tiny("all")
    found = Neighborhoods(graph, 2).subgraph(np.array([7, 0]))
    batch = pad(graph, found, graphs.LARGE, features="resident")
    assert batch.features is None
    for away in (0, 1):
        hop_graph, rows, receivers = batch.hop_graph(away)
        assert receivers == graphs.LARGE.nodes[away]
        assert hop_graph.nodes["degree"].shape == (graphs.LARGE.nodes[away + 1],)
        assert hop_graph.senders.shape == (graphs.LARGE.edges[away],)
        real = found.edge_counts[away]
        at = np.asarray(hop_graph.receivers)
        assert (at[:real] < found.node_counts[away]).all()
        assert (at[real:] == receivers).all()  # Which is no node.
        assert hop_graph.globals is None and rows.indptr[-1] == real


def test_stacked_batches_keep_their_leaves():
    graph = graphs.tiny()
    parts = [
        pad(
            graph,
            Neighborhoods(graph, 2).subgraph(np.array([i])),
            graphs.SMALL,
            features="dense",
        )
        for i in (0, 1)
    ]
    both = stack(parts)
    np.testing.assert_array_equal(both.graph.nodes["id"][1], parts[1].graph.nodes["id"])
    assert both.labels.shape == (2, 8, 3)
    # One alone is there twice, so that XLA treats it as one of several.
    assert stack(parts[:1]).labels.shape == (2, 8, 3)


# Small parts


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=20))
def test_ranges(pairs):
    starts = np.array([p[0] for p in pairs], int)
    lengths = np.array([p[1] for p in pairs], int)
    want = [i for s, n in pairs for i in range(s, s + n)]
    np.testing.assert_array_equal(ranges(starts, lengths), want)


@given(st.lists(st.integers(0, 9), max_size=30))
def test_new_nodes_once_each(ids):
    place = np.full(10, -1, np.int32)
    place[[2, 5]] = [0, 1]
    fresh = new_nodes(np.array(ids, int), place, 2)
    assert sorted(fresh) == sorted(set(ids) - {2, 5})
    np.testing.assert_array_equal(place[fresh], 2 + np.arange(len(fresh)))


def test_draws_without_replacement():
    lengths, wanted = np.array([4, 0, 3, 1]), np.array([2, 0, 3, 1])
    keep, counts = draw(np.random.default_rng(0), lengths, wanted)
    np.testing.assert_array_equal(counts, wanted)
    assert (np.diff(keep) > 0).all()
    runs = np.repeat(np.arange(4), lengths)[keep]
    np.testing.assert_array_equal(np.bincount(runs, minlength=4), wanted)


def test_a_weightless_graph_has_no_weights_to_carry():
    graph = dataclasses.replace(graphs.tiny("plain"))
    assert Neighborhoods(graph, 2).subgraph(np.arange(3)).weights is None


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x,
        lambda x: x.astype(np.float64),
        lambda x: x.astype(np.float16),
        np.asfortranarray,
        lambda x: np.hstack([x, x])[:, :3],
    ],
    ids=["as they are", "float64", "float16", "by column", "some columns"],
)
def test_rows_are_filled_up_with_zeros(change):
    matrix = change(np.arange(12, dtype=np.float32).reshape(4, 3))
    rows = np.array([3, 0, 3])
    found = fill_rows(matrix, rows, 5)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[:3], matrix[rows])
    np.testing.assert_array_equal(found[3:], np.zeros((2, 3)))
    assert fill_rows(matrix, rows[:0], 2).shape == (2, 3)

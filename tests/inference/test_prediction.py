"""Predictions for all nodes: the same as of batches, whatever the chunks."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp

from hopf_jax import MODELS
from hopf_jax.batching.padding import round_up
from hopf_jax.datasets import make_random
from hopf_jax.inference.prediction import predict_logits
from hopf_jax.inference.whole_graph import (
    LEAST_CHUNK_EDGES,
    WholeGraph,
    chunk_bounds,
    edges_per_chunk,
    nodes_by_distance,
    process_share,
)
from tests import graphs, oracle

every_row = pytest.mark.parametrize("model", MODELS)
ONE_CHUNK, MANY_CHUNKS = 10_000, 14


def predict(model, graph, chunk_edges=ONE_CHUNK, **settings):
    net, params = graphs.net_of(model, **settings)
    whole = WholeGraph(graph, chunk_edges)
    assert whole.single == (chunk_edges == ONE_CHUNK)
    summary = graphs.summary_for(net.kernel, graph)
    return predict_logits(net, params, whole, summary, with_hidden=True)


@pytest.mark.parametrize("chunk_edges", [ONE_CHUNK, MANY_CHUNKS])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@every_row
def test_the_whole_graph_equals_the_equations_and_the_batches(
    model, sparse, chunk_edges
):
    graph = graphs.tiny("all", sparse=sparse)
    net, params = graphs.net_of(model)
    summary = graphs.summary_for(net.kernel, graph)
    logits, hidden = predict(model, graph, chunk_edges)
    x = graphs.dense_features(graph)
    want = oracle.forward(net.kernel, params, graph, x, summary, graphs.NUM_HOPS)
    np.testing.assert_allclose(logits, want[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(hidden, want[1], rtol=1e-5, atol=1e-5)
    for roots in (np.arange(0, 6), np.arange(12, 18)):
        batch = graphs.batch_of(graph, roots, net.kernel)
        y = graphs.spread(batch, summary)
        of_batch = graphs.logits_of(net, params, batch, batch.features, y)
        np.testing.assert_allclose(of_batch[:6], logits[roots], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [k for k in graphs.KINDS if k != "all"])
@pytest.mark.parametrize("model", ["wl", "gcn", "gs-max", "i-nip-mean"])
def test_other_kinds_of_graph(model, kind):
    graph = graphs.tiny(kind)
    net, params = graphs.net_of(model)
    summary = graphs.summary_for(net.kernel, graph)
    x = graphs.dense_features(graph)
    want = oracle.forward(net.kernel, params, graph, x, summary, graphs.NUM_HOPS)[0]
    for chunk_edges in (ONE_CHUNK, MANY_CHUNKS):
        logits, _ = predict(model, graph, chunk_edges)
        np.testing.assert_allclose(logits, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("model", ["bl-node", "wl", "gcn", "nip-mean"])
def test_no_hops_at_all(model, sparse):
    graph = graphs.tiny("all", sparse=sparse)
    net, params = graphs.net_of(model, num_hops=0)
    want = oracle.forward(
        net.kernel, params, graph, graphs.dense_features(graph), None, 0
    )[0]
    for chunk_edges in (ONE_CHUNK, MANY_CHUNKS):
        logits, _ = predict(model, graph, chunk_edges, num_hops=0)
        np.testing.assert_allclose(logits, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model", ["gs-max", "gcn", "gs-lstm", "i-nip-mean"])
def test_a_graph_without_edges(model):
    graph = graphs.tiny("plain")
    alone = dataclasses.replace(
        graph, indptr=np.zeros_like(graph.indptr), indices=graph.indices[:0]
    )
    net, params = graphs.net_of(model)
    summary = graphs.summary_for(net.kernel, graph)
    x = graphs.dense_features(graph)
    logits, _ = predict(model, alone)
    want = oracle.forward(net.kernel, params, alone, x, summary, graphs.NUM_HOPS)[0]
    np.testing.assert_allclose(logits, want, rtol=1e-5, atol=1e-5)


def permuted(graph, to):
    """Node i becomes node to[i]; the order within a row stays (for the LSTM)."""
    back = np.argsort(to)
    rows = [slice(graph.indptr[i], graph.indptr[i + 1]) for i in back]
    return dataclasses.replace(
        graph,
        indptr=np.concatenate([[0], np.cumsum(np.diff(graph.indptr)[back])]),
        indices=np.concatenate([to[graph.indices[r]] for r in rows]),
        weights=np.concatenate([graph.weights[r] for r in rows]),
        features=graph.features[back],
    )


@every_row
def test_relabelled_nodes_have_relabelled_predictions(model):
    graph = graphs.tiny("all")
    to = np.random.default_rng(4).permutation(graph.num_nodes)
    other = permuted(graph, to)
    net, params = graphs.net_of(model)
    summary = graphs.summary_for(net.kernel, graph)
    moved = None if summary is None else summary[np.argsort(to)]
    logits, none = predict_logits(net, params, WholeGraph(graph, ONE_CHUNK), summary)
    assert none is None  # Nobody asked for h_K.
    relabelled, _ = predict_logits(net, params, WholeGraph(other, ONE_CHUNK), moved)
    np.testing.assert_allclose(relabelled[to], logits, rtol=1e-5, atol=1e-5)


def test_a_program_a_bucket_not_a_chunk(compiled):
    graph = graphs.tiny("plain", seed=6)
    net, params = graphs.net_of("nip-mean")
    whole = WholeGraph(graph, 9)
    chunks = list(whole.chunks())
    assert len(chunks) > 5
    layouts = {
        (c.batch.labels.shape, c.size, c.batch.graph.senders.shape) for c in chunks
    }
    rows = {round_up(c.stop - c.start) for c in chunks}
    assert len(rows) < len({c.stop - c.start for c in chunks})
    predict_logits(net, params, whole, None)
    assert compiled["_embed"] <= len(rows)
    assert compiled["_readout"] <= len(rows)
    assert compiled["_hop"] <= graphs.NUM_HOPS * len(layouts)
    before = compiled["_hop"]
    predict_logits(net, params, whole, None)
    assert compiled["_hop"] == before


def test_chunks_cover_all_nodes_in_order():
    indptr = np.array([0, 3, 3, 10, 11, 30, 31])
    for edges in (1, 4, 11, 100):
        bounds = chunk_bounds(indptr, edges)
        assert bounds[0] == 0
        assert bounds[-1] == 6
        assert (np.diff(bounds) > 0).all()
        sizes = indptr[bounds[1:]] - indptr[bounds[:-1]]
        alone = np.diff(bounds) == 1  # A node with more edges than that is a chunk.
        assert (alone | (sizes <= edges)).all()
    np.testing.assert_array_equal(chunk_bounds(indptr, 100), [0, 6])
    np.testing.assert_array_equal(chunk_bounds(indptr, 11), [0, 4, 5, 6])


def forget(graph, nodes, receivers):
    """The graph with nonsense for all features and edges but those of some nodes."""
    features = graphs.dense_features(graph).copy()
    features[np.setdiff1d(np.arange(graph.num_nodes), nodes)] = np.nan
    if sp.issparse(graph.features):
        features = sp.csr_array(features)
    read = np.repeat(
        np.isin(np.arange(graph.num_nodes), receivers), np.diff(graph.indptr)
    )
    indices = np.where(read, graph.indices, nodes[0])
    return dataclasses.replace(graph, indices=indices, features=features)


@every_row
def test_a_share_needs_nothing_of_the_others(model):
    # Everything beyond the halo is made nonsense: it is not read.
    sparse = MODELS[model].iterative
    graph = graphs.tiny("all", sparse=sparse)
    net, params = graphs.net_of(model)
    summary = graphs.summary_for(net.kernel, graph)
    logits, hidden = predict(model, graph)
    halo = net.kernel.num_layers(graphs.NUM_HOPS) if net.kernel.psi else 0
    for own in (np.array([1, 3, 17]),):  # 3 is alone.
        held, counts, _ = nodes_by_distance(graph, own, halo)
        nonsense = forget(graph, held, held[: counts[max(0, halo - 1)]])
        whole = WholeGraph(nonsense, MANY_CHUNKS, own, halo)
        mine = predict_logits(net, params, whole, summary, with_hidden=True)
        np.testing.assert_allclose(mine[0], logits[own], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(mine[1], hidden[own], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 3, 18])
def test_shares_are_all_nodes_once(count):
    for degrees in (
        np.ones(18, int),
        np.eye(18, dtype=int)[4] * 100,
        np.zeros(18, int),
    ):
        indptr = np.concatenate([[0], np.cumsum(degrees)])
        shares = [process_share(indptr, i, count) for i in range(count)]
        np.testing.assert_array_equal(np.concatenate(shares), np.arange(18))
        assert min(map(len, shares)) >= 1
    with pytest.raises(ValueError, match="19 processes cannot share 18 nodes"):
        process_share(indptr, 0, 19)


def test_a_graph_is_one_chunk_unless_it_is_large_or_smaller_ones_are_wanted():
    graph = make_random(1000, 5000, 4, 2)
    assert WholeGraph(graph, edges_per_chunk(graph, 16, None)).single
    assert not WholeGraph(graph, edges_per_chunk(graph, 16, 3000)).single
    chunk_edges = edges_per_chunk(graph, 10**6, None)  # States of 4 GB.
    assert chunk_edges == LEAST_CHUNK_EDGES

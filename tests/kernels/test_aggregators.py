"""Aggregators one by one; test_module.py tests them with the kernels."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import jraph
import numpy as np
import pytest

from hopf_jax import MODELS
from hopf_jax.batching import HopGraph, Rows
from hopf_jax.batching.sparse import Transpose
from hopf_jax.kernels.aggregators import (
    AGGREGATES,
    attention,
    lstm,
    mean,
    pooled_max,
    symmetric,
    symmetric_loops,
    total,
)
from hopf_jax.kernels.lstm import num_steps
from tests import graphs, oracle

ROW = MODELS["gs-mean"]  # Reads one hop of anything.
short_lstm = lstm(3)
WITH_SELF = (symmetric_loops, attention)  # A node is its own neighbour.


def weights_of(aggregate, width):
    rng = np.random.default_rng(5)
    shapes = aggregate.shapes(width, 4)
    return {k: rng.normal(size=s).astype(np.float32) for k, s in shapes.items()}


def hop(graph, x, aggregate, weights, key=None):
    batch = graphs.batch_of(graph, np.arange(8), ROW, num_hops=1)
    batch = jax.device_put(batch)
    at = batch.graph.nodes["id"]
    draws = None if key is None else jax.random.bits(key, batch.graph.senders.shape)
    return apply(aggregate, batch, x[at], weights, draws)[:8]


@functools.partial(graphs.quick_jit, static_argnums=0)
def apply(aggregate, batch, x, weights, draws):
    hop = batch.hop_graph(0)
    draws = None if draws is None else draws[: hop.graph.senders.shape[0]]
    return aggregate(hop, x, weights, draws)


@pytest.mark.parametrize("kind", ["isolated", "all"])
@pytest.mark.parametrize(
    "aggregate",
    [total, mean, symmetric, symmetric_loops, attention, pooled_max, short_lstm],
    ids=lambda a: a.name,
)
def test_each_equals_the_equation(aggregate, kind):
    graph = graphs.tiny(kind)
    x = graphs.dense_features(graph)
    if aggregate is attention:
        x = x[:, :4]
    weights = weights_of(aggregate, x.shape[1])
    want = oracle.aggregate(
        aggregate.name, *oracle.adjacency(graph), x.astype(np.float64), weights
    )
    got = hop(graph, x, aggregate, weights)
    np.testing.assert_allclose(got, want[:8], rtol=1e-5, atol=1e-5)
    assert got.shape[1] == aggregate.width(x.shape[1], 4)
    np.testing.assert_allclose(got[3], x[3] if aggregate in WITH_SELF else 0)


def test_the_lstm_draws_a_new_order_while_training():
    graph = graphs.tiny("plain")
    x = graphs.dense_features(graph)
    weights = weights_of(short_lstm, x.shape[1])
    still, one, same, other = (
        hop(graph, x, short_lstm, weights, key)
        for key in (None, jax.random.key(0), jax.random.key(0), jax.random.key(1))
    )
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)
    assert not np.allclose(one, still)
    # What is drawn is an order of the node's own neighbours: with one there is none.
    single = np.flatnonzero(np.diff(graph.indptr)[:8] == 1)
    if len(single):
        np.testing.assert_allclose(one[single], still[single], rtol=1e-6)


def test_a_random_order_of_equal_neighbours_changes_nothing():
    # So whatever the order, it reads all its neighbours, and only those.
    graph = graphs.tiny("plain")
    x = np.ones((graph.num_nodes, 2), np.float32)
    weights = weights_of(lstm(16), 2)
    still, drawn = (
        hop(graph, x, lstm(16), weights, key) for key in (None, jax.random.key(0))
    )
    np.testing.assert_allclose(still, drawn, rtol=1e-6)


@pytest.mark.parametrize("aggregate", AGGREGATES.values(), ids=lambda a: a.name)
def test_without_edges_there_is_nothing_to_read(aggregate):
    indptr, none = jnp.zeros(4, jnp.int32), jnp.zeros(0, jnp.int32)
    rows = Rows(indptr, none, Transpose(indptr, none, none))
    graph = jraph.GraphsTuple(
        nodes={"degree": jnp.zeros(3)},
        edges={"weight": jnp.zeros(0)},
        senders=none,
        receivers=none,
        globals=None,
        n_node=jnp.array([3]),
        n_edge=jnp.array([0]),
    )
    width = 4 if aggregate is attention else 2
    weights = weights_of(aggregate, width)

    def total_of(x):
        return aggregate(HopGraph(graph, rows, 3), x, weights).sum()

    value, slope = jax.value_and_grad(total_of)(jnp.ones((3, width)))
    own = aggregate in WITH_SELF
    np.testing.assert_allclose(value, 3 * width if own else 0)
    np.testing.assert_allclose(slope, 1 if own else 0, atol=1e-6)


def test_names_are_kept_for_saving():
    assert all(AGGREGATES[name].name == name for name in AGGREGATES)
    assert {row.aggregate.name for row in MODELS.values()} <= set(AGGREGATES)
    assert lstm(7).name == "lstm-7"
    assert dataclasses.replace(mean, name="mine") != mean
    assert [a.ordered for a in (mean, pooled_max, short_lstm)] == [False, False, True]


def test_the_steps_of_the_lstm_stay_within_their_bound():
    def slots(receivers, edges):
        steps, size = num_steps(receivers, edges, 32)
        return steps * size

    for receivers, edges in ((1, 1), (10, 0), (1000, 5000), (1, 10**6), (10**6, 10**6)):
        assert slots(receivers, edges) >= min(receivers, edges)
        most = min(edges + 2 * (receivers + 15), 32 * (receivers + 15))
        assert slots(receivers, edges) <= most
    # A hub costs its own steps, not those of everyone.
    assert slots(10_000, 20_000) < 10_000 * 32 / 7

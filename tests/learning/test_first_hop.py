"""The precomputed first hop: the same numbers from batches of one hop less."""

import dataclasses

import numpy as np
import pytest

from hopf_jax import MODELS, Config, Execution, Kernel, fit
from hopf_jax.batching import Loader
from hopf_jax.fitting import sizes_of
from hopf_jax.inference.whole_graph import WholeGraph
from hopf_jax.kernels import threefry
from hopf_jax.kernels.aggregators import mean, symmetric
from hopf_jax.learning.first_hop import FirstHop
from hopf_jax.learning.loss import Inputs, node_inputs
from hopf_jax.learning.plan import make_plan
from hopf_jax.results.result import make_net
from tests import graphs

CONFIG = Config(
    num_hops=2,
    hidden_size=4,
    dropout=0.0,
    batch_size=7,
    training_summaries="as-printed",
)


def precomputed(graph, row, config):
    return make_plan(graph, row, config, Execution()).precompute


AHEAD = {
    name: row for name, row in MODELS.items() if precomputed(graphs.tiny(), row, CONFIG)
} | {
    "reads-all": Kernel(("h0", "y"), ("h0", "h", "y"), symmetric, skip_from=1),
}


def first_neighbours(graph, row, summary, chunk_edges=10**6):
    return FirstHop(row, WholeGraph(graph, chunk_edges)).neighbours(summary)


def test_which_rows_know_their_first_hop():
    assert {"bl-neigh", "ss-ica", "gcn", "gs-mean", "nip-mean"} <= set(AHEAD)
    # Weights before F(A), no neighbours, no weights at all, a layer before the hops.
    assert not {"gs-max", "gs-lstm", "bl-node", "wl", "rwr"} & set(AHEAD)


@pytest.mark.parametrize(
    "change",
    [
        {"dropout": 0.1},
        {"fanouts": (2, 2)},
        {"precompute": False},
        {"num_hops": 0},
    ],
)
def test_what_stands_in_the_way(change):
    graph, row = graphs.tiny(), MODELS["nip-mean"]
    assert precomputed(graph, row, CONFIG)
    assert not precomputed(graph, row, dataclasses.replace(CONFIG, **change))
    assert not precomputed(graphs.tiny(sparse=True), row, CONFIG)
    # Neighbours' h_0 is read at every hop, so a second hop wants them in the batch.
    assert not precomputed(graph, Kernel(("h",), ("h0",), mean), CONFIG)


@pytest.mark.parametrize("model", AHEAD)
def test_the_same_logits_from_smaller_batches(model):
    row = AHEAD[model]
    graph = graphs.tiny("all")
    net = make_net(row, CONFIG, sizes_of(graph, row, CONFIG))
    params = net.initial_weights(threefry.new_key(3))
    summary = graphs.summary_for(row, graph)
    found = {}
    for ahead in (True, False):
        config = dataclasses.replace(CONFIG, precompute=ahead)
        how = make_plan(graph, row, config, Execution()).training
        loader = Loader(graph, np.flatnonzero(graph.train), how, 0)
        assert loader.how.num_hops == row.reach(2) - ahead
        inputs = Inputs(graph.features, summary, np.ones(graph.num_labels))
        if ahead:
            read = first_neighbours(graph, row, summary)
            inputs = inputs._replace(neighbours=read)
        found[ahead] = {}
        for number, roots in enumerate(loader.roots):
            batch = loader._padded(number, 0, loader.layouts[0])
            x, y, known = node_inputs(batch, inputs)
            logits = net.apply({"params": params}, batch, x, y, None, known)
            found[ahead] |= dict(zip(roots.tolist(), np.asarray(logits), strict=False))
    assert found[True].keys() == found[False].keys()
    for root, logits in found[True].items():
        np.testing.assert_allclose(logits, found[False][root], atol=1e-5)


def test_chunks_do_not_matter():
    graph, row = graphs.tiny("all"), MODELS["i-nip-mean"]
    summary = graphs.random_summary(graph)
    whole = np.concatenate(first_neighbours(graph, row, summary), axis=1)
    blocks = first_neighbours(graph, row, summary, chunk_edges=5)
    np.testing.assert_allclose(np.concatenate(blocks, axis=1), whole, atol=1e-6)
    dense = np.zeros((graph.num_nodes, graph.num_nodes))
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    weights = 1 if graph.weights is None else graph.weights
    np.add.at(dense, (rows, graph.indices), weights)
    degree = dense.sum(axis=1, keepdims=True)
    psi = np.concatenate([graph.features, summary], axis=1)
    want = dense @ psi / np.where(degree > 0, degree, 1)
    np.testing.assert_allclose(whole, want, atol=1e-5)


def test_fits_of_one_batch_agree():
    graph = graphs.tiny("all")
    runs = [
        fit(
            graph,
            "i-nip-mean",
            dataclasses.replace(
                CONFIG, precompute=ahead, num_iterations=2, max_epochs=4, batch_size=99
            ),
            progress=False,
        )
        for ahead in (True, False)
    ]
    for one, other in zip(*(run.history for run in runs), strict=True):
        np.testing.assert_allclose(one["train_loss"], other["train_loss"], rtol=1e-4)
    np.testing.assert_allclose(runs[0].probabilities, runs[1].probabilities, atol=1e-4)

"""Every row of the table, on every kind of graph: what must hold for all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopf_jax import MODELS, Config
from hopf_jax.inference import WholeGraph, predict_logits
from hopf_jax.nets import drop
from hopf_jax.training import Inputs, Objective, batch_loss
from tests import graphs, oracle

every_row = pytest.mark.parametrize("model", MODELS)
every_kind = pytest.mark.parametrize("kind", graphs.KINDS)
ROOTS = (np.arange(0, 6), np.arange(6, 12), np.arange(12, 18))


def expected(model, graph, summary, **settings):
    net, params = graphs.net_of(model, **settings)
    x = graphs.dense_features(graph)
    hops = net.sizes.num_hops
    return oracle.forward(net.row, params, graph, x, summary, hops)[0]


def batch_logits(model, graph, roots, summary, *, layout=graphs.SMALL, **settings):
    net, params = graphs.net_of(model, **settings)
    hops = net.sizes.num_hops
    batch = graphs.batch_of(graph, roots, net.row, layout=layout, num_hops=hops)
    y = graphs.spread(graph, batch, summary)
    return graphs.logits_of(net, params, batch, batch.features, y)[: len(roots)]


@every_kind
@every_row
def test_batches_equal_the_equations(model, kind):
    graph = graphs.tiny(kind)
    summary = graphs.summary_for(MODELS[model], graph)
    want = expected(model, graph, summary)
    assert np.ptp(want) > 0.1  # Nothing to compare, otherwise.
    for roots in ROOTS:
        got = batch_logits(model, graph, roots, summary)
        np.testing.assert_allclose(got, want[roots], rtol=1e-5, atol=1e-5)

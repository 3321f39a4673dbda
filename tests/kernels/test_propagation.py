"""One hop of Eq. 1, with weights on either side of F(A)."""

import jax
import numpy as np
import pytest

from hopf_jax import MODELS, Gate, Kernel
from hopf_jax.kernels import propagation
from hopf_jax.kernels.aggregators import mean, symmetric
from hopf_jax.kernels.propagation import HopWeights, Signals, propagate
from tests import graphs

ROWS = {
    "sum": Kernel(("h0",), ("h",), mean, Gate(0.5), Gate(2.0)),
    "shared": MODELS["gcn"],
    "concat": MODELS["gs-mean"],
    "two": Kernel(("h0",), ("h", "y"), symmetric),
}


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("name", ROWS)
def test_either_order_of_the_product_gives_the_equation(name, early, monkeypatch):
    # Which order is taken is a matter of cost, so both are tried.
    monkeypatch.setattr(propagation, "_multiply_first", lambda *_: early)
    row, graph = ROWS[name], graphs.tiny("all")
    batch = jax.device_put(graphs.batch_of(graph, np.arange(6), row, num_hops=1))
    rng = np.random.default_rng(0)
    n, at = graph.num_nodes, np.asarray(batch.graph.nodes["id"])
    h0, h, y = (rng.normal(size=(n, w)).astype(np.float32) for w in (4, 4, 3))
    psi = rng.normal(size=(4 + 3 * (name == "two"), 5)).astype(np.float32)
    phi = psi if row.shared_weights else rng.normal(size=(4, 5)).astype(np.float32)
    bias = rng.normal(size=10 if row.concat else 5).astype(np.float32)
    got = propagate(
        row,
        HopWeights(phi, psi, {}, bias),
        batch.hop_graph(0),
        Signals(h0[at], h[at], y[at]),
    )
    A = graph.adjacency.toarray().astype(np.float64)
    degree = A.sum(axis=1, keepdims=True)
    F = A / np.where(degree > 0, degree, 1)
    if row.aggregate is symmetric:
        F = A / np.sqrt((degree + 1) * (degree + 1).T)
    read = np.concatenate([h, y], axis=1) if name == "two" else h
    own = h0 if row.phi == ("h0",) else h
    alpha = (degree + 1) ** -1 if name == "shared" else row.alpha.scale
    parts = [alpha * (own @ phi), row.beta.scale * (F @ read @ psi)]
    want = np.concatenate(parts, axis=1) if row.concat else sum(parts)
    np.testing.assert_allclose(got[:6], (want + bias)[:6], rtol=1e-4, atol=1e-4)


def test_the_cheaper_order_is_chosen():
    wide, narrow = np.zeros((1000, 500)), np.zeros((1000, 5))
    to_narrow, to_wide = np.zeros((500, 5)), np.zeros((5, 500))
    choose = propagation._multiply_first
    assert choose(wide, to_narrow, 1000, 5000)
    assert not choose(narrow, to_wide, 1000, 5000)
    square = np.zeros((500, 500))
    assert not choose(np.zeros((1000, 500)), square, 10, 5000)  # Few receivers.
    assert not choose(wide, None, 1000, 5000)

"""`Config(norm=...)` and `Config(residual=True)`, for every row that they apply to."""

import dataclasses

import jax
import numpy as np
import pytest

from hopf_jax import MODELS, Config, fit, load
from hopf_jax.datasets import make_planted, paper_split
from hopf_jax.fitting import sizes_of
from hopf_jax.inference import WholeGraph
from hopf_jax.inference.prediction import predict_logits
from hopf_jax.kernels import threefry
from hopf_jax.learning.loss import Inputs, Objective, batch_loss
from hopf_jax.results.result import make_net
from tests import graphs, oracle

WITH_LAYERS = [m for m, row in MODELS.items() if row.learned_hops or row.input_layer]
SHORT = Config(hidden_size=8, max_epochs=3, min_epochs=1, num_iterations=2)
WORDS = np.array([1, 2], np.uint32)


def net_of(model, norm):
    """A net, and weights whose normalisation is none that a layer starts from."""
    row = MODELS[model]
    config = Config(hidden_size=5, norm=norm, dropout=0.0)
    net = make_net(row, config, sizes_of(graphs.tiny(), row, config))
    params = net.initial_weights(threefry.new_key(2))
    rng = np.random.default_rng(0)
    return net, {
        name: rng.uniform(0.5, 1.5, w.shape).astype(np.float32)
        if name.startswith("n_")
        else w
        for name, w in params.items()
    }


@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize("model", WITH_LAYERS)
def test_predictions_equal_the_equations_in_batches_and_chunks(model, norm):
    graph = graphs.tiny("all")
    net, params = net_of(model, norm)
    summary = graphs.summary_for(net.kernel, graph)
    x = graphs.dense_features(graph)
    want = oracle.forward(net.kernel, params, graph, x, summary, 2, norm)[0]
    plain = oracle.forward(net.kernel, params, graph, x, summary, 2)[0]
    assert np.abs(want - plain).max() > 0.01
    batch = graphs.batch_of(graph, np.arange(6), net.kernel)
    y = graphs.spread(batch, summary)
    got = graphs.logits_of(net, params, batch, batch.features, y)[:6]
    np.testing.assert_allclose(got, want[:6], rtol=1e-4, atol=1e-5)
    got, _ = predict_logits(net, params, WholeGraph(graph, 40), summary)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def training_gradient(net, params, layout):
    graph = graphs.tiny("all")
    batch = graphs.batch_of(graph, np.arange(6), net.kernel, layout=layout)
    summary = graphs.summary_for(net.kernel, graph)
    inputs = Inputs(None, summary, np.ones(3, np.float32))
    objective = Objective(multilabel=False, l2=0.0, clip=5.0)

    def loss(params):
        return batch_loss(net, objective, params, batch, inputs, WORDS)[0]

    return graphs.quick_jit(jax.grad(loss))(params)


@pytest.mark.parametrize("model", ["bl-node", "gcn", "gcnii", "i-nip-mean"])
def test_statistics_of_a_batch_are_of_its_roots_and_not_of_padding(model):
    net, params = net_of(model, "batch")
    small, large = (
        training_gradient(net, params, layout)
        for layout in (graphs.SMALL, graphs.LARGE)
    )
    for name in small:
        np.testing.assert_allclose(small[name], large[name], rtol=1e-3, atol=1e-5)
    if model != "bl-node":
        return
    # The gradient of running statistics is their distance from those of the roots.
    x = graphs.dense_features(graphs.tiny("all"))[:6]
    out = x @ np.asarray(params["w_1_phi"]) + np.asarray(params.get("b_1", 0))
    for name, now in (("mean", out.mean(axis=0)), ("variance", out.var(axis=0))):
        old, slope = params[f"n_1_{name}"], small[f"n_1_{name}"]
        np.testing.assert_allclose(old - slope, now, rtol=1e-4, atol=1e-5)
        new = net.update_statistics(params, params, small)[f"n_1_{name}"]
        np.testing.assert_allclose(new, 0.9 * old + 0.1 * now, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize("model", ["gcn", "gin", "i-nip-mean"])
def test_normalised_nets_learn_and_are_saved(model, norm, tmp_path):
    graph = paper_split(make_planted(300, 900, seed=1), seed=0)
    config = dataclasses.replace(
        SHORT, norm=norm, max_epochs=80, min_epochs=80, num_iterations=1, dropout=0.0
    )
    result = fit(graph, model, config, progress=False)
    assert result.history[-1]["train_loss"] < 0.7 * result.history[0]["train_loss"]
    # Predicted by running means: they must be those that the net learned with.
    majority = graph.labels[graph.train].mean(axis=0).max()
    assert result.scores["train"]["micro_f1"] > majority + 0.2
    if norm == "batch":
        moved = [n for n in result.weights[0] if n.endswith("_mean")]
        assert moved and all(np.abs(result.weights[0][n]).max() > 0 for n in moved)
    result.save(tmp_path / "result.npz")
    again = load(tmp_path / "result.npz")
    np.testing.assert_allclose(
        again.predict_proba(graph), result.predict_proba(graph), atol=1e-6
    )


@pytest.mark.parametrize("model", ["gcn", "gs-mean", "sgc", "nip-mean"])
def test_a_residual_is_a_skip_from_the_second_hop(model):
    graph = paper_split(make_planted(300, 900, seed=1), seed=0)
    plain = fit(graph, model, SHORT, progress=False)
    config = dataclasses.replace(SHORT, residual=True)
    result = fit(graph, model, config, progress=False)
    assert result.kernel.skip_from == 2
    same = MODELS[model].skip_from == 2
    assert np.allclose(plain.probabilities, result.probabilities) == same
    other = fit(graph, result.kernel, SHORT, progress=False)
    np.testing.assert_array_equal(result.probabilities, other.probabilities)


def test_norms_that_cannot_be_are_refused():
    graph = graphs.tiny()
    for model in set(MODELS) - set(WITH_LAYERS):
        with pytest.raises(ValueError, match="no layer to normalise"):
            fit(graph, model, dataclasses.replace(SHORT, norm="layer"))
    with pytest.raises(ValueError, match=r"batches_per_step is 2\. Set norm='layer'"):
        Config(norm="batch", batches_per_step=2)
    with pytest.raises(ValueError, match="norm is 'group'"):
        Config(norm="group")

"""`Config(precision="bfloat16")`: products are narrow, what must be exact is not."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hopf_jax
from hopf_jax import MODELS
from hopf_jax.batching.sparse import Rows, Transpose, spmm
from hopf_jax.datasets import make_planted, paper_split
from hopf_jax.inference import WholeGraph
from hopf_jax.learning.loss import Inputs, Objective, batch_loss
from tests import graphs, oracle

NARROW = 2**-8  # A rounding of bfloat16, relative.


def narrow(net):
    return net.clone(precision="bfloat16")


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_logits_are_those_of_the_equations_but_for_rounding(model, sparse):
    graph = graphs.tiny("all", sparse=sparse)
    net, params = graphs.net_of(model, sparse=sparse)
    summary = graphs.summary_for(net.kernel, graph)
    x = graphs.dense_features(graph)
    want = oracle.forward(net.kernel, params, graph, x, summary, 2)[0][:6]
    batch = graphs.batch_of(graph, np.arange(6), net.kernel)
    y = graphs.spread(batch, summary)
    got = graphs.logits_of(narrow(net), params, batch, batch.features, y)[:6]
    assert got.dtype == np.float32
    assert np.abs(got - want).max() < 8 * NARROW * np.abs(want).max()
    if net.kernel.learned_hops:
        assert np.abs(got - want).max() > 1e-6  # Or nothing was rounded.


def products(jaxpr):
    """Operand types of every dense product, in inner programs as well."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield {str(v.aval.dtype) for v in equation.invars}
        for value in jax.tree.leaves(list(equation.params.values())):
            if hasattr(value, "eqns") or hasattr(value, "jaxpr"):
                yield from products(getattr(value, "jaxpr", value))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", MODELS)
def test_every_product_of_a_training_step_is_of_that_precision(model, precision):
    graph = graphs.tiny("all")
    net, params = graphs.net_of(model, dropout=0.5)
    net = net.clone(precision=precision)
    summary = graphs.summary_for(net.kernel, graph)
    batch = jax.device_put(graphs.batch_of(graph, np.arange(6), net.kernel))
    objective = Objective(multilabel=False, l2=0.1, clip=5.0)
    inputs = Inputs(None, summary, np.ones(3, np.float32))
    words = np.array([1, 2], np.uint32)

    def loss(params):
        return batch_loss(net, objective, params, batch, inputs, words)[0]

    found = list(products(jax.make_jaxpr(jax.grad(loss))(params).jaxpr))
    # The loss is a product with the label weights, with its gradient, and outcomes are
    # counted by a product: these are in float32 whatever the precision.
    others = [types for types in found if types != {"float32"}]
    assert len(others) == (0 if precision == "float32" else len(found) - 3)
    assert all(types == {"bfloat16"} for types in others)
    assert len(found) > 3
    grads = jax.eval_shape(jax.grad(loss), params)
    assert {str(g.dtype) for g in grads.values()} == {"float32"}


def test_sums_over_many_neighbours_keep_their_digits():
    # 4096 ones, then 1: a sum in bfloat16 stands still at 256.
    count = 4097
    indptr, indices = np.array([0, count]), np.arange(count)
    back = Transpose(np.arange(count + 1), np.zeros(count, int), np.arange(count))
    rows, ones = Rows(indptr, indices, back), jnp.ones(count)
    x = jnp.ones((count, 2), jnp.bfloat16)
    got = spmm(rows, ones, x)
    assert got.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.asarray(got, np.float32), 4096)
    into = jax.grad(lambda x: spmm(rows, ones, x).astype(jnp.float32).sum())(x)
    assert into.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.asarray(into, np.float32), 1)


def test_it_learns_as_well_and_is_kept_with_the_result(tmp_path):
    graph = paper_split(make_planted(seed=1), seed=0)
    config = hopf_jax.Config(
        hidden_size=16,
        num_iterations=2,
        min_epochs=20,
        max_epochs=60,
        training_summaries="as-printed",
        summary_dropout=0.0,
    )
    other = dataclasses.replace(config, precision="bfloat16")
    wide = hopf_jax.fit(graph, "i-nip-mean", config=config, progress=False)
    small = hopf_jax.fit(graph, "i-nip-mean", config=other, progress=False)
    test = [r.scores["test"]["micro_f1"] for r in (wide, small)]
    assert test[1] > test[0] - 0.03
    assert np.abs(wide.probabilities - small.probabilities).max() > 1e-4
    assert small.probabilities.dtype == np.float32
    assert {w.dtype for w in small.weights[0].values()} == {np.dtype("float32")}
    small.save(tmp_path / "small.npz")
    loaded = hopf_jax.load(tmp_path / "small.npz")
    assert loaded.config.precision == "bfloat16"
    np.testing.assert_array_equal(
        loaded.predict_proba(graph), small.predict_proba(graph)
    )


@pytest.mark.parametrize(("chunk_edges", "chunks"), [(50, 30), (700, 3)])
def test_prediction_in_chunks_is_that_of_one(chunk_edges, chunks):
    graph = paper_split(make_planted(300, 900, seed=1), seed=0)
    assert len(WholeGraph(graph, chunk_edges).bounds) - 1 >= chunks
    config = hopf_jax.Config(
        hidden_size=8, num_iterations=2, max_epochs=3, precision="bfloat16"
    )
    result = hopf_jax.fit(graph, "i-nip-mean", config=config, progress=False)
    chunked = dataclasses.replace(
        result, execution=hopf_jax.Execution(chunk_edges=chunk_edges)
    )
    np.testing.assert_allclose(
        chunked.predict_proba(graph), result.probabilities, atol=0.02
    )

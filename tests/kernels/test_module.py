"""Every row of the table, on every kind of graph: what must hold for all of them."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from hopf_jax import MODELS, Config, Gate, Kernel, fit
from hopf_jax.batching.sparse import SparseMatrix
from hopf_jax.kernels import threefry
from hopf_jax.kernels.aggregators import attention, lstm, mean, symmetric, total
from hopf_jax.kernels.module import Net, Sizes, _BatchSteps, drop, roughness
from hopf_jax.kernels.propagation import Signals
from hopf_jax.learning.loss import Inputs, Objective, batch_loss
from hopf_jax.results.result import make_net
from tests import graphs, oracle

every_row = pytest.mark.parametrize("model", MODELS)
every_kind = pytest.mark.parametrize("kind", graphs.KINDS)
ROOTS = (np.arange(0, 6), np.arange(6, 12), np.arange(12, 18))

# Rows that the table has not: signals in other places, and every switch.
OTHER_ROWS = {
    "deep-own": Kernel(("h",), ("y",), mean),
    "fixed-neighbours": Kernel(("h",), ("h0",), mean),
    "own-summary": Kernel(("h0", "y"), ("h",), mean, skip_from=2),
    "gated": Kernel(("h0",), ("h",), total, Gate(2), Gate(3, -0.5), skip_from=1),
    "input-layer": Kernel(("h0",), ("h", "y"), mean, skip_from=1, input_layer=True),
    "own-summary-first": Kernel(("y", "h0"), ("h",), mean, skip_from=1),
    "no-own": Kernel((), ("h", "h0"), mean, concat=True),
    "short-lstm": Kernel(("h",), ("h",), lstm(2)),
    "linear-skip": Kernel(("h",), ("h",), mean, learned_hops=False, skip_from=1),
    "skipping-concat": Kernel(("h",), ("h",), mean, concat=True, skip_from=2),
    "ends": Kernel(("h",), ("h",), mean, input_layer=True, reads_out="ends"),
    "jumping": Kernel(("h",), ("h",), mean, input_layer=True, reads_out="each"),
    "weighted-jumps": Kernel(
        ("h0",), ("h",), symmetric, input_layer=True, reads_out="weighted"
    ),
    "learned-gates": Kernel(
        ("h0",), ("h", "y"), mean, Gate(2, learned=True), Gate(3, -0.5, learned=True)
    ),
    "attention-and-own": Kernel(("h0",), ("h", "h0"), attention, concat=True),
    "two-layers": Kernel(
        ("h",), ("h",), mean, concat=True, second_layer=True, skip_from=2
    ),
}


def expected(model, graph, summary, **settings):
    net, params = graphs.net_of(model, **settings)
    x = graphs.dense_features(graph)
    hops = net.sizes.num_hops
    return oracle.forward(net.kernel, params, graph, x, summary, hops)[0]


def batch_logits(model, graph, roots, summary, *, layout=graphs.SMALL, **settings):
    net, params = graphs.net_of(model, **settings)
    hops = net.sizes.num_hops
    batch = graphs.batch_of(graph, roots, net.kernel, layout=layout, num_hops=hops)
    y = graphs.spread(batch, summary)
    return graphs.logits_of(net, params, batch, batch.features, y)[: len(roots)]


def assert_equal_the_equations(model, graph, summary, **settings):
    want = expected(model, graph, summary, **settings)
    assert np.ptp(want) > 0.1  # Otherwise there is nothing to compare.
    for roots in ROOTS:
        got = batch_logits(model, graph, roots, summary, **settings)
        np.testing.assert_allclose(got, want[roots], rtol=1e-5, atol=1e-5)


@every_kind
@every_row
def test_batches_equal_the_equations(model, kind):
    graph = graphs.tiny(kind)
    summary = graphs.summary_for(MODELS[model], graph)
    assert_equal_the_equations(model, graph, summary)


@pytest.mark.parametrize("row", OTHER_ROWS.values(), ids=OTHER_ROWS)
def test_rows_of_the_users_own_equal_the_equations(row):
    for kind in ("plain", "all"):
        graph = graphs.tiny(kind)
        assert_equal_the_equations(row, graph, graphs.summary_for(row, graph))


@every_row
def test_sparse_features_equal_dense_ones(model):
    graph = graphs.tiny("all", sparse=True)
    assert sp.issparse(graph.features)
    summary = graphs.summary_for(MODELS[model], graph)
    assert_equal_the_equations(model, graph, summary)


@pytest.mark.parametrize("row", [OTHER_ROWS["gated"], OTHER_ROWS["linear-skip"]])
def test_sparse_features_where_no_weights_meet_them(row):
    graph = graphs.tiny("weighted", sparse=True)
    assert_equal_the_equations(row, graph, graphs.summary_for(row, graph))


@pytest.mark.parametrize("num_hops", [0, 1, 3])
@pytest.mark.parametrize(
    "model", ["bl-neigh", "ss-ica", "gcn", "gs-mean", "i-nip-mean"]
)
def test_other_numbers_of_hops(model, num_hops):
    graph = graphs.tiny("all")
    summary = graphs.summary_for(MODELS[model], graph)
    wide = graphs.Layout((8, 24, 24, 24), (96, 96, 96), 80)
    want = expected(model, graph, summary, num_hops=num_hops)
    got = batch_logits(model, graph, ROOTS[1], summary, layout=wide, num_hops=num_hops)
    np.testing.assert_allclose(got, want[ROOTS[1]], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model", ["gcn", "gs-max", "i-nip-mean"])
def test_biases_are_added(model):
    graph = graphs.tiny("all")
    summary = graphs.summary_for(MODELS[model], graph)
    assert_equal_the_equations(model, graph, summary, bias=True)
    biased = expected(model, graph, summary, bias=True)
    assert not np.allclose(biased, expected(model, graph, summary))


@every_row
def test_isolated_nodes_are_finite_and_read_no_one(model):
    graph = graphs.tiny("isolated")
    row, summary = MODELS[model], graphs.summary_for(MODELS[model], graph)
    alone = batch_logits(model, graph, np.array(graphs.ISOLATED), summary)
    assert np.isfinite(alone).all()
    if not row.phi and row.aggregate is not attention:  # Which reads the node too.
        np.testing.assert_array_equal(alone, 0)
    else:
        assert np.ptp(alone) > 0


# Padding


@every_row
def test_padding_changes_nothing(model):
    graph = graphs.tiny("all")
    summary = graphs.summary_for(MODELS[model], graph)
    small, large = (
        batch_logits(model, graph, ROOTS[2], summary, layout=layout)
        for layout in (graphs.SMALL, graphs.LARGE)
    )
    np.testing.assert_allclose(small, large, rtol=1e-5, atol=1e-6)


@every_row
def test_what_padding_holds_changes_nothing(model):
    graph = graphs.tiny("all")
    net, params = graphs.net_of(model)
    batch = graphs.batch_of(graph, ROOTS[2], net.kernel)
    y = graphs.spread(batch, graphs.summary_for(net.kernel, graph))
    clean = graphs.logits_of(net, params, batch, batch.features, y)[: len(ROOTS[2])]
    garbled, x, y = garble(batch, y)
    dirty = graphs.logits_of(net, params, garbled, x, y)[: len(ROOTS[2])]
    np.testing.assert_array_equal(clean, dirty)


def garble(batch, summary):
    """The batch with large numbers wherever there is padding."""
    rng = np.random.default_rng(9)
    n, e = batch.graph.n_node[0], batch.graph.n_edge[0]

    def after(array, count, scale=1e3):
        noise = scale * rng.normal(size=array.shape)
        real = np.arange(len(array)) < count
        return np.where(real.reshape(-1, *[1] * (array.ndim - 1)), array, noise).astype(
            array.dtype
        )

    degree = np.abs(after(batch.graph.nodes["degree"], n))
    graph = batch.graph._replace(
        nodes=batch.graph.nodes | {"degree": degree},
        edges={"weight": after(batch.graph.edges["weight"], e)},
    )
    x = after(batch.features, n)
    return (
        batch._replace(graph=graph),
        x,
        None if summary is None else after(summary, n),
    )


@functools.partial(graphs.quick_jit, static_argnums=(0, 1))
def gradients(net, objective, params, batch, inputs):
    return jax.grad(batch_loss, argnums=2, has_aux=True)(
        net, objective, params, batch, inputs, None
    )[0]


@every_row
def test_gradients_are_finite_under_padding_and_unchanged_by_it(model):
    graph = graphs.tiny("all")
    # One hop for the LSTM: its gradient takes long to compile.
    hops = 1 if model == "gs-lstm" else graphs.NUM_HOPS
    net, params = graphs.net_of(model, num_hops=hops)
    inputs = Inputs(None, graphs.summary_for(net.kernel, graph), np.ones(3, np.float32))
    small, large = (
        gradients(
            net,
            Objective(multilabel=False, l2=1e-2, clip=5.0),
            params,
            graphs.batch_of(graph, ROOTS[0], net.kernel, layout=layout, num_hops=hops),
            inputs,
        )
        for layout in (graphs.SMALL, graphs.LARGE)
    )
    assert small.keys() == params.keys()
    for name in small:
        assert np.isfinite(small[name]).all()
        assert np.abs(small[name]).max() > 0, name
        np.testing.assert_allclose(small[name], large[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", ["gcn-s", "gs-max", "i-nip-mean"])
def test_gradients_equal_differences_of_the_equations(model):
    graph = graphs.tiny("all", multilabel=True)
    net, params = graphs.net_of(model)
    summary = graphs.summary_for(net.kernel, graph)
    omega = np.array([0.5, 1, 2], np.float32)
    got = gradients(
        net,
        Objective(multilabel=True, l2=0.1, clip=5.0),
        params,
        graphs.batch_of(graph, ROOTS[0], net.kernel),
        Inputs(None, summary, omega),
    )
    x = graphs.dense_features(graph)

    def loss(changed):
        logits = oracle.forward(net.kernel, changed, graph, x, summary, 2)[0][ROOTS[0]]
        each = oracle.cross_entropy(logits, graph.labels[ROOTS[0]], omega, True)
        return each.mean() + 0.05 * sum((w**2).sum() for w in changed.values())

    rng = np.random.default_rng(3)
    exact = {k: np.asarray(w, np.float64) for k, w in params.items()}
    way = {k: rng.normal(size=w.shape) for k, w in params.items()}
    ahead, behind = (
        loss({k: w + s * way[k] for k, w in exact.items()}) for s in (1e-6, -1e-6)
    )
    along = sum((way[k] * np.asarray(got[k])).sum() for k in way)
    np.testing.assert_allclose(along, (ahead - behind) / 2e-6, rtol=1e-3)


# From one iteration into the one before


def gradient_into_the_summary(model):
    graph = graphs.tiny("weighted")
    net, params = graphs.net_of(model)
    batch = jax.device_put(graphs.batch_of(graph, ROOTS[0], net.kernel))

    def loss(summary):
        inputs = Inputs(None, summary, np.ones(3, np.float32))
        objective = Objective(multilabel=False, l2=0.0, clip=5.0)
        return batch_loss(net, objective, params, batch, inputs, None)[0]

    return np.asarray(graphs.quick_jit(jax.grad(loss))(graphs.random_summary(graph)))


@pytest.mark.parametrize("model", [m for m, row in MODELS.items() if row.iterative])
def test_no_gradient_flows_into_the_iteration_before(model, monkeypatch):
    np.testing.assert_array_equal(gradient_into_the_summary(model), 0)
    # And it is `stop_gradient` that sees to it: the loss does depend on the summary.
    monkeypatch.setattr(jax.lax, "stop_gradient", lambda x: x)
    assert np.abs(gradient_into_the_summary(model)).max() > 1e-4


# Dropout

WORDS = threefry.new_key(0)


def test_dropout_keeps_the_mean_at_its_rate():
    x = np.ones((400, 100), np.float32)
    for rate in (0.25, 0.5, 0.9):
        dropped = np.asarray(drop(WORDS, 0, x, rate))
        kept = dropped != 0
        assert abs(kept.mean() - (1 - rate)) < 0.01
        np.testing.assert_allclose(dropped[kept], 1 / (1 - rate), rtol=1e-5)
        # No row and no column is favoured.
        assert kept.mean(axis=0).std() < 0.04
        assert kept.mean(axis=1).std() < 0.08


def test_dropout_of_any_rate_below_one_leaves_something():
    x = np.ones(100_000, np.float32)
    for rate in (0.999, 0.9999):
        dropped = np.asarray(drop(WORDS, 0, x, rate))
        assert np.isfinite(dropped).all()
        assert 0 < (dropped != 0).mean() < 0.01


def test_dropout_is_off_without_words_or_a_rate():
    x = np.ones((3, 5), np.float32)
    assert drop(None, 0, x, 0.5) is x
    assert drop(WORDS, 0, x, 0.0) is x


def test_every_step_and_every_place_draws_anew():
    x = np.ones((50, 40), np.float32)
    other_step = threefry.fold_in(WORDS, 1)
    base = np.asarray(drop(WORDS, 0, x, 0.5)) > 0
    np.testing.assert_array_equal(base, drop(WORDS, 0, x, 0.5) > 0)
    for words, site in ((WORDS, 1), (WORDS, 5), (other_step, 0), (other_step, 1)):
        other = np.asarray(drop(words, site, x, 0.5)) > 0
        assert abs((base == other).mean() - 0.5) < 0.05  # As if tossed by a coin.


def test_sparse_dropout_drops_non_zeros_only():
    graph = graphs.tiny(sparse=True)
    x = graphs.batch_of(graph, ROOTS[0], MODELS["gcn"]).features
    dropped = drop(WORDS, 0, x, 0.5)
    assert isinstance(dropped, SparseMatrix)
    assert dropped.rows is x.rows
    used = x.rows.indptr[-1]
    values, kept = x.values[:used], np.asarray(dropped.values[:used])
    assert 0 < (kept == 0).sum() < used
    np.testing.assert_allclose(kept[kept != 0], 2 * values[kept != 0])


def test_label_summaries_are_not_dropped():
    # Only the summary differs from 0, so that dropping it would show.
    graph = graphs.tiny()
    row = Kernel((), ("y",), mean)
    net = Net(row, Sizes(7, 3, 5, 1, 3), dropout=0.5)
    params = net.initial_weights(threefry.new_key(0))
    batch = graphs.batch_of(graph, ROOTS[0], row, num_hops=1)
    y = graphs.spread(batch, graphs.random_summary(graph))
    h0 = np.zeros((len(y), 5), np.float32)
    read = batch.hop_graph(0), Signals(h0, h0, y)
    still, drawn = (
        net.apply({"params": params}, 1, *read, words, method="hop")
        for words in (None, WORDS)
    )
    assert np.abs(still).max() > 0
    np.testing.assert_array_equal(still, drawn)


def test_dropout_is_on_the_input_of_every_other_matrix():
    graph = graphs.tiny()
    net, params = graphs.net_of("nip-mean", dropout=0.5)
    batch = jax.device_put(graphs.batch_of(graph, ROOTS[0], net.kernel))
    variables = {"params": params}
    hop = batch.hop_graph(0)
    one = np.ones((batch.graph.nodes["id"].size, 5), np.float32)
    for method, arguments in (
        ("embed", (batch.features,)),
        ("hop", (2, hop, Signals(one, one, None))),
        ("hop", (2, hop, Signals(0 * one, one, None))),
        ("hop", (2, hop, Signals(one, 0 * one, None))),
        ("readout", (one,)),
    ):
        kept, dropped = (
            net.apply(variables, *arguments, words, method=method)
            for words in (None, WORDS)
        )
        assert not np.allclose(kept, dropped), method


# Weights


def test_initial_scales():
    row, sizes = MODELS["bl-node"], Sizes(1000, 3, 50, 1)
    for name, want in (
        ("fan-out", np.sqrt(2 / 50)),
        ("glorot", np.sqrt(2 / 1050)),
    ):
        net = Net(row, sizes, init_weights=name)
        w = net.initial_weights(threefry.new_key(0))["w_1_phi"]
        np.testing.assert_allclose(np.std(w), want, rtol=0.03)


@every_row
def test_weights_have_the_names_and_shapes_of_the_paper(model):
    net, params = graphs.net_of(model)
    row = net.kernel
    assert ("w_0" in params) == row.input_layer
    assert ("w_1_psi" in params) == (bool(row.psi) and row.learned_hops)
    separate = bool(row.phi) and row.learned_hops and not row.shared_weights
    assert ("w_1_phi" in params) == separate
    width = row.width(graphs.NUM_FEATURES, 5, row.num_layers(graphs.NUM_HOPS))
    if row.reads_out == "each":
        width = 5 * (graphs.NUM_HOPS + 1)
    if row.reads_out == "ends":
        width += graphs.NUM_FEATURES
    width += graphs.NUM_LABELS if row.votes else 0
    assert params["w_output"].shape == (width, graphs.NUM_LABELS)
    assert not any(name.startswith("b_") for name in params)


# Roughness, and dropout of label summaries


def test_roughness_is_the_mean_squared_distance_to_neighbours():
    graph = graphs.tiny("all")
    net, _ = graphs.net_of("nip-mean")
    batch = graphs.batch_of(graph, [0, 3, 5, 9], net.kernel)
    ids = np.asarray(batch.graph.nodes["id"])
    hop = batch.hop_graph(0)
    h = np.random.default_rng(0).normal(size=(len(ids), 5)).astype(np.float32)
    found = roughness(hop, h[: hop.graph.nodes["degree"].shape[0]])
    adjacency = graph.adjacency.toarray()
    where = {int(node): i for i, node in reversed(list(enumerate(ids)))}
    for i, root in enumerate([0, 3, 5, 9]):
        near = np.flatnonzero(adjacency[root])
        squares = [np.sum((h[i] - h[where[u]]) ** 2) for u in near]
        weights = adjacency[root, near]
        want = np.average(squares, weights=weights) if len(near) else 0
        np.testing.assert_allclose(found[i], want, rtol=1e-4, atol=1e-5)


def test_smoothing_makes_embeddings_smoother():
    graph = graphs.tiny()
    config = Config(hidden_size=5, max_epochs=30, min_epochs=30, num_hops=2)
    rough = []
    for smoothing in (0.0, 1.0):
        result = fit(
            graph, "nip-mean", dataclasses.replace(config, smoothing=smoothing)
        )
        net = make_net(result.kernel, config, result.sizes)
        batch = graphs.batch_of(graph, np.arange(8), net.kernel)
        variables = {"params": result.weights[0]}
        read = batch, batch.features, None, None, None
        rough.append(net.apply(variables, *read, method="with_roughness")[1].sum())
    assert rough[1] < 0.5 * rough[0]
    for model, hops in (("bl-node", 2), ("nip-mean", 1), ("ss-ica", 2)):
        bad = dataclasses.replace(config, smoothing=0.1, num_hops=hops)
        with pytest.raises(ValueError, match=r"smoothing is 0\.1"):
            fit(graph, model, bad)


@pytest.mark.parametrize("model", ["i-nip-mean", "ss-ica"])
@pytest.mark.parametrize("sparse", [False, True])
def test_summaries_are_dropped_after_the_sum_and_without_bias(model, sparse):
    graph = graphs.tiny("weighted", sparse=sparse)
    net, params = graphs.net_of(model, sparse=sparse)
    net = net.clone(summary_dropout=0.5)
    batch = graphs.batch_of(graph, [0, 2, 5], net.kernel)
    summary = graphs.spread(batch, graphs.random_summary(graph))
    steps = [
        _BatchSteps(
            net.bind({"params": params}), batch, batch.features, summary, w, None
        )
        for w in (
            None,
            *np.random.default_rng(0).integers(2**32, size=(300, 2), dtype=np.uint32),
        )
    ]
    assert steps[0].labels is None  # Nothing is dropped to predict.
    dropped = np.stack([np.asarray(step.labels) for step in steps[1:]])
    hop = steps[0]._hop_graph(net.num_layers - 1)
    senders = hop.graph.nodes["degree"].shape[0]
    whole = np.asarray(net.kernel.aggregate(hop, summary[:senders], {}))
    np.testing.assert_allclose(dropped.mean(axis=0)[:3], whole[:3], atol=0.15)
    zero = dropped[:, :3] == 0
    np.testing.assert_allclose(zero[:, whole[:3] > 0].mean(), 0.5, atol=0.05)


def test_a_known_label_block_is_what_a_hop_would_have_summed():
    graph = graphs.tiny("weighted")
    for model in ("i-nip-mean", "ss-ica"):
        net, params = graphs.net_of(model)
        batch = graphs.batch_of(graph, [0, 2, 5], net.kernel)
        summary = graphs.spread(batch, graphs.random_summary(graph))
        bound = net.bind({"params": params})
        hop = batch.hop_graph(0)
        rows = hop.graph.nodes["degree"].shape[0]
        x = batch.features[:rows]
        signals = Signals(x, x, summary[:rows])
        labels = net.kernel.aggregate(hop, summary[:rows], {})
        np.testing.assert_allclose(
            bound.hop(1, hop, signals, None, None, None, labels),
            bound.hop(1, hop, signals),
            rtol=1e-4,
            atol=1e-5,
        )

"""`fit`, predictions, saving and loading: finite and right, or a ValueError."""

import dataclasses
import functools
import io
import json
import pathlib
import tempfile

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st

from hopf_jax import Config, Graph, fit, load
from hopf_jax.metrics import f1_scores, one_hot
from tests.fuzzing import Refused, anything, attempt, fuzz

# Few and small programs: compiling them takes most of the time of a small fit.
TINY = Config(num_hops=1, hidden_size=3, num_iterations=2, max_epochs=2, min_epochs=1)
SHAPES = ("none", "path", "star", "random", "loops")


def edges_of(shape, n, rng):
    nodes = np.arange(n)
    if shape == "path":
        return nodes[:-1], nodes[1:]
    if shape == "star":
        return nodes[1:], np.zeros(n - 1, int)
    if shape == "loops":
        return nodes, nodes
    return rng.integers(0, n, (2, 2 * n if shape == "random" else 0))


def labels_of(kind, train, rng):
    n = len(train)
    ids = rng.integers(0, 3, n)
    if kind == "one class":
        return np.zeros(n, int)
    if kind == "absent":  # From the training nodes: class 2.
        return np.where(train, 0, 2)
    if kind == "strings":
        return np.array(["ape", "bee", "cat"])[ids]
    if kind == "multi-label":
        return np.concatenate([[[1, 1, 1]], rng.integers(0, 2, (n - 1, 3))])
    return ids


@st.composite
def fits(draw):
    """A graph with a split, and settings that may be too much for it."""
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    n = draw(st.sampled_from([2, 3, 50]))
    features = rng.normal(size=(n, 4)).astype(np.float32)
    features *= np.float32(draw(st.sampled_from([1, 1, 1, 0, 1e-30, 1e18, 1e38])))
    features = np.clip(features, -3e38, 3e38)
    if draw(st.booleans()):
        features = sp.csr_array(features)
    train = np.arange(n) < max(1, n // 2)
    kinds = ["ids", "one class", "strings", "multi-label", "absent"]
    labels = labels_of(draw(st.sampled_from(kinds)), train, rng)
    senders, receivers = edges_of(draw(st.sampled_from(SHAPES)), n, rng)
    weights = None
    if draw(st.booleans()):
        scale = draw(st.sampled_from([1, 1e-30, 1e30]))
        weights = scale * (rng.random(len(senders)) + 0.1)
    sets = {"train": train, "validation": ~train}
    graph = Graph.from_edges(
        senders, receivers, features, labels, weights=weights, **sets
    )
    model = draw(st.sampled_from(["i-nip-mean", "gcn", "wl", "gs-max", "gs-lstm"]))
    rate = draw(st.sampled_from([0.01, 0.01, 1e30]))
    return graph, model, dataclasses.replace(TINY, learning_rate=rate)


def check_predictions(probabilities, multilabel, shape):
    assert probabilities.shape == shape
    assert np.isfinite(probabilities).all()
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    if not multilabel:
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-4)


@fuzz(2, 30, example=fits())
def test_a_fit_is_finite_or_refused(example):
    graph, model, config = example
    result = attempt(fit, graph, model, config, progress=False)
    if isinstance(result, Refused):
        extreme = max(abs(graph.features).max(), config.learning_rate) > 1e10
        heavy = graph.weights is not None and graph.weights.max(initial=0) > 1e10
        assert extreme or heavy, result
        return
    many = graph.multilabel
    check_predictions(result.predict_proba(), many, graph.labels.shape)
    assert all(np.isfinite(record["train_loss"]) for record in result.history)
    decided = result.decision.decide(result.predict_proba())
    decided = decided if many else one_hot(decided, graph.num_labels)
    for name in ("train", "validation"):
        mask = getattr(graph, name)
        assert result.scores[name] == f1_scores(graph.labels[mask], decided[mask])
    np.testing.assert_array_equal(result.predict(graph), result.predict())


@pytest.mark.slow
@pytest.mark.parametrize("model", ["i-nip-mean", "gcn", "gs-max", "gs-lstm"])
def test_a_hub_of_fifty_thousand_is_learned_from(model):
    n, rng = 50_001, np.random.default_rng(0)
    sets = {"train": np.arange(40), "validation": np.arange(40, 60)}
    contents = rng.normal(size=(n, 4)), rng.integers(0, 3, n)
    graph = Graph.from_edges(*edges_of("star", n, rng), *contents, **sets)
    assert graph.degree[0] == 50_000
    result = fit(graph, model, TINY)
    check_predictions(result.predict_proba(), False, (n, 3))


@functools.cache
def fitted():
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(
        *rng.integers(0, 20, (2, 30)),
        rng.normal(size=(20, 4)),
        np.array(["ape", "bee", "cat"])[rng.integers(0, 3, 20)],
        train=np.arange(10),
        validation=np.arange(10, 20),
    )
    return fit(graph, "i-nip-mean", TINY)


@fuzz(
    20, 200, name=st.sampled_from(["graph", "model", "config", "seed"]), value=anything
)
def test_anything_as_an_argument_of_fit(name, value):
    if name == "seed" and isinstance(value, int) and not isinstance(value, bool):
        return  # A valid seed, or one that test_fitting tries.
    if name in ("model", "config") and value is None:
        return  # The defaults.
    arguments = {"graph": fitted().graph, "model": "gcn", "config": TINY}
    assert isinstance(attempt(fit, **arguments | {name: value}), Refused)


@fuzz(40, 300, nodes=anything)
def test_anything_as_nodes_to_predict(nodes):
    result = fitted()
    said = attempt(result.predict_proba, nodes)
    if not isinstance(said, Refused):
        check_predictions(said, False, (len(said), 3))
        names = np.array(["ape", "bee", "cat"])[said.argmax(axis=1)]
        np.testing.assert_array_equal(result.predict(nodes), names)
        if nodes is not None:
            chosen = np.asarray(nodes)
            chosen = chosen if chosen.size else np.zeros(0, int)
            np.testing.assert_array_equal(said, result.probabilities[chosen])


# Those of `fitted`, and some that differ.
LABEL_NAMES = (("ape", "bee", "cat"), ("bee", "cat", "ape"), ("ape", "bee"), ("0", "1"))


@st.composite
def new_graphs(draw):
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    n = draw(st.sampled_from([1, 2, 20]))
    num_features = draw(st.sampled_from([4, 4, 4, 3, 0]))
    scale = np.float32(draw(st.sampled_from([1, 1, 1e-38, 1e38])))
    features = np.clip(rng.normal(size=(n, num_features)), -3, 3).astype(np.float32)
    names = draw(st.sampled_from([None, *LABEL_NAMES]))
    return Graph.from_edges(
        *edges_of(draw(st.sampled_from(SHAPES)), n, rng),
        features * scale,
        None if names is None else rng.integers(0, len(names), n),
        label_names=names,
        train=None if names is None else [0],
    )


@fuzz(10, 100, graph=new_graphs())
def test_a_new_graph_is_predicted_or_refused(graph):
    said = attempt(fitted().predict_proba, graph)
    known = not graph.train.any() or graph.label_names == LABEL_NAMES[0]
    good = graph.num_features == 4 and known
    if isinstance(said, Refused):
        assert not good or abs(graph.features).max() > 1e30, said
    else:
        assert good
        check_predictions(said, False, (graph.num_nodes, 3))


# Saved, damaged and loaded


@functools.cache
def saved():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "result.npz")
        fitted().save(path)
        return path.read_bytes()


def read(data):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "result.npz")
        path.write_bytes(data)
        return attempt(load, path)


def check_loaded(loaded):
    """Nothing damaged was loaded."""
    result = fitted()
    if isinstance(loaded, Refused):
        assert "result.npz" in loaded
        return
    np.testing.assert_array_equal(loaded.probabilities, result.probabilities)
    for one, other in zip(loaded.weights, result.weights, strict=True):
        for name in other:
            np.testing.assert_array_equal(one[name], other[name])


@fuzz(40, 600, data=st.data())
def test_damaged_bytes(data):
    whole = bytearray(saved())
    how = data.draw(st.sampled_from(["flip", "cut", "insert", "swap", "zero"]))
    at = data.draw(st.integers(0, len(whole) - 1))
    length = data.draw(st.integers(1, 64))
    if how == "flip":
        whole[at] ^= data.draw(st.integers(1, 255))
    elif how == "cut":
        del whole[at:]
    elif how == "insert":
        whole[at:at] = data.draw(st.binary(min_size=1, max_size=64))
    elif how == "swap":
        whole[at : at + length] = reversed(whole[at : at + length])
    else:
        whole[at : at + length] = bytes(len(whole[at : at + length]))
    check_loaded(read(bytes(whole)))


plain = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 5),
        st.sampled_from([2**40, 2**70, 0.5, "mean", "h"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["scale", "micro_f1"]), inner, max_size=2),
    ),
    max_leaves=4,
)


@fuzz(60, 500, data=st.data(), value=plain)
def test_anything_in_the_description(data, value):
    with np.load(io.BytesIO(saved())) as archive:
        arrays = dict(archive)
    meta = json.loads(arrays["meta"].tobytes())
    whole, inner = meta, meta
    key = data.draw(st.sampled_from(sorted(meta)))
    while (
        isinstance(inner[key], dict | list) and inner[key] and data.draw(st.booleans())
    ):
        inner = inner[key]
        keys = sorted(inner) if isinstance(inner, dict) else range(len(inner))
        key = data.draw(st.sampled_from(keys))
    inner[key] = value
    memory = io.BytesIO()
    text = json.dumps(whole).encode()
    np.savez(memory, **arrays | {"meta": np.frombuffer(text, np.uint8)})
    loaded = read(memory.getvalue())
    if not isinstance(loaded, Refused):
        check_loaded(loaded)
        assert repr(loaded) and hash((loaded.kernel, loaded.config, loaded.sizes))
        assert 1 <= loaded.iteration <= len(loaded.weights)

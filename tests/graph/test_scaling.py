"""Scaling of features: what is decided, that it is robust, and that it is stored."""

import numpy as np
import pytest
import scipy.sparse as sp

from hopf_jax import Config, Graph, fit, load
from hopf_jax.config import config_from_json
from hopf_jax.graph import Scaling, learn_scaling, open_graph, write_graph

RNG = np.random.default_rng(0)
QUICK = Config(num_hops=1, hidden_size=4, max_epochs=3, min_epochs=1)


def ages(num_nodes=500):
    """Three ordinary columns of very different scales."""
    rng = np.random.default_rng(1)
    return rng.normal((40, 3e6, -1e-5), (12, 1e6, 1e-6), (num_nodes, 3))


def words(num_nodes=200, num_words=40):
    rng = np.random.default_rng(2)
    return rng.poisson(0.1, (num_nodes, num_words)).astype(np.float32)


def graph_of(features, **keywords):
    n = features.shape[0]
    rng = np.random.default_rng(3)
    keywords = {"train": range(0, n, 2), "validation": range(1, n, 2)} | keywords
    ends = rng.integers(n, size=(2, 3 * n))
    return Graph.from_edges(*ends, features, rng.integers(2, size=n), **keywords)


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


@pytest.mark.parametrize(
    ("features", "kind"),
    [
        (words(), "bag of words"),
        (sp.csr_array(words()), "bag of words"),
        (sp.eye_array(50).tocsr(), "bag of words"),
        (np.eye(50), "bag of words"),
        (sp.csr_array(np.eye(3)[RNG.integers(3, size=90)]), "sparse"),
        (sp.csr_array(words() - 3 * words()[::-1]), "sparse"),
        (words() - 3 * words()[::-1], "dense"),
        (words(num_words=15), "dense"),
        (ages(), "dense"),
        (RNG.random((50, 30)), "dense"),
        # An age beside the words would leave nothing of them.
        (np.hstack([words(), 40 + RNG.random((200, 1))]), "dense"),
        (sp.csr_array(np.hstack([words(), 40 + RNG.random((200, 1))])), "sparse"),
    ],
)
def test_kinds_of_matrices_are_told_apart(features, kind):
    scaling = learn_scaling(features)
    assert scaling.kind == kind
    assert ("bag of words" in scaling.describe()[0]) == (kind == "bag of words")
    scaled = scaling.apply(features)
    assert scaled.dtype == np.float32 and scaled.shape == features.shape
    assert sp.issparse(scaled) == sp.issparse(features)
    rows = abs(dense(scaled)).sum(axis=1)
    if kind == "bag of words":
        np.testing.assert_allclose(rows[rows > 0], rows.max(), rtol=1e-5)
        norms = np.square(dense(scaled)).sum(axis=1)
        assert np.sqrt(norms.mean()) == pytest.approx(3, rel=1e-5)
    else:
        squares = np.square(dense(scaled)).mean(axis=0)
        assert (squares > 0.3).all() and (squares < 3).all()


def test_extreme_values_do_not_flatten_a_column():
    features = ages()
    plain = learn_scaling(features).apply(features)
    features[7, 0], features[8, 1], features[9, 2] = 1e30, -1e25, 1e8
    found = learn_scaling(features).apply(features)
    assert found[[7, 8, 9], [0, 1, 2]].tolist() == [5, -5, 5]
    others = np.delete(np.arange(500), [7, 8, 9])
    np.testing.assert_allclose(found[others], plain[others], atol=0.05)


@pytest.mark.parametrize("size", [1e30, 1.0, 1e-30])
@pytest.mark.parametrize("make", [ages, words, lambda: sp.csr_array(words())])
def test_the_unit_of_measurement_does_not_matter(size, make):
    features = np.float32(1) * make()
    wanted = dense(learn_scaling(features).apply(features))
    if make is ages:  # Its columns are of other scales already.
        features = features / abs(features).max(axis=0)
    found = dense(learn_scaling(features * size).apply(features * size))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, wanted, atol=1e-3)


def test_a_rare_indicator_is_kept():
    features = np.zeros((1000, 2), np.float32)
    features[:3, 0], features[:, 1] = 1, RNG.normal(size=1000)
    scaling = learn_scaling(features)
    assert scaling.num_scaled == 2
    found = scaling.apply(features)[:, 0]
    assert found[0] == 5 and -0.1 < found[5] < 0


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_constant_columns_are_left_out_and_named(wrap):
    features = np.hstack([np.full((500, 1), 7.0), ages(), np.zeros((500, 1))])
    scaling = learn_scaling(wrap(features), ("seven", "a", "b", "c", "nothing"))
    assert "2 columns left out, the same for all nodes: seven, nothing." in (
        scaling.describe()
    )
    new = features[:4].copy()
    new[:, [0, 4]] = 1e9  # Nothing was learned of them.
    found = dense(scaling.apply(wrap(new)))
    np.testing.assert_array_equal(found, dense(scaling.apply(wrap(features)))[:4])


def test_words_that_never_occur_are_left_out():
    features = words()
    features[:, 5] = 0
    for wrap in (np.asarray, sp.csr_array):
        scaling = learn_scaling(wrap(features))
        assert scaling.kind == "bag of words" and scaling.num_scaled == 39
        new = features[:10].copy()
        new[:, 5] = 100
        found, wanted = (dense(scaling.apply(wrap(x))) for x in (new, features[:10]))
        np.testing.assert_array_equal(found, wanted)


def test_empty_rows_stay_zero():
    features = words()
    features[3] = 0
    for wrap in (np.asarray, sp.csr_array):
        assert not dense(learn_scaling(features).apply(wrap(features)))[3].any()


@pytest.mark.parametrize(
    "features", [np.ones((6, 2)), np.zeros((6, 20)), sp.csr_array((6, 20))]
)
def test_a_matrix_of_constant_columns_is_refused(features):
    with pytest.raises(ValueError, match="columns of features are constant"):
        fit(graph_of(features), "i-nip-mean", config=QUICK, progress=False)


def test_dense_and_sparse_forms_of_new_graphs_are_scaled_alike():
    for features in (words(), ages().astype(np.float32), words() - words()[::-1]):
        for learned in (features, sp.csr_array(features)):
            scaling = learn_scaling(learned)
            forms = [scaling.apply(features), scaling.apply(sp.csr_array(features))]
            np.testing.assert_allclose(*map(dense, forms), rtol=1e-6)


def test_a_memory_map_becomes_another_one(tmp_path, monkeypatch):
    monkeypatch.setattr("hopf_jax.graph.scaling._VALUES_AT_ONCE", 50)
    monkeypatch.setattr("hopf_jax.graph.scaling._ROWS_READ", 400)
    for name, features in (("dense", ages().astype(np.float32)), ("words", words())):
        write_graph(graph_of(features), tmp_path / name)
        mapped = open_graph(tmp_path / name).features
        scaling = learn_scaling(mapped)
        found = scaling.apply(mapped)
        assert isinstance(found, np.memmap)
        np.testing.assert_array_equal(found, scaling.apply(features))
        wanted = learn_scaling(features).apply(features)
        np.testing.assert_allclose(found, wanted, atol=0.2)


def test_plain_data_gives_the_scaling_back():
    scaling = learn_scaling(ages(), ("age", "income", "trace"))
    again = Scaling.unpack(*scaling.pack(), scaling.names)
    assert again.describe() == scaling.describe() and again.names == scaling.names
    np.testing.assert_array_equal(again.apply(ages()), scaling.apply(ages()))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "other"},
        {"names": ("one",)},
        {"scale": np.array([1.0, np.nan, 1])},
        {"scale": np.array([1.0, -1, 1])},
        {"scale": np.ones(2)},
        {"centre": np.ones(3, np.float32)},
        {"gaps": np.array([3]), "gap_shares": np.array([0.5])},
        {"gaps": np.array([1]), "gap_shares": np.array([1.0])},
    ],
)
def test_damaged_plain_data_is_refused(change):
    kind, arrays = learn_scaling(ages()).pack()
    given = {"kind": kind, "names": ()} | arrays | change
    with pytest.raises(ValueError, match="scaling of features cannot be right"):
        Scaling.unpack(given["kind"], given, given["names"])


def test_a_model_scales_new_graphs_as_it_scaled_its_own(tmp_path):
    graph = graph_of(ages())
    result = fit(graph, "i-nip-mean", config=QUICK, progress=False)
    assert "3 columns standardised" in result.describe()
    np.testing.assert_allclose(result.predict_proba(graph), result.predict_proba())
    half = graph_of(ages()[:50] * 3)
    assert result.scaling.apply(half.features).std() > 2  # 1, were it learned anew.
    said = result.predict_proba(half)
    result.save(tmp_path / "result.npz")
    loaded = load(tmp_path / "result.npz")
    np.testing.assert_array_equal(loaded.predict_proba(half), said)
    assert loaded.describe() == result.describe()
    assert loaded.explain(3, half).node == 3
    with pytest.raises(ValueError, match="has 2 features, but the model learned from"):
        result.predict(graph_of(ages()[:, :2]))


def test_the_unit_of_a_column_does_not_change_predictions():
    said = [
        fit(
            graph_of(ages() * unit), "i-nip-mean", config=QUICK, progress=False
        ).predict_proba()
        for unit in (1, np.array([1000, 1e-6, 1e6]))
    ]
    np.testing.assert_allclose(*said, atol=1e-3)


def test_as_is_reads_features_as_they_are(tmp_path):
    config = Config(features="as-is", num_hops=1, max_epochs=2, min_epochs=1)
    result = fit(graph_of(words()), "i-nip-mean", config=config, progress=False)
    assert result.scaling is None and "Used as they are" in result.describe()
    result.save(tmp_path / "result.npz")
    assert load(tmp_path / "result.npz").scaling is None


def test_settings_of_earlier_versions_mean_as_is():
    assert config_from_json({"num_hops": 1}).features == "as-is"
    assert config_from_json({"features": "auto"}).features == "auto"

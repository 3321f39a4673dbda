"""The scikit-learn estimator: scikit-learn's own checks, and node ids as samples."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import estimator_checks_generator

from hopf_jax import Config, HOPFClassifier, fit
from hopf_jax.datasets import make_planted

CONFIG = Config(
    num_hops=1, hidden_size=4, max_epochs=3, batch_size=256, num_iterations=1
)
# Neighbours tell the class, features hardly do.
GRAPH = make_planted(60, 240, 6, 3, homophily=1.0, noise=2.0)
IDS = np.arange(60)
NAMES = np.array(["a", "b", "c"])[GRAPH.labels.argmax(axis=1)]

# scikit-learn's checks use features; with a graph X are ids, so that only checks that
# fit nothing apply. Most others compile anew, because each has data of its own shape.
QUICK = {
    *("check_estimator_cloneable", "check_estimator_tags_renamed"),
    *("check_valid_tag_types", "check_estimator_repr", "check_mixin_order"),
    *("check_no_attributes_set_in_init", "check_parameters_default_constructible"),
    *("check_get_params_invariance", "check_set_params"),
    "check_do_not_raise_errors_in_init_or_set_params",
}
PLAIN = HOPFClassifier(
    model="bl-node",
    num_hops=1,
    hidden_size=8,
    max_epochs=100,
    dropout=0.0,
    config=Config(weighted_loss=False, batch_size=512),
)
NOT_APPLICABLE = {  # And why.
    "check_array_api_input": "JAX is the array library here, there is no other",
    "check_classifiers_multilabel_output_format_decision_function": (
        "there is no decision_function: predict_proba has the probabilities"
    ),
}


ESTIMATORS = {"features": PLAIN, "graph": HOPFClassifier(GRAPH, config=CONFIG)}


def named(check):
    return getattr(check, "func", check).__name__


def checks():
    for kind, estimator in ESTIMATORS.items():
        for _, check in estimator_checks_generator(estimator):
            name = named(check)
            marks = [] if name in QUICK else [pytest.mark.slow]
            if name in QUICK or (kind == "features" and name not in NOT_APPLICABLE):
                yield pytest.param(kind, check, id=f"{name}-{kind}", marks=marks)


@pytest.mark.parametrize(("kind", "check"), list(checks()))
def test_the_checks_of_scikit_learn(kind, check):
    check(clone(ESTIMATORS[kind]))


def test_the_names_of_checks_exist():
    names = {named(check) for _, check in estimator_checks_generator(PLAIN)}
    assert set(NOT_APPLICABLE) < names and names > QUICK
    assert len(names) > 45


@pytest.fixture(scope="module")
def fitted():
    return HOPFClassifier(GRAPH, "nip-mean", config=CONFIG).fit(IDS[:40], NAMES[:40])


def test_fit_is_that_of_the_library(fitted):
    result = fitted.result_
    graph = result.graph
    assert (graph.train | graph.validation).nonzero()[0].tolist() == list(range(40))
    np.testing.assert_array_equal(graph.known, IDS < 40)
    assert not graph.labels[40:].any()
    np.testing.assert_array_equal(graph.indices, GRAPH.indices)
    again = fit(graph, "nip-mean", CONFIG, seed=0, progress=False)
    np.testing.assert_array_equal(again.probabilities, result.probabilities)
    assert fitted.classes_.tolist() == ["a", "b", "c"] == list(result.label_names)
    assert (fitted.n_features_in_, fitted.n_iter_) == (1, len(result.history))


def test_a_fifth_of_each_class_is_held_out(fitted):
    held = fitted.result_.graph.validation
    of_class = {name: (NAMES[:40] == name).sum() for name in "abc"}
    for name in "abc":
        assert (held[:40] & (NAMES[:40] == name)).sum() == of_class[name] // 5


def test_predictions_are_of_the_nodes_asked_for(fitted):
    proba = fitted.predict_proba([[50], [3]])
    expected = fitted.result_.probabilities[[50, 3]]
    np.testing.assert_allclose(proba, expected, rtol=1e-6)
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-12)
    for ids in ([50, 3], np.array([50.0, 3.0]), np.array([[50], [3]], np.int32)):
        np.testing.assert_array_equal(fitted.predict_proba(ids), proba)
    said = fitted.predict([50, 3])
    np.testing.assert_array_equal(said, fitted.classes_[proba.argmax(axis=1)])
    score = fitted.score(IDS[40:], NAMES[40:])
    assert score == np.mean(fitted.predict(IDS[40:]) == NAMES[40:])


def test_clones_share_the_graph_and_nothing_learned(fitted):
    copy = clone(fitted)
    assert copy.graph is fitted.graph
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "result_")


def test_settings_go_over_those_of_the_config():
    estimator = HOPFClassifier(config=CONFIG, num_hops=3, dropout=0.0)
    settings = estimator._settings()
    assert (settings.num_hops, settings.dropout) == (3, 0.0)
    assert (settings.hidden_size, settings.batch_size) == (4, 256)
    assert HOPFClassifier()._settings() == Config()
    with pytest.raises(TypeError, match="hops"):
        HOPFClassifier(hops=3)


def test_a_grid_is_searched_over_models_and_hops():
    grid = [
        {"model": ["bl-node"], "num_hops": [1]},
        {"model": ["bl-neigh"], "num_hops": [2]},
    ]
    config = dataclasses.replace(CONFIG, min_epochs=0, learning_rate=0.05)
    estimator = HOPFClassifier(GRAPH, config=config, max_epochs=30)
    search = GridSearchCV(estimator, grid, cv=2).fit(IDS, NAMES)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_ == {"model": "bl-neigh", "num_hops": 2}
    assert search.best_score_ > 0.55  # By chance: 0.33.
    assert search.best_estimator_.result_.config.num_hops == 2
    assert search.predict([[0]]).shape == (1,)


def test_several_labels_per_node(monkeypatch):
    labels = np.random.default_rng(0).integers(0, 2, (60, 4))
    many = HOPFClassifier(GRAPH, "bl-neigh", config=CONFIG).fit(IDS, labels)
    proba = many.predict_proba(IDS)
    assert proba.shape == (60, 4) and many.result_.multilabel
    thresholds = many.result_.decision.thresholds
    np.testing.assert_array_equal(many.predict(IDS), proba > np.float32(thresholds))
    assert many.classes_.tolist() == [0, 1, 2, 3]
    # One column of two values holds classes, not labels.
    seen = []
    fake = lambda graph, *_, **__: seen.append(graph) or many.result_  # noqa: E731
    monkeypatch.setattr("hopf_jax.sklearn_api.fit", fake)
    many.fit(IDS, labels[:, 0])
    assert not seen[0].multilabel and many.classes_.tolist() == [0, 1]


def test_the_random_state_draws_the_nodes_held_out(fitted, monkeypatch):
    drawn = []

    def fake(graph, model, config, *, seed, **_):
        drawn.append((seed, tuple(np.flatnonzero(graph.validation))))
        return fitted.result_

    monkeypatch.setattr("hopf_jax.sklearn_api.fit", fake)
    for state in (1, 1, 2, np.random.RandomState(0), np.random.RandomState(0), None):
        clone(fitted).set_params(random_state=state).fit(IDS, NAMES)
    assert drawn[0] == drawn[1] and drawn[3] == drawn[4]
    assert len({seed for seed, _ in drawn}) == 4
    assert len({held for _, held in drawn}) == 4


@pytest.mark.parametrize(
    ("settings", "ids", "labels", "message"),
    [
        ({}, [0, 60], "ab", r"X\[1\] is 60, but the graph has 60 nodes"),
        ({}, [0, -1], "ab", r"X\[1\] is -1"),
        ({}, [0.5, 1], "ab", "X must be a list of whole numbers"),
        ({}, [[0, 1], [1, 0]], "ab", "X has 2 columns; with a graph it holds node ids"),
        ({}, [0, 1, 2], "ab", "X has 3 rows, but y has 2"),
        ({}, [0, 1, 0], "abb", r"X\[2\] is node 0, which was given before"),
        ({}, [0, 1], "aa", "one class only"),
        ({}, [0], "a", "one class only"),
        ({}, [0, 0], [[0, 1], [0, 1]], "Give two nodes or more"),
        ({}, [0, 1], [0.5, 1.5], "Unknown label type"),
        ({"graph": "cora"}, [0, 1], "ab", "graph is 'cora'.*load_dataset"),
        ({"config": 3}, [0, 1], "ab", "config is a int"),
        ({"num_hops": 99}, [0, 1], "ab", "num_hops is 99"),
        ({"model": "gnc"}, [0, 1], "ab", "No model is called 'gnc'"),
        ({"validation_fraction": 1}, [0, 1], "ab", "validation_fraction is 1"),
    ],
)
def test_bad_input_says_what_to_do(settings, ids, labels, message):
    estimator = HOPFClassifier(GRAPH, config=CONFIG).set_params(**settings)
    labels = list(labels) if isinstance(labels, str) else labels
    with pytest.raises(ValueError, match=message):
        estimator.fit(ids, labels)


def test_features_without_a_graph_may_be_sparse():
    X = sp.csr_array(np.maximum(GRAPH.features, 0))
    config = dataclasses.replace(CONFIG, features="as-is")
    estimator = HOPFClassifier(model="bl-node", dropout=0.0, config=config)
    one = estimator.fit(X, NAMES).predict_proba(X[:7])
    two = estimator.fit(X.toarray(), NAMES).predict_proba(X.toarray()[:7])
    np.testing.assert_allclose(one, two, rtol=1e-4)

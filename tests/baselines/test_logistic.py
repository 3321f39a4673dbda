"""Logistic regressions: the optimum that scikit-learn finds, for several strengths."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from hopf_jax.baselines import logistic
from hopf_jax.baselines.logistic import solve_logistic, to_probabilities

STRENGTHS = (0.01, 1.0, 100.0)


def data(num_rows, num_columns, multilabel=False):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(num_rows, num_columns)).astype(np.float32)
    rows *= rng.random(rows.shape) < 0.3
    logits = rows @ rng.normal(size=(num_columns, 3)) + rng.normal(size=(num_rows, 3))
    if multilabel:
        return rows, (logits > 1).astype(np.uint8)
    return rows, np.eye(3, dtype=np.uint8)[logits.argmax(axis=1)]


@pytest.mark.parametrize("shape", [(80, 20), (30, 50)])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("rotated", [True, False])
def test_weights_are_those_of_scikit_learn(shape, sparse, rotated, monkeypatch):
    if not rotated:
        monkeypatch.setattr(logistic, "MOST_AXES", 1)
    monkeypatch.setattr(logistic, "_EXACT", 1e-12)
    rows, labels = data(*shape)
    given = sp.csr_array(rows) if sparse else rows
    found = solve_logistic(given, labels, False, STRENGTHS)
    for strength, model in zip(STRENGTHS, found, strict=True):
        expected = LogisticRegression(C=strength, tol=1e-8, max_iter=10_000)
        expected.fit(rows.astype(np.float64), labels.argmax(axis=1))
        said = to_probabilities(model.logits(given), False)
        np.testing.assert_allclose(said, expected.predict_proba(rows), atol=2e-4)
        assert model.weights.dtype == np.float32
        if strength == 1:
            np.testing.assert_allclose(model.weights.T, expected.coef_, atol=1e-3)


def test_several_labels_are_solved_one_by_one(monkeypatch):
    monkeypatch.setattr(logistic, "_EXACT", 1e-12)
    rows, labels = data(60, 40, multilabel=True)
    labels[:, 1] = 1  # Every node has it.
    for strength, model in zip(
        STRENGTHS, solve_logistic(rows, labels, True, STRENGTHS), strict=True
    ):
        said = to_probabilities(model.logits(rows), True)
        assert said[:, 1].min() > 1 - 1e-6 and not model.weights[:, 1].any()
        for label in (0, 2):
            expected = LogisticRegression(C=strength, tol=1e-8, max_iter=10_000)
            expected.fit(rows, labels[:, label])
            own = expected.predict_proba(rows)[:, 1]
            np.testing.assert_allclose(said[:, label], own, atol=2e-4)


def test_a_label_that_no_row_has_is_not_predicted():
    rows, labels = data(60, 40)
    labels = np.hstack([labels, np.zeros((60, 1), np.uint8)])
    model = solve_logistic(rows, labels, False, [1.0])[0]
    assert to_probabilities(model.logits(rows), False)[:, 3].max() < 1e-6


def test_rows_without_any_difference_have_the_shares_of_the_labels():
    labels = np.eye(2, dtype=np.uint8)[[0, 0, 0, 1]]
    model = solve_logistic(np.ones((4, 3), np.float32), labels, False, [1.0])[0]
    said = to_probabilities(model.logits(np.ones((1, 3))), False)
    np.testing.assert_allclose(said, [[0.75, 0.25]], atol=1e-3)

"""Temperatures and calibration errors."""

import json

import numpy as np
import pytest

from hopf_jax import load
from hopf_jax.results import calibration
from hopf_jax.results.calibration import (
    calibrate,
    calibration_error,
    fit_temperature,
    soften,
)
from tests import graphs


def drawn(temperature, multilabel, count=20_000):
    """Labels, and probabilities of a model whose logits are so many times too large."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(count, 3))
    if multilabel:
        true = rng.random((count, 3)) < 1 / (1 + np.exp(-logits))
        return 1 / (1 + np.exp(-temperature * logits)), true
    chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    chosen = (rng.random((count, 1)) > chance.cumsum(axis=1)).sum(axis=1)
    said = np.exp(temperature * logits)
    return said / said.sum(axis=1, keepdims=True), np.eye(3, dtype=np.uint8)[chosen]


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_temperature_is_found(temperature, multilabel):
    said, true = drawn(temperature, multilabel)
    found = fit_temperature(said.astype(np.float32), true, multilabel)
    assert found == pytest.approx(temperature, rel=0.05)
    after = calibration_error(soften(said, found, multilabel), true, multilabel)
    assert after < 0.01
    if temperature != 1:
        assert calibration_error(said, true, multilabel) > 0.05


def test_the_temperature_is_finite_where_all_predictions_are_right():
    said = np.full((30, 2), [0.9, 0.1], np.float32)
    true = np.tile(np.array([1, 0], np.uint8), (30, 1))
    assert 0.2 < fit_temperature(said, true, False) < 0.8
    assert 1.1 < fit_temperature(said, 1 - true, False) < calibration._LARGEST
    certain = np.tile(np.array([1, 0], np.float32), (30, 1))
    softened = soften(certain, fit_temperature(certain, 1 - true, True), True)
    assert np.isfinite(softened).all() and 0 < softened.min() < softened.max() < 1


@pytest.mark.parametrize("multilabel", [False, True])
def test_predictions_do_not_change(multilabel):
    said, _ = drawn(1.0, multilabel, 50)
    for temperature in (0.3, 4.0):
        softened = soften(said, temperature, multilabel)
        if multilabel:
            np.testing.assert_array_equal(softened > 0.5, said > 0.5)
        else:
            np.testing.assert_array_equal(softened.argmax(1), said.argmax(1))
            np.testing.assert_allclose(softened.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(soften(said, 1.0, multilabel), said, rtol=1e-5)


def test_the_error_computed_by_hand():
    said = np.array([[0.9, 0.1], [0.95, 0.05], [0.3, 0.7], [0.45, 0.55]])
    true = np.array([[1, 0], [0, 1], [0, 1], [0, 1]])
    # Bins of a tenth: 0.9 is in (0.8, 0.9], 0.95 alone, 0.7 and 0.55 alone.
    assert calibration_error(said, true, False, 10) == pytest.approx(
        (0.1 + 0.95 + 0.3 + 0.45) / 4
    )
    # One bin: mean confidence 0.775, three of four right.
    assert calibration_error(said, true, False, 1) == pytest.approx(0.025)
    # Labels apart, two bins: 0.1, 0.05, 0.3, 0.45 with one label present of four;
    # 0.9, 0.95, 0.7, 0.55 with three of four.
    expected = abs(0.9 - 1) / 8 + abs(3.1 - 3) / 8
    assert calibration_error(said, true, True, 2) == pytest.approx(expected)
    assert calibration_error(np.ones((3, 1)), np.ones((3, 1)), False) == 0
    assert calibration_error(np.zeros((3, 1)), np.zeros((3, 1)), True) == 0


def test_the_validation_error_is_cross_validated(monkeypatch):
    graph = graphs.tiny()
    rng = np.random.default_rng(0)
    said = rng.dirichlet(np.ones(3), 18).astype(np.float32)
    learned_from = []

    def spy(said, true, multilabel):
        learned_from.append({row.tobytes() for row in said})
        return 2.0

    monkeypatch.setattr(calibration, "fit_temperature", spy)
    found = calibrate(graph, said)
    whole, *folds = learned_from
    held = {row.tobytes() for row in said[graph.validation]}
    assert whole == held
    assert len(folds) == 5  # Five validation nodes: each is judged by the other four.
    assert {frozenset(held - fold) for fold in folds} == {frozenset({h}) for h in held}
    test = graph.test
    expected = calibration_error(soften(said[test], 2.0, False), graph.labels[test], 0)
    assert found.ece_after["test"] == expected


def test_one_validation_node_and_no_test_nodes():
    graph = graphs.tiny().with_split([0, 1], [2])
    said = np.full((18, 3), 1 / 3, np.float32)
    found = calibrate(graph, said)
    assert found.ece_after == {"validation": None}
    assert list(found.ece_before) == ["validation"]
    shown = calibration.Confidence(said, np.zeros(18, int), False, found, np.arange(3))
    assert repr(shown).splitlines()[-1].split()[-1] == "-"


def test_many_nodes_are_sampled(monkeypatch):
    monkeypatch.setattr(calibration, "_MOST_ENTRIES", 9)
    seen = []
    real = calibration.fit_temperature
    monkeypatch.setattr(
        calibration, "fit_temperature", lambda *a: seen.append(len(a[0])) or real(*a)
    )
    calibrate(graphs.tiny(), np.full((18, 3), 1 / 3, np.float32))
    assert seen[0] == 3


# Of a result


@pytest.fixture(params=["result", "multilabel_result"])
def fitted(request):
    return request.getfixturevalue(request.param)


def test_the_confidence_of_a_result(fitted):
    found = fitted.confidence([3, 1])
    many = fitted.multilabel
    expected = soften(fitted.probabilities[[3, 1]], found.temperature, many)
    np.testing.assert_array_equal(found.probabilities, expected)
    assert found.values.shape == ((2, 3) if many else (2,))
    decided = fitted.predict([3, 1])
    for node, row in enumerate(found.probabilities):  # Of what is predicted.
        expected = np.where(decided[node], row, 1 - row) if many else row[decided[node]]
        np.testing.assert_array_equal(found.values[node], expected)
    assert set(found.ece_before) == set(found.ece_after) == {"validation", "test"}
    assert repr(found).startswith("Calibrated probabilities of 2 nodes, temperature")
    assert "<table>" in found._repr_html_()
    again = fitted.confidence(graphs.tiny("weighted", multilabel=many)).probabilities
    np.testing.assert_array_equal(again, fitted.confidence().probabilities)


def test_a_file_without_a_calibration(result, tmp_path):
    result.save(tmp_path / "r.npz")
    with np.load(tmp_path / "r.npz") as archive:
        arrays = dict(archive)
    meta = json.loads(arrays["meta"].tobytes())
    del meta["calibration"]
    text = json.dumps(meta | {"format": 1}).encode()
    np.savez(tmp_path / "old.npz", **arrays | {"meta": np.frombuffer(text, np.uint8)})
    old = load(tmp_path / "old.npz")
    np.testing.assert_array_equal(old.predict(), result.predict())
    with pytest.raises(ValueError, match="older version, which kept no calibration"):
        old.confidence()
    old.save(tmp_path / "new.npz")
    assert load(tmp_path / "new.npz").calibration is None

"""Scores of predictions against scikit-learn, and tests against their definitions."""

import math
import subprocess
import sys

import hypothesis.extra.numpy as hnp
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from hopf_jax import metrics


def sklearn_f1(true, predicted, num_labels):
    def f1(average):
        return sklearn.metrics.f1_score(
            true, predicted, labels=range(num_labels), average=average, zero_division=0
        )

    return {"micro_f1": f1("micro"), "macro_f1": f1("macro")}


def random_table(seed):
    scores = np.random.default_rng(seed).uniform(0.3, 0.9, (5, 8))
    return as_table(scores), scores


def as_table(scores):
    return {
        f"m{i}": {f"d{j}": float(score) for j, score in enumerate(row)}
        for i, row in enumerate(scores)
    }


@pytest.mark.parametrize("seed", range(5))
def test_f1_equals_sklearn_multi_class(seed):
    rng = np.random.default_rng(seed)
    # Ten labels but eight in use: two are neither present nor predicted.
    true, predicted = rng.integers(0, 8, (2, 60))
    ours = metrics.f1_scores(metrics.one_hot(true, 10), metrics.one_hot(predicted, 10))
    assert ours == pytest.approx(sklearn_f1(true, predicted, 10), abs=1e-12)
    assert ours["micro_f1"] == pytest.approx(np.mean(true == predicted))


@given(
    st.tuples(st.integers(1, 20), st.integers(2, 6)).flatmap(
        lambda shape: hnp.arrays(np.int8, (2, *shape), elements=st.integers(0, 1))
    )
)
def test_f1_equals_sklearn_multi_label(pair):
    ours = metrics.f1_scores(*pair)
    assert ours == pytest.approx(sklearn_f1(*pair, pair.shape[2]), abs=1e-12)
    # Swapping false positives and false negatives changes neither mean.
    assert metrics.f1_scores(*pair[::-1]) == pytest.approx(ours)


def test_f1_of_one_label_and_of_none():
    # scikit-learn reads a single column as two classes.
    true, predicted = [[1], [1], [0], [0]], [[1], [0], [1], [0]]
    assert metrics.f1_scores(true, predicted) == {"micro_f1": 0.5, "macro_f1": 0.5}
    nothing = {"micro_f1": 0.0, "macro_f1": 0.0}
    assert metrics.f1_scores(np.zeros((4, 3)), np.zeros((4, 3))) == nothing
    assert metrics.f1_scores(np.zeros((0, 3)), np.zeros((0, 3))) == nothing
    assert metrics.f1_from_counts([], [], []) == nothing


def test_f1_from_counts_of_a_device():
    counts = metrics.label_counts([[1, 0], [1, 1]], [[1, 1], [0, 1]])
    assert [list(c) for c in counts] == [[1, 1], [0, 1], [1, 0]]
    on_device = [jnp.asarray(c, jnp.int32) for c in counts]
    assert metrics.f1_from_counts(*on_device) == pytest.approx(
        {"micro_f1": 2 / 3, "macro_f1": 2 / 3}
    )
    # Three labels of 2^30 overflow an int32 when added up.
    large = jnp.full(3, 2**30, jnp.int32)
    half = {"micro_f1": 0.5, "macro_f1": 0.5}
    assert metrics.f1_from_counts(large, large, large) == half


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.f1_scores([0, 1], [0, 1]), "one_hot"),
        (lambda: metrics.f1_scores([[0, 1]], [[0, 1, 1]]), r"\[1, 2\] and \[1, 3\]"),
        (lambda: metrics.f1_scores([[0, 1]], [[0, 0.5]]), r"predicted\[0, 1\] is 0.5"),
        (lambda: metrics.f1_scores([[0, -1]], [[0, 0]]), r"true\[0, 1\] is -1"),
        (lambda: metrics.f1_scores([[np.nan]], [[0]]), r"true\[0, 0\] is nan"),
        (lambda: metrics.f1_from_counts([1, 2], [1], [1, 2]), r"counts \[C\]"),
        (lambda: metrics.one_hot([0, -1], 3), r"Class -1 of node 1"),
        (lambda: metrics.one_hot([3], 3), r"not in \[0, 3\)"),
        (lambda: metrics.one_hot([0.0], 3), "float64"),
    ],
)
def test_bad_predictions_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@given(st.floats(0.01, 100), st.integers(0, 100))
def test_comparisons_do_not_depend_on_the_scale(scale, seed):
    table, scores = random_table(seed)
    scaled = as_table(scores * scale)
    assert metrics.shortfall(scaled) == pytest.approx(metrics.shortfall(table))
    assert metrics.average_ranks(scaled) == metrics.average_ranks(table)
    assert metrics.friedman(scaled) == pytest.approx(metrics.friedman(table))


def test_ranks_and_ties():
    table = {
        "a": {"x": 0.9, "y": 0.5, "z": 0.1},
        "b": {"x": 0.9, "y": 0.6, "z": 0.2},
        "c": {"x": 0.1, "y": 0.7, "z": 0.3},
    }
    averaged = {"a": 7.5 / 3, "b": 5.5 / 3, "c": 5 / 3}
    assert metrics.average_ranks(table) == pytest.approx(averaged)
    in_order = {"a": 7 / 3, "b": 6 / 3, "c": 5 / 3}
    assert metrics.average_ranks(table, ties="ordinal") == pytest.approx(in_order)
    assert metrics.wins(table) == {"a": 1, "b": 1, "c": 2}


def test_the_order_of_datasets_does_not_matter():
    table, _ = random_table(0)
    shuffled = {
        model: dict(sorted(row.items(), reverse=i % 2 == 0))
        for i, (model, row) in enumerate(table.items())
    }
    assert metrics.shortfall(shuffled) == pytest.approx(metrics.shortfall(table))
    assert metrics.wilcoxon(shuffled, "m0", "m1") == metrics.wilcoxon(table, "m0", "m1")


@pytest.mark.parametrize("seed", range(5))
def test_friedman_equals_the_formula(seed):
    table, scores = random_table(seed)
    k, n = scores.shape
    ranks = np.array(list(metrics.average_ranks(table).values()))
    statistic = 12 * n / (k * (k + 1)) * (np.sum(ranks**2) - k * (k + 1) ** 2 / 4)
    result = metrics.friedman(table)
    assert result.statistic == pytest.approx(statistic)
    assert result.p_value == pytest.approx(scipy.stats.chi2.sf(statistic, k - 1))


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_wilcoxon_equals_counting_all_signs(seed, relative):
    table, scores = random_table(seed)
    gains = scores[0] - scores[1]
    if relative:
        gains = gains / scores[1]
    ranks = scipy.stats.rankdata(np.abs(gains))
    observed = ranks[gains > 0].sum()
    signs = (np.arange(2**8)[:, None] >> np.arange(8)) & 1  # every outcome
    p_value = np.mean(signs @ ranks >= observed)
    result = metrics.wilcoxon(table, "m0", "m1", relative=relative)
    assert result == pytest.approx((observed, p_value))
    both = metrics.wilcoxon(
        table, "m0", "m1", relative=relative, alternative="two-sided"
    )
    assert both.p_value == pytest.approx(
        min(1, 2 * min(p_value, np.mean(signs @ ranks <= observed)))
    )


def test_wilcoxon_sees_ties_through_rounding_errors():
    # All three gains are 0.1, though 0.3 - 0.2 < 0.1 < 0.8 - 0.7 in floating point.
    table = as_table([[0.3, 0.1, 0.7], [0.2, 0.0, 0.8]])
    assert metrics.wilcoxon(table, "m0", "m1").statistic == 4.0


def test_models_that_are_all_alike():
    table = as_table(np.full((3, 4), 0.5))
    assert metrics.friedman(table) == (0.0, 1.0)
    assert metrics.wilcoxon(table, "m0", "m1") == (0.0, 1.0)
    assert metrics.wilcoxon(table, "m0", "m0") == (0.0, 1.0)
    assert metrics.average_ranks(table) == {"m0": 2.0, "m1": 2.0, "m2": 2.0}
    assert metrics.wins(table) == {"m0": 4, "m1": 4, "m2": 4}


@pytest.mark.parametrize(
    ("num_models", "q"),  # Demšar (2006), table 5(a), alpha = 0.05
    [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)],
)
def test_critical_difference_equals_the_printed_table(num_models, q):
    expected = q * math.sqrt(num_models * (num_models + 1) / (6 * 14))
    ours = metrics.critical_difference(num_models, 14)
    assert ours == pytest.approx(expected, rel=5e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.shortfall({}), "no models"),
        (lambda: metrics.shortfall({"a": {}}), "no datasets"),
        (lambda: metrics.shortfall({"a": {"x": 0.0}}), "above 0"),
        (lambda: metrics.wins({"a": {"x": 1}, "b": {"y": 1}}), r"'b'.*\(x, y\)"),
        (lambda: metrics.wins({"a": {"x": float("nan")}}), "'a' on 'x' is nan"),
        (lambda: metrics.friedman(as_table(np.ones((2, 3)))), "three models"),
        (lambda: metrics.critical_difference(1, 3), "num_models is 1"),
    ],
)
def test_bad_tables_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_importing_metrics_does_not_import_scipy_stats():
    program = "import sys, hopf_jax.metrics; print('scipy.stats' in sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

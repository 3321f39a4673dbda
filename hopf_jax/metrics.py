"""Scores of predictions, and comparisons of models over several datasets.

Everything runs in NumPy on the host. N is the number of nodes, C of labels.

Functions that score one prediction return fractions in [0, 1]. Functions that compare
models take a table `{model: {dataset: score}}`, with the same datasets for every model
and higher scores better, and follow Demšar (2006), "Statistical comparisons of
classifiers over multiple data sets", as the paper does. Scores may be fractions or
percent: only their order and ratios matter.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import scipy  # Lazy: scipy.stats is imported when it is first used.
from numpy.typing import ArrayLike

from hopf_jax.config import Number, Whole
from hopf_jax.graph import check_value, check_whole, to_array

Table = Mapping[str, Mapping[str, float]]


class Counts(NamedTuple):
    """True positives, false positives and false negatives per label: each [C]."""

    tp: np.ndarray
    fp: np.ndarray
    fn: np.ndarray


class Outcome(NamedTuple):
    """Statistic and p-value of a test."""

    statistic: float
    p_value: float


def mean_loss(labels: np.ndarray, said: np.ndarray, multilabel: bool) -> float:
    """Return the mean cross entropy of nodes, each at most that of 1 in 1000.

    Args:
      labels: True labels [n, C], 0 or 1.
      said: Their probabilities [n, C].
      multilabel: Whether nodes have several labels, each predicted by itself.

    >>> round(mean_loss(np.array([[0, 1]]), np.array([[0.5, 0.5]]), False), 3)
    0.693
    """
    said = np.clip(said.astype(np.float64), 1e-3, 1 - 1e-3)
    other = np.log1p(-said) if multilabel else 0
    each = -np.where(labels > 0, np.log(said), other)
    return float(each.sum(axis=1).mean())


def one_hot(classes: ArrayLike, num_labels: int) -> np.ndarray:
    """Return class ids [N], each in [0, num_labels), as a 0/1 matrix [N, num_labels].

    >>> one_hot([2, 0], 3).tolist()
    [[0, 0, 1], [1, 0, 0]]
    """
    ids = to_array(classes, "classes")
    check_whole(num_labels, "num_labels")
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(
            f"classes must be integers [N], not {ids.dtype} {list(ids.shape)}."
        )
    outside = np.flatnonzero((ids < 0) | (ids >= num_labels))
    if outside.size:
        at = outside[0]
        raise ValueError(
            f"Class {ids[at]} of node {at} is not in [0, {num_labels}): "
            "leave out nodes without a label."
        )
    matrix = np.zeros((ids.size, num_labels), np.int8)
    matrix[np.arange(ids.size), ids] = 1
    return matrix


def label_counts(true: ArrayLike, predicted: ArrayLike) -> Counts:
    """Return counts per label from two 0/1 matrices [N, C]."""
    true, predicted = to_array(true, "true"), to_array(predicted, "predicted")
    if true.ndim != 2 or true.shape != predicted.shape:
        raise ValueError(
            "true and predicted must be two matrices [N, C] of one shape, not "
            f"{list(true.shape)} and {list(predicted.shape)}: "
            "make class ids a matrix with one_hot(classes, num_labels)."
        )
    for name, matrix in (("true", true), ("predicted", predicted)):
        if matrix.dtype.kind not in "fiub":
            raise ValueError(f"{name} has dtype {matrix.dtype}; it must be 0 and 1.")
        wrong = np.argwhere((matrix != 0) & (matrix != 1))
        if wrong.size:
            node, label = wrong[0]
            raise ValueError(
                f"{name}[{node}, {label}] is {matrix[node, label]}, not 0 or 1: "
                "leave out unknown labels, and threshold probabilities."
            )
    parts = _outcomes(true.astype(bool), predicted.astype(bool))
    return Counts(*(part.sum(axis=0) for part in parts))


def f1_from_counts(tp: ArrayLike, fp: ArrayLike, fn: ArrayLike) -> dict[str, float]:
    """Return micro and macro F1 from counts per label [C].

    F1 is 2 tp / (2 tp + fp + fn): for micro F1 of the sums over labels, for macro F1
    averaged over all C labels. A label that is neither present nor predicted has an F1
    of 0 and counts in the mean, as in scikit-learn with `labels=range(C),
    zero_division=0`. With one label per node, micro F1 is the accuracy.

    Returns:
      {"micro_f1": ..., "macro_f1": ...}, fractions in [0, 1].
    """
    tp, fp, fn = (_counts(v, n) for n, v in (("tp", tp), ("fp", fp), ("fn", fn)))
    if not tp.shape == fp.shape == fn.shape:
        raise ValueError(
            f"tp, fp and fn must be counts [C], not {tp.shape}, {fp.shape}, {fn.shape}."
        )
    return {name: float(value) for name, value in _f1(tp, fp, fn).items()}


def f1_scores(true: ArrayLike, predicted: ArrayLike) -> dict[str, float]:
    """Return micro and macro F1 of 0/1 matrices [N, C], as `f1_from_counts`.

    `one_hot` turns class ids into such a matrix.

    >>> f1_scores(one_hot([0, 1, 1], 2), one_hot([0, 1, 0], 2))
    {'micro_f1': 0.6666666666666666, 'macro_f1': 0.6666666666666666}
    """
    return f1_from_counts(*label_counts(true, predicted))


def resampled_f1_scores(
    true: ArrayLike, predicted: ArrayLike, times: np.ndarray
) -> dict[str, np.ndarray]:
    """Return `f1_scores` of B resamples of the nodes.

    Args:
      true, predicted: 0/1 matrices [N, C].
      times: [B, N], how often each resample contains each node.

    Returns:
      {"micro_f1": [B], "macro_f1": [B]}.
    """
    times = np.asarray(times, np.float64)
    parts = _outcomes(np.asarray(true, bool), np.asarray(predicted, bool))
    return _f1(*(times @ part.astype(np.float64) for part in parts))


def shortfall(table: Table) -> dict[str, float]:
    """Return each model's mean over datasets of (best - score) / best, in percent.

    `best` is the best score in the table on that dataset, so a model's shortfall
    depends on the other models. Lower is better.

    >>> shortfall({"one": {"cora": 80, "yeast": 60}, "two": {"cora": 60, "yeast": 60}})
    {'one': 0.0, 'two': 12.5}
    """
    models, scores = _matrix(table)
    best = scores.max(axis=0)  # [datasets]
    if (best <= 0).any():
        raise ValueError("A shortfall needs a score above 0 on every dataset.")
    with np.errstate(over="ignore"):
        percent = 100 * (1 - scores / best).mean(axis=1)  # [models]
    if not np.isfinite(percent).all():
        raise ValueError("The scores on a dataset are too far apart for their ratio.")
    return dict(zip(models, percent.tolist(), strict=True))


def average_ranks(
    table: Table, ties: Literal["average", "min", "max", "ordinal"] = "average"
) -> dict[str, float]:
    """Return each model's mean rank over datasets; 1 is the best.

    Args:
      table: Scores.
      ties: Ranks of models with equal scores. Demšar's tests use the "average" of the
        ranks they share; "ordinal" ranks them in the order of the table.
    """
    models, scores = _matrix(table)
    ranks = scipy.stats.rankdata(-scores, method=ties, axis=0)
    return dict(zip(models, ranks.mean(axis=1).tolist(), strict=True))


def wins(table: Table) -> dict[str, int]:
    """Return the number of datasets on which each model is the best; all ties win."""
    models, scores = _matrix(table)
    best = scores == scores.max(axis=0, keepdims=True)
    return dict(zip(models, best.sum(axis=1).tolist(), strict=True))


def friedman(table: Table) -> Outcome:
    """Test whether three or more models perform alike (Friedman, corrected for ties).

    The p-value is of the chi-squared approximation; it is 1 if every model has the same
    score on every dataset.
    """
    models, scores = _matrix(table)
    if len(models) < 3:
        raise ValueError(f"Friedman's test needs three models, got {list(models)}.")
    if (scores == scores[:1]).all():
        return Outcome(0.0, 1.0)
    result = scipy.stats.friedmanchisquare(*scores)
    return Outcome(float(result.statistic), float(result.pvalue))


def wilcoxon(
    table: Table,
    model: str,
    other: str,
    *,
    alternative: Literal["greater", "two-sided"] = "greater",
    relative: bool = False,
    method: Literal["auto", "exact", "asymptotic"] = "auto",
) -> Outcome:
    """Test `model` against `other` over the datasets (Wilcoxon's signed ranks).

    Datasets with equal scores are left out, as Wilcoxon did; if none is left, p is 1.

    Args:
      table: Scores; other models in it do not matter.
      model, other: Names of the models.
      alternative: "greater" if the claim is that `model` is better than `other`.
      relative: Rank (model - other) / other instead of model - other, so that datasets
        with low scores count as much as those with high scores.
      method: "auto" is exact for few datasets, "asymptotic" the normal approximation.

    Returns:
      The sum of the ranks that favour `model` (two-sided: the smaller of this and the
      sum against it), and the p-value.
    """
    models, scores = _matrix(table)
    for name in (model, other):
        if name not in models:
            raise ValueError(f"The table has no model {name!r}, but {list(models)}.")
    ours, theirs = scores[models.index(model)], scores[models.index(other)]
    gains = ours - theirs
    if relative:
        if not theirs.all():
            raise ValueError(f"{other!r} has a score of 0: no gain is relative to it.")
        gains = gains / theirs
    gains = gains.round(9)  # So that 0.3 - 0.2 and 0.2 - 0.1 are a tie.
    if not gains.any():
        return Outcome(0.0, 1.0)
    result = scipy.stats.wilcoxon(gains, alternative=alternative, method=method)
    return Outcome(float(result.statistic), float(result.pvalue))


def critical_difference(
    num_models: int, num_datasets: int, alpha: float = 0.05
) -> float:
    """Return Nemenyi's critical difference of average ranks (Demšar 2006).

    CD = q sqrt(k (k + 1) / (6 n)) for k models and n datasets, where q is the quantile
    of the studentized range divided by sqrt(2). Two models whose average ranks (ties
    averaged) differ by less do not differ significantly at level `alpha`.
    """
    check_value(num_models, "num_models", Whole(2, 1000))
    check_whole(num_datasets, "num_datasets", 1)
    check_value(alpha, "alpha", Number(1e-4, 1, open_above=True))
    quantile = scipy.stats.studentized_range.ppf(1 - alpha, num_models, np.inf)
    scale = num_models * (num_models + 1) / (6 * num_datasets)
    return float(quantile / np.sqrt(2) * np.sqrt(scale))


def _outcomes(true: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return true positives, false positives and false negatives, as booleans."""
    return true & predicted, ~true & predicted, true & ~predicted


def _counts(values: ArrayLike, name: str) -> np.ndarray:
    array = to_array(values, name)
    if array.ndim != 1 or array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be counts [C], not {array.dtype} {array.shape}.")
    # Doubles: sums over many labels of 32-bit counts can overflow.
    array = array.astype(np.float64)
    if not ((array >= 0) & (array < 2**63)).all():
        raise ValueError(f"{name} holds a count that is negative or not finite.")
    return array


def _f1(tp: np.ndarray, fp: np.ndarray, fn: np.ndarray) -> dict[str, np.ndarray]:
    """Return micro and macro F1 from counts [..., C]."""
    hits, total = 2 * tp, 2 * tp + fp + fn
    by_label = _ratio(hits, total)
    return {
        "micro_f1": _ratio(hits.sum(axis=-1), total.sum(axis=-1)),
        "macro_f1": by_label.mean(axis=-1) if by_label.size else by_label.sum(axis=-1),
    }


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return part / whole, and 0 for 0/0."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _matrix(table: Table) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the names of the models, and the scores as [models, datasets]."""
    if not isinstance(table, Mapping) or not table:
        raise ValueError("The table has no models; give {model: {dataset: score}}.")
    for model, row in table.items():
        if not isinstance(row, Mapping) or not row:
            raise ValueError(f"{model!r} has no datasets; give {{dataset: score}}.")
    datasets = list(next(iter(table.values())))
    for model, row in table.items():
        differing = set(row) ^ set(datasets)
        if differing:
            raise ValueError(
                f"{model!r} differs from the first model in its datasets "
                f"({', '.join(sorted(map(str, differing)))}): leave those out of all."
            )
        for dataset, score in row.items():
            what = f"The score of {model!r} on {dataset!r}"
            check_value(score, what, Number(-1e100, 1e100))
    scores = [[row[dataset] for dataset in datasets] for row in table.values()]
    return tuple(table), np.array(scores, np.float64)

"""Logistic regressions with an L2 penalty, solved for several strengths at once.

Few nodes are labelled, so the best weights lie in the span of few rows: these are
rotated to their principal axes, once for all strengths and labels. On them the penalty
and the loss have nearly diagonal curvature, by which the variables are scaled; L-BFGS
then needs a dozen steps, from the weights of the strength before.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, log_expit, log_softmax, softmax

_CERTAIN = 20.0  # Logit of a label that all, or no, rows have.
_NEGLIGIBLE = 1e-10  # Share of the largest variance, of axes that are left out.
MOST_AXES = 3000  # Beyond, rows are read as they are.
_STEPS = 200
_EXACT = 1e-7  # Relative decrease of the loss that ends the search.


class Logistic(NamedTuple):
    """Weights [F, C] and bias [C] of a logistic regression."""

    weights: np.ndarray
    bias: np.ndarray

    def logits(self, rows: Any) -> np.ndarray:
        """Return logits [N, C] of rows [N, F], dense or sparse."""
        return np.asarray(rows @ self.weights) + self.bias


def to_probabilities(logits: np.ndarray, multilabel: bool) -> np.ndarray:
    """Return probabilities [N, C]: of each label, or of one of them."""
    return expit(logits) if multilabel else softmax(logits, axis=1)


@functools.cache
def _threads() -> Any:
    """Return what knows the libraries that use threads; finding them takes long."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def solve_logistic(
    rows: Any, labels: np.ndarray, multilabel: bool, strengths: Sequence[float]
) -> list[Logistic]:
    """Return the minimum of |w|^2 / 2 + strength * loss for each strength.

    The loss is the sum of cross entropies: of a softmax over labels, or of each label
    by itself if `multilabel`. The bias is not penalised.

    Args:
      rows: What is learned from, [n, F], dense or sparse.
      labels: 0/1 [n, C].
      multilabel: Whether rows have several labels.
      strengths: Inverse strengths of the penalty.

    Returns:
      Logistic regressions, one per strength.
    """
    counts = labels.sum(axis=0)
    certain = counts == len(labels)
    learned = (counts > 0) & ~certain
    bias = np.where(certain, _CERTAIN, -_CERTAIN).astype(np.float32)
    found = []
    # Matrices are small: threads would wait for each other, and round differently.
    with _threads().limit(limits=1):
        axes, centre, inputs = _principal(rows)
        solved = _path(inputs, labels[:, learned] > 0, multilabel, strengths)
        for w, b in solved if learned.any() else [(None, None)] * len(strengths):
            weights = np.zeros((rows.shape[1], labels.shape[1]), np.float32)
            shifted = bias.copy()
            if w is not None:
                own = w if axes is None else axes @ w
                weights[:, learned] = own
                shifted[learned] = b - centre @ own
            found.append(Logistic(weights, shifted))
    return found


def principal_axes(rows: Any) -> np.ndarray:
    """Return the axes [F, r] of the space that the differences of rows [n, F] span."""
    axes = _principal(rows)[0]
    return np.eye(rows.shape[1]) if axes is None else axes


def _principal(rows: Any) -> tuple[np.ndarray | None, np.ndarray, Any]:
    """Return axes [F, r], the mean row [F], and centred rows on these axes [n, r].

    No axes, and the rows themselves, where these are many and long.
    """
    count, width = rows.shape
    rows = sp.csr_array(rows, dtype=np.float64) if sp.issparse(rows) else rows
    if min(count, width) > MOST_AXES:
        return None, np.zeros(width), rows
    centre = np.asarray(rows.mean(axis=0), np.float64).ravel()
    rows = rows if sp.issparse(rows) else rows.astype(np.float64) - centre
    if width <= count:
        square = rows.T @ rows
        if sp.issparse(square):
            square = square.toarray() - count * np.outer(centre, centre)
        variances, axes = _largest(square)
        inputs = rows @ axes
        return axes, centre, inputs - inputs.mean(axis=0)
    square = rows @ rows.T
    if sp.issparse(square):
        square = square.toarray()
        square -= square.mean(axis=0) + square.mean(axis=1)[:, None] - square.mean()
    variances, places = _largest(square)
    sizes = np.sqrt(variances)
    return np.asarray(rows.T @ (places / sizes)), centre, places * sizes


def _largest(square: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(square)
    kept = values > _NEGLIGIBLE * max(values[-1], 1e-30)
    return values[kept], vectors[:, kept]


def _path(
    inputs: Any, labels: np.ndarray, multilabel: bool, strengths: Sequence[float]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield weights [r, C] and bias [C] for each strength, on inputs [n, r]."""
    from scipy.optimize import minimize  # Lazy: slow to import.

    count, shares = len(labels), labels.mean(axis=0)
    width, size = inputs.shape[1], labels.shape[1]
    spread = shares * (1 - shares)  # The curvature of a label's loss at its share.
    squares = inputs.multiply(inputs) if sp.issparse(inputs) else inputs**2
    variances = np.asarray(squares.sum(axis=0)).ravel()
    point = np.zeros((width + 1, size))
    point[-1] = np.log(shares / (1 - shares)) if multilabel else np.log(shares)
    turned = inputs.T.tocsr() if sp.issparse(inputs) else inputs.T

    for strength in strengths:
        scale = np.sqrt(1 + strength * variances[:, None] * spread)
        scale = np.vstack([scale, np.sqrt(strength * count * spread)])

        def loss(
            flat: np.ndarray, strength: float = strength, scale: np.ndarray = scale
        ) -> tuple[float, np.ndarray]:
            weights = flat.reshape(scale.shape) / scale
            logits = inputs @ weights[:-1] + weights[-1]
            if multilabel:
                of_true = log_expit(np.where(labels, logits, -logits)).sum()
            else:
                of_true = log_softmax(logits, axis=1)[labels].sum()
            wrong = to_probabilities(logits, multilabel) - labels
            slope = np.vstack([turned @ wrong, wrong.sum(axis=0)])
            slope[:-1] += weights[:-1] / strength
            total = (weights[:-1] ** 2).sum() / (2 * strength) - of_true
            return total / count, (slope / scale / count).ravel()

        found = minimize(
            loss,
            (point * scale).ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _STEPS, "ftol": _EXACT, "gtol": 1e-8},
        )
        point = found.x.reshape(scale.shape) / scale
        yield point[:-1], point[-1]

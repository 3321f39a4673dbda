"""Calibrated confidence: probabilities rescaled by one temperature.

Guo et al. 2017, "On calibration of modern neural networks": probabilities become
softmax(logits / T), or sigmoid(logits / T) with several labels per node. Predicted
labels stay the same; only their probabilities change. Label weights of the loss are
undone before (`results.decisions`): a temperature cannot undo them.
"""

import dataclasses
from typing import Any

import numpy as np
import scipy  # Lazy: scipy.optimize is imported when it is first used.

from hopf_jax.graph import Graph
from hopf_jax.runtime import Tabular

_NUM_BINS = 15  # Of the expected calibration error, as in Guo et al.
_NUM_FOLDS = 5
_LARGEST = 20.0  # Bounds of the temperature: 1 / this, and this.
_MOST_ENTRIES = 200_000  # Number of probabilities that the temperature is fitted to.
_LEAST = 1e-30  # Stands for a float32 probability that underflowed to 0.


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A temperature, and the expected calibration error (ECE) before and after it.

    Attributes:
      temperature: Above 1 if the model was overconfident, below 1 if underconfident.
      ece_before: {"validation": ..., "test": ...}; test only if there are test nodes.
      ece_after: Likewise. For validation nodes it is cross-validated: each fifth uses a
        temperature fitted to the other four (None for a single node).
    """

    temperature: float
    ece_before: dict[str, float]
    ece_after: dict[str, float | None]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Confidence(Tabular):
    """Calibrated probabilities of some nodes.

    Attributes:
      probabilities: [n, C].
      decided: The predictions as columns of `probabilities` [n], or a 0/1 matrix
        [n, C].
      multilabel: Several labels per node.
      calibration: The temperature and the errors before and after it.
      classes: Labels of the columns, [C].
    """

    probabilities: np.ndarray
    decided: np.ndarray
    multilabel: bool
    calibration: Calibration
    classes: np.ndarray

    @property
    def predicted(self) -> np.ndarray:
        """The predictions: labels [n], or a 0/1 matrix [n, C]."""
        return self.decided if self.multilabel else self.classes[self.decided]

    @property
    def values(self) -> np.ndarray:
        """Probability that a prediction is right: [n], or [n, C] if multi-label."""
        said = self.probabilities
        if self.multilabel:
            return np.where(self.decided > 0, said, 1 - said)
        return np.take_along_axis(said, self.decided[:, None], axis=1)[:, 0]

    @property
    def temperature(self) -> float:
        """As in `Calibration`."""
        return self.calibration.temperature

    @property
    def ece_before(self) -> dict[str, float]:
        """As in `Calibration`."""
        return self.calibration.ece_before

    @property
    def ece_after(self) -> dict[str, float | None]:
        """As in `Calibration`."""
        return self.calibration.ece_after

    def _caption(self) -> str:
        count = len(self.probabilities)
        nodes = f"{count} node{'s' * (count != 1)}"
        return (
            f"Calibrated probabilities of {nodes}, temperature {self.temperature:.2f}"
        )

    def _cells(self) -> list[tuple[str, ...]]:
        cells: list[tuple[str, ...]] = [("calibration error, %", "before", "after")]
        for name, before in self.ece_before.items():
            after = self.ece_after[name]
            shown = "-" if after is None else f"{100 * after:.1f}"
            cells.append((name, f"{100 * before:.1f}", shown))
        return cells


def calibrate(graph: Graph, probabilities: np.ndarray) -> Calibration:
    """Fit a temperature for probabilities [N, C] to the validation nodes.

    The weights were selected by the same nodes, so the error on them is slightly
    optimistic; the error on test nodes is not.
    """
    many = graph.multilabel
    most = max(2, _MOST_ENTRIES // max(1, graph.num_labels))
    # Shuffled with a fixed seed, so that folds do not follow the order of node ids.
    nodes = np.random.default_rng(0).permutation(np.flatnonzero(graph.validation))
    said, true = probabilities[nodes[:most]], graph.labels[nodes[:most]]
    temperature = fit_temperature(said, true, many)
    before = {"validation": calibration_error(said, true, many)}
    held_out = _cross_validated_error(said, true, many)
    after: dict[str, float | None] = {"validation": held_out}
    if graph.test.any():
        said, true = probabilities[graph.test], graph.labels[graph.test]
        before["test"] = calibration_error(said, true, many)
        softened = soften(said, temperature, many)
        after["test"] = calibration_error(softened, true, many)
    return Calibration(temperature, before, after)


def fit_temperature(said: np.ndarray, true: np.ndarray, multilabel: bool) -> float:
    """Return the most likely temperature, given probabilities and labels, both [n, C].

    A weak prior (log T is normal around 0 with deviation 1/2) keeps it finite where all
    predictions are right, or nodes are few.
    """
    logits = _logits(said, multilabel)
    chosen = true.astype(bool)

    def loss(log_temperature: float) -> float:
        scaled = logits / np.exp(log_temperature)
        if multilabel:
            likelihood = -np.logaddexp(0, np.where(chosen, -scaled, scaled)).sum()
        else:
            likelihood = _log_softmax(scaled)[chosen].sum()
        return 2 * log_temperature**2 - float(likelihood)

    bound = np.log(_LARGEST)
    found = scipy.optimize.minimize_scalar(
        loss, bounds=(-bound, bound), method="bounded", options={"xatol": 1e-4}
    )
    return float(np.exp(found.x))


def soften(said: np.ndarray, temperature: float, multilabel: bool) -> np.ndarray:
    """Return probabilities [n, C] at another temperature; their order is kept."""
    scaled = _logits(said, multilabel) / temperature
    if multilabel:
        return np.exp(-np.logaddexp(0, -scaled)).astype(np.float32)
    return np.exp(_log_softmax(scaled)).astype(np.float32)


def calibration_error(
    said: np.ndarray, true: np.ndarray, multilabel: bool, num_bins: int = _NUM_BINS
) -> float:
    """Return the expected calibration error of probabilities [n, C].

    Predictions are put into bins of equal width by their confidence; the error is the
    mean over predictions of |confidence - accuracy| of their bin. With several labels
    per node, every label of every node is a prediction, its confidence is its
    probability, and it is right if the label is present.
    """
    if multilabel:
        sure, right = said.ravel().astype(np.float64), true.ravel().astype(bool)
    else:
        best = said.argmax(axis=1)
        sure = said.max(axis=1).astype(np.float64)
        right = np.take_along_axis(true, best[:, None], axis=1)[:, 0].astype(bool)
    # Bins are open below and closed above, so that 1 is in the last.
    bins = np.clip(np.ceil(sure * num_bins).astype(np.int64) - 1, 0, num_bins - 1)
    gap = np.bincount(bins, sure - right, num_bins)
    return float(np.abs(gap).sum() / sure.size)


def _cross_validated_error(
    said: np.ndarray, true: np.ndarray, multilabel: bool
) -> float | None:
    count = len(said)
    if count < 2:
        return None
    fold = np.arange(count) % min(_NUM_FOLDS, count)
    softened = np.empty(said.shape, np.float32)
    for each in range(fold.max() + 1):
        own, others = fold == each, fold != each
        temperature = fit_temperature(said[others], true[others], multilabel)
        softened[own] = soften(said[own], temperature, multilabel)
    return calibration_error(softened, true, multilabel)


def _logits(said: np.ndarray, multilabel: bool) -> np.ndarray:
    """Return logits of probabilities; for a softmax, up to a constant per node."""
    said = said.astype(np.float64)
    if not multilabel:
        return np.log(np.maximum(said, _LEAST))
    # Below 1 by half the distance to the next float32.
    within = np.clip(said, _LEAST, 1 - 3e-8)
    return np.log(within) - np.log1p(-within)


def _log_softmax(logits: np.ndarray) -> Any:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

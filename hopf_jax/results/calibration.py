"""Confidence that can be believed: probabilities softened by one temperature.

Guo et al. 2017, "On calibration of modern neural networks": probabilities become
softmax(logits / T), or sigmoid(logits / T) where a node has several labels. What is
predicted stays the same, only how sure it is changes.
"""

import dataclasses
from typing import Any

import numpy as np
import scipy  # scipy.optimize is imported when it is first used

from hopf_jax.graph import Graph
from hopf_jax.results.text_tables import html_table, text_table

NUM_BINS = 15  # of the expected calibration error, as Guo et al. have them
_NUM_FOLDS = 5
_LARGEST = 20.0  # T is between 1 / this and this
_MOST_ENTRIES = 200_000  # Probabilities that one number is learned from.
_LEAST = 1e-30  # A float32 that underflowed had a logit below this one's.


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A temperature, and the expected calibration error (ECE) before and after it.

    Attributes:
      temperature: above 1 the model was too sure of itself, below 1 not enough.
      ece_before: {"validation": ..., "test": ...}; test only if there are such nodes.
      ece_after: the same. On validation nodes each fifth is judged with a temperature
        of the other four (None for a single node), on test nodes with `temperature`.
    """

    temperature: float
    ece_before: dict[str, float]
    ece_after: dict[str, float | None]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Confidence:
    """Calibrated probabilities of some nodes.

    Attributes:
      probabilities: [n, C].
      multilabel: several labels a node.
      calibration: where they come from.
    """

    probabilities: np.ndarray
    multilabel: bool
    calibration: Calibration

    @property
    def values(self) -> np.ndarray:
        """The chance that a prediction is right: [n], or [n, C] of several labels."""
        if self.multilabel:
            return np.maximum(self.probabilities, 1 - self.probabilities)
        return self.probabilities.max(axis=1)

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

    def _cells(self) -> list[tuple[str, ...]]:
        cells: list[tuple[str, ...]] = [("ECE, %", "before", "after")]
        for name, before in self.ece_before.items():
            after = self.ece_after[name]
            said = "-" if after is None else f"{100 * after:.1f}"
            cells.append((name, f"{100 * before:.1f}", said))
        return cells

    def _caption(self) -> str:
        count = len(self.probabilities)
        return f"Confidence of {count} nodes, temperature {self.temperature:.2f}"

    def __repr__(self) -> str:
        return text_table(self._caption(), self._cells())

    def _repr_html_(self) -> str:
        return html_table(self._caption(), self._cells())


def calibrate(graph: Graph, probabilities: np.ndarray) -> Calibration:
    """A temperature for these probabilities [N, C], from the validation nodes.

    The weights were chosen by the same nodes, which makes a model look a little better
    on them than it is; the error on test nodes does not have this flaw.
    """
    many = graph.multilabel
    held = np.flatnonzero(graph.validation)
    most = max(2, _MOST_ENTRIES // max(1, graph.num_labels))
    # In random order, always the same: folds must not follow the order of the ids.
    held = np.random.default_rng(0).permutation(held)[:most]
    said, true = probabilities[held], graph.labels[held]
    temperature = fit_temperature(said, true, many)
    before = {"validation": calibration_error(said, true, many)}
    after: dict[str, float | None] = {"validation": _cross_fitted(said, true, many)}
    if graph.test.any():
        said, true = probabilities[graph.test], graph.labels[graph.test]
        before["test"] = calibration_error(said, true, many)
        softened = soften(said, temperature, many)
        after["test"] = calibration_error(softened, true, many)
    return Calibration(temperature, before, after)


def fit_temperature(said: np.ndarray, true: np.ndarray, multilabel: bool) -> float:
    """The likeliest temperature, given probabilities and labels, both [n, C].

    A weak prior (log T is normal around 0 with deviation 1/2) keeps it finite where
    every node is right, or where there are few.
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
    """Probabilities [n, C] at another temperature; their order stays."""
    scaled = _logits(said, multilabel) / temperature
    if multilabel:
        return np.exp(-np.logaddexp(0, -scaled)).astype(np.float32)
    return np.exp(_log_softmax(scaled)).astype(np.float32)


def calibration_error(
    said: np.ndarray, true: np.ndarray, multilabel: bool, num_bins: int = NUM_BINS
) -> float:
    """The expected calibration error: how far confidence is from the share right.

    Predictions are put into bins of equal width by their confidence; the error is the
    mean over predictions of |confidence - share right| of their bin. With several
    labels a node, every label of every node is a prediction, its confidence is its
    probability, and right means present.
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


def _cross_fitted(said: np.ndarray, true: np.ndarray, multilabel: bool) -> float | None:
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
    """What the probabilities were made of; of a softmax up to a constant a node."""
    said = said.astype(np.float64)
    if not multilabel:
        return np.log(np.maximum(said, _LEAST))
    # The next float32 below 1 is 6e-8 away.
    within = np.clip(said, _LEAST, 1 - 3e-8)
    return np.log(within) - np.log1p(-within)


def _log_softmax(logits: np.ndarray) -> Any:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

"""From a net's output to labels: corrected probabilities, and a rule that decides.

A net that was trained with label weights omega overstates rare labels: it learns
p(l | v) omega_l, scaled to sum to 1. Dividing by omega undoes that, so probabilities
are those of a label among nodes like the training nodes. What to predict then depends
on the score that matters (`Config.metric`): the likeliest label gives the highest
accuracy; dividing by a power of the labels' shares (logit adjustment, Menon et al.
2021) or a threshold per label favours rare labels.
"""

import dataclasses
from typing import Any, NamedTuple, Self

import numpy as np

from hopf_jax.config import Config, Number
from hopf_jax.graph import SPLITS, Graph
from hopf_jax.learning import label_weights
from hopf_jax.metrics import f1_scores

_POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)  # Of the labels' shares, for macro-F1.
_NEUTRAL_POWER = 0.5
_LOGITS = np.linspace(-6, 6, 97)  # Of the thresholds to choose from.
_ENOUGH_NODES = 50  # With fewer validation nodes, what they choose counts for less.
_SMOOTHED = 17  # Number of thresholds whose F1 is averaged: logits within 1.
_ENOUGH_POSITIVES = 5  # A threshold chosen by so many counts half.


@dataclasses.dataclass(frozen=True)
class Decision:
    """The rule that turns the output of a net into probabilities and labels.

    Attributes:
      metric: What it was made for; see `Config.metric`.
      multilabel: Several labels per node.
      weights: [C] label weights that the net was trained with, which `correct` undoes;
        empty if there is nothing to undo.
      prior: [C] share of each label among the training nodes; empty if not needed.
      power: Probabilities are divided by `prior` to this power before the likeliest
        label is taken.
      thresholds: [C] probabilities above which a label is predicted, where nodes have
        several; empty for one half.
    """

    metric: str = "as-trained"
    multilabel: bool = False
    weights: tuple[float, ...] = ()
    prior: tuple[float, ...] = ()
    power: float = 0.0
    thresholds: tuple[float, ...] = ()

    @property
    def divisors(self) -> np.ndarray:
        """Numbers [C] that `correct` divides by."""
        return _positive(self.weights, max)

    @property
    def rarity(self) -> np.ndarray:
        """Numbers [C] that `decide` divides by, if there is a `power`."""
        # A label without a training node counts as the rarest that has one.
        return _positive(self.prior, min) ** self.power

    def correct(self, output: np.ndarray) -> np.ndarray:
        """Return probabilities [n, C] from the output of the net [n, C]."""
        if not self.weights:
            return output
        true = output / self.divisors.astype(output.dtype)
        return true / true.sum(axis=1, keepdims=True)

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """Return class ids [n], or a 0/1 matrix [n, C] if multi-label."""
        if self.multilabel:
            limits = np.array(self.thresholds or 0.5, probabilities.dtype)
            return (probabilities > limits).astype(np.uint8)
        if self.power:
            probabilities = probabilities / self.rarity.astype(probabilities.dtype)
        return probabilities.argmax(axis=1)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Return a decision that was saved as JSON."""
        lists = ("weights", "prior", "thresholds")
        fields: dict[str, Any] = {
            name: tuple(value) if name in lists else value
            for name, value in data.items()
        }
        return cls(**fields)

    def fits(self, num_labels: int) -> bool:
        """Return whether all numbers are valid, for so many labels."""
        lists = self.weights, self.prior, self.thresholds
        numbers = [self.power, *self.weights, *self.prior, *self.thresholds]
        return (
            all(len(values) in (0, num_labels) for values in lists)
            and all(map(Number(0).accepts, numbers))
            and not (self.power and not self.prior)
        )


def _positive(values: tuple[float, ...], stand_in: Any) -> np.ndarray:
    """Return values [C] with zeros replaced, by `stand_in` of the others."""
    array = np.array(values, np.float64)
    return np.where(array > 0, array, stand_in(array[array > 0], default=1.0))


def make_decision(
    config: Config, graph: Graph, output: np.ndarray, judged: Graph | None = None
) -> Decision:
    """Return the rule for `Config.metric`.

    Args:
      config: Settings of the fit.
      graph: The graph that was fitted: its training nodes say how common labels are.
      output: Output of the net for all nodes, [N, C].
      judged: The graph with other validation nodes, which choose powers and thresholds;
        `graph` if None.
    """
    metric, many = config.metric, graph.multilabel
    if metric == "as-trained":
        return Decision(metric, many)
    labels = graph.labels[graph.train]
    shares = labels.mean(axis=0, dtype=np.float64)
    prior = tuple(shares.tolist())
    nodes = (graph if judged is None else judged).validation
    held, true = output[nodes], graph.labels[nodes]
    if many:  # Both terms of the loss are weighted alike, so odds are not moved.
        if metric == "balanced":
            limits = np.where(shares > 0, shares, 0.5)
        else:
            limits = _choose_thresholds(held, true, by_label=metric == "macro")
        return Decision(metric, many, (), prior, thresholds=tuple(limits.tolist()))
    weights: tuple[float, ...] = ()
    if config.weighted_loss:
        weights = tuple(label_weights(labels).tolist())
    found = Decision(metric, many, weights, prior)
    power = {"micro": 0.0, "balanced": 1.0}.get(metric)
    if power is None:
        power = _choose_power(found, found.correct(held), true)
    return dataclasses.replace(found, power=power)


def _choose_power(rule: Decision, held: np.ndarray, true: np.ndarray) -> float:
    """Return the power of the highest macro-F1, drawn to the middle if nodes are few.

    Args:
      rule: The decision without a power.
      held, true: Probabilities and labels of validation nodes, [n, C].
    """
    eye = np.eye(true.shape[1], dtype=np.uint8)
    scores = {}
    for power in sorted(_POWERS, key=lambda power: abs(power - _NEUTRAL_POWER)):
        decided = dataclasses.replace(rule, power=power).decide(held)
        scores[power] = f1_scores(true, eye[decided])["macro_f1"]
    best = max(scores, key=scores.__getitem__)  # Of equals, the nearest to the middle.
    return _NEUTRAL_POWER + _trust(len(true)) * (best - _NEUTRAL_POWER)


def _choose_thresholds(
    held: np.ndarray, true: np.ndarray, by_label: bool
) -> np.ndarray:
    """Return thresholds [C]: one for all labels by micro-F1, or each by its own F1.

    Both are drawn towards one half on the scale of logits, where nodes are few; the
    threshold of a label with few positive nodes is drawn towards the common one.

    Args:
      held, true: Probabilities and labels of validation nodes, [n, C].
      by_label: One threshold per label.
    """
    counts = _counts(held, true)
    common = _best_logit(counts.f1(sum_labels=True)) * _trust(len(true))
    logits = np.full(true.shape[1], common)
    if by_label:
        own = np.array([_best_logit(scores) for scores in counts.f1()])
        weight = counts.positives / (counts.positives + _ENOUGH_POSITIVES)
        logits += weight * (own - common)
    return 1 / (1 + np.exp(-logits))


def _trust(num_nodes: int) -> float:
    return min(1.0, num_nodes / _ENOUGH_NODES)


class _Counts(NamedTuple):
    """Counts per label and threshold, [C, thresholds], and positive nodes [C]."""

    predicted: np.ndarray
    hits: np.ndarray
    positives: np.ndarray

    def f1(self, sum_labels: bool = False) -> np.ndarray:
        """Return F1 [C, thresholds], or [thresholds] of the sums over labels."""
        parts = self.hits, self.predicted, self.positives[:, None]
        if sum_labels:
            parts = tuple(part.sum(axis=0) for part in parts)
        hits, predicted, positives = parts
        return 2 * hits / np.maximum(predicted + positives, 1)


def _counts(held: np.ndarray, true: np.ndarray) -> _Counts:
    limits = 1 / (1 + np.exp(-_LOGITS))
    num_labels, size = true.shape[1], limits.size + 1
    # Number of thresholds that each probability exceeds, in bins per label.
    bins = np.searchsorted(limits, held.astype(np.float64)) + size * np.arange(
        num_labels
    )

    def above(chosen: np.ndarray) -> np.ndarray:
        counts = np.bincount(chosen, minlength=size * num_labels)
        counts = counts.reshape(num_labels, size)[:, ::-1]
        return counts.cumsum(axis=1)[:, ::-1][:, 1:]  # [C, thresholds]

    return _Counts(
        above(bins.ravel()), above(bins[true > 0]), true.sum(axis=0, dtype=np.int64)
    )


def _best_logit(scores: np.ndarray) -> float:
    """Return the logit of the best threshold; of equals, the nearest to one half.

    Scores [thresholds] are smoothed, because those of few positive nodes are ragged.
    """
    padded = np.pad(scores, _SMOOTHED // 2, mode="edge")
    smooth = np.convolve(padded, np.full(_SMOOTHED, 1 / _SMOOTHED), "valid")
    return float(min(_LOGITS[smooth >= smooth.max() - 1e-12], key=abs))


def decide_as_scored(
    graph: Graph,
    probabilities: np.ndarray,
    scoring: str,
    nodes: np.ndarray | slice = slice(None),
    decision: Decision | None = None,
) -> np.ndarray:
    """Return the 0/1 matrix [n, C] that is compared with the labels of these nodes."""
    if graph.multilabel and scoring == "cardinality":
        return likeliest(probabilities, graph.labels[nodes].sum(axis=1))
    rule = Decision(multilabel=graph.multilabel) if decision is None else decision
    decided = rule.decide(probabilities)
    if graph.multilabel:
        return decided
    return np.eye(graph.num_labels, dtype=np.uint8)[decided]


def likeliest(probabilities: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the `counts` [n] likeliest labels of each node as a 0/1 matrix [n, C]."""
    order = np.argsort(-probabilities, axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    return (rank < counts[:, None]).astype(np.uint8)


def score(
    graph: Graph,
    probabilities: np.ndarray,
    scoring: str = "threshold",
    decision: Decision | None = None,
) -> dict[str, dict[str, float]]:
    """Return the F1 scores of each set that has nodes."""
    decided = decide_as_scored(graph, probabilities, scoring, decision=decision)
    return {
        name: f1_scores(graph.labels[mask], decided[mask])
        for name in SPLITS
        if (mask := getattr(graph, name)).any()
    }


def node_scores(
    graph: Graph,
    nodes: np.ndarray,
    probabilities: np.ndarray,
    scoring: str,
    decision: Decision | None = None,
) -> np.ndarray:
    """Return the F1 of each node's labels; 1 or 0 where a node has one label."""
    decided = decide_as_scored(graph, probabilities, scoring, decision=decision)[nodes]
    true = graph.labels[nodes]
    hits = np.minimum(decided, true).sum(axis=1, dtype=np.float64)
    named = decided.sum(axis=1, dtype=np.float64) + true.sum(axis=1, dtype=np.float64)
    return np.where(named > 0, 2 * hits / np.maximum(named, 1), 1)


def mean_loss(graph: Graph, nodes: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the mean cross entropy of nodes, each at most that of 1 in 1000."""
    said = np.clip(probabilities[nodes].astype(np.float64), 1e-3, 1 - 1e-3)
    true = graph.labels[nodes] > 0
    each = -np.where(true, np.log(said), np.log1p(-said) if graph.multilabel else 0)
    return float(each.sum(axis=1).mean())

"""The stopping rule (patience annealing), and which iteration is reported.

Imports no jax, so that benchmarks of other libraries can follow the same rules.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

# A net still learns while its mean training loss falls by half a percent within the
# patience, until it predicts most of its training nodes correctly.
_FALLS = 0.995
_LEARNED = 0.95
_MEMORY = 0.9  # Of the running mean: dropout makes single losses noisy.


@dataclasses.dataclass
class Patience:
    """The stopping rule: patience annealing on validation nodes.

    From `min_epochs` on, the weights with the best validation micro + macro F1 are
    kept, and among equals those with the lowest loss. When neither F1 nor loss has
    improved within the patience, the learning rate and the patience are halved and
    training returns to the kept weights; when that happens twice in succession, it
    stops.

    The paper looks at the loss alone. The weighted loss of a few validation nodes can
    be lowest while a net is hardly trained, and rise while F1 still climbs. F1 also
    chooses the iteration to report.

    On a plateau validation scores can stand still for longer than any patience while
    the training loss still falls: that counts as progress too. `docs/measurements.md`
    has the measurements behind both rules.

    Where labels are cross-validated, one rule with `by_loss` stops all members, on all
    labels. Their loss is smooth, and the same labels judge the result afterwards: the
    epoch of the best F1 would be the luckiest, and its F1 too high.
    """

    learning_rate: float
    patience: int
    min_epochs: int
    by_loss: bool = False
    mean_loss: float | None = None
    least_loss: float = math.inf
    best_loss: float = math.inf
    best_f1: float = -math.inf
    kept_loss: float = math.inf
    kept_epoch: int = 0
    waited: int = 0
    lost: int = 0
    stopped: bool = False

    def update(
        self, epoch: int, train: dict[str, float], validation: dict[str, float]
    ) -> str:
        """Return "keep", "wait" or "restore" for an epoch (from 1) and its scores."""
        loss, f1 = validation["loss"], validation["micro_f1"] + validation["macro_f1"]
        learns = self._learns(train)
        if epoch < self.min_epochs:
            return "wait"
        if self.by_loss:
            f1 = 0.0
        better = (f1, -loss) > (self.best_f1, -self.kept_loss)
        if learns or loss < self.best_loss or f1 > self.best_f1:
            self.waited = self.lost = 0
        else:
            self.waited += 1
        self.best_loss = min(self.best_loss, loss)
        self.best_f1 = max(self.best_f1, f1)
        if better:
            self.kept_loss, self.kept_epoch = loss, epoch
        if self.waited < self.patience:
            return "keep" if better else "wait"
        self.lost += 1
        self.waited = 0
        self.learning_rate /= 2
        self.patience = max(1, self.patience // 2)
        self.stopped = self.lost >= 2
        return "keep" if better else "restore"

    def _learns(self, train: dict[str, float]) -> bool:
        loss = train["loss"]
        if self.mean_loss is not None:
            loss = _MEMORY * self.mean_loss + (1 - _MEMORY) * loss
        self.mean_loss = loss
        if loss >= _FALLS * self.least_loss:
            return False
        self.least_loss = loss
        return train["micro_f1"] < _LEARNED


def as_good_as_any(
    held: Sequence[Mapping[str, float]], right: Sequence[np.ndarray], errors: float = 2
) -> bool:
    """Return whether to report the last iteration rather than an earlier one.

    The last is reported, as in Algorithm 1, unless it is worse than the iteration with
    the best micro + macro F1 by more than two standard errors of the difference, node
    by node. A few dozen validation nodes cannot resolve smaller differences, and later
    iterations have read farther.

    Args:
      held: F1 scores of each iteration on validation nodes.
      right: Score of each of these nodes in each iteration, [n].
      errors: Number of standard errors; `experiments.choosing` compares others.
    """
    lead = right[best_of(held)] - right[-1]
    return bool(lead.mean() <= errors * lead.std() / math.sqrt(len(lead)))


def likely_best(evidence: Sequence[tuple[float, float]], count: int) -> int:
    """Return the index of the model to choose, by its score and loss on held-out nodes.

    The one of the least loss among those whose score is within a standard error of the
    best: few labels cannot tell such scores apart, while losses also tell how sure each
    was.

    Args:
      evidence: Score, from 0 to 1, and mean loss of each model.
      count: Number of nodes that they were judged by.

    >>> likely_best([(0.8, 0.9), (0.78, 0.6), (0.5, 0.4)], count=50)
    1
    """
    best = max(score for score, _ in evidence)
    # Of a share of nodes; no less where all or none of a few are right.
    variance = max(best * (1 - best), 1 / max(1, count))
    least = best - math.sqrt(variance / max(1, count))
    near = [i for i, (score, _) in enumerate(evidence) if score >= least]
    return min(near, key=lambda i: (evidence[i][1], -evidence[i][0]))


def best_of(held: Sequence[Mapping[str, float]]) -> int:
    """Return the index of the best micro + macro F1."""
    return int(np.argmax([s["micro_f1"] + s["macro_f1"] for s in held]))

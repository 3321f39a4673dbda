"""The loss: weighted cross entropy (WCE) and L2, with the scores of a batch."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from hopf_jax.batching import Array, Batch, Matrix
from hopf_jax.config import Config
from hopf_jax.kernels import Net, Rate, bits_at
from hopf_jax.metrics import f1_from_counts

_HIDING = 1 << 16  # A site of random bits that no hop has.

Params = dict[str, Any]  # Arrays by name, on the host or on a device.


@dataclasses.dataclass(frozen=True)
class Objective:
    """What is minimised, and how; static under jit."""

    multilabel: bool
    l2: float
    clip: float
    cardinality: bool = False  # Score as many labels as a node truly has.
    smoothing: float = 0.0

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam on clipped gradients; the learning rate is data, applied elsewhere."""
        return optax.chain(optax.clip(self.clip), optax.scale_by_adam())

    @classmethod
    def of(cls, config: Config, multilabel: bool) -> "Objective":
        """Return the objective that the settings describe."""
        cardinality = config.scoring == "cardinality"
        return cls(multilabel, config.l2, config.clip, cardinality, config.smoothing)


class Hiding(NamedTuple):
    """Which training nodes are hidden from the label summaries in a training step.

    The loss is on hidden roots only, whose own labels no node reads then. The roots of
    the batch are hidden, and of other training nodes a random share.
    """

    # [all nodes], whether it is a training node; None where batches say it of theirs.
    known: Array | None
    # Thresholds of 32 random bits, shares of 2^32: of roots and of other nodes.
    roots: Any
    others: Any

    @classmethod
    def at_rate(
        cls, known: np.ndarray | None, share: float, num_batches: int
    ) -> "Hiding":
        """Hide a share of the training nodes, given the number of batches of an epoch.

        If a batch holds a larger share, only as many of its roots are hidden.
        """
        batch = 1 / num_batches
        roots = min(1.0, share / batch)
        others = (share - batch) / (1 - batch) if batch < share else 0.0
        return cls(known, *(np.uint32(x * (2**32 - 1)) for x in (roots, others)))

    def hides(self, batch: Batch, words: jax.Array, by_node: bool = False) -> jax.Array:
        """Return which nodes of a batch are hidden, [N]: one real root at least.

        Args:
          batch: The batch.
          words: Random words of the step.
          by_node: Whatever the padding is. Otherwise nodes beside the roots that take
            the place of padded roots count as roots.
        """
        ids = jnp.asarray(batch.graph.nodes["id"])
        draw = bits_at(words, _HIDING, ids)
        own = jnp.arange(draw.size) < batch.mask.shape[0]
        real = own.at[: batch.mask.shape[0]].set(batch.mask > 0)
        limit = self.roots
        if batch.local is None:  # Else it is a share of a batch, and may have none.
            least = jnp.min(jnp.where(real, draw, jnp.uint32(2**32 - 1)))
            limit = jnp.maximum(limit, least)
        known: Any = self.known
        own = real if by_node else own
        if batch.local is not None:
            own, known = map(jnp.asarray, (batch.local.root, batch.local.train))
        elif known is not None:
            known = known[ids]
        limit = jnp.where(own, limit, self.others)
        none = ~own & (self.others == 0)
        return known & (draw <= limit) & ~none


class Numbers(NamedTuple):
    """Settings that programs take as data, so that they need not be compiled again."""

    dropout: Rate | None  # None for no dropout, which has a program of its own.
    summary_dropout: Rate | None
    l2: Any

    @classmethod
    def split(cls, net: Net, objective: Objective) -> tuple["Numbers", Net, Objective]:
        """Return the numbers of a net and an objective, and both without them."""
        dropout, summary_dropout = (
            Rate.of(rate) if isinstance(rate, float) and rate else None
            for rate in (net.dropout, net.summary_dropout)
        )
        numbers = cls(dropout, summary_dropout, np.float32(objective.l2))
        return numbers, net.with_dropout(0.0, 0.0), dataclasses.replace(objective, l2=0)

    def join(self, net: Net, objective: Objective) -> tuple[Net, Objective]:
        """Return both with these numbers."""
        net = net.with_dropout(self.dropout or 0.0, self.summary_dropout or 0.0)
        return net, dataclasses.replace(objective, l2=self.l2)


class Inputs(NamedTuple):
    """Arrays that all batches of an iteration share."""

    features: Matrix  # [all nodes, F]; None where batches hold theirs.
    summary: Array | None  # [all nodes, C], or [views, all nodes, C]
    label_weights: Array  # [C], the omega of Eq. WCE
    # Precomputed F(A) Psi of the first hop: blocks [all nodes, *], one per signal; that
    # of the label summary has views if that has.
    neighbours: tuple[Array, ...] | None = None
    hiding: Hiding | None = None  # None where all roots read all labels.
    numbers: Numbers | None = None  # None where the program has them as constants.

    def settled(self, net: Net, objective: Objective) -> tuple[Net, Objective]:
        """Return the net and the objective with the numbers that are data."""
        if self.numbers is None:
            return net, objective
        return self.numbers.join(net, objective)


class Totals(NamedTuple):
    """Sums over the roots of some batches."""

    loss: Array
    roots: Array
    outcomes: Array  # [3, C], true positives, false positives, false negatives

    def scores(self) -> dict[str, float]:
        """Return the mean loss and F1 scores, on the host."""
        totals = jax.device_get(self)
        mean = float(totals.loss / np.maximum(totals.roots, 1))
        return {"loss": mean} | f1_from_counts(*totals.outcomes)


def label_weights(labels: np.ndarray, weighted: bool = True) -> np.ndarray:
    """Return omega_i = sum_j N_j / (C N_i) of training labels [n, C] (Eq. WCE).

    A label without a training sample gets weight 0, not infinity.
    """
    return weights_of_counts(labels.sum(axis=0, dtype=np.float64), weighted)


def weights_of_counts(counts: np.ndarray, weighted: bool = True) -> np.ndarray:
    """Return the weights of labels that so many training nodes [C] have."""
    if not weighted:
        return np.ones(len(counts), np.float32)
    share = counts.sum() / (len(counts) * np.maximum(counts, 1))
    return np.where(counts > 0, share, 0).astype(np.float32)


def cross_entropy(
    logits: Array, labels: Array, weights: Array, multilabel: bool
) -> jax.Array:
    """Return the weighted cross entropy per root, [R]: the sum over labels."""
    if multilabel:
        each = optax.sigmoid_binary_cross_entropy(logits, labels)
    else:
        each = -labels * jax.nn.log_softmax(logits)
    return each @ weights


def node_inputs(batch: Batch, inputs: Inputs) -> tuple[Matrix, Matrix, Matrix]:
    """Return features, label summaries and precomputed neighbours of a batch."""
    ids = batch.graph.nodes["id"]

    def rows(array: Any) -> Any:
        return array[ids] if array.ndim == 2 else array[batch.view, ids]

    x = inputs.features[ids] if batch.features is None else batch.features
    summary = None
    if batch.local is not None and batch.local.summary is not None:
        summary = jax.lax.stop_gradient(batch.local.summary)
    if inputs.summary is not None:  # An input of the iteration: no gradient flows back.
        summary = jax.lax.stop_gradient(rows(inputs.summary))
    if inputs.neighbours is None:
        return x, summary, None
    blocks = [rows(block) for block in inputs.neighbours]
    return x, summary, jnp.concatenate(blocks, axis=1)


def batch_loss(
    net: Net,
    objective: Objective,
    params: Params,
    batch: Batch,
    inputs: Inputs,
    words: jax.Array | None,
) -> tuple[jax.Array, Totals]:
    """Return the loss of a batch (mean over real roots, plus L2) and its totals.

    Where training nodes are hidden, both are of the hidden roots.
    """
    net, objective = inputs.settled(net, objective)
    x, summary, neighbours = node_inputs(batch, inputs)
    if inputs.hiding is not None and words is not None:
        hidden = inputs.hiding.hides(batch, words, net.noise == "node")
        summary = jnp.where(hidden[:, None], 0, summary)
        batch = batch._replace(mask=batch.mask * hidden[: batch.mask.shape[0]])
    variables = {"params": params}
    read = batch, x, summary, words, neighbours
    # How far the running statistics of normalised batches are from this batch's.
    sown = ["drift"] if net.norm == "batch" and words is not None else False
    method = "with_roughness" if objective.smoothing else None
    found: Any = net.apply(variables, *read, method=method, mutable=sown)
    drift = 0.0
    if sown:
        found, statistics = found
        drift = sum(jax.tree.leaves(statistics))
    logits, rough = found if objective.smoothing else (found, 0.0)
    each = cross_entropy(
        logits, batch.labels, inputs.label_weights, objective.multilabel
    )
    if objective.smoothing:
        each += objective.smoothing * rough
    loss = jnp.sum(each * batch.mask)
    roots = jnp.sum(batch.mask)
    matrices = [w for w in jax.tree.leaves(params) if w.ndim == 2]
    penalty = sum(jnp.sum(jnp.square(w)) for w in matrices)
    true = batch.labels > 0
    predicted = predicted_labels(logits, true, objective)
    outcomes = (predicted & true, predicted & ~true, ~predicted & true)
    # As a product, for which XLA has a routine; sums of zeros and ones are exact.
    counts = batch.mask @ jnp.concatenate(outcomes, axis=1).astype(jnp.float32)
    counts = counts.astype(jnp.int32).reshape(3, -1)
    totals = Totals(loss, roots, counts)
    mean = loss / jnp.maximum(roots, 1) + 0.5 * objective.l2 * penalty
    return mean + drift if sown else mean, totals


def predicted_labels(logits: jax.Array, true: Array, objective: Objective) -> jax.Array:
    """Return the likeliest class, or several labels, as booleans [R, C]."""
    if not objective.multilabel:
        return jax.nn.one_hot(jnp.argmax(logits, axis=1), logits.shape[1], dtype=bool)
    if not objective.cardinality:
        return logits > 0
    return largest(logits, jnp.sum(true, axis=1))


def zero_totals(num_labels: int) -> Totals:
    """Return the totals before any batch."""
    none = np.zeros((3, num_labels), np.int32)
    nil = np.zeros((), np.float32)
    return Totals(nil, nil, none)


def largest(x: Array, counts: Array) -> jax.Array:
    """Return which entries are among the counts[row] largest of their row, [R, C].

    Of equal entries the first count, as in a stable sort. XLA sorts slowly on a CPU:
    instead the threshold of each row is found bit by bit.

    >>> largest(jnp.array([[3.0, 1.0, 3.0, 2.0]]), jnp.array([2])).tolist()
    [[True, False, True, False]]
    """
    x, wanted = jnp.asarray(x, jnp.float32), jnp.asarray(counts)[:, None]
    keys = _ordered(x)

    def narrow(step, threshold):
        bit = jnp.uint32(1 << 31) >> step.astype(jnp.uint32)
        reached = jnp.sum(keys >= threshold | bit, axis=1, keepdims=True)
        return jnp.where(reached >= wanted, threshold | bit, threshold)

    # The key of the smallest entry taken, from its highest bit.
    threshold = jax.lax.fori_loop(0, 32, narrow, jnp.zeros_like(keys[:, :1]))
    above, equal = keys > threshold, keys == threshold
    missing = wanted - jnp.sum(above, axis=1, keepdims=True)
    before = equal.astype(jnp.float32) @ jnp.triu(jnp.ones((x.shape[1],) * 2), 1)
    return (above | equal & (before < missing)) & (wanted > 0)


def _ordered(x: jax.Array) -> jax.Array:
    """Map floats to unsigned integers of the same order; both zeros are equal."""
    bits = jax.lax.bitcast_convert_type(jnp.where(x == 0, 0, x), jnp.uint32)
    return jnp.where(bits >> 31 == 1, ~bits, bits | jnp.uint32(1 << 31))

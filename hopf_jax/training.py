"""Loss (WCE + L2), one jitted epoch, patience annealing."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from hopf_jax import noise
from hopf_jax.batching import Batch
from hopf_jax.config import Config
from hopf_jax.feeding import Feed, Group
from hopf_jax.largest import largest
from hopf_jax.metrics import f1_from_counts
from hopf_jax.nets import Net
from hopf_jax.patience import Patience
from hopf_jax.sparse import Array, Matrix
from hopf_jax.spreading import Spread

Params = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Objective:
    """What is minimised and how; static under jit."""

    multilabel: bool
    l2: float
    clip: float
    cardinality: bool = False  # score as many labels as a node truly has

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam on clipped gradients; the learning rate is applied outside, as data."""
        return optax.chain(optax.clip(self.clip), optax.scale_by_adam())


class Inputs(NamedTuple):
    """What all batches of an iteration share."""

    features: Matrix  # [all nodes, F], or None where batches bring theirs
    summary: Array | None  # [all nodes, C]
    label_weights: Array  # [C], the omega of Eq. WCE
    # Blocks [all nodes, *] side by side, where known ahead (`ahead.py`).
    neighbours: tuple[Array, ...] | None = None


class Totals(NamedTuple):
    """Sums over the roots seen so far."""

    loss: Array
    roots: Array
    true_positive: Array  # [C]
    false_positive: Array  # [C]
    false_negative: Array  # [C]

    def scores(self) -> dict[str, float]:
        """Mean loss and F1 scores on the host."""
        totals = jax.device_get(self)
        counts = (totals.true_positive, totals.false_positive, totals.false_negative)
        return {"loss": float(totals.loss / totals.roots)} | f1_from_counts(*counts)


class State(NamedTuple):
    """What a training step changes."""

    params: Params
    optimizer: Any


def label_weights(labels: np.ndarray, weighted: bool = True) -> np.ndarray:
    """omega_i = sum_j N_j / (C N_i) over training labels [n, C] (Eq. WCE).

    A label without a training sample weighs 0, not infinity.
    """
    counts = labels.sum(axis=0, dtype=np.float64)
    if not weighted:
        return np.ones(len(counts), np.float32)
    share = counts.sum() / (len(counts) * np.maximum(counts, 1))
    return np.where(counts > 0, share, 0).astype(np.float32)


def cross_entropy(
    logits: Array, labels: Array, weights: Array, multilabel: bool
) -> jax.Array:
    """Weighted cross entropy of each root, [R]: the sum over labels of omega CE."""
    if multilabel:
        each = optax.sigmoid_binary_cross_entropy(logits, labels)
    else:
        each = -labels * jax.nn.log_softmax(logits)
    return each @ weights


def node_inputs(batch: Batch, inputs: Inputs) -> tuple[Matrix, Matrix, Matrix]:
    """Features, label summaries, and neighbours known ahead, of a batch's nodes."""
    ids = batch.graph.nodes["id"]
    x = inputs.features[ids] if batch.features is None else batch.features
    summary = None if inputs.summary is None else inputs.summary[ids]
    if inputs.neighbours is None:
        return x, summary, None
    blocks = [block[ids] for block in inputs.neighbours]
    return x, summary, jnp.concatenate(blocks, axis=1)


def batch_loss(
    net: Net,
    objective: Objective,
    params: Params,
    batch: Batch,
    inputs: Inputs,
    words: jax.Array | None,
) -> tuple[jax.Array, Totals]:
    """Loss of a batch, mean over its real roots, plus L2; and its totals."""
    x, summary, neighbours = node_inputs(batch, inputs)
    variables = {"params": params}
    logits: Any = net.apply(variables, batch, x, summary, words, neighbours)
    each = cross_entropy(
        logits, batch.labels, inputs.label_weights, objective.multilabel
    )
    loss = jnp.sum(each * batch.mask)
    roots = jnp.sum(batch.mask)
    matrices = [w for w in jax.tree.leaves(params) if w.ndim == 2]
    penalty = sum(jnp.sum(jnp.square(w)) for w in matrices)
    true = batch.labels > 0
    predicted = predicted_labels(logits, true, objective)
    real = batch.mask[:, None] > 0
    totals = Totals(
        loss,
        roots,
        *(
            jnp.sum(hit & real, axis=0, dtype=jnp.int32)
            for hit in (predicted & true, predicted & ~true, ~predicted & true)
        ),
    )
    return loss / jnp.maximum(roots, 1) + 0.5 * objective.l2 * penalty, totals


def predicted_labels(logits: jax.Array, true: Array, objective: Objective) -> jax.Array:
    """The likeliest class, or several labels, as booleans [R, C]."""
    if not objective.multilabel:
        return jax.nn.one_hot(jnp.argmax(logits, axis=1), logits.shape[1], dtype=bool)
    if not objective.cardinality:
        return logits > 0
    return largest(logits, jnp.sum(true, axis=1))


def _sum_loss(net, objective, params, batch, inputs, words):
    """As `batch_loss`, of the sum over roots: subgraphs of a step differ in number."""
    totals = batch_loss(net, objective, params, batch, inputs, words)[1]
    return totals.loss, totals


def _over(
    group: Group,
    carry: Any,
    step: Callable[[Any, Callable], Any],
    spread: Spread | None,
) -> Any:
    """`step(carry, total)` for each batch of a group, or for each batch of all lanes.

    `total(function)` is `function(batch, number)`, summed over the lanes. The trip
    count is data, so that XLA makes one loop of it whether there is one batch or all,
    and the numbers are the same.
    """

    def body(i, carry):
        if spread is not None:
            return step(carry, functools.partial(spread.total, group, i))
        at = group.order[i]
        batch = jax.tree.map(lambda leaf: leaf[at], group.batches)
        return step(carry, lambda function: function(batch, group.numbers[at]))

    return jax.lax.fori_loop(0, group.trips, body, carry)


def _train(groups, carry, inputs, key, learning_rate, *, net, objective, spread):
    loss = batch_loss if spread is None else _sum_loss
    gradient = jax.grad(loss, argnums=2, has_aux=True)
    key = jax.random.fold_in(*key)

    def step(carry, total):
        state, totals = carry

        def one(batch, number):
            words = noise.words(jax.random.fold_in(key, number))
            return gradient(net, objective, state.params, batch, inputs, words)

        grads, seen = total(one)
        if spread is not None:
            grads = jax.tree.map(
                lambda g, w: (
                    g / jnp.maximum(seen.roots, 1)
                    + (objective.l2 * w if w.ndim == 2 else 0)
                ),
                grads,
                state.params,
            )
        updates, optimizer = objective.optimizer.update(grads, state.optimizer)
        params = jax.tree.map(lambda w, u: w - learning_rate * u, state.params, updates)
        return State(params, optimizer), jax.tree.map(jnp.add, totals, seen)

    for group in groups:
        carry = _over(group, carry, step, spread)
    return carry


def _evaluate(groups, totals, inputs, params, *, net, objective, spread):
    def step(totals, total):
        def one(batch, number):
            del number
            return batch_loss(net, objective, params, batch, inputs, None)[1]

        return jax.tree.map(jnp.add, totals, total(one))

    for group in groups:
        totals = _over(group, totals, step, spread)
    return totals


def _epoch(groups, state, inputs, key, learning_rate, zero, **static):
    train, validation = groups
    state, totals = _train(train, (state, zero), inputs, key, learning_rate, **static)
    held = _evaluate(validation, zero, inputs, state.params, **static)
    return state, totals, held


def _everywhere(function, net, objective, spread, groups, *others):
    function = functools.partial(function, net=net, objective=objective, spread=spread)
    if spread is None:
        return function(groups, *others)
    return spread.run(function, groups, *others)


_static = functools.partial(jax.jit, static_argnames=("net", "objective", "spread"))


@_static
def train_groups(net, objective, carry, groups, inputs, key, rate, spread=None):
    """Training steps over some groups."""
    others = carry, inputs, key, rate
    return _everywhere(_train, net, objective, spread, groups, *others)


@_static
def evaluate_groups(net, objective, totals, groups, inputs, params, spread=None):
    """Totals over some groups, added to those before."""
    others = totals, inputs, params
    return _everywhere(_evaluate, net, objective, spread, groups, *others)


@_static
def resident_epoch(
    net, objective, state, train, validation, inputs, key, rate, zero, spread=None
):
    """One epoch and its validation, all batches resident, as one call."""
    others = state, inputs, key, rate, zero
    groups = train, validation
    return _everywhere(_epoch, net, objective, spread, groups, *others)


def run_epoch(
    net: Net,
    objective: Objective,
    state: State,
    feeds: tuple[Feed, Feed],
    inputs: Inputs,
    key: jax.Array,
    epoch: int,
    learning_rate: float,
) -> tuple[State, Totals, Totals]:
    """An epoch over the training feed, then the validation feed."""
    train, validation = feeds
    zero = zero_totals(len(inputs.label_weights))
    # The epoch's own key; folded in with the program, not by one of its own.
    rate = np.float32(learning_rate)
    if (spread := train.spread) is not None:
        key = spread.replicate_key(key)
    epoch_key: Any = (key, np.uint32(epoch))
    if train.resident and validation.resident:
        groups = train.groups(epoch), validation.groups(0)
        return resident_epoch(
            net, objective, state, *groups, inputs, epoch_key, rate, zero, spread
        )
    carry = (state, zero)
    for part in train.parts(epoch):
        carry = train_groups(
            net, objective, carry, part, inputs, epoch_key, rate, spread
        )
    state, totals = carry
    seen = zero
    for part in validation.parts(0):
        params = state.params
        seen = evaluate_groups(net, objective, seen, part, inputs, params, spread)
    return state, totals, seen


def zero_totals(num_labels: int) -> Totals:
    """Nothing seen yet."""
    none = np.zeros(num_labels, np.int32)
    nil = np.zeros((), np.float32)
    return Totals(nil, nil, none, none, none)


def first_state(objective: Objective, params: Params) -> State:
    """Before the first step. Made on the host: a program a shape is not worth it."""
    shapes = jax.eval_shape(objective.optimizer.init, params)
    return State(params, jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes))


def first_rule(config: Config) -> Patience:
    """The stopping rule before the first epoch."""
    least = min(config.min_epochs, config.max_epochs)
    return Patience(config.learning_rate, config.patience, least)


class Progress(NamedTuple):
    """Where `learn` stands after an epoch: all that the next ones depend on."""

    epoch: int
    state: State
    best: State
    rule: Patience


def judge(
    rule: Patience, epoch: int, seen: Totals, held: Totals
) -> tuple[str, dict[str, float]]:
    """What the rule says of an epoch ("keep", "wait", "restore"), and its record."""
    rate, train, validation = rule.learning_rate, seen.scores(), held.scores()
    if not math.isfinite(train["loss"] + validation["loss"]):
        raise ValueError(
            f"Training diverged at epoch {epoch}: the loss is {train['loss']}. "
            "Lower learning_rate, or scale the features."
        )
    record = {"epoch": epoch, "learning_rate": rate}
    record |= {f"train_{name}": value for name, value in train.items()}
    record |= {f"validation_{name}": value for name, value in validation.items()}
    return rule.update(epoch, train, validation), record


def learn(
    net: Net,
    objective: Objective,
    params: Params,
    feeds: tuple[Feed, Feed],
    inputs: Inputs,
    config: Config,
    key: jax.Array,
    on_epoch: Callable[[dict[str, float], Progress], None] = lambda *seen: None,
    progress: Progress | None = None,
) -> Params:
    """The best weights that training from `params` comes to.

    `on_epoch` gets a record an epoch (losses, F1 scores, learning rate, seconds) and
    where training stands. Given that as `progress`, training goes on from there, and
    comes to the same weights.
    """
    if progress is None:
        state = best = first_state(objective, params)
        rule = first_rule(config)
        epoch = 0
    else:
        epoch, state, best, rule = progress
        rule = dataclasses.replace(rule)
    spread = feeds[0].spread
    if spread is not None:
        state, best, inputs = spread.replicate((state, best, inputs))
    else:
        inputs = jax.device_put(inputs)  # Once, rather than with every step.
    while epoch < config.max_epochs and not rule.stopped:
        epoch += 1
        begun = time.perf_counter()
        rate = rule.learning_rate
        state, seen, held = run_epoch(
            net, objective, state, feeds, inputs, key, epoch, rate
        )
        action, record = judge(rule, epoch, seen, held)
        if action == "keep":
            best = state
        elif action == "restore":
            state = best
        record |= {"seconds": time.perf_counter() - begun}
        on_epoch(record, Progress(epoch, state, best, dataclasses.replace(rule)))
    return best.params if spread is None else jax.device_get(best.params)

"""One epoch as one jitted call: training steps, then validation."""

import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import sequential_vmap

from hopf_jax.batching import Group, Loader
from hopf_jax.kernels import Net, random_words
from hopf_jax.learning.loss import Inputs, Objective, Params, Totals, batch_loss
from hopf_jax.learning.run_state import State
from hopf_jax.runtime import OneDevice, StepSharding

Mapping = Literal["vmap", "loop"]
_ONE = OneDevice()


def first_state(objective: Objective, params: Params) -> State:
    """Return the state before the first step.

    Made on the host: one program per shape would cost more than it saves.
    """
    shapes = jax.eval_shape(objective.optimizer.init, params)
    return State(params, jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes))


def _over(group: Group, carry: Any, step: Any, sharding: OneDevice | StepSharding):
    """Run `step(carry, total)` for each step of a group.

    `total(function)` is `function(batch, number)`, summed over the lanes of the step.
    The trip count is data, so that XLA compiles the same loop for one batch and for
    all, and the numbers are the same.
    """

    def body(i, carry):
        return step(carry, functools.partial(sharding.total, group, i))

    return jax.lax.fori_loop(0, group.trips, body, carry)


def _sum_loss(net, objective, params, batch, inputs, words):
    """`batch_loss` as a sum over roots: lanes of a step differ in their number."""
    totals = batch_loss(net, objective, params, batch, inputs, words)[1]
    return totals.loss, totals


def _train(groups, carry, inputs, key, learning_rate, *, net, objective, sharding):
    several = sharding.lanes > 1
    loss = _sum_loss if several else batch_loss
    gradient = jax.grad(loss, argnums=2, has_aux=True)
    key = jax.random.fold_in(*key)

    def step(carry, total):
        state, totals = carry

        def one(batch, number):
            words = random_words(jax.random.fold_in(key, number))
            return gradient(net, objective, state.params, batch, inputs, words)

        grads, seen = total(one)
        if several:
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
        carry = _over(group, carry, step, sharding)
    return carry


def _evaluate(groups, totals, inputs, params, *, net, objective, sharding):
    def step(totals, total):
        def one(batch, number):
            del number
            return batch_loss(net, objective, params, batch, inputs, None)[1]

        return jax.tree.map(jnp.add, totals, total(one))

    for group in groups:
        totals = _over(group, totals, step, sharding)
    return totals


def _epoch(groups, state, inputs, key, learning_rate, zero, **static):
    train, validation = groups
    state, totals = _train(train, (state, zero), inputs, key, learning_rate, **static)
    held = _evaluate(validation, zero, inputs, state.params, **static)
    return state, totals, held


def _everywhere(function, net, objective, sharding, groups, *others):
    static = {"net": net, "objective": objective, "sharding": sharding}
    return sharding.run(functools.partial(function, **static), groups, *others)


_static = functools.partial(jax.jit, static_argnames=("net", "objective", "sharding"))


@_static
def train_groups(net, objective, carry, groups, inputs, key, rate, sharding=_ONE):
    """Run the training steps of some groups."""
    others = carry, inputs, key, rate
    return _everywhere(_train, net, objective, sharding, groups, *others)


@_static
def evaluate_groups(net, objective, totals, groups, inputs, params, sharding=_ONE):
    """Add the totals of some groups to `totals`."""
    others = totals, inputs, params
    return _everywhere(_evaluate, net, objective, sharding, groups, *others)


@_static
def resident_epoch(
    net, objective, state, train, validation, inputs, key, rate, zero, sharding=_ONE
):
    """Run one epoch and its validation in one call, with all batches resident."""
    others = state, inputs, key, rate, zero
    groups = train, validation
    return _everywhere(_epoch, net, objective, sharding, groups, *others)


def run_epoch(
    net: Net,
    objective: Objective,
    state: State,
    loaders: tuple[Loader, Loader],
    inputs: Inputs,
    key: jax.Array,
    epoch: int,
    learning_rate: Any,
    zero: Totals,
) -> tuple[State, Totals, Totals]:
    """Train on the batches of the first loader, then evaluate those of the second."""
    train, validation = loaders
    sharding = train.sharding
    # The epoch is folded into the key inside the program, not by one of its own.
    epoch_key: Any = (sharding.replicate_key(key), np.uint32(epoch))
    if train.resident and validation.resident:
        groups = train.groups(epoch), validation.groups(0)
        return resident_epoch(
            net,
            objective,
            state,
            *groups,
            inputs,
            epoch_key,
            learning_rate,
            zero,
            sharding,
        )
    carry = (state, zero)
    for part in train.parts(epoch):
        carry = train_groups(
            net, objective, carry, part, inputs, epoch_key, learning_rate, sharding
        )
    state, totals = carry
    held = zero
    for part in validation.parts(0):
        held = evaluate_groups(
            net, objective, held, part, inputs, state.params, sharding
        )
    return state, totals, held


class JointProgram(NamedTuple):
    """What an epoch of several members is compiled for; static under jit."""

    net: Net
    objective: Objective
    mapping: Mapping
    inputs: Inputs  # Which of the inputs have an axis of members: 0 or None each.
    groups: Any  # Likewise of the groups.
    key: int | None  # Likewise of the key.


@functools.partial(jax.jit, static_argnames=("program",))
def joint_epoch(program, live, state, groups, inputs, key, rates, zero):
    """Run `resident_epoch` of all members; those that are not live stay as they are."""

    def one(live, state, groups, inputs, key, rate, zero):
        def run():
            return resident_epoch(
                program.net, program.objective, state, *groups, inputs, key, rate, zero
            )

        # A branch in a loop; a choice between results under vmap.
        return jax.lax.cond(live, run, lambda: (state, zero, zero))

    each = sequential_vmap(one) if program.mapping == "loop" else one
    keys = (program.key, None)
    axes = (0, 0, program.groups, program.inputs, keys, 0, None)
    return jax.vmap(each, axes)(live, state, groups, inputs, key, rates, zero)

"""One epoch as one jitted call: training steps, then validation."""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import sequential_vmap

from hopf_jax.batching import Group, Loader
from hopf_jax.kernels import Net, random_words
from hopf_jax.learning.loss import Inputs, Objective, Params, Totals, batch_loss
from hopf_jax.learning.run_state import State
from hopf_jax.runtime import OneDevice, StepSharding, compiled

Mapping = Literal["vmap", "loop"]


class Program(NamedTuple):
    """What an epoch is compiled for; static under jit."""

    net: Net
    objective: Objective
    sharding: OneDevice | StepSharding = OneDevice()


def first_state(objective: Objective, params: Params) -> State:
    """Return the state before the first step.

    Made on the host: one program per shape would cost more than it saves.
    """
    shapes = jax.eval_shape(objective.optimizer.init, params)
    return State(params, jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes))


def _over(program: Program, group: Group, carry: Any, step: Callable) -> Any:
    """Run `step(carry, total)` for each step of a group.

    `total(function)` is `function(batch, number)`, summed over the lanes of the step.
    The trip count is data, so that XLA compiles the same loop for one batch and for
    all, and the numbers are the same.
    """

    def body(i, carry):
        return step(carry, functools.partial(program.sharding.total, group, i))

    return jax.lax.fori_loop(0, group.trips, body, carry)


def _sum_loss(net, objective, params, batch, inputs, words):
    """`batch_loss` as a sum over roots: lanes of a step differ in their number."""
    totals = batch_loss(net, objective, params, batch, inputs, words)[1]
    return totals.loss, totals


def _train(program, groups, carry, inputs, key, learning_rate):
    net, objective, sharding = program
    several = sharding.lanes > 1
    loss = _sum_loss if several else batch_loss
    gradient = jax.grad(loss, argnums=2, has_aux=True)
    key = jax.random.fold_in(*key)

    def step(carry, total):
        state, totals = carry

        def one(batch, number):
            words = random_words(jax.random.fold_in(key, number))
            return gradient(net, objective, state.params, batch, inputs, words)

        def mean(g, w):
            l2 = inputs.settled(net, objective)[1].l2
            decay = l2 * w if w.ndim == 2 else 0
            return g / jnp.maximum(seen.roots, 1) + decay

        grads, seen = total(one)
        if several:
            grads = jax.tree.map(mean, grads, state.params)
        updates, optimizer = objective.optimizer.update(grads, state.optimizer)
        params = jax.tree.map(lambda w, u: w - learning_rate * u, state.params, updates)
        if net.norm == "batch":
            params = net.update_statistics(params, state.params, grads)
        return State(params, optimizer), jax.tree.map(jnp.add, totals, seen)

    for group in groups:
        carry = _over(program, group, carry, step)
    return carry


def _evaluate(program, groups, totals, inputs, params):
    net, objective, _ = program

    def step(totals, total):
        def one(batch, number):
            return batch_loss(net, objective, params, batch, inputs, None)[1]

        return jax.tree.map(jnp.add, totals, total(one))

    for group in groups:
        totals = _over(program, group, totals, step)
    return totals


@compiled(num_static=1)
def train_groups(program, groups, carry, inputs, key, rate):
    """Run the training steps of some groups."""
    train = functools.partial(_train, program)
    return program.sharding.run(train, groups, carry, inputs, key, rate)


@compiled(num_static=1)
def evaluate_groups(program, groups, totals, inputs, params):
    """Add the totals of some groups to `totals`."""
    evaluate = functools.partial(_evaluate, program)
    return program.sharding.run(evaluate, groups, totals, inputs, params)


@compiled(num_static=1)
def resident_epoch(program, groups, state, inputs, key, rate, zero):
    """Run one epoch and its validation in one call, with all batches resident."""

    def epoch(groups, state, inputs, key, rate, zero):
        train, validation = groups
        state, totals = _train(program, train, (state, zero), inputs, key, rate)
        return state, totals, _evaluate(program, validation, zero, inputs, state.params)

    return program.sharding.run(epoch, groups, state, inputs, key, rate, zero)


def run_epoch(
    program: Program,
    loaders: tuple[Loader, Loader],
    state: State,
    inputs: Inputs,
    key: jax.Array,
    epoch: int,
    rate: Any,
    zero: Totals,
) -> tuple[State, Totals, Totals]:
    """Train on the batches of the first loader, then evaluate those of the second."""
    train, validation = loaders
    # The epoch is folded into the key inside the program, not by one of its own.
    epoch_key: Any = (program.sharding.replicate_key(key), np.uint32(epoch))
    if train.resident and validation.resident:
        groups = train.groups(epoch), validation.groups(0)
        return resident_epoch(program, groups, state, inputs, epoch_key, rate, zero)
    carry = (state, zero)
    for part in train.parts(epoch):
        carry = train_groups(program, part, carry, inputs, epoch_key, rate)
    state, totals = carry
    held = zero
    for part in validation.parts(0):
        held = evaluate_groups(program, part, held, inputs, state.params)
    return state, totals, held


class JointProgram(NamedTuple):
    """What an epoch of several members is compiled for; static under jit."""

    single: Program
    mapping: Mapping
    inputs: Inputs  # Which of the inputs have an axis of members: 0 or None each.
    groups: Any  # Likewise of the groups.
    key: int | None  # Likewise of the key.


@compiled(num_static=1)
def joint_epoch(program, live, state, groups, inputs, key, rates, zero):
    """Run `resident_epoch` of all members; those that are not live stay as they are."""

    def one(live, state, groups, inputs, key, rate, zero):
        def run():
            each = program.single
            return resident_epoch(each, groups, state, inputs, key, rate, zero)

        # A branch in a loop; a choice between results under vmap.
        return jax.lax.cond(live, run, lambda: (state, zero, zero))

    each = sequential_vmap(one) if program.mapping == "loop" else one
    keys = (program.key, None)
    axes = (0, 0, program.groups, program.inputs, keys, 0, None)
    return jax.vmap(each, axes)(live, state, groups, inputs, key, rates, zero)

"""One epoch as one jitted call: training steps, then validation."""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import sequential_vmap

from hopf_jax.batching import Group, Loader
from hopf_jax.kernels import Net, fold_in
from hopf_jax.learning.loss import Inputs, Objective, Params, Totals, batch_loss
from hopf_jax.learning.run_state import State
from hopf_jax.runtime import OneDevice, StepSharding, compiled

Mapping = Literal["vmap", "loop"]


class Program(NamedTuple):
    """What an epoch is compiled for; static under jit."""

    net: Net
    objective: Objective
    sharding: OneDevice | StepSharding = OneDevice()
    quickly: bool = False  # With few optimisations, in all programs of a run.


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


def _train(program, groups, carry, inputs, words, learning_rate):
    net, objective, sharding, _ = program
    several = sharding.lanes > 1
    loss = _sum_loss if several else batch_loss
    gradient = jax.grad(loss, argnums=2, has_aux=True)

    def step(carry, total):
        state, totals = carry

        def one(batch, number):
            own = words[number]
            return gradient(net, objective, state.params, batch, inputs, own)

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
    net, objective, *_ = program

    def step(totals, total):
        def one(batch, number):
            return batch_loss(net, objective, params, batch, inputs, None)[1]

        return jax.tree.map(jnp.add, totals, total(one))

    for group in groups:
        totals = _over(program, group, totals, step)
    return totals


def _quickly(program: Program) -> bool:
    return program.quickly


@compiled(num_static=1, quickly=_quickly)
def train_groups(program, groups, carry, inputs, words, rate):
    """Run the training steps of some groups."""
    train = functools.partial(_train, program)
    return program.sharding.run(train, groups, carry, inputs, words, rate)


@compiled(num_static=1, quickly=_quickly)
def evaluate_groups(program, groups, totals, inputs, params):
    """Add the totals of some groups to `totals`."""
    evaluate = functools.partial(_evaluate, program)
    return program.sharding.run(evaluate, groups, totals, inputs, params)


@compiled(num_static=1, quickly=_quickly)
def resident_epoch(program, groups, state, inputs, words, rate, zero):
    """Run one epoch and its validation in one call, with all batches resident."""

    def epoch(groups, state, inputs, words, rate, zero):
        train, validation = groups
        state, totals = _train(program, train, (state, zero), inputs, words, rate)
        return state, totals, _evaluate(program, validation, zero, inputs, state.params)

    return program.sharding.run(epoch, groups, state, inputs, words, rate, zero)


def words_of_epoch(key: np.ndarray, epoch: int, num_batches: int) -> np.ndarray:
    """Return the random words of all batches of an epoch by their numbers, [B, 2].

    Drawn on the host: Threefry would be a large part of what a program compiles.
    """
    room = 1 << num_batches.bit_length()  # Few sizes, and two rows at least.
    return fold_in(fold_in(key, epoch), np.arange(room))


def run_epoch(
    program: Program,
    loaders: tuple[Loader, Loader],
    state: State,
    inputs: Inputs,
    key: np.ndarray,
    epoch: int,
    rate: Any,
    zero: Totals,
) -> tuple[State, Totals, Totals]:
    """Train on the batches of the first loader, then evaluate those of the second."""
    train, validation = loaders
    words = program.sharding.replicate(words_of_epoch(key, epoch, train.num_batches))
    if train.resident and validation.resident:
        groups = train.groups(epoch), validation.groups(0)
        return resident_epoch(program, groups, state, inputs, words, rate, zero)
    carry = (state, zero)
    for part in train.parts(epoch):
        carry = train_groups(program, part, carry, inputs, words, rate)
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
    words: int | None  # Likewise of the random words.


@compiled(num_static=1, quickly=lambda program: program.single.quickly)
def joint_epoch(program, live, state, groups, inputs, words, rates, zero):
    """Run `resident_epoch` of all members; those that are not live stay as they are."""

    def one(live, state, groups, inputs, words, rate, zero):
        def run():
            each = program.single
            arguments = groups, state, inputs, words, rate, zero
            return resident_epoch.function(each, *arguments)

        # A branch in a loop; a choice between results under vmap.
        return jax.lax.cond(live, run, lambda: (state, zero, zero))

    each = sequential_vmap(one) if program.mapping == "loop" else one
    axes = (0, 0, program.groups, program.inputs, program.words, 0, None)
    return jax.vmap(each, axes)(live, state, groups, inputs, words, rates, zero)

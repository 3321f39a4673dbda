"""Training within one iteration: epochs, until the stopping rule ends them."""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from hopf_jax.config import Config
from hopf_jax.learning.loss import Params, Totals, zero_totals
from hopf_jax.learning.population import Member, Population
from hopf_jax.learning.run_state import Progress
from hopf_jax.learning.stopping import Patience

Record = dict[str, float]


def record_epoch(epoch: int, rate: float, seen: Totals, held: Totals) -> Record:
    """Return the record of an epoch; raise `ValueError` if training diverged."""
    train, validation = seen.scores(), held.scores()
    if not math.isfinite(train["loss"] + validation["loss"]):
        raise ValueError(
            f"Training diverged at epoch {epoch}: the loss is {train['loss']}. "
            "Lower learning_rate, or scale the features."
        )
    record = {"epoch": epoch, "learning_rate": rate}
    record |= {f"train_{name}": value for name, value in train.items()}
    return record | {f"validation_{name}": value for name, value in validation.items()}


def pooled(totals: Sequence[Totals], members: Sequence[Member]) -> list[Totals]:
    """Return for each member the totals it is stopped by: the sum over its pool.

    One part of a few labels cannot tell epochs apart, and the best of many epochs on
    such a part says nothing about other nodes.
    """
    sums: dict[int, Any] = {}
    for own, member in zip(totals, members, strict=True):
        if member.pool is not None:
            before = sums.get(id(member.pool))
            sums[id(member.pool)] = (
                own if before is None else jax.tree.map(np.add, before, own)
            )
    return [
        own if member.pool is None else sums[id(member.pool)]
        for own, member in zip(totals, members, strict=True)
    ]


def learn(
    population: Population,
    params: Sequence[Params],
    inputs: Any,
    config: Config,
    keys: Sequence[np.ndarray],
    on_epoch: Callable[[dict[int, Record], Progress], None] = lambda *seen: None,
    *,
    live: Sequence[bool] | None = None,
    progress: Progress | None = None,
) -> list[Params]:
    """Train every live member; return the best weights of each, on the host.

    Args:
      population: The members and their batches.
      params: Weights to start from, one per member.
      inputs: What `population.inputs` returned.
      config: Settings.
      keys: Random keys of this iteration, one per member.
      on_epoch: Called after every epoch with {member: record} (losses, F1 scores,
        learning rate, seconds) and the state of training.
      live: Which members to train; None for all.
      progress: A state that `on_epoch` received; training resumes from there, and ends
        with the same weights.
    """
    count, replicate = len(params), population.sharding.replicate
    if progress is None:
        least = min(config.min_epochs, config.max_epochs)
        rule = Patience(config.learning_rate, config.patience, least)
        alive = [True] * count if live is None else live
        epoch, rules = (
            0,
            [
                dataclasses.replace(
                    rule, stopped=not a, by_loss=member.pool is not None
                )
                for a, member in zip(alive, population.members, strict=True)
            ],
        )
        state = best = replicate(population.start(params))
    else:
        epoch, rules = progress.epoch, [dataclasses.replace(r) for r in progress.rules]
        both = population.join(progress.state), population.join(progress.best)
        state, best = replicate(both)
    zero = zero_totals(population.net.sizes.labels)
    key = population.join_keys(keys)
    waited_for = [not member.helper for member in population.members]
    while epoch < config.max_epochs and not all(
        rule.stopped for rule in itertools.compress(rules, waited_for)
    ):
        epoch += 1
        begun = time.perf_counter()
        running = np.array([not rule.stopped for rule in rules])
        rates = np.array([rule.learning_rate for rule in rules], np.float32)
        state, seen, held = population.run_epoch(
            state, inputs, key, epoch, rates, running, zero
        )
        actions = np.full(count, "wait", "U7")
        records: dict[int, Record] = {}
        by_seen, by_held = (pooled(each, population.members) for each in (seen, held))
        for i in np.flatnonzero(running).tolist():
            rate = rules[i].learning_rate
            try:
                records[i] = record_epoch(epoch, rate, seen[i], held[i])
            except ValueError as error:
                where = f"Net {i}: " if count > 1 else ""
                raise ValueError(f"{where}{error}") from error
            # "keep" (the weights), "wait" or "restore" (the weights kept last).
            actions[i] = rules[i].update(
                epoch, by_seen[i].scores(), by_held[i].scores()
            )
        best = population.choose(actions == "keep", state, best)
        state = population.choose(actions == "restore", best, state)
        seconds = (time.perf_counter() - begun) / len(records)
        records = {i: record | {"seconds": seconds} for i, record in records.items()}
        copies = tuple(dataclasses.replace(rule) for rule in rules)
        on_epoch(records, Progress(epoch, state, best, copies, population.take))
    return [jax.device_get(population.take(best, i).params) for i in range(count)]

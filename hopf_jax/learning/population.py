"""The members of a run: nets with the same kernel and settings, trained side by side.

`fit` trains one member or several, `fit_folds` as many per split. Members whose batches
agree in shape can train in one program per epoch (`JointPopulation`): weights,
optimizer state and batches get a leading axis of members. On an accelerator that axis
is a `vmap`: nets too small to fill it run as one larger batch. On a CPU, where a
batched sparse product is slow, it is a loop.
"""

import concurrent.futures
import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from hopf_jax.batching import Batch, Group, Layout, Loader, fill, make_loader
from hopf_jax.config import Config
from hopf_jax.graph import Graph
from hopf_jax.inference import WholeGraph
from hopf_jax.kernels import Net
from hopf_jax.learning.epoch import (
    JointProgram,
    Program,
    first_state,
    joint_epoch,
    run_epoch,
    words_of_epoch,
)
from hopf_jax.learning.first_hop import FirstHop
from hopf_jax.learning.loss import (
    Hiding,
    Inputs,
    Numbers,
    Objective,
    Params,
    Totals,
    label_weights,
)
from hopf_jax.learning.plan import Plan
from hopf_jax.learning.run_state import State
from hopf_jax.runtime import compiled

_GRAPH = ("indptr", "indices", "weights", "features", "labels", "multilabel")


class CannotJoinError(ValueError):
    """These members cannot be trained in one program."""


class Member(NamedTuple):
    """One net to train.

    Attributes:
      graph: A graph, as its kernel reads it, with a split.
      seed: Seed of weights, batches and dropout.
      views: Which of several label summaries each node reads, [all nodes]; None if
        there is one.
      helper: Stop when the others have stopped, whatever its own rule says.
      pool: The graph whose labels are cross-validated, if they are: members of one pool
        are stopped together, by the sum of their scores.
    """

    graph: Graph
    seed: int
    views: np.ndarray | None = None
    helper: bool = False
    pool: Graph | None = None


class Population:
    """The members of a run, side by side, each with programs and batches of its own.

    On a CPU, where XLA computes small nets on one core, members share the cores. The
    state of a population is a tuple with the state of each member.

    Args:
      net: The kernel and its widths.
      objective: What is minimised.
      members: The members.
      plan: How the run is executed.
      whole: The graph, for its features and the precomputed first hop.
      config: Settings.
    """

    def __init__(
        self,
        net: Net,
        objective: Objective,
        members: Sequence[Member],
        plan: Plan,
        whole: WholeGraph,
        config: Config,
    ):
        self._numbers: Numbers | None = None
        if plan.shared_programs:
            self._numbers, net, objective = Numbers.split(net, objective)
        self.net, self.members, self.sharding = net, members, plan.sharding
        self._program = Program(net, objective, plan.sharding, plan.quickly)
        self.make_loaders(plan)
        features = whole.all_features() if plan.features == "resident" else None
        self._features = plan.sharding.replicate(features)
        self._omegas = [self.label_weights(m, config) for m in members]
        masked = net.kernel.iterative and config.training_summaries == "masked"
        self._hidden_share = config.hidden_share if masked else None
        self._first_hop: FirstHop | None = None
        if plan.precompute:
            every = WholeGraph(whole.graph, plan.chunk_edges) if whole.shared else whole
            self._first_hop = FirstHop(net.kernel, every)
        alone = plan.sharding.lanes == 1 and jax.process_count() == 1
        cores = os.cpu_count() or 1 if jax.default_backend() == "cpu" and alone else 1
        threads = min(len(members), cores)
        self._map: Any = map
        if threads > 1:
            self._map = concurrent.futures.ThreadPoolExecutor(threads).map

    def make_loaders(self, plan: Plan) -> None:
        """Set `loaders`: the batches of training and of validation nodes of each."""
        training, validation = (
            # They share the budget.
            dataclasses.replace(
                how, memory_budget=how.memory_budget // len(self.members)
            )
            for how in (plan.training, plan.validation)
        )
        self.loaders: list[Any] = [  # Of training and of validation nodes.
            tuple(
                make_loader(
                    m.graph,
                    np.flatnonzero(nodes),
                    how,
                    m.seed,
                    plan.sharding,
                    None if m.views is None else m.views[nodes],
                )
                for nodes, how in (
                    (m.graph.train, training),
                    (m.graph.validation, validation),
                )
            )
            for m in self.members
        ]

    def label_weights(self, member: Member, config: Config) -> np.ndarray:
        """Return the weights of labels in the loss of a member, [C]."""
        graph = member.graph
        return label_weights(graph.labels[graph.train], config.weighted_loss)

    def inputs(
        self, summaries: Sequence[np.ndarray | None], iteration: int
    ) -> tuple[Inputs, ...]:
        """Return what all batches of an iteration share, for each member.

        Args:
          summaries: Label summaries that each member reads, [all nodes, *], or
            [views, all nodes, *] if roots read different ones; None for none.
          iteration: The iteration, from 1.
        """
        replicate = self.sharding.replicate
        numbers = replicate(self._numbers)
        # Members that read the same summaries share one copy on the device.
        read = {
            id(summary): replicate((summary, self._neighbours(summary)))
            for summary in {id(each): each for each in summaries}.values()
        }
        found = []
        for summary, *each in zip(
            summaries, self._omegas, self._hidings(iteration), strict=True
        ):
            labels, near = read[id(summary)]
            omega, hiding = replicate(tuple(each))
            own = labels, omega, near, hiding
            found.append(Inputs(self._features, *own, numbers))
        return tuple(found)

    def training_nodes(self, member: Member) -> np.ndarray | None:
        """Return a mask of the training nodes; None if batches say it of theirs."""
        return member.graph.train

    def _hidings(self, iteration: int) -> list[Hiding | None]:
        """Return which nodes are hidden from each member; all while all are zero."""
        if self._hidden_share is None:
            return [None] * len(self.members)
        share = 1.0 if iteration == 1 else self._hidden_share
        return [
            Hiding.at_rate(self.training_nodes(member), share, count)
            for member, count in zip(self.members, self._num_batches, strict=True)
        ]

    @property
    def _num_batches(self) -> list[int]:
        return [train.num_batches for train, _ in self.loaders]

    def _neighbours(self, summary: np.ndarray | None) -> Any:
        """Return what the first hop reads, where it is precomputed; else None."""
        return None if self._first_hop is None else self._first_hop.neighbours(summary)

    def start(self, params: Sequence[Params]) -> Any:
        """Return the state of all members before the first step."""
        return tuple(first_state(self._program.objective, p) for p in params)

    def join(self, states: Sequence[State]) -> Any:
        """Return the states of single members as that of the population."""
        return tuple(states)

    def join_keys(self, keys: Sequence[np.ndarray]) -> Any:
        """Return the random keys of all members."""
        return tuple(keys)

    def take(self, tree: Any, member: int) -> Any:
        """Return the part of one member."""
        return tree[member]

    def choose(self, which: np.ndarray, one: Any, other: Any) -> Any:
        """Return for each member the state from `one` or from `other`."""
        pairs = zip(which, one, other, strict=True)
        return tuple(a if first else b for first, a, b in pairs)

    def run_epoch(
        self,
        state: Any,
        inputs: Any,
        key: Any,
        epoch: int,
        rates: np.ndarray,
        live: np.ndarray,
        zero: Totals,
    ) -> tuple[Any, list[Totals], list[Totals]]:
        """Run an epoch of the live members; return the state, and totals of each."""

        def one(i: int) -> tuple[State, Totals, Totals]:
            if not live[i]:
                return state[i], zero, zero
            own = self._program, self.loaders[i], state[i], inputs[i], key[i]
            # On the host, so that a thread is busy until its epoch is over.
            new, *totals = run_epoch(*own, epoch, rates[i], zero)
            return new, *jax.device_get(totals)

        found = list(self._map(one, range(len(self.members))))
        states, seen, held = zip(*found, strict=True)
        return states, list(seen), list(held)


class JointPopulation(Population):
    """Several members with a leading axis, in one program per epoch."""

    def __init__(
        self, *arguments: Any, mapping: Literal["auto", "vmap", "loop"] = "auto"
    ):
        if mapping == "auto":
            mapping = "loop" if jax.default_backend() == "cpu" else "vmap"
        super().__init__(*arguments)
        masked, kernel = self._hidden_share is not None, self.net.kernel
        axes: Any = None, (0 if kernel.iterative else None), 0, None, None
        if self._first_hop is not None:
            # What is read from the features is the same for all members.
            near = tuple(0 if name == "y" else None for name in kernel.psi)
            axes = *axes[:3], near, None
        if masked:
            axes = *axes[:4], Hiding(0, None, None)  # type: ignore[arg-type]
        groups = tuple((loader.axes,) for loader in self._joint)
        key = None if self._one_key else 0
        self._joint_program = JointProgram(
            self._program, mapping, Inputs(*axes), groups, key
        )

    def make_loaders(self, plan: Plan) -> None:
        """Set the batches of all members, in one layout."""
        _check_joint(plan)
        if any(member.views is not None for member in self.members):
            raise CannotJoinError("Helpers learn from other nodes than members.")
        self._joint = (
            _JointLoader(self.members, "train", plan.training),
            _JointLoader(self.members, "validation", plan.validation),
        )
        self._one_key = len({member.seed for member in self.members}) == 1

    @property
    def _num_batches(self) -> list[int]:
        return [self._joint[0].num_batches] * len(self.members)

    def inputs(self, summaries, iteration):
        """Return what all batches of an iteration share, with axes as the program's."""
        axes: Any = self._joint_program.inputs

        def joined(axis: Any, parts: Sequence[Any]) -> Any:
            return parts[0] if axis is None else np.stack(parts)

        near, (hiding, *others) = None, self._hidings(iteration)
        if self._first_hop is not None:
            found = [self._neighbours(each) for each in summaries]
            blocks = zip(axes.neighbours, *found, strict=True)
            near = tuple(joined(axis, parts) for axis, *parts in blocks)
        if hiding is not None:
            every: list[Any] = [hiding, *others]
            hiding = hiding._replace(known=np.stack([each.known for each in every]))
        summary = joined(axes.summary, summaries)
        own = summary, np.stack(self._omegas), near, hiding, self._numbers
        return Inputs(self._features, *self.sharding.replicate(own))

    def start(self, params: Sequence[Params]) -> State:
        """Return the state of all members before the first step."""
        return self.join(super().start(params))

    def join(self, states: Sequence[State]) -> State:
        """Return the states of single members with a leading axis."""
        return _stack(states)

    def join_keys(self, keys: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return one key for all if their seeds agree, so that bits are drawn once."""
        return [keys[0]] if self._one_key else list(keys)

    def take(self, tree: Any, member: int) -> Any:
        """Return the part of one member."""
        return jax.tree.map(lambda leaf: leaf[member], tree)

    def choose(self, which: np.ndarray, one: Any, other: Any) -> Any:
        """Return for each member the state from `one` or from `other`."""
        return _choose(which, one, other) if which.any() else other

    def run_epoch(self, state, inputs, key, epoch, rates, live, zero):
        """Run an epoch of the live members; return the state, and totals of each."""
        train, validation = self._joint
        groups = (train.group(epoch),), (validation.group(0),)
        each = [words_of_epoch(own, epoch, train.num_batches) for own in key]
        words = each[0] if self._one_key else np.stack(each)
        program = self._joint_program
        state, *totals = joint_epoch(
            program, live, state, groups, inputs, words, rates, zero
        )
        seen, held = (
            [self.take(each, i) for i in range(len(self.members))]
            for each in jax.device_get(totals)
        )
        return state, seen, held


@compiled()
def _choose(which, one, other):
    def pick(a, b):
        return jnp.where(which.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, one, other)


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


class _JointLoader:
    """The batches of every member, resident, in one layout that fits them all.

    Batches are made, numbered and ordered as for one member. Where the orders of all
    members are the same, the order has no axis of members, and random bits are drawn
    once for all of them.
    """

    def __init__(self, members: Sequence[Member], part: str, settings: Any):
        # No budget, so that loaders do not pad; batches are padded together below.
        streamed = dataclasses.replace(settings, memory_budget=0)
        self._loaders = [
            Loader(
                m.graph,
                np.flatnonzero(getattr(m.graph, part)),
                streamed,
                m.seed,
            )
            for m in members
        ]
        first = self._loaders[0]
        counts = [loader.num_batches for loader in self._loaders]
        if len(set(counts)) > 1:
            raise CannotJoinError(f"The {part} nodes make {counts} batches.")
        sizes = np.concatenate([loader.sizes for loader in self._loaders])
        layout = first.layouts[0]
        if any(loader.layouts != [layout] for loader in self._loaders):
            layout = Layout.over(sizes, settings.num_hops)
        needed = len(members) * first.room(layout)
        if needed > settings.memory_budget:
            raise CannotJoinError(
                f"The {part} batches need {needed} bytes, but memory_budget is "
                f"{settings.memory_budget}."
            )
        self._batches: Batch = jax.device_put(
            _stack([loader.stacked(layout) for loader in self._loaders])
        )
        self._alike = len({m.seed for m in members}) == 1 and all(
            len(loader.members) == len(first.members)
            and all(map(np.array_equal, loader.members, first.members))
            for loader in self._loaders
        )

    @property
    def num_batches(self) -> int:
        """Number of batches of each member per epoch."""
        return self._loaders[0].num_batches

    def group(self, epoch: int) -> Group:
        """Return all batches of an epoch."""
        loaders = self._loaders[:1] if self._alike else self._loaders
        count = self._loaders[0].num_batches
        room = max(2, count)  # `stack` repeats a single batch.
        orders = [fill(loader.order(epoch), room, 0) for loader in loaders]
        return Group(
            self._batches,
            fill(np.arange(count, dtype=np.int32), room, 0),
            orders[0] if self._alike else np.stack(orders),
            np.array(count, np.int32),
        )

    @property
    def axes(self) -> Group:
        """Which parts of a group have an axis of members."""
        order: Any = None if self._alike else 0
        return Group(0, None, order, None)  # type: ignore[arg-type]


def check_same(graphs: Sequence[Graph]) -> None:
    """Raise `CannotJoinError` for graphs that differ in more than their splits."""
    for graph in graphs[1:]:
        names = [
            n for n in _GRAPH if not _equal(getattr(graphs[0], n), getattr(graph, n))
        ]
        if names:
            raise CannotJoinError(f"The graphs differ in {' and '.join(names)}.")


def _check_joint(plan: Plan) -> None:
    """Raise `CannotJoinError` for members that no program can train together."""
    if plan.training.fanouts is not None:
        raise CannotJoinError("Neighbours are sampled anew in every epoch.")
    if plan.sharding.lanes > 1 or jax.process_count() > 1:
        raise CannotJoinError(
            "A step has several batches, or the job several processes."
        )


def _equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if one is None or other is None or type(one) is not type(other):
        return False
    if sp.issparse(one):
        names = ("indptr", "indices", "data")
        same = all(_equal(getattr(one, n), getattr(other, n)) for n in names)
        return same and one.shape == other.shape
    return np.array_equal(one, other)

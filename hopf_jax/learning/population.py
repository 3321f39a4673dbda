"""The members of a run: nets with the same kernel and settings, trained side by side.

`fit` trains one member, `fit_folds` one per split. Members whose batches agree in shape
train in one program per epoch: weights, optimizer state and batches get a leading axis
of members. On an accelerator that axis is a `vmap`: nets too small to fill it run as
one larger batch. On a CPU, where a batched sparse product is slow, it is a loop.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from hopf_jax.batching import Batch, Group, Layout, Loader, fill, make_loader
from hopf_jax.graph import Graph
from hopf_jax.inference import WholeGraph
from hopf_jax.kernels import Net
from hopf_jax.learning.epoch import (
    JointProgram,
    Program,
    first_state,
    joint_epoch,
    run_epoch,
)
from hopf_jax.learning.first_hop import FirstHop
from hopf_jax.learning.loss import Inputs, Objective, Params, Totals, label_weights
from hopf_jax.learning.plan import Plan
from hopf_jax.learning.run_state import RunState, State

_GRAPH = ("indptr", "indices", "weights", "features", "labels", "multilabel")


class CannotJoinError(ValueError):
    """These members cannot be trained in one program."""

    run: RunState  # Where they stood, so that each can go on from there.


class Member(NamedTuple):
    """One net to train: a graph, as its kernel reads it, with a split; and a seed."""

    graph: Graph
    seed: int


class Population:
    """The members of a run; here a single one, without an axis of members.

    Args:
      net: The kernel and its widths.
      objective: What is minimised.
      members: The members.
      plan: How the run is executed.
      whole: The graph, for its features and the precomputed first hop.
      weighted_loss: Weight labels by their rarity among each member's training nodes.
    """

    def __init__(
        self,
        net: Net,
        objective: Objective,
        members: Sequence[Member],
        plan: Plan,
        whole: WholeGraph,
        weighted_loss: bool,
    ):
        self.net, self.members, self.sharding = net, members, plan.sharding
        self._program = Program(net, objective, plan.sharding)
        self._make_loaders(plan)
        self._features = whole.all_features() if plan.features == "resident" else None
        self._omegas = [
            label_weights(m.graph.labels[m.graph.train], weighted_loss) for m in members
        ]
        self._first_hop: FirstHop | None = None
        if plan.precompute:
            every = WholeGraph(whole.graph, plan.chunk_edges) if whole.shared else whole
            self._first_hop = FirstHop(net.kernel, every)

    def _make_loaders(self, plan: Plan) -> None:
        ((graph, seed),) = self.members
        train, held = np.flatnonzero(graph.train), np.flatnonzero(graph.validation)
        self.loaders = (
            make_loader(graph, train, plan.training, seed, plan.sharding),
            make_loader(graph, held, plan.validation, seed, plan.sharding),
        )

    def inputs(self, summaries: Sequence[np.ndarray | None]) -> Inputs:
        """Return what all batches of an iteration share, given label summaries."""
        (summary,), (omega,) = summaries, self._omegas
        neighbours = None
        if self._first_hop is not None:
            neighbours = self._first_hop.neighbours(summary)
        return Inputs(self._features, summary, omega, neighbours)

    def start(self, params: Sequence[Params]) -> State:
        """Return the state of all members before the first step."""
        return first_state(self._program.objective, params[0])

    def join_keys(self, keys: Sequence[jax.Array]) -> jax.Array:
        """Return the random keys of all members as one array."""
        return keys[0]

    def take(self, tree: Any, member: int) -> Any:
        """Return the part of one member."""
        return tree

    def choose(self, which: np.ndarray, one: Any, other: Any) -> Any:
        """Return for each member the state from `one` or from `other`."""
        return one if which[0] else other

    def run_epoch(
        self,
        state: State,
        inputs: Inputs,
        key: jax.Array,
        epoch: int,
        rates: np.ndarray,
        live: np.ndarray,
        zero: Totals,
    ) -> tuple[State, list[Totals], list[Totals]]:
        """Run an epoch; return the new state, and totals of each member."""
        state, seen, held = run_epoch(
            self._program, self.loaders, state, inputs, key, epoch, rates[0], zero
        )
        return state, [seen], [held]


class JointPopulation(Population):
    """Several members with a leading axis, in one program per epoch."""

    def __init__(
        self, *arguments: Any, mapping: Literal["auto", "vmap", "loop"] = "auto"
    ):
        if mapping == "auto":
            mapping = "loop" if jax.default_backend() == "cpu" else "vmap"
        super().__init__(*arguments)
        kernel = self.net.kernel
        axes: Any = None, (0 if kernel.iterative else None), 0
        if self._first_hop is not None:
            # What is read from the features is the same for all members.
            axes = *axes, tuple(0 if name == "y" else None for name in kernel.psi)
        groups = tuple((loader.axes,) for loader in self._joint)
        key = None if self._one_key else 0
        self._joint_program = JointProgram(
            self._program, mapping, Inputs(*axes), groups, key
        )

    def _make_loaders(self, plan: Plan) -> None:
        graphs = [member.graph for member in self.members]
        _check_joint(graphs, plan)
        seeds = [member.seed for member in self.members]
        self._joint = (
            _JointLoader(graphs, seeds, "train", plan.training),
            _JointLoader(graphs, seeds, "validation", plan.validation),
        )
        self._one_key = len(set(seeds)) == 1

    def inputs(self, summaries: Sequence[np.ndarray | None]) -> Inputs:
        """Return what all batches of an iteration share, given label summaries."""
        known = [summary for summary in summaries if summary is not None]
        summary = np.stack(known) if known else None
        neighbours = None
        if self._first_hop is not None:
            axes: Any = self._joint_program.inputs.neighbours
            found = [self._first_hop.neighbours(each) for each in summaries]
            blocks = zip(axes, *found, strict=True)
            neighbours = tuple(
                b[0] if axis is None else np.stack(b) for axis, *b in blocks
            )
        return Inputs(self._features, summary, np.stack(self._omegas), neighbours)

    def start(self, params: Sequence[Params]) -> State:
        """Return the state of all members before the first step."""
        return _stack([first_state(self._program.objective, p) for p in params])

    def join_keys(self, keys: Sequence[jax.Array]) -> jax.Array:
        """Return one key for all if their seeds agree, so that bits are drawn once."""
        return keys[0] if self._one_key else jnp.stack(list(keys))

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
        program, epoch_key = self._joint_program, (key, np.uint32(epoch))
        state, *totals = joint_epoch(
            program, live, state, groups, inputs, epoch_key, rates, zero
        )
        seen, held = (
            [self.take(each, i) for i in range(len(self.members))]
            for each in jax.device_get(totals)
        )
        return state, seen, held


@jax.jit
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

    def __init__(
        self, graphs: Sequence[Graph], seeds: Sequence[int], part: str, settings: Any
    ):
        # No budget, so that loaders do not pad; batches are padded together below.
        streamed = dataclasses.replace(settings, memory_budget=0)
        self._loaders = [
            Loader(graph, np.flatnonzero(getattr(graph, part)), streamed, seed)
            for graph, seed in zip(graphs, seeds, strict=True)
        ]
        first = self._loaders[0]
        counts = [loader.num_batches for loader in self._loaders]
        if len(set(counts)) > 1:
            raise CannotJoinError(f"The {part} nodes make {counts} batches.")
        sizes = np.concatenate([loader.sizes for loader in self._loaders])
        layout = first.layouts[0]
        if any(loader.layouts != [layout] for loader in self._loaders):
            layout = Layout.over(sizes, settings.num_hops)
        needed = len(graphs) * first.room(layout)
        if needed > settings.memory_budget:
            raise CannotJoinError(
                f"The {part} batches need {needed} bytes, but memory_budget is "
                f"{settings.memory_budget}."
            )
        self._batches: Batch = jax.device_put(
            _stack([loader.stacked(layout) for loader in self._loaders])
        )
        self._alike = len(set(seeds)) == 1 and all(
            len(loader.members) == len(first.members)
            and all(map(np.array_equal, loader.members, first.members))
            for loader in self._loaders
        )

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


def _check_joint(graphs: Sequence[Graph], plan: Plan) -> None:
    """Raise `CannotJoinError` for members that no program can train together."""
    for graph in graphs[1:]:
        names = [
            n for n in _GRAPH if not _equal(getattr(graphs[0], n), getattr(graph, n))
        ]
        if names:
            raise CannotJoinError(f"The graphs differ in {' and '.join(names)}.")
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

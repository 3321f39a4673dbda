"""Batches of a graph in parts, each divided among the parts that own its roots.

Batches, their order and their random bits are those of a run on the whole graph. A part
is a lane of the steps (`runtime.sharding`): its share of a batch has its own roots, and
reads only what the part holds. Gradients of all shares are added.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from hopf_jax.batching import (
    Batch,
    Group,
    Layout,
    LoaderSettings,
    Local,
    Neighborhoods,
    Subgraph,
    deal_evenly,
    feature_placement,
    fill,
    num_values,
    pad,
    prefetch,
    stack,
)
from hopf_jax.parts.manifest import Part, Parts
from hopf_jax.runtime import StepSharding, gather_rows

_FEW = 2  # Minimal number of rows of a stack, as in `stack`.

# Nodes of a part -> their label summaries as an iteration reads them, [n, *].
Summaries = Callable[[np.ndarray], np.ndarray]


class Roots(NamedTuple):
    """The roots of one set in batches, identical in all processes.

    Attributes:
      batches: Ids in the whole graph, batch by batch.
      owners: The part of each root.
    """

    batches: list[np.ndarray]
    owners: list[np.ndarray]


def deal_roots(parts: Parts, name: str, how: LoaderSettings, seed: int) -> Roots:
    """Divide training or validation nodes into batches, as for the whole graph."""
    about = parts.roots(name)
    ids = about["ids"]

    def places(some: np.ndarray) -> np.ndarray:
        return np.searchsorted(ids, some)

    batches = deal_evenly(
        ids,
        lambda some: about["sizes"][places(some)],
        how.batch_size,
        np.random.default_rng([seed, 0]),
    )
    return Roots(batches, [about["owners"][places(batch)] for batch in batches])


class PartLoader:
    """The batches of some roots in the parts that this process holds.

    It has the interface of `Loader` that an epoch needs.

    Args:
      held: The parts of this process, one per lane.
      hoods: Extract subgraphs, one per part.
      roots: The roots of all parts.
      how: Settings for making and storing batches.
      seed: Seed for the order of batches.
      sharding: The devices, with one lane per part.
    """

    def __init__(
        self,
        held: Sequence[Part],
        hoods: Sequence[Neighborhoods],
        roots: Roots,
        how: LoaderSettings,
        seed: int,
        sharding: StepSharding,
    ):
        self.how, self.seed, self.sharding, self.held = how, seed, sharding, held
        self._kept: Any = None
        self._summaries: Sequence[Summaries] | None = None
        self._features = feature_placement(held[0].graph)
        self._hoods = hoods
        # Positions of the own roots of each batch, part by part.
        self.roots = [
            [
                np.searchsorted(part.ids[: part.num_own], batch[owners == part.number])
                for batch, owners in zip(*roots, strict=True)
            ]
            for part in held
        ]
        self._batches = roots.batches
        self.num_batches = len(roots.batches)
        most = np.array([self._most()], np.int32)
        self.layout = Layout.over(np.concatenate(gather_rows(most)), how.num_hops)
        one = jax.tree.leaves(self._padded(0, 0))
        width = 4 * held[0].graph.num_labels  # Label summaries, which are set later.
        self._bytes = sum(np.asarray(leaf).nbytes for leaf in one)
        self._bytes += width * self.layout.nodes[-1]
        each = sharding.lanes_per_device * max(_FEW, self.num_batches)
        self.resident = each * self._bytes <= how.memory_budget

    def _most(self) -> np.ndarray:
        """Return the maximal sizes of a share of a batch, [2K + 2]."""
        most = np.zeros(2 * self.how.num_hops + 2, np.int64)
        for lane, batches in enumerate(self.roots):
            for number in range(len(batches)):
                found = self._subgraph(lane, number)
                values = num_values(self.held[lane].graph, found.nodes)
                most = np.maximum(most, (*found.size, values))
        return most

    def read(self, summaries: Sequence[Summaries] | None) -> None:
        """Set the label summaries that batches read in the next iteration.

        Args:
          summaries: Functions, one per part, that return label summaries of nodes; None
            if the kernel reads none.
        """
        self._summaries, self._kept = summaries, None
        if self.resident:
            every = [range(self.num_batches)] * len(self.held)
            self._kept = self._stacked(every)

    def groups(self, epoch: int) -> tuple[Group, ...]:
        """Return all batches of an epoch if they are resident."""
        batches, numbers = self._kept
        return (self._wide(batches, numbers, self._order(epoch)),)

    def parts(self, epoch: int) -> Iterator[tuple[Group, ...]]:
        """Yield the input of each program call: all batches if resident, else one."""
        if self.resident:
            yield self.groups(epoch)
            return

        def prepare() -> Iterator[Group]:
            for number in self._order(epoch).tolist():
                some = self._stacked([[number]] * len(self.held))
                yield self._wide(some[0], some[1], np.zeros(1, np.int32))

        for group in prefetch(prepare()):
            yield (group,)

    def _order(self, epoch: int) -> np.ndarray:
        if not self.how.shuffle:
            return np.arange(self.num_batches, dtype=np.int32)
        # As in a loader with a single layout.
        rng = np.random.default_rng([self.seed, 1, epoch, 0])
        return rng.permutation(self.num_batches).astype(np.int32)

    def _subgraph(self, lane: int, number: int) -> Subgraph:
        return self._hoods[lane].subgraph(self.roots[lane][number])

    def _padded(self, lane: int, number: int) -> Batch:
        part, found = self.held[lane], self._subgraph(lane, number)
        batch = pad(
            part.graph,
            found,
            self.layout,
            features=self._features,
            transposed=self.how.transposed,
        )
        count, summary = self.layout.nodes[-1], None
        if self._summaries is not None:
            summary = fill(self._summaries[lane](found.nodes), count, 0)
        train = fill(part.graph.train[found.nodes], count, False)
        # Ids in the whole graph, by which random bits are drawn.
        mine = part.ids[found.nodes]
        root = np.isin(mine, self._batches[number])
        ids = fill(mine.astype(np.int32), count, 0)
        nodes = batch.graph.nodes | {"id": ids}
        return batch._replace(
            graph=batch.graph._replace(nodes=nodes),
            local=Local(summary, train, fill(root, count, False)),
        )

    def _stacked(self, lanes: Sequence[Sequence[int]]) -> tuple[Batch, Any]:
        """Return stacked batches of the lanes of this process, and their numbers."""
        batches: list[Batch] = []
        numbers = []
        rows = max(_FEW, len(lanes[0]))
        for lane, chosen in enumerate(lanes):
            own = [self._padded(lane, number) for number in chosen]
            batches += own + own[-1:] * (rows - len(own))
            numbers.append(fill(np.array(chosen, np.int32), rows, 0))
        return self.sharding.shard((stack(batches), np.concatenate(numbers)))

    def _wide(self, batches: Batch, numbers: Any, order: np.ndarray) -> Group:
        """Return a group of all lanes, which take their batches in one order."""
        each = self.sharding.lanes_per_device
        rows = numbers.shape[0] // self.sharding.lanes
        places = np.zeros((len(self.held), rows), np.int32)
        for lane in range(len(self.held)):
            places[lane, : len(order)] = order
            places[lane] += lane % each * rows
        return Group(
            batches,
            numbers,
            self.sharding.shard(places.ravel()),
            np.array(len(order), np.int32),
            np.array(each, np.int32),
        )

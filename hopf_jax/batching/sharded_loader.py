"""A loader for steps of several subgraphs, one per lane."""

from collections.abc import Iterator

import jax
import numpy as np

from hopf_jax.batching.loader import Group, Loader, LoaderSettings, prefetch
from hopf_jax.batching.padding import Batch, Layout, fill, stack
from hopf_jax.batching.sparse import Array
from hopf_jax.graph import Graph
from hopf_jax.runtime import OneDevice, StepSharding, check_memory, share_out


class ShardedLoader(Loader):
    """A `Loader` whose steps have one subgraph per lane.

    A batch stays in its lane, and each epoch shuffles every lane separately: batches
    never move between devices, and a process extracts only those of its own lanes.
    Lanes that run out before others get empty batches, of weight 0. The stacks of a
    `Group` hold lane after lane, and its order counts within a device.
    """

    sharding: StepSharding

    def groups(self, epoch: int) -> tuple[Group, ...]:
        """Return all batches of an epoch, where they are resident."""
        return tuple(
            self._wide(*kept, self._orders(epoch, g))
            for g, kept in enumerate(self._kept)
        )

    def stream(self, epoch: int) -> Iterator[Group]:
        """Yield the same batches in the same order, one step at a time, prefetched."""
        layouts = self.layouts
        if self.how.fanouts is not None and self.how.resample:
            # All lanes of a step need one layout, before the step is drawn.
            sizes = self._measure(epoch)
            layouts = [
                self._room(layout, sizes[members])
                for layout, members in zip(layouts, self.members, strict=True)
            ]

        def prepare() -> Iterator[Group]:
            for g, layout in enumerate(layouts):
                lanes, orders = self._lanes(self.members[g]), self._orders(epoch, g)
                for step in range(max(map(len, lanes))):
                    now = [
                        members[order[step : step + 1]]
                        for members, order in zip(lanes, orders, strict=True)
                    ]
                    first = [np.arange(len(members)) for members in now]
                    yield self._wide(*self._stacked(now, epoch, layout), first)

        return prefetch(prepare())

    def _lanes(self, members: np.ndarray) -> list[np.ndarray]:
        """Return the batches of each lane."""
        return [members[n :: self.sharding.lanes] for n in range(self.sharding.lanes)]

    def _orders(self, epoch: int, group: int) -> list[np.ndarray]:
        """Return the order in which each lane takes its batches."""
        lanes = self._lanes(self.members[group])
        return [self._order(epoch, group, len(m), n) for n, m in enumerate(lanes)]

    def _measure(self, epoch: int) -> np.ndarray:
        return share_out(len(self.roots), lambda own: self._sizes(own, epoch))

    def _arrange(self) -> None:
        # A step has one layout: more layouts may mean more steps, with empty lanes.
        count, lanes = len(self.roots), self.sharding.lanes
        if sum(-(-len(m) // lanes) for m in self.members) > -(-count // lanes):
            self.layouts = [Layout.over(self.sizes, self.how.num_hops)]
            self.members = [np.arange(count, dtype=np.int32)]

    def _rows(self, count: int) -> int:
        return max(2, -(-count // self.sharding.lanes)) * self.sharding.lanes_per_device

    def _keep(self, members: np.ndarray, layout: Layout) -> tuple[Batch, Array]:
        return self._stacked(self._lanes(members), 0, layout)

    def _stacked(
        self, lanes: list[np.ndarray], epoch: int, layout: Layout
    ) -> tuple[Batch, Array]:
        """Return the batches of every lane, two rows or more, and their numbers."""
        rows = max(2, *map(len, lanes))
        first = next(members[0] for members in lanes if len(members))
        own = [lanes[n] for n in self.sharding.own_lanes]
        shown = next((members[0] for members in own if len(members)), first)
        one = jax.tree.leaves(self._padded(shown, epoch, layout))
        check_memory(
            rows * len(own) * sum(np.asarray(x).nbytes for x in one),
            f"Steps of {len(lanes):,} subgraphs",
            "Lower batches_per_step or batch_size.",
        )
        batches: list[Batch] = []
        numbers = []
        for members in own:
            full = [self._padded(i, epoch, layout) for i in members]
            some = full[-1] if full else self._padded(first, epoch, layout)
            empty = some._replace(mask=np.zeros_like(some.mask))
            batches += [*full, *[empty] * (rows - len(full))]
            numbers.append(fill(members, rows, 0))
        return self.sharding.shard((stack(batches), np.concatenate(numbers)))

    def _wide(self, batches: Batch, numbers: Array, orders: list[np.ndarray]) -> Group:
        """Return a group of all lanes, each in its order, empty batches last."""
        each = self.sharding.lanes_per_device
        rows = numbers.shape[0] // self.sharding.lanes
        places = np.tile(np.arange(rows, dtype=np.int32), (self.sharding.lanes, 1))
        for n, order in enumerate(orders):
            places[n, : len(order)] = order
            places[n] += n % each * rows
        return Group(
            batches,
            numbers,
            self.sharding.shard(places[self.sharding.own_lanes].ravel()),
            np.array(max(map(len, orders)), np.int32),
            np.array(each, np.int32),
        )


def make_loader(
    graph: Graph,
    roots: np.ndarray,
    how: LoaderSettings,
    seed: int,
    sharding: OneDevice | StepSharding,
    views: np.ndarray | None = None,
) -> Loader:
    """Return the loader of some roots for steps of one or several subgraphs."""
    kind = ShardedLoader if isinstance(sharding, StepSharding) else Loader
    return kind(graph, roots, how, seed, sharding, views)

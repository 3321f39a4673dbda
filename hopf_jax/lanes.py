"""The batches of a run whose steps have several subgraphs, one of each lane."""

from collections.abc import Iterator

import numpy as np

from hopf_jax import processes
from hopf_jax.batching import Batch, Layout, fill, stack
from hopf_jax.feeding import Feed, FeedSettings, Group, prefetch
from hopf_jax.graph import Graph
from hopf_jax.sparse import Array
from hopf_jax.spreading import Spread


class LaneFeed(Feed):
    """A `Feed` whose steps are of one subgraph a lane.

    A batch stays in its lane, and each epoch shuffles the lanes one by one, so batches
    never move between devices, and a process extracts those of its own lanes only.
    Lanes that run out before the others get empty batches, of weight 0. The stacks of a
    `Group` hold lane after lane, and its order counts within a device.
    """

    spread: Spread

    def __init__(
        self,
        graph: Graph,
        roots: np.ndarray,
        how: FeedSettings,
        seed: int,
        spread: Spread,
    ):
        self.spread = spread
        super().__init__(graph, roots, how, seed)

    def groups(self, epoch: int) -> tuple[Group, ...]:
        """All batches of an epoch at once, where they are resident."""
        return tuple(
            self._wide(*kept, self._orders(epoch, g))
            for g, kept in enumerate(self._kept)
        )

    def stream(self, epoch: int) -> Iterator[Group]:
        """The same batches in the same order, a step at a time, prepared ahead."""
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
        """Batches dealt to the lanes."""
        return [members[n :: self.spread.lanes] for n in range(self.spread.lanes)]

    def _orders(self, epoch: int, group: int) -> list[np.ndarray]:
        """In which order each lane takes its batches."""
        lanes = self._lanes(self.members[group])
        return [self._order(epoch, group, len(m), n) for n, m in enumerate(lanes)]

    def _measure(self, epoch: int) -> np.ndarray:
        count = len(self.roots)
        return processes.share_out(count, lambda own: self._sizes(own, epoch))

    def _arrange(self) -> None:
        # A step is of one layout: more layouts may mean more steps, with empty lanes.
        count, lanes = len(self.roots), self.spread.lanes
        if sum(-(-len(m) // lanes) for m in self.members) > -(-count // lanes):
            self.layouts = [Layout.over(self.sizes, self.how.num_hops)]
            self.members = [np.arange(count, dtype=np.int32)]

    def _rows(self, count: int) -> int:
        return max(2, -(-count // self.spread.lanes)) * self.spread.lanes_each

    def _keep(self, members: np.ndarray, layout: Layout) -> tuple[Batch, Array]:
        return self._stacked(self._lanes(members), 0, layout)

    def _stacked(
        self, lanes: list[np.ndarray], epoch: int, layout: Layout
    ) -> tuple[Batch, Array]:
        """The batches of every lane, of two rows or more as in `stack`; numbers."""
        rows = max(2, *map(len, lanes))
        first = next(members[0] for members in lanes if len(members))
        batches: list[Batch] = []
        numbers = []
        for members in (lanes[n] for n in self.spread.own_lanes):
            own = [self._padded(i, epoch, layout) for i in members]
            some = own[-1] if own else self._padded(first, epoch, layout)
            empty = some._replace(mask=np.zeros_like(some.mask))
            batches += [*own, *[empty] * (rows - len(own))]
            numbers.append(fill(members, rows, 0))
        return self.spread.shard((stack(batches), np.concatenate(numbers)))

    def _wide(self, batches: Batch, numbers: Array, orders: list[np.ndarray]) -> Group:
        """A group of all lanes, each in this order, empty batches last."""
        each = self.spread.lanes_each
        rows = numbers.shape[0] // self.spread.lanes
        places = np.tile(np.arange(rows, dtype=np.int32), (self.spread.lanes, 1))
        for n, order in enumerate(orders):
            places[n, : len(order)] = order
            places[n] += n % each * rows
        return Group(
            batches,
            numbers,
            self.spread.shard(places[self.spread.own_lanes].ravel()),
            np.array(max(map(len, orders)), np.int32),
            np.array(each, np.int32),
        )

"""Loaders: the batches of a run, resident on the device or streamed to it."""

import dataclasses
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from hopf_jax.batching.grouping import components, deal, group_by_size, waste_of
from hopf_jax.batching.padding import (
    Batch,
    Layout,
    feature_placement,
    fill,
    num_values,
    pad,
    stack,
)
from hopf_jax.batching.sparse import Array
from hopf_jax.batching.subgraphs import Neighborhoods, Subgraph
from hopf_jax.graph import Graph
from hopf_jax.runtime import OneDevice, StepSharding

# With few batches a run is over soon after compilation: a layout that other splits of
# the graph share is then worth more than a tight one.
_FEW_BATCHES = 32
_SHARED_WASTE = 0.25
_SMALL = 1 << 17  # Nodes, edges and values: below this, padding costs next to nothing.


class Group(NamedTuple):
    """Stacked batches of one layout, and the order in which to take them."""

    batches: Batch  # Every leaf has a leading axis [B], with B at least 2.
    numbers: Array  # [B], the number of each batch, which seeds its random bits.
    order: Array  # [B]
    trips: Array  # Number of steps; an array, so that one program serves any number.
    lanes: Array | None = None  # Lanes per device, where a step has several.


@dataclasses.dataclass(frozen=True)
class LoaderSettings:
    """How batches are made and stored."""

    num_hops: int
    batch_size: int
    fanouts: tuple[int, ...] | None = None
    memory_budget: int = 0
    resample: bool = True  # Sample neighbours anew in every epoch.
    shuffle: bool = True
    transposed: bool = True  # Add the transposed edges, which the gradient needs.
    # Deal and order batches whatever their sizes and components, which a process that
    # holds a part of the graph does not know.
    blind: bool = False


class Loader:
    """The batches of some roots, epoch by epoch, determined by (seed, epoch, step).

    Roots are dealt once into batches of equal size. Where the batches fit the memory
    budget and no neighbours are sampled, they are padded once and stay on the device;
    otherwise a thread prepares one batch while another is in use. Results are the same
    either way.

    Args:
      graph: The whole graph.
      roots: Their ids.
      how: How batches are made and stored.
      seed: Seed of batches, their order, and samples of neighbours.
      sharding: The devices that share the batches of a step.
      views: Which of several label summaries each root reads, [roots]; roots of
        different views are dealt into different batches. None if there is one.
    """

    def __init__(
        self,
        graph: Graph,
        roots: np.ndarray,
        how: LoaderSettings,
        seed: int,
        sharding: OneDevice | StepSharding = OneDevice(),  # noqa: B008
        views: np.ndarray | None = None,
    ):
        self.graph, self.how, self.seed, self.sharding = graph, how, seed, sharding
        self._views: list[int | None] = []
        self.features = feature_placement(graph)
        self._hoods = Neighborhoods(graph, how.num_hops, how.fanouts)
        several = len(roots) > how.batch_size and not how.blind
        self._apart = components(graph) if several else None
        self.roots = self._deal_views(roots, views)
        self.sizes = sizes = self._measure(0)
        self.layouts, self.members = group_by_size(sizes, how.num_hops)
        if how.blind:
            self.layouts = [Layout.over(sizes, how.num_hops)]
            self.members = [np.arange(len(sizes), dtype=np.int32)]
        elif len(self.roots) <= _FEW_BATCHES and views is None:
            shared = self._shared_layout(len(roots))
            waste = waste_of(sizes, [shared], [np.arange(len(sizes))], how.num_hops)
            small = sum((*shared.nodes, *shared.edges, shared.values)) < _SMALL
            cheap = waste <= (1 if small else _SHARED_WASTE)
            if cheap and all(shared.holds(size) for size in sizes):
                self.layouts = [shared]
                self.members = [np.arange(len(sizes), dtype=np.int32)]
        self._arrange()
        drawn = how.fanouts is not None and how.resample
        groups = list(zip(self.members, self.layouts, strict=True))
        self.nbytes = sum(self._rows(len(m)) * self._bytes(one) for m, one in groups)
        self.resident = not drawn and self.nbytes <= how.memory_budget
        self._kept = [self._keep(*group) for group in groups if self.resident]

    @property
    def num_batches(self) -> int:
        """Number of batches per epoch."""
        return len(self.roots)

    def groups(self, epoch: int) -> tuple[Group, ...]:
        """Return all batches of an epoch, where they are resident."""
        return tuple(
            _group(batches, members, self._order(epoch, g, len(members)))
            for g, (batches, members) in enumerate(self._kept)
        )

    def parts(self, epoch: int) -> Iterator[tuple[Group, ...]]:
        """Yield what each program call gets: all batches if resident, else one each."""
        if self.resident:
            yield self.groups(epoch)
        else:
            for group in self.stream(epoch):
                yield (group,)

    def stream(self, epoch: int) -> Iterator[Group]:
        """Yield the batches of `groups` in the same order, one by one, prefetched."""
        plan = [
            (members[place], layout)
            for g, (layout, members) in enumerate(
                zip(self.layouts, self.members, strict=True)
            )
            for place in self._order(epoch, g, len(members))
        ]

        def prepare() -> Iterator[Group]:
            for number, layout in plan:
                batch = stack([self._padded(number, epoch, layout)])
                at = np.array([number], np.int32)
                yield _group(jax.device_put(batch), at, np.zeros(1, np.int32))

        return prefetch(prepare())

    def order(self, epoch: int) -> np.ndarray:
        """Return the numbers of the batches of an epoch in their order, [B]."""
        orders = (self._order(epoch, g, len(m)) for g, m in enumerate(self.members))
        return np.concatenate([m[o] for m, o in zip(self.members, orders, strict=True)])

    def stacked(self, layout: Layout) -> Batch:
        """Return all batches by number, in a layout that fits them, on the host."""
        return stack([self._padded(i, 0, layout) for i in range(self.num_batches)])

    def room(self, layout: Layout) -> int:
        """Return the number of bytes of all batches in this layout."""
        return self._rows(self.num_batches) * self._bytes(layout)

    def _shared_layout(self, num_roots: int) -> Layout:
        """Return a layout for any roots of this number."""
        rng, size = np.random.default_rng(0), self.how.batch_size
        sizes: list[tuple[int, ...]] = []
        while len(sizes) < _FEW_BATCHES:
            roots = rng.choice(self.graph.num_nodes, num_roots, replace=False)
            for part in deal(self.graph, roots, size, rng, self._apart):
                sizes.append(self._size(self._hoods.subgraph(part, (0, len(sizes)))))
        # Some room to spare, so that most splits fit; the number of roots is fixed.
        room = np.array(sizes)
        room[:, 1:] = np.ceil(1.03 * room[:, 1:])
        return Layout.over(room, self.how.num_hops)

    def _deal_views(
        self, roots: np.ndarray, views: np.ndarray | None
    ) -> list[np.ndarray]:
        """Deal the roots of each view, and note the view of each batch."""
        dealt: list[np.ndarray] = []
        for view in [None] if views is None else np.unique(views).tolist():
            dealt += self._deal(roots if view is None else roots[views == view])
            self._views += [view] * (len(dealt) - len(self._views))
        return dealt

    def _deal(self, roots: np.ndarray) -> list[np.ndarray]:
        rng = np.random.default_rng([self.seed, 0])
        return deal(self.graph, roots, self.how.batch_size, rng, self._apart)

    def _arrange(self) -> None:
        """Adjust layouts and members: a hook for subclasses."""

    def _measure(self, epoch: int) -> np.ndarray:
        """Return the sizes of all batches of an epoch, [B, 2K + 2]."""
        return self._sizes(range(len(self.roots)), epoch)

    def _sizes(self, numbers: Sequence[int], epoch: int) -> np.ndarray:
        sizes = [self._size(self._subgraph(i, epoch)) for i in numbers]
        return np.array(sizes, np.int64).reshape(len(sizes), 2 * self.how.num_hops + 2)

    def _rows(self, count: int) -> int:
        """Return the number of rows that `count` batches take on a device."""
        return max(2, count)

    def _keep(self, members: np.ndarray, layout: Layout) -> tuple[Batch, Array]:
        """Return batches on the device, and their numbers."""
        batches = stack([self._padded(i, 0, layout) for i in members])
        return jax.device_put(batches), members

    def _order(self, epoch: int, group: int, count: int, *lane: int) -> np.ndarray:
        if not self.how.shuffle:
            return np.arange(count, dtype=np.int32)
        rng = np.random.default_rng([self.seed, 1, epoch, group, *lane])
        return rng.permutation(count).astype(np.int32)

    def _subgraph(self, number: int, epoch: int) -> Subgraph:
        epoch = epoch if self.how.resample else 0
        return self._hoods.subgraph(self.roots[number], (self.seed, 2, epoch, number))

    def _size(self, subgraph: Subgraph) -> tuple[int, ...]:
        return (*subgraph.size, num_values(self.graph, subgraph.nodes))

    def _padded(self, number: int, epoch: int, layout: Layout) -> Batch:
        subgraph = self._subgraph(number, epoch)
        layout = self._room(layout, np.array([self._size(subgraph)]))
        how, transposed = self.features, self.how.transposed
        return pad(
            self.graph,
            subgraph,
            layout,
            features=how,
            transposed=transposed,
            view=self._views[number],
        )

    def _room(self, layout: Layout, sizes: np.ndarray) -> Layout:
        """Return the layout, or a larger one where a sample does not fit."""
        if all(layout.holds(size) for size in sizes):
            return layout
        most = np.maximum(sizes.max(axis=0), self.sizes.max(axis=0))
        return Layout.over(most[None], self.how.num_hops)

    def _bytes(self, layout: Layout) -> int:
        words = 3 * layout.nodes[-1] + 3 * sum(layout.edges[-1:])
        words += layout.nodes[0] * (1 + self.graph.num_labels) + sum(layout.nodes)
        if self.how.transposed:
            words += 2 * sum(layout.edges) + sum(layout.nodes)
        if self.features == "dense":
            words += layout.nodes[-1] * self.graph.num_features
        return 4 * (words + (4 if self.how.transposed else 2) * layout.values)


def _group(batches: Batch, numbers: Array, order: np.ndarray) -> Group:
    """Return a group whose axes [B] are at least two, as `stack` makes them."""
    room = max(2, len(order))
    trips = np.array(len(order), np.int32)
    numbers = fill(np.asarray(numbers), room, 0)
    return Group(batches, numbers, fill(order, room, 0), trips)


def prefetch(items: Iterator[Group], ahead: int = 1) -> Iterator[Group]:
    """Yield items that a thread makes, up to `ahead` of the reader.

    An error in the thread is raised here; a reader that stops early ends the thread.
    """
    ready: queue.Queue = queue.Queue(maxsize=ahead)
    stopped = threading.Event()

    def put(item: object) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(("item", item)):
                    return
            put(("end", None))
        except BaseException as error:
            put(("error", error))

    thread = threading.Thread(target=work, name="hopf-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            kind, value = ready.get()
            if kind == "end":
                return
            if kind == "error":
                raise value
            yield value
    finally:
        stopped.set()
        thread.join()

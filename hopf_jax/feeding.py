"""The batches of a run: grouped in few layouts, resident or streamed, same numbers."""

import dataclasses
import queue
import threading
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
import scipy.sparse as sp

from hopf_jax.batching import (
    Batch,
    Layout,
    Neighborhoods,
    Subgraph,
    num_values,
    pad,
    stack,
)
from hopf_jax.graph import Graph
from hopf_jax.sparse import Array

_MOST_GROUPS = 3
_WASTE = 0.15  # Padding that is worth another compilation.


class Group(NamedTuple):
    """Batches of one layout, stacked, and the order to take them in."""

    batches: Batch  # every leaf with a leading axis [B]
    numbers: Array  # [B], which batch of the epoch each is: its random stream
    order: Array  # [B]
    trips: Array  # B, as an array: one program whatever the number of batches


@dataclasses.dataclass(frozen=True)
class FeedSettings:
    """How batches are cut and kept."""

    num_hops: int
    batch_size: int
    fanouts: tuple[int, ...] | None = None
    memory_budget: int = 0
    resample: bool = True  # draw neighbours anew every epoch
    shuffle: bool = True
    transposed: bool = True  # hold what the gradient needs


class Feed:
    """The batches of some roots, epoch by epoch, deterministic by (seed, epoch, step).

    The roots are dealt out once, in batches of equal size. Where they fit the memory
    budget and no neighbours are drawn, they are padded once and stay on the device;
    otherwise a thread prepares one batch while another is in use. The numbers are the
    same either way.
    """

    def __init__(self, graph: Graph, roots: np.ndarray, how: FeedSettings, seed: int):
        self.graph, self.how, self.seed = graph, how, seed
        self._hoods = Neighborhoods(graph, how.num_hops, how.fanouts)
        self.roots = deal(roots, how.batch_size, seed if how.shuffle else None)
        self.features = "sparse" if sp.issparse(graph.features) else "resident"
        if isinstance(graph.features, np.memmap):
            self.features = "dense"
        sizes = np.array([self._size(self._subgraph(i, 0)) for i in self._all()])
        self.sizes = sizes
        self.layouts, self.members = group(sizes, how.num_hops)
        drawn = how.fanouts is not None and how.resample
        needed = sum(
            len(m) * self._bytes(layout)
            for layout, m in zip(self.layouts, self.members, strict=True)
        )
        self.nbytes = needed
        self.resident = not drawn and needed <= how.memory_budget
        self._kept: list[tuple[Batch, np.ndarray]] = []
        if self.resident:
            for layout, members in zip(self.layouts, self.members, strict=True):
                batches = stack([self._padded(i, 0, layout) for i in members])
                self._kept.append((jax.device_put(batches), members))

    @property
    def num_batches(self) -> int:
        """Batches of an epoch."""
        return len(self.roots)

    def groups(self, epoch: int) -> tuple[Group, ...]:
        """All batches of an epoch at once, where they are resident."""
        return tuple(
            Group(
                batches,
                members,
                self._order(epoch, g, len(members)),
                _scalar(len(members)),
            )
            for g, (batches, members) in enumerate(self._kept)
        )

    def stream(self, epoch: int) -> Iterator[Group]:
        """The same batches in the same order, one at a time, prepared ahead."""
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
                first = np.zeros(1, np.int32)
                yield Group(jax.device_put(batch), at, first, _scalar(1))

        return prefetch(prepare())

    def _all(self) -> range:
        return range(len(self.roots))

    def _order(self, epoch: int, group: int, count: int) -> np.ndarray:
        if not self.how.shuffle:
            return np.arange(count, dtype=np.int32)
        rng = np.random.default_rng([self.seed, 1, epoch, group])
        return rng.permutation(count).astype(np.int32)

    def _subgraph(self, number: int, epoch: int) -> Subgraph:
        epoch = epoch if self.how.resample else 0
        return self._hoods.subgraph(self.roots[number], (self.seed, 2, epoch, number))

    def _size(self, subgraph: Subgraph) -> tuple[int, ...]:
        return (*subgraph.size, num_values(self.graph, subgraph.nodes))

    def _padded(self, number: int, epoch: int, layout: Layout) -> Batch:
        subgraph = self._subgraph(number, epoch)
        size = self._size(subgraph)
        if not layout.holds(size):  # A larger draw than the first epoch's.
            layout = Layout.over(
                np.maximum([size], self.sizes.max(axis=0)), self.how.num_hops
            )
        return pad(
            self.graph,
            subgraph,
            layout,
            features=self.features,
            transposed=self.how.transposed,
        )

    def _bytes(self, layout: Layout) -> int:
        words = 3 * layout.nodes[-1] + 3 * sum(layout.edges[-1:])
        words += layout.nodes[0] * (1 + self.graph.num_labels)
        words += sum(layout.nodes)
        if self.how.transposed:
            words += 2 * sum(layout.edges) + sum(layout.nodes)
        if self.features == "dense":
            words += layout.nodes[-1] * self.graph.num_features
        return 4 * (words + (4 if self.how.transposed else 2) * layout.values)


def _scalar(count: int) -> np.ndarray:
    return np.array(count, np.int32)


def deal(roots: np.ndarray, batch_size: int, seed: int | None) -> list[np.ndarray]:
    """Roots in as few batches as the size allows, of equal size, give or take one."""
    if seed is not None:
        roots = np.random.default_rng([seed, 0]).permutation(roots)
    return np.array_split(roots, max(1, -(-len(roots) // batch_size)))


def group(sizes: np.ndarray, num_hops: int) -> tuple[list[Layout], list[np.ndarray]]:
    """Few layouts for subgraphs of these sizes, and which subgraphs go into each.

    One layout, unless its padding would waste more than a sixth of the work; then the
    subgraphs are cut by size into two or three.
    """
    by_size = np.argsort(sizes.sum(axis=1), kind="stable")
    for count in range(1, _MOST_GROUPS + 1):
        cuts = _best_cuts(sizes[by_size], count, num_hops)
        members = [np.sort(m) for m in np.split(by_size, cuts) if len(m)]
        layouts = [Layout.over(sizes[m], num_hops) for m in members]
        if _cost(sizes[by_size], cuts, num_hops) <= (1 + _WASTE) * sizes.sum():
            break
    return layouts, [m.astype(np.int32) for m in members]


def _best_cuts(sizes: np.ndarray, count: int, num_hops: int) -> tuple[int, ...]:
    places = np.unique(np.linspace(0, len(sizes), 17).astype(int)[1:-1])
    options: list[tuple[int, ...]] = [()]
    for _ in range(count - 1):
        options = [(*o, int(p)) for o in options for p in places if not o or p > o[-1]]
    return min(options or [()], key=lambda cuts: _cost(sizes, cuts, num_hops))


def _cost(sizes: np.ndarray, cuts: tuple[int, ...], num_hops: int) -> int:
    total = 0
    for part in np.split(sizes, list(cuts)):
        if len(part):
            layout = Layout.over(part, num_hops)
            total += len(part) * (sum(layout.nodes + layout.edges) + layout.values)
    return total


def prefetch(items: Iterator[Group], ahead: int = 1) -> Iterator[Group]:
    """The items, made by a thread that stays `ahead` of the reader.

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

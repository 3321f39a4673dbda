"""The batches of a run: grouped in few layouts, resident or streamed, same numbers."""

import dataclasses
import itertools
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from hopf_jax.batching import (
    Batch,
    Layout,
    Neighborhoods,
    Subgraph,
    fill,
    num_values,
    pad,
    ranges,
    stack,
)
from hopf_jax.graph import Graph
from hopf_jax.sparse import Array
from hopf_jax.spreading import Spread

_MOST_GROUPS = 3
_WASTE = 0.15  # Padding that is worth another compilation.
_MOST_WASTE = 0.25  # And that is worth a search in another order.
# With so few batches a run is over soon after it is compiled: then a layout that other
# splits of the graph share is worth more than a tight one.
_FEW_BATCHES = 32
_SHARED_WASTE = 0.25
_SMALL = 1 << 17  # Nodes, edges and values: below this, padding costs next to nothing.


class Group(NamedTuple):
    """Batches of one layout, stacked, and the order to take them in."""

    batches: Batch  # every leaf with a leading axis [B], B being 2 or more
    numbers: Array  # [B], which batch of the epoch each is: its random stream
    order: Array  # [B]
    trips: Array  # how many there are, as data: one program whatever their number
    lanes: Array | None = None  # of a device, where a step has several (`lanes.py`)


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

    spread: Spread | None = None  # Where a step has several subgraphs (`lanes.py`).

    def __init__(self, graph: Graph, roots: np.ndarray, how: FeedSettings, seed: int):
        self.graph, self.how, self.seed = graph, how, seed
        self._hoods = Neighborhoods(graph, how.num_hops, how.fanouts)
        self._apart = components(graph) if len(roots) > how.batch_size else None
        self.roots = self._deal(roots)
        self.features = "sparse" if sp.issparse(graph.features) else "resident"
        if isinstance(graph.features, np.memmap):
            self.features = "dense"
        self.sizes = sizes = self._measure(0)
        self.layouts, self.members = group(sizes, how.num_hops)
        if len(self.roots) <= _FEW_BATCHES:
            shared = self._shared_layout(len(roots))
            waste = _waste(sizes, [shared], [np.arange(len(sizes))], how.num_hops)
            small = sum((*shared.nodes, *shared.edges, shared.values)) < _SMALL
            cheap = waste <= (1 if small else _SHARED_WASTE)
            if cheap and all(shared.holds(size) for size in sizes):
                self.layouts, self.members = (
                    [shared],
                    [np.arange(len(sizes), dtype=np.int32)],
                )
        self._arrange()
        drawn = how.fanouts is not None and how.resample
        needed = sum(
            self._rows(len(m)) * self._bytes(layout)
            for layout, m in zip(self.layouts, self.members, strict=True)
        )
        self.nbytes = needed
        self.resident = not drawn and needed <= how.memory_budget
        self._kept: list[tuple[Batch, Array]] = []
        if self.resident:
            for layout, members in zip(self.layouts, self.members, strict=True):
                self._kept.append(self._keep(members, layout))

    @property
    def num_batches(self) -> int:
        """Batches of an epoch."""
        return len(self.roots)

    def groups(self, epoch: int) -> tuple[Group, ...]:
        """All batches of an epoch at once, where they are resident."""
        return tuple(
            _group(batches, members, self._order(epoch, g, len(members)))
            for g, (batches, members) in enumerate(self._kept)
        )

    def parts(self, epoch: int) -> Iterator[tuple[Group, ...]]:
        """The batches of an epoch by program call: all where resident, else each."""
        if self.resident:
            yield self.groups(epoch)
        else:
            for group in self.stream(epoch):
                yield (group,)

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
                yield _group(jax.device_put(batch), at, np.zeros(1, np.int32))

        return prefetch(prepare())

    def order(self, epoch: int) -> np.ndarray:
        """The numbers of an epoch's batches, in the order they are taken, [B]."""
        orders = (self._order(epoch, g, len(m)) for g, m in enumerate(self.members))
        return np.concatenate([m[o] for m, o in zip(self.members, orders, strict=True)])

    def stacked(self, layout: Layout) -> Batch:
        """All batches by number, in a layout that holds them, on the host."""
        return stack([self._padded(i, 0, layout) for i in range(self.num_batches)])

    def room(self, layout: Layout) -> int:
        """Bytes of all batches in this layout."""
        return self._rows(self.num_batches) * self._bytes(layout)

    def _shared_layout(self, num_roots: int) -> Layout:
        """The layout of so many roots of this graph, whichever they are."""
        rng, size = np.random.default_rng(0), self.how.batch_size
        sizes: list[tuple[int, ...]] = []
        while len(sizes) < _FEW_BATCHES:
            roots = rng.choice(self.graph.num_nodes, num_roots, replace=False)
            for part in deal(self.graph, roots, size, rng, self._apart):
                sizes.append(self._size(self._hoods.subgraph(part, (0, len(sizes)))))
        # A little more than was seen, so that most splits fit; roots are as many.
        room = np.array(sizes)
        room[:, 1:] = np.ceil(1.03 * room[:, 1:])
        return Layout.over(room, self.how.num_hops)

    def _deal(self, roots: np.ndarray) -> list[np.ndarray]:
        rng = np.random.default_rng([self.seed, 0])
        return deal(self.graph, roots, self.how.batch_size, rng, self._apart)

    def _arrange(self) -> None:
        """A last word on layouts and members."""

    def _measure(self, epoch: int) -> np.ndarray:
        """Sizes of all batches of an epoch, [B, 2K + 2]."""
        return self._sizes(range(len(self.roots)), epoch)

    def _sizes(self, numbers: Sequence[int], epoch: int) -> np.ndarray:
        sizes = [self._size(self._subgraph(i, epoch)) for i in numbers]
        return np.array(sizes, np.int64).reshape(len(sizes), 2 * self.how.num_hops + 2)

    def _rows(self, count: int) -> int:
        """Rows of a device's stack of so many batches."""
        return max(2, count)

    def _keep(self, members: np.ndarray, layout: Layout) -> tuple[Batch, Array]:
        """Batches on the device, and their numbers."""
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
        return pad(
            self.graph,
            subgraph,
            layout,
            features=self.features,
            transposed=self.how.transposed,
        )

    def _room(self, layout: Layout, sizes: np.ndarray) -> Layout:
        """The layout, or a larger one where a draw is larger than the first epoch's."""
        if all(layout.holds(size) for size in sizes):
            return layout
        most = np.maximum(sizes.max(axis=0), self.sizes.max(axis=0))
        return Layout.over(most[None], self.how.num_hops)

    def _bytes(self, layout: Layout) -> int:
        words = 3 * layout.nodes[-1] + 3 * sum(layout.edges[-1:])
        words += layout.nodes[0] * (1 + self.graph.num_labels)
        words += sum(layout.nodes)
        if self.how.transposed:
            words += 2 * sum(layout.edges) + sum(layout.nodes)
        if self.features == "dense":
            words += layout.nodes[-1] * self.graph.num_features
        return 4 * (words + (4 if self.how.transposed else 2) * layout.values)


def _group(batches: Batch, numbers: Array, order: np.ndarray) -> Group:
    """A group whose every axis [B] is at least two, as `stack` makes it."""
    room = max(2, len(order))
    trips = np.array(len(order), np.int32)
    numbers = fill(np.asarray(numbers), room, 0)
    return Group(batches, numbers, fill(order, room, 0), trips)


def deal(
    graph: Graph,
    roots: np.ndarray,
    batch_size: int,
    rng: np.random.Generator,
    apart: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Roots in as few batches as the size allows, alike in number and in neighbours.

    Roots are sorted by the size of their neighbourhood and dealt like cards, each round
    in random order: batches then need about the same room, and little padding. Where
    several components (`apart`, of each node) have more roots than a batch, each is
    dealt by itself: a batch that reaches into all of them is as large as all of them.
    """
    if apart is not None:
        of = apart[roots]
        large = np.flatnonzero(np.bincount(of) > batch_size)
        if len(large) > 1:
            sets = [roots[of == c] for c in large] + [roots[~np.isin(of, large)]]
            dealt = [deal(graph, s, batch_size, rng) for s in sets if len(s)]
            return list(itertools.chain.from_iterable(dealt))
    count = max(1, -(-len(roots) // batch_size))
    rounds = -(-len(roots) // count)
    by_size = rng.permutation(roots)
    by_size = by_size[np.argsort(-neighbourhood(graph, by_size), kind="stable")]
    cards = fill(by_size, rounds * count, -1).reshape(rounds, count)
    shuffled = rng.permuted(cards, axis=1).T
    return [batch[batch >= 0] for batch in shuffled]


def components(graph: Graph) -> np.ndarray:
    """Which component of the graph each node is in, [all nodes]."""
    if isinstance(graph.indices, np.memmap):  # It may not fit memory: take it as one.
        return np.zeros(graph.num_nodes, np.int32)
    ones = np.ones(graph.num_edges, np.int8)
    shape = (graph.num_nodes, graph.num_nodes)
    adjacency = sp.csr_array((ones, graph.indices, graph.indptr), shape)
    return connected_components(adjacency, directed=graph.directed, connection="weak")[
        1
    ]


def neighbourhood(graph: Graph, roots: np.ndarray) -> np.ndarray:
    """About how many edges two hops around each root have: its neighbours' degrees."""
    starts, ends = graph.indptr[roots], graph.indptr[roots + 1]
    senders = graph.indices[ranges(starts, ends - starts)]
    degrees = graph.indptr[senders + 1] - graph.indptr[senders]
    sums = np.concatenate([[0], np.cumsum(degrees)])
    stops = np.cumsum(ends - starts)
    return sums[stops] - sums[stops - (ends - starts)]


def group(sizes: np.ndarray, num_hops: int) -> tuple[list[Layout], list[np.ndarray]]:
    """Few layouts for subgraphs of these sizes, and which subgraphs go into each.

    One layout, unless its padding would waste more than a sixth of the nodes or edges;
    then the subgraphs are cut by size into two or three. Size is nodes and edges
    together; where that leaves too much padding, as edges are many and alike, each as a
    share of its mean.
    """
    best = _cut(sizes, sizes.sum(axis=1), num_hops)
    if best[0] >= _MOST_WASTE:
        share = sizes / np.maximum(sizes.mean(axis=0), 1)
        other = _cut(sizes, share[:, [num_hops, -2]].sum(axis=1), num_hops)
        best = min(best, other, key=lambda found: found[0])
    return best[1], [m.astype(np.int32) for m in best[2]]


def _cut(
    sizes: np.ndarray, measure: np.ndarray, num_hops: int
) -> tuple[float, list[Layout], list[np.ndarray]]:
    """Subgraphs sorted by a measure and cut into few layouts; their waste first."""
    by_size = np.argsort(measure, kind="stable")
    places = np.unique(np.linspace(0, len(sizes), 17).astype(int)[1:-1])
    best: tuple[float, list[Layout], list[np.ndarray]] | None = None
    for count in range(_MOST_GROUPS):
        for cuts in itertools.combinations(places, count):
            members = [np.sort(m) for m in np.split(by_size, cuts) if len(m)]
            layouts = [Layout.over(sizes[m], num_hops) for m in members]
            waste = _waste(sizes, layouts, members, num_hops)
            if best is None or waste < best[0]:
                best = waste, layouts, members
        if best is not None and best[0] <= _WASTE:
            break
    assert best is not None
    return best


def _waste(
    sizes: np.ndarray, layouts: list[Layout], members: list[np.ndarray], num_hops: int
) -> float:
    """Padding as a share of what is real: of nodes or of edges, whichever is more."""
    real = sizes[:, [num_hops, -2]].sum(axis=0)  # With no hops, of nodes twice.
    padded = sum(
        len(m) * np.array([layout.nodes[-1], (layout.nodes + layout.edges)[-1]])
        for layout, m in zip(layouts, members, strict=True)
    )
    return float(np.max(padded / np.maximum(real, 1)) - 1)


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

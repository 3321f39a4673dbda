"""A replay whose signals are all kept, so that it can follow changes of the graph.

After a change only nodes that read something else than before are computed again, hop
by hop and iteration by iteration: those whose edges changed, and those that read a node
whose signal changed. A signal that changes by less than a tolerance counts as unchanged
and stays what it was, so that errors do not add up over many changes.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse as sp

from hopf_jax.batching import fill
from hopf_jax.config import Config
from hopf_jax.graph import Growing, Journal, ReadEdges
from hopf_jax.inference.kept_features import KeptFeatures, power_of_two
from hopf_jax.inference.kept_programs import programs_of
from hopf_jax.inference.summaries import (
    Known,
    as_read,
    next_summary,
    output,
    reads_apart,
)
from hopf_jax.kernels import Aggregate, Net, run_hops
from hopf_jax.runtime import check_memory

_MOST_EDGES = 1 << 15  # Per program call, unless one node has more.
_MOST_ROWS, _FEW = 1 << 14, 1 << 16
_FEWEST_EDGES, _FEWEST_ROWS = 1 << 6, 1 << 5
# What a change has to exceed, as a multiple of the tolerance. Label summaries are read
# in all later iterations, and the last hop by nobody else; votes are summed.
_SUMMARIES, _LAST_HOP, _VOTES = 0.1, 2.0, 0.25


class Followed(NamedTuple):
    """What followed from a change.

    Attributes:
      slots: The slots whose output was computed, sorted.
      old: Their outputs before [n, C]; those of new nodes are zeros.
      new: Their outputs [n, C].
      computed: Number of nodes for which any signal was computed.
    """

    slots: np.ndarray
    old: np.ndarray
    new: np.ndarray
    computed: int


class _Signal(NamedTuple):
    """A signal of all slots, and those where it is not what it was.

    `name` is "x" for the features, "h0", "y", or the number of a hop; `amount` is by
    how much it changed, as a share of its usual size.
    """

    name: Any
    changed: np.ndarray
    amount: np.ndarray


class KeptReplay:
    """All signals of all iterations on a graph, which follow its changes.

    Args:
      net: The net, without dropout.
      weights: The weights of each iteration.
      config: Settings.
      multilabel: Several labels per node.
      edges: Whom nodes read from.
      features: What the first hop reads.
      num_slots: Number of slots.

    Attributes:
      said: [slots, C] the output of the last iteration.
    """

    def __init__(
        self,
        net: Net,
        weights: Sequence[dict],
        config: Config,
        multilabel: bool,
        edges: ReadEdges,
        features: KeptFeatures,
        num_slots: int,
    ) -> None:
        self.net, self.config, self.multilabel = net, config, multilabel
        self.edges, self.features = edges, features
        self._weights = [jax.device_put(params) for params in weights]
        kernel, sizes = net.kernel, net.sizes
        self._members = config.num_members
        self._views = self._members if reads_apart(config) else 1
        with_hidden = kernel.iterative and config.summary == "hidden"
        self._programs = programs_of(net, self._members, with_hidden, multilabel)
        widths = [kernel.width(sizes.features, sizes.hidden, k) for k in range(3)]
        copies = 1 if kernel.constant else len(weights) * self._members
        check_memory(
            4 * num_slots * copies * max(widths) * max(1, net.num_layers),
            "Following the changes of this graph, which keeps all hidden states,",
            "Predict it with predict_proba after changes instead.",
        )
        several = 1 if kernel.constant else len(weights)
        self._tables: list[dict[Any, Growing]] = [{} for _ in range(several)]
        self._usual: list[dict[Any, float]] = [{} for _ in range(several)]
        self._pending: list[dict[Any, Growing]] = [{} for _ in weights]
        self._summaries = [
            Growing(np.zeros((num_slots, self._views, sizes.summary), np.float32))
            for _ in weights[1:]
        ]
        self._read = self._summaries
        if config.caution != "none":
            self._read = [Growing(table.array.copy()) for table in self._summaries]
        self.said = Growing(np.zeros((num_slots, sizes.labels), np.float32))

    def reach(self, count: int) -> None:
        """Make room for `count` slots."""
        tables = [self.said, *self._summaries, *self._read]
        for found in (*self._tables, *self._pending):
            tables += found.values()
        for table in tables:
            table.reach(count)
        self.features.reach(count)

    def last_summaries(self, slots: np.ndarray) -> np.ndarray | None:
        """Return the label summaries [views, n, *] that the last iteration read.

        None if the kernel reads none.
        """
        if not self.net.kernel.iterative:
            return None
        if not self._read:
            return np.zeros(
                (self._views, len(slots), self.net.sizes.summary), np.float32
            )
        rows = self._read[-1].array[slots]
        if self._read is self._summaries:  # Not scaled yet.
            rows = np.float32(self.net.sizes.summary_scale) * rows
        return np.moveaxis(rows, 1, 0)

    def follow(
        self,
        train: np.ndarray,
        labels: np.ndarray,
        num_slots: int,
        *,
        rows: np.ndarray,
        new: np.ndarray,
        revised: np.ndarray,
        labelled: np.ndarray,
        tolerance: float,
        frozen: bool,
        journal: Journal,
        alive: np.ndarray | None = None,
        only: np.ndarray | None = None,
    ) -> Followed:
        """Compute what depends on a change.

        Args:
          train, labels: [slots] training nodes, [slots, C] their labels.
          num_slots: Number of slots.
          rows: Slots that read other nodes than before.
          new: New slots.
          revised: Slots whose features changed.
          labelled: Slots whose labels changed.
          tolerance: Changes below this share of the usual size of a signal are none;
            of a kernel with votes, below a quarter of it.
          frozen: Only new and labelled nodes change their label summaries.
          journal: What takes it back.
          alive: Slots of all nodes, which caution by share ranks.
          only: The slots whose outputs are asked for, if not all: what only others read
            is left as it was, so that the change has to be taken back.
        """
        kernel = self.net.kernel
        if kernel.votes:  # They add up what neighbours are off by.
            tolerance = _VOTES * tolerance
        steps = _Steps(self, num_slots, new, tolerance, journal)
        steps.revised = _union([revised, new], num_slots)
        base = [rows, new]
        aggregates = kernel.aggregate if kernel.psi else None, kernel.votes
        if any(each and _reads_degrees(each) for each in aggregates):
            base.append(self._readers(rows))
        steps.base, steps.labelled = _union(base, num_slots), labelled
        if only is not None and self.config.caution != "share":
            steps.balls = self._balls(only, num_slots)
        summarised = steps.revised_signal("y", new)
        for t, params in enumerate(self._weights):
            steps.begin(t, params, summarised)
            if not t or not kernel.constant:
                h = run_hops(kernel, self.net.num_layers, steps)
            slots, said, hidden = steps.predicted(h)
            if not np.isfinite(said).all():
                raise ValueError(
                    "A prediction is not a number: features or edge weights are too "
                    "large for these weights. Scale them."
                )
            known = Known(train[slots], labels[slots], self.multilabel)
            last = t + 1 == len(self._weights)
            found, views = self._complete(t, slots, known, said, hidden)
            if not last:
                if frozen:
                    own = _union([new, labelled], num_slots)
                    kept = np.isin(slots, own, assume_unique=True)
                    slots, views = slots[kept], views[kept]
                table = self._summaries[t]
                parts = steps.write(table, slots, views, 1.0, _SUMMARIES)
                summarised = _Signal("y", *parts)
                if self._read is not self._summaries:
                    changed = summarised.changed
                    parts = self._reread(t, steps, changed, train, labels, alive)
                    summarised = _Signal("y", *parts)
        old = self.said.array[slots]
        self.said.set(slots, found, journal)
        return Followed(slots, old, found, steps.count())

    def _complete(
        self, t: int, slots: np.ndarray, known: Known, said: Any, hidden: Any
    ) -> tuple[np.ndarray, Any]:
        """Return the output [n, C] of iteration t (from 0), and the summaries."""
        mean = said[:, 0] if self._members == 1 else said.mean(axis=1)
        if not self.net.kernel.iterative:
            return mean, None
        inner = None
        if hidden is not None:
            inner = hidden if self._views > 1 else hidden.mean(axis=1, keepdims=True)
        views = []
        for view in range(self._views):
            shape = len(slots), self.net.sizes.summary
            last = np.zeros(shape, np.float32)
            if t:
                last = self._summaries[t - 1].array[slots, view]
            own = said[:, view] if self._views > 1 else mean
            hid = None if inner is None else inner[:, view]
            views.append(next_summary(known, self.config, t + 1, last, own, hid))
        return output(known, self.config, mean, views[-1]), np.stack(views, axis=1)

    def _reread(
        self,
        t: int,
        steps: "_Steps",
        changed: np.ndarray,
        train: np.ndarray,
        labels: np.ndarray,
        alive: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Write summaries as iteration t + 1 (from 0) reads them, with caution.

        Returns:
          The slots where they changed, and by how much.
        """
        slots = _union([changed, steps.labelled], steps.num_slots)
        if self.config.caution == "share":  # A rank depends on all nodes.
            assert alive is not None
            slots = alive
        known = Known(train[slots], labels[slots], self.multilabel)
        scale = self.net.sizes.summary_scale
        rows = self._summaries[t].array[slots]
        read = [
            as_read(known, self.config, t + 2, view, scale) for view in _views(rows)
        ]
        rows = np.stack(read, axis=1)
        return steps.write(self._read[t], slots, rows, scale, _SUMMARIES)

    def _balls(self, slots: np.ndarray, num_slots: int) -> list[np.ndarray]:
        """Return what some slots read within 0, 1, ... hops, while that is little."""
        rows, balls = self.edges.rows, [slots]
        for _ in range(len(self._weights) * max(1, self.net.num_layers)):
            senders = rows.columns[rows.entries(balls[-1])[0]]
            found = _union([balls[-1], senders], num_slots)
            if len(found) > num_slots // 2:
                break
            balls.append(found)
        return balls

    def _readers(self, slots: np.ndarray) -> np.ndarray:
        readers = self.edges.readers
        return readers.columns[readers.entries(slots)[0]]


def _views(rows: np.ndarray) -> list[np.ndarray]:
    return [rows[:, i] for i in range(rows.shape[1])]


class _Steps:
    """The steps of `run_hops` on the nodes that a change reaches."""

    def __init__(
        self,
        replay: KeptReplay,
        num_slots: int,
        new: np.ndarray,
        tolerance: float,
        journal: Journal,
    ) -> None:
        self.replay, self.num_slots, self.journal = replay, num_slots, journal
        self.tolerance, self.net = tolerance, replay.net
        self.first_new = int(new[0]) if len(new) else num_slots
        self.revised = self.base = self.labelled = new
        self.balls: list[np.ndarray] = []
        self._computed: list[np.ndarray] = []
        kernel, net = self.net.kernel, self.net
        self._multiplied = multiplies_once(kernel) and net.num_layers > 0
        self._reads = kernel.phi + kernel.psi
        # The last hop and the output layer are one program, where nothing is between.
        self._at_once = (
            kernel.reads_out == "last" and not kernel.constant and not kernel.votes
        )
        # What neighbours send is added up here, so that programs get rows, not edges.
        self._sums = bool(kernel.psi) and is_sum(kernel.aggregate, net)
        self._sums &= not (kernel.shared_weights and "y" in kernel.psi)

    def revised_signal(self, name: Any, slots: np.ndarray) -> _Signal:
        """Return a signal that is another one at some slots."""
        return _Signal(name, slots, np.full(len(slots), np.inf))

    def begin(self, t: int, params: dict, summarised: _Signal) -> None:
        """Begin iteration t (from 0), for which some summaries changed."""
        self.t, self.params, self.summarised = t, params, summarised
        kept = 0 if self.net.kernel.constant else t
        self.tables = self.replay._tables[kept]
        self.usual = self.replay._usual[kept]
        self.pending = self.replay._pending[t]
        self._last: Any = None
        if self._multiplied:
            programs = self.replay._programs
            found = [
                [p if p is None else np.asarray(p)[:count] for p in pair]
                for count, pair in (
                    (count, programs.products(params, rows))
                    for count, rows in self._feature_rows(self.revised)
                )
            ]
            own, sent = zip(*found, strict=True) if found else ((None,), (None,))
            if own[0] is not None:
                self._set("x own", self.revised, list(own))
            if sent[0] is not None:
                self._set("x sent", self.revised, list(sent))
            if self._sums and set(self.net.kernel.psi) - {"y"}:
                self._keep_read()

    def _keep_read(self) -> None:
        """Keep what nodes read of the products of their neighbours at the first hop."""
        rows = _union([self.base, self.replay._readers(self.revised)], self.num_slots)
        if len(rows) and (table := self._sent()) is not None:
            matrix = self._matrix(rows, len(rows), self.net.kernel.aggregate)
            read = _product(matrix, table)
            if "x read" not in self.tables:
                self.tables["x read"] = Growing(
                    np.zeros((len(table), *read.shape[1:]), np.float32)
                )
            self.tables["x read"].set(rows, read, self.journal)

    def _sent(self) -> np.ndarray | None:
        """Return the products of features that neighbours read."""
        table = self.tables.get("x sent", self.tables.get("x own"))
        return None if table is None else table.array

    def features(self) -> _Signal:
        return self.revised_signal("x", self.revised)

    def embed(self, away: int) -> _Signal:
        if self._multiplied:
            h0 = np.maximum(self.tables["x own"].array[self.revised], 0)
            return _Signal("h0", *self._set("h0", self.revised, [h0]))
        slots, embed = self.revised, self.replay._programs.embed
        parts = [
            np.asarray(embed(self.params, rows))[:count]
            for count, rows in self._feature_rows(slots)
        ]
        return _Signal("h0", *self._set("h0", slots, parts))

    def hop(self, k: int, away: int, h0: _Signal, h: _Signal) -> Any:
        kernel = self.net.kernel
        readout = self._at_once and k == self.net.num_layers
        apart = h.name != "x" and h0.name != h.name and "h0" in self._reads
        signals = {"h": h} | ({"h0": h0} if apart else {})
        if "y" in self._reads:
            signals["y"] = self.summarised
        parts = [self.base, *(signal.changed for signal in signals.values())]
        if readout:
            parts.append(self.labelled)
        if kernel.psi:
            read = set(kernel.psi)
            read |= {"h"} if not apart and "h0" in read else set()
            seen = [s for n, s in signals.items() if n in read]
            last = k == self.net.num_layers and not kernel.constant
            factor = _LAST_HOP if last else 1.0
            parts.append(self._reached(k, kernel.aggregate, seen, factor))
        slots = self._asked(_union(parts, self.num_slots), away)
        if kernel.psi:
            self.pending[k].set(slots, 0, self.journal)
        self._computed.append(slots)
        program = self.replay._programs.hop(k, readout)
        found = [
            (len(chunk), program(self.params, *self._arguments(chunk, signals)))
            for chunk in self._chunks(slots)
        ]
        if readout:
            self._last = slots, found
            return None
        parts = [np.asarray(each)[:count] for count, each in found]
        return _Signal(k, *self._set(k, slots, parts))

    def _asked(self, slots: np.ndarray, away: int) -> np.ndarray:
        """Return those slots from which `away` hops of this iteration are read on."""
        later = len(self.replay._weights) - 1 - self.t
        distance = later * max(1, self.net.num_layers) + away
        if distance >= len(self.balls):
            return slots
        return np.intersect1d(slots, self.balls[distance], assume_unique=True)

    def _reached(
        self, name: Any, aggregate: Aggregate, signals: list[_Signal], factor: float
    ) -> np.ndarray:
        """Return the slots whose neighbours changed by more than the tolerance.

        Smaller changes are added up until they do.
        """
        edges, share = self.replay.edges, aggregate.share
        if name not in self.pending:
            self.pending[name] = Growing(np.zeros(self.num_slots, np.float32))
        if len(self.base) == self.num_slots:  # All are due anyway.
            return self.base
        signals = [signal for signal in signals if len(signal.changed)]
        if not signals:
            return np.zeros(0, np.int64)
        changed = np.concatenate([signal.changed for signal in signals])
        amount = np.concatenate([signal.amount for signal in signals])
        places, lengths = edges.readers.entries(changed)
        to = edges.readers.columns[places]
        amount = np.repeat(amount, lengths)
        if share is not None:
            degree = edges.degree.array
            amount = amount * share(degree[to], np.repeat(degree[changed], lengths))
            if edges.readers.values is not None:
                amount = amount * edges.readers.values[places]
        if _are_few(len(to), self.num_slots):
            slots, at = np.unique(to, return_inverse=True)
            due = np.bincount(at, amount, minlength=len(slots))
        else:
            due = np.bincount(to, amount, minlength=self.num_slots)
            slots = np.flatnonzero(due)
            due = due[slots]
        due = due + self.pending[name].array[slots]
        now = due > factor * self.tolerance
        self.pending[name].set(slots[~now], due[~now], self.journal)
        return slots[now]

    def join(self, hops: list[_Signal]) -> list[_Signal]:
        return hops

    def predicted(self, h: Any) -> tuple[np.ndarray, np.ndarray, Any]:
        """Return the slots that are predicted, their probabilities and h_K."""
        count = self.replay._members
        if h is None:
            slots, found = self._last
        else:
            hops, votes = h if isinstance(h, list) else [h], self.net.kernel.votes
            due = [self.base, self.labelled, *(each.changed for each in hops)]
            if votes:
                due.append(self.summarised.changed)
                due.append(self._reached("votes", votes, [self.summarised], 1.0))
            slots = self._asked(_union(due, self.num_slots), 0)
            if votes:
                self.pending["votes"].set(slots, 0, self.journal)
            self._computed.append(slots)
            found = []
            for chunk in self._chunks(slots):
                read, size = None, power_of_two(len(chunk), _FEWEST_ROWS)
                if votes and is_sum(votes, self.net):
                    matrix = self._matrix(chunk, size, votes)
                    read = self._read_labels(matrix, chunk, size)
                elif votes:
                    nodes, edges = self._edges(chunk)
                    size, y = len(edges[0]) - 1, self._summary_rows(nodes)
                    read = self.replay._programs.votes(self.params, edges, y)
                rows = [self._rows(each, chunk, size) for each in hops]
                readout = self.replay._programs.readout
                found.append((len(chunk), readout(self.params, rows, read)))
        said = np.zeros((0, count, self.net.sizes.labels), np.float32)
        hidden = None
        if found:
            said = _joined([np.asarray(each[0])[:n] for n, each in found])
        if found and found[0][1][1] is not None:
            hidden = _joined([np.asarray(each[1])[:n] for n, each in found])
        elif self.replay._programs.with_hidden:
            hidden = np.zeros((0, count, self.net.sizes.summary), np.float32)
        return slots, said, hidden

    def count(self) -> int:
        """Return the number of nodes for which anything was computed."""
        return len(_union(self._computed, self.num_slots))

    def write(
        self,
        table: Growing,
        slots: np.ndarray,
        values: np.ndarray,
        usual: float,
        factor: float = 1.0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Write the rows that changed; return their slots, and by how much."""
        old = table.array[slots]
        axes = tuple(range(1, values.ndim))
        amount = np.abs(values - old).max(axis=axes, initial=0) / usual
        amount[slots >= self.first_new] = np.inf
        moved = amount > factor * self.tolerance
        if not moved.all():
            slots, amount = slots[moved], amount[moved]
            values, old = values[moved], old[moved]
        table.set(slots, values, self.journal, old)
        return slots, amount

    def _set(
        self, name: Any, slots: np.ndarray, parts: list[Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Write a signal that was computed in parts; return where it changed."""
        if not parts:
            return slots, np.zeros(len(slots))
        values = _joined(parts)
        table = self.tables.get(name)
        if table is None:  # The first time, for all nodes.
            table = Growing(np.zeros((self.num_slots, *values.shape[1:]), np.float32))
            self.tables[name] = table
            self.usual[name] = float(np.sqrt(np.mean(np.square(values)))) or 1.0
        return self.write(table, slots, values, self.usual[name])

    def _chunks(self, slots: np.ndarray) -> Iterator[np.ndarray]:
        """Yield slots in pieces of so many edges that a program can take."""
        if not len(slots):
            return
        if self._sums or not self.net.kernel.psi:
            for start in range(0, len(slots), _MOST_ROWS):
                yield slots[start : start + _MOST_ROWS]
            return
        lengths = self.replay.edges.rows.lengths(slots)
        load = np.maximum(lengths, 2)
        if load.sum() <= _MOST_EDGES:
            yield slots
            return
        ends, start = np.cumsum(load), 0
        while start < len(slots):
            before = ends[start - 1] if start else 0
            stop = int(np.searchsorted(ends, before + _MOST_EDGES, side="right"))
            stop = max(stop, start + 1)
            yield slots[start:stop]
            start = stop

    def _feature_rows(self, slots: np.ndarray) -> Iterator[tuple[int, Any]]:
        """Yield the features of slots in padded pieces, and the number of real rows."""
        for start in range(0, len(slots), _MOST_EDGES):
            piece = slots[start : start + _MOST_EDGES]
            rows = self.replay.features.rows(piece, power_of_two(len(piece), 8))
            yield len(piece), rows

    def _edges(self, slots: np.ndarray) -> tuple[np.ndarray, tuple[Any, ...]]:
        """Return nodes and what `_local_graph` takes, for some receivers.

        The nodes are the padded receivers, followed by one sender per padded edge.
        """
        rows = self.replay.edges.rows
        places, lengths = rows.entries(slots)
        size = power_of_two(max(len(places), 2 * len(slots)), _FEWEST_EDGES)
        count = size // 2
        indptr = np.full(count + 1, len(places), np.int32)
        indptr[0] = 0
        np.cumsum(lengths, out=indptr[1 : len(slots) + 1])
        nodes = np.zeros(count + size, np.int64)
        nodes[: len(slots)] = slots
        nodes[count : count + len(places)] = rows.columns[places]
        weights = None
        if rows.values is not None:
            weights = fill(rows.values[places].astype(np.float32), size, 0)
        return nodes, (indptr, self.replay.edges.degree.array[nodes], weights)

    def _arguments(
        self, slots: np.ndarray, signals: dict[str, _Signal]
    ) -> tuple[Any, ...]:
        """Return what the program of a hop takes for some receivers."""
        kernel = self.net.kernel
        if self._sums or not kernel.psi:
            count = power_of_two(len(slots), _FEWEST_ROWS)
            own = nodes = fill(slots, count, 0)
            edges: Any = None, self.replay.edges.degree.array[own], None
        else:
            nodes, edges = self._edges(slots)
            own = nodes[: len(edges[0]) - 1]
        psi = () if self._sums else kernel.psi
        h, h0 = signals["h"], signals.get("h0")
        y = products = of_h = of_h0 = None
        if "y" in kernel.phi + psi:
            y = self._summary_rows(nodes if "y" in psi else own)
        read = "h" in psi or (h0 is None and "h0" in psi)
        neighbours = labels = None
        if self._sums:
            neighbours, labels = self._neighbours(slots, count, signals)
        if h.name == "x" and self._multiplied:
            kept, sent = self.tables.get("x own"), self._sent()
            mine = sent if kept is None else kept.array
            assert mine is not None and sent is not None
            pair = mine[own], sent[nodes] if read else None
            products, neighbours = (*pair, neighbours), None
        else:
            of_h = self._rows(h, nodes if read else own)
        if h0 is not None:
            of_h0 = self._rows(h0, nodes if "h0" in psi else own)
        return edges, of_h0, of_h, y, products, (neighbours, labels)

    def _neighbours(
        self, slots: np.ndarray, count: int, signals: dict[str, _Signal]
    ) -> tuple[Any, Any]:
        """Return F(A) Psi [count, M, *] and F(A) Y of some slots, which are padded.

        At a first hop with products the first is F(A) X W_psi.
        """
        kernel, h = self.net.kernel, signals["h"]
        aggregate = kernel.aggregate
        names = [name for name in kernel.psi if name != "y"]
        neighbours = labels = matrix = None
        if ("y" in kernel.psi and self.t) or h.name != "x" or not self._multiplied:
            matrix = self._matrix(slots, count, aggregate)
        if names and h.name == "x" and self._multiplied:
            neighbours = self.tables["x read"].array[fill(slots, count, 0)]
        elif names:
            neighbours = _joined(
                [
                    self._sum_features(matrix)
                    if signal.name == "x"
                    else _product(matrix, self.tables[signal.name].array)
                    for signal in (signals.get(name, h) for name in names)
                ],
                axis=-1,
            )
        if "y" in kernel.psi:
            labels = self._read_labels(matrix, slots, count)
        return neighbours, labels

    def _read_labels(self, matrix: Any, slots: np.ndarray, count: int) -> np.ndarray:
        """Return F(A) Y [count, views, *] of some slots, which are padded."""
        if not self.t:
            return self._summary_rows(fill(slots, count, 0))
        return self._scaled(_product(matrix, self.replay._read[self.t - 1].array))

    def _sum_features(self, matrix: sp.csr_array) -> np.ndarray:
        """Return F(A) X of the rows of a matrix."""
        senders, at = np.unique(matrix.indices, return_inverse=True)
        parts = matrix.data, at, matrix.indptr
        local = sp.csr_array(parts, (matrix.shape[0], len(senders)))
        found = local @ self.replay.features.matrix(senders)
        return found.toarray() if sp.issparse(found) else found

    def _matrix(
        self, slots: np.ndarray, count: int, aggregate: Aggregate
    ) -> sp.csr_array:
        """Return the rows of F(A) of some slots, and empty ones up to `count`."""
        edges, degree = self.replay.edges, self.replay.edges.degree.array
        assert aggregate.share is not None
        width = self.num_slots
        places, lengths = edges.rows.entries(slots)
        senders = edges.rows.columns[places]
        own = degree[slots]
        weights = aggregate.share(np.repeat(own, lengths), degree[senders])
        weights = np.broadcast_to(np.asarray(weights, np.float32), len(places))
        if edges.rows.values is not None:
            weights = weights * edges.rows.values[places]
        indptr = np.full(count + 1, len(places), np.int32)
        indptr[0] = 0
        np.cumsum(lengths, out=indptr[1 : len(slots) + 1])
        parts = weights.astype(np.float32, copy=False), senders, indptr
        found = sp.csr_array(parts, (count, width))
        if aggregate.loops:
            share = np.asarray(aggregate.share(own, own), np.float32)
            at = np.arange(len(slots))
            found = found + sp.csr_array((share, (at, slots)), (count, width))
        return found

    def _rows(self, signal: _Signal, slots: np.ndarray, size: int | None = None) -> Any:
        """Return rows [n, M, *] of a signal, or [n, *] if members have the same."""
        size = len(slots) if size is None else size
        if signal.name == "x":
            return self.replay.features.rows(slots, size)
        rows = self.tables[signal.name].array[slots]
        return rows if len(rows) == size else fill(rows, size, 0)

    def _summary_rows(self, slots: np.ndarray) -> np.ndarray:
        """Return label summaries [n, views, *] as they are read."""
        replay = self.replay
        if not self.t:
            shape = len(slots), replay._views, self.net.sizes.summary
            return np.zeros(shape, np.float32)
        return self._scaled(replay._read[self.t - 1].array[slots])

    def _scaled(self, rows: np.ndarray) -> np.ndarray:
        """Return label summaries as they are read."""
        replay, scale = self.replay, self.net.sizes.summary_scale
        if scale != 1 and replay._read is replay._summaries:
            return np.float32(scale) * rows
        return rows


def _are_few(some: int, count: int) -> bool:
    """Return whether some numbers are sorted faster than `count` are looked through."""
    return count > _FEW and 16 * some < count


def _joined(parts: Sequence[np.ndarray], axis: int = 0) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis)


def _product(matrix: sp.csr_array, table: np.ndarray) -> np.ndarray:
    """Return a matrix [n, slots] times a table [slots, *]."""
    table = table[: matrix.shape[1]]
    found = matrix @ table.reshape(len(table), -1)
    return found.reshape(len(found), *table.shape[1:])


def _union(parts: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Return all of some numbers below `count`, once each and sorted."""
    if _are_few(sum(map(len, parts)), count):
        return np.unique(np.concatenate(parts))
    mask = np.zeros(count, bool)
    for part in parts:
        mask[part] = True
    return np.flatnonzero(mask)


def _reads_degrees(aggregate: Aggregate) -> bool:
    """Return whether nodes may read the degrees of their neighbours."""
    share = aggregate.share
    return share is None or share(1.0, 1.0) != share(1.0, 2.0)


def is_sum(aggregate: Aggregate, net: Net) -> bool:
    """Return whether F(A) x is a sum over edges of known weights, in full precision."""
    known = aggregate.linear and aggregate.share is not None
    return known and net.precision == "float32"


def multiplies_once(kernel: Any) -> bool:
    """Return whether features can be multiplied by the first weights node by node.

    Then X W is kept, and nothing else of the features is read.
    """
    if not kernel.learned_hops or kernel.input_layer:
        return False
    if not (set(kernel.phi + kernel.psi) - {"y"}):
        return False
    aggregate = kernel.aggregate
    return not kernel.psi or aggregate.linear or aggregate.of_products

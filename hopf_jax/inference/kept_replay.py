"""A replay whose signals are all kept, so that it can follow changes of the graph.

After a change only nodes that read something else than before are computed again, hop
by hop and iteration by iteration: those whose edges changed, and those that read a node
whose signal changed. A signal that changes by less than a tolerance counts as unchanged
and stays what it was, so that errors do not add up over many changes.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jraph
import numpy as np
import scipy.sparse as sp

from hopf_jax.batching import HopGraph, Rows, SparseMatrix, fill, row_of_entry, to_dense
from hopf_jax.config import Config
from hopf_jax.graph import EditableRows, Growing, Journal, ReadEdges
from hopf_jax.inference.summaries import (
    as_read,
    next_summary,
    output,
    reads_apart,
)
from hopf_jax.kernels import Aggregate, Net, Products, Signals, run_hops
from hopf_jax.runtime import check_memory

_MOST_EDGES = 1 << 15  # Per program call, unless one node has more.
_FEWEST_EDGES = 1 << 6
_FEWEST_VALUES = 1 << 10
_VOTES_ADD = 4  # How much less of a change is ignored where votes are summed.
_PROGRAMS_KEPT = 8  # Nets whose compiled programs are kept.


class Known(NamedTuple):
    """The labels of some nodes, as `next_summary` reads them of a graph."""

    train: np.ndarray
    labels: np.ndarray
    multilabel: bool


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


class KeptFeatures:
    """Features as a net reads them, whose rows can be set.

    Args:
      features: [N, F], dense, sparse or a memory map; of the first N slots.
    """

    def __init__(self, features: Any) -> None:
        self.sparse, self.width = sp.issparse(features), int(features.shape[1])
        count = features.shape[0]
        if self.sparse:
            parts = features.indptr, features.indices, features.data
            self._rows = EditableRows(*parts)
        else:
            self._base, self._count = features, count
            self._source = Growing(np.arange(count))
            self._more = Growing(np.zeros((0, self.width), np.float32))

    def reach(self, count: int) -> None:
        """Make room for `count` slots."""
        (self._rows if self.sparse else self._source).reach(count)

    def set(self, slots: np.ndarray, rows: Any, journal: Journal) -> None:
        """Set the features of some slots."""
        if not len(slots):
            return
        if self.sparse:
            lengths = np.diff(rows.indptr)
            parts = rows.indices, rows.data
            self._rows.replace(slots, lengths, *parts, journal)
            return
        start = self._count - len(self._base)
        self._count += len(slots)
        self._more.reach(self._count - len(self._base))
        self._more.array[start : start + len(slots)] = rows
        self._source.set(
            slots, len(self._base) + start + np.arange(len(slots)), journal
        )

    def matrix(self, slots: np.ndarray) -> Any:
        """Return the features of slots [n, F], as an array or as CSR."""
        if not self.sparse:
            return self.rows(slots, len(slots))
        places, lengths = self._rows.entries(slots)
        values = self._rows.values
        assert values is not None
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        parts = values[places], self._rows.columns[places], indptr
        return sp.csr_array(parts, (len(slots), self.width))

    def rows(self, slots: np.ndarray, count: int) -> Any:
        """Return the features of slots, padded to `count` rows."""
        if self.sparse:
            places, lengths = self._rows.entries(slots)
            size = _power(len(places), _FEWEST_VALUES)
            ends = np.full(count + 1, len(places), np.int32)
            ends[0] = 0
            np.cumsum(lengths, out=ends[1 : len(slots) + 1])
            indices = fill(self._rows.columns[places].astype(np.int32), size, 0)
            values = self._rows.values
            assert values is not None
            return SparseMatrix(Rows(ends, indices), fill(values[places], size, 0))
        out = np.zeros((count, self.width), np.float32)
        source = self._source.array[slots]
        later = source >= len(self._base)
        if later.any():
            out[: len(slots)][later] = self._more.array[source[later] - len(self._base)]
            out[: len(slots)][~later] = self._base[source[~later]]
        else:
            out[: len(slots)] = self._base[source]
        return out


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
        self._programs = _programs(net, self._members, with_hidden, multilabel)
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
            tolerance = tolerance / _VOTES_ADD
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
                summarised = _Signal("y", *steps.write(table, slots, views, 1.0))
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
        return steps.write(self._read[t], slots, np.stack(read, axis=1), scale)

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
        kernel = self.net.kernel
        self._multiplied = multiplies_once(kernel) and self.net.num_layers > 0
        self._reads = kernel.phi + kernel.psi
        # The last hop and the output layer are one program, where nothing is between.
        self._at_once = (
            kernel.reads_out == "last" and not kernel.constant and not kernel.votes
        )

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
            slots = self.revised
            products = self.replay._programs.products
            parts = [
                np.asarray(products(params, rows))[:count]
                for count, rows in self._feature_rows(slots)
            ]
            self._set("products", slots, parts)

    def features(self) -> _Signal:
        return self.revised_signal("x", self.revised)

    def embed(self, away: int) -> _Signal:
        if self._multiplied:
            h0 = np.maximum(self.tables["products"].array[self.revised], 0)
            h0 = h0[:, :, : self.net.sizes.hidden]
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
            parts.append(self._reached(k, kernel.aggregate, seen))
        slots = self._asked(_union(parts, self.num_slots), away)
        if kernel.psi:
            self.pending[k].set(slots, 0, self.journal)
        self._computed.append(slots)
        program = self.replay._programs.hop(k, readout)
        found = [
            program(self.params, *self._arguments(chunk, k, signals))
            for chunk in self._chunks(slots)
        ]
        if readout:
            self._last = slots, found
            return None
        chunks = self._chunks(slots)
        parts = [np.asarray(f)[: len(c)] for f, c in zip(found, chunks, strict=True)]
        return _Signal(k, *self._set(k, slots, parts))

    def _asked(self, slots: np.ndarray, away: int) -> np.ndarray:
        """Return those slots from which `away` hops of this iteration are read on."""
        later = len(self.replay._weights) - 1 - self.t
        distance = later * max(1, self.net.num_layers) + away
        if distance >= len(self.balls):
            return slots
        return np.intersect1d(slots, self.balls[distance], assume_unique=True)

    def _reached(
        self, name: Any, aggregate: Aggregate, signals: list[_Signal]
    ) -> np.ndarray:
        """Return the slots whose neighbours changed by more than the tolerance.

        Smaller changes are added up until they do.
        """
        edges, share = self.replay.edges, aggregate.share
        if name not in self.pending:
            self.pending[name] = Growing(np.zeros(self.num_slots, np.float32))
        if len(self.base) == self.num_slots:  # All are due anyway.
            return self.base
        readers, amounts = [], []
        for signal in signals:
            places, lengths = edges.readers.entries(signal.changed)
            to = edges.readers.columns[places]
            amount = np.repeat(signal.amount, lengths)
            if share is not None:
                degree = edges.degree.array
                own = np.repeat(degree[signal.changed], lengths)
                amount = amount * share(degree[to], own)
                if edges.readers.values is not None:
                    amount = amount * edges.readers.values[places]
            readers.append(to)
            amounts.append(amount)
        if not readers:
            return np.zeros(0, np.int64)
        slots, at = np.unique(np.concatenate(readers), return_inverse=True)
        due = self.pending[name].array[slots] + np.bincount(
            at, np.concatenate(amounts), minlength=len(slots)
        )
        now = due > self.tolerance
        self.pending[name].set(slots[~now], due[~now], self.journal)
        return slots[now]

    def join(self, hops: list[_Signal]) -> list[_Signal]:
        return hops

    def predicted(self, h: Any) -> tuple[np.ndarray, np.ndarray, Any]:
        """Return the slots that are predicted, their probabilities and h_K."""
        count = self.replay._members
        if h is None:
            slots, parts = self._last
            chunks = list(self._chunks(slots))
        else:
            hops, votes = h if isinstance(h, list) else [h], self.net.kernel.votes
            due = [self.base, self.labelled, *(each.changed for each in hops)]
            if votes:
                due.append(self.summarised.changed)
                due.append(self._reached("votes", votes, [self.summarised]))
            slots = self._asked(_union(due, self.num_slots), 0)
            if votes:
                self.pending["votes"].set(slots, 0, self.journal)
            self._computed.append(slots)
            chunks, parts = list(self._chunks(slots)), []
            for chunk in chunks:
                size, edges, y = _power(len(chunk), _FEWEST_EDGES), None, None
                if votes:
                    nodes, edges = self._edges(chunk)
                    size, y = len(edges[0]) - 1, self._summary_rows(nodes)
                signals = [self._rows(each, chunk, size) for each in hops]
                readout = self.replay._programs.readout
                parts.append(readout(self.params, signals, edges, y))
        said = [np.asarray(p[0])[: len(c)] for p, c in zip(parts, chunks, strict=True)]
        width = self.net.sizes.labels
        found = np.concatenate([np.zeros((0, count, width), np.float32), *said])
        hidden = None
        if parts and parts[0][1] is not None:
            hidden = np.concatenate(
                [np.asarray(p[1])[: len(c)] for p, c in zip(parts, chunks, strict=True)]
            )
        elif self.replay._programs.with_hidden:
            hidden = np.zeros((0, count, self.net.sizes.summary), np.float32)
        return slots, found, hidden

    def count(self) -> int:
        """Return the number of nodes for which anything was computed."""
        return len(_union(self._computed, self.num_slots))

    def write(
        self, table: Growing, slots: np.ndarray, values: np.ndarray, usual: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Write the rows that changed; return their slots, and by how much."""
        old = table.array[slots]
        axes = tuple(range(1, values.ndim))
        amount = np.abs(values - old).max(axis=axes, initial=0) / usual
        amount[slots >= self.first_new] = np.inf
        moved = amount > self.tolerance
        if not moved.all():
            slots, values, amount = slots[moved], values[moved], amount[moved]
        table.set(slots, values, self.journal)
        return slots, amount

    def _set(
        self, name: Any, slots: np.ndarray, parts: list[Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Write a signal that was computed in parts; return where it changed."""
        if not parts:
            return slots, np.zeros(len(slots))
        values = parts[0] if len(parts) == 1 else np.concatenate(parts)
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
            rows = self.replay.features.rows(piece, _power(len(piece), 8))
            yield len(piece), rows

    def _edges(self, slots: np.ndarray) -> tuple[np.ndarray, tuple[Any, ...]]:
        """Return nodes and what `_local_graph` takes, for some receivers.

        The nodes are the padded receivers, followed by one sender per padded edge.
        """
        rows = self.replay.edges.rows
        places, lengths = rows.entries(slots)
        size = _power(max(len(places), 2 * len(slots)), _FEWEST_EDGES)
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
        self, slots: np.ndarray, k: int, signals: dict[str, _Signal]
    ) -> tuple[Any, ...]:
        """Return what the program of a hop takes for some receivers."""
        nodes, edges = self._edges(slots)
        psi = self.net.kernel.psi
        own = nodes[: len(edges[0]) - 1]
        h, h0 = signals["h"], signals.get("h0")
        y = None
        if "y" in signals:
            y = self._summary_rows(nodes if "y" in psi else own)
        read = "h" in psi or (h0 is None and "h0" in psi)
        products = None
        if h.name == "x" and self._multiplied:
            table, width = self.tables["products"].array, self.net.sizes.hidden
            kernel = self.net.kernel
            if read and table.shape[2] > width:  # Own and read ones, side by side.
                pair: Any = table[own, :, :width], table[nodes, :, width:]
            else:
                each = table[nodes if read else own]
                pair = each, each if read and kernel.psi else None
            products, of_h = pair, None
        else:
            of_h = self._rows(h, nodes if read else own)
        of_h0 = None
        if h0 is not None:
            of_h0 = self._rows(h0, nodes if "h0" in psi else own)
        return edges, of_h0, of_h, y, products

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
        rows = replay._read[self.t - 1].array[slots]
        scale = self.net.sizes.summary_scale
        if scale != 1 and replay._read is replay._summaries:
            return np.float32(scale) * rows
        return rows


def _union(parts: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Return all of some numbers below `count`, once each and sorted."""
    if sum(map(len, parts)) * 32 < count:
        return np.unique(np.concatenate(parts))
    mask = np.zeros(count, bool)
    for part in parts:
        mask[part] = True
    return np.flatnonzero(mask)


def _power(count: int, least: int) -> int:
    """Return the power of two at or above a count, `least` or more."""
    return max(least, 1 << max(count - 1, 0).bit_length())


def _reads_degrees(aggregate: Aggregate) -> bool:
    """Return whether nodes may read the degrees of their neighbours."""
    share = aggregate.share
    return share is None or share(1.0, 1.0) != share(1.0, 2.0)


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


# Programs


class _Programs:
    """The compiled programs of a net, for signals with an axis of members [n, M, *]."""

    def __init__(
        self, net: Net, members: int, with_hidden: bool, multilabel: bool
    ) -> None:
        self.net, self.members = net, members
        self.with_hidden, self.multilabel = with_hidden, multilabel
        self._hops: dict[tuple[int, bool], Any] = {}

    @functools.cached_property
    def embed(self) -> Any:
        """(params, features) -> h_0 [n, M, H]."""
        return jax.jit(lambda params, x: self._each(self._embed, params, (), (x,)))

    @functools.cached_property
    def products(self) -> Any:
        """(params, features) -> X W_phi and X W_psi side by side, [n, M, *]."""

        def one(params, x):
            own, read = self._apply(params, "input_products", x)
            parts = [each for each in (own, read) if each is not None]
            return jnp.concatenate(parts, axis=1).astype(jnp.float32)

        return jax.jit(lambda params, x: self._each(one, params, (), (x,)))

    @functools.cached_property
    def readout(self) -> Any:
        """(params, signals of all hops, edges, y) -> probabilities [n, M, C], h_K.

        Edges and y are those of votes, else None; and so is h_K unless it is read.
        """

        def run(params, signals, edges, y):
            raw = [isinstance(s, SparseMatrix) or s.ndim == 2 for s in signals]
            mine = [s for s, shared in zip(signals, raw, strict=True) if not shared]
            x = [s for s, shared in zip(signals, raw, strict=True) if shared]

            def one(params, mine, own_y, x, shared_y):
                left, right = iter(mine), iter(x)
                width = self.net.sizes.features
                hops = [
                    to_dense(next(right), width) if shared else next(left)
                    for shared in raw
                ]
                read: tuple[Any, ...] = (jnp.concatenate(hops, axis=1),)
                if edges is not None:
                    y = shared_y if own_y is None else own_y
                    votes = self._apply(params, "votes", _local_graph(*edges), y)
                    read = *read, None, votes
                return self._read_out(params, *read)

            own_y, shared_y = _by_member(y)
            return self._each(one, params, (mine, own_y), (x, shared_y))

        return jax.jit(run)

    def hop(self, k: int, readout: bool) -> Any:
        """Return the program of hop k; with the last one, of the output layer too."""
        if (k, readout) not in self._hops:
            program = jax.jit(functools.partial(self._hop, k, readout))
            self._hops[k, readout] = program
        return self._hops[k, readout]

    def _hop(self, k, readout, params, edges, h0, h, y, products):
        hop = _local_graph(*edges)
        own_y, shared_y = _by_member(y)
        raw = h is not None and (isinstance(h, SparseMatrix) or h.ndim == 2)

        def one(params, mine, shared):
            h0, h, y, products = mine
            x, shared_y = shared
            h, y = x if h is None else h, shared_y if y is None else y
            known = None
            if products is not None:
                own, read = products
                known, h = Products(own, read), _no_features(edges[1].shape[0])
            elif x is not None:
                h = self._apply(params, "readable", x)
            signals = Signals(h if h0 is None else h0, h, y)
            out = self._apply(params, "hop", k, hop, signals, None, None, known)
            return self._read_out(params, out) if readout else out.astype(jnp.float32)

        if self.net.kernel.constant:
            first = params
            if self.members > 1:
                first = jax.tree.map(lambda array: array[0], params)
            h0 = None if h0 is None else self._apply(first, "readable", h0)
            return one(first, (h0, None, None, None), (h, None))
        mine = h0, None if raw else h, own_y, products
        return self._each(one, params, (mine,), ((h if raw else None, shared_y),))

    def _embed(self, params, x):
        return self._apply(params, "embed", x).astype(jnp.float32)

    def _read_out(self, params, h, *more):
        logits = self._apply(params, "readout", h, *more)
        act = jax.nn.sigmoid if self.multilabel else jax.nn.softmax
        return act(logits), h.astype(jnp.float32) if self.with_hidden else None

    def _apply(self, params, method, *arguments):
        return self.net.apply({"params": params}, *arguments, method=method)

    def _each(self, function, params, mine, shared):
        """Apply a function for each member; its results get an axis 1 of members."""
        if self.members == 1:
            mine = jax.tree.map(lambda array: array[:, 0], mine)
            found = function(params, *mine, *shared)
            return jax.tree.map(lambda array: array[:, None], found)
        each = jax.vmap(lambda p, m: function(p, *m, *shared), (0, 1), 1)
        return each(params, mine)


@functools.lru_cache(maxsize=_PROGRAMS_KEPT)
def _programs(*arguments: Any) -> _Programs:
    return _Programs(*arguments)


def _by_member(y):
    """Return summaries [n, views, *] where members read their own, [n, *] where not."""
    if y is None or y.shape[1] > 1:
        return y, None
    return None, y[:, 0]


def _local_graph(indptr, degree, weights) -> HopGraph:
    """Return the edges into R receivers, which R + e sends along edge e."""
    receivers = indptr.shape[0] - 1
    edges = degree.shape[0] - receivers
    senders = receivers + jnp.arange(edges, dtype=jnp.int32)
    if weights is None:
        weights = jnp.ones(edges, jnp.float32)
    graph = jraph.GraphsTuple(
        nodes={"degree": degree},
        edges={"weight": weights},
        senders=senders,
        receivers=row_of_entry(indptr, edges),
        n_node=None,
        n_edge=None,
        globals=None,
    )
    return HopGraph(graph, Rows(indptr, senders), receivers)


def _no_features(count: int) -> SparseMatrix:
    """Return a sparse matrix without entries, where products stand for the features."""
    empty = Rows(jnp.zeros(count + 1, jnp.int32), jnp.zeros(1, jnp.int32))
    return SparseMatrix(empty, jnp.zeros(1, jnp.float32))

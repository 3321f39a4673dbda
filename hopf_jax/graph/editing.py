"""A graph that changes in place, and can be taken back to what it was.

Nodes have *slots*: a node keeps its slot for life, new nodes get the next ones, and the
slot of a node that was dropped stays empty. Ids, 0 to N - 1, are the order of the slots
that are taken.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hopf_jax.graph.changes import Changes, Edges, Schema, read_changes
from hopf_jax.graph.graph import SPLITS, Graph
from hopf_jax.graph.growing import EditableRows, Growing, Journal, Undo
from hopf_jax.graph.labels import Label
from hopf_jax.graph.names import Name, NodeIndex


class Touched(NamedTuple):
    """The slots that a change touched, each sorted.

    Attributes:
      rows: Those that read other nodes, or with other weights, than before; and nodes
        that were dropped.
      new: New nodes.
      revised: Those with other features.
      labelled: Those that became training nodes, with another label, or no longer are.
    """

    rows: np.ndarray
    new: np.ndarray
    revised: np.ndarray
    labelled: np.ndarray


class EditableGraph:
    """A graph that changes in place.

    Args:
      graph: The graph at first.
      labels: C labels as a user calls them.

    Attributes:
      base: The graph at first.
      rows: Whom each slot reads from; `columns`: who reads from it.
      train: [slots] training nodes, `labels` [slots, C].
      num_slots: Number of slots, `num_nodes` of nodes.
    """

    def __init__(self, graph: Graph, labels: tuple[Label, ...]) -> None:
        self.base = graph
        self.schema = _schema_of(graph, labels)
        self.rows = EditableRows(graph.indptr, graph.indices, graph.weights)
        self.columns = self.rows
        if graph.directed:
            back = graph.adjacency.T.tocsr()
            back.sort_indices()
            weights = None if graph.weights is None else back.data
            self.columns = EditableRows(back.indptr, back.indices, weights)
        self.num_slots = self.num_nodes = graph.num_nodes
        self.labels, self.known, self.train, self.validation, self.test = (
            Growing(np.array(getattr(graph, name)))
            for name in ("labels", "known", *SPLITS)
        )
        self._alive = Growing(np.ones(self.num_slots, bool))
        self._source = Growing(np.arange(self.num_slots))  # Rows of features.
        self._blocks: list[Any] = []  # Features besides those of the base.
        self._loops = bool(graph.adjacency.diagonal().any())
        self._called = list(graph.node_names)
        self._place = {name: i for i, name in enumerate(self._called)}

    @property
    def compact(self) -> bool:
        """Whether slots are ids, as no node was dropped yet."""
        return self.num_nodes == self.num_slots

    def slots(self) -> np.ndarray:
        """Return the slots of all nodes, in the order of their ids."""
        return np.flatnonzero(self._alive.array[: self.num_slots])

    def find(self, node: Any, what: str = "node") -> int:
        """Return the slot of a node, by its name or id."""
        if self.schema.named:
            try:
                found = self._place.get(node)
            except TypeError:  # Not hashable.
                found = None
            if found is not None:
                return found
        elif type(node) is int and 0 <= node < self.num_nodes:
            return node if self.compact else int(self.slots()[node])
        # Ids of named nodes, and the message for what is no node.
        slots = self.slots()
        names = [self._called[i] for i in slots] if self.schema.named else ()
        return int(slots[NodeIndex(names, len(slots)).find_one(node, what)])

    def call(self, slots: np.ndarray) -> list[Any]:
        """Return what nodes are called: their names, or else their ids."""
        if self.schema.named:
            return [self._called[i] for i in slots]
        if self.compact:
            return np.asarray(slots).tolist()
        alive = self._alive.array[: self.num_slots]
        return (np.cumsum(alive)[slots] - 1).tolist()

    def names(self) -> tuple[Name, ...]:
        """Return the names of all nodes, or ()."""
        return tuple(self._called[i] for i in self.slots()) if self._called else ()

    def read(self, **changes: Any) -> Changes:
        """Return changes as `read_changes` does, with slots as numbers of nodes."""
        found = read_changes(
            self.schema,
            self.find,
            self._place.__contains__,
            self.num_slots,
            self.num_nodes,
            **changes,
        )
        if self.num_nodes + found.num_new == len(found.dropped):
            raise ValueError("drop names all nodes; a graph has one at least.")
        self._check_removed(found.removed)
        return found

    def apply(self, changes: Changes, journal: Journal) -> Touched:
        """Change the graph, and note in the journal what takes it back."""
        first, count = self.num_slots, self.num_slots + changes.num_new
        gone = []
        if self.schema.named:
            gone = [(self._called[i], i) for i in changes.dropped.tolist()]
        counts = self.num_slots, self.num_nodes, len(self._blocks)
        journal.append(Undo(self, (*counts, gone)))
        self.num_slots = count
        self.num_nodes += changes.num_new - len(changes.dropped)
        tables = self._alive, self._source, self.labels, self.known, self.rows
        for table in (*tables, self.train, self.validation, self.test, self.columns):
            table.reach(count)
        new, dropped = np.arange(first, count), changes.dropped
        self._alive.set(new, True, journal)
        self._alive.set(dropped, False, journal)
        for table in (self.known, self.train, self.validation, self.test):
            table.set(new, False, journal)
        for name, _ in gone:
            del self._place[name]
        self._called += changes.names
        self._place |= {name: first + i for i, name in enumerate(changes.names)}
        for nodes, block in (
            (new, changes.features),
            (changes.revised, changes.revised_features),
        ):
            if len(nodes):
                start = self.base.num_nodes + sum(b.shape[0] for b in self._blocks)
                self._blocks.append(block)
                self._source.set(nodes, start + np.arange(len(nodes)), journal)
        labelled = changes.labelled
        if len(labelled):
            self.labels.set(labelled, changes.labels, journal)
            self.known.set(labelled, changes.known, journal)
            self.train.set(labelled, changes.known, journal)
            self.validation.set(labelled, False, journal)
            self.test.set(labelled, False, journal)
        return Touched(
            self._edit_edges(changes, journal),
            new,
            np.sort(changes.revised),
            np.sort(labelled),
        )

    def restore(
        self,
        num_slots: int,
        num_nodes: int,
        num_blocks: int,
        gone: list[tuple[Name, int]],
    ) -> None:
        """Take back the names and numbers of nodes; the journal does the rest."""
        for name in self._called[num_slots:]:
            del self._place[name]
        del self._called[num_slots:], self._blocks[num_blocks:]
        self._place |= dict(gone)
        self.num_slots, self.num_nodes = num_slots, num_nodes

    def alive(self, slots: np.ndarray) -> np.ndarray:
        """Return those of some slots that are nodes."""
        return slots[self._alive.array[slots]]

    def freeze(self) -> Graph:
        """Return the graph as it is now."""
        slots, base = self.slots(), self.base
        places, lengths = self.rows.entries(slots)
        ids = np.cumsum(self._alive.array[: self.num_slots]) - 1
        values = self.rows.values
        return dataclasses.replace(
            base,
            indptr=np.concatenate([[0], np.cumsum(lengths)]),
            indices=ids[self.rows.columns[places]].astype(base.indices.dtype),
            weights=None if values is None else values[places],
            features=self._features(slots),
            node_names=self.names(),
            **{
                name: getattr(self, name).array[slots]
                for name in ("labels", "known", *SPLITS)
            },
        )

    def _features(self, slots: np.ndarray) -> Any:
        features, source = self.base.features, self._source.array[slots]
        if not self._blocks and self.compact:
            return features
        if sp.issparse(features):
            return sp.csr_array(sp.vstack([features, *self._blocks]).tocsr()[source])
        return np.concatenate([features, *self._blocks])[source]

    def _check_removed(self, edges: Edges) -> None:
        """Raise `ValueError` for an edge that goes and is not there."""
        if not len(edges.senders):
            return
        width = self.num_slots
        rows = np.unique(edges.receivers)
        # New nodes have no edges yet.
        old = rows[rows < width]
        places, lengths = self.rows.entries(old)
        keys = np.repeat(old, lengths) * width + self.rows.columns[places]
        asked = edges.receivers * width + edges.senders
        there = np.isin(asked, keys) & (edges.receivers < width)
        there &= edges.senders < width
        if not there.all():
            at = int(np.argmin(there))
            pair = np.array([edges.senders[at], edges.receivers[at]])
            raise ValueError(
                f"drop_edges[{at}] is {tuple(self.call(pair))}, but there is no such "
                "edge in the graph."
            )

    def _edit_edges(self, changes: Changes, journal: Journal) -> np.ndarray:
        """Remove and add edges; return the rows that changed."""
        width, undirected = self.num_slots, self.rows is self.columns
        senders, receivers = changes.removed.senders, changes.removed.receivers
        gone = [receivers], [senders]
        if undirected:
            gone[0].append(senders)
            gone[1].append(receivers)
        dropped = changes.dropped
        if len(dropped):
            for lists, own, other in ((self.columns, 1, 0), (self.rows, 0, 1)):
                places, lengths = lists.entries(dropped)
                gone[own].append(np.repeat(dropped, lengths))
                gone[other].append(lists.columns[places].astype(np.int64))
        removed = [np.concatenate(ends) for ends in gone]
        added = self._new_entries(changes.added, undirected)
        rows = self.rows.edit(removed, added, width, journal)
        if not undirected:
            back = removed[::-1], (added[1], added[0], added[2])
            self.columns.edit(*back, width, journal)
        if len(added[0]):
            infinite = rows[~np.isfinite(self.rows.sums(rows))]
            if infinite.size:
                raise ValueError(
                    f"The weights of the edges of node {self.call(infinite[:1])[0]!r} "
                    "add up to more than 32-bit floats can hold."
                )
        return rows

    def _new_entries(self, edges: Edges, undirected: bool) -> tuple[np.ndarray, ...]:
        """Return rows, columns and values that added edges make, as `from_edges`."""
        rows, columns, values = edges.receivers, edges.senders, edges.weights
        assert values is not None
        kept = values > 0
        if not self._loops:
            kept &= rows != columns
        width = self.num_slots
        keys, values = (rows * width + columns)[kept], values[kept].astype(float)
        if len(keys) > 1:
            keys, at = np.unique(keys, return_inverse=True)
            values = np.bincount(at, values)
        rows, columns = keys // width, keys % width
        if undirected and len(keys):  # The larger of both directions.
            keys = np.concatenate([keys, columns * width + rows])
            keys, at = np.unique(keys, return_inverse=True)
            largest = np.zeros(len(keys))
            np.maximum.at(largest, at, np.concatenate([values, values]))
            rows, columns, values = keys // width, keys % width, largest
        return rows, columns, values


class ReadEdges:
    """Whom each slot of a graph reads from, as a kernel reads it.

    Args:
      graph: The graph.
      both: Read the edges of a directed graph in both directions: max(A, A^T).

    Attributes:
      rows: Whom a slot reads from; `readers`: who reads from it.
      degree: [slots], the sums of the rows.
    """

    def __init__(self, graph: EditableGraph, both: bool) -> None:
        self._graph = graph
        self._merged = both and graph.rows is not graph.columns
        self.rows, self.readers = graph.rows, graph.columns
        if self._merged:
            given = graph.base.undirected()
            self.rows = EditableRows(given.indptr, given.indices, given.weights)
            self.readers = self.rows
        self.degree = Growing(self.rows.sums(np.arange(graph.num_slots)))

    @classmethod
    def fixed(cls, graph: Graph) -> "ReadEdges":
        """Return the edges of a graph as they are, in this order, for good."""
        own = cls.__new__(cls)
        own._merged = False
        own.rows = EditableRows(graph.indptr, graph.indices, graph.weights)
        back = sp.csr_array(graph.adjacency.T)
        weights = None if graph.weights is None else back.data
        own.readers = EditableRows(back.indptr, back.indices, weights)
        own.degree = Growing(graph.degree)
        return own

    def refresh(self, touched: np.ndarray, journal: Journal) -> np.ndarray:
        """Follow a change of the graph.

        Args:
          touched: The rows of the graph that changed.
          journal: What takes it back.

        Returns:
          The nodes whose rows changed as they are read.
        """
        count = self._graph.num_slots
        self.degree.reach(count)
        if self._merged:
            self.rows.reach(count)
            touched = self._merge(touched, count, journal)
        self.degree.set(touched, self.rows.sums(touched), journal)
        return self._graph.alive(touched)

    def _merge(self, touched: np.ndarray, width: int, journal: Journal) -> np.ndarray:
        """Set rows to the maximum of those of A and of its transpose."""
        sides = self._graph.rows, self._graph.columns
        # Whoever lost or got an edge, at either end.
        ends = [touched]
        for lists in (self.rows, *sides):
            ends.append(lists.columns[lists.entries(touched)[0]])
        rows = np.unique(np.concatenate(ends).astype(np.int64))
        keys, values = [], []
        for lists in sides:
            places, lengths = lists.entries(rows)
            own = np.repeat(np.arange(len(rows)), lengths)
            keys.append(own * width + lists.columns[places])
            if lists.values is not None:
                values.append(lists.values[places])
        found, at = np.unique(np.concatenate(keys), return_inverse=True)
        largest = None
        if values:
            largest = np.zeros(len(found), np.float32)
            np.maximum.at(largest, at, np.concatenate(values))
        counts = np.bincount(found // width, minlength=len(rows))
        self.rows.replace(rows, counts, found % width, largest, journal)
        return rows


def _schema_of(graph: Graph, labels: tuple[Label, ...]) -> Schema:
    return Schema(
        num_features=graph.num_features,
        feature_names=graph.feature_names,
        sparse=sp.issparse(graph.features),
        missing=graph.missing_values,
        positional=graph.positional,
        weighted=graph.weights is not None,
        named=bool(graph.node_names),
        multilabel=graph.multilabel,
        labels=labels,
    )

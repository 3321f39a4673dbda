"""Predictions of a graph that changes: `Result.update` and `Result.predict_new`."""

import dataclasses
import functools
import threading
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hopf_jax.config import Number
from hopf_jax.graph import (
    Changes,
    EditableGraph,
    Graph,
    Journal,
    Label,
    ReadEdges,
    Touched,
    as_graph,
    check_value,
    undo,
)
from hopf_jax.inference import Followed, KeptFeatures, KeptReplay
from hopf_jax.results.explanations import Explanation, Replayed, explain
from hopf_jax.runtime import import_or_explain

if TYPE_CHECKING:
    from hopf_jax.results.result import Result

TOLERANCE = 3e-6
_VISIBLE = 1e-5  # A change of a probability that is reported.
_MOST_CHANGES = 1000  # After which all nodes are predicted again, and memory freed.


@dataclasses.dataclass(frozen=True, repr=False)
class NewNode:
    """The prediction for one node that is not in the graph.

    Attributes:
      label: The predicted label, as in `Result.classes_`; a tuple of labels if nodes
        have several.
      probability: Its probability; None if nodes have several labels.
      probabilities: [C], one for each of `Result.classes_`.
      confidence: [C] the same at the temperature of the calibration, as
        `Result.confidence` has them; None where the result has no calibration.
    """

    label: Any
    probability: float | None
    probabilities: np.ndarray
    confidence: np.ndarray | None

    def __repr__(self) -> str:
        if self.probability is None:
            return f"NewNode({', '.join(map(str, self.label)) or 'no label'})"
        return f"NewNode({self.label}, probability {self.probability:.2f})"


class Update:
    """A graph after changes, with the predictions for it.

    It can be changed again: `update` returns the next one, and leaves this one as it
    is. Names are those of nodes, or ids where nodes have none.

    Attributes:
      changed: Names of the nodes whose probabilities changed by more than 1e-5, and of
        new nodes.
      relabelled: Names of the nodes that are predicted another label than before, and
        of new nodes.
      added: Names of new nodes.
      dropped: Names of nodes that are gone.
      recomputed: Number of nodes for which anything was computed.
      reason: Why all nodes had to be predicted again; "" if they had not.
      num_nodes: Number of nodes, N.
    """

    def __init__(self, followed: "_Followed", about: "_About", step: "_Step") -> None:
        self._followed, self._step = followed, step
        self._fresh: Update | None = None  # Where another version took what was kept.
        self.changed: list[Hashable] = about.changed
        self.relabelled: list[Hashable] = about.relabelled
        self.added: list[Hashable] = about.added
        self.dropped: list[Hashable] = about.dropped
        self.recomputed: int = about.recomputed
        self.reason: str = about.reason
        self.num_nodes: int = about.num_nodes
        self._before: list[Any] = about.before

    def __repr__(self) -> str:
        return (
            f"Update({self.num_nodes} nodes: {len(self.changed)} changed, "
            f"{len(self.relabelled)} relabelled; {self.recomputed} recomputed)"
        )

    @functools.cached_property
    def graph(self) -> Graph:
        """The graph with the changes."""
        return self._followed.graph_of(self)

    @functools.cached_property
    def result(self) -> "Result":
        """The result with the predictions for the graph: the net is the same.

        Its scores and history are those of the graph that was fitted.
        """
        followed = self._followed
        found = dataclasses.replace(
            followed.result,
            probabilities=followed.said_of(self),
            node_names=self.graph.node_names,
            cross_validated=None,
            graph=self.graph,
        )
        found.__dict__["_at"] = self
        return found

    def predict(self, nodes: Any = None) -> np.ndarray:
        """Return labels [n], as `Result.predict` does; `nodes` are names or ids."""
        said = self._followed.said_about(self, nodes)
        if said is None:
            return self.result.predict(nodes)
        result = self._followed.result
        decided = result.decision.decide(said)
        return decided if result.multilabel else result.classes_[decided]

    def predict_proba(self, nodes: Any = None) -> np.ndarray:
        """Return probabilities [n, C], as `Result.predict_proba` does."""
        if nodes is None:  # Without making the whole graph.
            return self._followed.said_of(self)
        said = self._followed.said_about(self, nodes)
        return self.result.predict_proba(nodes) if said is None else said

    def to_frame(self) -> Any:
        """Return a DataFrame of the nodes in `changed`.

        Its columns are those of `Result.to_frame`, and before: the label that was
        predicted until now, None for a new node.
        """
        pd = import_or_explain("pandas", "to_frame")
        frame = self.result.to_frame(self.changed)
        frame.insert(2, "before", pd.Series(self._before, dtype=object))
        return frame

    def update(
        self, *, tolerance: float = TOLERANCE, frozen: bool = False, **changes: Any
    ) -> "Update":
        """Apply further changes; see `Result.update`."""
        check_value(tolerance, "tolerance", Number(0))
        return self._followed.update(self, tolerance, frozen, changes)

    def predict_new(self, features: Any, neighbours: Any = ()) -> NewNode:
        """Predict for one more node; see `Result.predict_new`."""
        return self._followed.predict_new(self, features, neighbours)

    def explain(
        self,
        node: Hashable,
        *,
        label: Label | None = None,
        most_numbers: int | None = None,
    ) -> Explanation:
        """Explain the prediction for a node, as `Result.explain` does.

        Only what the prediction reads is looked at, so this takes no longer in a larger
        graph.

        Args:
          node, label: As in `Result.explain`.
          most_numbers: The largest number of features, of all nodes that are read, with
            which it is attempted; None for any.

        Raises:
          ValueError: Also if there are more numbers.
        """
        return self._followed.explain(self, node, label, most_numbers)

    @property
    def num_edges(self) -> int:
        """Number of entries of A; see `Graph.num_edges`."""
        return self._followed.count_edges(self)


class _About(NamedTuple):
    """What an `Update` tells; see there."""

    changed: list[Any]
    relabelled: list[Any]
    added: list[Any]
    dropped: list[Any]
    recomputed: int
    reason: str
    num_nodes: int
    before: list[Any]


class _Step(NamedTuple):
    """How a version of a graph follows from the one before.

    Attributes:
      before: The version before; None for the first.
      changes: What changed.
      slots: Slots whose output changed, from `old` [n, C] to `new`.
      depth: Number of versions before.
      frozen: Whether label summaries stayed behind.
    """

    before: Update | None
    changes: Changes | None
    slots: np.ndarray
    old: np.ndarray
    new: np.ndarray
    depth: int
    frozen: bool = False


class _Followed:
    """What is kept of a graph and its replay, for the version that was made last."""

    def __init__(self, result: "Result", graph: Graph) -> None:
        # Lazy: it imports this module.
        from hopf_jax.results.result import make_net, readable, with_features

        self.result, self.base = result, graph
        self._lock = threading.RLock()
        self._journal: Journal = []
        self._why = _why_all(result)
        kernel, config = result.kernel, result.config
        result._check_labels(graph)
        read = result._read_features(graph)
        self._nodes = EditableGraph(_with_labels(graph, result), _labels_of(result))
        if self._why:
            seen = readable(with_features(graph, read), kernel, config, result.seed)
            edges = ReadEdges.fixed(seen)
        else:
            edges = ReadEdges(self._nodes, config.directions == "both")
        self._replay = KeptReplay(
            make_net(kernel, config, result.sizes).with_dropout(0.0, 0.0),
            result.weights[: result.iteration],
            config,
            result.multilabel,
            edges,
            KeptFeatures(read),
            graph.num_nodes,
        )
        self._edges = edges
        every, none = np.arange(graph.num_nodes), np.zeros(0, np.int64)
        touched = Touched(every, every, none, none)
        self._follow(touched, 0.0, False, [])
        nothing = np.zeros((0, result.sizes.labels), np.float32)
        about = _About([], [], [], [], graph.num_nodes, "", graph.num_nodes, [])
        step = _Step(None, None, none, nothing, nothing, 0)
        self.at = self.first = Update(self, about, step)
        self.first.__dict__["graph"] = graph

    def update(
        self, at: Update, tolerance: float, frozen: bool, changes: dict[str, Any]
    ) -> Update:
        """Return the version after some changes of version `at`."""
        with self._lock:
            fresh = self._somewhere_else(at, frozen)
            if fresh is not None:
                return fresh.update(tolerance=tolerance, frozen=frozen, **changes)
            read = self._read(changes)
            if self._why and (read.structural or self._why_labels(read)):
                return self._again(read)
            journal: Journal = []
            dropped = self._nodes.call(read.dropped)
            try:
                touched, found = self._apply(read, tolerance, frozen, journal)
            except BaseException:
                undo(journal)
                raise
            self._journal = journal
            self.at = self._made(at, read, touched, found, dropped, frozen)
            return self.at

    def predict_new(self, at: Update, features: Any, neighbours: Any) -> NewNode:
        """Return the prediction for one more node of version `at`."""
        with self._lock:
            fresh = self._somewhere_else(at, at._step.frozen)
            if fresh is not None:
                return fresh.predict_new(features, neighbours)
            named = self._nodes.schema.named
            name: Any = _NEW if named else self._nodes.num_nodes
            pairs: Any = [(other, name) for other in neighbours]
            if isinstance(neighbours, Mapping):
                pairs = [(other, name, weight) for other, weight in neighbours.items()]
            changes = {"add_nodes": {name: features}, "add_edges": pairs}
            read = self._read(changes)
            if self._why:
                said = self._again(read).predict_proba()[-1:]
                return _new_node(self.result, said)
            journal: Journal = []
            try:
                frozen = at._step.frozen
                _, found = self._apply(read, TOLERANCE, frozen, journal, new_only=True)
                said = self.result.decision.correct(found.new[-1:])
            finally:
                undo(journal)
            return _new_node(self.result, said)

    def explain(
        self, at: Update, node: Any, label: Any, most_numbers: int | None
    ) -> Explanation:
        """Explain a prediction of a version."""
        with self._lock:
            fresh = self._somewhere_else(at, at._step.frozen)
            if fresh is not None:
                return fresh.explain(node, label=label, most_numbers=most_numbers)
            near = self._around(self._nodes.find(node), most_numbers)
        return explain(self.result, near, 0, label)

    def _around(self, slot: int, most_numbers: int | None) -> Replayed:
        """Return the neighbourhood of a node, which is the first, as a small graph."""
        net, edges = self._replay.net, self._edges.rows
        found, counts = np.array([slot]), [0, 1]
        for _ in range(net.kernel.reach(net.sizes.num_hops)):
            last = found[counts[-2] : counts[-1]]
            read = np.unique(edges.columns[edges.entries(last)[0]])
            found = np.concatenate([found, np.setdiff1d(read, found)])
            counts.append(len(found))
        width = self._replay.features.width
        if most_numbers is not None and len(found) * width > most_numbers:
            raise ValueError(
                f"The prediction reads {len(found)} nodes with {width} features, too "
                "many to be explained here."
            )
        order = np.argsort(found)
        places, lengths = edges.entries(found)
        at = np.searchsorted(found, edges.columns[places], sorter=order)
        at = order[np.minimum(at, len(found) - 1)]
        # What the farthest nodes read is not followed: of it only their degrees count.
        at[lengths[: counts[-2]].sum() :] = 0
        weights = None
        if edges.values is not None:
            weights = edges.values[places].astype(np.float32)
        count, nothing = len(found), np.zeros(len(found), bool)
        graph = Graph(
            indptr=np.concatenate([[0], np.cumsum(lengths)]),
            indices=at.astype(np.int32),
            weights=weights,
            features=self._replay.features.matrix(found),
            labels=np.zeros((count, self.result.sizes.labels), np.uint8),
            known=nothing,
            train=nothing,
            validation=nothing,
            test=nothing,
            multilabel=self.result.multilabel,
            node_names=tuple(self._nodes.call(found)),
        )
        said = self.result.decision.correct(self._replay.said.array[found])
        return net, graph, self._replay.last_summaries(found), said

    def count_edges(self, at: Update) -> int:
        """Return the number of entries of A of a version."""
        with self._lock:
            if at is self.at:
                return int(self._nodes.rows.lengths(self._nodes.slots()).sum())
        return at.graph.num_edges

    def graph_of(self, at: Update) -> Graph:
        """Return the graph of a version."""
        with self._lock:
            if at is self.at:
                return self._nodes.freeze()
        steps, one = [], at
        while "graph" not in one.__dict__:
            steps.append(one._step.changes)
            assert one._step.before is not None  # The first has its graph.
            one = one._step.before
        if one is not self.first:  # Its ids are not slots.
            while one is not self.first:
                steps.append(one._step.changes)
                assert one._step.before is not None
                one = one._step.before
        nodes = EditableGraph(
            _with_labels(self.base, self.result), _labels_of(self.result)
        )
        for changes in reversed(steps):
            assert changes is not None
            nodes.apply(changes, [])
        return nodes.freeze()

    def said_of(self, at: Update) -> np.ndarray:
        """Return the probabilities [N, C] of a version."""
        with self._lock:
            said = self._replay.said.array.copy()
            down, mine, other = [], at, self.at
            while mine is not other:  # To the version that both come from.
                if mine._step.depth >= other._step.depth:
                    down.append(mine._step)
                    assert mine._step.before is not None
                    mine = mine._step.before
                else:
                    said[other._step.slots] = other._step.old
                    assert other._step.before is not None
                    other = other._step.before
            for step in reversed(down):
                said[step.slots] = step.new
            slots = self._slots_of(at)
        return self.result.decision.correct(said[slots])

    def said_about(self, at: Update, nodes: Any) -> np.ndarray | None:
        """Return the probabilities of listed nodes, if they need no search."""
        with self._lock:
            if at is not self.at or not isinstance(nodes, list | tuple):
                return None
            slots = [
                self._nodes.find(node, f"nodes[{i}]") for i, node in enumerate(nodes)
            ]
            said = self._replay.said.array[np.array(slots, np.int64)]
        return self.result.decision.correct(said)

    def _slots_of(self, at: Update) -> np.ndarray:
        """Return the slots of the nodes of a version, in the order of their ids."""
        if at is self.at:
            return self._nodes.slots()
        gone, count, one = [np.zeros(0, np.int64)], self.base.num_nodes, at
        while one._step.changes is not None:
            gone.append(one._step.changes.dropped)
            count += one._step.changes.num_new
            assert one._step.before is not None
            one = one._step.before
        return np.setdiff1d(np.arange(count), np.concatenate(gone))

    def _somewhere_else(self, at: Update, frozen: bool) -> Update | None:
        """Return an equal version that is kept elsewhere; None if it is kept here.

        What is kept is that of one version. It is taken back to the version before, if
        that is asked for; for others all nodes are predicted again.
        """
        if at._fresh is not None:
            return at._fresh
        if self.at._step.before is at and self._journal:
            undo(self._journal)
            self.at = at
        stale = at._step.frozen and not frozen
        if at is self.at and not stale and at._step.depth < _MOST_CHANGES:
            return None
        at._fresh = _Followed(self.result, at.graph).first
        return at._fresh

    def _read(self, changes: dict[str, Any]) -> Changes:
        read = self._nodes.read(**changes)
        if len(read.labelled):
            mine, known = self._nodes.base.label_names, self.result.label_names
            if mine != known:
                raise ValueError(
                    f"The graph's labels are {', '.join(mine[:5])}, but the model "
                    f"knows {', '.join(known[:5])}. Make the graph with those labels."
                )
        return read

    def _apply(
        self,
        read: Changes,
        tolerance: float,
        frozen: bool,
        journal: Journal,
        new_only: bool = False,
    ) -> tuple[Touched, Followed]:
        """Change what is kept; `journal` takes it back.

        With `new_only` only new nodes are predicted, and it has to be taken back.
        """
        touched = self._nodes.apply(read, journal)
        self._replay.reach(self._nodes.num_slots)
        for slots, rows in (
            (touched.new, read.features),
            (read.revised, read.revised_features),
        ):
            if len(slots):
                self._replay.features.set(slots, self._scaled(rows), journal)
        rows = touched.rows
        if not self._why:
            rows = self._edges.refresh(rows, journal)
        touched = touched._replace(rows=rows)
        only = touched.new if new_only else None
        return touched, self._follow(touched, tolerance, frozen, journal, only)

    def _follow(
        self,
        touched: Touched,
        tolerance: float,
        frozen: bool,
        journal: Journal,
        only: np.ndarray | None = None,
    ) -> Followed:
        nodes = self._nodes
        by_share = self.result.config.caution == "share"
        return self._replay.follow(
            nodes.train.array,
            nodes.labels.array,
            nodes.num_slots,
            **touched._asdict(),
            tolerance=tolerance,
            frozen=frozen,
            journal=journal,
            alive=nodes.slots() if by_share else None,
            only=only,
        )

    def _scaled(self, rows: Any) -> Any:
        """Return features of some nodes as the net reads them."""
        part = dataclasses.replace(self.base, features=rows, positional=False)
        return self.result._read_features(part)

    def _made(
        self,
        at: Update,
        read: Changes,
        touched: Touched,
        found: Followed,
        dropped: list[Any],
        frozen: bool,
    ) -> Update:
        """Return the version that was just made."""
        kept = found.slots
        decision, call = self.result.decision, self._nodes.call
        old, new = (decision.correct(said) for said in (found.old, found.new))
        fresh = np.zeros(len(kept), bool)
        if len(touched.new):
            fresh = kept >= touched.new[0]
        moved = (np.abs(new - old) > _VISIBLE).any(axis=1) | fresh
        before, after = decision.decide(old), decision.decide(new)
        other = before != after
        other = (other.any(axis=1) if other.ndim > 1 else other) | fresh
        about = _About(
            changed=call(kept[moved]),
            relabelled=call(kept[other]),
            added=call(touched.new),
            dropped=dropped,
            recomputed=found.computed,
            reason="",
            num_nodes=self._nodes.num_nodes,
            before=_called_labels(self.result, before[moved], fresh[moved]),
        )
        frozen = at._step.frozen or frozen
        step = _Step(at, read, kept, found.old, found.new, at._step.depth + 1, frozen)
        return Update(self, about, step)

    def _why_labels(self, read: Changes) -> bool:
        """Return whether labels change what nodes read from whom."""
        return bool(self.result.config.ghost_edges and len(read.labelled))

    def _again(self, read: Changes) -> Update:
        """Return the version after changes, with all nodes predicted again."""
        before = self.said_of(self.at)
        slots, journal = self._nodes.slots(), []  # type: tuple[np.ndarray, Journal]
        dropped = self._nodes.call(read.dropped)
        try:
            self._nodes.apply(read, journal)
            graph = self._nodes.freeze()
        finally:
            undo(journal)
        made = _Followed(self.result, graph)
        after = made.said_of(made.first)
        kept = ~np.isin(slots, read.dropped)
        old = np.concatenate([before[kept], np.zeros((read.num_new, after.shape[1]))])
        fresh = np.arange(len(old)) >= len(old) - read.num_new
        moved = (np.abs(after - old) > _VISIBLE).any(axis=1) | fresh
        decide = self.result.decision.decide
        labels = decide(old.astype(np.float32)), decide(after)
        other = (labels[0] != labels[1]).reshape(len(old), -1).any(axis=1) | fresh
        call = graph.node_index.call
        about = _About(
            changed=call(np.flatnonzero(moved)),
            relabelled=call(np.flatnonzero(other)),
            added=call(np.flatnonzero(fresh)),
            dropped=dropped,
            recomputed=graph.num_nodes,
            reason=self._why,
            num_nodes=graph.num_nodes,
            before=_called_labels(self.result, labels[0][moved], fresh[moved]),
        )
        made.at = made.first = Update(made, about, made.first._step)
        made.first.__dict__["graph"] = graph
        return made.first


class _New:
    """What a node is called that gets no name."""

    def __repr__(self) -> str:
        return "the new node"


_NEW = _New()


def start(result: "Result", graph: Graph | None, method: str) -> Update:
    """Return the version of a graph that changes of a result begin from."""
    at: Update | None = result.__dict__.get("_at")
    if graph is None:
        graph = result.graph
        if graph is None:
            raise ValueError(
                "This result was loaded from a file, which holds no graph. Give it: "
                f"result.{method}(..., graph=graph)."
            )
    graph = as_graph(graph)
    if at is None or at.__dict__.get("graph") is not graph:
        at = _Followed(result, graph).first
        result.__dict__["_at"] = at
    return at


def _why_all(result: "Result") -> str:
    """Return why a change of nodes or edges can change any prediction; "" if not."""
    config = result.config
    if config.neighbor_fraction < 1:
        return "neighbor_fraction draws the neighbours of all nodes at once"
    if config.ghost_edges:
        return "ghost_edges link nodes by random walks over the whole graph"
    if result.kernel.aggregate.ordered:
        return "the order of the neighbours is drawn for all nodes at once"
    return ""


def _labels_of(result: "Result") -> tuple[Any, ...]:
    return tuple(result.classes_.tolist())


def _with_labels(graph: Graph, result: "Result") -> Graph:
    """Return a graph without any labels as one that could have the model's."""
    if graph.known.any() or graph.label_names == result.label_names:
        return graph
    return dataclasses.replace(
        graph,
        labels=np.zeros((graph.num_nodes, result.sizes.labels), np.uint8),
        label_names=result.label_names,
        classes=result.classes,
        multilabel=result.multilabel,
    )


def _called_labels(result: "Result", decided: np.ndarray, fresh: Any) -> list[Any]:
    """Return labels as users call them; None for new nodes."""
    if result.multilabel:
        named = [tuple(result.classes_[row > 0].tolist()) for row in decided]
    else:
        named = result.classes_[decided].tolist()
    return [None if new else label for label, new in zip(named, fresh, strict=True)]


def _new_node(result: "Result", said: np.ndarray) -> NewNode:
    """Return the prediction for one node, of its probabilities [1, C]."""
    sure = None if result.calibration is None else result.calibrated(said)[0]
    decided = result.decision.decide(said)
    if result.multilabel:
        label = tuple(result.classes_[decided[0] > 0].tolist())
        return NewNode(label, None, said[0], sure)
    place = int(decided[0])
    label = result.classes_[place : place + 1].tolist()[0]
    return NewNode(label, float(said[0, place]), said[0], sure)

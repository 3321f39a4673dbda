"""A model and a changing graph: the state behind the service."""

import bisect
import contextlib
import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.graph import Graph
from hopf_jax.results import Result, Update, hop_tree
from hopf_jax.serving import messages
from hopf_jax.serving.journal import Journal

_MOST_EXPLAINED = 1 << 24  # Features of all nodes that one prediction reads.
_WARMED = 12  # Number of nodes used to compile programs in advance.
_MOST_NAMED = 1000  # Nodes named in the response to an update.


class RefusedError(Exception):
    """A well-formed request that cannot be fulfilled.

    Attributes:
      status: HTTP status of the response.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Names:
    """The names of the nodes of a graph, in the order of their ids.

    Views share one object as long as nodes are only added; each view knows its own
    number of nodes.

    Args:
      names: The names, or () if nodes have ids only.
    """

    def __init__(self, names: Sequence[Hashable]) -> None:
        self.named, self.listed = bool(names), list(names)
        self.place = {name: i for i, name in enumerate(names)}
        self._order: list[int] | None = None

    def add(self, names: Sequence[Hashable]) -> None:
        """Add the names of new nodes."""
        for name in names if self.named else ():
            at = self.place[name] = len(self.listed)
            self.listed.append(name)
            if self._order is not None:
                bisect.insort(self._order, at, key=self._key)

    def without(self, names: Sequence[Hashable]) -> "Names":
        """Return the names without those of removed nodes."""
        gone = set(names)
        return Names([name for name in self.listed if name not in gone])

    def beginning_with(self, prefix: str, count: int) -> Iterator[int]:
        """Yield ids below `count` of nodes whose names match, sorted by name."""
        order, key = self._order, self._key
        if not self.named:
            order = sorted(range(count), key=key)
        elif order is None:
            order = self._order = sorted(range(len(self.listed)), key=key)
        wanted = prefix.casefold()
        start = bisect.bisect_left(order, wanted, key=key)
        for at in itertools.islice(order, start, None):
            if not key(at).startswith(wanted):
                return
            if at < count:
                yield at

    def _key(self, at: int) -> str:
        return str(self.listed[at] if self.named else at).casefold()


class View:
    """An immutable snapshot of the graph and its predictions between two updates.

    Args:
      result: The model.
      now: The graph with its predictions.
      names: Names of the nodes.
      version: Number of updates so far.
    """

    def __init__(self, result: Result, now: Update, names: Names, version: int) -> None:
        self.result, self.now, self.names, self.version = result, now, names, version
        self.num_nodes, self.num_edges = now.num_nodes, now.num_edges
        # Kept here, because `now` is locked while the next update is computed.
        self._probabilities = now.predict_proba()

    def find(self, name: Any, where: str) -> int:
        """Return the id of the node that a request names.

        Raises:
          RefusedError: There is no such node. No similar name is looked for: that would
            compare with all of them.
        """
        truth = isinstance(name, bool)
        hint = ""
        if self.names.named:
            found = self.names.place.get(_key(name), self.num_nodes)
            # True == 1, but they are different names.
            listed = self.names.listed
            if found < self.num_nodes and isinstance(listed[found], bool) == truth:
                return found
        else:
            if isinstance(name, int) and not truth and 0 <= name < self.num_nodes:
                return name
            hint = f" Give ids, 0 to {self.num_nodes - 1}."
        raise RefusedError(404, f"{where} is not a node of the graph.{hint}")

    def own(self, name: Any, where: str) -> Any:
        """Return the name of a node in the type that the graph uses; see `find`."""
        found = self.find(name, where)
        return self.names.listed[found] if self.names.named else found

    def predict(self, nodes: Sequence[Any], probabilities: bool) -> dict[str, Any]:
        """Return a `PredictResponse`."""
        ids = [self.find(node, f"nodes[{i}]") for i, node in enumerate(nodes)]
        result, said = self.result, self._probabilities[ids]
        sure, decided = result.calibrated(said), result.decision.decide(said)
        classes = result.classes_.tolist()
        labels: list[Any]
        values: list[Any] = [None] * len(ids)
        if result.multilabel:
            labels = [result.classes_[row > 0].tolist() for row in decided]
        else:
            labels = [classes[i] for i in decided.tolist()]
            own = np.take_along_axis(sure, decided[:, None], axis=1)[:, 0]
            values = [_round(value) for value in own.tolist()]
        rows: list[Any] = [None] * len(ids)
        if probabilities or result.multilabel:
            named = list(map(str, classes))
            rows = [
                dict(zip(named, map(_round, row), strict=True)) for row in sure.tolist()
            ]
        return {
            "version": self.version,
            "predictions": [
                {"node": n, "label": y, "confidence": p, "probabilities": row}
                for n, y, p, row in zip(nodes, labels, values, rows, strict=True)
            ],
        }

    def explain(self, node: Any, label: Any, most: int) -> dict[str, Any]:
        """Return an `ExplainResponse`."""
        own = self.own(node, "node")
        try:
            found = self.now.explain(own, label=label, most_numbers=_MOST_EXPLAINED)
        except ValueError as error:
            raise RefusedError(422, str(error)) from None
        places, xy, _ = hop_tree(found, most)
        order = {place: i for i, place in enumerate(places.tolist())}
        share = (found.attributes + found.labels).tolist()
        edges = {
            (order[a], order[b])
            for a, b in found.edges.tolist()
            if a in order and b in order
        }
        return {
            "version": self.version,
            "node": to_json(found.node),
            "label": found.label,
            "confidence": _round(found.probability),
            "shares": [
                {"name": name, "share": _round(value)}
                for name, value in found.shares.items()
            ],
            "features": [
                {"name": column.name, "share": _round(column.share)}
                for column in found.features()
            ],
            "nodes": [
                {
                    "node": to_json(found.names[place]),
                    "hop": int(found.hops[place]),
                    "share": _round(share[place]),
                    "label": found.predictions[place],
                    "x": _round(x),
                    "y": _round(y),
                }
                for place, (x, y) in zip(places.tolist(), xy.tolist(), strict=True)
            ],
            "edges": sorted(edges),
            "left_out": len(found.nodes) - len(places),
        }

    def predict_new(self, asked: messages.PredictNewRequest) -> dict[str, Any]:
        """Return a `PredictNewResponse`."""
        neighbours = {}
        for i, each in enumerate(asked.neighbours):
            neighbours[self.own(each.node, f"neighbours[{i}].node")] = each.weight
        given: Any = neighbours
        if all(weight == 1 for weight in neighbours.values()):
            given = list(neighbours)
        try:
            found = self.now.predict_new(asked.features, given)
        except ValueError as error:
            raise RefusedError(422, str(error)) from None
        several, sure = self.result.multilabel, found.confidence
        classes = self.result.classes_.tolist()
        said = found.probabilities if sure is None else sure
        value = None if several else said[classes.index(found.label)]
        named = zip(map(str, classes), map(_round, said.tolist()), strict=True)
        return {
            "version": self.version,
            "label": list(found.label) if several else _plain(found.label),
            "confidence": None if value is None else _round(float(value)),
            "probabilities": dict(named),
        }

    def search(self, prefix: str, most: int) -> dict[str, Any]:
        """Return a `SearchResponse`."""
        found = self.names.beginning_with(prefix, self.num_nodes)
        return {"nodes": self.call(itertools.islice(found, most))}

    def call(self, ids: Iterable[int]) -> list[Any]:
        """Return the names of nodes as JSON."""
        if not self.names.named:
            return list(ids)
        return [to_json(self.names.listed[at]) for at in ids]


class Live:
    """A model with its graph, which updates change.

    Args:
      result: The model.
      graph: The graph before any update.
      journal: Keeps updates, so that they outlive the process; None to keep none. What
        it holds is applied at once.
      changeable: Accept updates.
    """

    def __init__(
        self,
        result: Result,
        graph: Graph,
        journal: Journal | None = None,
        changeable: bool = True,
    ) -> None:
        if result.calibration is None:
            raise ValueError(
                "The model was saved by an older version, which kept no calibration. "
                "Fit it again."
            )
        self.changeable, self._journal = changeable, journal
        self._graph = graph
        names = Names(graph.node_names)
        self.view = View(result, result.update(graph), names, 0)
        for body in () if journal is None else journal.read():
            try:
                asked = messages.UpdateRequest.model_validate_json(body)
                self.view = self._next(self._change(asked))
            except (ValueError, RefusedError) as error:
                raise ValueError(
                    f"Update {self.view.version + 1} of the journal cannot be made "
                    f"again: {error}. Give the model and the graph that it was begun "
                    "with, and the version of hopf_jax, or another --state."
                ) from error

    def warm_up(self) -> None:
        """Compile programs in advance by explaining and changing some nodes.

        Programs depend on how much a prediction reads: nodes of few edges and of many
        are tried. The changes are not kept.
        """
        graph, view, now = self._graph, self.view, self.view.now
        order = np.argsort(np.diff(graph.indptr), kind="stable")
        tried = order[np.linspace(0, len(order) - 1, _WARMED).astype(int)]
        names = graph.node_index.call(dict.fromkeys(tried.tolist()))
        if view.names.named:  # Some may have been removed.
            names = [name for name in names if name in view.names.place]
        row: Any = graph.features[[0]]
        row = (row.toarray() if sp.issparse(row) else np.asarray(row))[0]
        for i, name in enumerate(names):
            # What fails here is refused to clients in the same way.
            with contextlib.suppress(RefusedError):
                view.explain(to_json(name), None, 1)
            with contextlib.suppress(ValueError):
                now.predict_new(row, names[i : i + 3])
            if self.changeable:
                with contextlib.suppress(ValueError):
                    now.update(labels={name: None})
                    now.update(features={name: row})

    def update(self, asked: messages.UpdateRequest) -> dict[str, Any]:
        """Update the graph and return an `UpdateResponse`.

        Only one thread may call this. Readers see either the old or the new graph.
        """
        version = self.view.version
        if asked.if_version not in (None, version):
            raise RefusedError(
                409, f"The version is {version}, not {asked.if_version}."
            )
        now = self._change(asked)
        if self._journal is not None:
            self._journal.append(asked.model_dump_json(exclude_unset=True).encode())
        self.view = self._next(now)
        return {
            "version": self.view.version,
            "nodes": now.num_nodes,
            "recomputed": now.recomputed,
            "changed": len(now.changed),
            "relabelled": list(map(to_json, now.relabelled[:_MOST_NAMED])),
            "stored": self._journal is not None,
        }

    def _next(self, now: Update) -> View:
        """Return the view after an update."""
        names = self.view.names
        if now.dropped:
            names = names.without(now.dropped)
        names.add(now.added)
        return View(self.view.result, now, names, self.view.version + 1)

    def _change(self, asked: messages.UpdateRequest) -> Update:
        view = self.view
        added = {_key(each.node) for each in asked.add_nodes}

        def known(name: Any, where: str) -> Any:
            """Return a name as the graph has it; refuse it at once if it is unknown."""
            if _key(name) in added:
                return _key(name)
            return view.own(name, where)

        if asked.drop and not view.names.named:
            raise RefusedError(
                422,
                "drop: the nodes of this graph have no names, and without one of them "
                "others would change their ids. Drop its edges.",
            )
        weighted = any("weight" in each.model_fields_set for each in asked.add_edges)
        changes: dict[str, Any] = {
            "add_nodes": {_key(each.node): each.features for each in asked.add_nodes},
            "add_edges": [
                (
                    known(each.source, f"add_edges[{i}].source"),
                    known(each.target, f"add_edges[{i}].target"),
                    *([each.weight] if weighted else []),
                )
                for i, each in enumerate(asked.add_edges)
            ],
            "drop": [known(n, f"drop[{i}]") for i, n in enumerate(asked.drop)],
            "drop_edges": [
                (
                    known(each.source, f"drop_edges[{i}].source"),
                    known(each.target, f"drop_edges[{i}].target"),
                )
                for i, each in enumerate(asked.drop_edges)
            ],
            "labels": {
                known(each.node, f"labels[{i}].node"): each.label
                for i, each in enumerate(asked.labels)
            },
            "features": {
                known(each.node, f"features[{i}].node"): each.features
                for i, each in enumerate(asked.features)
            },
        }
        for name in ("add_nodes", "labels", "features"):
            if len(changes[name]) < len(getattr(asked, name)):
                raise RefusedError(422, f"{name} has a node twice.")
        try:
            return view.now.update(**{k: v for k, v in changes.items() if v})
        except ValueError as error:
            raise RefusedError(422, str(error)) from None

    def health(self) -> dict[str, Any]:
        """Return a `HealthResponse`."""
        view = self.view
        return {
            "status": "ready",
            "model": view.result.model,
            "labels": view.result.classes_.tolist(),
            "nodes": view.num_nodes,
            "edges": view.num_edges,
            "version": view.version,
            "updates": self.changeable,
            "examples": view.call(range(min(3, view.num_nodes))),
        }


def _key(name: Any) -> Hashable:
    """Return a node name in the type that the graph uses."""
    return tuple(name) if isinstance(name, list) else name


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def to_json(name: Hashable) -> Any:
    """Return a node name as JSON: tuples become lists, other types strings."""
    if isinstance(name, tuple):
        return [to_json(part) for part in name]
    return name if isinstance(name, bool | int | float | str) else str(name)


def _round(value: float) -> float:
    """Round to the precision of a prediction, to shorten the response."""
    return round(value, 6)

"""A model on a graph that changes: what a service answers from."""

import bisect
import contextlib
import functools
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.graph import Graph
from hopf_jax.results import Result, Update, explain, hop_tree
from hopf_jax.serving import messages
from hopf_jax.serving.journal import Journal

_MOST_EXPLAINED = 1 << 24  # Features of all nodes that a prediction reads.
_MOST_NAMED = 1000  # Nodes in an answer to an update.


class RefusedError(Exception):
    """A request that is well formed, but cannot be answered.

    Attributes:
      status: The status of the answer.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class View:
    """A graph between two updates, with its predictions; it never changes.

    Args:
      now: The graph and its predictions.
      version: Number of updates before.
    """

    def __init__(self, now: Update, version: int) -> None:
        self.now, self.version = now, version
        self.result, self.graph = now.result, now.graph

    def find(self, name: Any, where: str) -> int:
        """Return the id of a node by what a request calls it.

        Raises:
          RefusedError: There is no such node. No similar name is looked for: that would
            compare with all of them.
        """
        graph = self.graph
        value = _key(name)
        whole = isinstance(name, int) and not isinstance(name, bool)
        if graph.node_names:
            found = graph.node_index.place(value, ids=False)
            # True and 1 are equal, but not the same name.
            if found >= 0 and isinstance(graph.node_names[found], bool) == isinstance(
                value, bool
            ):
                return found
        elif whole and 0 <= name < graph.num_nodes:
            return int(name)
        names = "" if graph.node_names else f" Give ids, 0 to {graph.num_nodes - 1}."
        raise RefusedError(404, f"{where} is not a node of the graph.{names}")

    def call(self, ids: Sequence[int] | np.ndarray) -> list[Any]:
        """Return names of nodes as JSON has them."""
        return [to_json(name) for name in self.graph.node_index.call(ids)]

    def predict(self, nodes: Sequence[Any], probabilities: bool) -> dict[str, Any]:
        """Return a `PredictResponse`."""
        ids = [self.find(node, f"nodes[{i}]") for i, node in enumerate(nodes)]
        result = self.result
        sure = result.confidence(self.graph.node_index.call(ids))
        classes = result.classes_.tolist()
        labels: list[Any]
        values: list[float] | list[None]
        if result.multilabel:
            labels = [result.classes_[row > 0].tolist() for row in sure.decided]
            values = [None] * len(ids)
        else:
            labels = [classes[i] for i in sure.decided.tolist()]
            values = [_round(value) for value in sure.values.tolist()]
        rows: list[Any] = [None] * len(ids)
        if probabilities or result.multilabel:
            named = list(map(str, classes))
            rows = [
                dict(zip(named, map(_round, row), strict=True))
                for row in sure.probabilities.tolist()
            ]
        called = self.call(ids)
        return {
            "version": self.version,
            "predictions": [
                {"node": n, "label": y, "confidence": p, "probabilities": row}
                for n, y, p, row in zip(called, labels, values, rows, strict=True)
            ],
        }

    def explain(self, node: Any, label: Any, most: int) -> dict[str, Any]:
        """Return an `ExplainResponse`."""
        at = self.find(node, "node")
        try:
            found = explain(self.result, self._replayed, at, label, _MOST_EXPLAINED)
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
            at = self.find(each.node, f"neighbours[{i}].node")
            neighbours[self.graph.node_index.call([at])[0]] = each.weight
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
        order, key = self._sorted
        wanted = prefix.casefold()
        start = bisect.bisect_left(order, wanted, key=key)
        ids = [int(i) for i in order[start : start + most]]
        return {"nodes": self.call([i for i in ids if key(i).startswith(wanted)])}

    @functools.cached_property
    def _sorted(self) -> tuple[np.ndarray, Any]:
        """Ids in the order of the names, whatever the case, and that order's key."""
        index = self.graph.node_index

        def key(i: int) -> str:
            return str(index.call([i])[0]).casefold()

        return np.array(sorted(range(self.graph.num_nodes), key=key)), key

    @functools.cached_property
    def _replayed(self) -> Any:
        return self.result._replay(self.graph)


class Live:
    """A model, its graph, and the updates of the graph.

    Args:
      result: The model.
      graph: The graph before all updates.
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
        self.view = View(result.update(graph), 0)
        for body in () if journal is None else journal.read():
            asked = messages.UpdateRequest.model_validate_json(body)
            self.view = View(self._change(asked), self.view.version + 1)

    def warm_up(self) -> None:
        """Explain and change a little, so that no client waits for compilation."""
        graph, now = self.view.graph, self.view.now
        # Of few edges and of many: neighbourhoods of all sizes share few programs.
        order = np.argsort(np.diff(graph.indptr), kind="stable")
        for at in order[[0, len(order) // 2, -1]]:
            name = self.view.call([int(at)])[0]
            # What cannot be done here is refused to clients, too.
            with contextlib.suppress(RefusedError):
                self.view.explain(name, None, 1)
        with contextlib.suppress(ValueError):
            row: Any = graph.features[[0]]
            row = (row.toarray() if sp.issparse(row) else np.asarray(row))[0]
            name = graph.node_index.call([0])[0]
            now.predict_new(row, [name])
            if self.changeable:
                now.update(features={name: row})

    def update(self, asked: messages.UpdateRequest) -> dict[str, Any]:
        """Change the graph, and return an `UpdateResponse`.

        Only one thread may call this. Readers see the graph before or after.
        """
        version = self.view.version
        if asked.if_version not in (None, version):
            raise RefusedError(
                409, f"The version is {version}, not {asked.if_version}."
            )
        now = self._change(asked)
        view = View(now, version + 1)
        if self._journal is not None:
            self._journal.append(asked.model_dump_json(exclude_unset=True).encode())
        self.view = view
        return {
            "version": view.version,
            "nodes": now.num_nodes,
            "recomputed": now.recomputed,
            "changed": len(now.changed),
            "relabelled": list(map(to_json, now.relabelled[:_MOST_NAMED])),
            "stored": self._journal is not None,
        }

    def _change(self, asked: messages.UpdateRequest) -> Update:
        view = self.view
        added = {_key(each.node) for each in asked.add_nodes}

        def known(name: Any, where: str) -> Any:
            """Return a name as the graph has it; refuse it at once if it is unknown."""
            if _key(name) in added:
                return _key(name)
            return view.graph.node_index.call([view.find(name, where)])[0]

        if asked.drop and not view.graph.node_names:
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
            "nodes": view.graph.num_nodes,
            "edges": view.graph.num_edges,
            "version": view.version,
            "updates": self.changeable,
            "examples": view.call(range(min(3, view.graph.num_nodes))),
        }


def _key(name: Any) -> Hashable:
    """Return a name as a graph has it."""
    return tuple(name) if isinstance(name, list) else name


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def to_json(name: Hashable) -> Any:
    """Return a name of a node as JSON has it: a tuple is a list, other things text."""
    if isinstance(name, tuple):
        return [to_json(part) for part in name]
    return name if isinstance(name, bool | int | float | str) else str(name)


def _round(value: float) -> float:
    """Round to what a prediction is good for, and shorten the answer."""
    return round(value, 6)

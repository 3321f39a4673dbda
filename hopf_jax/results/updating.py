"""Predictions of a graph that changes: `Result.update` and `Result.predict_new`."""

import dataclasses
import functools
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hopf_jax.graph import Graph, as_graph, change_graph, read_changes, schema_of
from hopf_jax.runtime import import_or_explain

if TYPE_CHECKING:
    from hopf_jax.results.result import Result


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


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Update:
    """A graph after changes, with the predictions for it.

    It can be changed again: `update` returns the next one, and leaves this one as it
    is. Names are those of nodes, or ids where nodes have none.

    Attributes:
      changed: Names of the nodes whose probabilities changed by more than the
        tolerance, and of new nodes.
      relabelled: Names of the nodes that are predicted another label than before, and
        of new nodes.
      added: Names of new nodes.
      dropped: Names of nodes that are gone.
      recomputed: Number of nodes for which anything was computed.
      reason: Why all nodes had to be recomputed; "" if they had not.
      num_nodes: Number of nodes, N.
    """

    changed: list[Hashable]
    relabelled: list[Hashable]
    added: list[Hashable]
    dropped: list[Hashable]
    recomputed: int
    reason: str
    num_nodes: int
    _result: "Result"
    _graph: Graph
    _before: Any = None

    @functools.cached_property
    def graph(self) -> Graph:
        """The graph with the changes."""
        return self._graph

    @functools.cached_property
    def result(self) -> "Result":
        """The result with the predictions for the graph: the net is the same.

        Its scores and history are those of the graph that was fitted.
        """
        return self._result

    def predict(self, nodes: Any = None) -> np.ndarray:
        """Return labels [n], as `Result.predict` does; `nodes` are names or ids."""
        return self.result.predict(nodes)

    def predict_proba(self, nodes: Any = None) -> np.ndarray:
        """Return probabilities [n, C], as `Result.predict_proba` does."""
        return self.result.predict_proba(nodes)

    def to_frame(self) -> Any:
        """Return a DataFrame of the nodes in `changed`.

        Its columns are those of `Result.to_frame`, and before: the label that was
        predicted until now, None for a new node.
        """
        import_or_explain("pandas", "to_frame")
        frame = self.result.to_frame(self.changed)
        frame.insert(2, "before", [self._before.get(name) for name in self.changed])
        return frame

    def update(self, **changes: Any) -> "Update":
        """Apply further changes; see `Result.update`."""
        return self.result.update(self.graph, **changes)

    def predict_new(self, features: Any, neighbours: Any = ()) -> NewNode:
        """Predict for one more node; see `Result.predict_new`."""
        return predict_new(self.result, self.graph, features, neighbours)


def update(
    result: "Result",
    graph: Graph | None,
    tolerance: float,
    frozen: bool,
    **changes: Any,
) -> Update:
    """Apply changes to a graph; see `Result.update`."""
    graph = _graph_of(result, graph, "update")
    schema = schema_of(graph, tuple(result.classes_.tolist()))
    read = read_changes(
        schema, graph.node_index.find_one, graph.num_nodes, graph.num_nodes, **changes
    )
    new = change_graph(graph, read)
    keep = np.setdiff1d(np.arange(graph.num_nodes), read.dropped)
    before, after = result.predict_proba(graph)[keep], result.predict_proba(new)
    moved = np.abs(after[: len(keep)] - before).max(axis=1) > tolerance
    decided = result.decision.decide(before), result.decision.decide(after)
    fresh = np.ones(read.num_new, bool)
    other = (decided[0] != decided[1][: len(keep)]).reshape(len(keep), -1).any(axis=1)
    call = new.node_index.call
    names = call(range(len(keep)))
    old = dict(zip(names, result.classes_[decided[0]], strict=True))
    return Update(
        changed=call(np.flatnonzero(np.concatenate([moved, fresh]))),
        relabelled=call(np.flatnonzero(np.concatenate([other, fresh]))),
        added=call(range(len(keep), new.num_nodes)),
        dropped=graph.node_index.call(read.dropped),
        recomputed=new.num_nodes,
        reason="every update recomputes all nodes",
        num_nodes=new.num_nodes,
        _result=dataclasses.replace(
            result,
            probabilities=after,
            node_names=new.node_names,
            cross_validated=None,
            graph=new,
        ),
        _graph=new,
        _before=old,
    )


def predict_new(
    result: "Result", graph: Graph | None, features: Any, neighbours: Any
) -> NewNode:
    """Predict for one more node; see `Result.predict_new`."""
    graph = _graph_of(result, graph, "predict_new")
    name: Any = ("a new node",) if graph.node_names else graph.num_nodes
    pairs: Sequence[tuple[Any, ...]]
    if isinstance(neighbours, Mapping):
        pairs = [(other, name, weight) for other, weight in neighbours.items()]
    else:
        pairs = [(other, name) for other in neighbours]
    done = update(
        result, graph, 0.0, False, add_nodes={name: features}, add_edges=pairs or None
    )
    said = done.predict_proba([name])
    sure = None
    if result.calibration is not None:
        sure = done.result.confidence([name]).probabilities[0]
    label = done.predict([name])[0]
    if result.multilabel:
        chosen = tuple(result.classes_[label > 0].tolist())
        return NewNode(chosen, None, said[0], sure)
    place = int(result.decision.decide(said)[0])
    return NewNode(label, float(said[0, place]), said[0], sure)


def _graph_of(result: "Result", graph: Graph | None, method: str) -> Graph:
    graph = result.graph if graph is None else as_graph(graph)
    if graph is None:
        raise ValueError(
            "This result was loaded from a file, which holds no graph. Give it: "
            f"result.{method}(..., graph=graph)."
        )
    return graph

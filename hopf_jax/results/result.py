"""`Result`, which `fit` returns, and the scoring of predictions."""

import dataclasses
import os
from typing import Any

import numpy as np

from hopf_jax.batching import shuffle_neighbors, thin
from hopf_jax.config import Config, Execution
from hopf_jax.graph import (
    SPLITS,
    Graph,
    add_ghost_edges,
    check_ids,
    check_nodes,
    to_array,
)
from hopf_jax.inference import WholeGraph, replay
from hopf_jax.kernels import Kernel, Net, Sizes
from hopf_jax.metrics import f1_scores
from hopf_jax.results.calibration import Calibration, Confidence, soften
from hopf_jax.results.explanations import Explanation, explain
from hopf_jax.runtime import releasing_programs


@dataclasses.dataclass(frozen=True, repr=False)
class Result:
    """A trained kernel with its predictions, scores and history.

    Attributes:
      kernel: The kernel.
      config: Its settings.
      sizes: Its widths.
      seed: The seed of the run.
      multilabel: Several labels per node.
      label_names: C names.
      weights: The weights of each iteration; with a leading axis of members, where
        there are several.
      iteration: The reported iteration (from 1): the last whose validation micro +
        macro F1 is within two standard errors of the best, node by node.
      probabilities: [N, C] for the graph that was fitted, by the reported iteration,
        averaged over earlier ones if `Config.average_labels`.
      scores: {"train" | "validation" | "test": {"micro_f1": ..., "macro_f1": ...}}.
      history: One record per epoch and net: iteration, epoch, train_ and validation_
        loss, micro_f1 and macro_f1, learning_rate, seconds; member, where there are
        several nets, with helpers of cross-fitted summaries after the members.
      iterations: One record per iteration: its scores, epochs and seconds; and from the
        second on summary_f1, how well the label summaries that nodes of each set read
        predict their own labels, by the number of hops (see `results.echo`).
      calibration: The temperature that `confidence` applies; None in a file of the
        first format.
      graph: The graph that was fitted; not saved, so None after `load`.
      execution: How graphs are predicted; of it, the chunk size is saved.
    """

    kernel: Kernel
    config: Config
    sizes: Sizes
    seed: int
    multilabel: bool
    label_names: tuple[str, ...]
    weights: tuple[dict[str, np.ndarray], ...]
    iteration: int
    probabilities: np.ndarray
    scores: dict[str, dict[str, float]]
    history: list[dict[str, float]]
    iterations: list[dict[str, Any]]
    calibration: Calibration | None = None
    graph: Graph | None = None
    execution: Execution = dataclasses.field(default_factory=Execution)

    def __repr__(self) -> str:
        sets = ", ".join(
            f"{name} F1 {100 * s['micro_f1']:.1f} micro {100 * s['macro_f1']:.1f} macro"
            for name, s in self.scores.items()
        )
        return (
            f"Result(iteration {self.iteration} of {len(self.iterations)}, "
            f"{len(self.history)} epochs; {sets})"
        )

    def predict_proba(self, nodes: Any = None) -> np.ndarray:
        """Return probabilities [n, C] of nodes of the fitted graph, or of a new graph.

        Args:
          nodes: Ids or a mask; None for all; or a `Graph` with the same features, on
            which iterations are replayed. The labels of its training nodes, if it
            has any, are used as known.
        """
        if isinstance(nodes, Graph):
            return self._replay(nodes)[-1]
        if nodes is None:
            return self.probabilities
        check = check_nodes if to_array(nodes, "nodes").dtype == bool else check_ids
        return self.probabilities[check(nodes, len(self.probabilities), "nodes")]

    def predict(self, nodes: Any = None) -> np.ndarray:
        """Return class ids [n], or a 0/1 matrix [n, C] if multi-label.

        Args:
          nodes: As in `predict_proba`.
        """
        return decide(self.predict_proba(nodes), self.multilabel)

    def confidence(self, nodes: Any = None) -> Confidence:
        """Return probabilities calibrated on the validation nodes.

        Args:
          nodes: As in `predict_proba`.

        Returns:
          A `Confidence`: `probabilities`, `values` (probability that each prediction is
          right), `temperature`, and the calibration errors `ece_before` and
          `ece_after`.
        """
        if self.calibration is None:
            raise ValueError(
                "This result was saved by an older version, which kept no calibration. "
                "Fit it again."
            )
        said = self.predict_proba(nodes)
        calibrated = soften(said, self.calibration.temperature, self.multilabel)
        return Confidence(calibrated, self.multilabel, self.calibration)

    def explain(
        self, node: int, graph: Graph | None = None, *, label: int | str | None = None
    ) -> Explanation:
        """Explain the prediction for a node by gradients times inputs.

        Iterations are replayed on the graph first.

        Args:
          node: Its id.
          graph: A graph with the same features; None for the graph that was fitted.
          label: Id or name of the label to explain; None for the likeliest.

        Returns:
          An `Explanation`: `shares` of the node's own attributes, of each hop and of
          label summaries; `neighbors()`, the most influential nodes; `plot()`.
        """
        graph = self.graph if graph is None else graph
        if graph is None:
            raise ValueError(
                "This result was loaded from a file, which holds no graph. Give it: "
                "result.explain(node, graph)."
            )
        if not isinstance(node, int | np.integer) or isinstance(node, bool):
            raise ValueError(f"node is {node!r}; give the id of one node.")
        check_ids([node], graph.num_nodes, "node")
        return explain(self, graph, int(node), label)

    @releasing_programs()
    def _replay(self, graph: Graph) -> tuple[Net, Graph, np.ndarray | None, np.ndarray]:
        """Run all iterations up to the reported one on a graph.

        Returns:
          The net, the graph as it reads it, the label summaries that the last iteration
          read, and its output [N, C].
        """
        if graph.num_features != self.sizes.features:
            raise ValueError(
                f"The graph has {graph.num_features} features, but the model learned "
                f"from {self.sizes.features}. Give the same columns."
            )
        if graph.train.any() and graph.num_labels != self.sizes.labels:
            raise ValueError(
                f"The graph's training nodes have {graph.num_labels} labels, but the "
                f"model knows {self.sizes.labels}. Give the same columns, or no split."
            )
        if graph.train.any() and graph.label_names != self.label_names:
            raise ValueError(
                f"The graph's training nodes have labels {_few(graph.label_names)}, "
                f"but the model knows {_few(self.label_names)}. Give the same "
                "label_names in the same order, or no split."
            )
        graph = readable(graph, self.kernel, self.config, self.seed)
        whole = WholeGraph(graph, self.execution.chunk_edges)
        net = make_net(self.kernel, self.config, self.sizes)
        weights = self.weights[: self.iteration]
        found = replay(net, weights, whole, self.config, self.multilabel)
        return net, graph, *found

    def save(self, path: str | os.PathLike) -> None:
        """Save the result in one file, without pickle; `hopf_jax.load` reads it.

        The same run saves the same bytes. In a job of several processes the first
        writes the file.
        """
        # Lazy: it imports this module.
        from hopf_jax.results.serialization import save

        save(self, path)

    def plot(self) -> Any:
        """Return a matplotlib figure: losses by epoch, F1 by iteration."""
        # Lazy: matplotlib is slow to import, and rarely needed.
        from hopf_jax.results import plots

        return plots.plot_result(self.history, self.iterations, self.iteration)


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + ", ..." * (len(names) > 5)


def make_net(kernel: Kernel, config: Config, sizes: Sizes) -> Net:
    """Return the net of a kernel; equal settings share one compilation."""
    settings = config.dropout, config.init_weights, config.bias, config.precision
    dropout = config.dropout_of_summaries if kernel.iterative else 0.0
    return Net(kernel, sizes, *settings, dropout)


def readable(graph: Graph, kernel: Kernel, config: Config, seed: int) -> Graph:
    """Return the graph as a kernel reads it.

    Thinned, with ghost edges, and shuffled where order counts.
    """
    if config.neighbor_fraction < 1:
        graph = thin(graph, config.neighbor_fraction, seed)
    graph = add_ghost_edges(graph, config.ghost_edges)
    return shuffle_neighbors(graph, seed) if kernel.aggregate.ordered else graph


def decide(probabilities: np.ndarray, multilabel: bool) -> np.ndarray:
    """Return class ids [n], or labels above one half as a 0/1 matrix [n, C]."""
    if multilabel:
        return (probabilities > 0.5).astype(np.uint8)
    return probabilities.argmax(axis=1)


def decide_as_scored(
    graph: Graph,
    probabilities: np.ndarray,
    scoring: str,
    nodes: np.ndarray | slice = slice(None),
) -> np.ndarray:
    """Return the 0/1 matrix [n, C] that is compared with the labels of these nodes."""
    if graph.multilabel and scoring == "cardinality":
        return likeliest(probabilities, graph.labels[nodes].sum(axis=1))
    decided = decide(probabilities, graph.multilabel)
    if graph.multilabel:
        return decided
    return np.eye(graph.num_labels, dtype=np.uint8)[decided]


def likeliest(probabilities: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the `counts` [n] likeliest labels of each node as a 0/1 matrix [n, C]."""
    order = np.argsort(-probabilities, axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    return (rank < counts[:, None]).astype(np.uint8)


def score(
    graph: Graph, probabilities: np.ndarray, scoring: str = "threshold"
) -> dict[str, dict[str, float]]:
    """Return the F1 scores of each set that has nodes."""
    decided = decide_as_scored(graph, probabilities, scoring)
    return {
        name: f1_scores(graph.labels[mask], decided[mask])
        for name in SPLITS
        if (mask := getattr(graph, name)).any()
    }


def node_scores(
    graph: Graph, nodes: np.ndarray, probabilities: np.ndarray, scoring: str
) -> np.ndarray:
    """Return the F1 of each node's labels; 1 or 0 where a node has one label."""
    decided = decide_as_scored(graph, probabilities, scoring)[nodes]
    true = graph.labels[nodes]
    hits = np.minimum(decided, true).sum(axis=1, dtype=np.float64)
    named = decided.sum(axis=1, dtype=np.float64) + true.sum(axis=1, dtype=np.float64)
    return np.where(named > 0, 2 * hits / np.maximum(named, 1), 1)

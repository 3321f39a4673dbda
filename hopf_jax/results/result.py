"""`Result`, which `fit` returns."""

import dataclasses
import os
from typing import Any

import numpy as np

from hopf_jax.batching import shuffle_neighbors, thin
from hopf_jax.config import Config, Execution
from hopf_jax.graph import (
    Graph,
    Scaling,
    add_ghost_edges,
    check_ids,
    check_nodes,
    fingerprint,
    match_columns,
    select_columns,
    to_array,
)
from hopf_jax.inference import WholeGraph, replay
from hopf_jax.kernels import Kernel, Net, Sizes
from hopf_jax.results.calibration import Calibration, Confidence, soften
from hopf_jax.results.decisions import Decision
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
        averaged over earlier ones if `Config.average_labels`, and corrected to the
        labels' true shares, unless `Config.metric` is "as-trained".
      scores: {"train" | "validation" | "test": {"micro_f1": ..., "macro_f1": ...}}.
      history: One record per epoch and net: iteration, epoch, train_ and validation_
        loss, micro_f1 and macro_f1 (of the net's own output, whatever
        `Config.metric`), learning_rate, seconds; member, where there are
        several nets, with helpers of cross-fitted summaries after the members.
      iterations: One record per iteration: its scores, epochs and seconds; and from the
        second on summary_f1, how well the label summaries that nodes of each set read
        predict their own labels, by the number of hops (see `results.echo`).
      calibration: The temperature that `confidence` applies; None in a file of the
        first format.
      scaling: How features are scaled before they are read; None if they are read as
        they are.
      feature_names: Names of the columns that were learned from, or ().
      positions: If features were made from the edges, numbers by which they are known.
      decision: The rule that turns the net's output into probabilities and labels.
      choice: The models that `fit` chose from, best first, where none was named: model,
        settings, validation score and loss, seconds.
      graph: The graph that was fitted, with its split; not saved, so None after `load`.
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
    scaling: Scaling | None = None
    feature_names: tuple[str, ...] = ()
    positions: tuple[float, ...] = ()
    decision: Decision = dataclasses.field(default_factory=Decision)
    choice: tuple[dict[str, Any], ...] = ()
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

    def describe(self) -> str:
        """Return a text about the scores and about what was done to the features."""
        features = ["As they are."]
        if self.scaling is not None:
            features = self.scaling.describe()
        scores = repr(self).removeprefix("Result(").removesuffix(")")
        lines = [scores, "features:", *(f"  {line}" for line in features)]
        if self.choice:
            lines.append("models compared, on held-out labels:")
        lines += [
            f"  {each['model']}: {100 * each['score']:.1f}, loss {each['loss']:.3f}"
            for each in self.choice
        ]
        return "\n".join(lines)

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

        `Config.metric` says which score they are chosen for.

        Args:
          nodes: As in `predict_proba`.
        """
        return self.decision.decide(self.predict_proba(nodes))

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
        predicted = self.decision.decide(said)
        return Confidence(calibrated, predicted, self.multilabel, self.calibration)

    def explain(
        self, node: int, graph: Graph | None = None, *, label: int | str | None = None
    ) -> Explanation:
        """Explain the prediction for a node by gradients times inputs.

        Iterations are replayed on the graph first.

        Args:
          node: Its id.
          graph: A graph with the same features; None for the graph that was fitted.
          label: Id or name of the label to explain; None for the predicted one, or the
            likeliest where nodes have several.

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
          read, and probabilities [N, C].
        """
        graph = with_features(graph, self._read_features(graph))
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
        net = make_net(self.kernel, self.config, self.sizes).with_dropout(0.0, 0.0)
        weights = self.weights[: self.iteration]
        read, output = replay(net, weights, whole, self.config, self.multilabel)
        return net, graph, read, self.decision.correct(output)

    def _read_features(self, graph: Graph) -> Any:
        """Return features [N, F] of a graph as the net reads them."""
        self._check_positions(graph)
        features = graph.features
        wanted, given = self.feature_names, graph.feature_names
        if wanted and given and wanted != given:
            read = np.ones(len(wanted), bool)
            if self.scaling is not None:
                read = self.scaling.read
            features = select_columns(features, match_columns(given, wanted, read))
        if self.scaling is not None:
            return self.scaling.apply(features)
        if features.shape[1] != self.sizes.features:
            raise ValueError(
                f"The graph has {features.shape[1]} features, but the model learned "
                f"from {self.sizes.features}. Give the same columns."
            )
        if graph.missing_values:
            raise ValueError(
                "Features have missing values, but the model reads them as they are. "
                "Fill them in."
            )
        return features

    def _check_positions(self, graph: Graph) -> None:
        """Raise `ValueError` for features that mean something else in this graph."""
        if not self.positions:
            if graph.positional:
                raise ValueError(
                    "The graph has no features of its own, but the model learned from "
                    "some. Give the same columns."
                )
            return
        own = fingerprint(graph.features) if graph.positional else ()
        if len(own) != len(self.positions) or not np.allclose(
            own, self.positions, atol=1e-2
        ):
            raise ValueError(
                "The model learned from positions in the graph that was fitted, which "
                "had no features; positions in another graph mean something else. Fit "
                "that graph, or give both graphs features."
            )

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


def with_features(graph: Graph, features: Any) -> Graph:
    """Return the graph with features as nets read them, which have no names."""
    return dataclasses.replace(
        graph, features=features, feature_names=(), missing_values=False
    )


def make_net(kernel: Kernel, config: Config, sizes: Sizes) -> Net:
    """Return the net of a kernel; equal settings share one compilation."""
    settings = config.dropout, config.init_weights, config.bias, config.precision
    dropout = config.dropout_of_summaries if kernel.iterative else 0.0
    return Net(kernel, sizes, *settings, dropout, config.norm)


def readable(graph: Graph, kernel: Kernel, config: Config, seed: int) -> Graph:
    """Return the graph as a kernel reads it.

    In both directions, thinned, with ghost edges, and shuffled where order counts.
    """
    if config.directions == "both":
        graph = graph.undirected()
    if config.neighbor_fraction < 1:
        graph = thin(graph, config.neighbor_fraction, seed)
    graph = add_ghost_edges(graph, config.ghost_edges)
    return shuffle_neighbors(graph, seed) if kernel.aggregate.ordered else graph

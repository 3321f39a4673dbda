"""`Result`, which `fit` returns."""

import dataclasses
import functools
import os
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

import numpy as np

from hopf_jax.batching import shuffle_neighbors, thin
from hopf_jax.config import Config, Execution
from hopf_jax.graph import (
    Graph,
    Label,
    NodeIndex,
    Scaling,
    add_ghost_edges,
    as_graph,
    fingerprint,
    match_columns,
    select_columns,
)
from hopf_jax.inference import WholeGraph, edges_per_chunk, replay
from hopf_jax.kernels import MODELS, Kernel, Net, Sizes
from hopf_jax.results.calibration import Calibration, Confidence, soften
from hopf_jax.results.decisions import Decision
from hopf_jax.results.explanations import Explanation, explain
from hopf_jax.results.report import Report, make_report
from hopf_jax.results.updating import TOLERANCE, NewNode, Update, start
from hopf_jax.runtime import (
    html_lines,
    html_table,
    import_or_explain,
    releasing_programs,
)
from hopf_jax.suggestions import AnsweringTypos


@dataclasses.dataclass(frozen=True, repr=False)
class Result(AnsweringTypos):
    """A trained kernel with its predictions, scores and history.

    Attributes:
      kernel: The kernel.
      config: Its settings.
      sizes: Its widths.
      seed: The seed of the run.
      multilabel: Whether nodes have several labels.
      label_names: C names, as text.
      classes: C labels as they were given, if they were not text; else (). `classes_`
        has the labels in either case.
      node_names: N names of the nodes of the fitted graph, or ().
      cross_validated: With `Config.folds`, the ids [n] of the labelled nodes and their
        probabilities [n, C] by networks trained without their labels; else None.
      weights: The weights of each iteration, with a leading axis if there are several
        networks.
      iteration: The iteration that predicts (from 1): the last whose micro + macro F1
        on validation nodes is within two standard errors of the best.
      probabilities: [N, C] for the fitted graph.
      scores: {"train" | "validation" | "test": {"micro_f1": ..., "macro_f1": ...}}.
      history: One record per epoch and network: iteration, epoch, loss and F1 scores on
        training and validation nodes, learning_rate, seconds; and member, if there are
        several networks.
      iterations: One record per iteration: scores, epochs and seconds; and from the
        second on summary_f1, how well label summaries predict the labels of the nodes
        that read them, by the number of hops (see `results.echo`).
      calibration: The temperature that `confidence` applies; None in a file of the
        first format.
      scaling: How features are scaled; None if they are used as they are.
      feature_names: Names of the columns of the features, or ().
      positions: If features were computed from the edges, a fingerprint of them.
      decision: The rule that turns the network's output into probabilities and labels.
      choice: If `fit` chose the model, one record per candidate, best first: model,
        settings, score and loss on held-out labels, seconds.
      graph: The fitted graph with its split; None after `load`, as it is not saved.
      execution: How graphs are predicted; only the chunk size of it is saved.
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
    classes: tuple[Label, ...] = ()
    node_names: tuple[Hashable, ...] = ()
    cross_validated: tuple[np.ndarray, np.ndarray] | None = None
    graph: Graph | None = None
    execution: Execution = dataclasses.field(default_factory=Execution)

    _CALLED: ClassVar[dict[str, str]] = {
        "score": "scores, or report()",
        "accuracy": "scores, or report()",
        "summary": "report(), or describe()",
        "labels": "predict()",
        "predictions": "to_frame()",
        "features": "feature_names",
    }

    @functools.cached_property
    def classes_(self) -> np.ndarray:
        """Labels as the graph was given them, [C]; the columns of `predict_proba`."""
        own = self.classes or self.label_names
        alike = len({type(label) for label in own}) == 1
        array = np.array(own) if alike else np.array(own, object)
        array.flags.writeable = False
        return array

    @functools.cached_property
    def node_index(self) -> NodeIndex:
        """Finds nodes of the fitted graph by their names or ids."""
        return NodeIndex(self.node_names, len(self.probabilities))

    def __getstate__(self) -> dict[str, Any]:
        # Without what `update` keeps, which is large and holds a lock.
        return {name: v for name, v in self.__dict__.items() if name != "_at"}

    @property
    def model(self) -> str:
        """Name of the kernel in `hopf_jax.MODELS`, or "own kernel"."""
        known = (name for name, kernel in MODELS.items() if kernel == self.kernel)
        return next(known, "own kernel")

    @property
    def read_names(self) -> list[str]:
        """Names of the columns of the features that nets read."""
        if self.scaling is not None:
            return self.scaling.read_names
        if self.feature_names:
            return list(self.feature_names)
        return [f"feature {i}" for i in range(self.sizes.features)]

    def __repr__(self) -> str:
        scores = "".join(f"; {text}" for text in self._score_texts())
        return f"Result({self.model}{self._which_iteration}{scores})"

    @property
    def _accuracy_name(self) -> str:
        # With one label per node micro-F1 is the accuracy.
        return "micro-F1" if self.multilabel else "accuracy"

    @property
    def _which_iteration(self) -> str:
        """Which iteration is reported, as the end of a text; empty if there is one."""
        count = len(self.iterations)
        return f", iteration {self.iteration} of {count}" if count > 1 else ""

    def _score_texts(self) -> list[str]:
        return [
            f"{name}: {self._accuracy_name} {micro}%, macro-F1 {macro}%"
            for name, micro, macro in self._scores()
        ]

    def _scores(self) -> list[tuple[str, str, str]]:
        """Return sets of nodes with micro and macro F1 in percent, the best first."""
        called = {"train": "training", "validation": "validation", "test": "test"}
        if self.cross_validated is not None:
            called["validation"] = "cross-validation"
        found = []
        for name in ("test", "validation", "train"):
            if name in self.scores:
                both = (self.scores[name][m] for m in ("micro_f1", "macro_f1"))
                micro, macro = (f"{100 * score:.1f}" for score in both)
                found.append((called[name], micro, macro))
        return found

    def _repr_html_(self) -> str:
        cells = [("nodes", self._accuracy_name, "macro-F1"), *self._scores()]
        hint = "More: report(), to_frame(), predict(), explain(node), plot(), save()."
        caption = f"{self.model}{self._which_iteration}: scores in percent"
        return html_table(caption, cells) + html_lines([hint])

    def describe(self) -> str:
        """Return a text about the scores and about what was done to the features."""
        features = ["Used as they are."]
        if self.scaling is not None:
            features = self.scaling.describe()
        hops = self.config.num_hops
        lines = [f"model: {self.model}, {hops} hops{self._which_iteration}"]
        lines += [f"  {text}" for text in self._score_texts()]
        lines += ["features:", *(f"  {line}" for line in features)]
        if self.choice:
            lines.append("models compared, by their score on held-out labels:")
        lines += [
            f"  {each['model']}: {100 * each['score']:.1f}%, loss {each['loss']:.3f}"
            for each in self.choice
        ]
        return "\n".join(lines)

    def predict_proba(self, nodes: Any = None) -> np.ndarray:
        """Return probabilities [n, C] of nodes of the fitted graph, or of a new graph.

        Columns are those of `classes_`.

        Args:
          nodes: Names, ids or a mask of nodes; None for all. Or another `Graph` with
            the same features; the labels of its training nodes, if it has any, inform
            the predictions for their neighbours.
        """
        if isinstance(nodes, Graph):
            return self._replay(nodes)[-1]
        if nodes is None:
            return self.probabilities
        return self.probabilities[self.node_index.find(nodes)]

    def predict(self, nodes: Any = None) -> np.ndarray:
        """Return the predicted labels [n], as they were given to the graph.

        They are chosen for the score that `Config.metric` names.

        Args:
          nodes: As in `predict_proba`.

        Returns:
          [n] of `classes_`; if nodes have several labels, a 0/1 matrix [n, C].
        """
        decided = self.decision.decide(self.predict_proba(nodes))
        return decided if self.multilabel else self.classes_[decided]

    def to_frame(self, nodes: Any = None) -> Any:
        """Return predictions as a DataFrame, one row per node.

        Its columns are node (name or id), label, probability (of `predict_proba`),
        confidence (the calibrated probability) and second_choice (the next best label).
        If nodes have several labels: node, label (a tuple), and the calibrated
        probability of each label.

        Args:
          nodes: As in `predict_proba`.
        """
        pd = import_or_explain("pandas", "to_frame")
        if isinstance(nodes, Graph):
            called = nodes.node_index.call(range(nodes.num_nodes))
        else:
            ids = np.arange(len(self.probabilities))
            if nodes is not None:
                ids = self.node_index.find(nodes)
            called = self.node_index.call(ids)
        said = self.predict_proba(nodes)
        sure, decided = self.calibrated(said), self.decision.decide(said)
        columns: dict[str, Any] = {"node": pd.Series(called, dtype=_dtype(called))}
        if self.multilabel:
            rows = [tuple(self.classes_[row > 0].tolist()) for row in decided]
            columns["label"] = pd.Series(rows, dtype=object)
            columns |= dict(zip(self.classes_.tolist(), sure.T, strict=True))
            return pd.DataFrame(columns)
        own = decided[:, None]
        columns["label"] = self.classes_[decided]
        columns["probability"] = np.take_along_axis(said, own, axis=1)[:, 0]
        columns["confidence"] = np.take_along_axis(sure, own, axis=1)[:, 0]
        if len(self.classes_) > 1:
            others = said.copy()
            np.put_along_axis(others, own, -1, axis=1)
            columns["second_choice"] = self.classes_[self.decision.decide(others)]
        return pd.DataFrame(columns)

    def confidence(self, nodes: Any = None) -> Confidence:
        """Return probabilities calibrated on the validation nodes.

        Args:
          nodes: As in `predict_proba`.

        Returns:
          A `Confidence`: `probabilities`, `values` (probability that each prediction is
          right), `temperature`, and the calibration errors `ece_before` and
          `ece_after`.
        """
        said = self.predict_proba(nodes)
        calibrated, decided = self.calibrated(said), self.decision.decide(said)
        assert self.calibration is not None  # Or it could not have been applied.
        return Confidence(
            calibrated, decided, self.multilabel, self.calibration, self.classes_
        )

    def calibrated(self, said: np.ndarray) -> np.ndarray:
        """Return probabilities [n, C] at the temperature of the calibration."""
        if self.calibration is None:
            raise ValueError(
                "This result was saved by an older version, which kept no calibration. "
                "Fit it again."
            )
        return soften(said, self.calibration.temperature, self.multilabel)

    def explain(
        self,
        node: Hashable,
        graph: Graph | None = None,
        *,
        label: Label | None = None,
    ) -> Explanation:
        """Explain the prediction for a node, by gradient times input.

        Args:
          node: Its name or id.
          graph: A graph with the same features; None for the graph that was fitted.
          label: The label to explain, as in `classes_`, or its name; None for the
            predicted one, or the likeliest where nodes have several.

        Returns:
          An `Explanation`: `shares` of the node's own features, of those of other nodes
          by distance, and of labels; `features()`, `neighbors()` and `to_frame()` with
          the most influential features and nodes; `plot()`.
        """
        graph = self.graph if graph is None else graph
        if graph is None:
            raise ValueError(
                "This result was loaded from a file, which holds no graph. Give it: "
                "result.explain(node, graph)."
            )
        graph = as_graph(graph)
        return explain(
            self, self._replay(graph), graph.node_index.find_one(node), label
        )

    def update(
        self,
        graph: Graph | None = None,
        *,
        add_nodes: Any = None,
        add_edges: Any = None,
        drop: Any = None,
        drop_edges: Any = None,
        labels: Any = None,
        features: Any = None,
        tolerance: float = TOLERANCE,
        frozen: bool = False,
    ) -> Update:
        """Change the graph, and update the predictions without training.

        Only predictions that depend on the changes are recomputed; they agree with
        `predict_proba` on the changed graph to 1e-5. The first call predicts all nodes.
        Chain updates: `now = result.update(...)`, then `now = now.update(...)`.

        Nodes without names are given by their ids before the call. New nodes get the
        next ids, and dropping a node moves up those after it.

        Args:
          graph: The graph before the changes; None for the graph of this result.
          add_nodes: New nodes with their features, as the graph was given them, not
            scaled: a DataFrame whose index names them, or a dictionary from names to
            rows, each a dictionary by column, a Series, or F numbers; where nodes have
            no names, also a matrix [n, F].
          add_edges: Pairs of names (source, target), or triples with a weight; or a
            DataFrame of edges. Weights of an edge that exists are added.
          drop: Names of nodes that go, with their edges.
          drop_edges: Pairs of names.
          labels: A dictionary from names to labels, as in `classes_`, for nodes whose
            labels have become known; their neighbours read them. None removes a label.
            If nodes have several labels, lists of them.
          features: A dictionary from names to new features, or a DataFrame, as in
            `add_nodes`.
          tolerance: Changes smaller than this, relative to the usual size of a number,
            are not followed further. 0 follows all.
          frozen: Do not update the labels predicted in earlier iterations, so that
            changes reach `num_hops` hops only.

        Returns:
          An `Update`: `changed` and `relabelled` nodes, `to_frame()`, `predict()`; the
          changed `graph`, and a `result` for it.

        Raises:
          ValueError: A name, a column or a label is unknown; an edge that goes is not
            there; or the model reads positions made from all edges.
        """
        return start(self, graph, "update").update(
            tolerance=tolerance,
            frozen=frozen,
            add_nodes=add_nodes,
            add_edges=add_edges,
            drop=drop,
            drop_edges=drop_edges,
            labels=labels,
            features=features,
        )

    def predict_new(
        self, features: Any, neighbours: Any = (), *, graph: Graph | None = None
    ) -> NewNode:
        """Predict a single node that is not in the graph, without adding it.

        The prediction is the one that `update` would make. The first call predicts all
        nodes; further calls take milliseconds.

        Args:
          features: Its features, as the graph was given them: a dictionary by column, a
            Series, or F numbers.
          neighbours: Names of the nodes that it is linked to, or a dictionary from
            names to weights; in a directed graph, the nodes that it reads from.
          graph: The graph; None for the graph of this result.

        Returns:
          A `NewNode`: `label`, `probability`, `probabilities`, `confidence`.
        """
        return start(self, graph, "predict_new").predict_new(features, neighbours)

    def report(self, graph: Graph | None = None, *, baselines: bool = True) -> Report:
        """Evaluate the result on held-out labels.

        These are the test nodes, if there are any; else all labelled nodes, each
        predicted by networks trained without its label (cross-validation); else the
        validation nodes.

        Args:
          graph: The graph that was fitted, with its labels and its split; needed only
            for a result that was loaded from a file.
          baselines: Compare with the most frequent class, and with a logistic
            regression on each node's own features.

        Returns:
          A `Report` with scores by class, confusion matrix, baselines, scores by
          iteration, calibration, and notes on model, data and features. Print it, or
          show it in a notebook; `plot()` draws it, and `to_frame()` returns the scores.
        """
        graph = self.graph if graph is None else as_graph(graph)
        if graph is None:
            raise ValueError(
                "This result was loaded from a file, which holds no graph. Give it: "
                "result.report(graph)."
            )
        return make_report(self, graph, baselines=baselines)

    def _read_graph(self, graph: Graph) -> Graph:
        """Return a graph with features as the net reads them."""
        return with_features(graph, self._read_features(graph))

    @releasing_programs()
    def _replay(self, graph: Graph) -> tuple[Net, Graph, np.ndarray | None, np.ndarray]:
        """Run all iterations up to the reported one on a graph.

        Returns:
          The net, the graph as it reads it, the label summaries that the last iteration
          read, and probabilities [N, C].
        """
        graph = self._read_graph(graph)
        self._check_labels(graph)
        graph = readable(graph, self.kernel, self.config, self.seed)
        wanted = self.execution.chunk_edges
        chunk_edges = edges_per_chunk(graph, self.config.hidden_size, wanted)
        whole = WholeGraph(graph, chunk_edges)
        net = make_net(self.kernel, self.config, self.sizes).with_dropout(0.0, 0.0)
        weights = self.weights[: self.iteration]
        read, output = replay(net, weights, whole, self.config, self.multilabel)
        return net, graph, read, self.decision.correct(output)

    def _check_labels(self, graph: Graph) -> None:
        """Raise `ValueError` for training nodes with other labels than were learned."""
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
        """Save the result in one file, which `hopf_jax.load` reads; no pickle is used.

        Two runs with equal results save equal bytes. In a job of several processes, the
        first one writes the file.
        """
        # Lazy: it imports this module.
        from hopf_jax.results.serialization import save

        save(self, path)

    def export(
        self,
        folder: str | os.PathLike,
        *,
        platforms: Sequence[str] = ("cpu", "tpu"),
    ) -> None:
        """Export the model as a stand-alone program that needs only jax and numpy.

        The folder gets the program (StableHLO, for graphs of any size), a manifest of
        its inputs and outputs, checksums, an example, and a script `predict.py` that
        runs it. The program takes unscaled features, with columns in their original
        order; scaling, iterations and decisions are part of it. Probabilities agree
        with `predict_proba` to 1e-6.

        Args:
          folder: A new folder, local; it is complete or absent.
          platforms: Where the program is to run: "cpu", "tpu", "cuda", "rocm".

        Raises:
          ValueError: The folder exists; or what the model reads cannot be a program of
            the graph alone: positions, ghost edges, drawn or ordered neighbours.
        """
        # Lazy: jax.export is rarely needed.
        from hopf_jax.results.exporting import export

        export(self, folder, tuple(platforms))

    def plot(self) -> Any:
        """Return a matplotlib figure: losses by epoch, F1 by iteration."""
        # Lazy: matplotlib is slow to import, and rarely needed.
        from hopf_jax.results import plots

        return plots.plot_result(self.history, self.iterations, self.iteration)


def _dtype(values: list[Any]) -> Any:
    """Return the type of a column: object, unless all values are of one plain type."""
    kinds = {type(value) for value in values}
    return None if kinds in ({int}, {str}, {float}) else object


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
    return Net(kernel, sizes, *settings, dropout, config.norm, config.noise)


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

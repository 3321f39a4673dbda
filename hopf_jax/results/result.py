"""`Result`: what `fit` found; predicts, is saved and loaded, and draws itself."""

import dataclasses
import functools
import io
import json
import os
from typing import Any

import jax
import numpy as np

from hopf_jax.batching import shuffle_neighbors, thin
from hopf_jax.config import Config, Execution, config_from_json
from hopf_jax.graph import SPLITS, Graph, check_ids, check_nodes, to_array
from hopf_jax.inference import WholeGraph, replay
from hopf_jax.kernels import (
    Kernel,
    Net,
    Sizes,
    find_kernel,
    kernel_from_json,
    kernel_to_json,
)
from hopf_jax.metrics import f1_scores
from hopf_jax.results import serialization
from hopf_jax.results.calibration import Calibration, Confidence, soften
from hopf_jax.results.explanations import Explanation, explain
from hopf_jax.runtime import is_main, write_atomically

_SECONDS = "seconds"  # Never saved: the same run gives the same bytes.


@dataclasses.dataclass(frozen=True, repr=False)
class Result:
    """What `fit` found.

    Attributes:
      kernel: the model.
      config: its settings.
      sizes: its widths.
      seed: as given.
      multilabel: several labels a node.
      label_names: C names.
      weights: the weights of each iteration.
      iteration: the reported one (from 1): the last whose validation micro + macro F1
        is within two standard errors of the best, node by node.
      probabilities: [N, C] of the graph that was fitted, by the reported iteration:
        averaged over it and those before, as `Config.average_labels` says.
      scores: {"train" | "validation" | "test": {"micro_f1": ..., "macro_f1": ...}}.
      history: a record an epoch: iteration, epoch, train_ and validation_ loss,
        micro_f1 and macro_f1, learning_rate, seconds.
      iterations: a record an iteration: its scores, epochs and seconds.
      calibration: what `confidence` applies; None in a file of an older version.
      graph: the graph that was fitted; not saved, so None after `load`.
      execution: how it was executed, and how graphs are predicted on; not saved.
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
        """Probabilities [n, C] of some nodes of the fitted graph, or of a new graph.

        Args:
          nodes: ids or a mask; None for all; or a `Graph` with the same features, on
            which all iterations are replayed. Its training nodes, if it has any, lend
            their labels.
        """
        if isinstance(nodes, Graph):
            return self._replay(nodes)
        if nodes is None:
            return self.probabilities
        count = len(self.probabilities)
        if to_array(nodes, "nodes").dtype == bool:
            return self.probabilities[check_nodes(nodes, count, "nodes")]
        return self.probabilities[check_ids(nodes, count, "nodes")]

    def predict(self, nodes: Any = None) -> np.ndarray:
        """Class ids [n], or a 0/1 matrix [n, C] of labels, as `predict_proba` takes."""
        return decide(self.predict_proba(nodes), self.multilabel)

    def confidence(self, nodes: Any = None) -> Confidence:
        """Probabilities calibrated on the validation nodes, as `predict_proba` takes.

        Returns:
          A `Confidence`: `probabilities`, `values` (how sure each prediction is),
          `temperature`, and the calibration error `ece_before` and `ece_after` it.
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
        """What the prediction for a node depends on, by gradients times inputs.

        Replays all iterations on the graph first, as predicting on it does.

        Args:
          node: its id.
          graph: with the same features; None for the graph that was fitted.
          label: whose probability to explain, an id or a name; None for the likeliest.

        Returns:
          An `Explanation`: `shares` of the node's own attributes, of each hop's and of
          label summaries; `neighbors()`, the most influential nodes; `plot()`.
        """
        if graph is None:
            graph = self.graph
        if graph is None:
            raise ValueError(
                "This result was loaded from a file, which holds no graph. Give it: "
                "result.explain(node, graph)."
            )
        if not isinstance(node, int | np.integer) or isinstance(node, bool):
            raise ValueError(f"node is {node!r}; give the id of one node.")
        check_ids([node], graph.num_nodes, "node")
        return explain(
            make_net(self.kernel, self.config, self.sizes),
            self.weights[: self.iteration],
            WholeGraph(self._read(graph), self.execution.chunk_edges),
            self.config,
            self.label_names,
            self.multilabel,
            int(node),
            label,
        )

    def _replay(self, graph: Graph) -> np.ndarray:
        whole = WholeGraph(self._read(graph), self.execution.chunk_edges)
        net = make_net(self.kernel, self.config, self.sizes)
        weights = self.weights[: self.iteration]
        return replay(net, weights, whole, self.config, self.multilabel)[1]

    def _read(self, graph: Graph) -> Graph:
        """The graph as the kernel reads it, if it fits the weights."""
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
        return readable(graph, self.kernel, self.config, self.seed)

    def save(self, path: str | os.PathLike) -> None:
        """One file, without pickle; the same run saves the same bytes.

        In a job of several processes the first one writes it, and the others do not.
        """
        if not is_main():
            return
        drop = lambda records: [  # noqa: E731
            {k: v for k, v in r.items() if k != _SECONDS} for r in records
        ]
        meta = {
            "format": serialization.FORMAT,
            "row": kernel_to_json(self.kernel),
            "config": dataclasses.asdict(self.config),
            "sizes": dataclasses.asdict(self.sizes),
            "seed": self.seed,
            "multilabel": self.multilabel,
            "label_names": self.label_names,
            "iteration": self.iteration,
            "scores": self.scores,
            "history": drop(self.history),
            "iterations": drop(self.iterations),
            "calibration": self.calibration and dataclasses.asdict(self.calibration),
        }
        text = json.dumps(meta).encode()  # In the order of the fields, which is fixed.
        arrays: dict[str, Any] = {"meta": np.frombuffer(text, np.uint8)}
        arrays["probabilities"] = self.probabilities
        for t, params in enumerate(self.weights, start=1):
            for name in sorted(params):
                arrays[f"{t}/{name}"] = np.asarray(params[name])
        memory = io.BytesIO()
        np.savez(memory, **arrays)
        write_atomically(path, memory.getvalue())

    def plot(self) -> Any:
        """A matplotlib figure, shown by notebooks: losses by epoch, F1 by iteration."""
        # Drawing is for those who ask: matplotlib is half a second of import.
        from hopf_jax.results import plots

        return plots.plot_result(self.history, self.iterations, self.iteration)


def load(path: str | os.PathLike, kernel: str | Kernel | None = None) -> Result:
    """A result saved with `Result.save`.

    Args:
      path: the file.
      kernel: needed only where the saved kernel has an aggregate of the user's own.
    """
    try:
        meta, arrays = serialization.read(path)
        probabilities = arrays.pop("probabilities")
        kept = meta.get("calibration")
        calibration = None if kept is None else Calibration(**kept)
        weights: list[dict[str, np.ndarray]] = [{} for _ in meta["iterations"]]
        for name, array in arrays.items():
            number, part = name.split("/")
            weights[range(1, len(weights) + 1).index(int(number))][part] = array
        config, sizes = config_from_json(meta["config"]), Sizes(**meta["sizes"])
        if kernel is None:  # Whatever its aggregate, which is looked up below.
            kernel_from_json(meta["row"] | {"aggregate": "mean"})
        serialization.check(meta, sizes, config, probabilities)
    except FileNotFoundError:
        raise
    except serialization.UNREADABLE as error:
        raise ValueError(
            f"{os.fspath(path)} is not a result saved by this library: {error}."
        ) from error
    saved = kernel_from_json(meta["row"]) if kernel is None else find_kernel(kernel)
    wanted = weight_shapes(make_net(saved, config, sizes))
    for t, params in enumerate(weights, start=1):
        found = {name: array.shape for name, array in params.items()}
        sound = all(serialization.is_float32(array) for array in params.values())
        if found != wanted or not sound:
            raise ValueError(
                f"{os.fspath(path)} holds weights {found} of iteration {t}, but its "
                f"kernel has {wanted}. The file is damaged, or kernel= is not the one "
                "that was saved in it."
            )
    return Result(
        kernel=saved,
        config=config,
        sizes=sizes,
        seed=meta["seed"],
        multilabel=meta["multilabel"],
        label_names=tuple(meta["label_names"]),
        weights=tuple(weights),
        iteration=meta["iteration"],
        probabilities=probabilities,
        scores=meta["scores"],
        history=meta["history"],
        iterations=meta["iterations"],
        calibration=calibration,
    )


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def make_net(kernel: Kernel, config: Config, sizes: Sizes) -> Net:
    """The net of a kernel; equal settings give equal nets, and one compilation."""
    settings = config.dropout, config.init_weights, config.bias, config.precision
    return Net(kernel, sizes, *settings)


def weight_shapes(net: Net) -> dict[str, tuple[int, ...]]:
    """The shape of every weight of a net, by name."""
    declare = functools.partial(net.init, method="declare")
    params = jax.eval_shape(declare, jax.random.key(0))["params"]
    return {name: leaf.shape for name, leaf in params.items()}


def readable(graph: Graph, kernel: Kernel, config: Config, seed: int) -> Graph:
    """The graph as this kernel reads it: thinned, shuffled where order counts."""
    if config.neighbor_fraction < 1:
        graph = thin(graph, config.neighbor_fraction, seed)
    return shuffle_neighbors(graph, seed) if kernel.aggregate.ordered else graph


def decide(probabilities: np.ndarray, multilabel: bool) -> np.ndarray:
    """Class ids [n], or labels above one half as a 0/1 matrix [n, C]."""
    if multilabel:
        return (probabilities > 0.5).astype(np.uint8)
    return probabilities.argmax(axis=1)


def score(
    graph: Graph, probabilities: np.ndarray, scoring: str = "threshold"
) -> dict[str, dict[str, float]]:
    """F1 scores of each set that has nodes."""
    decided = decide_as_scored(graph, probabilities, scoring)
    return {
        name: f1_scores(graph.labels[mask], decided[mask])
        for name in SPLITS
        if (mask := getattr(graph, name)).any()
    }


def node_scores(
    graph: Graph, nodes: np.ndarray, probabilities: np.ndarray, scoring: str
) -> np.ndarray:
    """F1 of the labels of each of these nodes; 1 or 0 where a node has one label."""
    decided, true = (
        decide_as_scored(graph, probabilities, scoring)[nodes],
        graph.labels[nodes],
    )
    hits = np.minimum(decided, true).sum(axis=1, dtype=np.float64)
    named = decided.sum(axis=1, dtype=np.float64) + true.sum(axis=1, dtype=np.float64)
    return np.where(named > 0, 2 * hits / np.maximum(named, 1), 1)


def decide_as_scored(
    graph: Graph, probabilities: np.ndarray, scoring: str
) -> np.ndarray:
    """The 0/1 matrix [N, C] that `score` compares with the labels of the graph."""
    if graph.multilabel and scoring == "cardinality":
        return likeliest(probabilities, graph.labels.sum(axis=1))
    decided = decide(probabilities, graph.multilabel)
    if graph.multilabel:
        return decided
    return np.eye(graph.num_labels, dtype=np.uint8)[decided]


def likeliest(probabilities: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """So many of the likeliest labels of each node, as a 0/1 matrix [n, C]."""
    order = np.argsort(-probabilities, axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    return (rank < counts[:, None]).astype(np.uint8)

"""`Report`: how good a result is, on labels that no net learned from."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hopf_jax.graph import Graph, stratified_folds
from hopf_jax.learning import BASELINES
from hopf_jax.metrics import f1_scores
from hopf_jax.results.calibration import calibration_error
from hopf_jax.results.decisions import Decision, decide_as_scored
from hopf_jax.runtime import html_lines, html_table, import_or_explain, text_table

if TYPE_CHECKING:
    from hopf_jax.results.result import Result

_BASELINES = ("majority", "logistic regression")
_CALLED = {
    "majority": "most frequent class",
    "logistic regression": "logistic regression on features",
}
_INNER_FOLDS = 5  # One of them tunes a baseline, where there are no validation nodes.
_LEAST_TO_TUNE = 10  # Labels that a baseline needs to be tuned.
_MOST_WORK = 4e10  # Number of fits times entries of the features that each reads.
_FITS = 6  # Of a logistic regression that is tuned.
_MOST_SHOWN = 20  # Classes in the confusion matrix of a text.
_BINS = 10  # Of the reliability diagram.

_SETS = {
    "test": "test nodes",
    "cross-validated": "labelled nodes, each predicted by networks that were trained "
    "without its label (cross-validation)",
    "validation": "validation nodes. Their labels also decided when training stopped, "
    "so the scores may be a little too high: keep test nodes for a fair figure",
}


class ClassScore(NamedTuple):
    """Scores of one class, from 0 to 1, and numbers of nodes."""

    label: Any
    precision: float
    recall: float
    f1: float
    support: int  # Number of nodes that have the label.
    predicted: int  # Number of nodes that it is predicted for.


class Bin(NamedTuple):
    """Predictions of about the same confidence."""

    confidence: float  # Mean.
    accuracy: float  # Share that is right.
    size: int  # Number of predictions.


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Report:
    """How good a result is; text in a terminal, HTML in a notebook.

    Attributes:
      on: What it is about: "test", "cross-validated" or "validation" nodes.
      nodes: [n] their ids.
      classes: [C] labels, as in `Result.classes_`.
      true, decided: [n, C] labels and predictions, 0 and 1.
      probabilities: [n, C] calibrated.
      calibration_errors: Expected calibration errors before and after calibration; the
        latter None if there was too little to calibrate by.
      multilabel: Several labels per node.
      baselines: {method: {"micro_f1": ..., "macro_f1": ...}} on the same nodes.
      iterations: One record per iteration: iteration, micro_f1, macro_f1.
      iteration: The reported iteration.
      notes: What was done, in sentences.
    """

    on: str
    nodes: np.ndarray
    classes: np.ndarray
    true: np.ndarray
    decided: np.ndarray
    probabilities: np.ndarray
    calibration_errors: tuple[float, float | None]
    multilabel: bool
    baselines: dict[str, dict[str, float]]
    iterations: list[dict[str, float]]
    iteration: int
    notes: list[str]

    @functools.cached_property
    def scores(self) -> dict[str, float]:
        """Micro and macro F1; micro-F1 is the accuracy if nodes have one label each."""
        return f1_scores(self.true, self.decided)

    @property
    def comparison(self) -> dict[str, dict[str, float]]:
        """Scores of this model and of the baselines, by what they are."""
        named = {_CALLED.get(name, name): s for name, s in self.baselines.items()}
        return {"this model": self.scores, **named}

    @functools.cached_property
    def by_class(self) -> list[ClassScore]:
        """Precision, recall, F1 and support of each class."""
        hits = np.minimum(self.true, self.decided).sum(axis=0, dtype=np.int64)
        support = self.true.sum(axis=0, dtype=np.int64)
        predicted = self.decided.sum(axis=0, dtype=np.int64)

        def share(of: np.ndarray) -> np.ndarray:
            return hits / np.maximum(of, 1)

        f1 = 2 * hits / np.maximum(support + predicted, 1)
        columns = share(predicted), share(support), f1, support, predicted
        return [
            ClassScore(label, *(column[i].item() for column in columns))
            for i, label in enumerate(self.classes.tolist())
        ]

    @functools.cached_property
    def confusion(self) -> np.ndarray | None:
        """[C, C] numbers of nodes: true labels by row, predictions by column.

        None if nodes have several labels.
        """
        if self.multilabel:
            return None
        return self.true.T.astype(np.int64) @ self.decided.astype(np.int64)

    @property
    def reliability(self) -> list[Bin]:
        """Confidence and accuracy of predictions, in bins of their confidence."""
        said, true = self.probabilities, self.true.astype(bool)
        if self.multilabel:
            sure, right = said.ravel(), true.ravel()
        else:
            chosen = self.decided.astype(bool)
            sure, right = said[chosen], true[chosen]
        bins = np.clip(np.ceil(sure * _BINS).astype(np.int64) - 1, 0, _BINS - 1)
        counts = np.bincount(bins, minlength=_BINS)
        means = np.bincount(bins, sure, _BINS), np.bincount(bins, right, _BINS)
        return [
            Bin._make((*(float(m[i] / counts[i]) for m in means), int(counts[i])))
            for i in np.flatnonzero(counts)
        ]

    def to_frame(self) -> Any:
        """Return the scores of each class as a DataFrame, indexed by label."""
        pd = import_or_explain("pandas", "to_frame")
        frame = pd.DataFrame(self.by_class, columns=ClassScore._fields)
        return frame.set_index("label")

    def plot(self) -> Any:
        """Return a matplotlib figure.

        F1 by class, the confusion matrix, confidence against accuracy, and the
        comparison with simple methods.
        """
        # Lazy: matplotlib is slow to import.
        from hopf_jax.results import plots

        return plots.plot_report(self)

    def __repr__(self) -> str:
        lines = [self._caption()]
        for caption, cells in self._tables():
            lines += ["", caption, text_table(cells)]
        return "\n".join([*lines, "", *self.notes])

    def _repr_html_(self) -> str:
        tables = [html_table(caption, cells) for caption, cells in self._tables()]
        return "".join([html_lines([self._caption()]), *tables, html_lines(self.notes)])

    def _caption(self) -> str:
        micro, macro = (_percent(self.scores[n]) for n in ("micro_f1", "macro_f1"))
        what = self._micro[0].upper() + self._micro[1:]
        return (
            f"{what} {micro}%, macro-F1 {macro}% on {len(self.nodes)} {_SETS[self.on]}."
        )

    @property
    def _micro(self) -> str:
        return "micro-F1" if self.multilabel else "accuracy"

    def _tables(self) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
        yield "Scores by class, in percent", self._class_cells()
        confused = self._confusion_cells()
        if confused:
            yield "Confusion matrix (rows: true label, columns: predicted)", confused
        yield "Compared with simple methods, in percent", self._comparison_cells()
        if len(self.iterations) > 1:
            yield "Score by iteration, in percent", self._iteration_cells()
        before, after = self.calibration_errors
        yield (
            "Calibration: mean gap between confidence and accuracy, in percent",
            [
                ("probabilities", "gap"),
                ("predict_proba()", _percent(before)),
                ("confidence()", "-" if after is None else _percent(after)),
            ],
        )

    def _class_cells(self) -> list[tuple[str, ...]]:
        cells: list[tuple[str, ...]] = [
            ("class", "precision", "recall", "F1", "support")
        ]
        for each in self.by_class:
            shares = map(_percent, (each.precision, each.recall, each.f1))
            cells.append((str(each.label), *shares, str(each.support)))
        return cells

    def _confusion_cells(self) -> list[tuple[str, ...]]:
        if self.confusion is None or len(self.classes) > _MOST_SHOWN:
            return []
        names = [str(label) for label in self.classes.tolist()]
        rows = zip(names, self.confusion.tolist(), strict=True)
        return [("", *names), *((name, *map(str, row)) for name, row in rows)]

    def _comparison_cells(self) -> list[tuple[str, ...]]:
        cells: list[tuple[str, ...]] = [("method", self._micro, "macro-F1")]
        for name, scores in self.comparison.items():
            both = (_percent(scores[n]) for n in ("micro_f1", "macro_f1"))
            cells.append((name, *both))
        return cells

    def _iteration_cells(self) -> list[tuple[str, ...]]:
        cells: list[tuple[str, ...]] = [("iteration", self._micro, "macro-F1")]
        for record in self.iterations:
            reported = " (used)" * (record["iteration"] == self.iteration)
            name = f"{record['iteration']}{reported}"
            pair = (_percent(record[n]) for n in ("micro_f1", "macro_f1"))
            cells.append((name, *pair))
        return cells


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def make_report(result: "Result", graph: Graph, *, baselines: bool = True) -> Report:
    """Return a report on the graph that was fitted; see `Result.report`."""
    if graph.num_nodes != len(result.probabilities):
        raise ValueError(
            f"The graph has {graph.num_nodes} nodes, but {len(result.probabilities)} "
            "were fitted. A report is about the graph that was fitted, with its labels."
        )
    on, nodes, said = _held_out(result, graph)
    decision, scoring = result.decision, result.config.scoring
    record = "test" if on == "test" else "validation"
    before = calibration_error(said, graph.labels[nodes], result.multilabel)
    sure, after = said, None
    if result.calibration is not None:
        # Cross-validated, unlike the error of what the temperature was fitted to.
        sure, after = result.calibrated(said), result.calibration.ece_after[record]
    notes = _notes(result, graph)
    found: dict[str, dict[str, float]] = {}
    if baselines:
        found, remark = _compare(result, graph, on, nodes)
        notes += [remark] if remark else []
    return Report(
        on=on,
        nodes=nodes,
        classes=result.classes_,
        true=graph.labels[nodes],
        decided=decide_as_scored(graph, said, scoring, nodes, decision),
        probabilities=sure,
        calibration_errors=(before, after),
        multilabel=result.multilabel,
        baselines=found,
        iterations=[
            {"iteration": each["iteration"]} | each["scores"][record]
            for each in result.iterations
            if record in each["scores"]
        ],
        iteration=result.iteration,
        notes=notes,
    )


def _held_out(result: "Result", graph: Graph) -> tuple[str, np.ndarray, np.ndarray]:
    """Return a kind of nodes, their ids [n] and their probabilities [n, C]."""
    for name in ("test", "validation"):
        if name == "validation" and result.cross_validated is not None:
            nodes, said = result.cross_validated
            if not graph.known[nodes].all():
                break
            return "cross-validated", nodes, said
        nodes = np.flatnonzero(getattr(graph, name))
        if nodes.size:
            return name, nodes, result.probabilities[nodes]
    raise ValueError(
        "The graph lacks the labels that were held out. Give the graph that was "
        "fitted, with its labels and its split: result.report(graph)."
    )


def _notes(result: "Result", graph: Graph) -> list[str]:
    """Return sentences about the model, the split and the features."""
    hops = result.config.num_hops
    model = f"Model: {result.model} with {hops} hop{'s' * (hops != 1)}"
    model += result._which_iteration
    if result.choice:
        listed = ", ".join(
            f"{each['model']} {_percent(each['score'])}" for each in result.choice
        )
        model += f". Chosen by score and loss on held-out labels; scores: {listed}"
    sets = [
        f"{int(mask.sum())} {'training' if name == 'train' else name}"
        for name in ("train", "validation", "test")
        if (mask := getattr(graph, name)).any()
    ]
    split = f"Data: {graph.num_nodes} nodes, of which {', '.join(sets) or 'none'}."
    folds = result.config.folds
    if folds:
        split += (
            f" The training nodes were divided into {folds} parts, and for each part a "
            "network was trained on the others; the average of these networks predicts."
        )
    features = ["Used as they are."]
    if result.scaling is not None:
        features = result.scaling.describe()
    return [f"{model}.", split, f"Features: {' '.join(features)}"]


def _compare(
    result: "Result", graph: Graph, on: str, nodes: np.ndarray
) -> tuple[dict[str, dict[str, float]], str]:
    """Return scores of simple methods on the same nodes, and a remark or ""."""
    read = result._read_graph(graph)
    shown = graph.train | graph.validation if on == "test" else graph.train
    known, folds = np.zeros(graph.num_nodes, bool), [(shown, nodes)]
    if on == "cross-validated":
        known[nodes] = True
        count = min(_INNER_FOLDS, len(nodes))
        parts = stratified_folds(graph, known, count, result.seed)
        folds = [
            (known & (parts != part), np.flatnonzero(parts == part))
            for part in range(count)
        ]
    remark, methods = "", list(_BASELINES)
    entries = read.features.nnz if hasattr(read.features, "nnz") else read.features.size
    columns = graph.num_labels if graph.multilabel else 1
    share = shown.sum() / graph.num_nodes
    if len(folds) * _FITS * columns * entries * share > _MOST_WORK:
        methods.remove("logistic regression")
        remark = "Logistic regression was left out: it would take long on this graph."
    scores = {}
    for method in methods:
        said = np.zeros((graph.num_nodes, graph.num_labels), np.float32)
        for learned, held in folds:
            inner = _with_inner_split(read, learned, result.seed)
            said[held] = BASELINES[method](inner)[held]
        rule = Decision(multilabel=graph.multilabel)
        decided = decide_as_scored(graph, said[nodes], "threshold", nodes, rule)
        scores[method] = f1_scores(graph.labels[nodes], decided)
    return scores, remark


def _with_inner_split(graph: Graph, learned: np.ndarray, seed: int) -> Graph:
    """Return the graph with nodes to learn from as training and validation nodes."""
    own = graph.validation & learned
    if own.any():
        return graph.with_split(learned & ~own, own)
    if learned.sum() < _LEAST_TO_TUNE:  # All of them, for both.
        none = np.zeros_like(learned)
        return dataclasses.replace(graph, train=learned, validation=learned, test=none)
    own = stratified_folds(graph, learned, _INNER_FOLDS, seed) == 0
    return graph.with_split(learned & ~own, own)

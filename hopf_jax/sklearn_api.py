"""`HOPFClassifier`: the models as a scikit-learn estimator."""

import dataclasses
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import (
    check_array,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from hopf_jax.config import Config, Execution
from hopf_jax.fitting import fit
from hopf_jax.graph import Graph, check_ids
from hopf_jax.kernels import DEFAULT_MODEL, Kernel


class HOPFClassifier(ClassifierMixin, BaseEstimator):
    """A model as a scikit-learn classifier: clonable, searchable, in a pipeline.

    With a graph, X are **node ids**, [n] or [n, 1], and y their labels. The whole graph
    is seen, but only the labels of the nodes given to `fit`: any split of ids by
    `GridSearchCV` or `cross_val_score` is a fair one. Labels that the graph itself
    holds are not read.

        search = GridSearchCV(
            HOPFClassifier(graph), {"model": ["gcn", "nip-mean"], "num_hops": [1, 2]}
        )
        search.fit(ids, labels).predict(other_ids)

    Without a graph, X are features [n, F] of nodes that have no neighbours.

    Args:
      graph: a `Graph`, or None. Clones share it.
      model: a name from `hopf_jax.MODELS`, or a `Kernel`.
      num_hops, hidden_size, num_iterations, learning_rate, l2, dropout, max_epochs: as
        in `Config`; None leaves what `config` says.
      config: all other settings; the defaults if None.
      execution: memory, chunk size and devices; the defaults if None.
      validation_fraction: of the nodes given to `fit`, held out of each class to stop
        and choose by. Above 0, below 1; at least one node.
      random_state: a seed, a RandomState, or None for another one every time.

    Attributes:
      classes_: the labels seen, sorted; the columns of `predict_proba`.
      result_: the `Result` of `fit`.
      n_features_in_: columns of X.
      n_iter_: epochs.
    """

    def __init__(
        self,
        graph: Graph | None = None,
        model: str | Kernel = DEFAULT_MODEL,
        *,
        num_hops: int | None = None,
        hidden_size: int | None = None,
        num_iterations: int | None = None,
        learning_rate: float | None = None,
        l2: float | None = None,
        dropout: float | None = None,
        max_epochs: int | None = None,
        config: Config | None = None,
        execution: Execution | None = None,
        validation_fraction: float = 0.2,
        random_state: int | np.random.RandomState | None = 0,
    ):
        self.graph = graph
        self.model = model
        self.num_hops = num_hops
        self.hidden_size = hidden_size
        self.num_iterations = num_iterations
        self.learning_rate = learning_rate
        self.l2 = l2
        self.dropout = dropout
        self.max_epochs = max_epochs
        self.config = config
        self.execution = execution
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from these nodes and their labels.

        Args:
          X: node ids [n] or [n, 1]; without a graph, features [n, F].
          y: labels [n], or a 0/1 matrix [n, C] of several labels a node.
        """
        if self.graph is None:
            X, y = validate_data(
                self, X, y, accept_sparse="csr", multi_output=True, dtype="numeric"
            )
            graph, ids = _edgeless(X), np.arange(X.shape[0])
        else:
            graph, ids = self.graph, self._ids(X, reset=True)
            y = check_array(y, ensure_2d=False, dtype=None)
        labels = self._encode(y)
        if len(labels) != len(ids):
            raise ValueError(f"X has {len(ids)} rows, but y has {len(labels)}.")
        _check_repeated(ids, labels)
        seed = self.random_state
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool):
            seed = check_random_state(seed).randint(2**31 - 1)
        held = np.zeros(graph.num_nodes, bool)
        held[self._hold_out(ids, labels, int(seed))] = True
        everyone = np.zeros((graph.num_nodes, labels.shape[1]), np.uint8)
        everyone[ids] = labels
        known = np.zeros(graph.num_nodes, bool)
        known[ids] = True
        labelled = dataclasses.replace(
            graph,
            labels=everyone,
            known=known,
            multilabel=self._multilabel,
            label_names=tuple(str(name) for name in self.classes_),
        ).with_split(known & ~held, held)
        self.result_ = fit(
            labelled,
            self.model,
            self._settings(),
            seed=int(seed),
            progress=False,
            execution=self.execution,
        )
        self.n_iter_ = len(self.result_.history)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities [n, C] of nodes as `fit` takes them, by `classes_`."""
        check_is_fitted(self)
        if self.graph is None:
            X = validate_data(self, X, accept_sparse="csr", reset=False)
            said = self.result_.predict_proba(_edgeless(X))
        else:
            said = self.result_.predict_proba(self._ids(X, reset=False))
        if self._multilabel:
            return said
        # In doubles, or the rows' sums are off by more than users of them allow.
        said = said.astype(np.float64)
        return said / said.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """Labels [n], or a 0/1 matrix [n, C], of nodes as `fit` takes them."""
        said = self.predict_proba(X)
        if self._multilabel:
            return (said > 0.5).astype(np.int64)
        return self.classes_[said.argmax(axis=1)]

    def __sklearn_clone__(self) -> Self:
        """The same settings, and the same graph rather than a copy of it."""
        return type(self)(**self.get_params(deep=False))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.input_tags.sparse = self.graph is None
        return tags

    def _settings(self) -> Config:
        config = Config() if self.config is None else self.config
        if not isinstance(config, Config):
            raise ValueError(
                f"config is a {type(config).__name__}; give a hopf_jax.Config."
            )
        names = {field.name for field in dataclasses.fields(Config)}
        given = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name in names and value is not None
        }
        return dataclasses.replace(config, **given)

    def _ids(self, X: Any, *, reset: bool) -> np.ndarray:
        """X as ids of nodes of the graph, [n]."""
        if not isinstance(self.graph, Graph):
            raise ValueError(
                f"graph is a {type(self.graph).__name__}; give a hopf_jax.Graph or "
                "None."
            )
        if not sp.issparse(X) and np.ndim(X) == 1:
            X = np.asarray(X)[:, None]
        X = validate_data(self, X, reset=reset, dtype="numeric")
        if X.shape[1] != 1:
            raise ValueError(
                f"X has {X.shape[1]} columns; with a graph it holds node ids, [n] or "
                "[n, 1]. The features are the graph's."
            )
        ids = X[:, 0]
        if ids.dtype.kind == "f" and (ids == np.floor(ids)).all():
            ids = ids.astype(np.int64)
        return check_ids(ids, self.graph.num_nodes, "X")

    def _encode(self, y: Any) -> np.ndarray:
        """Labels as a 0/1 matrix [n, C]; sets `classes_`."""
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self._multilabel = type_of_target(y) == "multilabel-indicator"
        if self._multilabel:
            dense = y.toarray() if sp.issparse(y) else np.asarray(y)
            self.classes_ = np.arange(dense.shape[1])
            return (dense > 0).astype(np.uint8)
        if y.ndim != 1:
            raise ValueError(
                f"y has shape {y.shape}; give labels [n], or a 0/1 matrix [n, C]."
            )
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds one class only, {self.classes_[0]!r}; a classifier needs two."
            )
        return np.eye(len(self.classes_), dtype=np.uint8)[codes]

    def _hold_out(self, ids: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
        """Ids of the nodes to validate on, drawn from each class."""
        share = self.validation_fraction
        if not isinstance(share, int | float) or not 0 < share < 1:
            raise ValueError(
                f"validation_fraction is {share!r}; give a number above 0, below 1."
            )
        nodes, first = np.unique(ids, return_index=True)
        if len(nodes) < 2:
            raise ValueError(
                "Found 1 sample (n_samples=1); one is to learn from and another to "
                "validate on. Give two nodes or more."
            )
        rng = np.random.default_rng([seed, len(nodes)])
        order = rng.permutation(len(nodes))
        # With several labels a node there are no classes to draw from: all are one.
        kind = labels[first].argmax(axis=1) if not self._multilabel else 0 * nodes
        held: list[int] = []
        for each in np.unique(kind):
            members = order[kind[order] == each]
            held.extend(members[: int(share * len(members))])
        if not held:
            # Of the largest class, which can spare one.
            largest = np.bincount(kind).argmax()
            held = [int(order[kind[order] == largest][0])]
        return nodes[held]


def _edgeless(features: Any) -> Graph:
    return Graph.from_edges([], [], features)


def _check_repeated(ids: np.ndarray, labels: np.ndarray) -> None:
    """A node that is given twice has one label."""
    _, first, back = np.unique(ids, return_index=True, return_inverse=True)
    differs = (labels != labels[first[back]]).any(axis=1)
    if differs.any():
        at = int(np.argmax(differs))
        raise ValueError(
            f"X[{at}] is node {ids[at]}, which was given before with another label."
        )

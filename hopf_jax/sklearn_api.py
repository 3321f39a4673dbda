"""`HOPFClassifier`: a model as a scikit-learn estimator."""

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

from hopf_jax.config import Config, Execution, Number
from hopf_jax.fitting import fit
from hopf_jax.graph import Graph, check_ids, check_value, which_call
from hopf_jax.kernels import DEFAULT_MODEL, Kernel


class HOPFClassifier(ClassifierMixin, BaseEstimator):
    """A scikit-learn classifier, for use with grid search, pipelines and the like.

    With a graph, X are **node ids** or names, [n] or [n, 1], and y their labels.
    Training uses the whole graph, but only the labels of the nodes given to `fit`, so
    it is safe to split the ids with `GridSearchCV` or `cross_val_score`. Labels in the
    graph itself are ignored.

        search = GridSearchCV(
            HOPFClassifier(graph), {"model": ["gcn", "nip-mean"], "num_hops": [1, 2]}
        )
        search.fit(ids, labels).predict(other_ids)

    Without a graph, X are features [n, F] of nodes without neighbours.

    Args:
      graph: A `Graph`, or None. Clones share it.
      model: A name from `hopf_jax.MODELS`, or a `Kernel`.
      num_hops, hidden_size, num_iterations, learning_rate, l2, dropout, max_epochs: As
        in `Config`; None for the value in `config`.
      config: All other settings; the defaults if None.
      execution: Memory, chunk size and devices; the defaults if None.
      validation_fraction: Share of the nodes of each class given to `fit` that is held
        out to stop and select by. Above 0, below 1; at least one node.
      random_state: A seed, a RandomState, or None for a different seed every time.

    Attributes:
      classes_: The labels seen, sorted; the columns of `predict_proba`.
      result_: The `Result` of `fit`.
      n_features_in_: Number of columns of X.
      n_iter_: Number of epochs.
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
        """Train on nodes and their labels.

        Args:
          X: Node ids [n] or [n, 1]; without a graph, features [n, F].
          y: Labels [n], or a 0/1 matrix [n, C] for several labels per node.
        """
        if self.graph is None:
            X, y = validate_data(
                self, X, y, accept_sparse="csr", multi_output=True, dtype="numeric"
            )
            graph, ids = Graph.from_edges([], [], X), np.arange(X.shape[0])
        else:
            graph, ids = self.graph, self._ids(X, reset=True)
            y = check_array(y, ensure_2d=False, dtype=None)
        labels = self._encode(y)
        if len(labels) != len(ids):
            raise ValueError(f"X has {len(ids)} rows, but y has {len(labels)}.")
        nodes, first, back = np.unique(ids, return_index=True, return_inverse=True)
        differs = (labels != labels[first[back]]).any(axis=1)
        if differs.any():
            at = int(np.argmax(differs))
            raise ValueError(
                f"X[{at}] is node {ids[at]}, which was given before with another label."
            )
        seed = self.random_state
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool):
            seed = check_random_state(seed).randint(2**31 - 1)
        known = np.zeros(graph.num_nodes, bool)
        known[nodes] = True
        validation = np.zeros(graph.num_nodes, bool)
        validation[self._hold_out(nodes, labels[first], int(seed))] = True
        all_labels = np.zeros((graph.num_nodes, labels.shape[1]), np.uint8)
        all_labels[ids] = labels
        labelled = dataclasses.replace(
            graph,
            labels=all_labels,
            known=known,
            multilabel=self._multilabel,
            label_names=tuple(str(name) for name in self.classes_),
            classes=(),
        ).with_split(known & ~validation, validation)
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
        """Return probabilities [n, C] of nodes as `fit` takes them, by `classes_`."""
        check_is_fitted(self)
        if self.graph is None:
            X = validate_data(self, X, accept_sparse="csr", reset=False)
            said = self.result_.predict_proba(Graph.from_edges([], [], X))
        else:
            said = self.result_.predict_proba(self._ids(X, reset=False))
        if self._multilabel:
            return said
        # In doubles, because callers expect rows that sum to 1 more exactly.
        said = said.astype(np.float64)
        return said / said.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """Return labels [n], or a 0/1 matrix [n, C], of nodes as `fit` takes them."""
        said = self.predict_proba(X)
        decided = self.result_.decision.decide(said)
        if self._multilabel:
            return decided.astype(np.int64)
        return self.classes_[decided]

    def __sklearn_clone__(self) -> Self:
        """Return an estimator with the same settings that shares the graph."""
        return type(self)(**self.get_params(deep=False))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.input_tags.sparse = self.graph is None
        return tags

    def _settings(self) -> Config:
        config = Config() if self.config is None else self.config
        if not isinstance(config, Config):
            return config  # `fit` refuses it.
        given = self.get_params(deep=False)
        names = [field.name for field in dataclasses.fields(Config)]
        given = {name: given[name] for name in names if given.get(name) is not None}
        return dataclasses.replace(config, **given)

    def _ids(self, X: Any, *, reset: bool) -> np.ndarray:
        """Return X as node ids [n]."""
        if not isinstance(self.graph, Graph):
            raise ValueError(f"graph is {which_call(self.graph)}")
        if not sp.issparse(X) and np.asarray(X).dtype.kind in "OUS":
            X = self.graph.node_index.find(np.asarray(X).reshape(-1), "X")
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
        """Set `classes_`, and return the labels as a 0/1 matrix [n, C]."""
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

    def _hold_out(self, nodes: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
        """Return ids of validation nodes, drawn from each class."""
        share = self.validation_fraction
        within = Number(0, 1, open_below=True, open_above=True)
        check_value(share, "validation_fraction", within)
        if len(nodes) < 2:
            raise ValueError(
                "Found 1 sample (n_samples=1), but training and validation need one "
                "each. Give two nodes or more."
            )
        order = np.random.default_rng([seed, len(nodes)]).permutation(len(nodes))
        # With several labels per node, all nodes are drawn from as one class.
        kind = labels.argmax(axis=1) if not self._multilabel else 0 * nodes
        members = [order[kind[order] == each] for each in np.unique(kind)]
        held = np.concatenate([m[: int(share * len(m))] for m in members])
        # The largest class can spare one.
        return nodes[held if held.size else max(members, key=len)[:1]]

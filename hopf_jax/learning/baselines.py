"""Simple methods to compare with: no nets, seconds to fit, tuned on validation nodes.

Each takes a graph with training and validation nodes, scores its settings on the
validation nodes, learns once more from both sets with the best, and returns
probabilities [N, C] of all nodes. Features are read as they are: scale them first
(`hopf_jax.graph.learn_scaling`).
"""

import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.graph import Graph

_STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)  # Inverse strengths of the L2 penalty.
_HOPS = (1, 2, 3, 5, 10)
_RESTARTS = (0.5, 0.8, 0.9, 0.99)  # Shares that a node reads from its neighbours.
_STEPS = 50

# Returns probabilities [N, C] after learning from the labels of these nodes.
Learner = Callable[[np.ndarray], np.ndarray]


def majority(graph: Graph) -> np.ndarray:
    """Predict the share of each label among labelled nodes."""
    shares = _known(graph)[graph.train | graph.validation].mean(axis=0)
    return np.tile(shares.astype(np.float32), (graph.num_nodes, 1))


def logistic_regression(graph: Graph) -> np.ndarray:
    """Predict from a node's own features; L2 by validation."""
    return tune(graph, _linear(graph, [graph.features]))


def sgc(graph: Graph) -> np.ndarray:
    """Smooth the features over some hops, then predict by logistic regression.

    SGC (Wu et al. 2019): S^k X with S = D^-1/2 (A + I) D^-1/2; k and L2 by validation.
    """
    smoothing, smoothed = _symmetric(graph, loops=True), graph.features
    found = []
    for hop in range(1, max(_HOPS) + 1):
        smoothed = smoothing @ smoothed
        if hop in _HOPS:
            found.append(smoothed)
    return tune(graph, _linear(graph, found))


def label_propagation(graph: Graph) -> np.ndarray:
    """Spread labels along edges: Y <- a S Y + (1 - a) Y_0 (Zhou et al. 2004)."""
    smoothing = _symmetric(graph, loops=False)

    def learner(restart: float) -> Learner:
        def learn(nodes: np.ndarray) -> np.ndarray:
            start = np.where(nodes[:, None], _known(graph), 0)
            return _as_probabilities(_spread(smoothing, start, restart), graph, nodes)

        return learn

    return tune(graph, map(learner, _RESTARTS))


def correct_and_smooth(graph: Graph, base: Learner | None = None) -> np.ndarray:
    """Correct predictions by the errors of labelled neighbours, then smooth them.

    Correct & Smooth (Huang et al. 2021): the errors of labelled nodes are spread along
    edges and added, then labels and predictions are spread.

    Args:
      graph: The graph.
      base: Makes the predictions that are corrected; logistic regression if None.
    """
    smoothing = _symmetric(graph, loops=False)
    if base is None:
        base = _best(graph, _linear(graph, [graph.features]))
    predictions: dict[bytes, np.ndarray] = {}

    def predict(nodes: np.ndarray) -> np.ndarray:
        key = nodes.tobytes()
        if key not in predictions:
            predictions[key] = base(nodes)
        return predictions[key]

    def learner(correct: float, smooth: float) -> Learner:
        def learn(nodes: np.ndarray) -> np.ndarray:
            said, labels = predict(nodes), _known(graph)
            if correct:
                errors = np.where(nodes[:, None], labels - said, 0)
                spread = _spread(smoothing, errors, correct)
                size = np.abs(errors[nodes]).sum(axis=1).mean()
                sums = np.abs(spread).sum(axis=1, keepdims=True)
                scale = np.divide(size, sums, out=np.zeros_like(sums), where=sums > 0)
                said = np.clip(said + np.minimum(scale, 1000) * spread, 0, 1)
            if smooth:
                said = np.where(nodes[:, None], labels, said)
                said = _spread(smoothing, said, smooth)
            return _as_probabilities(said, graph, nodes)

        return learn

    shares = (0.0, *_RESTARTS)
    return tune(graph, [learner(c, s) for c in shares for s in shares])


BASELINES: Mapping[str, Callable[[Graph], np.ndarray]] = types.MappingProxyType(
    {
        "majority": majority,
        "logistic regression": logistic_regression,
        "label propagation": label_propagation,
        "SGC": sgc,
        "Correct & Smooth": correct_and_smooth,
    }
)


def tune(graph: Graph, learners: Iterable[Learner]) -> np.ndarray:
    """Return what the best of some learners predicts after learning from all labels."""
    return _best(graph, learners)(graph.train | graph.validation)


def _best(graph: Graph, learners: Iterable[Learner]) -> Learner:
    held, true = graph.validation, graph.labels[graph.validation]

    def score(learner: Learner) -> tuple[float, float]:
        said = learner(graph.train)[held].clip(1e-9, 1 - 1e-9)
        if graph.multilabel:
            right = ((said > 0.5) == true).mean()
            loss = -(true * np.log(said) + (1 - true) * np.log(1 - said)).mean()
        else:
            right = (said.argmax(axis=1) == true.argmax(axis=1)).mean()
            loss = -np.log((said * true).sum(axis=1)).mean()
        return float(right), -float(loss)

    return max(learners, key=score)


def _linear(graph: Graph, inputs: Iterable[Any]) -> Iterable[Learner]:
    """Yield logistic regressions on each matrix [N, F] with each strength of L2."""
    for matrix in inputs:
        matrix = sp.csr_matrix(matrix) if sp.issparse(matrix) else np.asarray(matrix)
        for strength in _STRENGTHS:
            yield _logistic(graph, matrix, strength)


def _logistic(graph: Graph, matrix: Any, strength: float) -> Learner:
    # Lazy: scikit-learn is slow to import.
    from sklearn.linear_model import LogisticRegression

    def one(rows: Any, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the classes that occur in `labels`, and their probabilities."""
        found, ids = np.unique(labels, return_inverse=True)
        if len(found) == 1:
            return found, np.ones((graph.num_nodes, 1))
        model = LogisticRegression(C=strength, max_iter=300).fit(rows, ids)
        return found, model.predict_proba(matrix)

    def learn(nodes: np.ndarray) -> np.ndarray:
        rows, labels = matrix[nodes], graph.labels[nodes]
        said = np.zeros((graph.num_nodes, graph.num_labels), np.float32)
        columns = range(graph.num_labels) if graph.multilabel else [None]
        for column in columns:
            if column is None:
                found, shares = one(rows, labels.argmax(axis=1))
                said[:, found] = shares
            else:
                found, shares = one(rows, labels[:, column])
                said[:, column] = shares[:, found == 1].sum(axis=1)
        return said

    return learn


def _known(graph: Graph) -> np.ndarray:
    """Return the labels of training and validation nodes as numbers, others as 0."""
    shown = graph.train | graph.validation
    return np.where(shown[:, None], graph.labels, 0).astype(np.float32)


def _symmetric(graph: Graph, loops: bool) -> sp.csr_array:
    """Return D^-1/2 A D^-1/2 of the symmetric A, with self-loops or without."""
    matrix = graph.adjacency
    if graph.directed:
        matrix = matrix.maximum(matrix.T.tocsr())
    if loops:
        matrix = matrix + sp.eye_array(graph.num_nodes, dtype=np.float32, format="csr")
    degree = np.asarray(matrix.sum(axis=1))
    root = np.divide(1, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    scale = sp.diags_array(root.astype(np.float32))
    return sp.csr_array(scale @ matrix @ scale)


def _spread(smoothing: sp.csr_array, start: np.ndarray, share: float) -> np.ndarray:
    spread = start
    for _ in range(_STEPS):
        spread = share * (smoothing @ spread) + (1 - share) * start
    return spread


def _as_probabilities(
    values: np.ndarray, graph: Graph, nodes: np.ndarray
) -> np.ndarray:
    """Return rows that sum to 1; rows without anything get the shares of the labels."""
    if graph.multilabel:
        return values.clip(0, 1)
    sums = values.sum(axis=1, keepdims=True)
    shares = np.broadcast_to(graph.labels[nodes].mean(axis=0), values.shape)
    return np.where(sums > 1e-9, values / np.maximum(sums, 1e-9), shares)

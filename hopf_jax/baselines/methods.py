"""Simple methods to compare with: no nets, seconds to fit, tuned on validation nodes.

Each takes a graph with training and validation nodes, scores its settings on the
validation nodes, learns once more from both sets with the best, and returns
probabilities [N, C] of all nodes. Features are read as they are: scale them first
(`hopf_jax.graph.learn_scaling`). `hopf_jax.compare` does so, and takes their names
beside those of kernels.
"""

import functools
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from hopf_jax.baselines.logistic import Logistic, solve_logistic, to_probabilities
from hopf_jax.graph import Graph

_STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)  # Inverse strengths of the L2 penalty.
_HOPS = (1, 2, 3, 5, 10)
_RESTARTS = (0.5, 0.8, 0.9, 0.99)  # Shares that a node reads from its neighbours.
_STEPS = 50
_DECAYS = (0.9, 0.99)  # Of the share that a step of wvRN changes.
_ROUNDS = 10  # Of iterative classification.

# Returns probabilities [N, C] after learning from the labels of these nodes.
Learner = Callable[[np.ndarray], np.ndarray]


class Predictor(Protocol):
    """What has probabilities for the nodes of a graph, such as a `Result`."""

    def predict_proba(self) -> np.ndarray:
        """Return probabilities [N, C]."""


class Predictions(NamedTuple):
    """Probabilities [N, C] by the settings that did best on the validation nodes."""

    held_out: np.ndarray  # After learning from the training nodes.
    final: np.ndarray  # After learning from training and validation nodes.


def majority(graph: Graph) -> np.ndarray:
    """Predict the share of each label among labelled nodes."""
    return best_of(graph, _majority(graph)).final


def logistic_regression(graph: Graph) -> np.ndarray:
    """Predict from a node's own features; L2 by validation."""
    return best_of(graph, _own(graph)).final


def label_propagation(graph: Graph) -> np.ndarray:
    """Spread labels along edges: Y <- a S Y + (1 - a) Y_0 (Zhou et al. 2004)."""
    return best_of(graph, _propagation(graph)).final


def wvrn(graph: Graph) -> np.ndarray:
    """Predict the mean of the neighbours' labels, known or predicted.

    The weighted-vote relational neighbour with relaxation labelling (Macskassy and
    Provost 2007): p <- b^t D^-1 A p + (1 - b^t) p for unlabelled nodes, from the shares
    of the labels on; b by validation.
    """
    return best_of(graph, _votes(graph)).final


def ica(graph: Graph) -> np.ndarray:
    """Iterative classification by logistic regression (Sen et al. 2008).

    A node is predicted from its features and the mean of its neighbours' labels, known
    or predicted in the round before; the first round predicts from features alone. L2
    by validation.
    """
    return best_of(graph, _iterative(graph)).final


def sgc_logistic(graph: Graph) -> np.ndarray:
    """Smooth the features over some hops, then predict by logistic regression.

    SGC (Wu et al. 2019): S^k X with S = D^-1/2 (A + I) D^-1/2; k and L2 by validation.
    """
    return best_of(graph, _smoothed(graph)).final


def correct_and_smooth(
    graph: Graph, base: Learner | Predictor | np.ndarray | None = None
) -> np.ndarray:
    """Correct predictions by the errors of labelled neighbours, then smooth them.

    Correct & Smooth (Huang et al. 2021): the errors of labelled nodes are spread along
    edges and added, then labels and predictions are spread. How far, validation nodes
    choose.

    Args:
      graph: The graph, with training and validation nodes.
      base: The predictions that are corrected: a `Result` of this graph (of labelled
        nodes, those of its cross-validation, if there was one), probabilities [N, C],
        or a function that learns from nodes; logistic regression if None.

    >>> import hopf_jax
    >>> from hopf_jax.datasets import make_planted
    >>> graph = hopf_jax.split_graph(make_planted(100, 300))
    >>> result = hopf_jax.fit(graph, "gcn", max_epochs=5, progress=False)
    >>> correct_and_smooth(graph, base=result).shape
    (100, 4)
    """
    return best_of(graph, _corrected(graph, base)).final


class _AnySpelling(dict[str, Callable[[Graph], np.ndarray]]):
    """Methods by name, which is also found as "Correct & Smooth"."""

    def __missing__(self, name: str) -> Callable[[Graph], np.ndarray]:
        known = spelled(name)
        if known == name or known not in self:
            raise KeyError(name)
        return self[known]


def spelled(name: str) -> str:
    """Return a name in lower case with hyphens.

    >>> spelled("Correct & Smooth")
    'correct-and-smooth'
    """
    return re.sub(r"[\s_+]+", "-", name.lower().replace("&", "and"))


BASELINES: Mapping[str, Callable[[Graph], np.ndarray]] = types.MappingProxyType(
    _AnySpelling(
        {
            "majority": majority,
            "logistic-regression": logistic_regression,
            "label-propagation": label_propagation,
            "wvrn": wvrn,
            "ica": ica,
            "sgc-logistic": sgc_logistic,
            "correct-and-smooth": correct_and_smooth,
        }
    )
)


def predict_baseline(
    graph: Graph, name: str, base: Learner | Predictor | np.ndarray | None = None
) -> Predictions:
    """Return what a method of `BASELINES` predicts before and after it is refitted.

    The first, which has not seen the labels of validation nodes, is to be judged by
    these; the second is to be used. `base` is that of `correct_and_smooth`.
    """
    learners: dict[Any, Callable[[Graph], Iterator[Learner]]] = {
        majority: _majority,
        logistic_regression: _own,
        label_propagation: _propagation,
        wvrn: _votes,
        ica: _iterative,
        sgc_logistic: _smoothed,
        correct_and_smooth: _corrected,
    }
    method = BASELINES[name]
    if base is None:
        return best_of(graph, learners[method](graph))
    if method is not correct_and_smooth:
        raise ValueError(f"{name} has no base; correct-and-smooth has.")
    return best_of(graph, _corrected(graph, base))


def best_of(graph: Graph, learners: Iterable[Learner]) -> Predictions:
    """Return what the learner predicts that does best on the validation nodes."""
    best, held_out = _best(graph, learners)
    return Predictions(held_out, best(graph.train | graph.validation))


def _best(graph: Graph, learners: Iterable[Learner]) -> tuple[Learner, np.ndarray]:
    """Return the best learner, and what it predicts from the training nodes."""
    for name in ("train", "validation"):
        if not getattr(graph, name).any():
            raise ValueError(
                f"The graph has no {name} nodes. Give some with graph.with_split(...), "
                "or draw them with hopf_jax.split_graph(graph)."
            )
    held, true = graph.validation, graph.labels[graph.validation]

    def score(said: np.ndarray) -> tuple[float, float]:
        said = said[held].astype(np.float64).clip(1e-9, 1 - 1e-9)
        if graph.multilabel:
            right = ((said > 0.5) == true).mean()
            loss = -(true * np.log(said) + (1 - true) * np.log(1 - said)).mean()
        else:
            right = (said.argmax(axis=1) == true.argmax(axis=1)).mean()
            loss = -np.log((said * true).sum(axis=1)).mean()
        return float(right), -float(loss)

    found = ((learner, learner(graph.train)) for learner in learners)
    return max(found, key=lambda each: score(each[1]))


def _majority(graph: Graph) -> Iterator[Learner]:
    def learn(nodes: np.ndarray) -> np.ndarray:
        shares = _known(graph)[nodes].mean(axis=0)
        return np.tile(shares.astype(np.float32), (graph.num_nodes, 1))

    yield learn


def _own(graph: Graph) -> Iterator[Learner]:
    features = _as_matrix(graph.features)
    rows = features[np.flatnonzero(graph.train | graph.validation)]
    return _linear(graph, [(rows, lambda weights: features @ weights)])


def _smoothed(graph: Graph) -> Iterator[Learner]:
    smoothing = smoothing_matrix(graph, loops=True)
    features = _as_matrix(graph.features)
    shown = np.flatnonzero(graph.train | graph.validation)

    def smooth(weights: np.ndarray, hops: int) -> np.ndarray:
        said = features @ weights
        for _ in range(hops):
            said = smoothing @ said
        return said

    rows = smoothed_rows(smoothing, features, shown, _HOPS)
    inputs = (
        (own, functools.partial(smooth, hops=hops))
        for hops, own in zip(_HOPS, rows, strict=True)
    )
    return _linear(graph, inputs)


def smoothed_rows(
    smoothing: sp.csr_array, features: Any, nodes: np.ndarray, hops: Sequence[int]
) -> Iterator[np.ndarray]:
    """Yield the rows [n, F] of some nodes in S^k X, for each of ascending numbers k."""
    few = len(nodes) < features.shape[1]
    if few:  # Where nodes are fewer than features: how much each node reads of all.
        moved = np.zeros((smoothing.shape[0], len(nodes)), np.float32)
        moved[nodes, np.arange(len(nodes))] = 1
    else:
        moved = features.toarray() if sp.issparse(features) else features
    done = 0
    for hop in hops:
        for _ in range(done, hop):
            moved = smoothing @ moved
        done = hop
        yield np.asarray(features.T @ moved).T if few else moved[nodes]


def _propagation(graph: Graph) -> Iterator[Learner]:
    smoothing = smoothing_matrix(graph, loops=False)

    def learn(nodes: np.ndarray, restart: float) -> np.ndarray:
        start = np.where(nodes[:, None], _known(graph), 0)
        return _as_probabilities(_spread(smoothing, start, restart), graph, nodes)

    for restart in _RESTARTS:
        yield functools.partial(learn, restart=restart)


def _votes(graph: Graph) -> Iterator[Learner]:
    mean = mean_matrix(graph)
    alone = np.asarray(mean.sum(axis=1)) == 0

    def learn(nodes: np.ndarray, decay: float) -> np.ndarray:
        labels, shown = _known(graph), nodes[:, None]
        prior = labels[nodes].mean(axis=0).astype(np.float32)
        said = np.where(shown, labels, prior)
        share = 1.0
        for _ in range(_STEPS):
            votes = np.where(alone[:, None], said, mean @ said)
            said = np.where(shown, labels, share * votes + (1 - share) * said)
            share *= decay
        return _as_probabilities(said, graph, nodes)

    for decay in _DECAYS:
        yield functools.partial(learn, decay=decay)


def _iterative(graph: Graph) -> Iterator[Learner]:
    mean, features = mean_matrix(graph), _as_matrix(graph.features)
    own = dict(zip(_STRENGTHS, _own(graph), strict=True))

    def with_labels(labels: np.ndarray) -> Any:
        if sp.issparse(features):
            return sp.csr_array(sp.hstack([features, labels]))
        return np.hstack([features, labels])

    def learn(nodes: np.ndarray, strength: float) -> np.ndarray:
        labels, shown = _known(graph), nodes[:, None]
        said = np.where(shown, labels, own[strength](nodes))
        rows = with_labels(mean @ said)[nodes]
        (model,) = solve_logistic(
            rows, graph.labels[nodes], graph.multilabel, [strength]
        )
        for _ in range(_ROUNDS):
            said = np.where(shown, labels, predict(model, mean @ said))
        return predict(model, mean @ said)

    def predict(model: Logistic, labels: np.ndarray) -> np.ndarray:
        logits = model.logits(with_labels(labels))
        return to_probabilities(logits, graph.multilabel).astype(np.float32)

    for strength in _STRENGTHS:
        yield functools.partial(learn, strength=strength)


def _corrected(graph: Graph, base: Any = None) -> Iterator[Learner]:
    smoothing = smoothing_matrix(graph, loops=False)
    source = _as_learner(graph, base)
    predictions: dict[bytes, np.ndarray] = {}

    def predict(nodes: np.ndarray) -> np.ndarray:
        key = nodes.tobytes()
        if key not in predictions:
            predictions[key] = source(nodes)
        return predictions[key]

    def learn(nodes: np.ndarray, correct: float, smooth: float) -> np.ndarray:
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

    shares = (0.0, *_RESTARTS)
    for correct in shares:
        for smooth in shares:
            yield functools.partial(learn, correct=correct, smooth=smooth)


def _as_learner(graph: Graph, base: Any) -> Learner:
    """Return the predictions that are corrected as a function of labelled nodes."""
    if base is None:
        return _best(graph, _own(graph))[0]
    if hasattr(base, "predict_proba"):
        crossed = getattr(base, "cross_validated", None)
        base = base.predict_proba()
        if crossed is not None:  # Errors of nets that did not see these labels.
            base = base.copy()
            base[crossed[0]] = crossed[1]
    elif callable(base):
        return base
    said = np.asarray(base, np.float32)
    if said.shape != graph.labels.shape or not np.isfinite(said).all():
        raise ValueError(
            f"base predicts an array of shape {said.shape}; give probabilities "
            f"{graph.labels.shape} of all nodes of this graph, or a result of it."
        )
    return lambda nodes: said


def _linear(
    graph: Graph, inputs: Iterable[tuple[Any, Callable[[Any], Any]]]
) -> Iterator[Learner]:
    """Yield logistic regressions with each strength of L2, on each kind of input.

    An input is the rows [n, F] of training and validation nodes, and a function that
    makes of weights what all nodes get by them.
    """
    shown = np.flatnonzero(graph.train | graph.validation)

    def learn(nodes: np.ndarray, place: int, solved: Any, apply: Any) -> np.ndarray:
        model = solved(nodes.tobytes())[place]
        logits = apply(model.weights) + model.bias
        return to_probabilities(logits, graph.multilabel).astype(np.float32)

    for rows, apply in inputs:

        @functools.lru_cache(maxsize=2)
        def solved(chosen: bytes, rows: Any = rows) -> list[Logistic]:
            nodes = shown[np.frombuffer(chosen, bool)[shown]]
            own = rows[np.searchsorted(shown, nodes)]
            return solve_logistic(
                own, graph.labels[nodes], graph.multilabel, _STRENGTHS
            )

        for place in range(len(_STRENGTHS)):
            yield functools.partial(learn, place=place, solved=solved, apply=apply)


def _as_matrix(features: Any) -> Any:
    return sp.csr_array(features) if sp.issparse(features) else np.asarray(features)


def _known(graph: Graph) -> np.ndarray:
    """Return the labels of training and validation nodes as numbers, others as 0."""
    shown = graph.train | graph.validation
    return np.where(shown[:, None], graph.labels, 0).astype(np.float32)


def _both_ways(graph: Graph) -> Any:
    """Return the symmetric A."""
    matrix = graph.adjacency
    return matrix.maximum(matrix.T.tocsr()) if graph.directed else matrix


def mean_matrix(graph: Graph) -> sp.csr_array:
    """Return D^-1 A of the symmetric A; rows of isolated nodes are 0."""
    matrix = _both_ways(graph)
    degree = np.asarray(matrix.sum(axis=1))
    share = np.divide(1, degree, out=np.zeros_like(degree), where=degree > 0)
    return sp.csr_array(sp.diags_array(share.astype(np.float32)) @ matrix)


def smoothing_matrix(graph: Graph, loops: bool) -> sp.csr_array:
    """Return D^-1/2 A D^-1/2 of the symmetric A, with self-loops or without."""
    matrix = _both_ways(graph)
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

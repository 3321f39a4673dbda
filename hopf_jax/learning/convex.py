"""Linear kernels, solved: logistic regressions on smoothed features.

Without weights between the hops, a net is logits = S^K X W + b with the smoothing S of
the graph: a logistic regression, whose best weights a convex solver finds. With few
labels it is often the best there is, and its penalty and number of hops can be tried
out by cross-validation in the time that one net takes to train.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, softmax

from hopf_jax.baselines import fit_logistic, smoothing_matrix
from hopf_jax.graph import Graph
from hopf_jax.learning.loss import Params
from hopf_jax.learning.population import Member
from hopf_jax.metrics import f1_scores

_HOPS = (1, 2, 4, 10)
_STRENGTHS = (0.1, 1.0, 10.0, 100.0)  # Inverse strengths of the L2 penalty.
_CERTAIN = 20.0  # Logit of a label that all, or no, training nodes have.
_MOST_VALUES = 20_000_000  # Of a dense feature matrix.
_MOST_PRODUCTS = 200_000_000  # Of edges and features, per hop.


class Solution(NamedTuple):
    """The best weights of each member, and the number of hops that they read."""

    num_hops: int
    params: list[Params]
    records: list[dict[str, float]]  # Of each member: losses and F1 scores.


def can_solve(graph: Graph) -> bool:
    """Return whether a graph is small enough to be solved in seconds."""
    values = graph.num_nodes * graph.num_features
    products = graph.num_edges * graph.num_features
    return values <= _MOST_VALUES and products <= _MOST_PRODUCTS


def solve(graph: Graph, members: Sequence[Member]) -> Solution:
    """Choose hops and penalty on what members do not learn from; return their weights.

    Args:
      graph: The graph, with features as nets read them.
      members: What each member learns from and is judged by.
    """
    rows: Any = graph.features
    rows = rows.toarray() if sp.issparse(rows) else np.asarray(rows)
    smoothing = smoothing_matrix(graph, loops=True)
    best: tuple[tuple[float, float], Solution] | None = None
    done = 0
    for hops in _HOPS:
        for _ in range(done, hops):
            rows = np.asarray(smoothing @ rows, np.float32)
        done = hops
        for strength in _STRENGTHS:
            found = [_solve_one(graph, member, rows, strength) for member in members]
            evidence = _evidence(graph, members, rows, found)
            if best is None or evidence > best[0]:
                records = [
                    _record(graph, member, rows, params)
                    for member, params in zip(members, found, strict=True)
                ]
                best = evidence, Solution(hops, found, records)
    assert best is not None
    return best[1]


def _solve_one(
    graph: Graph, member: Member, rows: np.ndarray, strength: float
) -> Params:
    weights = np.zeros((rows.shape[1], graph.num_labels), np.float32)
    bias = np.full(graph.num_labels, -_CERTAIN, np.float32)
    models = fit_logistic(graph, rows, strength, member.graph.train)
    for column, (found, model) in enumerate(models):
        if graph.multilabel:
            places = np.array([column])
            if model is None:
                bias[column] = _CERTAIN * (2 * int(found[0]) - 1)
        else:
            places = np.asarray(found)
            if model is None:
                bias[places] = _CERTAIN
        if model is None:
            continue
        own, shift = model.coef_, model.intercept_
        if len(own) == 1 and not graph.multilabel:  # Two classes have one vector.
            own, shift = np.vstack([-own, own]) / 2, np.array([-shift[0], shift[0]]) / 2
        weights[:, places] = own.T
        bias[places] = shift
    return {"w_output": weights, "b_output": bias}


def _predict(graph: Graph, rows: np.ndarray, params: Params) -> np.ndarray:
    logits = rows @ params["w_output"] + params["b_output"]
    return expit(logits) if graph.multilabel else softmax(logits, axis=1)


def _evidence(
    graph: Graph, members: Sequence[Member], rows: np.ndarray, found: Sequence[Params]
) -> tuple[float, float]:
    """Return the share of held-out labels that are right, and minus their loss."""
    right, loss, count = 0.0, 0.0, 0
    for member, params in zip(members, found, strict=True):
        nodes = member.graph.validation
        said, true = _predict(graph, rows[nodes], params), graph.labels[nodes] > 0
        if graph.multilabel:
            right += float(((said > 0.5) == true).mean(axis=1).sum())
        else:
            right += float((said.argmax(axis=1) == true.argmax(axis=1)).sum())
        loss += _loss(graph, nodes, rows, params) * len(said)
        count += len(said)
    return right / max(1, count), -loss / max(1, count)


def _record(
    graph: Graph, member: Member, rows: np.ndarray, params: Params
) -> dict[str, float]:
    """Return losses and F1 scores on what a member learns from and is judged by."""
    record = {}
    for name in ("train", "validation"):
        nodes = getattr(member.graph, name)
        said, true = _predict(graph, rows[nodes], params), graph.labels[nodes]
        decided = said > 0.5
        if not graph.multilabel:
            decided = np.eye(graph.num_labels)[said.argmax(axis=1)]
        record[f"{name}_loss"] = _loss(graph, nodes, rows, params)
        scores = f1_scores(true, decided.astype(np.uint8))
        record |= {f"{name}_{score}": value for score, value in scores.items()}
    return record


def _loss(graph: Graph, nodes: np.ndarray, rows: np.ndarray, params: Params) -> float:
    """Return the mean cross entropy of some nodes."""
    said = _predict(graph, rows[nodes], params).clip(1e-9, 1 - 1e-9)
    true = graph.labels[nodes] > 0
    each = -np.where(true, np.log(said), np.log1p(-said) if graph.multilabel else 0)
    return float(each.sum(axis=1).mean()) if len(each) else 0.0

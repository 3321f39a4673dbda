"""Linear kernels, solved: logistic regressions on smoothed features, and votes.

Without weights between the hops, a net is logits = S^K X W + b with the smoothing S of
the graph: a logistic regression, whose best weights a convex solver finds. To it the
labels of neighbours can add their votes (`votes.py`). With few labels these are often
the best there is, and penalty, hops and the strength of votes can be tried out by
cross-validation in the time that one net takes to train.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from hopf_jax.baselines import (
    smoothed_rows,
    smoothing_matrix,
    solve_logistic,
    to_probabilities,
)
from hopf_jax.graph import Graph
from hopf_jax.kernels import LINEAR_MODEL, VOTING_MODEL
from hopf_jax.learning.loss import Params
from hopf_jax.learning.population import Member
from hopf_jax.learning.stopping import likely_best
from hopf_jax.learning.votes import sample_edges, vote
from hopf_jax.metrics import f1_scores, mean_loss

_HOPS = (0, 1, 2, 4, 10)
_STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)  # Inverse strengths of the L2 penalty.
_SCALES = (0.1, 0.3, 1.0)  # How far votes are believed.
_MOST_VALUES = 20_000_000  # Of a dense feature matrix.
_MOST_PRODUCTS = 200_000_000  # Of edges and features, per hop.
_MOST_VOTES = 20_000_000  # Of edges and labels, per iteration.


class Solution(NamedTuple):
    """The best weights of each member, and what they are for.

    Attributes:
      num_hops: Number of hops that features are smoothed over.
      params: Of each iteration, weights of each member.
      evidence: Share of held-out labels that are right, and their mean loss.
      records: Of each iteration, for each member: losses and F1 scores.
    """

    num_hops: int
    params: list[list[Params]]
    evidence: tuple[float, float]
    records: list[list[dict[str, float]]]


class _Regression(NamedTuple):
    """Logistic regressions on features smoothed over some hops, one per member."""

    num_hops: int
    params: list[Params]
    logits: list[np.ndarray]  # Of each member, [N, C].
    evidence: tuple[float, float]


def can_solve(graph: Graph) -> bool:
    """Return whether a graph is small enough to be solved in seconds."""
    values = graph.num_nodes * graph.num_features
    products = graph.num_edges * graph.num_features
    return values <= _MOST_VALUES and products <= _MOST_PRODUCTS


def can_vote(graph: Graph) -> bool:
    """Return whether the votes of neighbours can be learned in seconds."""
    votes = graph.num_edges * graph.num_labels
    return not graph.multilabel and 0 < votes <= _MOST_VOTES


def solve(
    graph: Graph, members: Sequence[Member], num_iterations: int = 0
) -> dict[str, Solution]:
    """Return the linear model with the best hops and penalty, without and with votes.

    What is best is judged by the nodes that members do not learn from.

    Args:
      graph: The graph, with features as nets read them.
      members: What each member learns from and is judged by.
      num_iterations: Number of iterations of the model with votes; 0 for none.

    Returns:
      Solutions by the names of kernels.
    """
    held = np.any([member.graph.validation for member in members], axis=0)
    count = int(held.sum())

    def best(of: Sequence[Any]) -> Any:
        return of[likely_best([each.evidence for each in of], count)]

    found = list(_regressions(graph, members))
    chosen = best(found)
    said = [[to_probabilities(each, graph.multilabel) for each in chosen.logits]]
    solutions = {
        LINEAR_MODEL: Solution(
            chosen.num_hops,
            [chosen.params],
            chosen.evidence,
            _records(graph, members, said),
        )
    }
    if num_iterations:
        # The best without neighbours, the best with them, and what says nothing.
        alone = [each for each in found if not each.num_hops]
        bases = [best(alone), _prior(graph, members)]
        if len(alone) < len(found):
            bases.append(best([each for each in found if each.num_hops]))
        voted = list(_voted(graph, members, bases, num_iterations))
        solutions[VOTING_MODEL] = best(voted)
    return solutions


def _regressions(graph: Graph, members: Sequence[Member]) -> Iterator[_Regression]:
    """Yield regressions for all numbers of hops and strengths of the penalty."""
    numbers = _HOPS if graph.num_edges else (0,)
    every = np.arange(graph.num_nodes)
    smoothing = smoothing_matrix(graph, loops=True)
    smoothed = smoothed_rows(smoothing, graph.features, every, numbers)
    for hops, rows in zip(numbers, smoothed, strict=True):
        paths = []
        for member in members:
            known, labels = member.graph.train, member.graph.labels
            paths.append(
                solve_logistic(rows[known], labels[known], graph.multilabel, _STRENGTHS)
            )
        for found in zip(*paths, strict=True):
            params = [
                {"w_output": each.weights, "b_output": each.bias} for each in found
            ]
            logits = [each.logits(rows) for each in found]
            said = [to_probabilities(each, graph.multilabel) for each in logits]
            evidence = _evidence(graph, members, said)
            yield _Regression(hops, params, logits, evidence)


def _prior(graph: Graph, members: Sequence[Member]) -> _Regression:
    """Return the regression that knows the shares of labels only."""
    params, logits = [], []
    for member in members:
        labels = member.graph.labels[member.graph.train]
        shares = (labels.sum(axis=0) + 0.5) / (len(labels) + 0.5 * graph.num_labels)
        weights = np.zeros((graph.num_features, graph.num_labels), np.float32)
        bias = np.log(shares).astype(np.float32)
        params.append({"w_output": weights, "b_output": bias})
        logits.append(np.tile(bias, (graph.num_nodes, 1)))
    said = [to_probabilities(each, graph.multilabel) for each in logits]
    return _Regression(0, params, logits, _evidence(graph, members, said))


def _voted(
    graph: Graph,
    members: Sequence[Member],
    bases: Sequence[_Regression],
    num_iterations: int,
) -> Iterator[Solution]:
    """Yield regressions with the votes of neighbours, believed more or less."""
    edges = sample_edges(graph)
    for base, scale, alike in itertools.product(bases, _SCALES, (True, False)):
        found = [
            vote(member.graph, edges, logits, scale, num_iterations, alike)
            for member, logits in zip(members, base.logits, strict=True)
        ]
        params = [
            [
                own | {"w_output": np.concatenate([own["w_output"], each.votes[t].T])}
                for own, each in zip(base.params, found, strict=True)
            ]
            for t in range(num_iterations)
        ]
        said = [
            [each.probabilities[t] for each in found] for t in range(num_iterations)
        ]
        yield Solution(
            base.num_hops,
            params,
            _evidence(graph, members, said[-1]),
            _records(graph, members, said),
        )


def _evidence(
    graph: Graph, members: Sequence[Member], said: Sequence[np.ndarray]
) -> tuple[float, float]:
    """Return the share of held-out labels that are right, and their mean loss."""
    right, loss, count = 0.0, 0.0, 0
    for member, each in zip(members, said, strict=True):
        nodes = member.graph.validation
        own, true = each[nodes], graph.labels[nodes] > 0
        if graph.multilabel:
            right += float(((own > 0.5) == true).mean(axis=1).sum())
        else:
            right += float((own.argmax(axis=1) == true.argmax(axis=1)).sum())
        loss += mean_loss(true, own, graph.multilabel) * len(own)
        count += len(own)
    return right / max(1, count), loss / max(1, count)


def _records(
    graph: Graph, members: Sequence[Member], said: Sequence[Sequence[np.ndarray]]
) -> list[list[dict[str, float]]]:
    """Return losses and F1 scores by iteration and member, on both of its sets."""
    return [
        [
            _record(graph, member, own)
            for member, own in zip(members, iteration, strict=True)
        ]
        for iteration in said
    ]


def _record(graph: Graph, member: Member, said: np.ndarray) -> dict[str, float]:
    record = {}
    for name in ("train", "validation"):
        nodes = getattr(member.graph, name)
        own, true = said[nodes], graph.labels[nodes]
        decided = own > 0.5
        if not graph.multilabel:
            decided = np.eye(graph.num_labels)[own.argmax(axis=1)]
        record[f"{name}_loss"] = mean_loss(true, own, graph.multilabel)
        scores = f1_scores(true, decided.astype(np.uint8))
        record |= {f"{name}_{score}": value for score, value in scores.items()}
    return record

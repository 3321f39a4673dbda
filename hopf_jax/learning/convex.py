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
    MOST_AXES,
    Logistic,
    principal_axes,
    smoothed_rows,
    smoothing_matrix,
    solve_logistic,
    to_probabilities,
)
from hopf_jax.graph import Graph
from hopf_jax.kernels import LINEAR_MODEL, MEAN_VOTING_MODEL, VOTING_MODEL
from hopf_jax.learning.loss import Params
from hopf_jax.learning.mean_votes import vote_by_regression
from hopf_jax.learning.population import Member
from hopf_jax.learning.stopping import likely_best
from hopf_jax.learning.votes import sample_edges, vote
from hopf_jax.metrics import f1_scores, mean_loss

_HOPS = (0, 1, 2, 4, 10)
_STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)  # Inverse strengths of the L2 penalty.
_SCALES = (0.1, 0.3, 1.0)  # How far votes are believed.
_SHARES = (0.3, 1.0, 3.0)  # Of the size of features that mean labels are scaled to.
_MOST_FEATURES = 200_000_000  # Values of all features, as the kernel reads them.
_MOST_VALUES = 20_000_000  # Of the features of labelled nodes.
_MOST_PRODUCTS = 1_000_000_000  # Of edges and columns that are smoothed, per hop.
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
    strength: float
    axes: np.ndarray | None  # [F, r] that weights are of; None for the features.
    models: list[Logistic]
    said: list[np.ndarray]  # Of each member, [N, C], of labelled nodes.
    evidence: tuple[float, float]

    @property
    def params(self) -> list[Params]:
        """Weights of each member, as the kernel has them."""
        axes = self.axes
        return [
            {
                "w_output": each.weights if axes is None else axes @ each.weights,
                "b_output": each.bias,
            }
            for each in self.models
        ]


def can_solve(graph: Graph) -> bool:
    """Return whether a graph is small enough to be solved in seconds."""
    labelled = int((graph.train | graph.validation).sum())
    # Of either what each node reads of all, or features, whichever is narrower.
    products = graph.num_edges * min(graph.num_features, labelled)
    return (
        graph.num_nodes * graph.num_features <= _MOST_FEATURES
        and labelled * graph.num_features <= _MOST_VALUES
        and products <= _MOST_PRODUCTS
    )


def can_vote(graph: Graph) -> bool:
    """Return whether the votes of neighbours can be learned in seconds."""
    labelled = int((graph.train | graph.validation).sum())
    few = not graph.multilabel or min(labelled, graph.num_features) <= MOST_AXES
    return few and 0 < graph.num_edges * graph.num_labels <= _MOST_VOTES


def voting_model(graph: Graph) -> str:
    """Return the name of the solved kernel with votes."""
    return MEAN_VOTING_MODEL if graph.multilabel else VOTING_MODEL


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
    solutions = {
        LINEAR_MODEL: Solution(
            chosen.num_hops,
            [chosen.params],
            chosen.evidence,
            _records(graph, members, [chosen.said]),
        )
    }
    if num_iterations:
        # The best without neighbours, and the best with them.
        alone = [each for each in found if not each.num_hops]
        beyond = [each for each in found if each.num_hops]
        bases = [best(each) for each in (alone, beyond) if each]
        if not graph.multilabel:  # Also what says nothing.
            bases.insert(1, _prior(graph, members))
        voted = list(_voted(graph, members, bases, num_iterations))
        solutions[voting_model(graph)] = best(voted)
    return solutions


def _regressions(graph: Graph, members: Sequence[Member]) -> Iterator[_Regression]:
    """Yield regressions for all numbers of hops and strengths of the penalty."""
    numbers = _HOPS if graph.num_edges else (0,)
    shown, smoothing = _labelled(members), smoothing_matrix(graph, loops=True)
    smoothed = smoothed_rows(smoothing, graph.features, shown, numbers)
    for hops, rows in zip(numbers, smoothed, strict=True):
        axes = None
        if len(shown) < min(
            rows.shape[1], MOST_AXES
        ):  # Members share the space of their differences.
            axes = principal_axes(rows).astype(np.float32)
            rows = rows @ axes
        paths = [
            solve_logistic(
                rows[member.graph.train[shown]],
                graph.labels[shown[member.graph.train[shown]]],
                graph.multilabel,
                _STRENGTHS,
            )
            for member in members
        ]
        for strength, found in zip(_STRENGTHS, zip(*paths, strict=True), strict=True):
            said = []
            for each in found:
                own = np.zeros(graph.labels.shape, np.float32)
                own[shown] = to_probabilities(each.logits(rows), graph.multilabel)
                said.append(own)
            evidence = _evidence(graph, members, said)
            yield _Regression(hops, strength, axes, list(found), said, evidence)


def _labelled(members: Sequence[Member]) -> np.ndarray:
    masks = [member.graph.train | member.graph.validation for member in members]
    return np.flatnonzero(np.any(masks, axis=0))


def _logits(graph: Graph, params: Sequence[Params], num_hops: int) -> list[np.ndarray]:
    """Return the logits [N, C] of each member, of all nodes."""
    weights = np.concatenate([own["w_output"] for own in params], axis=1)
    found = _smoothed(graph, np.asarray(graph.features @ weights), num_hops)
    parts = np.split(found, len(params), axis=1)
    return [part + own["b_output"] for part, own in zip(parts, params, strict=True)]


def _smoothed(graph: Graph, values: np.ndarray, num_hops: int) -> np.ndarray:
    smoothing = smoothing_matrix(graph, loops=True)
    for _ in range(num_hops):
        values = np.asarray(smoothing @ values, np.float32)
    return values


def _prior(graph: Graph, members: Sequence[Member]) -> _Regression:
    """Return the regression that knows the shares of labels only."""
    models = []
    for member in members:
        labels = member.graph.labels[member.graph.train]
        shares = (labels.sum(axis=0) + 0.5) / (len(labels) + 0.5 * graph.num_labels)
        weights = np.zeros((graph.num_features, graph.num_labels), np.float32)
        models.append(Logistic(weights, np.log(shares).astype(np.float32)))
    return _Regression(0, 1.0, None, models, [], (0.0, 0.0))


def _voted(
    graph: Graph,
    members: Sequence[Member],
    bases: Sequence[_Regression],
    num_iterations: int,
) -> Iterator[Solution]:
    """Yield regressions with the votes of neighbours, believed more or less."""
    if graph.multilabel:
        yield from _regressed(graph, members, bases, num_iterations)
        return
    edges = sample_edges(graph)
    for base in bases:
        first = base.params
        every = _logits(graph, first, base.num_hops)
        for scale, alike in itertools.product(_SCALES, (True, False)):
            found = [
                vote(member.graph, edges, logits, scale, num_iterations, alike)
                for member, logits in zip(members, every, strict=True)
            ]
            params = [
                [
                    own
                    | {"w_output": np.concatenate([own["w_output"], each.votes[t].T])}
                    for own, each in zip(first, found, strict=True)
                ]
                for t in range(num_iterations)
            ]
            said = [
                [each.probabilities[t] for each in found] for t in range(num_iterations)
            ]
            yield _solution(graph, members, base.num_hops, params, said)


def _regressed(
    graph: Graph,
    members: Sequence[Member],
    bases: Sequence[_Regression],
    num_iterations: int,
) -> Iterator[Solution]:
    """Yield regressions on features and on the mean of the neighbours' labels."""
    for base in bases:
        axes = base.axes
        if axes is None:
            axes = np.eye(graph.num_features, dtype=np.float32)
        inputs = np.asarray(graph.features @ axes)
        inputs = _smoothed(graph, inputs, base.num_hops)
        bare = base.params
        every = _logits(graph, bare, base.num_hops)
        size = float(np.sqrt((inputs**2).sum(axis=1).mean())) or 1.0
        for scale in _SHARES:
            found = [
                vote_by_regression(
                    member.graph,
                    inputs,
                    to_probabilities(logits, graph.multilabel),
                    scale * size,
                    base.strength,
                    num_iterations,
                )
                for member, logits in zip(members, every, strict=True)
            ]
            first = [
                own
                | {"w_output": np.pad(own["w_output"], ((0, graph.num_labels), (0, 0)))}
                for own in bare
            ]
            params = [first] + [
                [
                    {
                        "w_output": np.concatenate([axes @ each.own[t], each.votes[t]]),
                        "b_output": each.bias[t],
                    }
                    for each in found
                ]
                for t in range(num_iterations - 1)
            ]
            said = [
                [each.probabilities[t] for each in found] for t in range(num_iterations)
            ]
            yield _solution(graph, members, base.num_hops, params, said)


def _solution(
    graph: Graph,
    members: Sequence[Member],
    num_hops: int,
    params: list[list[Params]],
    said: list[list[np.ndarray]],
) -> Solution:
    evidence = _evidence(graph, members, said[-1])
    return Solution(num_hops, params, evidence, _records(graph, members, said))


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

"""Linear kernels, solved: logistic regressions on smoothed features, and votes.

Without weights between the hops, a net is logits = S^K X W + b with the smoothing S of
the graph: a logistic regression, whose best weights a convex solver finds. To it the
labels of neighbours can add their votes (`votes.py`). With few labels these are often
the best there is, and penalty, hops and the strength of votes can be tried out by
cross-validation in the time that one net takes to train.

A few labels cannot tell which of these is best. As all are linear, an average of their
logits is one of them again, logits = X W_0 + S^K X W_K + F(A) Y V + b, and its shares
are those that predict held-out labels best.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from hopf_jax.baselines import (
    MOST_AXES,
    Logistic,
    mean_matrix,
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
from hopf_jax.learning.votes import Edges, count_votes, sample_edges, vote
from hopf_jax.metrics import f1_scores, mean_loss

_HOPS = (0, 1, 2, 4, 10)
_STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)  # Inverse strengths of the L2 penalty.
_SCALES = (0.1, 0.3, 1.0)  # How far votes are believed.
_SHARES = (0.3, 1.0, 3.0)  # Of the size of features that mean labels are scaled to.
_STEPS = 12  # Of the selection of candidates.
_LEAST = 1e-3  # Probability: no single node rules a candidate out.
_MOST_FEATURES = 200_000_000  # Values of all features, as the kernel reads them.
_MOST_VALUES = 20_000_000  # Of the features of labelled nodes.
_MOST_PRODUCTS = 1_000_000_000  # Of edges and columns that are smoothed, per hop.
_MOST_VOTES = 20_000_000  # Of edges and labels, per iteration.


class Solution(NamedTuple):
    """The best weights of each member, and what they are for.

    Attributes:
      num_hops: Number of hops that features are smoothed over.
      params: Of each iteration, weights of each member.
      loss: Mean loss of held-out labels.
      records: Of each iteration, for each member: losses and F1 scores.
    """

    num_hops: int
    params: list[list[Params]]
    loss: float
    records: list[list[dict[str, float]]]


class _Regression(NamedTuple):
    """Logistic regressions on features smoothed over some hops, one per member."""

    num_hops: int
    strength: float
    axes: np.ndarray | None  # [F, r] that weights are of; None for the features.
    models: list[Logistic]
    said: list[np.ndarray]  # Of each member, [N, C], of labelled nodes.
    loss: float  # Of held-out labels.

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
    found = sorted(_regressions(graph, members), key=lambda each: each.loss)
    best = found[0]
    solutions = {
        LINEAR_MODEL: _solution(
            graph, members, best.num_hops, [best.params], [best.said]
        )
    }
    if num_iterations:
        # The best without neighbours, and the best with them.
        alone = [each for each in found if not each.num_hops]
        beyond = [each for each in found if each.num_hops]
        bases = [each[0] for each in (alone, beyond) if each]
        if graph.multilabel:
            voted = _regressed(graph, members, bases, num_iterations)
            solutions[MEAN_VOTING_MODEL] = min(voted, key=lambda each: each.loss)
        else:  # Also what says nothing.
            bases.append(_prior(graph, members))
            solutions[VOTING_MODEL] = _voted(graph, members, bases, num_iterations)
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
            loss = mean_loss(*_held_out(graph, members, said), graph.multilabel)
            yield _Regression(hops, strength, axes, list(found), said, loss)


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
    smoothing = smoothing_matrix(graph, loops=True) if num_hops else None
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
    return _Regression(0, 1.0, None, models, [], math.inf)


class _Base(NamedTuple):
    """A regression to which votes are added: weights and logits of each member."""

    num_hops: int
    params: list[Params]
    logits: list[np.ndarray]


class _Voter(NamedTuple):
    """A regression with votes, believed more or less.

    Attributes:
      base: The regression.
      votes: Of each member, by iteration, [C, C].
      held_out: Probabilities of the nodes that members hold out, [n, C].
    """

    base: _Base
    votes: list[list[np.ndarray]]
    held_out: np.ndarray


def _voters(
    graph: Graph,
    members: Sequence[Member],
    base: _Base,
    edges: Edges,
    num_iterations: int,
) -> Iterator[_Voter]:
    """Yield a regression without votes, and with votes that are learned."""
    mute = [np.zeros((graph.num_labels,) * 2, np.float32)] * num_iterations
    said = [softmax(logits, axis=1) for logits in base.logits]
    yield _Voter(base, [mute] * len(members), _held_out(graph, members, said)[1])
    for scale, alike in itertools.product(_SCALES, (True, False)):
        found = [
            vote(member.graph, edges, logits, scale, num_iterations, alike)
            for member, logits in zip(members, base.logits, strict=True)
        ]
        said = [each.probabilities[-1] for each in found]
        held_out = _held_out(graph, members, said)[1]
        yield _Voter(base, [each.votes for each in found], held_out)


def _voted(
    graph: Graph,
    members: Sequence[Member],
    bases: Sequence[_Regression],
    num_iterations: int,
) -> Solution:
    """Return the average of regressions with votes that predicts best."""
    voters: list[_Voter] = []
    edges = sample_edges(graph)
    for each in bases:
        logits = _logits(graph, each.params, each.num_hops)
        base = _Base(each.num_hops, each.params, logits)
        voters += _voters(graph, members, base, edges, num_iterations)
    true = _held_out(graph, members, logits)[0]
    shares = average([each.held_out for each in voters], true)
    # Of Python: a share of numpy would make all of them float64.
    used = [
        (float(share), each)
        for share, each in zip(shares, voters, strict=True)
        if share
    ]
    num_hops = max(each.num_hops for each in bases)
    params, said = [], []
    for m, member in enumerate(members):
        votes = [
            np.sum([share * each.votes[m][t] for share, each in used], axis=0)
            for t in range(num_iterations)
        ]
        weights = [np.zeros((graph.num_features, graph.num_labels), np.float32)]
        weights *= 2 if num_hops else 1  # Of the features, and of the smoothed ones.
        for share, (base, _, _) in used:
            place = int(base.num_hops > 0)
            weights[place] = weights[place] + share * base.params[m]["w_output"]
        bias = sum(share * each.base.params[m]["b_output"] for share, each in used)
        params.append(
            [
                {"w_output": np.concatenate([*weights, each.T]), "b_output": bias}
                for each in votes
            ]
        )
        logits = np.sum([share * each.base.logits[m] for share, each in used], axis=0)
        said.append(count_votes(member.graph, logits, votes))
    return _solution(graph, members, num_hops, _turned(params), _turned(said))


def average(held_out: Sequence[np.ndarray], true: np.ndarray) -> np.ndarray:
    """Return the shares of candidates in the average of logits that predicts best.

    Greedy selection with replacement (Caruana et al. 2004): begin with the candidate
    of the least loss, and add what helps the average most.

    Args:
      held_out: Probabilities [n, C] of each candidate.
      true: Labels [n, C].

    >>> right, wrong = np.array([[0.9, 0.1]]), np.array([[0.2, 0.8]])
    >>> average([wrong, right], np.array([[1, 0]])).tolist()
    [0.0, 1.0]
    """
    logs = [np.log(np.maximum(each, _LEAST)) for each in held_out]
    total, counts = np.zeros_like(logs[0]), np.zeros(len(logs))
    for step in range(1, _STEPS + 1):
        losses = [
            mean_loss(true, softmax((total + each) / step, axis=1), False)
            for each in logs
        ]
        chosen = int(np.argmin(losses))
        total += logs[chosen]
        counts[chosen] += 1
    return counts / _STEPS


def _turned(lists: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [list(each) for each in zip(*lists, strict=True)]


def _regressed(
    graph: Graph,
    members: Sequence[Member],
    bases: Sequence[_Regression],
    num_iterations: int,
) -> Iterator[Solution]:
    """Yield regressions on features and on the mean of the neighbours' labels."""
    mean = mean_matrix(graph)
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
                    mean,
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
    loss = mean_loss(*_held_out(graph, members, said[-1]), graph.multilabel)
    return Solution(num_hops, params, loss, _records(graph, members, said))


def _held_out(
    graph: Graph, members: Sequence[Member], said: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and probabilities of the nodes that members hold out, [n, C]."""
    held = [np.flatnonzero(member.graph.validation) for member in members]
    own = [each[nodes] for each, nodes in zip(said, held, strict=True)]
    true = [graph.labels[nodes] for nodes in held]
    return np.concatenate(true), np.concatenate(own)


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

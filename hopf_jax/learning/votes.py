"""What the labels of neighbours say about a node: compatibilities, estimated.

If edges are drawn by the labels of their ends, a neighbour of label b makes label a
likelier by the factor H_ab = P(edge | a, b) / P(edge). With H known, iterating

  Y_v = softmax(U_v + s sum_u A_vu log(H) Y_u)

infers the labels of all nodes together (mean-field inference in a Markov random field),
from the logits U of their features. That is HOPF with the votes of a kernel, whose
weights are s log(H). H is learned by expectation maximisation, from the edges between
known labels and, as they become surer, predicted ones. So few labels suffice, and
neighbours of other classes say as much as those of the same.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from hopf_jax.config import Config
from hopf_jax.graph import Graph
from hopf_jax.inference import next_summary, output

_ALIKE, _OTHER = 3.0, 0.7  # H before any edge is seen: neighbours tend to be alike.
_TRUST = 3.0  # Number of edges per pair of labels that this assumption is worth.
_PSEUDO = 10.0  # Number of edges per pair of labels that what is usual is worth.
_LARGEST = 1e3  # Of H, and of 1 / H.
_MOST_EDGES = 100_000  # That H is learned from, per round.


class Edges(NamedTuple):
    """A sample of the edges: receivers, senders, and weights of mean 1."""

    receivers: np.ndarray
    senders: np.ndarray
    weights: np.ndarray


def sample_edges(graph: Graph) -> Edges:
    """Return edges to learn compatibilities from; all of them, if they are few."""
    matrix = graph.adjacency.tocoo()
    receivers, senders = matrix.coords
    picked = np.arange(graph.num_edges)
    if graph.num_edges > _MOST_EDGES:
        picked = np.random.default_rng(0).choice(graph.num_edges, _MOST_EDGES, False)
    weights = matrix.data[picked].astype(np.float64)
    mean = np.abs(weights).mean() if weights.size else 1.0
    return Edges(receivers[picked], senders[picked], weights / (mean or 1.0))


class Voting(NamedTuple):
    """What votes make of a graph's labels, iteration by iteration.

    Attributes:
      votes: s log(H) of each iteration, [C, C]: what a neighbour of each label adds to
        the logits. The first iteration, which has no summaries to read, has zeros.
      probabilities: The output of each iteration, [N, C], as the kernel gives it.
    """

    votes: list[np.ndarray]
    probabilities: list[np.ndarray]


def vote(
    graph: Graph,
    edges: Edges,
    logits: np.ndarray,
    scale: float,
    num_iterations: int,
    alike: bool = True,
) -> Voting:
    """Infer labels and what neighbours' labels say, together.

    Every iteration has votes of its own. H begins mild and grows sharp as labels become
    sure: the last one, read from the beginning, would drive all nodes to one label
    where few labels are known.

    Args:
      graph: The graph; its training labels are known.
      edges: What H is learned from.
      logits: What features say, [N, C].
      scale: s, how far neighbours are believed. They are less than independent.
      num_iterations: Number of iterations.
      alike: Begin with neighbours that tend to be alike, else with what features say
        about them, which finds other patterns if features say enough.
    """
    factors = np.ones((graph.num_labels, graph.num_labels))
    if alike:
        factors = _first_factors(graph, edges)
    strength = scale / _mean_weight(graph)
    votes = [np.zeros((graph.num_labels,) * 2, np.float32)]

    def learned(summary: np.ndarray) -> np.ndarray:
        # One step: to convergence, while labels are unsure, it finds chance patterns.
        nonlocal factors
        factors = _next_factors(edges, summary, factors)
        votes.append((strength * np.log(factors)).astype(np.float32))
        return _with_votes(graph, logits, summary, votes[-1])

    said = iterate(graph, softmax(logits, axis=1), learned, num_iterations)
    return Voting(votes, said)


def count_votes(
    graph: Graph, logits: np.ndarray, votes: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return the output of each iteration, [N, C], with votes that are given."""
    rest = iter(votes[1:])

    def given(summary: np.ndarray) -> np.ndarray:
        return _with_votes(graph, logits, summary, next(rest))

    return iterate(graph, softmax(logits, axis=1), given, len(votes))


def iterate(
    graph: Graph,
    first: np.ndarray,
    step: Callable[[np.ndarray], np.ndarray],
    num_iterations: int,
) -> list[np.ndarray]:
    """Return the output of each iteration of Algorithm 1, [N, C].

    Args:
      graph: The graph; its training labels are known.
      first: Probabilities of the first iteration, which reads no labels, [N, C].
      step: Returns the probabilities of an iteration for the label summaries it reads.
      num_iterations: Number of iterations.
    """
    config = Config(num_iterations=num_iterations)
    said, summary = [first], next_summary(graph, config, 1, first, first, None)
    for t in range(2, num_iterations + 1):
        new = step(summary)
        summary = next_summary(graph, config, t, summary, new, None)
        said.append(output(graph, config, new, summary))
    return said


def _with_votes(
    graph: Graph, logits: np.ndarray, summary: np.ndarray, votes: np.ndarray
) -> np.ndarray:
    return softmax(logits + graph.adjacency @ (summary @ votes.T), axis=1)


def _mean_weight(graph: Graph) -> float:
    if graph.weights is None or not graph.num_edges:
        return 1.0
    return float(np.abs(graph.weights).mean()) or 1.0


def _first_factors(graph: Graph, edges: Edges) -> np.ndarray:
    """Return H by edges between known labels, and by the assumption that alike meet."""
    count, known = graph.num_labels, graph.train
    both = known[edges.receivers] & known[edges.senders]
    receivers = graph.labels[edges.receivers[both]].astype(np.float64)
    senders = graph.labels[edges.senders[both]] * edges.weights[both, None]
    counts = receivers.T @ senders
    shares = graph.labels[known].mean(axis=0) + 1e-3
    trust = _TRUST * count**2
    chance = np.outer(
        counts.sum(axis=1) + trust * shares, counts.sum(axis=0) + trust * shares
    ) / (counts.sum() + trust * shares.sum())
    assumed = chance * np.where(np.eye(count) > 0, _ALIKE, _OTHER)
    part = trust / (counts.sum() + trust)
    scaled = counts * (chance.sum() / max(counts.sum(), 1e-9))
    return _bounded(((1 - part) * scaled + part * assumed) / chance)


def _next_factors(edges: Edges, summary: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Return H by the labels that both ends of edges are thought to have together.

    Of an edge between v and u that is Y_va H_ab Y_ub, scaled to a sum of 1: what is
    known of each end tells something of the other.
    """
    receivers = summary[edges.receivers].astype(np.float64)
    senders = summary[edges.senders]
    sums = np.einsum("ea,ea->e", receivers, senders @ factors.T)
    weights = edges.weights / np.maximum(sums, 1e-12)
    counts = factors * ((receivers * weights[:, None]).T @ senders)
    total = max(counts.sum(), 1e-9)
    chance = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / total
    # Pairs of labels that rarely meet are taken for what pairs like them are.
    same = np.eye(len(counts)) > 0
    usual = np.where(
        same,
        (counts[same].sum() + 1) / (chance[same].sum() + 1),
        (counts[~same].sum() + 1) / (chance[~same].sum() + 1),
    )
    added = _PSEUDO * np.maximum(chance / total * chance.size, 0.1)
    return _bounded((counts + added * usual) / (chance + added))


def _bounded(factors: np.ndarray) -> np.ndarray:
    return np.clip(factors, 1 / _LARGEST, _LARGEST)

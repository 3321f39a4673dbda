"""Votes of neighbours by regression, where nodes have several labels.

Every iteration is a logistic regression on a node's smoothed features and on the mean
of its neighbours' labels, known or predicted in the iteration before: HOPF with a
linear kernel, each iteration solved to its optimum. A node's own label is not among
its neighbours', so training nodes do not read it back.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from hopf_jax.baselines import solve_logistic, to_probabilities
from hopf_jax.graph import Graph
from hopf_jax.learning.votes import iterate


class Regressed(NamedTuple):
    """Weights of each iteration from the second on, and what each predicts.

    Attributes:
      own: Weights [r, C] of the node's inputs.
      votes: Weights [C, C] of the mean of its neighbours' labels.
      bias: [C].
      probabilities: The output of every iteration, [N, C], as the kernel gives it.
    """

    own: list[np.ndarray]
    votes: list[np.ndarray]
    bias: list[np.ndarray]
    probabilities: list[np.ndarray]


def vote_by_regression(
    graph: Graph,
    mean: sp.csr_array,
    inputs: np.ndarray,
    first: np.ndarray,
    scale: float,
    strength: float,
    num_iterations: int,
) -> Regressed:
    """Learn what features and the labels of neighbours say together.

    Args:
      graph: The graph; its training labels are known.
      mean: What makes of labels the mean of the neighbours' (`mean_matrix`).
      inputs: What a node reads of features, [N, r].
      first: Probabilities of the first iteration, which reads no labels, [N, C].
      scale: What mean labels are multiplied by: how little the penalty counts for them.
      strength: Inverse strength of the penalty.
      num_iterations: Number of iterations.
    """
    known, labels = graph.train, graph.labels
    found = Regressed([], [], [], [])

    def solved(summary: np.ndarray) -> np.ndarray:
        rows = np.hstack([inputs, scale * (mean @ summary)])
        (model,) = solve_logistic(
            rows[known], labels[known], graph.multilabel, [strength]
        )
        found.own.append(model.weights[: inputs.shape[1]])
        found.votes.append(scale * model.weights[inputs.shape[1] :])
        found.bias.append(model.bias)
        return to_probabilities(model.logits(rows), graph.multilabel)

    found.probabilities.extend(iterate(graph, first, solved, num_iterations))
    return found

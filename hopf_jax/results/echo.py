"""The echo: how much more training nodes can trust what they read than others can.

A training node that reads its own label back from its neighbours, or predictions of a
net that has memorised it, learns to trust label summaries that deserve no such trust at
other nodes. The gap between the two is measured here, before it does harm.
"""

import numpy as np
import scipy.sparse as sp

from hopf_jax.config import Config
from hopf_jax.graph import SPLITS, Graph
from hopf_jax.learning import Team
from hopf_jax.metrics import f1_scores
from hopf_jax.results.result import decide_as_scored

_HOPS = (1, 2)  # At two hops a node reads its own label, from its neighbours.


def summary_scores(
    team: Team, config: Config, summaries: np.ndarray, iteration: int
) -> dict[str, dict[str, float]]:
    """Return how well the summaries that nodes read give away their own labels.

    That is the micro-F1 of (D^-1 A)^k Y as a prediction, for k of 1 and 2, with Y as
    the nodes of a set read it: {"train": {"1": ..., "2": ...}, ...}. Nodes that read
    nothing are left out.

    Args:
      team: The graph, and the parts of its training nodes, if they are divided.
      config: Settings.
      summaries: Label summaries, [views, N, C].
      iteration: The iteration that reads them; where a random share of the training
        nodes is hidden, its seed.
    """
    graph = team.graph
    found = {}
    for name in SPLITS:
        if not (nodes := getattr(graph, name)).any():
            continue
        readers = [(nodes, summaries[-1])]
        if name == "train" and team.parts is not None:
            readers = [(team.parts == m, s) for m, s in enumerate(summaries[:-1])]
        elif name == "train" and config.training_summaries == "masked":
            drawn = np.random.default_rng(iteration).random(graph.num_nodes)
            hidden = nodes & (drawn <= max(config.hidden_share, drawn[nodes].min()))
            readers = [(hidden, np.where(hidden[:, None], 0, summaries[-1]))]
        found[name] = _score(graph, readers, config.scoring)
    return found


def _score(
    graph: Graph, readers: list[tuple[np.ndarray, np.ndarray]], scoring: str
) -> dict[str, float]:
    """Return the micro-F1 by the number of hops, over (nodes, what they read)."""
    ones = np.ones(graph.num_edges, np.float32)
    weights = ones if graph.weights is None else graph.weights
    shape = (graph.num_nodes, graph.num_nodes)
    adjacency = sp.csr_array((weights, graph.indices, graph.indptr), shape)
    degree = np.asarray(adjacency.sum(axis=1))[:, None]
    read = [summary for _, summary in readers]
    scores = {}
    for hops in _HOPS:
        read = [adjacency @ each / np.where(degree > 0, degree, 1) for each in read]
        true, decided = [], []
        for (nodes, _), each in zip(readers, read, strict=True):
            some = nodes & each.any(axis=1)
            true.append(graph.labels[some])
            decided.append(decide_as_scored(graph, each, scoring)[some])
        both = np.concatenate(true), np.concatenate(decided)
        scores[str(hops)] = f1_scores(*both)["micro_f1"] if len(both[0]) else 0.0
    return scores

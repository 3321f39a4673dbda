"""The echo: how much more training nodes can trust what they read than others can.

A training node that reads its own label back from its neighbours, or predictions of a
net that has memorised it, learns to trust label summaries that deserve no such trust at
other nodes. The gap between the two is measured here, before it does harm.
"""

import numpy as np
import scipy.sparse as sp

from hopf_jax.batching import ranges
from hopf_jax.config import Config
from hopf_jax.graph import SPLITS, Graph
from hopf_jax.learning import Team
from hopf_jax.metrics import f1_scores
from hopf_jax.results.decisions import decide_as_scored

_MOST = 5_000  # Nodes per set that are scored, about.


def summary_scores(
    team: Team, config: Config, summaries: np.ndarray, iteration: int
) -> dict[str, dict[str, float]]:
    """Return how well the summaries that nodes read give away their own labels.

    That is the micro-F1 of (D^-1 A)^k Y as a prediction, for k of 1 and 2, with Y as
    the nodes of a set read it: {"train": {"1": ..., "2": ...}, ...}. At two hops a node
    finds its own label, at its neighbours. Nodes that read nothing are left out.

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
    true: list[list[np.ndarray]] = [[], []]
    decided: list[list[np.ndarray]] = [[], []]
    for mask, summary in readers:
        nodes = np.flatnonzero(mask)
        nodes = nodes[:: max(1, len(nodes) // _MOST)]
        near, rows = _mean_over_neighbours(graph, nodes)
        far, outer = _mean_over_neighbours(graph, near)
        for i, read in enumerate((rows @ summary[near], rows @ (outer @ summary[far]))):
            some = read.any(axis=1)
            true[i].append(graph.labels[nodes[some]])
            decided[i].append(decide_as_scored(graph, read, scoring, nodes)[some])
    scores = {}
    for i, hops in enumerate(("1", "2")):
        both = np.concatenate(true[i]), np.concatenate(decided[i])
        scores[hops] = f1_scores(*both)["micro_f1"] if len(both[0]) else 0.0
    return scores


def _mean_over_neighbours(
    graph: Graph, nodes: np.ndarray
) -> tuple[np.ndarray, sp.csr_array]:
    """Return the neighbours of some nodes, and D^-1 A from them to the nodes."""
    starts, ends = graph.indptr[nodes], graph.indptr[nodes + 1]
    entries = ranges(starts, ends - starts)
    near, columns = np.unique(graph.indices[entries], return_inverse=True)
    weights = np.ones(len(entries), np.float32)
    weights = weights if graph.weights is None else graph.weights[entries]
    indptr = np.concatenate([[0], np.cumsum(ends - starts)])
    rows = sp.csr_array((weights, columns, indptr), (len(nodes), len(near)))
    degree = np.asarray(rows.sum(axis=1))
    rows.data = rows.data / np.repeat(np.where(degree > 0, degree, 1), ends - starts)
    return near, rows

"""What trained models' predictions depend on: the share of each hop, by Jacobians.

The influence of node j on node i is as in `hopf_jax.results.explanations`; the share of hop m is
that of the attributes of the nodes m hops away from i. Label summaries have none here:
they are constants, as they are in training.
"""

from typing import Any

import numpy as np

from hopf_jax import Graph, Result
from hopf_jax.inference import WholeGraph, replay
from hopf_jax.results import influences, make_net, readable


def hop_shares(
    result: Result, graph: Graph, num_nodes: int = 64, seed: int = 0
) -> dict[str, Any]:
    """The mean share of each hop in the predictions for some test nodes.

    Args:
      result: of `fit` on the graph.
      graph: the same graph.
      num_nodes: test nodes, drawn at random from those with a neighbour.
    """
    config = result.config
    graph = readable(graph, result.kernel, config, result.seed)
    candidates = np.flatnonzero(graph.test & (np.diff(graph.indptr) > 0))
    rng = np.random.default_rng(seed)
    roots = rng.permutation(candidates)[:num_nodes]
    net = make_net(result.kernel, config, result.sizes)
    weights = result.weights[: result.iteration]
    whole = WholeGraph(graph, result.execution.chunk_edges)
    summary, _ = replay(net, weights, whole, config, graph.multilabel)
    every_label = np.eye(result.sizes.labels, dtype=np.float32)
    shares = np.zeros((len(roots), config.num_hops + 1))
    for i, found in enumerate(
        influences(net, weights[-1], graph, summary, roots, every_label)
    ):
        shares[i] = np.bincount(found.hops, found.attributes, shares.shape[1])
    total = shares.sum(axis=1, keepdims=True)
    alive = total[:, 0] > 0  # A prediction that is constant has no shares.
    shares = shares[alive] / total[alive]
    return {
        "shares": [round(float(v), 5) for v in shares.mean(axis=0)],
        "std": [round(float(v), 5) for v in shares.std(axis=0)],
        "nodes": int(alive.sum()),
        "constant_predictions": int((~alive).sum()),
    }

"""What a trained model's prediction depends on: the share of each hop, by Jacobians.

The influence of node j on node i is the sum of the absolute entries of
d logits_i / d x_j (Xu et al. 2018, "Representation learning on graphs with jumping
knowledge networks"); the share of hop m is that of the nodes m hops away from i.
Within one iteration: label summaries are constants, as they are in training.
"""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hopf_jax import Graph, Result
from hopf_jax.batching import Batch, Layout, Neighborhoods, pad
from hopf_jax.inference import WholeGraph, predict_logits
from hopf_jax.nets import Net
from hopf_jax.result import make_net, readable
from hopf_jax.summaries import first_summary, next_summary, probabilities


def hop_shares(
    result: Result, graph: Graph, num_nodes: int = 64, seed: int = 0
) -> dict[str, Any]:
    """The mean share of each hop in the predictions for some test nodes.

    Args:
      result: of `fit` on the graph.
      graph: the same graph.
      num_nodes: test nodes, drawn at random from those with a neighbour.
    """
    graph = readable(graph, result.row, result.config, result.seed)
    candidates = np.flatnonzero(graph.test & (np.diff(graph.indptr) > 0))
    rng = np.random.default_rng(seed)
    roots = rng.permutation(candidates)[:num_nodes]
    net = make_net(result.row, result.config, result.sizes)
    params = result.weights[result.iteration - 1]
    summary = _summary(result, net, graph)
    reach = result.row.reach(result.config.num_hops)
    hoods = Neighborhoods(graph, reach)
    subgraphs = [hoods.subgraph(np.array([root])) for root in roots]
    # One layout, so one compilation, for all of them.
    layout = Layout.over(np.array([(*s.size, 0) for s in subgraphs]), reach)
    shares = np.zeros((len(roots), result.config.num_hops + 1))
    for i, subgraph in enumerate(subgraphs):
        batch = pad(graph, subgraph, layout, features="dense")
        read = None if summary is None else summary[batch.graph.nodes["id"]]
        influence = np.asarray(_influence(net, params, batch, read))
        counts = (0, *subgraph.node_counts)
        for m, (first, last) in enumerate(itertools.pairwise(counts)):
            shares[i, m] = influence[first:last].sum()
    total = shares.sum(axis=1, keepdims=True)
    alive = total[:, 0] > 0  # A prediction that is constant has no shares.
    shares = shares[alive] / total[alive]
    return {
        "shares": [round(float(v), 5) for v in shares.mean(axis=0)],
        "std": [round(float(v), 5) for v in shares.std(axis=0)],
        "nodes": int(alive.sum()),
        "constant_predictions": int((~alive).sum()),
    }


@functools.partial(jax.jit, static_argnames=("net",))
def _influence(
    net: Net, params: Any, batch: Batch, summary: jax.Array | None
) -> jax.Array:
    """The influence of every node of a batch on its first root, [N]."""

    def logits(x: jax.Array) -> jax.Array:
        return net.apply({"params": params}, batch, x, summary)[0]

    values, pull_back = jax.vjp(logits, jnp.asarray(batch.features))

    def of_label(cotangent: jax.Array) -> jax.Array:
        return jnp.abs(pull_back(cotangent)[0]).sum(axis=1)

    # One label at a time: the sparse product has no batching rule.
    return jax.lax.map(of_label, jnp.eye(values.shape[0])).sum(axis=0)


def _summary(result: Result, net: Net, graph: Graph) -> np.ndarray | None:
    """The label summary that the reported iteration read."""
    whole = WholeGraph(graph, result.config.chunk_edges)
    summary = first_summary(graph, net)
    for t, params in enumerate(result.weights[: result.iteration - 1], start=1):
        if summary is None:
            break
        logits, hidden = predict_logits(net, params, whole, summary)
        predicted = probabilities(logits, graph.multilabel)
        summary = next_summary(graph, result.config, t, summary, predicted, hidden)
    return summary

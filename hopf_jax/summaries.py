"""What one HOPF iteration hands to the next: label summaries, averaged; replay."""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import expit, softmax

from hopf_jax.config import Config
from hopf_jax.graph import Graph
from hopf_jax.inference import WholeGraph, predict_logits
from hopf_jax.nets import Net

_ROWS_AT_ONCE = 1 << 14


def _pieces(count: int) -> Iterator[slice]:
    """Rows, some at once: [N, C] is not to be held more often than it must."""
    for start in range(0, count, _ROWS_AT_ONCE):
        yield slice(start, start + _ROWS_AT_ONCE)


def probabilities(logits: np.ndarray, multilabel: bool) -> np.ndarray:
    """Softmax over classes, or a sigmoid a label, [N, C]."""
    bad = ~np.isfinite(logits).all(axis=1)
    if bad.any():
        raise ValueError(
            f"The prediction of node {int(bad.argmax())} is not a number: features or "
            "edge weights are too large for these weights. Scale them, or lower "
            "learning_rate."
        )
    # On the host, where they are: for the device it would be one more program.
    if multilabel:
        return expit(logits)
    out = np.empty_like(logits)
    for rows in _pieces(len(logits)):
        out[rows] = softmax(logits[rows], axis=1)
    return out


def first_summary(graph: Graph, net: Net) -> np.ndarray | None:
    """Nothing is known of anyone before the first iteration."""
    if not net.row.iterative:
        return None
    return np.zeros((graph.num_nodes, net.sizes.summary), np.float32)


def next_summary(
    graph: Graph,
    config: Config,
    iteration: int,
    last: np.ndarray,
    predicted: np.ndarray,
    hidden: np.ndarray | None,
) -> np.ndarray:
    """The summary after `iteration` (from 1), for the one after it (Algorithm 1).

    Y for training nodes; (1 - a_t) new + a_t last for the others, a_t = (t - 1) / T.
    The paper prints t / T, by which the last iteration would weigh nothing and the
    first be mixed with zeros; its authors' program counts from 0, as here.
    """
    new = predicted
    if config.summary == "hidden":
        assert hidden is not None
        new = hidden
    share = (iteration - 1) / config.num_iterations if config.average_labels else 0.0
    mixed = (1 - share) * new
    for rows in _pieces(len(mixed)):
        mixed[rows] += share * last[rows]
    if config.summary == "labels" and graph.train.any():
        mixed[graph.train] = graph.labels[graph.train]
    return mixed.astype(np.float32, copy=False)


def mean_change(new: np.ndarray, last: np.ndarray) -> float:
    """Mean of the absolute differences of two summaries."""
    pieces = _pieces(len(new))
    total = sum(np.abs(new[r] - last[r]).sum(dtype=np.float64) for r in pieces)
    return float(total / new.size)


def output(
    graph: Graph, config: Config, predicted: np.ndarray, summary: np.ndarray | None
) -> np.ndarray:
    """What an iteration gives out, [N, C]: the averaged labels (Output of Algorithm 1).

    They are the summary after it, but for training nodes, where that holds the truth.
    """
    if summary is None or config.summary != "labels":
        return predicted
    out = summary.copy()
    out[graph.train] = predicted[graph.train]
    return out


def last_summary(
    net: Net,
    weights: Sequence[dict],
    whole: WholeGraph,
    config: Config,
    multilabel: bool,
) -> np.ndarray | None:
    """The summary that these iterations, one after another, hand to the next one."""
    summary = first_summary(whole.graph, net)
    if summary is None:
        return None
    for iteration, params in enumerate(weights, start=1):
        how = whole, config, multilabel
        _, summary = _replayed(net, params, *how, iteration, summary)
    return summary


def _replayed(
    net: Net,
    params: dict,
    whole: WholeGraph,
    config: Config,
    multilabel: bool,
    iteration: int,
    summary: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """What an iteration predicts, and the summary after it, if the row reads one."""
    with_hidden = config.summary == "hidden"
    logits, hidden = predict_logits(net, params, whole, summary, with_hidden)
    predicted = probabilities(logits, multilabel)
    if summary is None:
        return predicted, None
    new = next_summary(whole.graph, config, iteration, summary, predicted, hidden)
    return predicted, new


def last_iteration(
    net: Net,
    weights: Sequence[dict],
    whole: WholeGraph,
    config: Config,
    multilabel: bool,
) -> tuple[np.ndarray | None, np.ndarray]:
    """The summary that the last of these iterations reads, and what it gives out."""
    how = whole, config, multilabel
    summary = last_summary(net, weights[:-1], *how)
    predicted, new = _replayed(net, weights[-1], *how, len(weights), summary)
    return summary, output(whole.graph, config, predicted, new)


def replay(
    net: Net, weights: Sequence[dict], graph: Graph, config: Config, multilabel: bool
) -> np.ndarray:
    """Probabilities [N, C] on a graph, by the iterations' weights one after another."""
    whole = WholeGraph(graph, config.chunk_edges)
    return last_iteration(net, weights, whole, config, multilabel)[1]

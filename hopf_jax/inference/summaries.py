"""Label summaries: what one HOPF iteration passes to the next."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from hopf_jax.config import Config
from hopf_jax.graph import Graph
from hopf_jax.inference.prediction import predict_logits
from hopf_jax.inference.whole_graph import WholeGraph
from hopf_jax.kernels import Net

_ROWS_AT_ONCE = 1 << 14


def _pieces(count: int) -> Iterator[slice]:
    """Yield slices of rows, so that fewer copies of [N, C] are in memory."""
    for start in range(0, count, _ROWS_AT_ONCE):
        yield slice(start, start + _ROWS_AT_ONCE)


def probabilities(logits: np.ndarray, multilabel: bool) -> np.ndarray:
    """Return the softmax over classes, or the sigmoid per label, [N, C]."""
    bad = ~np.isfinite(logits).all(axis=1)
    if bad.any():
        raise ValueError(
            f"The prediction of node {int(bad.argmax())} is not a number: features or "
            "edge weights are too large for these weights. Scale them, or lower "
            "learning_rate."
        )
    # On the host, where the logits are: on the device it would be another program.
    if multilabel:
        return expit(logits)
    out = np.empty_like(logits)
    with np.errstate(over="ignore"):  # Differences of huge logits are infinite.
        for rows in _pieces(len(logits)):
            out[rows] = softmax(logits[rows], axis=1)
    return out


def first_summary(graph: Graph, net: Net) -> np.ndarray | None:
    """Return the initial label summaries: zeros, or None if the kernel reads none."""
    if not net.kernel.iterative:
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
    """Return the summary after `iteration` (from 1), for the next one (Algorithm 1).

    Y for training nodes; (1 - a_t) new + a_t last for the others, a_t = (t - 1) / T.
    The paper prints t / T, which would give the last iteration no weight and mix the
    first with zeros; its authors' program counts from 0, as here.
    """
    new: Any = hidden if config.summary == "hidden" else predicted
    share = (iteration - 1) / config.num_iterations if config.average_labels else 0.0
    mixed = (1 - share) * new
    for rows in _pieces(len(mixed)):
        mixed[rows] += share * last[rows]
    if config.summary == "labels" and graph.train.any():
        mixed[graph.train] = graph.labels[graph.train]
    return mixed.astype(np.float32, copy=False)


def mean_change(new: np.ndarray, last: np.ndarray) -> float:
    """Return the mean absolute difference of two summaries."""
    pieces = _pieces(len(new))
    total = sum(np.abs(new[r] - last[r]).sum(dtype=np.float64) for r in pieces)
    return float(total / new.size)


def output(
    graph: Graph, config: Config, predicted: np.ndarray, summary: np.ndarray | None
) -> np.ndarray:
    """Return the averaged label probabilities after an iteration, [N, C].

    They are the summary, except for training nodes, where that holds the true labels.
    """
    if summary is None or config.summary != "labels":
        return predicted
    out = summary.copy()
    out[graph.train] = predicted[graph.train]
    return out


def complete_iteration(
    graph: Graph,
    config: Config,
    iteration: int,
    summary: np.ndarray | None,
    logits: np.ndarray,
    hidden: np.ndarray | None,
    *,
    multilabel: bool,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Turn logits into the output of an iteration and the next label summary.

    Args:
      graph: As the kernel reads it; its training nodes keep their labels.
      config: Settings.
      iteration: The iteration, from 1.
      summary: What it read; None if the kernel reads no summaries.
      logits: [N, C], what it predicted.
      hidden: h_K [N, *], where summaries are made of it.
      multilabel: Whether nodes have several labels.

    Returns:
      Probabilities [N, C], the output of Algorithm 1, and the summary for the next
      iteration; None if the kernel reads none.
    """
    predicted = probabilities(logits, multilabel)
    if summary is None:
        return predicted, None
    new = next_summary(graph, config, iteration, summary, predicted, hidden)
    return output(graph, config, predicted, new), new


def replay(
    net: Net,
    weights: Sequence[dict],
    whole: WholeGraph,
    config: Config,
    multilabel: bool,
) -> tuple[np.ndarray | None, np.ndarray]:
    """Run iterations with known weights on a graph.

    Returns:
      The label summaries that the last iteration read, [N, *] or None, and its output
      [N, C].
    """
    with_hidden = config.summary == "hidden"
    last = summary = first_summary(whole.graph, net)
    found = np.zeros((0, 0), np.float32)
    for t, params in enumerate(weights, start=1):
        last = summary
        outputs = predict_logits(net, params, whole, summary, with_hidden)
        found, summary = complete_iteration(
            whole.graph, config, t, summary, *outputs, multilabel=multilabel
        )
        del outputs  # Not held while the next iteration predicts.
    return last, found

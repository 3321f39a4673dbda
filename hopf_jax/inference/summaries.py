"""Label summaries: what one HOPF iteration passes to the next."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.special import expit, softmax

from hopf_jax.config import Config
from hopf_jax.graph import Graph
from hopf_jax.inference.prediction import predict_logits
from hopf_jax.inference.whole_graph import WholeGraph
from hopf_jax.kernels import Net

_ROWS_AT_ONCE = 1 << 14


class Labelled(Protocol):
    """What summaries read of a graph, or of some of its nodes."""

    @property
    def train(self) -> np.ndarray:
        """Mask of the training nodes."""

    @property
    def labels(self) -> np.ndarray:
        """Labels, one row per node."""

    @property
    def multilabel(self) -> bool:
        """Whether nodes have several labels."""


class Known(NamedTuple):
    """The labels of some nodes, as summaries read them of a graph."""

    train: np.ndarray
    labels: np.ndarray
    multilabel: bool


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


def first_summaries(
    graph: Graph, net: Net, config: Config, num_views: int = 1
) -> np.ndarray | None:
    """Return the initial label summaries: zeros, or None if the kernel reads none.

    Returns:
      [views, N, *]: the last view is that of all members. Before it are those of nets
      that do not know all labels: helpers, or members of folds. Hidden states mean
      different things to different nets: then each member has its own view only.
    """
    if not net.kernel.iterative:
        return None
    if reads_apart(config):
        num_views = config.num_members
    return np.zeros((num_views, graph.num_nodes, net.sizes.summary), np.float32)


def reads_apart(config: Config) -> bool:
    """Return whether each member reads its own hidden states."""
    crossed = config.training_summaries == "cross-fitted"
    return config.summary == "hidden" and not crossed


def next_summary(
    graph: Labelled,
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


def as_read(
    graph: Labelled, config: Config, iteration: int, summary: np.ndarray, scale: float
) -> np.ndarray:
    """Return a label summary as an iteration (from 1) reads it: scaled, with caution.

    The confidence of a prediction is its largest probability, scaled from [1 / C, 1] to
    [0, 1]; with several labels per node, the mean of |2 p - 1|.

    Args:
      graph: The graph; its training nodes are read always.
      config: Settings.
      iteration: The iteration that reads.
      summary: Label summaries [N, C].
      scale: What they are multiplied by.
    """
    if config.caution == "none" or iteration == 1:
        return summary if scale == 1 else np.float32(scale) * summary
    if graph.multilabel or summary.shape[1] == 1:
        confidence = np.abs(2 * summary - 1).mean(axis=1)
    else:
        least = 1 / summary.shape[1]
        confidence = (summary.max(axis=1) - least) / (1 - least)
    confidence[graph.train] = 1
    if config.caution == "share":
        others = np.flatnonzero(~graph.train)
        share = (iteration - 1) / (config.num_iterations - 1)
        order = others[np.argsort(-confidence[others], kind="stable")]
        confidence[:] = 1
        confidence[order[round(share * len(order)) :]] = 0
    return (summary * (scale * confidence)[:, None]).astype(np.float32, copy=False)


def mean_change(new: np.ndarray, last: np.ndarray) -> float:
    """Return the mean absolute difference of two summaries."""
    pieces = _pieces(len(new))
    total = sum(np.abs(new[r] - last[r]).sum(dtype=np.float64) for r in pieces)
    return float(total / new.size)


def output(
    graph: Labelled, config: Config, predicted: np.ndarray, summary: np.ndarray | None
) -> np.ndarray:
    """Return the averaged label probabilities after an iteration, [N, C].

    They are the summary, except for training nodes, where that holds the true labels.
    """
    if summary is None or config.summary != "labels":
        return predicted
    out = summary.copy()
    out[graph.train] = predicted[graph.train]
    return out


Predict = Callable[[int, np.ndarray | None], tuple[np.ndarray, np.ndarray | None]]


class Completed(NamedTuple):
    """What an iteration gives.

    Attributes:
      output: Probabilities [N, C], the output of Algorithm 1.
      summaries: Label summaries for the next iteration; None if the kernel reads none.
      held_out: Probabilities [N, C] of labelled nodes by nets that never saw their
        labels, where members learned from different folds; None otherwise.
    """

    output: np.ndarray
    summaries: np.ndarray | None
    held_out: np.ndarray | None = None


def complete_iteration(
    graph: Graph,
    config: Config,
    iteration: int,
    summaries: np.ndarray | None,
    predict: Predict,
    *,
    multilabel: bool,
    scale: float = 1.0,
    helpers: Sequence[Graph] = (),
    folds: Sequence[Graph] = (),
) -> Completed:
    """Turn predictions into the output of an iteration and the next label summaries.

    Args:
      graph: As the kernel reads it; its training nodes keep their labels.
      config: Settings.
      iteration: The iteration, from 1.
      summaries: What it read, as from `first_summaries`.
      predict: Returns the logits [N, C] of a net that reads a summary [N, *], and h_K
        [N, *], where summaries are made of it. Nets are numbered, members first.
      multilabel: Whether nodes have several labels.
      scale: What summaries are multiplied by to be read.
      helpers: What each helper learned from, where summaries are cross-fitted: the
        graph without its part of the training nodes.
      folds: What each member learned from and was stopped by, if that differs.
    """
    count, views, new = config.num_members, summaries, []

    def found(net: int, of: Graph, view: np.ndarray | None) -> tuple[Any, Any]:
        summary = None
        if view is not None:
            summary = as_read(of, config, iteration, view, scale)
        logits, hidden = predict(net, summary)
        return probabilities(logits, multilabel), hidden

    def advance(of: Graph, view: np.ndarray, said: tuple[Any, Any]) -> np.ndarray:
        new.append(next_summary(of, config, iteration, view, *said))
        return new[-1]

    if views is not None:
        for i, part in enumerate(helpers):
            advance(part, views[i], found(count + i, part, views[i]))
    shared = None if views is None else views[-1]
    apart = views is not None and not helpers and reads_apart(config)
    held_out: np.ndarray | None = None
    means: list[Any] = [None, None]
    for member in range(count):
        said = None
        if folds or apart:
            of = folds[member] if folds else graph
            view = None if views is None else views[member]
            said = found(member, of, view)
            next_view = None if view is None else advance(of, view, said)
            if folds:
                if held_out is None:
                    held_out = np.zeros_like(said[0])
                mine = output(of, config, said[0], next_view)[of.validation]
                held_out[of.validation] += mine / np.float32(config.members)
        # A view of labels differs from the shared one from the second iteration on.
        if said is None or not (views is None or apart or iteration == 1):
            said = found(member, graph, shared)
        for i, each in enumerate(said):
            if each is not None:
                means[i] = each if member == 0 else means[i] + each
        del said  # Not held while the next member predicts.
    if count > 1:
        means = [None if each is None else each / np.float32(count) for each in means]
    if views is None:
        return Completed(means[0], None, held_out)
    if not apart:
        advance(graph, views[-1], (means[0], means[1]))
    new_views = new[0][None] if len(new) == 1 else np.stack(new)
    reported = output(graph, config, means[0], new_views[-1])
    return Completed(reported, new_views, held_out)


def member_of(params: dict, member: int, count: int) -> dict:
    """Return the weights of one member, of weights that have an axis of members."""
    if count == 1:
        return params
    return {name: weights[member] for name, weights in params.items()}


def replay(
    net: Net,
    weights: Sequence[dict],
    whole: WholeGraph,
    config: Config,
    multilabel: bool,
) -> tuple[np.ndarray | None, np.ndarray]:
    """Run iterations with known weights on a graph.

    Returns:
      The label summaries that the last iteration read, [views, N, *] or None, and its
      output [N, C].
    """
    graph, scale = whole.graph, net.sizes.summary_scale
    with_hidden = config.summary == "hidden"
    last = summaries = first_summaries(graph, net, config)
    found = np.zeros((0, 0), np.float32)
    for t, params in enumerate(weights, start=1):
        last = summaries

        def predict(member: int, read: np.ndarray | None, params: dict = params) -> Any:
            own = member_of(params, member, config.num_members)
            return predict_logits(net, own, whole, read, with_hidden)

        done = complete_iteration(
            graph,
            config,
            t,
            summaries,
            predict,
            multilabel=multilabel,
            scale=scale,
        )
        found, summaries = done.output, done.summaries
    if last is not None:
        t = len(weights)
        last = np.stack([as_read(graph, config, t, view, scale) for view in last])
    return last, found

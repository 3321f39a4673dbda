"""Signs that a fit will go wrong, or has: messages that say why, and what to do.

`check_data` looks at a graph before training, `check_training` at what came of it. Both
return messages; `fit` emits them as `HopfWarning`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.batching import ranges
from hopf_jax.config import Config
from hopf_jax.graph import Graph
from hopf_jax.kernels import Kernel

_FEW_VALIDATION = 20  # Nodes.
_FEW_PER_CLASS = 2  # Validation nodes.
_MANY_SINGLES = 100  # Classes with one labelled node.
_ISOLATED_SHARE = 0.1  # Of the training nodes.
_SCALES_APART = 1000
_CONSTANT_SHARE = 0.5  # Of the columns.
_ROWS_LOOKED_AT = 10_000
_ENOUGH_EDGES = 100  # Entries of A between training nodes.
_LOW_HOMOPHILY = 0.05  # 0 is what chance gives, 1 if all neighbours are alike.


def check_data(graph: Graph, kernel: Kernel, config: Config) -> list[str]:
    """Return what is suspicious about a graph, as the nets of a kernel read it."""
    found = [
        _single_class(graph),
        _absent_classes(graph),
        _labels_like_ids(graph),
        None if config.folds else _small_validation(graph),
        *(check_scales(graph.features) if config.features == "as-is" else ()),
    ]
    if kernel.reach(config.num_hops):
        found.append(_isolated(graph))
        if kernel.shared_weights:
            found.append(_low_homophily(graph))
    return [message for message in found if message]


def check_training(
    graph: Graph,
    config: Config,
    iterations: Sequence[Mapping[str, Any]],
    scores: Mapping[str, float],
) -> list[str]:
    """Return what is suspicious about a fit.

    Args:
      graph: The graph that was fitted.
      config: Its settings.
      iterations: The records of all iterations, with their number of epochs.
      scores: F1 scores of the training nodes.
    """
    found = [_no_better_than_constant(graph, config, scores)]
    if any(record["epochs"] >= config.max_epochs for record in iterations):
        found.append(
            f"Training was stopped by max_epochs={config.max_epochs}, before the "
            "stopping rule ended it: scores may still have been rising. Raise "
            "max_epochs or learning_rate."
        )
    return [message for message in found if message]


def check_scales(features: np.ndarray | sp.csr_array) -> list[str]:
    """Return what is suspicious about features [N, F] that are read as they are."""
    step = max(1, features.shape[0] // _ROWS_LOOKED_AT)
    rows: Any = features[::step]
    if sp.issparse(rows):
        low = np.minimum(rows.min(axis=0).toarray(), 0).ravel()
        high = rows.max(axis=0).toarray().ravel()
        spread = np.maximum(high, -low).astype(np.float64)  # Zeros mean nothing.
    else:
        spread = np.asarray(rows, np.float64).std(axis=0)
        # Rounding gives a constant column some deviation.
        spread[np.ptp(rows, axis=0) == 0] = 0
    varying = spread[spread > 0]
    messages = []
    if len(spread) - varying.size >= max(1, _CONSTANT_SHARE * len(spread)):
        count = len(spread) - varying.size
        messages.append(
            f"{count} of {len(spread)} features are constant, and tell nodes apart in "
            "nothing. Drop these columns, or check how they were read."
        )
    if varying.size and varying.max() > _SCALES_APART * varying.min():
        wide = int(spread.argmax())
        narrow = int(np.where(spread > 0, spread, np.inf).argmin())
        messages.append(
            f"Features differ in scale by more than {_SCALES_APART}: column {wide} "
            f"varies by {spread[wide]:.2g}, column {narrow} by {spread[narrow]:.2g}, "
            "which a net will hardly read. Standardise the columns."
        )
    return messages


def _names(graph: Graph, labels: np.ndarray) -> str:
    names = [graph.label_names[label] for label in labels[:5]]
    return ", ".join(names) + ", ..." * (len(labels) > 5)


def _single_class(graph: Graph) -> str | None:
    """Of several labels per node one alone is something to learn."""
    classes = np.flatnonzero(graph.labels[graph.known].any(axis=0))
    if graph.multilabel or classes.size != 1:
        return None
    return (
        f"All known labels are {_names(graph, classes)!r}, so that is predicted for "
        "every node. Give labels of another class too."
    )


def _absent_classes(graph: Graph) -> str | None:
    trained = graph.labels[graph.train].any(axis=0)
    absent = np.flatnonzero(graph.labels[graph.known].any(axis=0) & ~trained)
    if not absent.size:
        return None
    return (
        f"{absent.size} of {graph.num_labels} labels ({_names(graph, absent)}) have "
        "labelled nodes, but no training node: they cannot be learned. "
        "hopf_jax.split_graph puts every class into training."
    )


def _labels_like_ids(graph: Graph) -> str | None:
    if graph.multilabel:
        return None
    counts = graph.labels[graph.known].sum(axis=0, dtype=np.int64)
    singles, classes = int((counts == 1).sum()), int((counts > 0).sum())
    if singles < max(_MANY_SINGLES, classes / 2):
        return None
    return (
        f"{singles} of {classes} classes have one labelled node each. Are the labels "
        "ids or numbers? Give classes that several nodes share."
    )


def _small_validation(graph: Graph) -> str | None:
    count = int(graph.validation.sum())
    classes = int(graph.labels[graph.train].any(axis=0).sum())
    if count >= max(_FEW_VALIDATION, _FEW_PER_CLASS * classes):
        return None
    return (
        f"There are {count} validation nodes for {classes} labels, too few to choose "
        "epochs and iterations by: scores on them are mostly chance. Move some "
        "training nodes there, or label more nodes."
    )


def _isolated(graph: Graph) -> str | None:
    alone = np.diff(graph.indptr)[graph.train] == 0
    if alone.mean() <= _ISOLATED_SHARE:
        return None
    return (
        f"{int(alone.sum())} of {alone.size} training nodes have no neighbours to "
        "read. Check that edges and features number nodes alike, and directed=True if "
        "it was given."
    )


def _low_homophily(graph: Graph) -> str | None:
    if graph.multilabel:
        return None
    nodes = np.flatnonzero(graph.train)
    starts, counts = graph.indptr[nodes], np.diff(graph.indptr)[nodes]
    senders = graph.indices[ranges(starts, counts)]
    both = graph.train[senders]
    if both.sum() < _ENOUGH_EDGES:
        return None
    receivers = np.repeat(nodes, counts)
    ends = [graph.labels[some[both]].argmax(axis=1) for some in (receivers, senders)]
    alike = float((ends[0] == ends[1]).mean())
    shares = [np.bincount(e, minlength=graph.num_labels) / both.sum() for e in ends]
    chance = float(shares[0] @ shares[1])
    if chance >= 1 or (alike - chance) / (1 - chance) >= _LOW_HOMOPHILY:
        return None
    return (
        f"Neighbours have the same label in {alike:.0%} of the edges between training "
        f"nodes, and by chance in {chance:.0%}: a kernel that reads a node and its "
        "neighbours with one weight matrix is misled. Use one that keeps them apart, "
        "or reads no neighbours."
    )


def _no_better_than_constant(
    graph: Graph, config: Config, scores: Mapping[str, float]
) -> str | None:
    """Compare with the best prediction that is the same for all training nodes.

    By the score that predictions are made for: others may well be lower.
    """
    shares = graph.labels[graph.train].mean(axis=0, dtype=np.float64)
    if (shares > 0).sum() < 2 or config.scoring == "cardinality":
        return None
    name = "micro_f1" if config.metric == "micro" else "macro_f1"
    each = 2 * shares / (1 + shares)  # F1 of a label that is always predicted.
    if not graph.multilabel:
        best = shares.max() if name == "micro_f1" else each.max() / len(each)
    elif name == "micro_f1":
        common = np.sort(shares)[::-1]
        most = np.arange(1, len(shares) + 1) + shares.sum()
        best = (2 * common.cumsum() / most).max()
    else:
        best = each.mean()
    if scores[name] > best + 1e-9:
        return None
    shown, advice = name.replace("_f1", "-F1"), []
    if config.features == "as-is":
        advice.append("let fit scale the features (features='auto')")
    if not config.bias:
        advice.append("set bias=True")
    advice += ["lower dropout and l2", "raise max_epochs"]
    return (
        f"The {shown} of training nodes is {scores[name]:.1%}, and {best:.1%} if all "
        "are predicted alike: nothing was learned. Perhaps neither features nor "
        f"neighbours tell the labels apart. Otherwise {', or '.join(advice)}."
    )

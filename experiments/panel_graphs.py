"""Random graphs of many kinds, for defaults that must suit graphs nobody has seen.

Edges follow a stochastic block model corrected for degrees: a sender is drawn by its
popularity, the class of its receiver by the mixing of classes, and the receiver by
popularity within that class.
"""

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax import Graph

_NUM_WORDS = 800
_SIGNAL = {"none": 0.0, "low": 0.5, "mid": 1.0, "high": 2.0}
_HOMOPHILY = {"strong": 0.8, "medium": 0.55, "weak": 0.35, "random": 0.0}


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a graph is like.

    Attributes:
      num_nodes: Number of nodes.
      num_classes: Number of classes.
      equal: Classes are equally frequent; else each is 0.6 times the one before.
      labels: Number of labelled nodes per class, at most half of them.
      degree: Mean number of neighbours.
      mixing: "strong", "medium" and "weak" homophily; "cyclic", each class next to two
        others (heterophily); "random", edges that say nothing.
      heavy_tail: Degrees have a heavy tail.
      features: "dense 8", "dense 500", "words", "id" (one-hot) or "none".
      signal: How much the features say: "none", "low", "mid" or "high".
      noise: Columns that say nothing are added, one of them an age.
      scales: Columns differ in scale by orders of magnitude, one has a heavy tail.
      isolated: Share of nodes without edges.
      directed: Edges have a direction.
      weighted: Edges have weights, larger within a class.
    """

    num_nodes: int
    num_classes: int
    equal: bool
    labels: int
    degree: float
    mixing: str
    heavy_tail: bool
    features: str
    signal: str
    noise: bool
    scales: bool
    isolated: float
    directed: bool
    weighted: bool

    def __str__(self) -> str:
        traits = [
            f"{self.num_classes} classes",
            f"{self.labels} labels each",
            f"degree {self.degree:g}",
            self.mixing,
            f"{self.features} ({self.signal})",
        ]
        flags = ("noise", "scales", "isolated", "directed", "weighted", "heavy_tail")
        traits += [name.replace("_", " ") for name in flags if getattr(self, name)]
        return ", ".join(traits + ["unequal"] * (not self.equal))


def draw_kind(rng: np.random.Generator) -> Kind:
    """Draw what a graph is like."""
    features = str(rng.choice(["dense 8", "dense 500", "words", "id", "none"]))
    dense = features.startswith("dense")
    said = ["none", "low", "mid", "mid", "high"] if dense or features == "words" else []
    signal = str(rng.choice(said)) if said else "none"
    mixings = ["strong", "strong", "medium", "weak", "cyclic"]
    if signal != "none":  # Otherwise there would be nothing to learn.
        mixings.append("random")
    return Kind(
        num_nodes=int(rng.choice([600, 1000, 2000, 3000])),
        num_classes=int(rng.choice([2, 3, 4, 7, 10])),
        equal=bool(rng.random() < 0.6),
        labels=int(rng.choice([5, 10, 20, 50, 200])),
        degree=float(rng.choice([2, 4, 10, 25])),
        mixing=str(rng.choice(mixings)),
        heavy_tail=bool(rng.random() < 0.4),
        features=features,
        signal=signal,
        noise=bool(rng.random() < 0.3) and dense,
        scales=bool(rng.random() < 0.4) and dense,
        isolated=float(rng.choice([0, 0, 0.1])),
        directed=bool(rng.random() < 0.25),
        weighted=bool(rng.random() < 0.25),
    )


def make_graph(kind: Kind, rng: np.random.Generator) -> tuple[Graph, np.ndarray]:
    """Return a graph that knows the labels of few nodes, and the classes [N] of all."""
    shares = np.ones(kind.num_classes) if kind.equal else _unequal(kind.num_classes)
    classes = rng.choice(kind.num_classes, kind.num_nodes, p=shares / shares.sum())
    senders, receivers = _edges(kind, classes, rng)
    features = _features(kind, classes, rng)
    weights = None
    if kind.weighted:
        weights = rng.gamma(2.0, 0.5, senders.size) + 0.1
        weights *= np.where(classes[senders] == classes[receivers], 1.5, 1.0)
    known = np.zeros(kind.num_nodes, bool)
    for label in range(kind.num_classes):
        nodes = rng.permutation(np.flatnonzero(classes == label))
        known[nodes[: max(2, min(kind.labels, len(nodes) // 2))]] = True
    graph = Graph.from_edges(
        senders,
        receivers,
        features,
        np.where(known, classes, -1),
        num_nodes=kind.num_nodes,
        weights=weights,
        directed=kind.directed,
        label_names=[str(label) for label in range(kind.num_classes)],
    )
    return graph, classes


def _unequal(num_classes: int) -> np.ndarray:
    return 0.6 ** np.arange(num_classes)


def _edges(
    kind: Kind, classes: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    count = kind.num_classes
    if kind.mixing == "cyclic":
        mixing = np.full((count, count), 0.1 / count)
        for label in range(count):
            mixing[label, (label + 1) % count] += 0.45
            mixing[label, (label - 1) % count] += 0.45
    else:
        same = _HOMOPHILY[kind.mixing]
        mixing = np.full((count, count), (1 - same) / count) + same * np.eye(count)
    popularity = np.ones(kind.num_nodes)
    if kind.heavy_tail:
        popularity = rng.pareto(2.5, kind.num_nodes) + 0.3
    popularity[rng.random(kind.num_nodes) < kind.isolated] = 0
    num_edges = int(kind.num_nodes * kind.degree / 2)
    senders = rng.choice(kind.num_nodes, num_edges, p=popularity / popularity.sum())
    thresholds = (mixing / mixing.sum(axis=1, keepdims=True)).cumsum(axis=1)
    drawn = rng.random((num_edges, 1)) * thresholds[:, -1:].min()
    towards = (thresholds[classes[senders]] > drawn).argmax(axis=1)
    receivers = np.zeros(num_edges, np.int64)
    for label in range(count):
        nodes = np.flatnonzero((classes == label) & (popularity > 0))
        chances = popularity[nodes] / popularity[nodes].sum()
        wanted = towards == label
        receivers[wanted] = rng.choice(nodes, np.count_nonzero(wanted), p=chances)
    proper = senders != receivers
    return senders[proper], receivers[proper]


def _features(kind: Kind, classes: np.ndarray, rng: np.random.Generator) -> Any:
    if kind.features == "none":
        return None
    if kind.features == "id":
        return sp.eye_array(kind.num_nodes, dtype=np.float32, format="csr")
    if kind.features == "words":
        return _words(kind, classes, rng)
    width = int(kind.features.split()[1])
    centres = rng.standard_normal((kind.num_classes, width))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    spread = 1.0 if width < 50 else 0.35
    matrix = rng.normal(scale=spread, size=(kind.num_nodes, width))
    matrix += 1.5 * _SIGNAL[kind.signal] * centres[classes]
    if kind.noise:
        ages = rng.integers(18, 80, (kind.num_nodes, 1))
        matrix = np.hstack([matrix, rng.normal(size=(kind.num_nodes, 20)), ages])
    if kind.scales:
        first = (matrix[:, 0] - matrix[:, 0].mean()) / matrix[:, 0].std()
        matrix *= 10 ** rng.uniform(-2, 3, matrix.shape[1])
        matrix += 10 ** rng.uniform(-1, 2, matrix.shape[1])
        matrix[:, 0] = np.sign(first) * np.exp(2 * np.abs(first))
    return matrix.astype(np.float32)


def _words(kind: Kind, classes: np.ndarray, rng: np.random.Generator) -> sp.csr_array:
    """Return bags of words: common ones, and some of the topic of the class."""
    common = rng.dirichlet(np.full(_NUM_WORDS, 0.3))
    topics = rng.dirichlet(np.full(_NUM_WORDS, 0.05), kind.num_classes)
    share = 0.175 * _SIGNAL[kind.signal]
    lengths = rng.poisson(15, kind.num_nodes) + 3
    words = [
        rng.choice(_NUM_WORDS, length, p=(1 - share) * common + share * topics[label])
        for length, label in zip(lengths, classes, strict=True)
    ]
    rows = np.repeat(np.arange(kind.num_nodes), lengths)
    found = sp.coo_array(
        (np.ones(rows.size, np.float32), (rows, np.concatenate(words))),
        (kind.num_nodes, _NUM_WORDS),
    )
    return found.tocsr()

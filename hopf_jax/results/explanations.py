"""What a prediction depends on: gradients of a node's logits, by hop and by node.

Two measures, of the same gradients. The *Jacobian* (Xu et al. 2018, "Representation
learning on graphs with jumping knowledge networks"): the influence of node j on node i
is the sum of the absolute entries of d logits_i / d x_j, over all labels; it needs no
unit as long as only attributes are compared. *Gradient times input*, to explain a
prediction: the sum over j's attributes of |x_jf d z_i / d x_jf|, and likewise over its
label summary, where z is the logit of the explained label less the mean of all logits
(the logit itself, if a node has several labels). Both parts are then in units of z, and
words that a node does not have do not count.

Within one iteration: label summaries are inputs here, as they are in training.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hopf_jax.batching import Batch, Layout, Neighborhoods, Subgraph, pad
from hopf_jax.config import Config
from hopf_jax.graph import Graph
from hopf_jax.inference import WholeGraph, replay
from hopf_jax.kernels import Net
from hopf_jax.results.text_tables import html_table, text_table


class Influence(NamedTuple):
    """How much each node of a neighbourhood moves the logits of its root."""

    subgraph: Subgraph
    attributes: np.ndarray  # [n], by the nodes' features
    labels: np.ndarray  # [n], by their label summaries

    @property
    def hops(self) -> np.ndarray:
        """How far each node is from the root, [n]."""
        counts = np.diff((0, *self.subgraph.node_counts))
        return np.repeat(np.arange(len(counts)), counts)


class Neighbor(NamedTuple):
    """A node that a prediction depends on; shares are of the whole prediction."""

    node: int
    hop: int
    share: float  # attributes + labels
    attributes: float
    labels: float
    prediction: str


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """What one prediction depends on; shows and draws itself.

    Attributes:
      node: the node.
      label: the label explained.
      probability: that the model gives it.
      shares: {"own": ..., "hop 1": ..., "labels": ...}: of the node's own attributes,
        of the attributes of the nodes so many hops away, and of label summaries. They
        sum to 1, or are all 0 if the prediction depends on nothing (`constant`).
      nodes: [n] the nodes it can read, itself first, by hop.
      hops: [n] how far they are.
      attributes, labels: [n] their shares.
      predictions: [n] what is predicted for them.
      edges: [e, 2] places in `nodes`: the first reads the second.
    """

    node: int
    label: str
    probability: float
    shares: dict[str, float]
    nodes: np.ndarray
    hops: np.ndarray
    attributes: np.ndarray
    labels: np.ndarray
    predictions: tuple[str, ...]
    edges: np.ndarray

    @property
    def constant(self) -> bool:
        """The prediction depends on no input: no neighbour, or units that are off."""
        return not any(self.shares.values())

    def neighbors(self, most: int = 10) -> list[Neighbor]:
        """The nodes of the largest share, the node itself aside."""
        share = self.attributes + self.labels
        order = np.argsort(-share[1:], kind="stable")[:most] + 1
        return [
            Neighbor(
                int(self.nodes[i]),
                int(self.hops[i]),
                float(share[i]),
                float(self.attributes[i]),
                float(self.labels[i]),
                self.predictions[i],
            )
            for i in order
            if share[i] > 0
        ]

    def plot(self, most: int = 24) -> Any:
        """A matplotlib figure: the shares, and the neighbourhood drawn by hop.

        Args:
          most: nodes drawn, those of the largest share, and what links them to the
            node. A disc's area is its share, its colour what is predicted for it.
        """
        from hopf_jax.results import plots

        return plots.plot_explanation(self, *hop_tree(self, most))

    def _caption(self) -> str:
        said = f"node {self.node}: {self.label}, {self.probability:.0%}"
        if self.constant:
            said += "; the prediction depends on no input"
        return said

    def _cells(self) -> list[tuple[str, ...]]:
        cells: list[tuple[str, ...]] = [("share of", "", "predicted")]
        for name, share in self.shares.items():
            cells.append((_SHARES.get(name, f"{name} attributes"), f"{share:.1%}", ""))
        for near in self.neighbors(5):
            name = f"  node {near.node}, hop {near.hop}"
            cells.append((name, f"{near.share:.1%}", near.prediction))
        return cells

    def __repr__(self) -> str:
        return text_table(self._caption(), self._cells())

    def _repr_html_(self) -> str:
        return html_table(self._caption(), self._cells())


_SHARES = {"own": "own attributes", "labels": "label summaries"}


def influences(
    net: Net,
    params: dict,
    graph: Graph,
    summary: np.ndarray | None,
    roots: Sequence[int] | np.ndarray,
    cotangents: np.ndarray,
    *,
    times_input: bool = False,
) -> Iterator[Influence]:
    """The influence on the logits of each of these nodes.

    Args:
      net, params: of the iteration that predicts.
      graph: as the kernel reads it.
      summary: what that iteration read, [all nodes, *], or None.
      roots: node ids.
      cotangents: [L, C]; influences are summed over these combinations of the logits.
      times_input: gradient times input; otherwise the gradient alone.
    """
    reach = net.kernel.reach(net.sizes.num_hops)
    hoods = Neighborhoods(graph, reach)
    subgraphs = [hoods.subgraph(np.array([root])) for root in roots]
    if not subgraphs:
        return
    # One layout, so one compilation, for all of them.
    layout = Layout.over(np.array([(*s.size, 0) for s in subgraphs]), reach)
    for subgraph in subgraphs:
        batch = pad(graph, subgraph, layout, features="dense")
        read = None if summary is None else summary[batch.graph.nodes["id"]]
        found = _influence(net, params, batch, read, cotangents, times_input)
        real = len(subgraph.nodes)
        yield Influence(subgraph, *(np.asarray(part)[:real] for part in found))


@functools.partial(jax.jit, static_argnames=("net", "times_input"))
def _influence(
    net: Net,
    params: Any,
    batch: Batch,
    summary: jax.Array | None,
    cotangents: jax.Array,
    times_input: bool,
) -> tuple[jax.Array, jax.Array]:
    """The influence of every node of a batch on its first root, twice [N]."""

    def logits(x: jax.Array, y: jax.Array | None) -> jax.Array:
        return net.apply({"params": params}, batch, x, y, method="logits")[0]

    x = jnp.asarray(batch.features)
    _, pull_back = jax.vjp(logits, x, summary)

    def strength(gradient: jax.Array, value: jax.Array) -> jax.Array:
        return jnp.abs(gradient * value if times_input else gradient).sum(axis=1)

    def of_one(cotangent: jax.Array) -> tuple[jax.Array, jax.Array]:
        by_x, by_y = pull_back(cotangent)
        attributes = strength(by_x, x)
        if summary is None:
            return attributes, jnp.zeros_like(attributes)
        return attributes, strength(by_y, summary)

    # Not `lax.map`: with wide features its program ends in a segmentation fault (Cora's
    # 1433, nip-mean, jaxlib 0.10).
    attributes, labels = jax.vmap(of_one)(cotangents)
    return attributes.sum(axis=0), labels.sum(axis=0)


def explain(
    net: Net,
    weights: Sequence[dict],
    whole: WholeGraph,
    config: Config,
    label_names: Sequence[str],
    multilabel: bool,
    node: int,
    label: int | str | None = None,
) -> Explanation:
    """Why a model predicts what it does for a node; see `Result.explain`.

    Args:
      net: the model.
      weights: of its iterations, up to the one reported.
      whole: the graph as the kernel reads it.
      config: its settings.
      label_names: C names.
      multilabel: several labels a node.
      node: which.
      label: its id or name; None for the likeliest.
    """
    # Shares are of the last iteration; its output is averaged with earlier ones.
    summary, predicted = replay(net, weights, whole, config, multilabel)
    place = _label_place(label, label_names, predicted[node])
    cotangent = np.zeros((1, len(label_names)), np.float32)
    cotangent[0, place] = 1
    if not multilabel and len(label_names) > 1:
        cotangent -= 1 / len(label_names)  # A softmax reads differences only.
    (found,) = influences(
        net, weights[-1], whole.graph, summary, [node], cotangent, times_input=True
    )
    both = np.stack([found.attributes, found.labels]).astype(np.float64)
    attributes, labels = both / (both.sum() or 1)
    subgraph = found.subgraph
    by_hop = np.bincount(found.hops, attributes, len(subgraph.node_counts))
    names = ("own", *(f"hop {hop}" for hop in range(1, len(by_hop))))
    shares = dict(zip(names, by_hop.tolist(), strict=True))
    readers = np.repeat(np.arange(len(subgraph.indptr) - 1), np.diff(subgraph.indptr))
    likeliest = predicted[subgraph.nodes].argmax(axis=1)
    return Explanation(
        node=node,
        label=label_names[place],
        probability=float(predicted[node, place]),
        shares=shares | {"labels": float(labels.sum())},
        nodes=subgraph.nodes,
        hops=found.hops,
        attributes=attributes,
        labels=labels,
        predictions=tuple(label_names[i] for i in likeliest),
        edges=np.stack([readers, subgraph.senders], axis=1),
    )


def _label_place(label: Any, names: Sequence[str], predicted: np.ndarray) -> int:
    if label is None:
        return int(predicted.argmax())
    if isinstance(label, str) and label in names:
        return list(names).index(label)
    if isinstance(label, int | np.integer) and 0 <= label < len(names):
        return int(label)
    raise ValueError(
        f"label is {label!r}; give an id from 0 to {len(names) - 1} or one of the "
        f"names: {', '.join(names[:20])}{', ...' * (len(names) > 20)}."
    )


def hop_tree(explanation: Explanation, most: int) -> tuple[np.ndarray, ...]:
    """Which nodes to draw, and where, in rings by hop.

    A node stands beyond its parent: the nearer one of the largest share that reads it.

    Returns:
      Places in `explanation.nodes` [n], positions [n, 2], and the parents' places [n].
    """
    share = explanation.attributes + explanation.labels
    hops, edges = explanation.hops, explanation.edges
    parent = np.zeros(len(hops), np.int64)
    inward = edges[hops[edges[:, 0]] == hops[edges[:, 1]] - 1]
    # The largest is written last.
    inward = inward[np.argsort(share[inward[:, 0]], kind="stable")]
    parent[inward[:, 1]] = inward[:, 0]
    drawn = {0, *(np.argsort(-share, kind="stable")[:most].tolist())}
    for place in list(drawn):
        while place:
            place = int(parent[place])
            drawn.add(place)
    order = sorted(drawn)  # By hop: a parent comes before its children.
    children: dict[int, list[int]] = {place: [] for place in order}
    for place in order[1:]:
        children[int(parent[place])].append(place)
    leaves = dict.fromkeys(order, 0)
    for place in reversed(order):
        leaves[place] = sum(leaves[child] for child in children[place]) or 1
    start, angle = {0: 0.0}, {0: 0.0}
    for place in order:
        begin = start[place]
        for child in children[place]:
            start[child] = begin
            angle[child] = 2 * np.pi * (begin + leaves[child] / 2) / leaves[0]
            begin += leaves[child]
    turned = np.array([angle[place] for place in order])
    at = hops[order][:, None] * np.stack([np.cos(turned), np.sin(turned)], axis=1)
    return np.array(order), at, parent[order]

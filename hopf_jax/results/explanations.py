"""What a prediction depends on: gradients of a node's logits, by hop and by node.

Two measures are made of the same gradients. The *Jacobian* (Xu et al. 2018,
"Representation learning on graphs with jumping knowledge networks"): the influence of
node j on node i is the sum of the absolute entries of d logits_i / d x_j over all
labels. It compares attributes with attributes. *Gradient times input* explains a
prediction: the sum over j's attributes of |x_jf d z_i / d x_jf|, and likewise over its
label summary, where z is the logit of the explained label minus the mean of all logits
(the logit itself with several labels per node). Attributes and label summaries are then
both in units of z, and attributes that are 0 do not count.

Both are within one iteration: label summaries are inputs, as they are in training.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hopf_jax.batching import Batch, Layout, Neighborhoods, Subgraph, pad
from hopf_jax.graph import Graph
from hopf_jax.inference import member_of
from hopf_jax.kernels import Net
from hopf_jax.results.text_tables import Tabular
from hopf_jax.runtime import compiled, releasing_programs

if TYPE_CHECKING:
    from hopf_jax.results.result import Result

_SHARES = {"own": "own attributes", "labels": "label summaries"}


class Influence(NamedTuple):
    """How much each node of a neighbourhood influences the logits of its root."""

    subgraph: Subgraph
    attributes: np.ndarray  # [n], by the nodes' features
    labels: np.ndarray  # [n], by their label summaries

    @property
    def hops(self) -> np.ndarray:
        """Distance of each node from the root, [n]."""
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
class Explanation(Tabular):
    """What one prediction depends on; notebooks show it as a table.

    Attributes:
      node: Its id.
      label: The explained label.
      probability: Predicted probability of that label.
      shares: {"own": ..., "hop 1": ..., "labels": ...}: shares of the node's own
        attributes, of the attributes of nodes that many hops away, and of label
        summaries. They sum to 1, or are all 0 if the prediction is `constant`.
      nodes: [n] ids of the nodes it can read, itself first, by hop.
      hops: [n] their distances.
      attributes, labels: [n] their shares.
      predictions: [n] their predicted labels; the likeliest of each, if several.
      edges: [e, 2] indices into `nodes`: the first reads the second.
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
        """Whether the prediction depends on no input, as with no neighbour to read."""
        return not any(self.shares.values())

    def neighbors(self, most: int = 10) -> list[Neighbor]:
        """Return the nodes of the largest share, except the node itself."""
        share = self.attributes + self.labels
        order = np.argsort(-share[1:], kind="stable")[:most] + 1
        columns = self.nodes, self.hops, share, self.attributes, self.labels
        return [
            Neighbor._make([*(c[i].item() for c in columns), self.predictions[i]])
            for i in order
            if share[i] > 0
        ]

    def plot(self, most: int = 24) -> Any:
        """Return a matplotlib figure: the shares, and the neighbourhood by hop.

        Args:
          most: Number of nodes to draw: those of the largest share, and what links them
            to the node. Area of a disc: its share; colour: its predicted label.
        """
        from hopf_jax.results import plots

        return plots.plot_explanation(self, most)

    def _caption(self) -> str:
        caption = f"node {self.node}: {self.label}, {self.probability:.0%}"
        return caption + "; the prediction depends on no input" * self.constant

    def _cells(self) -> list[tuple[str, ...]]:
        cells: list[tuple[str, ...]] = [("share of", "", "predicted")]
        for name, share in self.shares.items():
            cells.append((_SHARES.get(name, f"{name} attributes"), f"{share:.1%}", ""))
        for near in self.neighbors(5):
            name = f"  node {near.node}, hop {near.hop}"
            cells.append((name, f"{near.share:.1%}", near.prediction))
        return cells


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
    """Yield the influence on the logits of each root.

    Args:
      net, params: The kernel and the weights of one iteration.
      graph: The graph as the kernel reads it.
      summary: Label summaries that the iteration read, [all nodes, *], or None.
      roots: Node ids.
      cotangents: [L, C]; influences are summed over these combinations of the logits.
      times_input: Multiply gradients by their inputs.
    """
    reach = net.kernel.reach(net.sizes.num_hops)
    hoods = Neighborhoods(graph, reach)
    subgraphs = [hoods.subgraph(np.array([root])) for root in roots]
    if not subgraphs:
        return
    # One layout, and so one compilation, for all of them.
    layout = Layout.over(np.array([(*s.size, 0) for s in subgraphs]), reach)
    for subgraph in subgraphs:
        batch = pad(graph, subgraph, layout, features="dense")
        read = None if summary is None else summary[batch.graph.nodes["id"]]
        found = _influence(net, times_input, params, batch, read, cotangents)
        real = len(subgraph.nodes)
        yield Influence(subgraph, *(np.asarray(part)[:real] for part in found))


@compiled(num_static=2)
def _influence(
    net: Net,
    times_input: bool,
    params: Any,
    batch: Batch,
    summary: jax.Array | None,
    cotangents: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Return the influence of all nodes of a batch on its first root, twice [N]."""

    def logits(x: jax.Array, y: jax.Array | None) -> jax.Array:
        return net.apply({"params": params}, batch, x, y)[0]

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

    # Not `lax.map`, whose program crashes with wide features (jaxlib 0.10).
    attributes, labels = jax.vmap(of_one)(cotangents)
    return attributes.sum(axis=0), labels.sum(axis=0)


@releasing_programs()
def explain(
    result: "Result", graph: Graph, node: int, label: int | str | None
) -> Explanation:
    """Explain the prediction for a node; see `Result.explain`.

    Shares are those of the last iteration, whose output is averaged with earlier ones.
    """
    net, graph, summaries, predicted = result._replay(graph)
    label_names = result.label_names
    if result.multilabel:
        decided = predicted.argmax(axis=1)
    else:
        decided = result.decision.decide(predicted)
    column = _find_label(label, label_names, int(decided[node]))
    cotangent = np.zeros((1, len(label_names)), np.float32)
    cotangent[0, column] = 1
    if not result.multilabel and len(label_names) > 1:
        cotangent -= 1 / len(label_names)  # A softmax depends on differences only.
    params, count = result.weights[result.iteration - 1], result.config.num_members
    both: Any = 0.0
    for member in range(count):
        own = member_of(params, member, count)
        read = None if summaries is None else summaries[member % len(summaries)]
        (found,) = influences(
            net, own, graph, read, [node], cotangent, times_input=True
        )
        both = both + np.stack([found.attributes, found.labels]).astype(np.float64)
    attributes, labels = both / (both.sum() or 1)
    subgraph = found.subgraph
    by_hop = np.bincount(found.hops, attributes, len(subgraph.node_counts))
    names = ("own", *(f"hop {hop}" for hop in range(1, len(by_hop))))
    shares = dict(zip(names, by_hop.tolist(), strict=True))
    readers = np.repeat(np.arange(len(subgraph.indptr) - 1), np.diff(subgraph.indptr))
    return Explanation(
        node=node,
        label=label_names[column],
        probability=float(predicted[node, column]),
        shares=shares | {"labels": float(labels.sum())},
        nodes=subgraph.nodes,
        hops=found.hops,
        attributes=attributes,
        labels=labels,
        predictions=tuple(label_names[i] for i in decided[subgraph.nodes]),
        edges=np.stack([readers, subgraph.senders], axis=1),
    )


def _find_label(label: Any, names: Sequence[str], predicted: int) -> int:
    if label is None:
        return predicted
    if isinstance(label, str) and label in names:
        return list(names).index(label)
    if isinstance(label, int | np.integer) and 0 <= label < len(names):
        return int(label)
    raise ValueError(
        f"label is {label!r}; give an id from 0 to {len(names) - 1} or one of the "
        f"names: {', '.join(names[:20])}{', ...' * (len(names) > 20)}."
    )

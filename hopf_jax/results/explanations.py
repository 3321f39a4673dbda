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
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hopf_jax.batching import Batch, Layout, Neighborhoods, Subgraph, pad
from hopf_jax.graph import Graph, Label
from hopf_jax.inference import member_of
from hopf_jax.kernels import Net
from hopf_jax.runtime import (
    compiled,
    html_lines,
    html_table,
    import_or_explain,
    releasing_programs,
    text_table,
)
from hopf_jax.suggestions import suggest

if TYPE_CHECKING:
    from hopf_jax.results.result import Result

# The net, the graph as it reads it, the label summaries that the last iteration read,
# and probabilities [N, C].
Replayed = tuple[Net, Graph, np.ndarray | None, np.ndarray]

_LEAST_SHOWN = 0.0005  # Of the shares in a table; less would be 0.0%.
_MOST_LISTED = 5  # Features and nodes in a text.


class Influence(NamedTuple):
    """How much each node of a neighbourhood influences the logits of its root."""

    subgraph: Subgraph
    attributes: np.ndarray  # [n], by the nodes' features
    labels: np.ndarray  # [n], by their label summaries
    columns: np.ndarray  # [F], by the columns of the features, of all nodes together

    @property
    def hops(self) -> np.ndarray:
        """Distance of each node from the root, [n]."""
        counts = np.diff((0, *self.subgraph.node_counts))
        return np.repeat(np.arange(len(counts)), counts)


class Neighbor(NamedTuple):
    """A node that a prediction depends on; shares are of the whole prediction."""

    node: Hashable  # Its name or id.
    hop: int
    share: float  # attributes + labels
    attributes: float
    labels: float
    prediction: Label


class Column(NamedTuple):
    """A column of the features that a prediction depends on, at all nodes together."""

    name: str
    share: float  # Of the whole prediction.


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """What one prediction depends on; notebooks show it as tables.

    Attributes:
      node: Its name, or id.
      label: The explained label.
      probability: Probability of that label, calibrated as in `Result.confidence`.
      shares: {"own": ..., "hop 1": ..., "labels": ...}: shares of the node's own
        attributes, of the attributes of nodes that many hops away, and of label
        summaries. They sum to 1, or are all 0 if the prediction is `constant`.
      nodes: [n] ids of the nodes it can read, itself first, by hop.
      names: [n] their names, or ids.
      hops: [n] their distances.
      attributes, labels: [n] their shares.
      predictions: [n] their predicted labels; the likeliest of each, if several.
      edges: [e, 2] indices into `nodes`: the first reads the second.
      classes: C labels, in the order of the columns of `predict_proba`.
      columns: [F] shares of the columns of the features.
      column_names: [F] their names.
    """

    node: Hashable
    label: Label
    probability: float
    shares: dict[str, float]
    nodes: np.ndarray
    names: tuple[Hashable, ...]
    hops: np.ndarray
    attributes: np.ndarray
    labels: np.ndarray
    predictions: tuple[Label, ...]
    edges: np.ndarray
    classes: tuple[Label, ...] = ()
    columns: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    column_names: Sequence[str] = ()

    @property
    def constant(self) -> bool:
        """Whether the prediction depends on no input, as with no neighbour to read."""
        return not any(self.shares.values())

    def neighbors(self, most: int = 10) -> list[Neighbor]:
        """Return the nodes of the largest share, except the node itself."""
        share = self.attributes + self.labels
        order = np.argsort(-share[1:], kind="stable")[:most] + 1
        columns = self.hops, share, self.attributes, self.labels
        return [
            Neighbor._make(
                (self.names[i], *(c[i].item() for c in columns), self.predictions[i])
            )
            for i in order
            if share[i] > 0
        ]

    def features(self, most: int = 10) -> list[Column]:
        """Return the columns of the features of the largest share."""
        order = np.argsort(-self.columns, kind="stable")[:most]
        return [
            Column(self.column_names[i], self.columns[i].item())
            for i in order
            if self.columns[i] > 0
        ]

    def plot(self, most: int = 24) -> Any:
        """Return a matplotlib figure: the shares, and the neighbourhood by hop.

        Args:
          most: Number of nodes to draw: those of the largest share, and what links them
            to the node. Area of a disc: its share; colour: its predicted label.
        """
        from hopf_jax.results import plots

        return plots.plot_explanation(self, most)

    def to_frame(self) -> Any:
        """Return all nodes with a share as a DataFrame, largest share first.

        Its columns are node, hop, share, attributes, labels and prediction; the first
        row may be the node itself (hop 0).
        """
        pd = import_or_explain("pandas", "to_frame")
        share = self.attributes + self.labels
        order = np.argsort(-share, kind="stable")
        order = order[share[order] > 0]
        columns = {
            "node": [self.names[i] for i in order],
            "hop": self.hops[order],
            "share": share[order],
            "attributes": self.attributes[order],
            "labels": self.labels[order],
            "prediction": [self.predictions[i] for i in order],
        }
        return pd.DataFrame(columns)

    def _caption(self) -> str:
        said = f"Node {self.node}: {self.label} (confidence {self.probability:.0%})"
        return said + "; the prediction depends on no input" * self.constant

    def _tables(self) -> Iterator[list[tuple[str, ...]]]:
        """Yield three breakdowns of the same prediction."""
        cells: list[tuple[str, ...]] = [("the prediction depends on", "share")]
        for name, share in self.shares.items():
            if share >= _LEAST_SHOWN or name == "own":
                cells.append((describe_share(name), f"{share:.1%}"))
        yield cells
        features = self.features(_MOST_LISTED)
        if features:
            yield [
                ("strongest features, of all these nodes", "share"),
                *((name, f"{share:.1%}") for name, share in features),
            ]
        near = self.neighbors(_MOST_LISTED)
        if near:
            yield [
                ("strongest other nodes", "hops away", "share", "predicted"),
                *(
                    (str(n.node), str(n.hop), f"{n.share:.1%}", str(n.prediction))
                    for n in near
                ),
            ]

    def __repr__(self) -> str:
        return "\n\n".join([self._caption(), *map(text_table, self._tables())])

    def _repr_html_(self) -> str:
        tables = (html_table("", cells) for cells in self._tables())
        return html_lines([self._caption()]) + "".join(tables)


def describe_share(share: str) -> str:
    """Return a key of `Explanation.shares` in words."""
    if share == "own":
        return "own features"
    if share == "labels":
        return "labels of neighbours"
    hop = share.removeprefix("hop ")
    return "features of neighbours" if hop == "1" else f"features {hop} hops away"


def influences(
    net: Net,
    params: dict,
    graph: Graph,
    summary: np.ndarray | None,
    roots: Sequence[int] | np.ndarray,
    cotangents: np.ndarray,
    *,
    times_input: bool = False,
    few_programs: bool = False,
) -> Iterator[Influence]:
    """Yield the influence on the logits of each root.

    Args:
      net, params: The kernel and the weights of one iteration.
      graph: The graph as the kernel reads it.
      summary: Label summaries that the iteration read, [all nodes, *], or None.
      roots: Node ids.
      cotangents: [L, C]; influences are summed over these combinations of the logits.
      times_input: Multiply gradients by their inputs.
      few_programs: Pad generously, so that roots of later calls compile nothing.
    """
    reach = net.kernel.reach(net.sizes.num_hops)
    hoods = Neighborhoods(graph, reach)
    subgraphs = [hoods.subgraph(np.array([root])) for root in roots]
    if not subgraphs:
        return
    # One layout, and so one compilation, for all of them.
    layout = Layout.over(np.array([(*s.size, 0) for s in subgraphs]), reach)
    if few_programs:
        layout = _generous(layout)
    for subgraph in subgraphs:
        batch = pad(graph, subgraph, layout, features="dense")
        read = None if summary is None else summary[batch.graph.nodes["id"]]
        found = _influence(net, times_input, params, batch, read, cotangents)
        real = len(subgraph.nodes)
        attributes, labels, columns = map(np.asarray, found)
        yield Influence(subgraph, attributes[:real], labels[:real], columns)


def _generous(layout: Layout) -> Layout:
    """Return a larger layout, one of few: about one per power of 4."""

    def room(count: int) -> int:
        return 64 << 2 * max(0, -(-((count - 1) // 64).bit_length() // 2))

    nodes, edges = room(layout.nodes[-1]), room(max((*layout.edges, 1)))
    return Layout(
        (layout.nodes[0], *(nodes for _ in layout.nodes[1:])),
        tuple(edges for _ in layout.edges),
    )


@compiled(num_static=2, stage="prediction")
def _influence(
    net: Net,
    times_input: bool,
    params: Any,
    batch: Batch,
    summary: jax.Array | None,
    cotangents: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the influence on the first root of a batch: of all nodes, [N] and [N].

    And of the columns of the features, [F]; padding has none.
    """

    def logits(x: jax.Array, y: jax.Array | None) -> jax.Array:
        return net.apply({"params": params}, batch, x, y)[0]

    x = jnp.asarray(batch.features)
    _, pull_back = jax.vjp(logits, x, summary)

    def strength(gradient: jax.Array, value: jax.Array) -> jax.Array:
        return jnp.abs(gradient * value if times_input else gradient)

    def of_one(cotangent: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        by_x, by_y = pull_back(cotangent)
        each = strength(by_x, x)
        attributes, columns = each.sum(axis=1), each.sum(axis=0)
        if summary is None:
            return attributes, jnp.zeros_like(attributes), columns
        return attributes, strength(by_y, summary).sum(axis=1), columns

    # Not `lax.map`, whose program crashes with wide features (jaxlib 0.10).
    attributes, labels, columns = jax.vmap(of_one)(cotangents)
    return attributes.sum(axis=0), labels.sum(axis=0), columns.sum(axis=0)


@releasing_programs()
def explain(
    result: "Result", replayed: Replayed, node: int, label: Label | None
) -> Explanation:
    """Explain the prediction for a node; see `Result.explain`.

    Shares are those of the last iteration, whose output is averaged with earlier ones.
    """
    net, graph, summaries, predicted = replayed
    classes = result.classes_.tolist()

    def decide(nodes: Any) -> np.ndarray:
        """Return one label per node: the likeliest, where nodes have several."""
        said = predicted[nodes]
        if result.multilabel:
            return said.argmax(axis=1)
        return result.decision.decide(said)

    own_label = int(decide([node])[0])
    column = _find_label(label, classes, result.label_names, own_label)
    cotangent = np.zeros((1, len(classes)), np.float32)
    cotangent[0, column] = 1
    if not result.multilabel and len(classes) > 1:
        cotangent -= 1 / len(classes)  # A softmax depends on differences only.
    params, count = result.weights[result.iteration - 1], result.config.num_members
    both: Any = 0.0
    columns: Any = 0.0
    for member in range(count):
        own = member_of(params, member, count)
        read = None if summaries is None else summaries[member % len(summaries)]
        (found,) = influences(
            *(net, own, graph, read, [node], cotangent),
            times_input=True,
            few_programs=True,
        )
        both = both + np.stack([found.attributes, found.labels]).astype(np.float64)
        columns = columns + found.columns.astype(np.float64)
    total = both.sum() or 1
    attributes, labels = both / total
    subgraph = found.subgraph
    names = graph.node_index.call(subgraph.nodes)
    sure = predicted[[node]]
    if result.calibration is not None:  # As in files of the first format.
        sure = result.calibrated(sure)
    by_hop = np.bincount(found.hops, attributes, len(subgraph.node_counts))
    parts = ("own", *(f"hop {hop}" for hop in range(1, len(by_hop))))
    shares = dict(zip(parts, by_hop.tolist(), strict=True))
    readers = np.repeat(np.arange(len(subgraph.indptr) - 1), np.diff(subgraph.indptr))
    return Explanation(
        node=names[0],
        label=classes[column],
        probability=float(sure[0, column]),
        shares=shares | {"labels": float(labels.sum())},
        nodes=subgraph.nodes,
        names=tuple(names),
        hops=found.hops,
        attributes=attributes,
        labels=labels,
        predictions=tuple(classes[i] for i in decide(subgraph.nodes)),
        edges=np.stack([readers, subgraph.senders], axis=1),
        classes=tuple(classes),
        columns=columns / total,
        column_names=result.read_names,
    )


def hop_tree(explanation: Explanation, most: int) -> tuple[np.ndarray, ...]:
    """Choose the nodes to draw and their positions, in rings by hop.

    The parent of a node, beyond which it is drawn, is the node of the largest share
    among those that read it and are one hop nearer.

    Returns:
      Indices into `explanation.nodes` [n], positions [n, 2], and indices of the parents
      [n].
    """
    share = explanation.attributes + explanation.labels
    hops, edges = explanation.hops, explanation.edges
    parent = np.zeros(len(hops), np.int64)
    inward = edges[hops[edges[:, 0]] == hops[edges[:, 1]] - 1]
    # In order of share: the largest is written last, and stays.
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


def _find_label(
    label: Any, classes: Sequence[Label], names: Sequence[str], predicted: int
) -> int:
    """Return the column of a label, given as the graph has it, or by name or column."""
    if label is None:
        return predicted
    for known in (classes, names):
        for column, each in enumerate(known):
            if type(label) is type(each) and label == each:
                return column
    whole = isinstance(label, int | np.integer) and not isinstance(label, bool)
    if whole and classes[0] == names[0] and 0 <= label < len(names):
        return int(label)
    hint = suggest(label, classes, "The labels")
    raise ValueError(f"label is {label!r}, which the model does not know. {hint}")

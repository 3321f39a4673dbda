"""`Graph`: an attributed graph on the host, validated when it is made."""

import dataclasses
import functools
import inspect
import logging
import warnings
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast

import jraph
import numpy as np
import scipy.sparse as sp

from hopf_jax.graph import conversion
from hopf_jax.graph.description import count_edges, describe_graph, graph_to_html
from hopf_jax.graph.encoding import encode_columns
from hopf_jax.graph.features import NodeFeatures, read_features
from hopf_jax.graph.labels import Label, check_labels, gather_labels
from hopf_jax.graph.mistakes import (
    check_answer_is_hidden,
    check_attribute,
    check_call,
    check_mask,
    check_size,
    number_from_one,
    which_call,
)
from hopf_jax.graph.names import NodeIndex, call_ends, name_nodes
from hopf_jax.graph.positions import make_positions
from hopf_jax.graph.validation import (
    check_csr,
    check_edges,
    check_sparse,
    check_split,
    check_whole,
    to_array,
)
from hopf_jax.runtime import HopfWarning, check_memory
from hopf_jax.suggestions import AnsweringTypos, answering_typos

_BYTES_PER_NODE = 48  # At least: row pointers of A and of what it is made from.
_NUMBERS_ARE_IDS = (
    "Whole numbers are ids, 0 to N - 1. If yours are names, as customer numbers are, "
    "use Graph.from_pandas, or list them in node_names."
)
_log = logging.getLogger(__name__)

SPLITS = ("train", "validation", "test")
# Arguments of `Graph.from_edges` that other constructors pass on to it.
_KEYWORDS = (
    "labels", "weights", "num_nodes", "missing", *SPLITS, "directed", "self_loops",
    "multilabel", "label_names", "node_names",
)  # fmt: skip
C = TypeVar("C", bound=Callable)


def _passing_on(constructor: C) -> C:
    """Return a constructor that answers typos in what it passes to `from_edges`."""
    own = inspect.signature(constructor).parameters
    passed_on = [name for name in _KEYWORDS if name.removesuffix("s") not in own]
    return cast(C, answering_typos(constructor, passed_on=passed_on))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Graph(AnsweringTypos):
    """An attributed graph with labels, features and a split.

    Make one with `from_edges`, `from_csr`, `from_scipy`, `from_networkx`,
    `from_pandas`, `from_jraph` or `from_pyg`, which share these arguments:

    Args:
      features: Numbers [N, F], as an array, a scipy sparse matrix or a memory map; or a
        DataFrame, whose text columns are one-hot encoded as `column=text`. None to
        compute features from the edges: positions in the graph, and degrees.
      missing: "refuse" missing features, or replace them by the "mean" of their column
        and add a column that marks them.
      labels: Class ids or names [N], a one-hot matrix or a multi-label matrix [N, C].
        Unknown labels are -1, NaN, None or "" among ids and names, and rows with a NaN
        in a matrix (in a one-hot matrix also rows of zeros).
      train, validation, test: Masks [N], or names or ids of nodes, all of them
        labelled.
      directed: Keep the direction of edges; see also `Config.directions`. Otherwise the
        adjacency matrix A becomes max(A, A^T).
      self_loops: "drop" or "keep" edges from a node to itself. With them, training
        nodes read their own labels in iterative models.
      multilabel: Whether nodes have several labels; None to infer it from the labels.
      label_names: C names, or a dictionary from ids to names.
      node_names: N names of the nodes, any hashable values, in the order of the rows.
        The nodes of networkx and the index of pandas are names without it.

    Nodes are identified by their names if they have some, and else by their ids, 0 to
    N - 1. If names are whole numbers, a whole number is a name, not an id.

    Rows of a DataFrame or Series are matched by its index, which holds the names of the
    nodes, or 0 to N - 1. Nodes that are missing among the labels are unlabelled. Class
    ids other than 0 to C - 1 become names of classes.

    Weights of duplicate edges are summed; without weights, duplicates count once. Edges
    of weight 0 are dropped.

    Attributes:
      indptr, indices: CSR rows of A: `indices[indptr[i]:indptr[i+1]]` are the nodes
        that i reads from.
      weights: [E] float32, or None if all are 1.
      degree: [N] float32, the row sums of A.
      features: [N, F]; NaN where values are missing, if `missing_values`.
      labels: [N, C] uint8; `known` [N] says which rows are known.
      node_names: N names, or () if nodes have none but their ids.
      label_names: C names, as text.
      classes: C labels as they were given, if they were not text: whole numbers, or
        truth values; else ().
      feature_names: F names, or () if the columns have none.
      positional: Whether the features were made from the edges.
    """

    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray | None
    features: np.ndarray | sp.csr_array
    labels: np.ndarray
    known: np.ndarray
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    multilabel: bool = False
    label_names: tuple[str, ...] = ()
    directed: bool = False
    feature_names: tuple[str, ...] = ()
    missing_values: bool = False
    positional: bool = False
    node_names: tuple[Hashable, ...] = ()
    classes: tuple[Label, ...] = ()

    _CALLED: ClassVar[dict[str, str]] = {
        "nodes": "node_names, or num_nodes",
        "edges": "indptr and indices, or to_pandas()",
        "x": "features",
        "y": "labels",
        "columns": "feature_names",
        "split": "with_split(...), or hopf_jax.split_graph(graph)",
    }

    if not TYPE_CHECKING:

        def __new__(cls, *arguments, **fields):
            """Raise `TypeError` for a graph of another library."""
            if arguments:
                raise TypeError(
                    "Graph() makes no graph of other objects. Use Graph.from_networkx, "
                    "from_pandas, from_edges, from_scipy or from_pyg."
                )
            return super().__new__(cls)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of entries of A: an undirected edge counts twice, a self-loop once."""
        return len(self.indices)

    @property
    def num_features(self) -> int:
        """Number of features, F."""
        return int(self.features.shape[1])

    @property
    def num_labels(self) -> int:
        """Number of classes or labels, C."""
        return int(self.labels.shape[1])

    @property
    def degree(self) -> np.ndarray:
        """Row sums of A, [N] float32: the diagonal of the paper's D."""
        if self.weights is None:
            return np.diff(self.indptr).astype(np.float32)
        # Differences of a running sum would lose a weight of 1 after one of 1e30.
        total = np.zeros(self.num_nodes)
        rows = np.flatnonzero(np.diff(self.indptr))
        if rows.size:
            starts = self.indptr[rows]
            total[rows] = np.add.reduceat(self.weights, starts, dtype=np.float64)
        with np.errstate(over="ignore"):  # Checked when the graph is made.
            return total.astype(np.float32)

    @property
    def adjacency(self) -> sp.csr_array:
        """A as a scipy matrix [N, N]; row i holds the nodes that i reads from."""
        ones = np.ones(self.num_edges, np.float32)
        weights = ones if self.weights is None else self.weights
        shape = (self.num_nodes, self.num_nodes)
        return sp.csr_array((weights, self.indices, self.indptr), shape)

    @functools.cached_property
    def node_index(self) -> NodeIndex:
        """Finds nodes by their names or ids."""
        return NodeIndex(self.node_names, self.num_nodes)

    def __repr__(self) -> str:
        sizes = {s: int(getattr(self, s).sum()) for s in SPLITS}
        sets = ", ".join(f"{size} {name}" for name, size in sizes.items())
        kind = "labels, several per node" if self.multilabel else "classes"
        return (
            f"Graph({self.num_nodes} nodes, {count_edges(self)} "
            f"{'directed' if self.directed else 'undirected'} edges, "
            f"{self.num_features} features, {self.num_labels} {kind}; "
            f"{int(self.known.sum())} nodes labelled, "
            f"{sets if any(sizes.values()) else 'no split'})"
        )

    def _repr_html_(self) -> str:
        return graph_to_html(self)

    def describe(self) -> str:
        """Return a text about edges, labels, split, and how features will be scaled."""
        return describe_graph(self)

    @answering_typos
    def with_split(
        self, train: Any = None, validation: Any = None, test: Any = None
    ) -> Self:
        """Return the graph with another split, given as masks [N], names or ids.

        >>> graph = Graph.from_edges([0, 1], [1, 2], [[1], [2], [3]], [0, 1, 1])
        >>> graph.with_split(train=[0], validation=[1], test=[2])
        Graph(3 nodes, 2 undirected edges, 1 features, 2 classes; 3 nodes labelled, 1 train, 1 validation, 1 test)
        """  # noqa: E501
        masks: dict[str, Any] = {
            name: _check_set(nodes, self.node_index, name)
            for name, nodes in zip(SPLITS, (train, validation, test), strict=True)
        }
        check_split(masks, self.known, self.node_names)
        return dataclasses.replace(self, **masks)

    def undirected(self) -> Self:
        """Return the graph with every edge in both directions: A becomes max(A, A^T).

        >>> graph = Graph.from_edges([0], [1], [[1], [2]], directed=True)
        >>> graph.num_edges, graph.undirected().num_edges
        (1, 2)
        """
        if not self.directed:
            return self
        matrix = self.adjacency
        matrix = sp.csr_array(matrix.maximum(matrix.T.tocsr()))
        matrix.sort_indices()
        return dataclasses.replace(
            self,
            indptr=matrix.indptr.astype(np.int64),
            indices=matrix.indices,
            weights=None if self.weights is None else matrix.data.astype(np.float32),
            directed=False,
        )

    def to_networkx(self, *, features: bool = False) -> Any:
        """Return a networkx graph whose nodes are the names, or ids, of the nodes.

        Nodes have the attributes `label` (a list, if nodes have several) and `set`,
        where known, edges that of `weight`. An undirected edge occurs once.

        Args:
          features: Add the rows of the features as the attribute `features`.
        """
        return conversion.to_networkx(self, features)

    def to_pandas(self) -> tuple[Any, Any]:
        """Return DataFrames of edges and of nodes, as `from_pandas` reads them.

        Edges have the columns source, target and, if there are weights, weight; an
        undirected edge occurs once. Nodes are indexed by their names or ids, and have
        columns of features, `label` (one column per label, if nodes have several), and
        `set`, if there is a split.
        """
        return conversion.to_pandas(self)

    def to_pyg(self) -> Any:
        """Return a `Data` of PyTorch Geometric, with dense features.

        Unknown labels are -1; rows of NaN, if nodes have several labels.
        """
        return conversion.to_pyg(self)

    def to_scipy(self) -> sp.csr_array:
        """Return a copy of `adjacency`, as `from_scipy` reads it."""
        return self.adjacency.copy()

    @classmethod
    @answering_typos
    def from_edges(
        cls,
        senders: Any,
        receivers: Any,
        features: Any = None,
        labels: Any = None,
        *,
        weights: Any = None,
        num_nodes: int | None = None,
        missing: str = "refuse",
        train: Any = None,
        validation: Any = None,
        test: Any = None,
        directed: bool = False,
        self_loops: str = "drop",
        multilabel: bool | None = None,
        label_names: Any = None,
        node_names: Any = None,
    ) -> Self:
        """Make a graph from edges.

        Args:
          senders, receivers: Names or ids of nodes, each [E]. Names need rows with
            names: features and labels with an index, a dictionary of labels, or
            `node_names`.
          weights: Non-negative numbers [E]; None if all are 1.
          num_nodes: Number of nodes N, if there are no features; None for that of the
            labels, or of the ids.

        All other arguments are described in `Graph`.

        >>> import numpy as np
        >>> graph = Graph.from_edges([0, 1], [1, 2], np.eye(3), ["a", "b", None])
        >>> graph.degree.tolist(), graph.label_names, graph.known.tolist()
        ([1.0, 2.0, 1.0], ('a', 'b'), [True, True, False])
        >>> named = Graph.from_edges(["Ann", "Bob"], ["Bob", "Eve"], labels={"Eve": 1})
        >>> named.node_names, named.known.tolist()
        (('Ann', 'Bob', 'Eve'), [False, False, True])
        """
        if node_names is None:
            check_call(senders, receivers, features, labels)
        names, senders, receivers = name_nodes(
            senders, receivers, features, labels, node_names
        )
        if names:
            num_nodes = len(names)
        check_size(features, labels, num_nodes, senders, receivers)
        found = None
        if features is not None:
            found = read_features(features, missing, names or None)
        n = _count_nodes(found, labels, num_nodes, senders, receivers)
        check_memory(
            _BYTES_PER_NODE * n,
            f"A graph of {n:,} nodes",
            f"Is num_nodes right? {_NUMBERS_ARE_IDS}",
        )
        if names and len(names) != n:
            raise ValueError(
                f"node_names has {len(names)} names, but features has {n} rows. Give "
                "one name per row."
            )
        if not names:
            number_from_one(np.asarray(senders), np.asarray(receivers), n)
        senders, receivers, weights = check_edges(senders, receivers, weights, n)
        if n == 0:
            raise ValueError("The graph is empty: it has no nodes.")
        if not isinstance(self_loops, str) or self_loops not in ("drop", "keep"):
            raise ValueError(f"self_loops is {self_loops!r}; use 'drop' or 'keep'.")
        if not isinstance(directed, bool | np.bool_):
            raise ValueError(f"directed is {directed!r}; use True or False.")
        values = np.ones(len(senders), np.float32) if weights is None else weights
        matrix = sp.coo_array((values, (receivers, senders)), (n, n)).tocsr()
        if weights is None:
            matrix.data[:] = 1  # Duplicates count once.
        if not directed:
            matrix = matrix.maximum(matrix.T.tocsr())
        if found is None and not names and num_nodes is None:
            _warn_of_gaps(np.unique(np.concatenate([senders, receivers])).size, n)
        if self_loops == "drop":
            matrix = matrix - sp.diags_array(matrix.diagonal(), format="csr")
        matrix = sp.csr_array(matrix)
        matrix.eliminate_zeros()
        matrix.sort_indices()
        marked = check_labels(labels, names or range(n), multilabel, label_names)
        if found is None:
            found = NodeFeatures(*make_positions(matrix), positional=True)
            _log.info(
                "The graph has no features: %d were made from its edges (positions and "
                "degrees).",
                len(found.names),
            )
        graph = cls(
            indptr=matrix.indptr.astype(np.int64),
            indices=matrix.indices,
            weights=None if weights is None else matrix.data.astype(np.float32),
            features=found.matrix,
            feature_names=found.names,
            missing_values=found.missing,
            positional=found.positional,
            labels=marked.matrix,
            known=marked.known,
            multilabel=marked.multilabel,
            label_names=marked.names,
            classes=marked.classes,
            node_names=names,
            directed=bool(directed),
            **dict.fromkeys(SPLITS, np.zeros(n, bool)),  # Replaced below.
        )
        infinite = np.flatnonzero(~np.isfinite(graph.degree))
        if infinite.size:
            raise ValueError(
                "The weights of the edges of node "
                f"{graph.node_index.call(infinite[:1])[0]!r} add up to more than "
                "32-bit floats can hold. Scale all the weights down."
            )
        return graph.with_split(train, validation, test)

    @classmethod
    @_passing_on
    def from_csr(
        cls,
        indptr: Any,
        indices: Any,
        features: Any = None,
        labels: Any = None,
        *,
        missing: str = "refuse",
        **keywords: Any,
    ) -> Self:
        """Make a graph from CSR rows: node i reads `indices[indptr[i]:indptr[i+1]]`.

        Edge weights are in the order of `indices`; other arguments are as in `Graph`.
        """
        check_size(features, labels, np.size(indptr) - 1)
        n = max(0, np.size(indptr) - 1)
        if features is None:
            keywords["num_nodes"] = n
        else:
            features = read_features(features, missing, keywords.get("node_names"))
            n = features.matrix.shape[0]
        indptr, indices = check_csr(indptr, indices, n, n)
        receivers = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        ends = call_ends(indices, receivers, keywords.get("node_names"))
        return cls.from_edges(*ends, features, labels, **keywords)

    @classmethod
    @_passing_on
    def from_scipy(
        cls,
        adjacency: Any,
        features: Any = None,
        labels: Any = None,
        *,
        missing: str = "refuse",
        **keywords: Any,
    ) -> Self:
        """Make a graph from a sparse matrix: row i holds the nodes that i reads from.

        Its values are the edge weights, unless all of them are True or 1.
        """
        if not sp.issparse(adjacency):
            raise ValueError(
                f"adjacency is a {type(adjacency).__name__}. Give a scipy sparse "
                "matrix; scipy.sparse.csr_array(matrix) converts a dense one."
            )
        matrix = sp.coo_array(check_sparse(adjacency, "adjacency"))
        matrix.eliminate_zeros()  # A stored False is not an edge.
        check_size(features, labels, matrix.shape[0])
        n = keywords["num_nodes"] = matrix.shape[0]
        if features is not None:
            features = read_features(features, missing, keywords.get("node_names"))
            n = features.matrix.shape[0]
        if matrix.shape != (n, n):
            raise ValueError(
                f"adjacency has shape {matrix.shape}, but features has {n} rows. Both "
                "need one row per node, and adjacency one column per node."
            )
        weights = None
        if matrix.dtype != bool and not np.all(matrix.data == 1):
            weights = matrix.data
        ends = call_ends(matrix.col, matrix.row, keywords.get("node_names"))
        return cls.from_edges(*ends, features, labels, weights=weights, **keywords)

    @classmethod
    @_passing_on
    def from_networkx(
        cls,
        graph: Any,
        features: Any = None,
        labels: Any = None,
        *,
        weight: str | None = None,
        missing: str = "refuse",
        **keywords: Any,
    ) -> Self:
        """Make a graph from a networkx graph; rows are in the order of `graph.nodes`.

        Args:
          graph: A networkx graph; it decides the default of `directed`.
          features: As in `Graph`; or the name of a node attribute that holds a row of
            numbers, or a list of names of node attributes, one per column.
          labels: As in `Graph`, a dictionary by node, or the name of a node attribute;
            nodes without it are unlabelled.
          weight: Name of an edge attribute; an edge without it weighs 1.
          keywords: See `Graph`.
        """
        if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
            raise ValueError(f"graph is a {type(graph).__name__}; use networkx here.")
        nodes = list(graph.nodes)
        edges = list(graph.edges(data=weight, default=1.0) if weight else graph.edges())
        if weight and edges:
            check_attribute(weight, (e[-1] for e in graph.edges(data=True)), "edge")
        if features is not None:
            check_answer_is_hidden(features, labels)
            features = _networkx_features(graph, nodes, features, missing)
        if isinstance(labels, str):
            check_attribute(labels, (graph.nodes[node] for node in nodes), "node")
            labels = gather_labels([graph.nodes[node].get(labels) for node in nodes])
        keywords.setdefault("directed", graph.is_directed())
        return cls.from_edges(
            [edge[0] for edge in edges],
            [edge[1] for edge in edges],
            features,
            labels,
            weights=[e[2] for e in edges] if weight else None,
            num_nodes=len(nodes),
            node_names=nodes,
            **keywords,
        )

    @classmethod
    @_passing_on
    def from_pandas(
        cls,
        edges: Any,
        nodes: Any = None,
        *,
        source: Hashable | None = None,
        target: Hashable | None = None,
        weight: Hashable | None = None,
        node: Hashable | None = None,
        features: Any = None,
        labels: Any = None,
        split: Hashable | None = None,
        **keywords: Any,
    ) -> Self:
        """Make a graph from DataFrames: one of edges, and one of nodes.

        Args:
          edges: One row per edge.
          nodes: One row per node, in any order; its index names the nodes. None for the
            nodes that edges and labels name.
          source, target: Columns of `edges` that hold the ends; None for "source" and
            "target", or else the first two.
          weight: Column of `edges` that holds weights; None if all weigh 1.
          node: Column of `nodes` that names the nodes, instead of its index.
          features: List of columns of `nodes`; None for all that have no other use.
            Columns of text are encoded. Or a table of its own, indexed by node.
          labels: Column of `nodes`, or a list of columns of 0 and 1 if nodes have
            several labels; or a Series or a dictionary by node. Nodes without a value
            are unlabelled.
          split: Column of `nodes` that says "train", "validation" or "test".
          keywords: See `Graph`.

        >>> import pandas as pd
        >>> edges = pd.DataFrame({"source": ["Ann", "Bob"], "target": ["Bob", "Eve"]})
        >>> nodes = pd.DataFrame({"age": [30, 40, 50], "club": ["a", None, "b"]},
        ...                      index=["Ann", "Bob", "Eve"])
        >>> graph = Graph.from_pandas(edges, nodes, labels="club")
        >>> graph.node_names, graph.feature_names, graph.label_names
        (('Ann', 'Bob', 'Eve'), ('age',), ('a', 'b'))
        """
        columns = conversion.read_frames(
            edges,
            nodes,
            source=source,
            target=target,
            weight=weight,
            node=node,
            features=features,
            labels=labels,
            split=split,
        )
        return cls.from_edges(**columns | keywords)

    @classmethod
    @_passing_on
    def from_jraph(
        cls, graph: jraph.GraphsTuple, labels: Any = None, **keywords: Any
    ) -> Self:
        """Make a graph from a GraphsTuple with features as nodes and weights as edges.

        Several graphs in one tuple become one graph of several components. Remove the
        padding of `jraph.pad_with_graphs` first: it would become nodes and edges.
        """
        if not isinstance(graph, jraph.GraphsTuple):
            raise ValueError(f"graph is a {type(graph).__name__}; give a GraphsTuple.")
        if graph.nodes is not None and not hasattr(graph.nodes, "shape"):
            raise ValueError(
                "graph.nodes must be one array [N, F] of features; select it with "
                "graph._replace(nodes=graph.nodes['...'])."
            )
        weights = graph.edges
        if weights is not None:
            weights = _flatten(to_array(weights, "graph.edges"))
        keywords |= {"labels": labels, "weights": weights}
        nodes = None
        if graph.nodes is not None:
            nodes = np.asarray(graph.nodes)
        elif graph.n_node is not None:
            keywords["num_nodes"] = int(np.sum(graph.n_node))
        names = keywords.get("node_names")
        ends = call_ends(graph.senders, graph.receivers, names)
        return cls.from_edges(*ends, nodes, **keywords)

    @classmethod
    @_passing_on
    def from_pyg(cls, data: Any, **keywords: Any) -> Self:
        """Make a graph from a `Data` of PyTorch Geometric, without importing torch.

        Reads `edge_index`, and if present `x`, `y`, `edge_weight`, `train_mask`,
        `val_mask` and `test_mask`. An `edge_attr` of one column is the weight, if there
        is no `edge_weight`; others are refused.
        """

        def read(name: str) -> Any:
            value = getattr(data, name, None)
            return None if value is None else to_array(value, f"data.{name}")

        edge_index = read("edge_index")
        if edge_index is None:
            raise ValueError(
                "data.edge_index is missing; give a Data of PyTorch Geometric."
            )
        if edge_index.ndim != 2 or edge_index.shape[0] != 2:
            raise ValueError(
                f"data.edge_index has shape {edge_index.shape}; it must be [2, E]."
            )
        fields = {"labels": "y", "weights": "edge_weight", "train": "train_mask"}
        fields |= {"validation": "val_mask", "test": "test_mask"}
        found: dict[str, Any] = {k: read(v) for k, v in fields.items()}
        if found["labels"] is not None:
            found["labels"] = _flatten(found["labels"])
        if "weights" not in keywords and found["weights"] is None:
            found["weights"] = _edge_attribute(read("edge_attr"))
        features = read("x")
        if features is None:
            found["num_nodes"] = getattr(data, "num_nodes", None)
        names = keywords.get("node_names")
        ends = call_ends(edge_index[0], edge_index[1], names)
        return cls.from_edges(*ends, features, **found | keywords)


def as_graph(value: Any, what: str = "graph") -> Graph:
    """Return a graph: itself, or that of a `Data` of PyTorch Geometric.

    Raises:
      ValueError: It is something else; the message says which call makes a graph of it.
    """
    if isinstance(value, Graph):
        return value
    if hasattr(value, "edge_index") and hasattr(value, "num_nodes"):
        return Graph.from_pyg(value)
    raise ValueError(f"{what} is {which_call(value)}")


def _warn_of_gaps(used: int, num_nodes: int) -> None:
    """Warn if most ids belong to no edge: they may be names of another kind."""
    if used and num_nodes > max(10, 2 * used):
        warnings.warn(
            f"The edges join {used} nodes, but their ids make {num_nodes:,}, most of "
            f"them without edges. {_NUMBERS_ARE_IDS} If it is meant, give num_nodes.",
            HopfWarning,
            stacklevel=4,
        )


def _flatten(values: np.ndarray) -> np.ndarray:
    """Return a column [n, 1] as [n]; other arrays as they are."""
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _edge_attribute(values: np.ndarray | None) -> np.ndarray | None:
    if values is None:
        return None
    flat = _flatten(values)
    if flat.ndim == 1 and not (flat < 0).any():
        return flat
    problem = "negative values" if flat.ndim == 1 else f"shape {values.shape}"
    raise ValueError(
        f"data.edge_attr has {problem}, but edges have one weight each, 0 or more. Put "
        "it into data.edge_weight, or pass weights=None to ignore the attributes."
    )


def _count_nodes(
    features: NodeFeatures | None,
    labels: Any,
    num_nodes: int | None,
    senders: Any,
    receivers: Any,
) -> int:
    """Return the number of nodes: of the features, as given, or of labels and ids."""
    if features is not None:
        return features.matrix.shape[0]
    if num_nodes is not None:
        return check_whole(num_nodes, "num_nodes")
    ends = [np.asarray(senders), np.asarray(receivers)]
    ids = [int(e.max()) + 1 for e in ends if e.size and e.dtype.kind in "iu"]
    own = len(labels) if hasattr(labels, "__len__") else 0
    return max([own, *ids])


def _check_set(nodes: Any, index: NodeIndex, name: str) -> np.ndarray:
    """Return a mask [N] from a mask, names, ids or None."""
    mask = np.zeros(index.num_nodes, bool)
    if nodes is not None:
        check_mask(nodes, index.num_nodes, name)
        mask[index.find(nodes, name)] = True
    return mask


def _is_list_of_names(features: Any) -> bool:
    listed = isinstance(features, list | tuple) and len(features) > 0
    return listed and all(isinstance(name, str) for name in features)


def _networkx_features(
    graph: Any, nodes: list[Any], features: Any, missing: str
) -> NodeFeatures:
    """Return features of a networkx graph, which may name attributes."""

    def attributes(name: str) -> np.ndarray:
        check_attribute(name, (graph.nodes[node] for node in nodes), "node")
        values = np.empty(len(nodes), object)  # np.array would nest lists.
        values[:] = [graph.nodes[node].get(name) for node in nodes]
        return values

    if isinstance(features, str):
        check_attribute(features, (graph.nodes[node] for node in nodes), "node")
        values = [graph.nodes[node].get(features) for node in nodes]
        if any(np.ndim(value) for value in values):  # Rows of numbers.
            values = [_attribute(graph, node, features) for node in nodes]
            return read_features(values, missing, nodes)
        features = [features]
    if _is_list_of_names(features):
        columns = [(name, attributes(name)) for name in features]
        matrix, names = encode_columns(columns, nodes, missing)
        return read_features(matrix, missing)._replace(names=names)
    return read_features(features, missing, nodes)


def _attribute(graph: Any, node: Any, name: str) -> Any:
    try:
        value = graph.nodes[node][name]
    except KeyError:
        raise ValueError(
            f"node {node!r} has no attribute {name!r}. Set it on every node, or pass "
            "features as a matrix in the order of graph.nodes."
        ) from None
    return np.atleast_1d(to_array(value, f"{name!r} of node {node!r}"))

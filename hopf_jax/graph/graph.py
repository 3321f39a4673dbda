"""`Graph`: an attributed graph on the host, validated when it is made."""

import dataclasses
import logging
from typing import Any, Self

import jraph
import numpy as np
import scipy.sparse as sp

from hopf_jax.graph.description import describe_graph
from hopf_jax.graph.encoding import encode_columns
from hopf_jax.graph.features import NodeFeatures, read_features
from hopf_jax.graph.frames import align, is_series, plain
from hopf_jax.graph.labels import check_labels, gather_labels
from hopf_jax.graph.mistakes import (
    check_attribute,
    check_call,
    check_mask,
    check_size,
    number_from_one,
)
from hopf_jax.graph.positions import make_positions
from hopf_jax.graph.validation import (
    check_csr,
    check_edges,
    check_nodes,
    check_sparse,
    check_split,
    check_whole,
    to_array,
)
from hopf_jax.runtime import check_memory

_BYTES_PER_NODE = 48  # At least: row pointers of A and of what it is made from.
_log = logging.getLogger(__name__)

SPLITS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """An attributed graph with labels, features and a split.

    Make one with `from_edges`, `from_csr`, `from_scipy`, `from_networkx`, `from_jraph`
    or `from_pyg`, which share these arguments:

    Args:
      features: [N, F] numbers, as an array, a scipy sparse matrix or a memory map; or a
        DataFrame, whose columns of texts are encoded as `column=text`. None to make
        features from the edges: positions in the graph, and degrees.
      missing: "refuse" missing features; or use the "mean" of the column in the graph
        that is fitted, with an indicator.
      labels: Class ids or names [N], a one-hot matrix or a multi-label matrix [N, C].
        Unknown labels are -1, NaN, None or "" among ids and names. In a matrix they are
        rows with a NaN; in a one-hot matrix also rows of zeros.
      train, validation, test: Masks [N] or node ids. Nodes of a set must be labelled.
      directed: Keep the direction of edges; `Config.directions` says whether receivers
        read their senders only. Otherwise the adjacency matrix A becomes max(A, A^T).
      self_loops: "drop", or "keep". With a self-loop a training node reads its own
        label from its own summary.
      multilabel: Whether there are several labels per node; None to infer it from the
        labels.
      label_names: C names, or a dictionary from ids to names.

    The rows of a DataFrame or a Series are placed by its index: the nodes of a networkx
    graph, or 0 to N - 1. Nodes without a row among the labels are unlabelled. Ids of
    classes that are not 0 to C - 1 become names of classes.

    Duplicate edges are merged: their weights are summed; without weights they count
    once. Edges of weight 0 are dropped. Neighbours are sorted by id.

    Attributes:
      indptr, indices: CSR rows of A: `indices[indptr[i]:indptr[i+1]]` are the nodes
        that i reads from.
      weights: [E] float32, or None if all are 1.
      degree: [N] float32, the row sums of A.
      features: [N, F]; NaN where values are missing, if `missing_values`.
      labels: [N, C] uint8; `known` [N] says which rows are known.
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

    def __repr__(self) -> str:
        sets = ", ".join(f"{int(getattr(self, s).sum())} {s}" for s in SPLITS)
        task = "multi-label" if self.multilabel else "multi-class"
        return (
            f"Graph({self.num_nodes} nodes, {self.num_edges} edges, "
            f"{self.num_features} features, {self.num_labels} labels, {task}, "
            f"{'directed' if self.directed else 'undirected'}; {sets})"
        )

    def describe(self) -> str:
        """Return a text about edges, labels, split, and how features will be scaled."""
        return describe_graph(self)

    def with_split(
        self, train: Any = None, validation: Any = None, test: Any = None
    ) -> Self:
        """Return the graph with another split, given as masks [N] or node ids.

        >>> graph = Graph.from_edges([0, 1], [1, 2], [[1], [2], [3]], [0, 1, 1])
        >>> graph.with_split(train=[0], validation=[1], test=[2])
        Graph(3 nodes, 4 edges, 1 features, 2 labels, multi-class, undirected; 1 train, 1 validation, 1 test)
        """  # noqa: E501
        masks: dict[str, Any] = {
            name: _check_set(nodes, range(self.num_nodes), name)
            for name, nodes in zip(SPLITS, (train, validation, test), strict=True)
        }
        check_split(masks, self.known)
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

    @classmethod
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
    ) -> Self:
        """Make a graph from edges.

        Args:
          senders, receivers: Node ids, each [E].
          weights: Non-negative numbers [E]; None if all are 1.
          num_nodes: Number of nodes N, if there are no features; None for that of the
            labels, or of the ids.

        All other arguments are described in `Graph`.

        >>> import numpy as np
        >>> graph = Graph.from_edges([0, 1], [1, 2], np.eye(3), ["a", "b", None])
        >>> graph.degree.tolist(), graph.label_names, graph.known.tolist()
        ([1.0, 2.0, 1.0], ('a', 'b'), [True, True, False])
        """
        check_call(senders, receivers, features, labels)
        check_size(features, labels, num_nodes)
        found = None
        if features is not None:
            found = read_features(features, missing)
        n = _count_nodes(found, labels, num_nodes, senders, receivers)
        check_memory(
            _BYTES_PER_NODE * n,
            f"A graph of {n:,} nodes",
            "Is num_nodes right, and are all ids those of nodes?",
        )
        number_from_one(np.asarray(senders), np.asarray(receivers), n)
        senders, receivers, weights = check_edges(senders, receivers, weights, n)
        if n == 0:
            raise ValueError("The graph is empty: features has no rows.")
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
        if self_loops == "drop":
            matrix = matrix - sp.diags_array(matrix.diagonal(), format="csr")
        matrix = sp.csr_array(matrix)
        matrix.eliminate_zeros()
        matrix.sort_indices()
        labels, known, multilabel, names = check_labels(
            labels, n, multilabel, label_names
        )
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
            labels=labels,
            known=known,
            multilabel=multilabel,
            label_names=names,
            directed=bool(directed),
            **dict.fromkeys(SPLITS, np.zeros(n, bool)),  # Replaced below.
        )
        infinite = np.flatnonzero(~np.isfinite(graph.degree))
        if infinite.size:
            raise ValueError(
                f"The weights of the edges of node {infinite[0]} add up to more than "
                "32-bit floats can hold. Scale all the weights down."
            )
        return graph.with_split(train, validation, test)

    @classmethod
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
            features = read_features(features, missing)
            n = features.matrix.shape[0]
        indptr, indices = check_csr(indptr, indices, n, n)
        receivers = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        return cls.from_edges(indices, receivers, features, labels, **keywords)

    @classmethod
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
            features = read_features(features, missing)
            n = features.matrix.shape[0]
        if matrix.shape != (n, n):
            raise ValueError(
                f"adjacency has shape {matrix.shape}, but features has {n} rows. Both "
                "need one row per node, and adjacency one column per node."
            )
        weights = None
        if matrix.dtype != bool and not np.all(matrix.data == 1):
            weights = matrix.data
        return cls.from_edges(
            matrix.col, matrix.row, features, labels, weights=weights, **keywords
        )

    @classmethod
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
        place = {node: i for i, node in enumerate(nodes)}
        edges = list(graph.edges(data=weight, default=1.0) if weight else graph.edges())
        if weight and edges:
            check_attribute(weight, (e[-1] for e in graph.edges(data=True)), "edge")
        if features is not None:
            features = _networkx_features(graph, nodes, features, missing)
        if isinstance(labels, str):
            check_attribute(labels, (graph.nodes[node] for node in nodes), "node")
            labels = gather_labels([graph.nodes[node].get(labels) for node in nodes])
        else:
            labels = align(labels, nodes, "labels", partial=True)
            labels = gather_labels(labels) if isinstance(labels, list) else labels
            labels = _without_index(labels)
        for name in SPLITS:
            if name in keywords:
                keywords[name] = _check_set(keywords[name], nodes, name)
        keywords.setdefault("directed", graph.is_directed())
        keywords["num_nodes"] = len(nodes)
        return cls.from_edges(
            np.array([place[e[0]] for e in edges], np.int64),
            np.array([place[e[1]] for e in edges], np.int64),
            features,
            labels,
            weights=[e[2] for e in edges] if weight else None,
            **keywords,
        )

    @classmethod
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
        return cls.from_edges(graph.senders, graph.receivers, nodes, **keywords)

    @classmethod
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
        names = {"labels": "y", "weights": "edge_weight", "train": "train_mask"}
        names |= {"validation": "val_mask", "test": "test_mask"}
        found: dict[str, Any] = {k: read(v) for k, v in names.items()}
        if found["labels"] is not None:
            found["labels"] = _flatten(found["labels"])
        if "weights" not in keywords and found["weights"] is None:
            found["weights"] = _edge_attribute(read("edge_attr"))
        features = read("x")
        if features is None:
            found["num_nodes"] = getattr(data, "num_nodes", None)
        senders, receivers = edge_index
        return cls.from_edges(senders, receivers, features, **found | keywords)


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
        return check_whole(num_nodes, "num_nodes", 1)
    ends = [np.asarray(senders), np.asarray(receivers)]
    ids = [int(e.max()) + 1 for e in ends if e.size and e.dtype.kind in "iu"]
    own = len(labels) if hasattr(labels, "__len__") else 0
    return max([own, *ids])


def _check_set(nodes: Any, names: Any, name: str) -> np.ndarray:
    """Return a mask [N] from a mask, ids or None; a Series is placed by its index."""
    if is_series(nodes) and nodes.dtype == bool:
        nodes = _without_index(align(nodes, names, name))
    check_mask(nodes, len(names), name)
    return check_nodes(nodes, len(names), name)


def _without_index(values: Any) -> Any:
    """Return a table that is in order with an index that says so."""
    if is_series(values):
        return plain(values)
    return values.reset_index(drop=True) if hasattr(values, "reset_index") else values


def _is_list_of_names(features: Any) -> bool:
    listed = isinstance(features, list | tuple) and len(features) > 0
    return listed and all(isinstance(name, str) for name in features)


def _networkx_features(
    graph: Any, nodes: list[Any], features: Any, missing: str
) -> NodeFeatures:
    """Return features of a networkx graph, which may name attributes."""

    def attributes(name: str) -> Any:
        check_attribute(name, (graph.nodes[node] for node in nodes), "node")
        return gather_labels([graph.nodes[node].get(name) for node in nodes])

    if isinstance(features, str):
        check_attribute(features, (graph.nodes[node] for node in nodes), "node")
        features = [_attribute(graph, node, features) for node in nodes]
    elif _is_list_of_names(features):
        columns = [(name, np.asarray(attributes(name))) for name in features]
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

"""`Graph`: an attributed graph on the host, validated when it is made."""

import dataclasses
from typing import Any, Self

import jraph
import numpy as np
import scipy.sparse as sp

from hopf_jax.graph.labels import check_labels, gather_labels
from hopf_jax.graph.validation import (
    check_csr,
    check_edges,
    check_features,
    check_nodes,
    check_sparse,
    check_split,
    to_array,
)

SPLITS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """An attributed graph with labels, features and a split.

    Make one with `from_edges`, `from_csr`, `from_scipy`, `from_networkx`, `from_jraph`
    or `from_pyg`, which share these arguments:

    Args:
      features: [N, F] numbers, as an array, a scipy sparse matrix or a memory map.
      labels: Class ids or names [N], a one-hot matrix or a multi-label matrix [N, C].
        Unknown labels are -1, NaN, None or "" among ids and names. In a matrix they are
        rows with a NaN; in a one-hot matrix also rows of zeros.
      train, validation, test: Masks [N] or node ids. Nodes of a set must be labelled.
      directed: Keep the direction of edges: receivers read their senders. Otherwise the
        adjacency matrix A becomes max(A, A^T).
      self_loops: "drop", or "keep". With a self-loop a training node reads its own
        label from its own summary.
      multilabel: Whether there are several labels per node; None to infer it from the
        labels.
      label_names: C names.

    Duplicate edges are merged: their weights are summed; without weights they count
    once. Edges of weight 0 are dropped. Neighbours are sorted by id.

    Attributes:
      indptr, indices: CSR rows of A: `indices[indptr[i]:indptr[i+1]]` are the nodes
        that i reads from.
      weights: [E] float32, or None if all are 1.
      degree: [N] float32, the row sums of A.
      labels: [N, C] uint8; `known` [N] says which rows are known.
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

    def with_split(
        self, train: Any = None, validation: Any = None, test: Any = None
    ) -> Self:
        """Return the graph with another split, given as masks [N] or node ids.

        >>> graph = Graph.from_edges([0, 1], [1, 2], [[1], [2], [3]], [0, 1, 1])
        >>> graph.with_split(train=[0], validation=[1], test=[2])
        Graph(3 nodes, 4 edges, 1 features, 2 labels, multi-class, undirected; 1 train, 1 validation, 1 test)
        """  # noqa: E501
        masks: dict[str, Any] = {
            name: check_nodes(nodes, self.num_nodes, name)
            for name, nodes in zip(SPLITS, (train, validation, test), strict=True)
        }
        check_split(masks, self.known)
        return dataclasses.replace(self, **masks)

    @classmethod
    def from_edges(
        cls,
        senders: Any,
        receivers: Any,
        features: Any,
        labels: Any = None,
        *,
        weights: Any = None,
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

        All other arguments are described in `Graph`.

        >>> import numpy as np
        >>> graph = Graph.from_edges([0, 1], [1, 2], np.eye(3), ["a", "b", None])
        >>> graph.degree.tolist(), graph.label_names, graph.known.tolist()
        ([1.0, 2.0, 1.0], ('a', 'b'), [True, True, False])
        """
        features = check_features(features)
        n = features.shape[0]
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
        graph = cls(
            indptr=matrix.indptr.astype(np.int64),
            indices=matrix.indices,
            weights=None if weights is None else matrix.data.astype(np.float32),
            features=features,
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
        features: Any,
        labels: Any = None,
        **keywords: Any,
    ) -> Self:
        """Make a graph from CSR rows: node i reads `indices[indptr[i]:indptr[i+1]]`.

        Edge weights are in the order of `indices`; other arguments are as in `Graph`.
        """
        features = check_features(features)
        n = features.shape[0]
        indptr, indices = check_csr(indptr, indices, n, n)
        receivers = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        return cls.from_edges(indices, receivers, features, labels, **keywords)

    @classmethod
    def from_scipy(
        cls, adjacency: Any, features: Any, labels: Any = None, **keywords: Any
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
        features = check_features(features)
        n = features.shape[0]
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
        features: Any,
        labels: Any = None,
        *,
        weight: str | None = None,
        **keywords: Any,
    ) -> Self:
        """Make a graph from a networkx graph; rows are in the order of `graph.nodes`.

        Args:
          graph: A networkx graph; it decides the default of `directed`.
          features: As in `Graph`, or the name of a node attribute.
          labels: As in `Graph`, or the name of a node attribute; nodes without it are
            unlabelled.
          weight: Name of an edge attribute; an edge without it weighs 1.
          keywords: See `Graph`.
        """
        if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
            raise ValueError(f"graph is a {type(graph).__name__}; use networkx here.")
        nodes = list(graph.nodes)
        place = {node: i for i, node in enumerate(nodes)}
        edges = list(graph.edges(data=weight, default=1.0) if weight else graph.edges())
        if isinstance(features, str):
            features = [_attribute(graph, node, features) for node in nodes]
        if isinstance(labels, str):
            labels = gather_labels([graph.nodes[node].get(labels) for node in nodes])
        keywords.setdefault("directed", graph.is_directed())
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
        if not hasattr(graph.nodes, "shape"):
            raise ValueError(
                "graph.nodes must be one array [N, F] of features; select it with "
                "graph._replace(nodes=graph.nodes['...'])."
            )
        weights = graph.edges
        if weights is not None:
            weights = _flatten(to_array(weights, "graph.edges"))
        keywords |= {"labels": labels, "weights": weights}
        nodes = np.asarray(graph.nodes)
        return cls.from_edges(graph.senders, graph.receivers, nodes, **keywords)

    @classmethod
    def from_pyg(cls, data: Any, **keywords: Any) -> Self:
        """Make a graph from a `Data` of PyTorch Geometric, without importing torch.

        Reads `x`, `edge_index`, and if present `y`, `edge_weight`, `train_mask`,
        `val_mask` and `test_mask`.
        """

        def read(name: str) -> Any:
            value = getattr(data, name, None)
            return None if value is None else to_array(value, f"data.{name}")

        for name in ("x", "edge_index"):
            if read(name) is None:
                raise ValueError(
                    f"data.{name} is missing; give a Data of PyTorch Geometric."
                )
        edge_index = read("edge_index")
        if edge_index.ndim != 2 or edge_index.shape[0] != 2:
            raise ValueError(
                f"data.edge_index has shape {edge_index.shape}; it must be [2, E]."
            )
        names = {"labels": "y", "weights": "edge_weight", "train": "train_mask"}
        names |= {"validation": "val_mask", "test": "test_mask"}
        found: dict[str, Any] = {k: read(v) for k, v in names.items()}
        if found["labels"] is not None:
            found["labels"] = _flatten(found["labels"])
        senders, receivers = edge_index
        return cls.from_edges(senders, receivers, read("x"), **found | keywords)


def _flatten(values: np.ndarray) -> np.ndarray:
    """Return a column [n, 1] as [n]; other arrays as they are."""
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _attribute(graph: Any, node: Any, name: str) -> Any:
    try:
        value = graph.nodes[node][name]
    except KeyError:
        raise ValueError(
            f"node {node!r} has no attribute {name!r}. Set it on every node, or pass "
            "features as a matrix in the order of graph.nodes."
        ) from None
    return np.atleast_1d(to_array(value, f"{name!r} of node {node!r}"))

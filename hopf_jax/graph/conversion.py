"""Conversion of graphs from and to the objects of pandas, networkx and PyG."""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.graph.frames import is_frame
from hopf_jax.graph.mistakes import check_answer_is_hidden
from hopf_jax.graph.names import are_ids, check_names, is_missing, names_of_edges
from hopf_jax.runtime import import_or_explain
from hopf_jax.suggestions import suggest

if TYPE_CHECKING:
    from hopf_jax.graph.graph import Graph

_SETS = ("train", "validation", "test")


def read_frames(
    edges: Any,
    nodes: Any,
    *,
    source: Hashable | None,
    target: Hashable | None,
    weight: Hashable | None,
    node: Hashable | None,
    features: Any,
    labels: Any,
    split: Hashable | None,
) -> dict[str, Any]:
    """Return arguments of `Graph.from_edges`; see `Graph.from_pandas`."""
    if not is_frame(edges):
        raise ValueError(
            f"edges is a {type(edges).__name__}; give a DataFrame with one row per "
            "edge (pandas.read_csv reads one from a file), or call Graph.from_edges."
        )
    _check_order(edges, nodes)
    one, two = _end_columns(edges, source, target)
    ends = [edges[column].tolist() for column in (one, two)]
    for column, values in zip((one, two), ends, strict=True):
        for row, value in zip(edges.index, values, strict=True):
            if is_missing(value):
                raise ValueError(
                    f"edges has no value in column {column!r}, row {row!r}. Drop the "
                    f"row: edges.dropna(subset=[{column!r}])."
                )
    if nodes is not None:
        if not is_frame(nodes):
            raise ValueError(
                f"nodes is a {type(nodes).__name__}; give a DataFrame with one row per "
                "node, or None."
            )
        if node is not None:
            _check_column(nodes, node, "nodes")
            nodes = nodes.set_index(node)
        names = list(check_names(nodes.index, "the index of nodes"))
        known = set(names)
        for column, values in zip((one, two), ends, strict=True):
            for row, value in zip(edges.index, values, strict=True):
                if value not in known:
                    raise ValueError(
                        f"Row {row!r} of edges has {value!r} in column {column!r}, but "
                        f"nodes has no such row. {_find_end(value, ends, nodes)}"
                    )
    else:
        keys = getattr(labels, "index", labels) if labels is not None else ()
        others = () if isinstance(labels, str) else keys
        names = list(check_names(names_of_edges(ends[0], ends[1], others)))
    found = _columns_of_nodes(nodes, features, labels, split)
    found |= {"senders": ends[0], "receivers": ends[1]}
    if weight is not None:
        _check_column(edges, weight, "edges")
        found["weights"] = edges[weight].to_numpy()
    if are_ids(names):
        return found | {"num_nodes": len(names)}
    return found | {"node_names": names}


def _check_order(edges: Any, nodes: Any) -> None:
    """Raise `ValueError` if the table of nodes comes first."""
    ends = {"source", "target"}
    if is_frame(nodes) and ends <= set(nodes.columns) and not ends & set(edges.columns):
        raise ValueError(
            "edges and nodes look swapped: nodes has the columns 'source' and "
            "'target'. Call Graph.from_pandas(edges, nodes)."
        )


def _find_end(value: Any, ends: list[list[Any]], nodes: Any) -> str:
    """Return a hint for the end of an edge that the table of nodes does not name."""
    for column in nodes.columns:
        known = {each for each in nodes[column] if isinstance(each, Hashable)}
        if all(known.issuperset(some) for some in ends):
            return (
                f"Its column {column!r} has it, but the index names the nodes: pass "
                f"node={column!r}."
            )
    names = nodes.index.tolist()
    near = suggest(value, names, "Its index, which names the nodes, holds")
    return near if "mean" in near else f"{near} Add a row, or drop the edge."


def _end_columns(edges: Any, source: Any, target: Any) -> tuple[Any, Any]:
    columns = list(edges.columns)
    if source is None and target is None:
        if {"source", "target"} <= set(columns):
            return "source", "target"
        if len(columns) < 2:
            raise ValueError(
                f"edges has {len(columns)} columns; it needs two, the ends of an edge."
            )
        return columns[0], columns[1]
    for name, column in (("source", source), ("target", target)):
        if column is None:
            raise ValueError(f"{name} is not given; name both columns of ends.")
        _check_column(edges, column, "edges")
    return source, target


def _columns_of_nodes(
    nodes: Any, features: Any, labels: Any, split: Any
) -> dict[str, Any]:
    """Return features, labels and sets, where they are columns of a table of nodes."""
    found: dict[str, Any] = {}
    taken: list[Any] = []

    def column(name: Any) -> Any:
        if nodes is None:
            raise ValueError(f"{name!r} would be a column of nodes, but nodes is None.")
        _check_column(nodes, name, "nodes")
        taken.append(name)
        return nodes[name]

    if isinstance(labels, str):
        found["labels"] = column(labels)
    elif isinstance(labels, list) and labels and nodes is not None:
        for name in labels:
            column(name)
        found |= {"labels": nodes[labels], "multilabel": True}
    elif labels is not None:
        found["labels"] = labels
    if split is not None:
        sets = column(split)
        strange = [v for v in sets.tolist() if not is_missing(v) and v not in _SETS]
        strange = [value for value in strange if value != ""]
        if strange:
            raise ValueError(
                f"Column {split!r} of nodes holds {strange[0]!r}; write train, "
                "validation, test, or nothing."
            )
        found |= {name: sets == name for name in _SETS}
    check_answer_is_hidden(features, labels)
    if isinstance(features, str):
        features = [features]
    if isinstance(features, list) and nodes is not None:
        for name in features:
            _check_column(nodes, name, "nodes")
        found["features"] = nodes[features]
    elif features is not None:
        found["features"] = features
    elif nodes is not None and len(nodes.columns) > len(set(taken)):
        found["features"] = nodes.drop(columns=taken)
    return found


def _check_column(frame: Any, name: Any, of: str) -> None:
    if name not in frame.columns:
        hint = suggest(name, frame.columns, "Its columns")
        raise ValueError(f"{of} has no column {name!r}. {hint}")


def to_pandas(graph: "Graph") -> tuple[Any, Any]:
    """Return tables of edges and nodes; see `Graph.to_pandas`."""
    pd = import_or_explain("pandas", "to_pandas")
    ends, weights = _edges(graph)
    called = graph.node_index.call
    edges = pd.DataFrame({"source": called(ends[0]), "target": called(ends[1])})
    if weights is not None:
        edges["weight"] = weights
    index = pd.Index(called(range(graph.num_nodes)), name="node", tupleize_cols=False)
    numbered = (f"feature {i}" for i in range(graph.num_features))
    columns = list(graph.feature_names or numbered)
    if sp.issparse(graph.features):
        nodes = pd.DataFrame.sparse.from_spmatrix(graph.features, index, columns)
    else:
        nodes = pd.DataFrame(np.asarray(graph.features), index, columns)
    extra: dict[str, Any] = {}
    if graph.multilabel:
        values = np.where(graph.known[:, None], graph.labels, np.nan)
        extra |= dict(zip(graph.label_names, values.T, strict=True))
    elif graph.num_labels:
        extra["label"] = _object_array(_labels(graph))
    if any(getattr(graph, name).any() for name in _SETS):
        extra["set"] = _object_array(_sets(graph))
    both = set(columns) & set(extra)
    if both:
        raise ValueError(
            f"A feature is called {both.pop()!r}, as is a column that to_pandas adds."
        )
    added = pd.DataFrame(extra, index=index)
    return edges, pd.concat([nodes, added], axis=1) if extra else nodes


def to_networkx(graph: "Graph", features: bool) -> Any:
    """Return a networkx graph; see `Graph.to_networkx`."""
    nx = import_or_explain("networkx", "to_networkx")
    made = nx.DiGraph() if graph.directed else nx.Graph()
    names = graph.node_index.call(range(graph.num_nodes))
    made.add_nodes_from(names)
    attributes: dict[str, list[Any]] = {"label": _labels(graph), "set": _sets(graph)}
    if features:
        rows: Any = graph.features
        rows = rows.toarray() if sp.issparse(rows) else np.asarray(rows)
        attributes["features"] = list(rows)
    for attribute, values in attributes.items():
        pairs = zip(names, values, strict=True)
        known = {node: value for node, value in pairs if value is not None}
        nx.set_node_attributes(made, known, attribute)
    ends, weights = _edges(graph)
    one, two = (graph.node_index.call(side) for side in ends)
    if weights is None:
        made.add_edges_from(zip(one, two, strict=True))
    else:
        made.add_weighted_edges_from(zip(one, two, weights.tolist(), strict=True))
    return made


def to_pyg(graph: "Graph") -> Any:
    """Return a `Data` of PyTorch Geometric; see `Graph.to_pyg`."""
    torch = import_or_explain("torch", "to_pyg")
    data = import_or_explain("torch_geometric.data", "to_pyg", "torch_geometric")
    readers = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    features: Any = graph.features
    dense = features.toarray() if sp.issparse(features) else np.array(features)
    arrays: dict[str, Any] = {
        "x": dense.astype(np.float32),
        "edge_index": np.stack([np.asarray(graph.indices, np.int64), readers]),
    }
    if graph.weights is not None:
        arrays["edge_weight"] = np.array(graph.weights)
    if graph.multilabel:
        values = np.where(graph.known[:, None], graph.labels, np.nan)
        arrays["y"] = values.astype(np.float32)
    elif graph.num_labels:
        arrays["y"] = np.where(graph.known, graph.labels.argmax(axis=1), -1)
    for name, mask in zip(_SETS, ("train_mask", "val_mask", "test_mask"), strict=True):
        if getattr(graph, name).any():
            arrays[mask] = np.array(getattr(graph, name))
    return data.Data(**{n: torch.from_numpy(array) for n, array in arrays.items()})


def _edges(graph: "Graph") -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray | None]:
    """Return senders and receivers, and weights; undirected edges once."""
    readers = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    read = np.asarray(graph.indices)
    kept = np.ones(len(read), bool) if graph.directed else readers >= read
    weights = None if graph.weights is None else np.asarray(graph.weights)[kept]
    return (read[kept], readers[kept]), weights


def _labels(graph: "Graph") -> list[Any]:
    """Return the label of each node, or a list of labels; None where unknown."""
    own = graph.classes or graph.label_names
    if graph.multilabel:
        rows = [[own[c] for c in np.flatnonzero(row)] for row in graph.labels]
        return [r if k else None for r, k in zip(rows, graph.known, strict=True)]
    if not own:
        return [None] * graph.num_nodes
    ids = graph.labels.argmax(axis=1)
    return [own[i] if k else None for i, k in zip(ids, graph.known, strict=True)]


def _sets(graph: "Graph") -> list[str | None]:
    names: list[str | None] = [None] * graph.num_nodes
    for name in _SETS:
        for node in np.flatnonzero(getattr(graph, name)):
            names[node] = name
    return names


def _object_array(values: Iterable[Any]) -> np.ndarray:
    values = list(values)
    array = np.empty(len(values), object)
    array[:] = values
    return array

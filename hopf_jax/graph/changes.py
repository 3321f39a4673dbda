"""Changes of a graph as a user gives them: read, checked, and turned into arrays."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hopf_jax.graph.encoding import encode_columns
from hopf_jax.graph.frames import is_frame, is_series, plain
from hopf_jax.graph.labels import Label
from hopf_jax.graph.names import Name, check_names
from hopf_jax.graph.validation import check_features, check_weights, to_array
from hopf_jax.runtime import did_you_mean, suggest

Find = Callable[[Any, str], int]  # (what a node is called, what it is) -> its number.


class Schema(NamedTuple):
    """What changes of a graph have to fit.

    Attributes:
      num_features: Number of columns of the features, F.
      feature_names: Their names, or ().
      sparse: Whether features are stored as a sparse matrix.
      missing: Whether features may be missing.
      positional: Whether features were made from the edges.
      weighted: Whether edges have weights.
      named: Whether nodes have names.
      multilabel: Several labels per node.
      labels: C labels as a user calls them.
    """

    num_features: int
    feature_names: tuple[str, ...]
    sparse: bool
    missing: bool
    positional: bool
    weighted: bool
    named: bool
    multilabel: bool
    labels: tuple[Label, ...]


class Edges(NamedTuple):
    """Some edges, by the numbers of their nodes."""

    senders: np.ndarray
    receivers: np.ndarray
    weights: np.ndarray | None = None


class Changes(NamedTuple):
    """Checked changes; nodes are numbered, and new ones follow those that exist.

    Attributes:
      dropped: [d] nodes that go, with all their edges.
      names: Names of the a new nodes; () if nodes have none.
      features: [a, F] their features, as the graph has them: not scaled.
      revised: [m] nodes whose features are replaced by `revised_features` [m, F].
      removed: Edges that go.
      added: Edges that come.
      labelled: [n] nodes whose labels change to the rows `labels` [n, C], which are
        training nodes from now on if `known` [n], and otherwise in no set.
    """

    dropped: np.ndarray
    names: tuple[Name, ...]
    features: Any
    revised: np.ndarray
    revised_features: Any
    removed: Edges
    added: Edges
    labelled: np.ndarray
    labels: np.ndarray
    known: np.ndarray

    @property
    def num_new(self) -> int:
        """Number of new nodes, a."""
        return int(self.features.shape[0])

    @property
    def structural(self) -> bool:
        """Whether nodes or edges come or go."""
        counts = len(self.dropped), self.num_new
        return any((*counts, len(self.removed.senders), len(self.added.senders)))


def read_changes(
    schema: Schema,
    find: Find,
    exists: Callable[[Any], bool],
    count: int,
    next_id: int,
    *,
    add_nodes: Any = None,
    add_edges: Any = None,
    drop: Any = None,
    drop_edges: Any = None,
    labels: Any = None,
    features: Any = None,
) -> Changes:
    """Return changes as arrays.

    Args:
      schema: What they have to fit.
      find: Returns the number of a node that exists, or raises `ValueError`.
      exists: Returns whether a name is taken.
      count: The number that the first new node gets.
      next_id: What the first new node is called, where nodes have no names.
      add_nodes, add_edges, drop, drop_edges, labels, features: See `Result.update`.

    Raises:
      ValueError: For the first thing that is wrong with them.
    """
    changing = (add_nodes, add_edges, drop, drop_edges, features)
    if schema.positional and any(each is not None for each in changing):
        raise ValueError(
            "The graph has no features of its own: the model reads positions, which "
            "are made from all edges. Give the graph features, and fit it again."
        )
    names, rows = _read_new(schema, exists, next_id, add_nodes)
    if not schema.named:
        place: dict[Any, int] = {next_id + i: count + i for i in range(len(rows))}
    else:
        place = {name: count + i for i, name in enumerate(names)}

    def locate(node: Any, what: str) -> int:
        try:
            found = place.get(node)
        except TypeError:  # Not hashable.
            found = None
        number = find(node, what) if found is None else found
        if number in gone:
            raise ValueError(f"{what} is {node!r}, which is dropped in the same call.")
        return number

    gone: set[int] = set()
    dropped = _read_nodes(drop, "drop", find)
    gone = set(dropped.tolist())
    revised, revised_rows = _read_revised(schema, features, locate)
    removed = _read_edges(drop_edges, "drop_edges", locate, weighted=False)
    added = _read_edges(add_edges, "add_edges", locate, weighted=schema.weighted)
    labelled, matrix, known = _read_labels(schema, labels, locate)
    return Changes(
        dropped=dropped,
        names=names,
        features=rows.matrix,
        revised=revised,
        revised_features=revised_rows,
        removed=removed,
        added=added,
        labelled=labelled,
        labels=matrix,
        known=known,
    )


# Nodes and their features


class _Rows(NamedTuple):
    matrix: Any

    def __len__(self) -> int:
        return int(self.matrix.shape[0])


def _read_new(
    schema: Schema, exists: Callable[[Any], bool], next_id: int, given: Any
) -> tuple[tuple[Name, ...], "_Rows"]:
    """Return the names and features of new nodes."""
    if given is None:
        return (), _Rows(read_rows(schema, [], []))
    called: list[Any] | None = None
    rows: Any = given
    if isinstance(given, Mapping):
        called, rows = list(given), list(given.values())
    elif is_frame(given) and schema.named:
        called = given.index.tolist()
    if schema.named:
        if called is None:
            raise ValueError(
                "add_nodes has no names, but the nodes of the graph have. Give a "
                "dictionary from names to features, or a DataFrame whose index names "
                "the nodes."
            )
        names = check_names(called, "add_nodes")
        for name in names:
            if exists(name):
                raise ValueError(
                    f"add_nodes has {name!r}, which is a node already. To change its "
                    f"features: features={{{name!r}: ...}}."
                )
        return names, _Rows(read_rows(schema, rows, list(names)))
    matrix = read_rows(schema, rows, called)
    wanted = list(range(next_id, next_id + matrix.shape[0]))
    if called is not None and called != wanted:
        raise ValueError(
            f"add_nodes names {called[:3]}, but the nodes of this graph have no "
            f"names: new ones are numbered from {next_id}. Give their features as a "
            f"matrix, or as a dictionary from {wanted[:3]}."
        )
    return (), _Rows(matrix)


def _read_revised(
    schema: Schema, given: Any, locate: Find
) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes whose features change, and their new features."""
    if given is None:
        return np.zeros(0, np.int64), read_rows(schema, [], [])
    if isinstance(given, Mapping):
        called, rows = list(given), list(given.values())
    elif is_frame(given):
        called, rows = given.index.tolist(), given
    else:
        raise ValueError(
            f"features is a {type(given).__name__}. Give a dictionary from nodes to "
            "their new features, or a DataFrame whose index names the nodes."
        )
    ids = np.array([locate(node, "a node of features") for node in called], np.int64)
    _refuse_repeated(ids, called, "features")
    return ids, read_rows(schema, rows, called)


def read_rows(schema: Schema, rows: Any, called: Sequence[Any] | None) -> Any:
    """Return features [n, F] as the graph stores them, not scaled.

    Args:
      schema: What they have to fit.
      rows: A DataFrame or a matrix [n, F]; or a list of rows: dictionaries by column,
        Series, or F numbers each.
      called: What the n nodes are called, for messages; None if they have no names.
    """
    if is_frame(rows):
        columns = {str(name): plain(rows[name]) for name in rows.columns}
        matrix: Any = _encode(schema, columns, called or list(range(len(rows))))
    elif isinstance(rows, list | tuple) and rows and all(map(_by_column, rows)):
        called = called or list(range(len(rows)))
        matrix = _encode(schema, _columns(rows, called), called)
    elif isinstance(rows, list | tuple) and not len(rows):
        matrix = np.zeros((0, schema.num_features), np.float32)
    else:
        if isinstance(rows, list | tuple) and any(map(sp.issparse, rows)):
            rows = sp.vstack(rows, format="csr")
        elif isinstance(rows, list | tuple):
            rows = [_plain_row(schema, row, i, called) for i, row in enumerate(rows)]
        matrix = check_features(rows, missing=schema.missing)
    if matrix.shape[1] != schema.num_features:
        raise ValueError(
            f"Features of new nodes have {matrix.shape[1]} columns, but those of the "
            f"graph have {schema.num_features}. Give the same columns."
        )
    if schema.sparse and not sp.issparse(matrix):
        return sp.csr_array(matrix)
    if not schema.sparse and sp.issparse(matrix):
        return matrix.toarray()
    return matrix


def _by_column(row: Any) -> bool:
    return isinstance(row, Mapping) or is_series(row)


def _plain_row(schema: Schema, row: Any, i: int, called: Any) -> np.ndarray:
    """Return a row of numbers [F]."""
    name = called[i] if called is not None else i
    if row is None:
        raise ValueError(
            f"Node {name!r} has no features. Give all {schema.num_features} of them."
        )
    values = to_array(row, f"The features of node {name!r}")
    values = values[0] if values.ndim == 2 and len(values) == 1 else values
    if values.shape != (schema.num_features,):
        raise ValueError(
            f"The features of node {name!r} have shape {values.shape}; the graph has "
            f"{schema.num_features} columns. Give a number for each"
            + (", or a dictionary by column." if schema.feature_names else ".")
        )
    return values


def _columns(rows: Sequence[Any], called: Sequence[Any]) -> dict[str, np.ndarray]:
    """Return columns [n] of rows that are dictionaries or Series."""
    rows = [
        {str(name): value for name, value in row.items()}  # Series have items too.
        for row in rows
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    found = {}
    for name in names:
        column = np.empty(len(rows), object)
        column[:] = [row.get(name) for row in rows]
        found[name] = column
    return found


def _encode(
    schema: Schema, columns: dict[str, np.ndarray], called: Sequence[Any]
) -> np.ndarray:
    """Return named columns as the graph encoded its own, [n, F]."""
    wanted = schema.feature_names
    if not wanted:
        raise ValueError(
            "The columns of the graph's features have no names, so rows cannot be "
            f"matched by name. Give {schema.num_features} numbers per node, in order."
        )
    sources = {name.partition("=")[0] for name in wanted if "=" in name}
    sources |= {name.removesuffix(" is missing") for name in wanted if "=" not in name}
    known = sources | set(wanted)
    for name in columns:
        if name not in known:
            hint = suggest(name, sorted(s for s in sources), "It has")
            raise ValueError(
                f"Features of new nodes have a column {name!r}, which the graph has "
                f"not. {hint}"
            )
    gaps = schema.missing or any(name.endswith(" is missing") for name in wanted)
    texts = {name.partition("=")[0] for name in wanted if "=" in name} - set(wanted)
    given: list[tuple[str, np.ndarray]] = []
    for name, values in columns.items():
        if name in texts:  # Also where all texts here look like numbers.
            values = np.array(
                [None if _unset(v) else str(v) for v in values.tolist()], object
            )
        given.append((name, values))
    matrix, names = encode_columns(given, called, "mean" if gaps else "refuse")
    place = {name: i for i, name in enumerate(names)}
    out = np.zeros((len(called), len(wanted)), np.float32)
    for i, name in enumerate(wanted):
        if name in place:
            out[:, i] = matrix[:, place[name]]
            continue
        source = name.partition("=")[0] if "=" in name else name
        source = source.removesuffix(" is missing")
        if source in columns or name in columns:
            continue  # A category that none of these nodes is of.
        if not gaps:
            raise ValueError(
                f"Features of node {called[0]!r} have no column {source!r}. Give "
                "every column of the graph: " + _few(sorted(sources)) + "."
            )
        if name.endswith(" is missing"):
            out[:, i] = 1
        elif "=" not in name:
            out[:, i] = np.nan
    return out


def _unset(value: Any) -> bool:
    missing = value is None or type(value).__name__ in ("NAType", "NaTType")
    return missing or (isinstance(value, float) and value != value)


def _few(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:5])) + ", ..." * (len(names) > 5)


def _read_nodes(given: Any, what: str, find: Find) -> np.ndarray:
    """Return the numbers of some nodes."""
    if given is None:
        return np.zeros(0, np.int64)
    values: Any = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        values = [values]
    values = list(values)
    if values and all(isinstance(value, bool | np.bool_) for value in values):
        raise ValueError(f"{what} is a mask; give names or ids of nodes.")
    found = [find(node, f"{what}[{i}]") for i, node in enumerate(values)]
    return np.unique(np.array(found, np.int64))


# Edges


def _read_edges(given: Any, what: str, locate: Find, *, weighted: bool) -> Edges:
    """Return edges from pairs, triples with a weight, or a table."""
    if given is None:
        none = np.zeros(0, np.int64)
        return Edges(none, none, np.zeros(0, np.float32))
    one, other, weights = _ends(given, what)
    senders, receivers = (
        np.array([locate(n, f"{what}[{i}][{k}]") for i, n in enumerate(ends)], np.int64)
        for k, ends in enumerate((one, other))
    )
    if weights is None:
        return Edges(senders, receivers, np.ones(len(senders), np.float32))
    if what == "drop_edges":
        raise ValueError("drop_edges has weights; give pairs of nodes.")
    values = to_array(weights, f"weights of {what}")
    if values.dtype.kind not in "fiub":
        raise ValueError(f"weights of {what} must be numbers; one is {values[0]!r}.")
    values = values.astype(np.float32)
    check_weights(values, len(senders))
    if not weighted and (values != 1).any():
        raise ValueError(
            f"{what} has weights, but the edges of the graph have none. Leave them "
            "out, or make the graph with weights."
        )
    return Edges(senders, receivers, values)


def _ends(given: Any, what: str) -> tuple[list[Any], list[Any], list[Any] | None]:
    """Return the ends of edges, and their weights if there are any."""
    if is_frame(given):
        columns = list(given.columns)
        named = {"source", "target"} <= set(columns)
        if len(columns) < 2:
            raise ValueError(
                f"{what} has {len(columns)} columns; it needs two, the ends of an edge."
            )
        one, two = ("source", "target") if named else columns[:2]
        weights = given["weight"].tolist() if "weight" in columns else None
        return given[one].tolist(), given[two].tolist(), weights
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ValueError(
            f"{what} is a {type(given).__name__}; give a list of pairs of nodes."
        )
    rows = given.tolist() if hasattr(given, "tolist") else list(given)
    for i, row in enumerate(rows):
        if not isinstance(row, list | tuple) or len(row) not in (2, 3):
            raise ValueError(
                f"{what}[{i}] is {row!r}; an edge is a pair of nodes, or a triple with "
                "its weight."
            )
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise ValueError(f"Some edges of {what} have a weight and others not.")
    weights = [row[2] for row in rows] if lengths == {3} else None
    return [row[0] for row in rows], [row[1] for row in rows], weights


# Labels


def _read_labels(
    schema: Schema, given: Any, locate: Find
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return nodes whose labels change, their rows [n, C], and which are known."""
    count = len(schema.labels)
    if given is None:
        given = {}
    if is_series(given):
        given = dict(zip(given.index.tolist(), plain(given).tolist(), strict=True))
    if not isinstance(given, Mapping):
        raise ValueError(
            f"labels is a {type(given).__name__}; give a dictionary from nodes to "
            "labels, with None for a label that is to be forgotten."
        )
    called = list(given)
    ids = np.array([locate(node, "a node of labels") for node in called], np.int64)
    _refuse_repeated(ids, called, "labels")
    rows = np.zeros((len(ids), count), np.uint8)
    known = np.ones(len(ids), bool)
    place: dict[Any, int] = {str(label): i for i, label in enumerate(schema.labels)}
    place |= {label: i for i, label in enumerate(schema.labels)}
    for i, (node, value) in enumerate(given.items()):
        if value is None or _unset(value):
            known[i] = False
        elif schema.multilabel:
            rows[i] = _label_row(schema, place, node, value)
        else:
            rows[i, _label(schema, place, node, value)] = 1
    return ids, rows, known


def _label(schema: Schema, place: dict[Any, int], node: Any, value: Any) -> int:
    value = value.item() if isinstance(value, np.generic) else value
    try:
        found = place.get(value)
    except TypeError:  # Not hashable.
        found = None
    if found is None:
        known = ", ".join(map(repr, schema.labels[:10]))
        known += ", ..." * (len(schema.labels) > 10)
        hint = did_you_mean(value, schema.labels)
        raise ValueError(
            f"The label of node {node!r} is {value!r}, which the model does not know: "
            f"{known}. {hint}".rstrip()
        )
    return found


def _label_row(schema: Schema, place: dict[Any, int], node: Any, value: Any) -> Any:
    """Return 0 and 1 [C] from such a row, or from a set of labels."""
    values = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(
            f"The label of node {node!r} is {value!r}, but nodes have several labels: "
            "give a list of them, or a row of 0 and 1."
        )
    values, row = list(values), np.zeros(len(schema.labels), np.uint8)
    array = np.array(values) if values else np.zeros(0)
    if isinstance(value, np.ndarray) and array.dtype.kind in "fiub":
        if array.shape != row.shape or not np.isin(array, (0, 1)).all():
            raise ValueError(
                f"The label of node {node!r} is {value!r}; a row holds 0 and 1 for "
                f"each of {len(row)} labels."
            )
        return array.astype(np.uint8)
    row[[_label(schema, place, node, each) for each in values]] = 1
    return row


def _refuse_repeated(ids: np.ndarray, called: Sequence[Any], what: str) -> None:
    if len(np.unique(ids)) < len(ids):
        first = np.unique(ids, return_index=True)[1]
        twice = called[min(set(range(len(ids))) - set(first.tolist()))]
        raise ValueError(f"{what} has node {twice!r} twice. Give each node once.")

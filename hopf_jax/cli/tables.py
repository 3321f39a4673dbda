"""Tables of nodes, edges and labels: CSV, TSV, Parquet and npz.

A node is identified by its text in the tables. The first line of a CSV or TSV names its
columns. In an npz each array is a column; features are an array of two dimensions, or
the parts of a scipy CSR matrix (`data`, `indices`, `indptr`, `shape`), with the names
of nodes in `nodes`, or 0, 1, 2, ... without it. What is written as CSV is safe to open
in a spreadsheet: see `to_csv`.
"""

import collections
import contextlib
import csv
import io
import itertools
import os
import pathlib
import re
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hopf_jax.graph import SPLITS, Graph, check_sparse, prefers_sparse
from hopf_jax.runtime import (
    MALFORMED,
    check_limit,
    load_npz,
    open_text,
    read_parquet,
    write_atomically,
)

_FORMATS = (".csv", ".tsv", ".parquet", ".npz")
_ROWS_AT_ONCE = 1024
_BYTES_PER_NAME = 64  # Of a node or a column, in a list.
# What begins a formula; with apostrophes in front, so that reading undoes writing.
_EXECUTED = re.compile(r"'*[=+\-@\t\r]")
_CSR = ("data", "indices", "indptr", "shape")
_SETS = {"val": "validation", "valid": "validation"} | {s: s for s in SPLITS}
Path = str | os.PathLike


class Features(NamedTuple):
    """One row of numbers per node."""

    nodes: Sequence[str]
    columns: Sequence[str]
    matrix: np.ndarray | sp.csr_array


class Labels(NamedTuple):
    """Labels as `Graph` takes them: names [N], or 0 and 1 [N, C] with C names."""

    values: Any
    names: tuple[str, ...] | None
    sets: dict[str, np.ndarray] | None  # Masks [N], if the table has a column "set".


class Edges(NamedTuple):
    """Node indices of both ends of each edge."""

    senders: np.ndarray
    receivers: np.ndarray
    weights: np.ndarray | None


def read_features(path: Path, header: bool) -> Features:
    """Read a table of nodes: their names in the first column, then numbers."""
    kind = _kind(path)
    if kind == ".npz":
        nodes, columns, matrix = _features_from_npz(path)
    elif kind == ".parquet":
        names, cells = read_parquet(path)
        nodes, columns = texts_of(cells[0]), names[1:]
        for name, values in zip(columns, cells[1:], strict=True):
            if isinstance(values, list):
                raise ValueError(f"{path}: column {name!r} does not hold numbers.")
        shape = len(nodes), len(columns)
        matrix = np.column_stack(cells[1:]) if columns else np.zeros(shape, np.float32)
    else:
        nodes, columns, matrix = _features_from_text(path, header)
    _check_unique(nodes, path)
    if not nodes:
        raise ValueError(f"{path} has no rows; a graph needs at least one node.")
    if not sp.issparse(matrix) and prefers_sparse(matrix):
        matrix = sp.csr_array(matrix)
    return Features(nodes, columns, matrix)


def read_edges(path: Path, nodes: Sequence[str], header: bool) -> Edges:
    """Read a table of edges: sender, receiver, and possibly a column "weight"."""
    names, columns = _read_columns(path, header)
    if len(names) < 2:
        raise ValueError(f"{path} has one column; an edge list has two: from, to.")
    if header and _kind(path) in (".csv", ".tsv") and {*names[:2]} <= {*nodes}:
        raise ValueError(
            f"{path}: the first line, {names[0]!r} and {names[1]!r}, holds nodes, not "
            "names of columns. Say --no-header."
        )
    senders, receivers = (_find(column, nodes, path) for column in columns[:2])
    weights = None
    lowered = [name.lower() for name in names]
    if "weight" in lowered[2:] or (len(names) == 3 and not header):
        at = lowered.index("weight", 2) if "weight" in lowered[2:] else 2
        weights = _numbers(columns[at], lambda i: (f"row {i + 1}", names[at]), path)
    elif len(names) > 2:
        raise ValueError(
            f"{path} has columns {', '.join(names)}. An edge list has two, from and "
            "to, and may have a third called weight."
        )
    return Edges(senders, receivers, weights)


def read_labels(path: Path, nodes: Sequence[str], header: bool) -> Labels:
    """Read a table of labels: node, then a class, or one column of 0 and 1 per label.

    Nodes that are not listed, and empty cells, are unknown. A column "set" says train,
    validation, test or nothing.
    """
    names, columns = _read_columns(path, header)
    at = _find(columns[0], nodes, path, once=True)
    lowered = [name.lower() for name in names]
    sets = None
    if "set" in lowered[1:]:
        i = lowered.index("set", 1)
        sets = _masks(columns.pop(i), at, len(nodes), path)
        del names[i]
    if len(columns) < 2:
        raise ValueError(f"{path} has no column of labels besides the nodes.")
    if len(columns) == 2:
        values = np.full(len(nodes), None, object)
        values[at] = np.array([v or None for v in columns[1]], object)
        return Labels(values, None, sets)
    matrix = np.full((len(nodes), len(columns) - 1), np.nan)
    for j, column in enumerate(columns[1:]):
        cells = [cell or "nan" for cell in column]
        matrix[at, j] = _numbers(
            cells, lambda i, j=j: (f"row {i + 1}", names[j + 1]), path
        )
    return Labels(matrix, tuple(names[1:]), sets)


def read_split(path: Path, nodes: Sequence[str], header: bool) -> dict[str, np.ndarray]:
    """Read a table of two columns: node, and train, validation, test or nothing."""
    _, columns = _read_columns(path, header)
    if len(columns) != 2:
        raise ValueError(
            f"{path} has {len(columns)} columns; a split has node and set."
        )
    at = _find(columns[0], nodes, path, once=True)
    return _masks(columns[1], at, len(nodes), path)


def sort_classes(values: Sequence[str | None]) -> list[str]:
    """Return the classes sorted: as numbers if all are whole numbers, else as text.

    >>> sort_classes(["10", "2", None]), sort_classes(["10", "2", "a"])
    (['2', '10'], ['10', '2', 'a'])
    """
    classes = sorted({v for v in values if v})
    if all(c.isascii() and c.isdigit() for c in classes):
        classes.sort(key=int)
    return classes


def to_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV, with "\\n" at line ends.

    Texts that a spreadsheet would execute get an apostrophe in front, which marks text
    in spreadsheets, and which the readers here remove.

    >>> to_csv(["node"], [["=1+1"], [-2.5]])
    "node\\n'=1+1\\n-2.5\\n"
    """
    text = io.StringIO()
    safe = ([_as_text(cell) for cell in row] for row in itertools.chain([header], rows))
    csv.writer(text, lineterminator="\n").writerows(safe)
    return text.getvalue()


def _as_text(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and _EXECUTED.match(cell) else cell


def _from_text(cell: str) -> str:
    """Return a cell as it was before `to_csv`, without blanks around it."""
    cell = cell.strip()
    return cell[1:] if cell[:1] == "'" and _EXECUTED.match(cell[1:]) else cell


def export_graph(graph: Graph, folder: pathlib.Path) -> list[pathlib.Path]:
    """Write a graph as the tables that `hopf fit` reads; nodes are 0, 1, 2, ..."""
    folder.mkdir(parents=True, exist_ok=True)
    arcs = graph.adjacency.tocoo()
    once = arcs.row <= arcs.col if not graph.directed else np.ones(arcs.nnz, bool)
    edges = {"source": arcs.col[once].tolist(), "target": arcs.row[once].tolist()}
    if graph.weights is not None:
        edges["weight"] = arcs.data[once].tolist()
    columns = (f"x{j}" for j in range(graph.num_features))
    classes = graph.label_names if graph.multilabel else ("label",)
    texts = {
        "edges.csv": to_csv(list(edges), zip(*edges.values(), strict=True)),
        "features.csv": to_csv(["node", *columns], _feature_rows(graph)),
        "labels.csv": to_csv(["node", *classes, "set"], _label_rows(graph)),
    }
    for name, text in texts.items():
        write_atomically(folder / name, text.encode())
    return [folder / name for name in texts]


def _feature_rows(graph: Graph) -> Iterator[list[Any]]:
    for i in range(graph.num_nodes):
        row: Any = graph.features[[i]]
        row = row.toarray() if sp.issparse(row) else np.asarray(row)
        # 0 rather than 0.0: most of a bag of words is zeros.
        yield [i, *(v or 0 for v in row[0].tolist())]


def _label_rows(graph: Graph) -> Iterator[list[Any]]:
    sets = np.full(graph.num_nodes, "", object)
    for each in SPLITS:
        sets[getattr(graph, each)] = each
    for i in np.flatnonzero(graph.known).tolist():
        row = graph.labels[i]
        cells = row.tolist() if graph.multilabel else [graph.label_names[row.argmax()]]
        yield [i, *cells, sets[i]]


def _kind(path: Path) -> str:
    name = pathlib.Path(path).name.lower().removesuffix(".gz")
    for kind in _FORMATS:
        if name.endswith(kind):
            return kind
    raise ValueError(
        f"{path}: the name must end in {', '.join(_FORMATS)} (or .csv.gz)."
    )


@contextlib.contextmanager
def _lines(path: Path) -> Iterator[Any]:
    packed = pathlib.Path(path).name.lower().endswith(".gz")
    with open_text(path, packed=packed) as file:
        try:
            yield csv.reader(file, delimiter="\t" if _kind(path) == ".tsv" else ",")
        except csv.Error as error:
            raise ValueError(f"{path} cannot be read: {error}.") from None


def _rows(reader: Any, path: Path, header: bool) -> tuple[list[str], Iterator[Any]]:
    """Return the names of the columns, and the rows after them, all of one length."""
    first = next((row for row in reader if row), None)
    if first is None:
        raise ValueError(f"{path} is empty.")
    names = [_from_text(name) if header else str(i) for i, name in enumerate(first)]

    def rest() -> Iterator[list[str]]:
        if not header:
            yield first
        for row in filter(None, reader):
            if len(row) != len(names):
                raise ValueError(
                    f"{path}, line {reader.line_num}: {len(row)} cells, but the first "
                    f"line has {len(names)}."
                )
            yield row

    return names, rest()


def _read_columns(path: Path, header: bool) -> tuple[list[str], list[list[str]]]:
    """Return the names and the cells of all columns, as text."""
    kind = _kind(path)
    if kind == ".parquet":
        names, values = read_parquet(path)
        return names, [texts_of(column) for column in values]
    if kind == ".npz":
        arrays = load_npz(path)
        for name, array in arrays.items():
            if array.ndim != 1 or len(array) != len(next(iter(arrays.values()))):
                raise ValueError(
                    f"{path}: {name} has shape {array.shape}; each array is a column, "
                    "all of one length."
                )
        return list(arrays), [texts_of(array) for array in arrays.values()]
    with _lines(path) as reader:
        names, rows = _rows(reader, path, header)
        columns = [list(map(_from_text, column)) for column in zip(*rows, strict=True)]
    return names, columns or [[] for _ in names]


def _features_from_text(path: Path, header: bool) -> tuple[list[str], list[str], Any]:
    nodes: list[str] = []
    parts = []
    with _lines(path) as reader:
        names, rows = _rows(reader, path, header)
        if header and len(names) > 1 and all(map(_is_number, names[1:])):
            raise ValueError(
                f"{path}: the first line holds numbers, not names of columns. Say "
                "--no-header."
            )

        def parse(row: list[str]) -> np.ndarray:
            nodes.append(_from_text(row[0]))
            return _numbers(
                row[1:], lambda i: (f"line {reader.line_num}", names[i + 1]), path
            )

        values = map(parse, rows)
        while block := list(itertools.islice(values, _ROWS_AT_ONCE)):
            with np.errstate(over="ignore"):  # `Graph` refuses infinities.
                parts.append(sp.csr_array(np.stack(block).astype(np.float32)))
    matrix = sp.vstack(parts or [sp.csr_array((0, len(names) - 1))], format="csr")
    if not prefers_sparse(matrix):
        matrix = matrix.toarray()
    return nodes, names[1:], matrix


def _features_from_npz(path: Path) -> tuple[list[str], list[str], Any]:
    arrays = load_npz(path)
    if all(name in arrays for name in _CSR):
        try:
            data, indices, indptr, shape = (arrays[name] for name in _CSR)
            matrix = sp.csr_array((data, indices, indptr), tuple(shape))
            check_sparse(matrix, "the matrix")
        except MALFORMED as error:
            reason = str(error).rstrip(".")
            raise ValueError(f"{path} does not hold a CSR matrix: {reason}.") from None
    else:
        wide = [name for name, array in arrays.items() if array.ndim == 2]
        if len(wide) != 1:
            raise ValueError(
                f"{path} holds {', '.join(arrays) or 'nothing'}. Give one array [N, F]"
                f" of features, or {', '.join(_CSR)} of a CSR matrix; and nodes."
            )
        matrix = arrays[wide[0]]
    count, width = matrix.shape
    for number in matrix.shape:  # An array [N, 0] takes no bytes, but its names do.
        needed = _BYTES_PER_NAME * number
        check_limit(needed, os.path.getsize(path), f"{path}: names of its axes")
    nodes = texts_of(arrays.get("nodes", np.arange(count)))
    if len(nodes) != count:
        raise ValueError(
            f"{path} has {len(nodes)} nodes, but {count} rows of features."
        )
    return nodes, list(map(str, range(width))), matrix


def texts_of(values: Any) -> list[str]:
    """Return cells as text; missing ones are empty."""
    return [
        "" if v is None or v != v else v.decode() if isinstance(v, bytes) else str(v)
        for v in (values if isinstance(values, list) else values.tolist())
    ]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _find(
    column: list[str], nodes: Sequence[str], path: Path, *, once: bool = False
) -> np.ndarray:
    """Return the indices of nodes by their names."""
    if once:
        _check_unique(column, path)
    index = {node: i for i, node in enumerate(nodes)}
    try:
        return np.fromiter(map(index.__getitem__, column), np.int64, len(column))
    except KeyError:
        row = next(i for i, node in enumerate(column) if node not in index)
        raise ValueError(
            f"{path}, row {row + 1}: node {reprlib.repr(column[row])} is not in the "
            "features."
        ) from None


def _numbers(cells: list[str], place: Any, path: Path) -> np.ndarray:
    """Return cells as numbers; `place(i)` is the line or row and the column of one."""
    try:
        return np.array(cells, np.float64)
    except ValueError:
        at = next(i for i, cell in enumerate(cells) if not _is_number(cell))
        where, column = place(at)
        raise ValueError(
            f"{path}, {where}: {reprlib.repr(cells[at])} in column "
            f"{reprlib.repr(column)} is not a number. Fill in what is missing, and "
            "encode texts or leave them out; Graph.from_pandas in Python does both."
        ) from None


def _check_unique(nodes: list[str], path: Path) -> None:
    if len(set(nodes)) < len(nodes):
        twice, _ = collections.Counter(nodes).most_common(1)[0]
        raise ValueError(f"{path} lists node {reprlib.repr(twice)} twice.")


def _masks(
    column: list[str], at: np.ndarray, count: int, path: Path
) -> dict[str, np.ndarray]:
    """Return the masks [N] of the sets that a column names."""
    masks = {name: np.zeros(count, bool) for name in SPLITS}
    for row, (cell, node) in enumerate(zip(column, at.tolist(), strict=True)):
        name = _SETS.get(cell.lower(), cell)
        if name in masks:
            masks[name][node] = True
        elif name:
            raise ValueError(
                f"{path}, row {row + 1}: {cell!r} is not a set; use "
                f"{', '.join(SPLITS)} or nothing."
            )
    return masks

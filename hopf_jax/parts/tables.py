"""Import of tables of edges and nodes into a graph on disk, out of core.

DuckDB joins names with ids, merges duplicates and sorts edges within a memory limit,
spilling to disk; its results are read in pieces.
"""

import glob
import os
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from hopf_jax.config import Whole, check
from hopf_jax.graph import SPLITS, new_graph_folder
from hopf_jax.parts.manifest import NAMES_TABLE
from hopf_jax.runtime import (
    create_npy,
    import_or_explain,
    open_regular,
    physical_memory,
    scratch_folder,
)

_LEAST_MEMORY = 1 << 28
_ROWS_AT_ONCE = 1 << 20
_SUFFIXES = (".parquet", ".csv", ".tsv", ".csv.gz", ".tsv.gz")
_SETS = {"val": "validation", "valid": "validation"} | {s: s for s in SPLITS}
_OGB = {"edges": "edge", "nodes": "node-feat", "labels": "node-label"}
_OGB_SETS = {"train": "train", "valid": "validation", "test": "test"}
_NUMBERS = r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DOUBLE|FLOAT|DECIMAL.*|BOOLEAN"


class _Sources(NamedTuple):
    """SQL of the three tables; `numbered` if nodes are named by row number."""

    edges: str
    nodes: str
    labels: str | None
    numbered: bool


def import_tables(
    edges: str | os.PathLike,
    folder: str | os.PathLike,
    nodes: str | os.PathLike | None = None,
    labels: str | os.PathLike | None = None,
    *,
    directed: bool = False,
    memory: int | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> None:
    """Write a graph for `open_graph` and `partition` from tables larger than memory.

    Tables are Parquet, CSV or TSV files (either also .gz) whose first line names the
    columns. Self-loops are dropped; duplicate edges are merged as `Graph` does.

    Args:
      edges: Two columns, sender and receiver; a third called weight if edges have
        weights. Or a folder in the format of the Open Graph Benchmark, with raw/ and
        split/; nothing else is needed then.
      folder: The folder to write.
      nodes: The name of each node, then one column of numbers per feature.
      labels: The name of a node, then its class, or one column of 0 and 1 per label if
        nodes have several. A column `set` contains train, validation or test.
      directed: Keep the direction of edges.
      memory: Memory limit in bytes; None for a quarter of this machine's.
      say: Called with lines of progress.
    """
    duckdb = import_or_explain(
        "duckdb", "import_tables", "duckdb pyarrow (the extra [partition])"
    )
    import_or_explain("pyarrow", "import_tables")
    total = physical_memory()
    memory = (total or 8 * _LEAST_MEMORY) // 4 if memory is None else memory
    check(Whole(_LEAST_MEMORY, 2**62), "memory", memory)
    sources = _find(pathlib.Path(edges), nodes, labels)
    target = pathlib.Path(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(target.parent) as scratch:
        # Never fetch anything from the network on behalf of a file.
        alone = {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        con = duckdb.connect(scratch / "tables.duckdb", config=alone)
        try:
            # The rest is for results of DuckDB and for Python.
            con.execute(f"SET memory_limit = '{memory * 2 // 3 // 10**6}MB'")
            con.execute(f"SET temp_directory = {_text(scratch)}")
            _Import(con, sources, target, directed, say).run()
        except duckdb.Error as error:
            reason = " ".join(str(error)[:500].split())
            raise ValueError(f"The tables cannot be read: {reason}") from error
        finally:
            con.close()


def _find(edges: pathlib.Path, nodes: Any, labels: Any) -> _Sources:
    """Return the paths of the tables; raise `ValueError` if one is missing."""
    if edges.is_dir():
        raw = {name: edges / "raw" / f"{file}.csv.gz" for name, file in _OGB.items()}
        for path in raw.values():
            if not path.exists():
                raise ValueError(
                    f"{edges} is not in the format of the Open Graph Benchmark: "
                    f"{path.relative_to(edges)} is missing."
                )
        found = {name: _relation(path, False) for name, path in raw.items()}
        number = "SELECT row_number() OVER () - 1 AS node, *"
        splits = [
            f"SELECT column0 AS node, {_text(ours)} AS kind FROM "
            f"{_relation(path, False)}"
            for name, ours in _OGB_SETS.items()
            for path in sorted(edges.glob(f"split/*/{name}.csv.gz"))[:1]
        ]
        labelled = f"({number} FROM {found['labels']})"
        if splits:
            both = " UNION ALL ".join(splits)
            labelled = (
                f"(SELECT l.*, s.kind AS set FROM {labelled} l LEFT JOIN ({both}) s "
                "ON l.node = s.node)"
            )
        features = f"({number} FROM {found['nodes']})"
        return _Sources(found["edges"], features, labelled, True)
    if nodes is None:
        raise ValueError("Edges need a table of nodes with their features: nodes=...")
    paths = [pathlib.Path(path) for path in (edges, nodes, labels) if path is not None]
    for path in paths:
        if not path.exists():
            raise ValueError(f"There is no table {path}.")
        if not path.name.endswith(_SUFFIXES):
            raise ValueError(
                f"{path} is none of {', '.join(_SUFFIXES)}: give such a table."
            )
    given, about, *known = [_relation(path) for path in paths]
    return _Sources(given, about, known[0] if known else None, False)


def _relation(path: pathlib.Path, header: bool = True) -> str:
    if path.suffix == ".parquet":
        return f"read_parquet({_file(path)})"
    tab = ".tsv" in path.suffixes[-2:]
    # State everything: DuckDB's sniffer skips lines that do not match the others.
    how = f"header = {header}, skip = 0, delim = {_text(chr(9) if tab else ',')}"
    return (
        f"""read_csv({_file(path)}, {how}, quote = '"', escape = '"', comment = '')"""
    )


def _file(path: pathlib.Path) -> str:
    """Return the path of a file as SQL, escaped from pattern matching."""
    open_regular(path).close()
    return _text(glob.escape(str(path)))


def _text(value: object) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


class _Import:
    """State of one import."""

    def __init__(
        self,
        con: Any,
        sources: _Sources,
        target: pathlib.Path,
        directed: bool,
        say: Callable[[str], object],
    ):
        self.con, self.sources, self.target = con, sources, target
        self.directed, self.say = directed, say

    def run(self) -> None:
        """Write the graph."""
        self._number_nodes()
        columns = self._columns(self.sources.nodes)[1:]
        for name, kind in columns:
            if not re.fullmatch(_NUMBERS, kind):
                raise ValueError(
                    f"Column {name!r} of the nodes holds {kind}. Features must be "
                    "numbers: encode it, or leave it out."
                )
        if not columns:
            raise ValueError("The table of nodes has no columns of features.")
        labels = self._label_columns()
        classes = self._classes(labels)
        multilabel = len(labels) > 1
        fields = {
            "num_features": len(columns),
            "multilabel": multilabel,
            "label_names": classes,
            "directed": self.directed,
            "feature_names": [name for name, _ in columns],
        }
        if self.sources.numbered:
            fields["feature_names"] = []
        with new_graph_folder(self.target, **fields) as made:
            self._write_edges(made)
            self._write_features(made, [name for name, _ in columns])
            self._write_labels(made, labels, classes)
            if not self.ids:
                query = "SELECT name AS node FROM nodes ORDER BY id"
                path = _text(made / NAMES_TABLE)
                self.con.execute(f"COPY ({query}) TO {path} (FORMAT parquet)")
        self.say(f"Written: {self.target}")

    def _columns(self, relation: str) -> list[tuple[str, str]]:
        found = self.con.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
        if any("\0" in row[0] for row in found):
            raise ValueError("The name of a column has a zero byte.")
        return [(str(row[0]), str(row[1])) for row in found]

    def _one(self, query: str) -> Any:
        rows = self.con.execute(query).fetchall()  # There may be none.
        return rows[0] if rows else None

    def _batches(self, query: str) -> Iterator[dict[str, np.ndarray]]:
        with self.con.cursor() as cursor:
            reader = cursor.sql(query).to_arrow_reader(_ROWS_AT_ONCE)
            for batch in reader:
                yield {
                    name: column.to_numpy(zero_copy_only=False)
                    for name, column in zip(
                        batch.schema.names, batch.columns, strict=True
                    )
                }

    def _number_nodes(self) -> None:
        """Assign ids to nodes in the order of their table."""
        (first, _), *_ = self._columns(self.sources.nodes)
        self.con.execute(
            "CREATE TABLE nodes AS SELECT row_number() OVER () - 1 AS id, "
            f"{_name(first)} AS name FROM {self.sources.nodes}"
        )
        self.num_nodes = int(self._one("SELECT count(*) FROM nodes")[0])
        if not self.num_nodes:
            raise ValueError("The table of nodes has no rows.")
        if self._one("SELECT count(*) FROM nodes WHERE name IS NULL")[0]:
            raise ValueError("A node has no name. Fill in the first column.")
        twice = self._one(
            "SELECT name FROM nodes GROUP BY name HAVING count(*) > 1 LIMIT 1"
        )
        if twice:
            raise ValueError(f"Node {twice[0]!r} occurs twice among the nodes.")
        kind = self._columns("nodes")[1][1]
        # Names that equal the ids need no join.
        self.ids = "INT" in kind and bool(
            self._one("SELECT bool_and(name = id) FROM nodes")[0]
        )
        self.say(f"{self.num_nodes:,} nodes.")

    def _id_of(self, relation: str, columns: dict[str, str], rest: str = "") -> str:
        """Return SQL of a relation whose node names are replaced by ids.

        Args:
          relation: SQL.
          columns: Columns of node names, and the new names of these columns.
          rest: Further columns to select, after a comma.
        """
        kinds = dict(self._columns(relation))
        if self.ids and all(re.fullmatch(_NUMBERS, kinds[c]) for c in columns):
            # A plain cast would round 0.5 to an id.
            ids = [
                f"CASE WHEN t.{c} = trunc(t.{c}) THEN t.{c}::BIGINT END AS {new}"
                for c, new in ((_name(c), new) for c, new in columns.items())
            ]
            return f"SELECT {', '.join(ids)}{rest} FROM {relation} t"
        joins, ids = "", []
        for i, (column, new) in enumerate(columns.items()):
            joins += (
                f" LEFT JOIN nodes n{i} ON t.{_name(column)}::VARCHAR = "
                f"n{i}.name::VARCHAR"
            )
            ids.append(f"n{i}.id AS {new}")
        return f"SELECT {', '.join(ids)}{rest} FROM {relation} t{joins}"

    def _check_ids(self, table: str, columns: list[str], what: str) -> None:
        wrong = " OR ".join(
            f"{c} IS NULL OR {c} < 0 OR {c} >= {self.num_nodes}" for c in columns
        )
        if count := self._one(f"SELECT count(*) FROM {table} WHERE {wrong}")[0]:
            raise ValueError(
                f"{count:,} rows of {what} name nodes that are not in the table of "
                "nodes. Add them there, or leave the rows out."
            )

    def _write_edges(self, made: pathlib.Path) -> None:
        columns = [name for name, _ in self._columns(self.sources.edges)]
        weighted = len(columns) > 2
        if len(columns) < 2 or (weighted and columns[2].lower() != "weight"):
            raise ValueError(
                f"The edges have columns {', '.join(columns)}. There must be two, "
                "sender and receiver, and may be a third called weight."
            )
        rest = f", t.{_name(columns[2])}::DOUBLE AS w" if weighted else ""
        ends = self._id_of(self.sources.edges, {columns[0]: "s", columns[1]: "r"}, rest)
        self.con.execute(f"CREATE TABLE given AS {ends}")
        self._check_ids("given", ["s", "r"], "the edges")
        if weighted:
            bad = "w IS NULL OR NOT isfinite(w) OR w < 0"
            if self._one(f"SELECT count(*) FROM given WHERE {bad}")[0]:
                raise ValueError(
                    "Some edges have a weight that is not a number of 0 or more."
                )
            once = "SELECT r, s, sum(w) AS w FROM given WHERE r <> s GROUP BY r, s"
            both = f"WITH once AS ({once}) SELECT r, s, w FROM once"
            if not self.directed:
                both += " UNION ALL SELECT s AS r, r AS s, w FROM once"
            rows = f"SELECT r, s, max(w) AS w FROM ({both}) WHERE w > 0 GROUP BY r, s"
        else:
            both = "SELECT r, s FROM given WHERE r <> s"
            if not self.directed:
                both += " UNION ALL SELECT s AS r, r AS s FROM given WHERE r <> s"
            rows = f"SELECT DISTINCT r, s FROM ({both})"
        self.con.execute(f"CREATE TABLE arcs AS {rows} ORDER BY r, s")
        self.con.execute("DROP TABLE given")
        count = int(self._one("SELECT count(*) FROM arcs")[0])
        self.say(f"{count:,} edges, counting both directions.")
        lengths = np.zeros(self.num_nodes, np.int64)
        indices = create_npy(made / "indices.npy", np.int32, (count,))
        weights = (
            create_npy(made / "weights.npy", np.float32, (count,)) if weighted else None
        )
        done = 0
        for batch in self._batches("SELECT * FROM arcs"):
            rows_of = batch["r"]
            here = slice(done, done + len(rows_of))
            indices[here] = batch["s"]
            if weights is not None:
                if np.abs(batch["w"]).max(initial=0) > np.finfo(np.float32).max:
                    raise ValueError("Some edges have a weight beyond 32-bit numbers.")
                weights[here] = batch["w"]
            first, last = int(rows_of[0]), int(rows_of[-1])
            lengths[first : last + 1] += np.bincount(rows_of - first)
            done += len(rows_of)
        self.con.execute("DROP TABLE arcs")
        np.save(made / "indptr.npy", np.concatenate([[0], np.cumsum(lengths)]))

    def _write_features(self, made: pathlib.Path, names: list[str]) -> None:
        shape = self.num_nodes, len(names)
        out, done = create_npy(made / "features.npy", np.float32, shape), 0
        listed = ", ".join(f"{_name(name)}::FLOAT AS {_name(name)}" for name in names)
        for batch in self._batches(f"SELECT {listed} FROM {self.sources.nodes}"):
            block = np.column_stack([batch[name] for name in names])
            bad = ~np.isfinite(block.astype(np.float32))
            if bad.any():
                row, column = np.argwhere(bad)[0]
                raise ValueError(
                    f"Row {done + row + 1} of the nodes has no number in column "
                    f"{names[column]!r}. Fill it in."
                )
            out[done : done + len(block)] = block
            done += len(block)

    def _label_columns(self) -> list[str]:
        if self.sources.labels is None:
            return []
        columns = [name for name, _ in self._columns(self.sources.labels)][1:]
        found = [name for name in columns if name.lower() != "set"]
        if not found:
            raise ValueError("The table of labels has no column besides the nodes.")
        return found

    def _classes(self, labels: list[str]) -> list[str]:
        """Return the names of the labels, in numerical order if they are numbers."""
        if len(labels) != 1:
            return labels
        (column,) = labels
        query = (
            f"SELECT DISTINCT {_name(column)} FROM {self.sources.labels} "
            f"WHERE {_known(column)} ORDER BY 1"
        )
        return [_call(row[0]) for row in self.con.execute(query).fetchall()]

    def _write_labels(
        self, made: pathlib.Path, labels: list[str], classes: list[str]
    ) -> None:
        count = self.num_nodes
        matrix = create_npy(made / "labels.npy", np.uint8, (count, len(classes)))
        masks = {name: np.zeros(count, bool) for name in ("known", *SPLITS)}
        if labels:
            source = self.sources.labels or ""
            columns = [name for name, _ in self._columns(source)]
            sets = [name for name in columns[1:] if name.lower() == "set"]
            rest = "".join(f", t.{_name(c)} AS {_name(c)}" for c in labels + sets)
            own = "id" + "_" * max(map(len, columns))  # Distinct from all columns.
            given = self._id_of(source, {columns[0]: own}, rest)
            self.con.execute(f"CREATE TABLE labelled AS {given}")
            self._check_ids("labelled", [own], "the labels")
            query = f"SELECT {own} FROM labelled GROUP BY 1 HAVING count(*) > 1 LIMIT 1"
            if twice := self._one(query):
                name = self._one(f"SELECT name FROM nodes WHERE id = {twice[0]}")[0]
                raise ValueError(f"Node {name!r} occurs twice among the labels.")
            place = {name: i for i, name in enumerate(classes)}
            where = " AND ".join(_known(c) for c in labels)
            for batch in self._batches(f"SELECT * FROM labelled WHERE {where}"):
                ids = batch[own].astype(np.int64)
                masks["known"][ids] = True
                if len(labels) == 1:
                    values = batch[labels[0]].tolist()
                    matrix[ids, [place[_call(value)] for value in values]] = 1
                else:
                    block = np.column_stack([batch[c] for c in labels])
                    if not np.isin(block, (0, 1)).all():
                        raise ValueError("Labels of several columns must be 0 and 1.")
                    matrix[ids] = block
                for name in sets:
                    self._note_sets(masks, ids, batch[name])
        for name, mask in masks.items():
            np.save(made / f"{name}.npy", mask)

    def _note_sets(self, masks: Any, ids: np.ndarray, values: np.ndarray) -> None:
        for value in {str(v).strip().lower() for v in values.tolist() if v}:
            if value not in _SETS:
                raise ValueError(
                    f"The column set says {value!r}; it must say train, validation or "
                    "test, or nothing."
                )
            own = [str(v).strip().lower() == value for v in values.tolist()]
            masks[_SETS[value]][ids[np.array(own)]] = True


def _known(column: str) -> str:
    """Return SQL for the rows that have a label."""
    text = f"{_name(column)}::VARCHAR"
    return f"({text} IS NOT NULL AND {text} <> '' AND lower({text}) <> 'nan')"


def _call(value: Any) -> str:
    """Return the name of a class; 3.0 becomes 3."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)

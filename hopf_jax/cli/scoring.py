"""The command `hopf score`: predictions for a large graph, from Parquet to Parquet."""

import argparse
import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp

from hopf_jax import datasets
from hopf_jax.cli import tables
from hopf_jax.cli.model_folder import (
    ReadSettings,
    load_model,
    new_graph,
    place_columns,
)
from hopf_jax.config import Execution
from hopf_jax.results import Result
from hopf_jax.runtime import (
    columns_of,
    create_npy,
    opened_parquet,
    parquet_values,
    scratch_folder,
    write_atomically,
)

# pyarrow holds, of each column that is read, a share of a row group.
_COLUMNS_AT_ONCE = 16
_LOOKED_UP = 1 << 20  # Ends of edges: each search makes an index of all names first.


def run(options: argparse.Namespace) -> int:
    """Write the predictions for all nodes of a graph."""
    if options.batch_rows < 1:
        raise ValueError(f"--batch-rows is {options.batch_rows}; give 1 or more.")
    for path in (options.edges, options.features, options.out):
        if path.suffix != ".parquet":
            raise ValueError(
                f"{path}: hopf score reads and writes .parquet; hopf predict reads "
                "other tables."
            )
    result, settings = load_model(options.model)
    if options.chunk_edges is not None:
        execution = Execution(chunk_edges=options.chunk_edges)
        result = dataclasses.replace(result, execution=execution)
    with scratch_folder() as folder:
        rows = options.batch_rows
        nodes, matrix = _read_features(options.features, settings, rows, folder)
        edges = _read_edges(options.edges, nodes, rows)
        labels = tables.Labels(None, None, None)
        if options.labels is not None:
            labels = tables.read_labels(options.labels, nodes.to_pylist(), True)
        found = tables.Features((), settings.features, matrix)
        # Rows were scaled as they were read.
        settings = dataclasses.replace(settings, normalize=False)
        graph = new_graph(found, edges, labels, False, result, settings)
        probabilities = result.predict_proba(graph)

    def write(file: BinaryIO) -> None:
        _write(file, result, nodes, probabilities, rows, options.probabilities)

    write_atomically(options.out, write)
    print(f"{len(nodes)} nodes, {graph.num_edges} edges; written to {options.out}.")
    return 0


def _read_features(
    path: pathlib.Path, settings: ReadSettings, rows: int, folder: pathlib.Path
) -> tuple[Any, Any]:
    """Return the names of the nodes, as an array of pyarrow, and their features.

    Dense features are in a memory map in `folder`, sparse ones in memory.
    """
    with opened_parquet(path) as opened:
        node, *columns = columns_of(opened)
        shape = opened.metadata.num_rows, len(settings.features)
        if not shape[0]:
            raise ValueError("it has no rows; a graph needs at least one node")
        place_columns(columns, settings.features)  # They must be those of the fit.
        names = _read_names(opened, node, rows)
        dense = None
        if not settings.sparse:
            dense = create_npy(folder / "features.npy", np.float32, shape)
        parts = []
        for start in range(0, shape[1], _COLUMNS_AT_ONCE):
            some = settings.features[start : start + _COLUMNS_AT_ONCE]
            blocks, row = [], 0
            for batch in _batches(opened, list(some), rows):
                block = np.empty((len(batch), len(some)), np.float32)
                for j, name in enumerate(some):
                    with np.errstate(over="ignore"):  # `Graph` refuses infinities.
                        block[:, j] = _numbers(batch, name)
                if dense is None:
                    blocks.append(sp.csr_array(block))
                else:
                    dense[row : row + len(block), start : start + len(some)] = block
                row += len(block)
            if dense is None:
                parts.append(sp.vstack(blocks, format="csr"))
    if dense is None:
        empty = sp.csr_array(shape, dtype=np.float32)
        matrix = sp.hstack(parts, format="csr") if parts else empty
        return names, datasets.normalize_rows(matrix) if settings.normalize else matrix
    if settings.normalize:
        for row in range(0, shape[0], rows):
            block = dense[row : row + rows]
            block[:] = datasets.normalize_rows(np.array(block))
    return names, dense


def _read_names(opened: Any, node: str, rows: int) -> Any:
    """Return the names of the nodes, each of which occurs once."""
    import pyarrow as pa

    found = [_texts(batch.column(node)) for batch in _batches(opened, [node], rows)]
    names = pa.concat_arrays(found)
    counted = names.value_counts()
    twice = counted.field("counts").to_numpy(zero_copy_only=False) > 1
    if twice.any():
        again = counted.field("values")[int(twice.argmax())].as_py()
        raise ValueError(f"it lists node {again!r} twice")
    return names


def _read_edges(path: pathlib.Path, nodes: Any, rows: int) -> tables.Edges:
    """Return the ends of edges as places in `nodes`."""
    import pyarrow.compute as pc

    ends: tuple[list[np.ndarray], ...] = ([], [])
    weights: list[np.ndarray] = []
    with opened_parquet(path) as opened:
        columns = columns_of(opened)
        lowered = [name.lower() for name in columns]
        if len(columns) < 2 or (len(columns) > 2 and "weight" not in lowered[2:]):
            raise ValueError(
                f"it has columns {', '.join(columns)}. An edge list has two, from and "
                "to, and may have a third called weight"
            )
        at = lowered.index("weight", 2) if len(columns) > 2 else None
        read = 0
        for batch in _batches(opened, columns, max(rows, _LOOKED_UP)):
            for k, found in enumerate(ends):
                said = _texts(batch.column(columns[k]))
                ids = pc.index_in(said, value_set=nodes)
                if ids.null_count:
                    row = ids.is_null().index(True).as_py()
                    name = said[row].as_py()
                    raise ValueError(
                        f"row {read + row + 1}: node {name!r} is not in the features"
                    )
                found.append(ids.to_numpy())
            if at is not None:
                weights.append(_numbers(batch, columns[at]).astype(np.float32))
            read += len(batch)
    none = [np.zeros(0, np.int32)]
    senders, receivers = (np.concatenate(found or none) for found in ends)
    return tables.Edges(
        senders, receivers, np.concatenate(weights) if weights else None
    )


def _batches(opened: Any, columns: list[str], rows: int) -> Iterator[Any]:
    for batch in opened.iter_batches(rows, columns=columns, use_threads=False):
        if len(batch):
            yield batch


def _texts(column: Any) -> Any:
    """Return cells as an array of texts, as other tables are read."""
    import pyarrow as pa

    types, kind = pa.types, column.type
    if types.is_integer(kind) or types.is_string(kind) or types.is_dictionary(kind):
        return column.cast(pa.large_string()).fill_null("")
    cells = tables.texts_of(parquet_values(pa.chunked_array([column])))
    return pa.array(cells, pa.large_string())


def _numbers(batch: Any, name: str) -> np.ndarray:
    import pyarrow as pa

    values = parquet_values(pa.chunked_array([batch.column(name)]))
    if isinstance(values, list):
        raise ValueError(f"column {name!r} does not hold numbers")
    return values


def _write(
    file: BinaryIO,
    result: Result,
    nodes: Any,
    probabilities: np.ndarray,
    rows: int,
    with_probabilities: bool,
) -> None:
    """Write the table of predictions, some rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(result.label_names)
    fields = [("node", pa.large_string())]
    if result.multilabel:
        fields.append(("labels", pa.list_(pa.string())))
    else:
        fields += [
            ("label", pa.string()),
            ("probability", pa.float32()),
            ("confidence", pa.float32()),
        ]
    if with_probabilities or result.multilabel:
        fields += [(name, pa.float32()) for name in names]
    schema = pa.schema(fields)
    if len(set(schema.names)) < len(schema.names):
        raise ValueError(
            f"A label is called as a column: {', '.join(schema.names)}. Leave out "
            "--probabilities."
        )
    with pq.ParquetWriter(file, schema) as writer:
        for start in range(0, len(nodes), rows):
            said = probabilities[start : start + rows]
            decided = result.decision.decide(said)
            columns: list[Any] = [nodes.slice(start, rows)]
            if result.multilabel:
                columns.append([[names[i] for i in np.flatnonzero(r)] for r in decided])
            else:
                own = decided[:, None]
                columns.append([names[i] for i in decided.tolist()])
                for values in (said, result.calibrated(said)):
                    columns.append(np.take_along_axis(values, own, axis=1)[:, 0])
            columns += list(said.T)[: len(schema) - len(columns)]
            arrays = [
                pa.array(column, field.type)
                if not isinstance(column, pa.Array)
                else column
                for column, field in zip(columns, schema, strict=True)
            ]
            writer.write_batch(pa.record_batch(arrays, schema=schema))

"""Parquet files of plain columns, bounded as other untrusted files are."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from hopf_jax.runtime.untrusted import Path, check_limit, reading


@contextlib.contextmanager
def opened_parquet(path: Path) -> Iterator[Any]:
    """Yield an open Parquet file of plain columns, whose size was checked."""
    try:
        import pyarrow
        import pyarrow.parquet as pq
    except ImportError:
        raise ValueError(
            f'{path}: Parquet needs pyarrow: pip install "hopf-jax[tables]".'
        ) from None
    with reading(path, "Parquet") as (file, size):
        schema = pq.read_schema(file)
        if not schema.names:
            raise ValueError("it has no columns")
        # Texts stay numbered: one long text, repeated, takes hardly any bytes.
        texts, types = [], pyarrow.types
        for field in schema:
            if types.is_nested(field.type):
                raise ValueError(
                    f"column {field.name!r} holds neither numbers nor text"
                )
            if any(kind(field.type) for kind in _texts_of(types)):
                texts.append(field.name)
        opened = pq.ParquetFile(file, read_dictionary=texts)
        cells = opened.metadata.num_rows * len(schema.names)
        check_limit(8 * cells, size, "its cells")
        yield opened


def columns_of(opened: Any) -> list[str]:
    """Return the names of the columns of a Parquet file, without pandas' index."""
    # An index that pandas stored is no column.
    return [n for n in opened.schema_arrow.names if not _is_index(n)]


def read_parquet(path: Path) -> tuple[list[str], list[Any]]:
    """Return the names and the columns: arrays of numbers, or lists of other values."""
    with opened_parquet(path) as opened:
        table = opened.read(use_threads=False)
        check_limit(table.nbytes, os.path.getsize(path), "its columns")
        names = columns_of(opened)
        return names, [parquet_values(table.column(name)) for name in names]


def _texts_of(types: Any) -> tuple[Any, ...]:
    """Return the tests of pyarrow for texts and bytes."""
    return (
        *(types.is_string, types.is_large_string),
        *(types.is_binary, types.is_large_binary),
    )


def _is_index(name: str) -> bool:
    return name.startswith("__index_level_")


def parquet_values(column: Any) -> Any:
    """Return a column of Parquet as numbers, NaN where missing, or as Python values."""
    import pyarrow

    types = pyarrow.types
    if types.is_floating(column.type) or types.is_integer(column.type):
        whole = types.is_integer(column.type) and not column.null_count
        array = column.to_numpy()
        return array if whole else array.astype(np.float64)
    if types.is_boolean(column.type):
        missing = float("nan")
        cells = [missing if v is None else v for v in column.to_pylist()]
        return np.array(cells, np.float64 if column.null_count else bool)
    if types.is_dictionary(column.type):
        found: list[Any] = []
        for chunk in column.chunks:
            values = chunk.dictionary.to_pylist()
            ids = chunk.indices.to_pylist()
            found += [None if i is None else values[i] for i in ids]
        return found
    return column.to_pylist()

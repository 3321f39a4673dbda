"""Encoding of named columns of any type as a matrix of numbers."""

import datetime
import numbers
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hopf_jax.config import Choice, check
from hopf_jax.runtime import HopfWarning

MISSING = ("refuse", "mean")
_MAX_CATEGORIES = 50
_NESTED = (list, tuple, set, dict, np.ndarray)
_QUANTITY = re.compile(r"[-+]?\d[\d.,' ]*")
_DAYS = "for example, the days since some date"
_TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64)


def encode_columns(
    columns: Iterable[tuple[str, np.ndarray]], rows: Sequence[Any], missing: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return columns as a float matrix [N, F], and the names of its columns.

    Numbers and bools stay what they are. A column of texts becomes one column of 0 and
    1 per text, called `column=text`.

    Args:
      columns: Names and values [N].
      rows: [N] names of the rows, for messages.
      missing: "refuse" missing values; or "mean", which leaves NaN among numbers, and
        adds a column `column is missing` to those of texts.

    >>> columns = ("age", np.array([30, 50])), ("pet", np.array(["cat", "dog"]))
    >>> encode_columns(columns, range(2), "refuse")[1]
    ('age', 'pet=cat', 'pet=dog')
    """
    check(Choice(MISSING), "missing", missing)
    parts: list[np.ndarray] = []
    names: list[str] = []
    for name, values in columns:
        gone = _is_missing(values)
        if gone.any() and missing == "refuse":
            raise ValueError(
                f"Column {name!r} of features has no value in row "
                f"{rows[int(gone.argmax())]!r}, nor in {int(gone.sum()) - 1} others. "
                "Fill it in, drop the column or the nodes, or pass missing='mean' to "
                "use the mean of the column and an indicator."
            )
        part, own = _encode(name, values, gone)
        parts.append(part)
        names += own
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ValueError(
                f"Two columns of features are called {name!r}. Rename one of them."
            )
    if not parts:
        return np.zeros((len(rows), 0)), ()
    return np.hstack(parts), tuple(names)


def _encode(
    name: str, values: np.ndarray, gone: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """Return one column as some of numbers [N, n], and their names."""
    if values.dtype.kind in "fiub":
        return values.astype(np.float64)[:, None], [name]
    if values.dtype.kind not in "OUST":
        _refuse(name, f"{values.dtype} values", _DAYS)
    present = values[~gone].tolist()
    if any(isinstance(value, _NESTED) for value in present):
        _refuse(name, "lists or other nested values", "one column per element")
    if any(isinstance(value, _TIMES) for value in present):
        _refuse(name, "times", _DAYS)
    if all(_is_number(value) for value in present):
        column = np.full(len(values), np.nan)
        try:
            column[~gone] = [float(value) for value in present]
        except OverflowError:
            _refuse(name, "a number beyond 64 bits", "smaller ones")
        return column[:, None], [name]
    texts = [str(value) for value in present]
    kinds = sorted(set(texts))
    if len(kinds) > _MAX_CATEGORIES:
        looks = " It looks like an id." if len(kinds) > 0.9 * len(texts) else ""
        raise ValueError(
            f"Column {name!r} of features holds {len(kinds)} different texts, such as "
            f"{kinds[0]!r}; up to {_MAX_CATEGORIES} are encoded.{looks} Leave it out, "
            "or turn it into numbers."
        )
    if len(kinds) > 2 and all(map(_QUANTITY.fullmatch, kinds)):
        warnings.warn(
            f"Column {name!r} of features holds numbers written as text, such as "
            f"{kinds[0]!r}. They are encoded as {len(kinds)} categories. If they are "
            "quantities, convert them to numbers first.",
            HopfWarning,
            stacklevel=2,
        )
    place = {kind: i for i, kind in enumerate(kinds)}
    matrix = np.zeros((len(values), len(kinds)))
    matrix[np.flatnonzero(~gone), [place[text] for text in texts]] = 1
    names = [f"{name}={kind}" for kind in kinds]
    if gone.any():
        matrix = np.hstack([matrix, gone[:, None]])
        names.append(f"{name} is missing")
    return matrix, names


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Number) and not isinstance(value, complex)


def _refuse(name: str, what: str, numbers: str) -> None:
    raise ValueError(
        f"Column {name!r} of features holds {what}, which cannot be encoded. Leave it "
        f"out, or turn it into numbers: {numbers}."
    )


def _is_missing(values: np.ndarray) -> np.ndarray:
    """Return a mask of None, NaN, NaT and pandas' NA among values [N]."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind != "O":
        return np.zeros(len(values), bool)
    unset = ("NAType", "NaTType")
    return np.array(
        [
            value is None
            or type(value).__name__ in unset
            or (isinstance(value, float | np.floating) and bool(value != value))
            for value in values.tolist()
        ],
        bool,
    )


def match_columns(
    given: tuple[str, ...], wanted: tuple[str, ...], needed: np.ndarray
) -> np.ndarray:
    """Return the place [F] of each wanted column among those given; -1 for zeros.

    Zeros stand for a category that no node of the new graph is of, and for what the
    model does not read.

    Args:
      given: Names of the columns of a new graph.
      wanted: F names of the columns that a model learned from.
      needed: [F] whether the model reads the column.

    Raises:
      ValueError: A column that the model reads is not there.

    >>> match_columns(("b", "c=y", "a"), ("a", "b", "c=x"), np.ones(3, bool)).tolist()
    [2, 0, -1]
    """
    place = {name: i for i, name in enumerate(given)}
    encoded = {name.partition("=")[0] for name in given if "=" in name}
    absent = [
        name
        for name, read in zip(wanted, needed.tolist(), strict=True)
        if read and name not in place and _source(name) not in encoded
    ]
    if absent:
        others = f", nor {len(absent) - 1} others" if len(absent) > 1 else ""
        raise ValueError(
            f"The graph has no feature {absent[0]!r}{others}, which the model learned "
            "from. Give the columns of the graph that was fitted; their order does "
            "not matter."
        )
    return np.array([place.get(name, -1) for name in wanted], np.int64)


def _source(name: str) -> str | None:
    """Return the column of texts that an encoded column was made of."""
    if "=" in name:
        return name.partition("=")[0]
    return name.removesuffix(" is missing") if name.endswith(" is missing") else None

"""Arrays and rows of a sparse matrix that grow, change, and can be restored."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_MORE = 1.25  # Capacity beyond what is needed, so that growing is rare.


class Undo(NamedTuple):
    """What restores one change: a call of `restore`."""

    owner: Any
    arguments: tuple[Any, ...]


Journal = list[Undo]


def undo(journal: Journal) -> None:
    """Take back the changes of a journal, the last first, and empty it."""
    while journal:
        owner, arguments = journal.pop()
        owner.restore(*arguments)


class Growing:
    """An array [n, *] whose rows can be set; rows beyond its end are zeros.

    Attributes:
      array: The array, of `n` rows or more; it is replaced where it grows.
    """

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def reach(self, count: int) -> None:
        """Make room for `count` rows."""
        if count > len(self.array):
            size = int(_MORE * count) + 8
            grown = np.zeros((size, *self.array.shape[1:]), self.array.dtype)
            grown[: len(self.array)] = self.array
            self.array = grown

    def set(
        self, rows: np.ndarray, values: Any, journal: Journal, old: Any = None
    ) -> None:
        """Set some rows, each once, and note what they were, if that is not given."""
        if len(rows):
            old = self.array[rows] if old is None else old
            journal.append(Undo(self, (rows, old)))
            self.array[rows] = values

    def restore(self, rows: np.ndarray, values: np.ndarray) -> None:
        """Take back `set`."""
        self.array[rows] = values


class EditableRows:
    """Rows of a sparse matrix that can be replaced: entries are added to a pool.

    Attributes:
      columns: The pool of columns.
      values: The pool of values, or None if all are 1.
    """

    def __init__(
        self, indptr: np.ndarray, columns: np.ndarray, values: np.ndarray | None
    ) -> None:
        self._starts = Growing(np.asarray(indptr[:-1], np.int64).copy())
        self._lengths = Growing(np.diff(indptr).astype(np.int64))
        self.columns, self.values = columns, values
        self._used = len(columns)

    def reach(self, count: int) -> None:
        """Make room for `count` rows; new ones are empty."""
        self._starts.reach(count)
        self._lengths.reach(count)

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """Return the number of entries of some rows."""
        return self._lengths.array[rows]

    def entries(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of the entries of rows in the pool, and their number."""
        lengths = self._lengths.array[rows]
        return ranges(self._starts.array[rows], lengths), lengths

    def sums(self, rows: np.ndarray) -> np.ndarray:
        """Return the sums of some rows, as float32."""
        if self.values is None:
            return self._lengths.array[rows].astype(np.float32)
        places, lengths = self.entries(rows)
        total, some = np.zeros(len(rows)), np.flatnonzero(lengths)
        if some.size:
            starts = (np.cumsum(lengths) - lengths)[some]
            total[some] = np.add.reduceat(self.values[places], starts, dtype=float)
        with np.errstate(over="ignore"):  # Whoever asks has to check.
            return total.astype(np.float32)

    def replace(
        self,
        rows: np.ndarray,
        lengths: np.ndarray,
        columns: np.ndarray,
        values: np.ndarray | None,
        journal: Journal,
    ) -> None:
        """Replace whole rows by others, one after another in `columns` and `values`."""
        start, self._used = self._used, self._used + len(columns)
        self.columns = _extended(self.columns, start, columns)
        if self.values is not None:
            assert values is not None
            self.values = _extended(self.values, start, values)
        self._starts.set(rows, start + np.cumsum(lengths) - lengths, journal)
        self._lengths.set(rows, lengths, journal)

    def edit(
        self,
        removed: Sequence[np.ndarray],
        added: Sequence[np.ndarray],
        width: int,
        journal: Journal,
    ) -> np.ndarray:
        """Remove and add entries; the weight of one that exists is added to it.

        Args:
          removed: Rows and columns of entries; those that do not exist are ignored.
          added: Rows, columns and values of entries, which come afterwards.
          width: Number of columns, or more.
          journal: What takes it back.

        Returns:
          The rows that were edited, sorted.
        """
        rows = np.unique(np.concatenate([removed[0], added[0]]))
        if not len(rows):
            return rows
        places, lengths = self.entries(rows)
        own = np.repeat(np.arange(len(rows)), lengths)
        keys = own * width + self.columns[places]
        values = None if self.values is None else self.values[places]
        if len(removed[0]):
            gone = np.searchsorted(rows, removed[0]) * width + removed[1]
            kept = ~np.isin(keys, gone)
            keys = keys[kept]
            values = None if values is None else values[kept]
        if len(added[0]):
            new = np.searchsorted(rows, added[0]) * width + added[1]
            keys, at = np.unique(np.concatenate([keys, new]), return_inverse=True)
            if values is not None:
                values = np.bincount(at, np.concatenate([values, added[2]]))
        counts = np.bincount(keys // width, minlength=len(rows))
        self.replace(rows, counts, keys % width, values, journal)
        return rows


def _extended(pool: np.ndarray, start: int, more: np.ndarray) -> np.ndarray:
    """Return a pool with more entries from `start` on."""
    end = start + len(more)
    if end > len(pool):
        grown = np.empty(int(_MORE * end) + 64, pool.dtype)
        grown[:start] = pool[:start]
        pool = grown
    pool[start:end] = more
    return pool


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return `start, start + 1, ...` for each start, concatenated."""
    offsets = np.cumsum(lengths) - lengths
    return np.repeat(starts - offsets, lengths) + np.arange(lengths.sum())

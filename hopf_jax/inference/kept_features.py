"""Features as a net reads them, whose rows can be set."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.batching import Rows, SparseMatrix, fill
from hopf_jax.graph import EditableRows, Growing, Journal

_FEWEST_VALUES = 1 << 10


class KeptFeatures:
    """Features as a net reads them, whose rows can be set.

    Args:
      features: [N, F], dense, sparse or a memory map; of the first N slots.
    """

    def __init__(self, features: Any) -> None:
        self.sparse, self.width = sp.issparse(features), int(features.shape[1])
        count = features.shape[0]
        if self.sparse:
            parts = features.indptr, features.indices, features.data
            self._rows = EditableRows(*parts)
        else:
            self._base, self._count = features, count
            self._source = Growing(np.arange(count))
            self._more = Growing(np.zeros((0, self.width), np.float32))

    def reach(self, count: int) -> None:
        """Make room for `count` slots."""
        (self._rows if self.sparse else self._source).reach(count)

    def set(self, slots: np.ndarray, rows: Any, journal: Journal) -> None:
        """Set the features of some slots."""
        if not len(slots):
            return
        if self.sparse:
            lengths = np.diff(rows.indptr)
            parts = rows.indices, rows.data
            self._rows.replace(slots, lengths, *parts, journal)
            return
        start = self._count - len(self._base)
        self._count += len(slots)
        self._more.reach(self._count - len(self._base))
        self._more.array[start : start + len(slots)] = rows
        self._source.set(
            slots, len(self._base) + start + np.arange(len(slots)), journal
        )

    def matrix(self, slots: np.ndarray) -> Any:
        """Return the features of slots [n, F], as an array or as CSR."""
        if not self.sparse:
            return self.rows(slots, len(slots))
        places, lengths = self._rows.entries(slots)
        values = self._rows.values
        assert values is not None
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        parts = values[places], self._rows.columns[places], indptr
        return sp.csr_array(parts, (len(slots), self.width))

    def rows(self, slots: np.ndarray, count: int) -> Any:
        """Return the features of slots, padded to `count` rows."""
        if self.sparse:
            places, lengths = self._rows.entries(slots)
            size = power_of_two(len(places), _FEWEST_VALUES)
            ends = np.full(count + 1, len(places), np.int32)
            ends[0] = 0
            np.cumsum(lengths, out=ends[1 : len(slots) + 1])
            indices = fill(self._rows.columns[places].astype(np.int32), size, 0)
            values = self._rows.values
            assert values is not None
            return SparseMatrix(Rows(ends, indices), fill(values[places], size, 0))
        out = np.zeros((count, self.width), np.float32)
        source = self._source.array[slots]
        later = source >= len(self._base)
        if later.any():
            out[: len(slots)][later] = self._more.array[source[later] - len(self._base)]
            out[: len(slots)][~later] = self._base[source[~later]]
        else:
            out[: len(slots)] = self._base[source]
        return out


def power_of_two(count: int, least: int) -> int:
    """Return the power of two at or above a count, `least` or more."""
    return max(least, 1 << max(count - 1, 0).bit_length())

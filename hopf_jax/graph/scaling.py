"""Scaling of features: learned from one graph, stored with a model, applied to others.

Three kinds of matrices are told apart. In a *bag of words* (non-negative, mostly zero;
also ids in one-hot form) each row is scaled to sum to 1, and all by one number, so that
rows have the norm of a few standardised columns: weights that read small inputs must be
large, and weight decay would keep a net from learning. The columns of other *sparse*
matrices are divided by their root mean square, which keeps zeros zero. The columns of
*dense* ones are standardised by centres and scales that few extreme values do not
move, and clipped. Columns that are the same for all nodes are left out.
"""

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from hopf_jax.graph.features import normalize_rows

BAG_OF_WORDS, SPARSE, DENSE = KINDS = ("bag of words", "sparse", "dense")

_MAX_BAG_DENSITY = 0.25  # Share of entries that are not 0.
_MIN_BAG_COLUMNS = 16  # Of a matrix that is stored dense.
_MAX_BAG_SHARE = 0.5  # Of one column in the sum of all; an age is not a word.
_TAIL = 0.01  # Share of the values at either end that do not move centre and scale.
_ROW_NORM = 3.0  # Root mean square norm of the rows of a scaled bag of words.
_LIMIT = 5.0  # Largest absolute value of a scaled column.
_ROWS_READ = 100_000  # For quantiles; drawn at random where there are more.
_VALUES_AT_ONCE = 1 << 22
_NAMES_SHOWN = 5


@dataclasses.dataclass(frozen=True, eq=False)
class Scaling:
    """How features [N, F] are scaled before a net reads them.

    Attributes:
      kind: "bag of words", "sparse" or "dense".
      centre: [F], what is subtracted from each column, and what stands for a missing
        value in it.
      scale: [F], what each column is divided by; 0 where it is left out.
      gaps: [G], columns with missing values; each adds an indicator as a last column.
      gap_shares: [G], their shares of missing values.
      names: F names, or () if the columns have none.
    """

    kind: str
    centre: np.ndarray
    scale: np.ndarray
    gaps: np.ndarray
    gap_shares: np.ndarray
    names: tuple[str, ...] = ()

    @property
    def limit(self) -> float:
        """Largest absolute value of a scaled column, unless rows are scaled."""
        return _LIMIT

    @property
    def num_features(self) -> int:
        """Number of columns as given, F."""
        return len(self.scale)

    @property
    def read(self) -> np.ndarray:
        """Mask [F] of the columns that a net reads."""
        mask = self.scale > 0
        mask[self.gaps] = True
        return mask

    @property
    def num_scaled(self) -> int:
        """Number of columns that a net reads."""
        return int(np.count_nonzero(self.scale)) + len(self.gaps)

    @property
    def read_names(self) -> list[str]:
        """Names of the columns that a net reads; those without are called by number."""
        names = self.names or [f"feature {i}" for i in range(self.num_features)]
        kept = [names[i] for i in np.flatnonzero(self.scale)]
        return kept + [f"{names[i]} is missing" for i in self.gaps]

    def apply(self, features: Any) -> np.ndarray | sp.csr_array:
        """Return features [N, F] scaled, as float32.

        Dense and CSR matrices stay what they are, except that a matrix to be centred
        becomes dense. A memory map becomes another one, of a temporary file.

        Raises:
          ValueError: The number of columns is not the one that was learned from.
        """
        if features.shape[1] != self.num_features:
            raise ValueError(
                f"The graph has {features.shape[1]} features, but the model learned "
                f"from {self.num_features}. Give the same columns."
            )
        if sp.issparse(features) and self.kind != DENSE:
            return self._scale_sparse(features)
        scaled = _empty((features.shape[0], self.num_scaled), features)
        for rows in _blocks(features):
            part = features[rows]
            part = part.toarray() if sp.issparse(part) else np.asarray(part)
            scaled[rows] = self._scale_dense(part)
        return scaled

    def describe(self) -> list[str]:
        """Return one sentence for each decision."""
        columns = _count(int(np.count_nonzero(self.scale)), "column")
        said = {
            BAG_OF_WORDS: f"A bag of words of {columns}: rows are scaled to one sum, "
            f"and to a norm of {_ROW_NORM:g} in the mean.",
            SPARSE: f"{columns} with zeros that mean nothing: each is divided by its "
            "root mean square.",
            DENSE: f"{columns} standardised, robustly against extreme values, and "
            f"clipped to {-_LIMIT:g} ... {_LIMIT:g}.",
        }
        sentences = [said[self.kind]]
        constant = np.flatnonzero(self.scale == 0)
        if constant.size:
            sentences.append(
                f"{_count(constant.size, 'column')} left out, the same for all nodes: "
                f"{self._few(constant)}."
            )
        if self.gaps.size:
            sentences.append(
                f"Missing values in {_count(self.gaps.size, 'column')} replaced by the "
                f"mean, with an indicator for each: {self._few(self.gaps)}."
            )
        return sentences

    def pack(self) -> tuple[str, dict[str, np.ndarray]]:
        """Return the scaling as plain data, its kind and arrays; without names."""
        return self.kind, {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def unpack(
        cls, kind: str, arrays: Mapping[str, np.ndarray], names: tuple[str, ...] = ()
    ) -> Self:
        """Return the scaling that `pack` gave; raise `ValueError` if it is damaged."""
        found = {name: arrays[name] for name in _ARRAYS}
        columns, gaps = len(found["scale"]), found["gaps"]
        valid = (
            kind in KINDS
            and len(names) in (0, columns)
            and all(array.ndim == 1 for array in found.values())
            and all(found[n].dtype == np.float64 for n in _ARRAYS if n != "gaps")
            and gaps.dtype == np.int64
            and all(np.isfinite(array).all() for array in found.values())
            and len(found["centre"]) == columns
            and (found["scale"] >= 0).all()
            and ((gaps >= 0) & (gaps < columns)).all()
            and len(found["gap_shares"]) == len(gaps)
            and ((found["gap_shares"] > 0) & (found["gap_shares"] < 1)).all()
        )
        if not valid:
            raise ValueError("its scaling of features cannot be right")
        return cls(kind=kind, names=names, **found)

    def _scale_sparse(self, features: sp.csr_array) -> sp.csr_array:
        kept = self.scale > 0
        indptr, indices, data = features.indptr, features.indices, features.data
        scale = self.scale
        if not kept.all():
            within = kept[indices]
            before = np.concatenate([[0], np.cumsum(within)])
            indptr = before[indptr].astype(indptr.dtype)
            place = (np.cumsum(kept) - 1).astype(indices.dtype)
            indices, data = place[indices[within]], data[within]
            scale = scale[kept]
        shape = (features.shape[0], len(scale))
        if self.kind == BAG_OF_WORDS:
            data = normalize_rows(sp.csr_array((data, indices, indptr), shape)).data
            data = data / scale[indices]
        else:
            data = np.clip(data / scale[indices], -_LIMIT, _LIMIT)
        return sp.csr_array((data.astype(np.float32), indices, indptr), shape)

    def _scale_dense(self, part: np.ndarray) -> np.ndarray:
        missing = np.isnan(part)
        if self.kind == BAG_OF_WORDS:
            rows = normalize_rows(np.where(missing, 0, part)[:, self.scale > 0])
            return rows / self.scale[self.scale > 0]
        kept = self.scale > 0
        filled = np.where(missing, self.centre, part)[:, kept]
        scaled = (filled - self.centre[kept]) / self.scale[kept]
        shares = self.gap_shares
        flags = (missing[:, self.gaps] - shares) / np.sqrt(shares * (1 - shares))
        return np.clip(np.hstack([scaled, flags]), -_LIMIT, _LIMIT)

    def _few(self, columns: np.ndarray) -> str:
        names = self.names or [str(i) for i in range(self.num_features)]
        shown = ", ".join(names[i] for i in columns[:_NAMES_SHOWN])
        return shown + ", ..." * (columns.size > _NAMES_SHOWN)


_ARRAYS = ("centre", "scale", "gaps", "gap_shares")


def learn_scaling(features: Any, names: tuple[str, ...] = ()) -> Scaling:
    """Return the scaling for the features [N, F] of all nodes of a graph.

    Args:
      features: A dense or CSR matrix or a memory map; a dense one may hold NaN where
        values are missing.
      names: Names of the columns, if they have any.

    Raises:
      ValueError: No column differs between nodes.
    """
    read = _read_sparse if sp.issparse(features) else _read_dense
    columns, num_nodes = read(features), features.shape[0]
    gaps = np.flatnonzero((columns.present > 0) & (columns.present < num_nodes))
    kind = _kind_of(columns, num_nodes, sp.issparse(features))
    zeros = np.zeros(features.shape[1])
    if kind == DENSE:
        centre, scale = _robust(features, columns)
    elif kind == SPARSE:
        centre, scale = zeros, np.sqrt(columns.mean**2 + columns.std**2)
    else:
        centre, scale = zeros, zeros + _row_norm(features) / _ROW_NORM
    # Words that occur in all rows alike still count: rows are of different sums.
    constant = columns.least >= columns.most
    if kind == BAG_OF_WORDS:
        constant &= columns.most <= 0
    scale = np.where(constant, 0, scale)
    if not scale.any() and not gaps.size:
        raise ValueError(
            f"All {features.shape[1]} columns of features are constant: they are the "
            "same for all nodes, so that nothing can be learned from them. Give "
            "columns that differ between nodes, or Config(features='as-is') to learn "
            "from the edges alone."
        )
    shares = 1 - columns.present[gaps] / num_nodes
    return Scaling(kind, centre, scale, gaps, shares, tuple(names))


def _row_norm(features: Any) -> float:
    """Return the root mean square of the norms of rows, each scaled to sum to 1."""
    total = 0.0
    for rows in _blocks(features):
        part = features[rows]
        part = normalize_rows(part if sp.issparse(part) else np.asarray(part))
        total += float(np.square(part.data if sp.issparse(part) else part).sum())
    return float(np.sqrt(total / features.shape[0])) or 1.0


class _Columns(NamedTuple):
    """Statistics of the columns of a matrix, each [F], without missing values."""

    present: np.ndarray  # Number of values
    filled: np.ndarray  # Number of values that are not 0
    least: np.ndarray
    most: np.ndarray
    mean: np.ndarray
    std: np.ndarray


def _kind_of(columns: _Columns, num_nodes: int, sparse: bool) -> str:
    num_columns = len(columns.present)
    density = columns.filled.sum() / max(1, num_nodes * num_columns)
    sums = columns.mean * columns.present
    wide = num_columns >= _MIN_BAG_COLUMNS
    bag = (
        (columns.least >= 0).all()
        and (columns.present == num_nodes).all()
        and density < _MAX_BAG_DENSITY
        and (wide or sparse)
        and not (wide and sums.max() > _MAX_BAG_SHARE * sums.sum())
    )
    return BAG_OF_WORDS if bag else SPARSE if sparse else DENSE


def _robust(features: Any, columns: _Columns) -> tuple[np.ndarray, np.ndarray]:
    """Return centres and scales [F] of values clipped to their quantiles.

    Those of all values where the quantiles are equal, as for a rare indicator.
    """
    centre, scale = columns.mean.copy(), columns.std.copy()
    rows: Any = slice(None)
    if features.shape[0] > _ROWS_READ:
        rng = np.random.default_rng(0)
        rows = np.sort(rng.choice(features.shape[0], _ROWS_READ, replace=False))
    width = max(1, _VALUES_AT_ONCE // min(features.shape[0], _ROWS_READ))
    for start in range(0, features.shape[1], width):
        some = slice(start, start + width)
        values = np.asarray(features[rows, some], np.float64)
        live = np.isfinite(values).any(axis=0)
        values = values[:, live]
        # The first is much slower.
        quantile = np.nanquantile if np.isnan(values).any() else np.quantile
        low, high = quantile(values, (_TAIL, 1 - _TAIL), axis=0)
        clipped = np.clip(values, low, high)
        std = np.nanstd(clipped, axis=0)
        usable = std > 0
        places = np.flatnonzero(live)[usable] + start
        centre[places] = np.nanmean(clipped, axis=0)[usable]
        scale[places] = std[usable]
    return centre, scale


def _read_dense(features: Any) -> _Columns:
    num_columns = features.shape[1]
    origin = np.nan_to_num(np.asarray(features[0], np.float64))  # Against cancellation.
    count, filled = np.zeros((2, num_columns), np.int64)
    total, squares = np.zeros((2, num_columns))
    least, most = np.full(num_columns, np.inf), np.full(num_columns, -np.inf)
    for rows in _blocks(features):
        part = np.asarray(features[rows], np.float64)
        missing = np.isnan(part)
        count += len(part) - np.count_nonzero(missing, axis=0)
        filled += np.count_nonzero(part, axis=0) - np.count_nonzero(missing, axis=0)
        moved = np.where(missing, 0, part - origin)
        total += moved.sum(axis=0)
        squares += np.square(moved).sum(axis=0)
        least = np.fmin(least, np.fmin.reduce(part, axis=0))
        most = np.fmax(most, np.fmax.reduce(part, axis=0))
    mean = total / np.maximum(count, 1)
    std = np.sqrt(np.maximum(squares / np.maximum(count, 1) - mean**2, 0))
    return _Columns(count, filled, least, most, mean + origin, std)


def _read_sparse(features: sp.csr_array) -> _Columns:
    num_nodes, num_columns = features.shape
    data = np.asarray(features.data, np.float64)
    places = features.indices

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(places, values, minlength=num_columns)

    stored = np.bincount(places, minlength=num_columns)
    filled = total(data != 0).astype(np.int64)

    def bound(extreme: np.ufunc, start: float) -> np.ndarray:
        found = np.full(num_columns, start)
        extreme.at(found, places, data)
        return np.where(stored < num_nodes, extreme(found, 0), found)

    mean, square = total(data) / num_nodes, total(data**2) / num_nodes
    std = np.sqrt(np.maximum(square - mean**2, 0))
    return _Columns(
        present=np.full(num_columns, num_nodes),
        filled=filled,
        least=bound(np.minimum, np.inf),
        most=bound(np.maximum, -np.inf),
        mean=mean,
        std=std,
    )


def select_columns(features: Any, places: np.ndarray) -> Any:
    """Return columns of a matrix by their places; zeros for a place below 0."""
    if sp.issparse(features):
        chosen = np.flatnonzero(places >= 0)
        ones = np.ones(len(chosen), features.dtype)
        shape = (features.shape[1], len(places))
        pick = sp.coo_array((ones, (places[chosen], chosen)), shape)
        return sp.csr_array(features @ pick.tocsr())
    selected = _empty((features.shape[0], len(places)), features)
    for rows in _blocks(features):
        selected[rows] = np.where(places >= 0, features[rows][:, places], 0)
    return selected


def _blocks(features: Any) -> Iterator[slice]:
    """Yield slices of rows that fit into memory."""
    step = max(1, _VALUES_AT_ONCE // max(1, features.shape[1]))
    for start in range(0, features.shape[0], step):
        yield slice(start, start + step)


def _empty(shape: tuple[int, int], features: Any) -> np.ndarray:
    """Return an array to fill; a memory map of a nameless file for a memory map."""
    if not isinstance(features, np.memmap) or 0 in shape:
        return np.empty(shape, np.float32)
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, np.float32, "w+", shape=shape)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

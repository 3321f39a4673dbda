"""Reader of Planetoid's pickles that runs no code from them."""

import collections
import io
import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.datasets.contents import Contents, as_features
from hopf_jax.datasets.registry import Layout


class _Csr:
    """A stand-in for scipy's matrix: a pickle must not change a class of scipy."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    _shape: tuple[int, int]


# Its module differs between versions of numpy.
_reconstruct = np.empty(0).__reduce__()[0]

_ALLOWED = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("collections", "defaultdict"): collections.defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"the pickle asks for {module}.{name}, which a graph does not need; "
                "it was refused, and none of it was run"
            ) from None


def unpickle(data: bytes) -> Any:
    """Return the arrays, CSR matrices, lists and dicts of a pickle.

    Anything else raises `UnpicklingError` before it is imported or called, so that a
    malicious pickle does no harm.
    """
    value = _Unpickler(io.BytesIO(data), encoding="latin1").load()
    if isinstance(value, _Csr):
        parts = value.data, value.indices, value.indptr
        return sp.csr_array(parts, value._shape)
    return value


def read(folder: Path, layout: Layout) -> Contents:
    """Read ind.<name>.{allx,ally,tx,ty,graph,test.index}.

    The x and y files repeat rows of allx and ally. A node that no file has, as in
    Citeseer, gets neither features nor a label.
    """

    def part(ending: str) -> Any:
        return unpickle((folder / f"{layout.prefix}{ending}").read_bytes())

    graph = part("graph")
    neighbours = list(graph.values())
    lengths = np.fromiter(map(len, neighbours), np.int64, len(neighbours))
    owners = np.fromiter(graph, np.int32, len(neighbours))
    senders = np.fromiter(
        itertools.chain.from_iterable(neighbours), np.int32, int(lengths.sum())
    )
    words = sp.vstack([part("allx"), part("tx")], format="csr")
    classes = np.concatenate([part("ally"), part("ty")])
    test = np.loadtxt(folder / f"{layout.prefix}test.index", np.int64, ndmin=1)
    place = np.concatenate([np.arange(words.shape[0] - len(test)), test])
    num_nodes = len(graph)
    into = sp.csr_array(
        (np.ones(len(place), np.float32), (place, np.arange(len(place)))),
        (num_nodes, len(place)),
    )
    labels = np.zeros((num_nodes, classes.shape[1]), np.uint8)
    labels[place] = classes
    return Contents(
        senders=senders,
        receivers=np.repeat(owners, lengths),
        features=as_features(into @ words),
        labels=labels,
        label_names=tuple(str(c) for c in range(classes.shape[1])),
        splits={},
    )

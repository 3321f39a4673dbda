"""Unpickling of graphs that runs no code from the pickle."""

import collections
import io
import pickle
from typing import Any

import numpy as np
import scipy.sparse as sp


class _Csr:
    """A stand-in for scipy's matrix: a pickle must not change a class of scipy."""


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
        parts = vars(value)
        arrays = parts["data"], parts["indices"], parts["indptr"]
        return sp.csr_array(arrays, parts["_shape"])
    return value

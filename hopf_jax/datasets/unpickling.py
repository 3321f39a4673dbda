"""Unpickling of graphs that runs no code from the pickle, nor native code on forgeries.

Classes of numpy and scipy are replaced by plain ones, which only keep what the pickle
says. Arrays and matrices are made from that once it is checked: numpy would take a
forged dtype at its word, and read or write beyond the data.
"""

import io
import math
import pickle
import pickletools
import re
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.graph import check_sparse
from hopf_jax.runtime import MALFORMED

# What graphs consist of: containers, numbers, texts, and the objects below.
_OPCODES = frozenset(
    [
        "PROTO",
        "FRAME",
        "STOP",
        "MARK",
        "POP",
        "POP_MARK",
        "NONE",
        "NEWTRUE",
        "NEWFALSE",
        "INT",
        "LONG",
        "LONG1",
        "BININT",
        "BININT1",
        "BININT2",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "EMPTY_LIST",
        "LIST",
        "APPEND",
        "APPENDS",
        "EMPTY_DICT",
        "DICT",
        "SETITEM",
        "SETITEMS",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "GET",
        "BINGET",
        "LONG_BINGET",
        "PUT",
        "BINPUT",
        "LONG_BINPUT",
        "MEMOIZE",
        "GLOBAL",
        "STACK_GLOBAL",
        "REDUCE",
        "NEWOBJ",
        "BUILD",
    ]
)
_MAX_TUPLES = 10_000  # Deeply nested ones, as keys, exhaust the stack.


class _Stored:
    """What a pickle says of an object: how to make it, and its state."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Array(_Stored):
    pass


class _Dtype(_Stored):
    pass


class _Csr(_Stored):
    pass


class _List(_Stored):
    """The factory of a defaultdict; nothing calls it."""


def _reconstruct(*arguments: Any) -> _Array:
    del arguments  # The class, and a shape that the state replaces.
    return _Array()


def _new_object(cls: type, *rest: Any) -> Any:
    """Stand in for `copyreg._reconstructor`, which protocols 0 and 1 name."""
    del rest
    if cls is not _Csr:
        raise pickle.UnpicklingError("the pickle makes an object in an unusual way")
    return _Csr()


def _mapping(*arguments: Any) -> dict:
    del arguments
    return {}


_ALLOWED = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("copy_reg", "_reconstructor"): _new_object,
    ("copyreg", "_reconstructor"): _new_object,
    ("__builtin__", "object"): _Stored,
    ("builtins", "object"): _Stored,
    ("collections", "defaultdict"): _mapping,
    ("__builtin__", "list"): _List,
    ("builtins", "list"): _List,
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
    """Return the array, CSR matrix, list or dict that a pickle holds.

    Anything else raises `UnpicklingError` before it is imported or called, so that a
    malicious pickle does no harm.
    """
    _check_opcodes(data)
    value = _Unpickler(io.BytesIO(data), encoding="latin1").load()
    if isinstance(value, _Csr):
        return _make_csr(value)
    return _make_array(value) if isinstance(value, _Array) else value


def _check_opcodes(data: bytes) -> None:
    """Refuse what graphs never use, and numbers that make the unpickler allocate."""
    tuples = puts = 0
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name not in _OPCODES:
            raise pickle.UnpicklingError(
                f"the pickle uses {opcode.name}, which a graph does not need; it was "
                "refused, and none of it was run"
            )
        tuples += "TUPLE" in opcode.name
        # The place of a memo entry is a number of the pickle's choice.
        if opcode.name.endswith("PUT"):
            puts += 1
            if int(argument or 0) > puts:
                raise pickle.UnpicklingError(f"the pickle numbers an object {argument}")
    if tuples > _MAX_TUPLES:
        raise pickle.UnpicklingError(f"the pickle has {tuples} tuples")


def _make_array(stored: Any) -> np.ndarray:
    """Return an array of numbers, if the stored bytes are as many as it claims."""
    try:
        _, shape, dtype, fortran_order, raw = stored.state
        kind, order = dtype.arguments[0], dtype.state[1]
        raw = raw.encode("latin1") if isinstance(raw, str) else bytes(raw)
        if not re.fullmatch(r"[biufc]\d{1,2}", kind) or order not in "<>|=":
            raise ValueError(f"dtype {kind!r}")
        found = np.dtype(f"{order}{kind}")
        if len(raw) != math.prod(shape) * found.itemsize:
            raise ValueError(f"{len(raw)} bytes for shape {shape}")
        array = np.frombuffer(raw, found)
        array = array.reshape(shape, order="F" if fortran_order else "C")
    except MALFORMED as error:
        raise pickle.UnpicklingError(f"an array is damaged: {error}") from None
    return array.astype(found.newbyteorder("="))


def _make_csr(stored: _Csr) -> sp.csr_array:
    state = stored.state
    if not isinstance(state, dict):
        raise pickle.UnpicklingError("a matrix is damaged: it has no arrays")
    parts = [_make_array(state.get(name)) for name in ("data", "indices", "indptr")]
    matrix = sp.csr_array(tuple(parts), tuple(state["_shape"]))
    return check_sparse(matrix, "matrix")

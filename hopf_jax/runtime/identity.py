"""What numbers depend on besides settings and data: code, and threads of the CPU."""

import functools
import hashlib
import os
import pathlib
import types
from typing import Any

import jax
import numpy as np

# Modules of the library that compute no number of a result.
_NO_NUMBERS = ("__init__.py", "__main__.py", "plots.py", "callbacks.py", "signals.py")
_NO_NUMBERS_IN = ("serving", "cli")  # Rooms.


def num_threads() -> int:
    """Return the number of threads that XLA divides a product among on a CPU.

    Sums are rounded in another order with another number. It is that of the cores this
    process may use when JAX starts, unless an environment variable says otherwise, and
    no less than the number of CPU devices that JAX makes, used or not.
    """
    return max(_threads_by_cores(), jax.local_device_count("cpu"))


def _threads_by_cores() -> int:
    for name in ("PJRT_NPROC", "NPROC"):  # In the order in which XLA looks.
        given = os.environ.get(name, "").strip()
        if given.isdecimal():
            return int(given)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def code_digest() -> str:
    """Return a digest of the library's code, without comments and docstrings."""
    package = pathlib.Path(__file__).resolve().parents[1]
    state = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        if name.name in _NO_NUMBERS or name.parts[0] in _NO_NUMBERS_IN:
            continue
        code = compile(path.read_bytes(), "", "exec", optimize=2, dont_inherit=True)
        state.update(f"{name.as_posix()}\n".encode())
        _add(state, code, "", set())
    return state.hexdigest()[:16]


def function_digest(function: Any) -> str:
    """Return a digest of what a function computes.

    It covers the function's code, defaults and closure, and the functions and constants
    of its own module that it names. What it takes from other modules counts by name.
    """
    state = hashlib.sha256()
    _add(state, function, getattr(function, "__module__", ""), set())
    return state.hexdigest()[:16]


def _add(state: Any, value: Any, module: str | None, seen: set[int]) -> None:
    """Add a value to a digest; recursive functions are added once."""
    state.update(f"{type(value).__qualname__} ".encode())
    if isinstance(value, types.CodeType):
        names = value.co_names, value.co_varnames, value.co_freevars
        counts = value.co_argcount, value.co_kwonlyargcount, value.co_flags
        state.update(f"{value.co_name} {names} {counts} ".encode())
        state.update(value.co_code)
        _add(state, value.co_consts, module, seen)
    elif isinstance(value, tuple | list):
        for each in value:
            _add(state, each, module, seen)
    elif isinstance(value, set | frozenset):  # Their order changes by process.
        _add(state, sorted(map(repr, value)), module, seen)
    elif isinstance(value, dict):
        _add(state, list(value.items()), module, seen)
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        state.update(f"{value!r} ".encode())
    elif isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        array = np.asarray(value)
        state.update(f"{array.dtype.str} {array.shape} ".encode() + array.tobytes())
    elif isinstance(value, types.ModuleType):
        state.update(value.__name__.encode())
    elif id(value) not in seen:
        seen.add(id(value))
        _add_object(state, value, module, seen)


def _add_object(state: Any, value: Any, module: str | None, seen: set[int]) -> None:
    if isinstance(value, functools.partial):
        _add(state, [value.func, value.args, value.keywords], module, seen)
    elif hasattr(value, "__wrapped__"):  # By jax.jit, or another decorator.
        _add(state, value.__wrapped__, module, seen)
    elif isinstance(value, types.MethodType):
        _add(state, [value.__func__, value.__self__], module, seen)
    elif isinstance(value, types.FunctionType) and value.__module__ == module:
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        parts = [value.__code__, value.__defaults__, value.__kwdefaults__, cells]
        known = value.__globals__
        parts += [(n, known[n]) for n in sorted(_names(value.__code__)) if n in known]
        _add(state, parts, module, seen)
    else:  # Of another module, or an object.
        name = getattr(value, "__qualname__", "")
        state.update(f"{type(value).__module__} {name} ".encode())
        if callable(value) and not name:
            _add(state, type(value).__call__, type(value).__module__, seen)
        _add(
            state, getattr(value, "__dict__", None) if not name else None, module, seen
        )


def _names(code: types.CodeType) -> set[str]:
    """Return the names that a function and the functions within it look up."""
    found = set(code.co_names)
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            found |= _names(each)
    return found

"""Compiled programs of the library, of which a bounded number is kept.

`jax.jit` keeps every program for as long as its function lives. In a process that fits
graph after graph, programs of all sizes would pile up until the system allows no more
memory maps.
"""

import collections
import contextlib
import functools
import math
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Literal

import jax

_KEPT = 16  # Programs that outlive the work they were compiled for: some fits' worth.

_SMALL = 100_000  # Numbers that a program reads, up to which it is small.
# A program for few numbers runs shorter than it takes to optimise: these halve the
# time to compile it.
_QUICKLY = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}

_programs: collections.OrderedDict[Hashable, "_Entry"] = collections.OrderedDict()
_lock = threading.Lock()
Stage = Literal["training", "prediction"]
Watcher = Callable[[Stage, bool], None]

_watchers: list[Watcher] = []
_depth = 0  # Number of `releasing_programs` that are open, in all threads.


class _Entry:
    """A jitted function that is called with arguments of one shape only."""

    def __init__(self, function: Callable, num_static: int, quickly: bool) -> None:
        # A function of its own: JAX frees traces and programs with their function.
        @functools.wraps(function)
        def own(*arguments):
            return function(*arguments)

        self.quickly = quickly
        options = _quick_options() if quickly else None
        self.call = jax.jit(
            own, static_argnums=range(num_static), compiler_options=options
        )
        self.used = True
        self.new = True  # Not compiled yet.


def is_small(count: int) -> bool:
    """Return whether a program that reads so many numbers is compiled quickly."""
    return count <= _SMALL


@functools.cache
def _quick_options() -> dict[str, Any] | None:
    """Return options to compile quickly; None where the compiler does not know them."""
    if jax.default_backend() != "cpu":
        return None
    try:
        jax.jit(lambda: 0, compiler_options=_QUICKLY).lower().compile()
    except jax.errors.JaxRuntimeError:
        return None
    return _QUICKLY


def compiled(
    num_static: int = 0,
    stage: Stage = "training",
    quickly: Callable[..., bool] | None = None,
) -> Callable[[Callable], "Compiled"]:
    """Return a decorator as `jax.jit`, whose programs `releasing_programs` may free.

    Args:
      num_static: Number of arguments that are static; the function takes positional
        arguments, these first.
      stage: What the function is for, as `watching_compilation` tells it.
      quickly: Whether to compile it with few optimisations, given the static arguments;
        None if its arrays are small.
    """
    return lambda function: Compiled(function, num_static, stage, quickly)


class Compiled:
    """A function with one program per shape of its arguments; see `compiled`."""

    def __init__(
        self,
        function: Callable,
        num_static: int,
        stage: Stage,
        quickly: Callable[..., bool] | None,
    ) -> None:
        self.function, self.num_static, self._stage = function, num_static, stage
        self._quickly = quickly
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        """Call the program of these shapes; compile it if there is none."""
        entry = self._find(arguments)
        if not entry.new:
            return entry.call(*arguments)
        entry.new = False
        watchers = tuple(_watchers)
        for tell in watchers:
            tell(self._stage, True)
        try:
            return entry.call(*arguments)  # Returns when it is compiled and started.
        finally:
            for tell in watchers:
                tell(self._stage, False)

    def lower(self, *arguments: Any) -> Any:
        """Lower the program of these shapes, as `jax.jit` does."""
        return self._find(arguments).call.lower(*arguments)

    def _find(self, arguments: tuple[Any, ...]) -> _Entry:
        static, arrays = arguments[: self.num_static], arguments[self.num_static :]
        shapes = tuple(getattr(leaf, "shape", ()) for leaf in jax.tree.leaves(arrays))
        key = self.function, static, shapes
        with _lock:
            entry = _programs.get(key)
            if entry is None:
                if self._quickly is None:
                    quickly = is_small(sum(map(math.prod, shapes)))
                else:
                    quickly = self._quickly(*static)
                entry = _Entry(self.function, self.num_static, quickly)
                _programs[key] = entry
            _programs.move_to_end(key)
            entry.used = True
        return entry


@contextlib.contextmanager
def watching_compilation(tell: Watcher) -> Iterator[None]:
    """Tell of each program that is compiled, as long as the block lasts.

    Args:
      tell: Called with the stage and True before a program is compiled, and with the
        stage and False after it; in the thread that compiles.
    """
    _watchers.append(tell)
    try:
        yield
    finally:
        _watchers.remove(tell)


@contextlib.contextmanager
def releasing_programs() -> Iterator[None]:
    """Free the programs that were used longest ago when the block, or function, ends.

    Those that it used itself are kept, however many they are, so that the same work
    again compiles nothing. A block within another frees nothing.
    """
    global _depth
    with _lock:
        _depth += 1
    try:
        yield
    finally:
        _release()


def _release() -> None:
    global _depth
    with _lock:
        _depth -= 1
        if _depth:
            return
        while len(_programs) > _KEPT and not next(iter(_programs.values())).used:
            _programs.popitem(last=False)
        for entry in _programs.values():
            entry.used = False

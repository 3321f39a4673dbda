"""Estimates of memory, made before it is asked for."""

import contextlib
import ctypes
import os

_M_MMAP_THRESHOLD = -3  # Of malloc.h.
_LARGE = 1 << 18


def physical_memory() -> int | None:
    """Return the bytes of memory of this machine; None where they are not known."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None


def check_memory(nbytes: int, what: str, advice: str) -> None:
    """Raise `ValueError` for an allocation that cannot succeed.

    A request beyond the memory of the machine ends in a `MemoryError` at best. Some
    native code aborts the process instead, and the system may kill it.

    Args:
      nbytes: The size, as a Python integer, which cannot overflow.
      what: What needs it, to begin a sentence with.
      advice: What to do, as a sentence.
    """
    total = physical_memory()
    if total is not None and nbytes > total:
        raise ValueError(
            f"{what} would take {nbytes / 2**30:,.1f} GiB, but this machine has "
            f"{total / 2**30:,.1f} GiB of memory. {advice}"
        )


def give_back_memory() -> None:
    """Give the memory of freed arrays back to the system, now and later if large.

    By default glibc keeps what larger and larger arrays leave, for later ones that do
    not fit into it. Elsewhere this does nothing.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE)
        library.malloc_trim(0)

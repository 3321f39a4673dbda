"""Lock files, and files that are written while one is held."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from hopf_jax.datasets.registry import DatasetError
from hopf_jax.runtime import write_atomically

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]
    import msvcrt

# Converting the largest dataset takes minutes; after an hour something hangs.
LOCK_TIMEOUT_SECONDS = 3600.0


@contextlib.contextmanager
def locked(path: Path, timeout: float = LOCK_TIMEOUT_SECONDS) -> Iterator[None]:
    """Hold the lock file `path`; wait for the process that holds it.

    The system releases the lock when the process ends; the file stays.

    Raises:
      DatasetError: The lock is still held after `timeout` seconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A link that someone planted would lead to a file elsewhere.
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags, 0o666)
    try:
        start, told = time.monotonic(), False
        while not _try_lock(descriptor):
            waited = time.monotonic() - start
            if waited > timeout:
                raise DatasetError(
                    f"Another process has held {path} for {timeout:.0f} s. If none "
                    "is at work there, delete that file and try again."
                )
            if waited > 1 and not told:
                print(f"Waiting for another process at {path} ...", file=sys.stderr)
                told = True
            time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)  # Releases the lock too.


def write_locked(path: Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Write a file atomically, and make its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():  # The file that it leads to is not ours.
        path.unlink()
    write_atomically(path, content)


def _try_lock(descriptor: int) -> bool:
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError):
        return False
    return True

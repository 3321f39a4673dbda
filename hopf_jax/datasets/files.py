"""Files that other processes may be using: whole or absent, one writer at a time."""

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]
    import msvcrt

# Converting the largest dataset takes minutes; an hour means something hangs.
LOCK_TIMEOUT_SECONDS = 3600.0


class DatasetError(RuntimeError):
    """A dataset's files cannot be had, or are not what they should be."""


def sha256(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Calls `write` on a file that takes the name `path` only once it is complete.

    The unfinished file has one fixed name, so call this under `locked`; one that a
    killed process left behind is then overwritten.
    """
    part = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(part, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


@contextlib.contextmanager
def locked(path: Path, timeout: float | None = None) -> Iterator[None]:
    """Holds the lock file `path`, waiting for the process that has it.

    The system frees the lock when its process ends, killed or not; the file stays.
    """
    timeout = LOCK_TIMEOUT_SECONDS if timeout is None else timeout
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
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
        os.close(descriptor)  # Frees the lock too.


def _try_lock(descriptor: int) -> bool:
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError):
        return False
    return True

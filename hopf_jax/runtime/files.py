"""Digests of files, and writing of files that are complete or absent."""

import contextlib
import hashlib
import os
import pathlib
import secrets
from collections.abc import Callable
from typing import BinaryIO


def sha256(path: str | os.PathLike) -> str:
    """Return the sha256 of a local file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(
    path: str | os.PathLike, content: bytes | Callable[[BinaryIO], object]
) -> None:
    """Write a file that takes its name only once it is complete and on disk.

    Args:
      path: A local path, or one that etils knows, such as gs://.
      content: The bytes, or a function that writes them to an open local file.
    """
    if "://" in os.fspath(path):
        # Lazy: etils is slow to import, and rarely needed. Objects are atomic as such.
        from etils import epath

        assert isinstance(content, bytes)
        epath.Path(path).write_bytes(content)
        return
    target = pathlib.Path(path)
    name = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    # Not mkstemp, which ignores the umask and leaves the file to its owner alone.
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise

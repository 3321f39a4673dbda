"""Digests of files."""

import hashlib
import os


def sha256(path: str | os.PathLike) -> str:
    """Return the sha256 of a local file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

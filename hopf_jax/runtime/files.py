"""Digests of files."""

import hashlib
import os

from hopf_jax.runtime.untrusted import open_regular


def sha256(path: str | os.PathLike) -> str:
    """Return the sha256 of a local file, in hexadecimal; only of a regular one."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

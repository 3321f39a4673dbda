"""Digests of files, and arrays that are written to them piece by piece."""

import hashlib
import os
from typing import Any

import numpy as np

from hopf_jax.runtime.untrusted import open_regular


def sha256(path: str | os.PathLike) -> str:
    """Return the sha256 of a local file, in hexadecimal; only of a regular one."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def create_npy(
    path: str | os.PathLike, dtype: Any, shape: tuple[int, ...]
) -> np.ndarray:
    """Create an .npy file of zeros, and return its array to write to."""
    if 0 in shape:  # Which cannot be mapped.
        np.save(path, np.zeros(shape, dtype))
        return np.zeros(shape, dtype)
    return np.lib.format.open_memmap(path, "w+", dtype, shape)

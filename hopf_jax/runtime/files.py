"""Reading of files."""

import hashlib
import os

import numpy as np


def sha256(path: str | os.PathLike) -> str:
    """Return the sha256 of a local file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_npz(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Return all arrays of an .npz file."""
    # np.load leaves a damaged archive open if it is given a path.
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}

"""Cached contents of datasets: files are verified and converted once.

A converted copy lies beside the files of the dataset, where others may be able to
write, or travels with them. So each user's own cache notes the digests of the copies
that this user's processes have written; a copy that is not noted is made again.
"""

import functools
import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.datasets.contents import Contents
from hopf_jax.datasets.locks import locked, write_locked
from hopf_jax.datasets.registry import Dataset, Layout
from hopf_jax.graph import check_sparse
from hopf_jax.runtime import MALFORMED, load_npz, map_npy, read_json, sha256

# Part of the name of every cached file: raise it when the conversion changes.
VERSION = 1

_SPARSE = ("data", "indices", "indptr")
_log = logging.getLogger(__name__)


def cached_name(dataset: Dataset, layout: Layout, folder: Path) -> str:
    """Return the name of cached contents; it changes with files and conversion."""
    digest = hashlib.sha256(f"{VERSION} {layout}".encode())
    for name in layout.files:
        known = dataset.checksums.get(name)
        if known is None:  # Without a checksum, a new file is recognised by its age.
            status = (folder / name).stat()
            known = f"{status.st_size} {status.st_mtime_ns}"
        digest.update(f"{name} {known}\n".encode())
    # Without any checksum, users may add and remove splits.
    if dataset.checksums.keys().isdisjoint(layout.files):
        for path in sorted(folder.glob("labels_random/*/*/*_ids.npy")):
            digest.update(f"{path} {path.stat().st_mtime_ns}\n".encode())
    return f"{dataset.name}-{digest.hexdigest()[:16]}"


def convert_once(
    read: Callable[[], Contents], name: str, folders: Sequence[Path], notes: Path
) -> Contents:
    """Return the contents cached as `name` in one of `folders`, or read them.

    What was read is cached in the first folder that can be written. If none can, or the
    disk is full, the dataset is read every time. `notes` is the user's own.
    """
    for folder in folders:
        if (found := load(folder, name, notes)) is not None:
            return found
    contents = None
    for folder in folders:
        try:
            with locked(folder / f"{name}.lock"):
                # Another process may have written it while this one waited.
                if (found := load(folder, name, notes)) is not None:
                    return found
                contents = contents or read()
                save(contents, folder, name, notes)
            return load(folder, name, notes) or contents
        except OSError as error:
            _log.info("Cannot cache %s in %s: %s", name, folder, error)
    return contents or read()


def save(contents: Contents, folder: Path, name: str, notes: Path) -> None:
    """Write contents to `<name>.npz`, and dense features to an .npy file before it.

    Their digests are noted in `notes`, for `load`.
    """
    arrays: dict[str, Any] = {
        "senders": contents.senders,
        "receivers": contents.receivers,
        "labels": np.packbits(contents.labels, axis=1),
        "label_names": np.array(contents.label_names, np.str_),
    }
    arrays |= {f"split/{key}": codes for key, codes in contents.splits.items()}
    if contents.weights is not None:
        arrays["weights"] = contents.weights
    features = contents.features
    if sp.issparse(features):
        arrays |= {f"features/{part}": getattr(features, part) for part in _SPARSE}
        arrays["features/shape"] = np.array(features.shape)
    else:
        path = folder / f"{name}-features.npy"
        write_locked(path, lambda file: np.save(file, features))
    write_locked(folder / f"{name}.npz", lambda file: np.savez(file, **arrays))
    with locked(notes / f"{name}.json.lock"):
        noted = _read_notes(notes, name)
        for path in _files(folder, name):
            if path.exists():
                noted[path.name] = sha256(path)
        write_locked(notes / f"{name}.json", json.dumps(noted).encode())


def _files(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}.npz", folder / f"{name}-features.npy"


def _read_notes(notes: Path, name: str) -> dict[str, str]:
    """Return the digest of each converted file that this user has written."""
    try:
        noted = read_json(notes / f"{name}.json")
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def _check_digest(path: Path, noted: dict[str, str]) -> None:
    """Raise `ValueError` unless a file is the one that was noted."""
    status = path.stat()
    found = _digest(path, status.st_ino, status.st_size, status.st_mtime_ns)
    if path.name not in noted:
        raise ValueError("this user has not made it")
    if found != noted[path.name]:
        raise ValueError(f"its sha256 is {found}, not {noted[path.name]}")


@functools.lru_cache(maxsize=256)
def _digest(path: Path, *version: int) -> str:
    """Return the sha256 of a file, computed once per process and version of it."""
    del version
    return sha256(path)


def load(folder: Path, name: str, notes: Path) -> Contents | None:
    """Return cached contents; None if there are none, or they are not those noted.

    Dense features are a memory map.
    """
    path, mapped = _files(folder, name)
    try:
        if not path.is_file():
            return None
        noted = _read_notes(notes, name)
        _check_digest(path, noted)
        arrays = load_npz(path)
        if "features/data" in arrays:
            parts = tuple(arrays[f"features/{part}"] for part in _SPARSE)
            features = sp.csr_array(parts, tuple(arrays["features/shape"]))
            check_sparse(features, "features")
        else:
            _check_digest(mapped, noted)
            features = map_npy(mapped)
        names = tuple(arrays["label_names"].tolist())
        return Contents(
            senders=arrays["senders"],
            receivers=arrays["receivers"],
            features=features,
            labels=np.unpackbits(arrays["labels"], axis=1, count=len(names)),
            label_names=names,
            splits={k[6:]: v for k, v in arrays.items() if k.startswith("split/")},
            weights=arrays.get("weights"),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (*MALFORMED, OSError) as error:
        _log.warning("Making %s again: %s", path, error)
        return None

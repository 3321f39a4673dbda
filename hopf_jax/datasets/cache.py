"""Cached contents of datasets: files are verified and converted once."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.datasets.contents import Contents
from hopf_jax.datasets.locks import locked, write_locked
from hopf_jax.datasets.registry import Dataset, Layout
from hopf_jax.runtime import load_npz

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
    read: Callable[[], Contents], name: str, folders: Sequence[Path]
) -> Contents:
    """Return the contents cached as `name` in one of `folders`, or read them.

    What was read is cached in the first folder that can be written. If none can, or the
    disk is full, the dataset is read every time.
    """
    for folder in folders:
        if (found := load(folder, name)) is not None:
            return found
    contents = None
    for folder in folders:
        try:
            with locked(folder / f"{name}.lock"):
                # Another process may have written it while this one waited.
                if (found := load(folder, name)) is not None:
                    return found
                contents = contents or read()
                save(contents, folder, name)
            return load(folder, name) or contents
        except OSError as error:
            _log.info("Cannot cache %s in %s: %s", name, folder, error)
    return contents or read()


def save(contents: Contents, folder: Path, name: str) -> None:
    """Write contents to `<name>.npz`, and dense features to an .npy file before it."""
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


def load(folder: Path, name: str) -> Contents | None:
    """Return cached contents; None if there are none, or they are damaged.

    Dense features are a memory map.
    """
    path = folder / f"{name}.npz"
    try:
        arrays = load_npz(path)
        if "features/data" in arrays:
            parts = tuple(arrays[f"features/{part}"] for part in _SPARSE)
            features = sp.csr_array(parts, tuple(arrays["features/shape"]))
        else:
            features = np.load(folder / f"{name}-features.npy", mmap_mode="r")
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
    except Exception as error:
        # Damage can raise anything (zip, header, size): the files are read again.
        _log.warning("Ignoring the damaged %s: %s", path, error)
        return None

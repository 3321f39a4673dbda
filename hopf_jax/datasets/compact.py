"""What a dataset's files hold, and the compact form they are converted to once."""

import dataclasses
import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.datasets import files
from hopf_jax.datasets.registry import Dataset, Layout

# Part of every compact file's name: raise it when the conversion changes.
VERSION = 1

# Few columns are cheaper dense however many zeros they hold.
_SPARSE_BELOW_DENSITY = 0.25
_SPARSE_FROM_COLUMNS = 256

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Contents:
    """A dataset as its files hold it: nothing merged, dropped or normalised.

    `splits` maps "<percent>/<fold>" or "inductive" to a code a node: 0 is no set,
    1 training, 2 validation, 3 test.
    """

    senders: np.ndarray  # [E] int32
    receivers: np.ndarray  # [E] int32
    features: Any  # [N, F] float32: an array, a memory map or a csr_array
    labels: np.ndarray  # [N, C] uint8
    label_names: tuple[str, ...]
    splits: dict[str, np.ndarray]  # [N] uint8
    weights: np.ndarray | None = None  # [E] float32; None where all are 1


def as_features(matrix: Any) -> np.ndarray | sp.csr_array:
    """Features as float32: CSR for a bag of words, dense otherwise."""
    rows, columns = matrix.shape
    filled = matrix.nnz if sp.issparse(matrix) else np.count_nonzero(matrix)
    few = filled < _SPARSE_BELOW_DENSITY * rows * columns
    if few and columns >= _SPARSE_FROM_COLUMNS:
        return sp.csr_array(matrix, dtype=np.float32)
    if sp.issparse(matrix):
        matrix = matrix.toarray()
    return np.ascontiguousarray(matrix, np.float32)


def one_hot(ids: np.ndarray, num_labels: int) -> np.ndarray:
    """Class ids [N] as rows of a uint8 matrix [N, C]."""
    matrix = np.zeros((len(ids), num_labels), np.uint8)
    matrix[np.arange(len(ids)), ids] = 1
    return matrix


def load_npz(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz."""
    # np.load given a path leaves a damaged archive open.
    with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}


def stem(dataset: Dataset, layout: Layout, folder: Path) -> str:
    """The name of a compact file: it changes with the originals and the conversion."""
    digest = hashlib.sha256(f"{VERSION} {layout}".encode())
    for name in layout.files:
        known = dataset.checksums.get(name)
        if known is None:  # No checksum was published: tell a new file by its age.
            status = (folder / name).stat()
            known = f"{status.st_size} {status.st_mtime_ns}"
        digest.update(f"{name} {known}\n".encode())
    if not dataset.checksums:  # Splits of the user's own may come and go.
        for path in sorted(folder.glob("labels_random/*/*/*_ids.npy")):
            digest.update(f"{path} {path.stat().st_mtime_ns}\n".encode())
    return f"{dataset.name}-{digest.hexdigest()[:16]}"


def convert_once(
    read: Callable[[], Contents], name: str, folders: Sequence[Path]
) -> Contents:
    """The compact form `name` of one of `folders`; made by `read` where there is none.

    It is put in the first of `folders` that can be written. Where none can, or the
    disk is full, the dataset is read afresh each time.
    """
    for folder in folders:
        found = load(folder, name)
        if found is not None:
            return found
    contents = None
    for folder in folders:
        try:
            with files.locked(folder / f"{name}.lock"):
                # Another process may have made it while this one waited.
                found = load(folder, name)
                if found is not None:
                    return found
                contents = contents or read()
                save(contents, folder, name)
            return load(folder, name) or contents
        except OSError as error:
            _log.info("No compact form of %s in %s: %s", name, folder, error)
    return contents or read()


def save(contents: Contents, folder: Path, name: str) -> None:
    """Writes the compact form: `<name>.npz`, and dense features as an .npy beside it.

    The .npz comes last, so that where it is the rest is too.
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
        arrays |= {
            "features/data": features.data,
            "features/indices": features.indices,
            "features/indptr": features.indptr,
            "features/shape": np.array(features.shape),
        }
    else:
        files.write_atomically(
            folder / f"{name}-features.npy", lambda stream: np.save(stream, features)
        )
    files.write_atomically(
        folder / f"{name}.npz", lambda stream: np.savez(stream, **arrays)
    )


def has(folder: Path, name: str) -> bool:
    """Whether there is a compact form, damaged or not."""
    return (folder / f"{name}.npz").is_file()


def load(folder: Path, name: str) -> Contents | None:
    """Reads a compact form; None where there is none, or it is damaged.

    Dense features are memory-mapped.
    """
    path = folder / f"{name}.npz"
    try:
        arrays = load_npz(path)
        if "features/data" in arrays:
            parts = [arrays[f"features/{k}"] for k in ("data", "indices", "indptr")]
            features = sp.csr_array(tuple(parts), tuple(arrays["features/shape"]))
        else:
            features = np.load(folder / f"{name}-features.npy", mmap_mode="r")
        names = tuple(arrays["label_names"].tolist())
        labels = np.unpackbits(arrays["labels"], axis=1, count=len(names))
        splits = {
            key.removeprefix("split/"): array
            for key, array in arrays.items()
            if key.startswith("split/")
        }
        ends = arrays["senders"], arrays["receivers"]
        weights = arrays.get("weights")
        return Contents(*ends, features, labels, names, splits, weights)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:
        # A damaged file fails in its own way (zip, header, size): convert again.
        _log.warning("Ignoring the damaged %s: %s", path, error)
        return None

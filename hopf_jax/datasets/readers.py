"""Readers of the file formats of datasets; files are verified before they are read."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp

from hopf_jax.datasets import graphsage, planetoid
from hopf_jax.datasets.cache import load_npz
from hopf_jax.datasets.contents import Contents, as_features, as_labels
from hopf_jax.datasets.registry import DatasetError, Layout
from hopf_jax.graph import check_nodes
from hopf_jax.runtime import sha256

# The authors' names of the sets, in the order of their codes in `Contents.splits`.
_SETS = ("train", "val", "test")


def read(folder: Path, layout: Layout, checksums: Mapping[str, str]) -> Contents:
    """Verify the files in a folder and read them.

    Raises:
      DatasetError: A file is damaged, or is not what its name says.
    """
    for name, expected in checksums.items():
        found = sha256(folder / name)
        if found != expected:
            raise DatasetError(
                f"{folder / name} is not the registered file: its sha256 is {found}, "
                f"not {expected}. It is damaged or another version; delete it and load "
                "again to download it, or put the right one in its place."
            )
    try:
        return READERS[layout.format](folder, layout)
    except Exception as error:  # A damaged file can make its reader raise anything.
        raise DatasetError(
            f"Cannot read {folder} in the {layout.format} format "
            f"({', '.join(layout.files[:4])}): {error}."
        ) from error


def read_authors(folder: Path, layout: Layout) -> Contents:
    """Read the format of the HOPF authors.

    The files are adjmat.mat, features.npy, labels.npy, and optionally label_names.npy
    and labels_random/<percent>/<fold>/{train,val,test}_ids.npy, masks or node ids.
    """
    variables = scipy.io.loadmat(folder / "adjmat.mat")
    if "adjmat" not in variables:
        raise ValueError("adjmat.mat holds no variable 'adjmat'")
    arcs = sp.coo_array(variables["adjmat"])
    labels = as_labels(_load(folder / "labels.npy"))
    names = [str(c) for c in range(labels.shape[1])]
    if (folder / "label_names.npy").exists():
        names = np.char.decode(_load(folder / "label_names.npy"), "utf-8").tolist()
    return Contents(
        senders=arcs.col.astype(np.int32),
        receivers=arcs.row.astype(np.int32),
        features=as_features(_load(folder / "features.npy")),
        labels=labels,
        label_names=tuple(names),
        splits=_read_splits(folder, layout, len(labels)),
        weights=None if np.all(arcs.data == 1) else arcs.data.astype(np.float32),
    )


def read_npz(folder: Path, layout: Layout) -> Contents:
    """Read CSR arrays: adj_*, attr_* or features, labels, inductive_split."""
    (archive,) = (name for name in layout.files if name.endswith(".npz"))
    arrays = load_npz(folder / archive)
    if "attr_data" in arrays:
        parts = tuple(arrays[f"attr_{k}"] for k in ("data", "indices", "indptr"))
        features = sp.csr_array(parts, tuple(arrays["attr_shape"]))
    else:
        features = arrays["features"]
    (key,) = (k for k in arrays if k == "labels" or k.startswith("labels_"))
    labels = as_labels(arrays[key])
    names = arrays.get("class_names", np.arange(labels.shape[1]))
    lengths = np.diff(arrays["adj_indptr"])
    splits = _read_splits(folder, layout, len(labels))
    if "inductive_split" in arrays:
        codes = [arrays["inductive_split"] == name for name in _SETS]
        splits["inductive"] = (np.array([[1], [2], [3]]) * codes).sum(0, np.uint8)
    return Contents(
        senders=arrays["adj_indices"].astype(np.int32),
        receivers=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        features=as_features(features),
        labels=labels,
        label_names=tuple(str(name) for name in names),
        splits=splits,
    )


def read_linqs(folder: Path, layout: Layout) -> Contents:
    """Read LINQS text: lines "id, 0 or 1 per word, class" and "cited, citing"."""
    (content,) = (name for name in layout.files if name.endswith(".content"))
    (cites,) = (name for name in layout.files if name.endswith(".cites"))
    lines = (folder / content).read_bytes().splitlines()
    ids, rest = zip(*(line.split(b"\t", 1) for line in lines), strict=True)
    bits, classes = zip(*(line.rsplit(b"\t", 1) for line in rest), strict=True)
    # Each word is one digit, so every other byte is a tab.
    digits = [np.frombuffer(row, np.uint8)[::2] for row in bits]
    names, labels = np.unique(classes, return_inverse=True)
    place = {paper: row for row, paper in enumerate(ids)}
    papers = (folder / cites).read_bytes().split()
    ends = np.array([place[paper] for paper in papers], np.int32).reshape(-1, 2)
    return Contents(
        senders=np.ascontiguousarray(ends[:, 0]),
        receivers=np.ascontiguousarray(ends[:, 1]),
        features=as_features(np.array(digits) - ord("0")),
        labels=as_labels(labels),
        label_names=tuple(name.decode() for name in names.tolist()),
        splits={},
    )


READERS: dict[str, Callable[[Path, Layout], Contents]] = {
    "authors": read_authors,
    "npz": read_npz,
    "linqs": read_linqs,
    "planetoid": planetoid.read,
    "graphsage": graphsage.read,
}


def _load(path: Path) -> np.ndarray:
    return np.load(path, allow_pickle=False)


def _read_splits(folder: Path, layout: Layout, num_nodes: int) -> dict[str, np.ndarray]:
    """Return the splits that the layout lists, or else those in the folder."""
    names = [name for name in layout.files if name.startswith("labels_random/")]
    if not names:
        found = folder.glob("labels_random/*/*/*_ids.npy")
        names = [path.relative_to(folder).as_posix() for path in found]
    splits: dict[str, np.ndarray] = {}
    for name in names:
        _, percent, fold, file = name.split("/")
        code = _SETS.index(file.removesuffix("_ids.npy")) + 1
        mask = check_nodes(_load(folder / name), num_nodes, name)
        codes = splits.setdefault(f"{percent}/{fold}", np.zeros(num_nodes, np.uint8))
        if codes[mask].any():
            raise ValueError(f"{name} has nodes of another set")
        codes[mask] = code
    return splits

"""Readers of the formats of today's benchmarks, with their official splits.

Files are those that the authors publish; none of them needs torch. Splits are named
"official/<fold>", from 1.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.datasets.contents import Contents, as_features, as_labels
from hopf_jax.datasets.registry import Layout
from hopf_jax.graph import check_csr, check_nodes
from hopf_jax.runtime import load_npz, open_text, read_json, read_npy


def read_heterophilous(folder: Path, layout: Layout) -> Contents:
    """Read the npz of Platonov et al. 2023, with ten splits.

    Its arrays are node_features [N, F], node_labels [N], edges [E, 2], and train_masks,
    val_masks and test_masks [10, N].
    """
    (name,) = layout.files
    arrays = load_npz(folder / name)
    labels = as_labels(arrays["node_labels"])
    edges = _edges(arrays["edges"], "edges")
    masks = [np.atleast_2d(arrays[f"{s}_masks"]) for s in ("train", "val", "test")]
    counts = {len(each) for each in masks}
    if len(counts) > 1:
        raise ValueError(f"there are {sorted(counts)} masks of the sets")
    return _contents(
        edges,
        arrays["node_features"],
        labels,
        {
            f"official/{i}": _codes(each, len(labels))
            for i, each in enumerate(zip(*masks, strict=True), start=1)
        },
    )


def read_wikics(folder: Path, layout: Layout) -> Contents:
    """Read data.json of Mernyei and Cangea 2020, with twenty splits.

    It has features [N, F], labels [N], links (a list of neighbours per node),
    train_masks and val_masks [20, N] and one test_mask [N]. Nodes of its stopping_masks
    are in no set.
    """
    (name,) = layout.files
    data = read_json(folder / name)
    labels = as_labels(data["labels"])
    links = [np.asarray(each, np.int64).reshape(-1) for each in data["links"]]
    if len(links) != len(labels):
        raise ValueError(f"links has {len(links)} rows, but labels {len(labels)}")
    receivers = np.repeat(np.arange(len(links)), [len(each) for each in links])
    senders = np.concatenate([*links, np.zeros(0, np.int64)])
    pairs = zip(data["train_masks"], data["val_masks"], strict=True)
    splits = {
        f"official/{i}": _codes((*pair, data["test_mask"]), len(labels))
        for i, pair in enumerate(pairs, start=1)
    }
    edges = np.stack([senders, receivers], axis=1)
    return _contents(edges, np.asarray(data["features"], np.float32), labels, splits)


def read_graphsaint(folder: Path, layout: Layout) -> Contents:
    """Read the format of GraphSAINT (Zeng et al. 2020), with one split.

    The files are adj_full.npz (a CSR matrix as scipy saves it), feats.npy [N, F],
    class_map.json (the class of each node, or 0 and 1 for each label) and role.json
    (the nodes of "tr", "va" and "te").
    """
    stored = load_npz(folder / "adj_full.npz")
    features = read_npy(folder / "feats.npy")
    num_nodes = len(features)
    indptr, senders = check_csr(
        stored["indptr"], stored["indices"], num_nodes, num_nodes, "adj_full"
    )
    classes = read_json(folder / "class_map.json")
    try:
        labels = as_labels([classes[str(node)] for node in range(num_nodes)])
    except KeyError as error:
        raise ValueError(f"class_map.json lacks node {error.args[0]}") from None
    roles = read_json(folder / "role.json")
    sets = [np.asarray(roles[name], np.int64) for name in ("tr", "va", "te")]
    receivers = np.repeat(np.arange(num_nodes), np.diff(indptr))
    edges = np.stack([senders.astype(np.int64), receivers], axis=1)
    splits = {"official/1": _codes(sets, num_nodes)}
    return _contents(edges, features, labels, splits)


def read_ogb(folder: Path, layout: Layout) -> Contents:
    """Read a node dataset of OGB (Hu et al. 2020), with its split.

    The files are those of the published archive: raw/edge.csv.gz [E, 2],
    raw/node-feat.csv.gz [N, F], raw/node-label.csv.gz [N, 1], and train, valid and test
    .csv.gz, the nodes of each set, in a folder of split/.
    """
    files = dict(zip(("edge", "feat", "label"), layout.files, strict=False))
    edges = _edges(_table(folder / files["edge"], np.int64), files["edge"])
    features = _table(folder / files["feat"], np.float32)
    labels = as_labels(_table(folder / files["label"], np.int64)[:, 0])
    sets = [_table(folder / name, np.int64)[:, 0] for name in layout.files[3:]]
    splits = {"official/1": _codes(sets, len(labels))}
    return _contents(edges, features, labels, splits)


def _table(path: Path, dtype: Any) -> np.ndarray:
    """Return a table of numbers in CSV without a header, packed by gzip."""
    with open_text(path, packed=True) as text:
        try:
            return np.loadtxt(text, dtype, comments=None, delimiter=",", ndmin=2)
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None


def _edges(pairs: Any, name: str) -> np.ndarray:
    pairs = np.asarray(pairs)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ValueError(f"{name} is {pairs.dtype} of shape {pairs.shape}, not [E, 2]")
    return pairs


def _codes(sets: Iterable[Any], num_nodes: int) -> np.ndarray:
    """Return the codes of `Contents.splits` [N] of masks or ids of three sets."""
    codes = np.zeros(num_nodes, np.uint8)
    for code, nodes in enumerate(sets, start=1):
        nodes = np.asarray(nodes)
        if nodes.dtype.kind in "iu" and nodes.shape == (num_nodes,):
            # Masks of 0 and 1; as many distinct ids would be all nodes in one set.
            nodes = nodes.astype(bool) if nodes.max(initial=0) <= 1 else nodes
        mask = check_nodes(nodes, num_nodes, ("train", "validation", "test")[code - 1])
        if codes[mask].any():
            raise ValueError("a node is in two sets")
        codes[mask] = code
    return codes


def _contents(
    edges: np.ndarray, features: Any, labels: np.ndarray, splits: dict[str, np.ndarray]
) -> Contents:
    num_nodes = len(labels)
    if edges.size and not (edges.min() >= 0 and edges.max() < num_nodes):
        raise ValueError(f"edges name nodes that are not among {num_nodes}")
    features = features if sp.issparse(features) else np.asarray(features)
    return Contents(
        senders=edges[:, 0].astype(np.int32),
        receivers=edges[:, 1].astype(np.int32),
        features=as_features(features),
        labels=labels,
        label_names=tuple(str(i) for i in range(labels.shape[1])),
        splits=splits,
    )

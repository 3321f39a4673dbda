"""Formats of today's benchmarks, on small files made here."""

import gzip
import json

import numpy as np
import pytest
import scipy.sparse as sp

from hopf_jax.datasets import DATASETS, DatasetError, load_dataset, readers, registry

N = 6
EDGES = np.array([[0, 1], [1, 2], [3, 4], [5, 0]])
FEATURES = np.arange(12, dtype=np.float32).reshape(N, 2)
LABELS = np.array([0, 1, 2, 0, 1, 2])
SETS = (np.array([0, 1, 2]), np.array([3]), np.array([4, 5]))
MASKS = [np.isin(np.arange(N), nodes) for nodes in SETS]
NAMES = ("ogbn-arxiv", "roman-empire", "wikics", "flickr", "amazon-photo")


def pack(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(",".join(map(str, np.atleast_1d(row))) for row in rows) + "\n"
    path.write_bytes(gzip.compress(text.encode()))


def write(name, folder, edges=EDGES, labels=LABELS, sets=SETS):
    """Write the six nodes in the format of a dataset."""
    layout = DATASETS[name].layouts[0]
    masks = [np.isin(np.arange(N), nodes) for nodes in sets]
    if layout.format == "ogb":
        for file, rows in zip(
            layout.files, (edges, FEATURES, labels, *sets), strict=True
        ):
            pack(folder / file, rows)
    elif layout.format == "heterophilous":
        both = {
            f"{part}_masks": np.stack([mask, mask[::-1]])
            for part, mask in zip(("train", "val", "test"), masks, strict=True)
        }
        np.savez(
            folder / layout.files[0],
            node_features=FEATURES,
            node_labels=labels,
            edges=edges,
            **both,
        )
    elif layout.format == "wikics":
        links = [edges[edges[:, 1] == node, 0].tolist() for node in range(N)]
        data = {
            "features": FEATURES.tolist(),
            "labels": labels.tolist(),
            "links": links,
            "train_masks": [masks[0].tolist()] * 2,
            "val_masks": [masks[1].tolist()] * 2,
            "stopping_masks": [masks[1].tolist()] * 2,
            "test_mask": masks[2].tolist(),
        }
        (folder / "data.json").write_text(json.dumps(data))
    elif layout.format == "graphsaint":
        matrix = sp.csr_matrix((np.ones(len(edges)), edges[:, ::-1].T), (N, N))
        sp.save_npz(folder / "adj_full.npz", matrix)
        np.save(folder / "feats.npy", FEATURES.astype(np.float64))
        classes = {str(node): int(label) for node, label in enumerate(labels)}
        (folder / "class_map.json").write_text(json.dumps(classes))
        roles = zip(("tr", "va", "te"), (nodes.tolist() for nodes in sets), strict=True)
        (folder / "role.json").write_text(json.dumps(dict(roles)))
    else:
        matrix = sp.csr_matrix((np.ones(len(edges)), edges[:, ::-1].T), (N, N))
        attr = sp.csr_matrix(FEATURES)
        arrays = {
            f"{start}_{part}": getattr(each, part)
            for start, each in (("adj", matrix), ("attr", attr))
            for part in ("data", "indices", "indptr", "shape")
        }
        np.savez(folder / layout.files[0], labels=labels, **arrays)
    return layout


@pytest.mark.parametrize("name", NAMES)
def test_each_format(name, tmp_path):
    layout = write(name, tmp_path)
    contents = readers.read(tmp_path, layout, {})
    pairs = np.stack([contents.senders, contents.receivers], axis=1)
    assert sorted(map(tuple, pairs.tolist())) == sorted(map(tuple, EDGES.tolist()))
    features = contents.features
    features = features.toarray() if sp.issparse(features) else features
    np.testing.assert_array_equal(features, FEATURES)
    np.testing.assert_array_equal(contents.labels, np.eye(3)[LABELS])
    if name != "amazon-photo":  # Which has no official split.
        codes = contents.splits["official/1"]
        np.testing.assert_array_equal(codes, [1, 1, 1, 2, 3, 3])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:.* are expected")
def test_loading_with_the_official_split(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HOPF_CACHE", str(tmp_path / "cache"))
    monkeypatch.delitem(registry.CHECKSUMS, name, raising=False)  # Not these files.
    folder = tmp_path / "data" / name
    folder.mkdir(parents=True)
    write(name, folder)
    graph = load_dataset(name, data_dir=tmp_path / "data", percent=10)
    assert graph.num_nodes == N and graph.num_edges == 2 * len(EDGES)
    if name == "amazon-photo":
        return
    for mask, found in zip(
        MASKS, (graph.train, graph.validation, graph.test), strict=True
    ):
        np.testing.assert_array_equal(mask, found)
    several = name in ("roman-empire", "wikics")
    if several:
        load_dataset(name, data_dir=tmp_path / "data", fold=2)
    with pytest.raises(ValueError, match=f"official splits 1 to {1 + several}"):
        load_dataset(name, data_dir=tmp_path / "data", fold=3)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "amazon-photo"])
def test_contradictions_are_refused(name, tmp_path):
    layout = write(name, tmp_path, sets=(SETS[0], SETS[0][:1], SETS[2]))
    with pytest.raises(DatasetError, match="a node is in two sets"):
        readers.read(tmp_path, layout, {})
    if name in ("ogbn-arxiv", "roman-empire"):
        layout = write(name, tmp_path, edges=EDGES + 4)
        with pytest.raises(DatasetError, match="not among 6"):
            readers.read(tmp_path, layout, {})


def test_absent_benchmarks_say_where_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPF_CACHE", str(tmp_path))
    for name in ("ogbn-arxiv", "ogbn-products", "flickr", "reddit2"):
        with pytest.raises(DatasetError, match=r"Published at .*http"):
            load_dataset(name, data_dir=tmp_path)


def test_damaged_tables_are_refused(tmp_path):
    layout = write("ogbn-arxiv", tmp_path)
    (tmp_path / "raw/edge.csv.gz").write_bytes(gzip.compress(b"0,1\n2,x\n"))
    with pytest.raises(DatasetError, match=r"edge\.csv\.gz: could not convert"):
        readers.read(tmp_path, layout, {})
    (tmp_path / "raw/edge.csv.gz").write_bytes(b"0,1\n")
    with pytest.raises(DatasetError, match="cannot be read"):
        readers.read(tmp_path, layout, {})

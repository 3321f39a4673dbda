"""GraphSAGE's format, on small graphs made here: PPI's tissues and Reddit's posts."""

import json

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from hopf_jax import datasets
from hopf_jax.datasets import DatasetError, readers
from hopf_jax.datasets.registry import DATASETS

PPI = DATASETS["human"].layouts[0]
REDDIT = DATASETS["reddit"].layouts[0]
NUM_TISSUES, TISSUE = 24, 5


def write(folder, prefix, nodes, links, features, rows, classes):
    folder.mkdir(parents=True, exist_ok=True)
    graph = {"directed": False, "graph": {"name": "g"}, "multigraph": False}
    graph |= {"nodes": nodes, "links": links}
    (folder / f"{prefix}-G.json").write_text(json.dumps(graph))
    (folder / f"{prefix}-id_map.json").write_text(json.dumps(rows))
    (folder / f"{prefix}-class_map.json").write_text(json.dumps(classes))
    np.save(folder / f"{prefix}-feats.npy", features)


def write_ppi(folder):
    """24 tissues, each a path of five proteins with a loop at its first."""
    rng = np.random.default_rng(0)
    n = NUM_TISSUES * TISSUE
    labels = rng.integers(0, 2, (n, 3))
    nodes = [
        {"id": i, "val": i // TISSUE in (20, 21), "test": i // TISSUE in (22, 23)}
        | {"feature": [0.5, 1.0], "label": labels[i].tolist()}
        for i in range(n)
    ]
    ends = [(i, i + 1) for i in range(n - 1) if i % TISSUE != TISSUE - 1]
    ends += [(i, i) for i in range(0, n, TISSUE)]
    links = [{"source": a, "target": b, "test_removed": False} for a, b in ends]
    features = rng.standard_normal((n, 4))
    rows = {str(i): i for i in range(n)}
    classes = {str(i): labels[i].tolist() for i in range(n)}
    write(folder, "ppi", nodes, links, features, rows, classes)
    return features, labels, ends


REDDIT_IDS = ["t3_c", "t3_a", "t3_d", "t3_b"]


def write_reddit(folder, ends, ids=REDDIT_IDS):
    """Four posts; rows of the features follow the alphabet, the list does not."""
    rows = {str(name): row for row, name in enumerate(sorted(ids))}
    flags = [(False, False), (True, False), (False, True), (False, False)]
    nodes = [
        {"id": name, "val": val, "test": test}
        for name, (val, test) in zip(ids, flags, strict=True)
    ]
    links = [{"source": a, "target": b} for a, b in ends]
    classes = {str(name): 10 + rows[str(name)] for name in ids}
    features = np.arange(8.0).reshape(4, 2) - 3
    write(folder, "reddit", nodes, links, features, rows, classes)
    return features


def write_authors(folder):
    """A path of nine nodes."""
    folder.mkdir()
    scipy.io.savemat(folder / "adjmat.mat", {"adjmat": sp.eye_array(9, k=1).tocsc()})
    np.save(folder / "features.npy", np.ones((9, 2)))
    np.save(folder / "labels.npy", np.ones((9, 2)))


def test_ppi_with_its_tissues(tmp_path):
    features, labels, ends = write_ppi(tmp_path)
    contents = readers.read(tmp_path, PPI, {})
    np.testing.assert_allclose(contents.features, features.astype(np.float32))
    np.testing.assert_array_equal(contents.labels, labels)
    assert list(zip(contents.senders, contents.receivers, strict=True)) == ends
    codes = contents.splits["inductive"].reshape(NUM_TISSUES, TISSUE)
    assert codes.tolist() == [[1] * 5] * 20 + [[2] * 5] * 2 + [[3] * 5] * 2
    counted = datasets.count_edges(contents)
    assert (counted["entries"], counted["arcs but loops"]) == (120, 192)


@pytest.mark.parametrize(
    "ends",
    [
        [(0, 1), (2, 0)],  # Positions, as networkx 1 wrote them.
        [("t3_c", "t3_a"), ("t3_d", "t3_c")],  # Ids, as networkx 2 does.
    ],
)
def test_reddit(tmp_path, ends):
    features = write_reddit(tmp_path, ends)
    contents = readers.read(tmp_path, REDDIT, {})
    np.testing.assert_array_equal(contents.features, features)
    assert contents.senders.tolist() == [2, 3]
    assert contents.receivers.tolist() == [0, 2]
    assert contents.labels.shape == (4, 14)
    assert contents.labels.argmax(1).tolist() == [10, 11, 12, 13]
    assert contents.splits["inductive"].tolist() == [2, 1, 1, 3]


def test_human_and_reddit_load_by_name(tmp_path):
    write_ppi(tmp_path / "human")
    with pytest.warns(UserWarning, match="human: .* are expected|the paper prints"):
        graph = datasets.load_dataset("human", split="inductive", data_dir=tmp_path)
    assert graph.multilabel
    sets = graph.train, graph.validation, graph.test
    assert [int(mask.sum()) for mask in sets] == [100, 10, 10]
    reach = graph.adjacency @ graph.test.astype(np.float32)
    assert not reach[graph.train].any(), "the tissues are disjoint"
    features = write_reddit(tmp_path / "reddit", [(0, 1), (2, 0)])
    with pytest.warns(UserWarning, match="reddit: 4 nodes, but 232965 are expected"):
        graph = datasets.load_dataset("reddit", data_dir=tmp_path, percent=50)
    np.testing.assert_array_equal(graph.features, features)
    assert not graph.multilabel


@pytest.mark.parametrize("name", ["human", "cora2", "movie"])
def test_the_authors_folder_serves_too(tmp_path, name):
    write_authors(tmp_path / name)
    with pytest.warns(UserWarning, match=name):
        graph = datasets.load_dataset(name, data_dir=tmp_path)
    assert graph.num_edges == 16


def test_the_authors_folder_has_no_inductive_split(tmp_path):
    write_authors(tmp_path / "human")
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="no inductive"):
        datasets.load_dataset("human", data_dir=tmp_path, split="inductive")


@pytest.mark.parametrize(
    ("ends", "ids", "reason"),
    [
        ([(0, 7)], REDDIT_IDS, "beyond its 4 nodes"),
        ([("t3_c", "t3_z")], REDDIT_IDS, "'t3_z', not a node"),
        ([(5, 6)], [5, 6, 7, 8], "two ways"),
    ],
)
def test_links_that_lead_nowhere(tmp_path, ends, ids, reason):
    write_reddit(tmp_path, ends, ids)
    with pytest.raises(DatasetError, match=reason):
        readers.read(tmp_path, REDDIT, {})


def test_maps_that_do_not_fit(tmp_path):
    write_reddit(tmp_path, [])
    np.save(tmp_path / "reddit-feats.npy", np.ones((5, 2)))
    with pytest.raises(DatasetError, match=r"4 nodes .* 5 rows"):
        readers.read(tmp_path, REDDIT, {})
    (tmp_path / "reddit-id_map.json").write_text('{"t3_a": 0}')
    with pytest.raises(DatasetError, match=r"'t3_c' of -G\.json is not in -id_map"):
        readers.read(tmp_path, REDDIT, {})

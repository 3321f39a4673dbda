"""Readers of the authors' folder, npz and LINQS text, on files made here."""

import os

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from hopf_jax.datasets import DatasetError, load_contents, readers
from hopf_jax.datasets.registry import Layout

AUTHORS = Layout("authors", ("adjmat.mat", "features.npy", "labels.npy"))


@pytest.fixture
def folder(tmp_path):
    """Three nodes in the authors' folder format; the arc 2 -> 0 weighs 2."""
    matrix = sp.csc_array(([1.0, 2.0], ([0, 0], [1, 2])), (3, 3))
    scipy.io.savemat(tmp_path / "adjmat.mat", {"adjmat": matrix})
    np.save(tmp_path / "features.npy", np.eye(3, 2))
    np.save(tmp_path / "labels.npy", np.array([[1.0, 1], [0, 1], [0, 0]]))
    split = tmp_path / "labels_random" / "10" / "4"
    split.mkdir(parents=True)
    for i, name in enumerate(("train", "val", "test")):
        np.save(split / f"{name}_ids.npy", np.arange(3) == i)
    return tmp_path


def test_authors(folder):
    contents = readers.read(folder, AUTHORS, {})
    assert contents.receivers.tolist() == [0, 0]
    assert contents.senders.tolist() == [1, 2]
    assert contents.weights.tolist() == [1, 2]
    assert contents.features.tolist() == [[1, 0], [0, 1], [0, 0]]
    assert contents.labels.tolist() == [[1, 1], [0, 1], [0, 0]]
    assert contents.splits.keys() == {"10/4"}
    assert contents.splits["10/4"].tolist() == [1, 2, 3]


def test_authors_split_as_ids(folder):
    np.save(folder / "labels_random/10/4/train_ids.npy", np.array([0]))
    assert readers.read(folder, AUTHORS, {}).splits["10/4"].tolist() == [1, 2, 3]


def save(name, value):
    return lambda folder: np.save(folder / name, value)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (save("labels_random/10/4/val_ids.npy", [0]), "has nodes of another set"),
        (save("features.npy", np.array([{}], object)), "has dtype .*O"),
        (save("labels.npy", [0, -1, 1]), "Class -1 of node 1"),
        (
            lambda folder: scipy.io.savemat(folder / "adjmat.mat", {"b": np.eye(3)}),
            "holds no variable 'adjmat'",
        ),
        (lambda folder: os.truncate(folder / "adjmat.mat", 200), ""),
    ],
    ids=["overlap", "pickle", "class -1", "variable", "length"],
)
def test_a_foreign_or_damaged_folder_says_where(folder, spoil, reason):
    spoil(folder)
    with pytest.raises(DatasetError, match=f"Cannot read .*authors format.*{reason}"):
        readers.read(folder, AUTHORS, {})


@pytest.mark.parametrize("damage", [lambda b: b[:-30], lambda b: b[:-1] + b"?"])
def test_a_wrong_checksum_is_refused_before_reading(toy, original, tmp_path, damage):
    original.write_bytes(damage(original.read_bytes()))
    with pytest.raises(DatasetError) as caught:
        load_contents(toy, tmp_path / "originals")
    assert str(original) in str(caught.value)
    assert "its checksum is" in str(caught.value)
    assert not list(original.parent.glob(".compact/*.npz"))


def test_npz_with_sparse_features(tmp_path):
    words = np.zeros((2, 300), np.float32)
    words[1, 299] = 2
    matrix = sp.csr_array(words)
    np.savez(
        tmp_path / "some.npz",
        adj_indptr=[0, 1, 1],
        adj_indices=[1],
        attr_data=matrix.data,
        attr_indices=matrix.indices,
        attr_indptr=matrix.indptr,
        attr_shape=matrix.shape,
        labels=np.array([1, 0], np.int8),
        class_names=np.array(["AI", "ML"]),
        inductive_split=np.array(["test", "val"]),
    )
    contents = readers.read(tmp_path, Layout("npz", ("some.npz",)), {})
    np.testing.assert_array_equal(contents.features.toarray(), words)
    assert contents.labels.tolist() == [[0, 1], [1, 0]]
    assert contents.label_names == ("AI", "ML")
    assert (contents.senders.tolist(), contents.receivers.tolist()) == ([1], [0])
    assert contents.splits["inductive"].tolist() == [3, 2]


def test_linqs(tmp_path):
    content = "31\t0\t1\tTheory\n7\t1\t1\tAgents\nx9\t0\t0\tTheory\n"
    (tmp_path / "a.content").write_text(content)
    (tmp_path / "a.cites").write_text("31\t7\nx9\t31\n")
    layout = Layout("linqs", ("a.cites", "a.content"))
    contents = readers.read(tmp_path, layout, {})
    assert contents.features.tolist() == [[0, 1], [1, 1], [0, 0]]
    assert contents.labels.tolist() == [[0, 1], [1, 0], [0, 1]]
    assert contents.label_names == ("Agents", "Theory")
    assert contents.senders.tolist() == [0, 2]
    assert contents.receivers.tolist() == [1, 0]

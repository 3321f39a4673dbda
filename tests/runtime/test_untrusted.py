"""Files that nobody vouches for: refused by what they claim, before it is allocated."""

import gzip
import io
import json
import os
import pathlib
import shutil
import struct
import tracemalloc
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from hopf_jax import Config, Graph, fit, load, open_graph, write_graph
from hopf_jax.cli import model_folder, tables
from hopf_jax.runtime import (
    check_memory,
    load_npz,
    map_npy,
    open_text,
    read_json,
    read_npy,
)
from tests import graphs

READERS = {
    "load_npz": load_npz,
    "read_npy": read_npy,
    "map_npy": map_npy,
    "read_json": read_json,
    "load": load,
    "features.csv": lambda path: tables.read_features(path, True),
    "features.npz": lambda path: tables.read_features(path, True),
    "features.parquet": lambda path: tables.read_features(path, True),
}


def read_model(path):
    """Read a model of version 0.1, of whose two files the second is `path`."""
    saved = pathlib.Path(__file__).parents[1] / "results" / "saved_by_0.1.npz"
    shutil.copy(saved, path.with_name("result.npz"))
    return model_folder._read_description(path.parent)


READERS["model.json"] = read_model


@pytest.mark.parametrize("name", READERS)
def test_only_regular_files_are_read(name, tmp_path):
    path = tmp_path / name
    os.mkfifo(path)
    with pytest.raises(ValueError, match="not a regular file"):
        READERS[name](path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match="not a regular file"):
        READERS[name](path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        READERS[name](path)


def npy(header, data=b""):
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def describe(descr="<f4", shape="(2,)", order="False"):
    return f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (describe(shape="(1000000000000,)"), "describes 4000000000000 bytes, but 8"),
        (describe(shape="(3,)"), "describes 12 bytes, but 8 follow"),
        (describe(shape="(-2,)"), "does not describe an array"),
        (describe("|O"), "only numbers, texts and dates"),
        (describe([("a", "<f4"), ("b", "<f4")]), "does not describe an array"),
        (describe("<U0", "(99999999,)"), "of no bytes"),
        ("{'shape': (2,), 'descr': __import__('os')}", "does not describe"),
        ("(" * 5000, "does not describe an array"),
        (describe(order="1"), "cannot be read as npy"),
        (describe("<f3"), "cannot be read as npy"),
    ],
)
@pytest.mark.parametrize("read", [read_npy, map_npy])
def test_a_header_that_lies(read, header, message, tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(npy(header, bytes(8)))
    with pytest.raises(ValueError, match=message):
        read(path)
    path.write_bytes(npy(describe(), bytes(8)))
    np.testing.assert_array_equal(read(path), np.zeros(2))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3).T,
        np.array(["a", "ça", ""]),
        np.array([True, False]),
        np.zeros((0, 3), np.int32),
        np.arange(3).astype(">i8"),
        np.array(5),
        np.array(["2020-01-01"], "M8[D]"),
        np.array([b"a"]),
    ],
    ids=str,
)
def test_honest_arrays_are_read_as_numpy_reads_them(array, tmp_path):
    np.save(tmp_path / "a.npy", array)
    np.savez_compressed(tmp_path / "a.npz", array)
    for found in (read_npy(tmp_path / "a.npy"), load_npz(tmp_path / "a.npz")["arr_0"]):
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype.newbyteorder("=")


@pytest.mark.parametrize(
    ("descr", "data", "message"),
    [("|b1", b"\x02\x00", "neither 0 nor 1"), ("<U1", b"\xff" * 8, "not Unicode")],
)
def test_bytes_that_no_value_has(descr, data, message, tmp_path):
    (tmp_path / "a.npy").write_bytes(npy(describe(descr), data))
    with pytest.raises(ValueError, match=message):
        read_npy(tmp_path / "a.npy")


def peak(call, *arguments):
    """Return the most memory that Python and numpy held at once, and the message."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r".{20}") as caught:
            call(*arguments)
        return tracemalloc.get_traced_memory()[1], str(caught.value)
    finally:
        tracemalloc.stop()


def test_members_that_overlap(tmp_path):
    memory = io.BytesIO()
    np.savez(memory, a=np.zeros(1 << 18, np.float32))
    data = memory.getvalue()
    at = data.index(b"PK\x01\x02")
    entry, end = data[at : data.index(b"PK\x05\x06")], data[data.index(b"PK\x05\x06") :]
    count = 500
    entries = b"".join(
        entry.replace(b"a.npy", f"{i:05}".encode()) for i in range(count)
    )
    sizes = struct.pack("<HHLL", count, count, len(entries), at)
    path = tmp_path / "a.npz"
    path.write_bytes(data[:at] + entries + end[:8] + sizes + end[20:])
    used, message = peak(load_npz, path)
    assert "overlaps" in message or "would take" in message
    assert used < 8 << 20


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_bomb_in_an_npz(method, tmp_path):
    path = tmp_path / "features.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        header = npy(describe(shape="(25000000, 2)"))
        archive.writestr("features.npy", header + bytes(200_000_000))
    assert path.stat().st_size < 1 << 20
    used, message = peak(tables.read_features, path, True)
    assert "HOPF_MAX_BYTES" in message or "unusual way" in message
    assert used < 8 << 20


def test_a_bomb_in_a_csv(tmp_path):
    path = tmp_path / "features.csv.gz"
    with gzip.open(path, "wb") as file:
        file.write(b"node,x\n" + b"a,1\n" * 5_000_000)
    used, message = peak(tables.read_features, path, True)
    assert "HOPF_MAX_BYTES" in message
    assert used < 8 << 20
    with gzip.open(path, "wb") as file:
        file.write(b"node,x\n" + b"a,1\n" * 10)
    with pytest.raises(ValueError, match="lists node 'a' twice"):
        tables.read_features(path, True)


def test_the_limit_can_be_raised_and_lowered(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, np.zeros(20_000_000, np.float32))
    with pytest.raises(ValueError, match="HOPF_MAX_BYTES"):
        load_npz(path)
    monkeypatch.setenv("HOPF_MAX_BYTES", "100000000")
    assert load_npz(path)["arr_0"].shape == (20_000_000,)
    monkeypatch.setenv("HOPF_MAX_BYTES", "lots")
    with pytest.raises(ValueError, match="must be a number of bytes"):
        load_npz(path)


def test_text_and_json_that_never_end_well(tmp_path):
    (tmp_path / "a.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="cannot be read as JSON"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe")
    with (
        pytest.raises(ValueError, match="not UTF-8"),
        open_text(tmp_path / "a.csv", packed=False) as file,
    ):
        file.read()


def test_an_allocation_beyond_the_machine_is_refused():
    check_memory(1 << 20, "This", "Nothing.")
    with pytest.raises(ValueError, match=r"This would take .*GiB, but .*Use less"):
        check_memory(10**30, "This", "Use less.")


@pytest.mark.parametrize("num_nodes", [10**12, 10**15])
def test_more_nodes_than_any_machine_holds(num_nodes):
    with pytest.raises(ValueError, match=r"nodes would take .*Is num_nodes right"):
        Graph.from_edges([0], [1], num_nodes=num_nodes)
    with pytest.raises(ValueError, match=r"nodes would take .*Is num_nodes right"):
        Graph.from_edges([0], [num_nodes])


def test_more_columns_than_any_machine_holds():
    with pytest.raises(ValueError, match=r"columns of features would take .*empty"):
        Graph.from_edges([0], [1], sp.csr_array((2, 2**45)), [0, 1])


def test_more_subgraphs_per_step_than_any_machine_holds(monkeypatch):
    with pytest.raises(ValueError, match="batches_per_step is 1000000000"):
        Config(batches_per_step=10**9)
    monkeypatch.setattr("hopf_jax.runtime.memory.physical_memory", lambda: 10**6)
    config = Config(num_hops=1, hidden_size=2, max_epochs=1, batches_per_step=2**16)
    with pytest.raises(ValueError, match=r"Steps of 65,536 subgraphs .*batches_per"):
        fit(graphs.tiny(), "gcn", config, progress=False)


def test_names_of_columns_that_a_matrix_only_claims(tmp_path):
    path = tmp_path / "features.npz"
    parts = {"data": [1.0], "indices": [0], "indptr": [0, 1], "shape": [1, 2**26]}
    np.savez(path, **parts)
    used, message = peak(tables.read_features, path, True)
    assert "names of its axes would take" in message and used < 8 << 20


def test_parquet_of_lists_and_of_long_bytes(tmp_path):
    path = tmp_path / "features.parquet"
    pq.write_table(pa.table({"node": ["a"], "x": [[1.0, 2.0]]}), path)
    with pytest.raises(ValueError, match="column 'x' holds neither numbers nor text"):
        tables.read_features(path, True)
    long = pa.array([b"a" * 200_000] * 1500)
    pq.write_table(pa.table({"node": long, "x": np.zeros(1500)}), path)
    before = pa.total_allocated_bytes()
    with pytest.raises(ValueError, match=r"lists node 'aaaa.{0,40}\.\.\..* twice"):
        tables.read_features(path, True)
    assert pa.total_allocated_bytes() <= before


# What is in the files, once they are read


def resave(path, **changes):
    arrays = load_npz(path)
    meta = json.loads(arrays["meta"].tobytes())
    if "meta" in changes:
        changes["meta"](meta)
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    if "probability" in changes:
        arrays["probabilities"][0, 0] = changes["probability"]
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"probability": -5}, "probabilities cannot be right"),
        ({"probability": 1.5}, "probabilities cannot be right"),
        (
            {"meta": lambda m: m["calibration"].update(temperature=float("nan"))},
            "calibration cannot be right",
        ),
        (
            {"meta": lambda m: m["calibration"].update(temperature=0)},
            "calibration cannot be right",
        ),
        (
            {"meta": lambda m: m.update(label_names=["a"] * len(m["label_names"]))},
            "label_names cannot be right",
        ),
    ],
)
def test_a_result_is_checked_as_it_was_made(changes, message, tmp_path):
    config = Config(num_hops=1, hidden_size=2, num_iterations=1, max_epochs=2)
    path = tmp_path / "r.npz"
    fit(graphs.tiny(), "gcn", config, progress=False).save(path)
    resave(path)
    load(path)
    resave(path, **changes)
    with pytest.raises(ValueError, match=message):
        load(path)


def change(folder, name, make):
    array = np.load(folder / f"{name}.npy")
    np.save(folder / f"{name}.npy", make(array))


def rewrite(folder, **fields):
    about = folder / "graph.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | fields))


def relabel(folder, names):
    rewrite(folder, label_names=names)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: change(f, "labels", lambda a: a.astype(np.int8) - 1), "labels has"),
        (lambda f: change(f, "labels", lambda a: a + np.nan), "labels has dtype"),
        (lambda f: change(f, "labels", lambda a: a * 0.5), "labels has dtype"),
        (lambda f: change(f, "labels", lambda a: a * 0 + 1), "several labels"),
        (lambda f: change(f, "labels", lambda a: a * 0), "has no label"),
        (lambda f: change(f, "weights", lambda a: a + 1j), "weights has dtype"),
        (
            lambda f: change(f, "weights", lambda a: a.astype(float) * 1e39),
            r"weights\[0\] is",
        ),
        (lambda f: change(f, "features", lambda a: a + 1j), "features has dtype"),
        (lambda f: relabel(f, ["a", "a", "b"]), "as is an earlier name"),
        (lambda f: relabel(f, ["a", "b"]), "classes are not 2 labels"),
        (lambda f: relabel(f, [1, 2, 3]), "label_names of graph.json"),
        (lambda f: rewrite(f, feature_names=[1, 2]), "feature_names of graph.json"),
        (lambda f: rewrite(f, feature_names=["x"]), "feature_names of graph.json"),
        (lambda f: rewrite(f, missing_values="x"), "missing_values of graph.json"),
        (lambda f: rewrite(f, positional=[]), "positional of graph.json"),
    ],
)
def test_a_mapped_graph_is_checked_as_the_constructor_checks(spoil, message, tmp_path):
    write_graph(graphs.tiny("weighted"), tmp_path / "graph")
    open_graph(tmp_path / "graph")
    spoil(tmp_path / "graph")
    with pytest.raises(ValueError, match=message):
        open_graph(tmp_path / "graph")


def test_mapped_columns_beyond_the_features(tmp_path):
    write_graph(graphs.tiny(sparse=True), tmp_path / "graph")
    for value in (10**8, -1):
        change(tmp_path / "graph", "features.indices", lambda a, v=value: a * 0 + v)
        with pytest.raises(ValueError, match=r"features.indices\[0\] is"):
            open_graph(tmp_path / "graph")


def test_many_label_names_are_checked_in_linear_time():
    names = [f"label {i}" for i in range(60_000)]
    with pytest.raises(ValueError, match=r"label_names\[60000\] is 'label 7'"):
        Graph.from_edges([], [], np.ones((1, 1)), [0], label_names=[*names, "label 7"])

"""Dividing a graph: what parts hold, resuming, damage, and what is refused."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
import scipy.sparse as sp

import hopf_jax
from hopf_jax.cli import main
from hopf_jax.datasets import make_planted, write_random
from hopf_jax.graph import learn_scaling
from hopf_jax.inference import WholeGraph, predict_logits, predict_own
from hopf_jax.parts import partitioning
from hopf_jax.parts.assignment import count_cut, stream
from hopf_jax.runtime import held_folder
from tests import fuzzing_files, graphs

PARTS, HOPS = 3, 2


def made(weighted=False, sparse=False, seed=4):
    graph = make_planted(120, 360, 6, 3, homophily=0.9, seed=seed)
    graph = hopf_jax.split_graph(graph, train=0.3, validation=0.2, test=0.5)
    if weighted:
        # Both directions of an edge have one weight.
        matrix = sp.triu(graph.adjacency).tocsr()
        rng = np.random.default_rng(0)
        matrix.data = rng.random(matrix.nnz).astype(np.float32) + 0.5
        matrix = sp.csr_array(matrix + matrix.T)
        matrix.sort_indices()
        graph = dataclasses.replace(graph, weights=matrix.data)
    if sparse:
        features = sp.csr_array(np.where(graph.features > 0.5, graph.features, 0))
        graph = dataclasses.replace(graph, features=features)
    return graph


@pytest.mark.parametrize(("weighted", "sparse"), [(False, False), (True, True)])
def test_parts_hold_their_nodes_and_halos(tmp_path, weighted, sparse):
    graph = made(weighted, sparse)
    parts = hopf_jax.partition(graph, tmp_path / "p", parts=PARTS, hops=HOPS)
    scaled = learn_scaling(graph.features).apply(graph.features)
    seen = []
    adjacency = graph.adjacency
    for number, info in enumerate(parts.parts):
        part = parts.open(number)
        own = part.ids[: part.num_own]
        seen += own.tolist()
        near = np.zeros(graph.num_nodes, bool)
        near[own] = True
        for hop in range(HOPS + 1):
            assert set(part.ids[: info.within[hop]]) == set(np.flatnonzero(near))
            near |= adjacency @ near > 0
        # All rows but those of the outermost nodes, in the order of the whole graph.
        for place in range(info.within[HOPS - 1]):
            a, b = part.graph.indptr[place : place + 2]
            c, d = graph.indptr[part.ids[place] : part.ids[place] + 2]
            found = part.ids[part.graph.indices[a:b]]
            np.testing.assert_array_equal(found, graph.indices[c:d])
            if weighted:
                given = part.graph.weights[a:b]
                np.testing.assert_array_equal(given, graph.weights[c:d])
        np.testing.assert_allclose(part.graph.degree, graph.degree[part.ids], rtol=1e-6)
        features = part.graph.features
        wanted = scaled[part.ids]
        if sparse:
            features, wanted = features.toarray(), wanted.toarray()
        np.testing.assert_allclose(features, wanted, rtol=1e-6)
        for name in ("labels", "train", "validation", "test"):
            given = getattr(graph, name)[part.ids]
            np.testing.assert_array_equal(getattr(part.graph, name), given)
    assert sorted(seen) == list(range(graph.num_nodes))
    assert parts.balance < 1.2 and parts.halo_factor > 1
    # What one part sends is what another receives.
    for p, q in np.argwhere(parts.sends > 0):
        source, target = parts.open(p), parts.open(q)
        ends = np.cumsum([0, *parts.sends[p]])
        out = source.ids[source.sends[ends[q] : ends[q + 1]]]
        ends = np.cumsum([0, *parts.sends[:, q]])
        into = target.ids[target.receive[ends[p] : ends[p + 1]]]
        np.testing.assert_array_equal(out, into)
    assert parts.sends.sum() == sum(p.num_nodes - p.num_own for p in parts.parts)


@pytest.mark.parametrize("hops", [1, 2])
def test_a_halo_too_small_would_show(tmp_path, hops):
    graph = graphs.tiny("plain")
    given = graph.with_split(graph.known, None, None)
    nodes = np.flatnonzero(graph.known)
    given = graph.with_split(train=nodes[:2], validation=nodes[2:4])
    folder = tmp_path / "p"
    parts = hopf_jax.partition(given, folder, parts=2, hops=hops, features="as-is")
    net, params = graphs.net_of("gcn")
    want = predict_logits(net, params, WholeGraph(graph, 10_000), None)[0]
    alike = []
    for number, info in enumerate(parts.parts):
        part = parts.open(number)
        whole = WholeGraph(part.graph, 10_000, halo=2, counts=info.within)
        if hops < 2:
            whole.counts = (*info.within, info.within[-1])
        logits = predict_own(net, params, whole, None)[0][: part.num_own]
        own = part.ids[: part.num_own]
        alike.append(np.allclose(logits, want[own], atol=1e-5))
    assert all(alike) == (hops == 2)


def test_the_streaming_partitioner_finds_neighbours(tmp_path):
    write_random(
        tmp_path / "g", 3000, 9000, 2, 2, num_train=50, num_validation=9, reach=20
    )
    graph = hopf_jax.open_graph(tmp_path / "g")
    found = stream(graph, 4)
    sizes = np.bincount(found, minlength=4)
    assert sizes.min() > 0 and sizes.max() <= 1.06 * 750
    shuffled = np.random.default_rng(0).permutation(found)
    assert count_cut(graph, found) < 0.2 * count_cut(graph, shuffled)


def test_a_partitioning_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    graph, folder = made(), tmp_path / "p"
    write = partitioning._Writer.write_part

    def stopped(writer, part):
        if part == 2:
            raise KeyboardInterrupt
        write(writer, part)

    monkeypatch.setattr(partitioning._Writer, "write_part", stopped)
    with pytest.raises(KeyboardInterrupt):
        hopf_jax.partition(graph, folder, parts=PARTS, hops=1)
    with pytest.raises(ValueError, match="not complete"):
        hopf_jax.open_parts(folder)
    monkeypatch.undo()
    kept = (folder / "part-0001" / "part.json").stat().st_mtime_ns
    said = []
    parts = hopf_jax.partition(graph, folder, parts=PARTS, hops=1, say=said.append)
    assert (folder / "part-0001" / "part.json").stat().st_mtime_ns == kept
    assert not any(line.startswith("Part 1") for line in said)
    straight = hopf_jax.partition(graph, tmp_path / "q", parts=PARTS, hops=1)
    assert parts.digest == straight.digest
    with pytest.raises(ValueError, match="another partitioning: parts is 2, but 3"):
        hopf_jax.partition(graph, folder, parts=2, hops=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts") / "p"
    hopf_jax.partition(made(), folder, parts=PARTS, hops=1)
    return folder


@pytest.mark.parametrize(
    "name", ["part-0001/graph/indices.npy", "part-0001/receive.npy", "sends-0001.npy"]
)
def test_damage_is_seen(folder, tmp_path, name):
    copy = tmp_path / "p"
    shutil.copytree(folder, copy)
    data = bytearray((copy / name).read_bytes())
    data[-1] ^= 1
    (copy / name).write_bytes(data)
    parts = hopf_jax.open_parts(copy)
    parts.open(0)
    with pytest.raises(ValueError, match="damaged"):
        parts.open(1)
    (copy / name).unlink()
    with pytest.raises(ValueError, match="missing"):
        parts.open(1)


def use(folder):
    parts = hopf_jax.open_parts(folder)
    for number in range(PARTS):
        parts.open(number)
    return parts.roots("train"), parts.roots("validation"), parts.scaling


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("part-0001/ids.npy", lambda a: a + 120),
        ("part-0001/ids.npy", lambda a: a.astype("U4")),
        ("part-0001/degrees.npy", lambda a: a * np.nan),
        ("part-0001/degrees.npy", lambda a: a[:, None]),
        ("part-0001/receive.npy", lambda a: a[0]),
        ("sends-0001.npy", lambda a: a.astype("M8[D]")),
        ("training-nodes/owners.npy", lambda a: a + PARTS),
        ("training-nodes/ids.npy", lambda a: a[::-1]),
        ("validation-nodes/labels.npy", lambda a: a + 2),
        ("validation-nodes/sizes.npy", lambda a: -a - 1),
    ],
)
def test_forged_arrays_are_refused(folder, tmp_path, name, change):
    copy = tmp_path / "parts"
    shutil.copytree(folder, copy)
    use(copy)
    np.save(copy / name, change(np.load(copy / name)))
    fuzzing_files.seal_parts(tmp_path)
    with pytest.raises(ValueError, match=r"parts"):
        use(copy)


def test_two_partitionings_of_one_folder_are_refused(tmp_path):
    with (
        held_folder(tmp_path),
        pytest.raises(ValueError, match=f"in use by process {os.getpid()}"),
    ):
        hopf_jax.partition(made(), tmp_path, parts=2, hops=1)
    assert len(hopf_jax.partition(made(), tmp_path, parts=2, hops=1)) == 2


@pytest.mark.parametrize(
    "change",
    [
        *({"hops": -1}, {"nodes": 7}, {"parts": []}, {"format": 9}, {"files": 3}),
        *({"files": {}}, {"label_names": ["a", "a", "b"]}, {"feature_names": "abc"}),
    ],
)
def test_a_manifest_that_cannot_be_right_is_refused(folder, tmp_path, change):
    copy = tmp_path / "p"
    copy.mkdir()
    data = json.loads((folder / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(data | change))
    with pytest.raises(ValueError, match=r"manifest\.json cannot be read"):
        hopf_jax.open_parts(copy)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"members": 2}, "members is 2, which a graph in parts cannot have"),
        ({"fanouts": (3,)}, "Set fanouts=None"),
        ({"folds": 3}, "Set folds=0"),
        ({"norm": "batch"}, "norm is 'batch'"),
        ({"num_hops": 2}, "partition the graph with hops=2"),
        ({"features": "as-is"}, "Set features='auto'"),
    ],
)
def test_what_parts_cannot_do_is_refused(folder, settings, message):
    config = dataclasses.replace(hopf_jax.Config(num_hops=1), **settings)
    with pytest.raises(ValueError, match=message):
        hopf_jax.fit(hopf_jax.open_parts(folder), "gcn", config)
    with pytest.raises(ValueError, match="random order"):
        hopf_jax.fit(hopf_jax.open_parts(folder), "gs-lstm", num_hops=1)


def test_processes_must_share_parts_evenly(folder):
    parts = hopf_jax.open_parts(folder)
    assert list(parts.held_by(1, 3)) == [1]
    with pytest.raises(ValueError, match="2 processes cannot share 3 parts evenly"):
        parts.held_by(0, 2)
    assert parts.exchanged_bytes(1) == 0
    assert parts.exchanged_bytes(3) == 4 * 3 * parts.sends.sum()


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"parts": 1}, "parts is 1"),
        ({"parts": 121}, "120 nodes cannot be divided into 121 parts"),
        ({"method": "magic"}, "method is 'magic'"),
        ({"memory": 3}, "memory is 3"),
    ],
)
def test_bad_arguments_are_refused(tmp_path, keywords, message):
    with pytest.raises(ValueError, match=message):
        hopf_jax.partition(made(), tmp_path / "p", **keywords)
    assert not (tmp_path / "p").exists()


def test_the_command_prints_a_report(tmp_path, capsys):
    hopf_jax.write_graph(made(), tmp_path / "g")
    given = ["partition", str(tmp_path / "g"), "--out", str(tmp_path / "p"), "--quiet"]
    given += ["--parts", "2", "--hops", "1", "--method", "streaming"]
    assert main(given) == 0
    said = capsys.readouterr()
    assert "120 nodes" in said.out and "Cut: " in said.out and said.err == ""
    assert main([*given, "--memory", "much"][:-2]) == 0  # Complete already.


def test_names_stay_with_their_nodes(tmp_path):
    graph = dataclasses.replace(made(), node_names=tuple(f"n{i}" for i in range(120)))
    parts = hopf_jax.partition(graph, tmp_path / "p", parts=2, hops=1)
    part = parts.open(1)
    assert part.read_names() == tuple(f"n{i}" for i in part.ids[: part.num_own])

"""Files of every kind that the library reads, and ways to damage them.

Each `Kind` writes a small honest file or folder and reads it. `damage` changes bytes:
flips, cuts, insertions, and numbers in headers that claim too much.
"""

import collections
import contextlib
import dataclasses
import functools
import gzip
import hashlib
import io
import itertools
import json
import pathlib
import pickle
import resource
import shutil
import tempfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse as sp

from hopf_jax import (
    Config,
    Graph,
    fit,
    import_tables,
    load,
    open_graph,
    open_parts,
    partition,
    split_graph,
    tuning,
    write_graph,
)
from hopf_jax.cli import model_folder, tables
from hopf_jax.datasets import cache, download, make_planted, readers
from hopf_jax.datasets.registry import DATASETS, Layout
from hopf_jax.runtime import open_zip, reading
from hopf_jax.serving import Journal, messages
from tests import fuzzing, graphs

NODES = [f"n{i}" for i in range(12)]
_PREFIX = "ind.toy."


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of file: how to make an honest one in a folder, and how to read it.

    `verified` says that damage must be noticed: whatever is read is the right answer.
    `seal` is applied after the damage, such as the one who forges a file would compute
    its checksums.
    """

    make: Callable[[pathlib.Path], None]
    read: Callable[[pathlib.Path], Any]
    verified: bool = False
    seal: Callable[[pathlib.Path], None] = lambda folder: None


def _make_result(folder):
    config = Config(num_hops=1, hidden_size=3, num_iterations=2, max_epochs=2)
    fit(graphs.tiny(), config=config, progress=False).save(folder / "result.npz")


def _read_result(folder):
    result = load(folder / "result.npz")
    return [result.probabilities, *(w[n] for w in result.weights for n in sorted(w))]


def _make_forged_result(folder):
    _make_result(folder)
    for name, array in np.load(folder / "result.npz").items():
        path = folder / "members" / f"{name}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array)
    meta = np.load(folder / "members" / "meta.npy").tobytes()
    (folder / "members" / "meta.json").write_bytes(meta)
    (folder / "members" / "meta.npy").unlink()
    (folder / "result.npz").unlink()


def _zip_result(folder):
    members = folder / "members"
    with zipfile.ZipFile(folder / "result.npz", "w") as archive:
        for path in sorted(members.rglob("*.npy")):
            archive.write(path, path.relative_to(members).as_posix())
        memory = io.BytesIO()
        meta = (members / "meta.json").read_bytes()
        np.save(memory, np.frombuffer(meta, np.uint8))
        archive.writestr("meta.npy", memory.getvalue())


def _make_parts(folder):
    graph = make_planted(60, 150, 3, 3, seed=1)
    graph = split_graph(graph, train=0.3, validation=0.2, test=0.5)
    names = tuple(f"n{i}" for i in range(60))
    graph = dataclasses.replace(graph, node_names=names)
    partition(graph, folder / "parts", parts=2, hops=1, method="streaming")
    (folder / "parts" / "partition.json").unlink()


def seal_parts(folder):
    path = folder / "parts" / "manifest.json"
    manifest = json.loads(path.read_bytes())

    def renew(where, files):
        for name in files:
            files[name] = hashlib.sha256((where / name).read_bytes()).hexdigest()

    renew(path.parent, manifest["files"])
    for i, part in enumerate(manifest["parts"]):
        renew(path.parent / f"part-{i:04d}", part["files"])
    path.write_text(json.dumps(manifest))


def _read_parts(folder):
    parts = open_parts(folder / "parts")
    assert parts.report() and repr(parts)
    found = [np.asarray(parts.train_labels)]
    for part in map(parts.open, range(len(parts))):
        assert len(part.read_names()) == part.num_own
        graph = part.graph
        found += [part.ids, part.sends, part.receive, graph.degree, graph.labels]
        found += [graph.adjacency.sum(axis=1), graph.features.sum(axis=1)]
    for name in ("train", "validation"):
        found += parts.roots(name).values()
    return [*found, parts.scaling.scale]


def _make_journal(folder):
    journal = Journal(folder, "owner")
    for i in range(4):
        asked = {"labels": [{"node": f"n{i}", "label": i}]}
        journal.append(messages.UpdateRequest(**asked).model_dump_json().encode())
    journal.close()


def _read_journal(folder):
    journal = Journal(folder, "owner")
    try:
        updates = [
            messages.UpdateRequest.model_validate_json(b) for b in journal.read()
        ]
    finally:
        journal.close()
        for path in folder.glob("*.damaged-*"):
            path.unlink()
    return [np.array([update.model_dump_json() for update in updates])]


def _study(folder):
    with contextlib.ExitStack() as stack:
        return tuning._open_study(optuna, folder, {"seed": 1}, 0, stack)


def _make_search(folder):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = _study(folder)
    for _ in range(3):
        trial = study.ask()
        study.tell(trial, trial.suggest_float("x", 0, 1))


def _read_search(folder):
    trials = [tuning._record(trial) for trial in _study(folder).trials]
    return [np.array([str(trial) for trial in trials])]


def _read_imported(folder):
    for path in folder.glob("graph"):
        shutil.rmtree(path)
    (nodes,) = folder.glob("nodes.*")
    edges, labels = folder / "edges.csv", folder / "labels.csv"
    import_tables(edges, folder / "graph", nodes, labels, memory=1 << 28)
    return _read_graph(folder)


def _make_imported(folder, ending):
    _make_edges(folder, "csv")
    _make_labels(folder, "csv")
    _make_table(folder, ending)
    (folder / f"features.{ending}").rename(folder / f"nodes.{ending}")


def _make_graph(folder, sparse):
    write_graph(graphs.tiny("weighted", sparse=sparse), folder / "graph")


def _read_graph(folder):
    graph = open_graph(folder / "graph")
    degrees, features = graph.adjacency.sum(axis=1), graph.features
    return [degrees, features.sum(axis=1), features, graph.labels, graph.train]


def _frame():
    rng = np.random.default_rng(0)
    return {"node": NODES, "x": rng.normal(size=12), "y": rng.random(12) < 0.5}


def _make_table(folder, ending):
    frame = _frame()
    path = folder / f"features.{ending}"
    if ending == "npz":
        columns = np.column_stack([frame["x"], frame["y"]])
        np.savez_compressed(path, nodes=np.array(NODES), features=columns)
    elif ending == "csr.npz":
        matrix = sp.csr_array(np.column_stack([frame["x"], frame["y"]]))
        sp.save_npz(path, matrix)
    elif ending == "parquet":
        pq.write_table(pa.table(frame), path)
    else:
        text = tables.to_csv(list(frame), zip(*frame.values(), strict=True))
        path.write_bytes(text.encode().replace(b"True", b"1").replace(b"False", b"0"))
        if ending.endswith("gz"):
            path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def _read_table(folder):
    (path,) = folder.glob("features.*")
    return _as_graph(tables.read_features(path, True).matrix)


def _as_graph(features, ends=((), ()), labels=None, weights=None):
    return Graph.from_edges(*ends, features, labels, weights=weights).features


def _make_edges(folder, ending):
    path = folder / f"edges.{ending}"
    columns = {"a": NODES[:-1], "b": NODES[1:], "weight": np.arange(1.0, 12)}
    if ending == "npz":
        np.savez(path, **columns)
    elif ending == "parquet":
        pq.write_table(pa.table(columns), path)
    else:
        path.write_text(
            tables.to_csv(list(columns), zip(*columns.values(), strict=True))
        )


def _read_edges(folder):
    (path,) = folder.glob("edges.*")
    edges = tables.read_edges(path, NODES, True)
    ends = edges.senders, edges.receivers
    return _as_graph(np.ones((12, 1)), ends, weights=edges.weights)


def _make_labels(folder, ending):
    path = folder / f"labels.{ending}"
    sets = ["train"] * 6 + ["validation"] * 3 + ["test"] * 2 + [""]
    columns = {"node": NODES, "label": ["a", "b", "c"] * 4, "set": sets}
    if ending == "parquet":
        pq.write_table(pa.table(columns), path)
    else:
        path.write_text(
            tables.to_csv(list(columns), zip(*columns.values(), strict=True))
        )


def _read_labels(folder):
    (path,) = folder.glob("labels.*")
    found = tables.read_labels(path, NODES, True)
    names = tables.sort_classes(found.values)
    graph = Graph.from_edges(
        *((), (), np.ones((12, 1)), found.values), label_names=names
    )
    graph = graph.with_split(**found.sets or {})
    return [graph.labels, graph.train, graph.validation, graph.test]


def _make_model(folder):
    """A model as version 0.1 wrote it, in two files."""
    result = pathlib.Path(__file__).parent / "results" / "saved_by_0.1.npz"
    (folder / "result.npz").write_bytes(result.read_bytes())
    found = load(result)
    about = {
        "nodes": [f"n{i}" for i in range(len(found.probabilities))],
        "features": [f"x{i}" for i in range(found.sizes.features)],
        "directed": False,
        "self_loops": "drop",
        "normalize": False,
        "sparse": False,
    }
    checksum = hashlib.sha256(result.read_bytes()).hexdigest()
    text = json.dumps({"format": 1, "sha256": checksum, "reading": about})
    (folder / "model.json").write_text(text)


def _read_model(folder):
    result, settings = model_folder.load_model(folder)
    return [result.probabilities, np.array([len(settings.nodes)])]


def _dataset(format, files, prefix=""):
    layout = Layout(format, tuple(files), prefix)

    def read(folder):
        found = readers.read(folder, layout, {})
        ends = found.senders, found.receivers
        labels = np.where(found.labels.any(axis=1, keepdims=True), found.labels, np.nan)
        return _as_graph(found.features, ends, labels, found.weights)

    return read


_OGB = ("edge", "node-feat", "node-label", "train", "valid", "test")
_ENDINGS = ("x", "y", "allx", "ally", "tx", "ty", "graph", "test.index")


def _make_planetoid(folder):
    words = sp.csr_matrix(np.eye(12, 6, dtype=np.float32))
    classes = np.eye(2, dtype=np.int32)[np.arange(12) % 2]
    graph = collections.defaultdict(list, {i: [(i + 1) % 12] for i in range(12)})
    parts = {"allx": words[:8], "tx": words[8:], "ally": classes[:8], "ty": classes[8:]}
    parts |= {"graph": graph, "x": words[:4], "y": classes[:4]}
    for ending, value in parts.items():
        (folder / f"{_PREFIX}{ending}").write_bytes(pickle.dumps(value, 4))
    (folder / f"{_PREFIX}test.index").write_text("11\n10\n9\n8\n")


def _make_npz_dataset(folder):
    matrix = sp.csr_array(np.eye(12, 300, dtype=np.float32))
    np.savez_compressed(
        folder / "toy.npz",
        adj_indptr=np.arange(13),
        adj_indices=(np.arange(12) + 1) % 12,
        attr_data=matrix.data,
        attr_indices=matrix.indices,
        attr_indptr=matrix.indptr,
        attr_shape=matrix.shape,
        labels=np.arange(12) % 3,
        class_names=np.array(["a", "b", "c"]),
    )


def _make_authors(folder):
    matrix = sp.csc_array(np.eye(12, k=1))
    scipy.io.savemat(folder / "adjmat.mat", {"adjmat": matrix}, do_compression=True)
    np.save(folder / "features.npy", np.eye(12, 4))
    np.save(folder / "labels.npy", np.eye(3)[np.arange(12) % 3])


def _make_linqs(folder):
    lines = [f"{n}\t{i % 2}\t1\t{'AB'[i % 2]}\n" for i, n in enumerate(NODES)]
    (folder / "a.content").write_text("".join(lines))
    pairs = itertools.pairwise(NODES)
    (folder / "a.cites").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))


def _make_graphsage(folder):
    ids = [str(i) for i in range(12)]
    nodes = [{"id": i, "test": False, "val": i == 3} for i in range(12)]
    links = [{"source": i, "target": (i + 1) % 12} for i in range(12)]
    parts = {
        "G": {"nodes": nodes, "links": links, "directed": False},
        "id_map": {i: int(i) for i in ids},
        "class_map": {i: int(i) % 3 for i in ids},
    }
    for name, value in parts.items():
        (folder / f"toy-{name}.json").write_text(json.dumps(value))
    np.save(folder / "toy-feats.npy", np.eye(12, 4))


def _make_heterophilous(folder):
    masks = {
        f"{s}_masks": np.tile(np.arange(12) % 3 == i, (10, 1))
        for i, s in enumerate(("train", "val", "test"))
    }
    ends = np.stack([np.arange(11), np.arange(1, 12)], axis=1)
    arrays = {"node_features": np.eye(12, 4), "node_labels": np.arange(12) % 3}
    np.savez_compressed(folder / "toy.npz", edges=ends, **arrays, **masks)


def _make_wikics(folder):
    data = {
        "features": np.eye(12, 4).tolist(),
        "labels": [i % 3 for i in range(12)],
        "links": [[(i + 1) % 12] for i in range(12)],
        "train_masks": [[i % 3 == 0 for i in range(12)]] * 2,
        "val_masks": [[i % 3 == 1 for i in range(12)]] * 2,
        "test_mask": [i % 3 == 2 for i in range(12)],
    }
    (folder / "data.json").write_text(json.dumps(data))


def _make_graphsaint(folder):
    sp.save_npz(folder / "adj_full.npz", sp.csr_array(np.eye(12, k=1)))
    np.save(folder / "feats.npy", np.eye(12, 4))
    classes = {str(i): i % 3 for i in range(12)}
    (folder / "class_map.json").write_text(json.dumps(classes))
    roles = {"tr": list(range(6)), "va": [6, 7, 8], "te": [9, 10, 11]}
    (folder / "role.json").write_text(json.dumps(roles))


def _make_ogb(folder):
    texts = {
        "edge": "".join(f"{i},{(i + 1) % 12}\n" for i in range(12)),
        "node-feat": "".join(f"{i}.5,{i % 5}\n" for i in range(12)),
        "node-label": "".join(f"{i % 3}\n" for i in range(12)),
        "train": "0\n1\n2\n3\n4\n5\n",
        "valid": "6\n7\n",
        "test": "8\n9\n",
    }
    for name, text in texts.items():
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def _make_papers(folder):
    numbers = range(24)
    parts = {
        "paper_terms": {str(i): {"AB": 1.0 + i, "AA": 2} for i in numbers},
        "term_dictionary": {"AA": "graph", "AB": "node"},
        "paper_references": [[i, (i + 1) % 24] for i in numbers],
        "classification_papers": {"a": list(range(22)), "b": list(range(3, 24))},
    }
    for name, value in parts.items():
        (folder / f"{name}.json").write_text(json.dumps(value))


def _make_movies(folder):
    parts = {
        "movie_tags.dat": ["2 7 1", "2 13 3", "10 7 2", "30 13 1", "40 99 1"],
        "movie_genres.dat": ["2 War", "2 Action", "10 War", "30 War", "40 Action"],
        "movie_directors.dat": ["2 ann Ann", "10 ann Ann", "40 bob Bob"],
        "movie_actors_recovered.tsv": ["2 cy", "10 cy", "10 bob", "30 cy", "40 fay"],
    }
    for name, lines in parts.items():
        rows = ["\t".join(line.split(" ", 2)) for line in ("movieID other", *lines)]
        (folder / name).write_text("\n".join(rows) + "\n")


def _make_wheel(folder):
    with zipfile.ZipFile(folder / "a.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("toy/data", b"some data " * 30)
        archive.writestr("toy/more", bytes(range(256)))


def _read_wheel(folder):
    data = {"data": b"some data " * 30, "more": bytes(range(256))}
    found = []
    with reading(folder / "a.whl", "a wheel") as opened, open_zip(*opened) as archive:
        for name, wanted in data.items():
            part = archive.read(f"toy/{name}")
            checksum = hashlib.sha256(wanted).hexdigest()
            download._write_verified(folder / "out" / name, checksum, part)
            found.append(np.frombuffer(part, np.uint8))
    return found


def _contents(folder):
    _make_npz_dataset(folder)
    found = readers.read(folder, Layout("npz", ("toy.npz",)), {})
    (folder / "toy.npz").unlink()
    return found


def _make_cache(folder):
    contents = _contents(folder)
    contents = dataclasses.replace(contents, features=np.eye(12, 4, dtype=np.float32))
    cache.save(contents, folder / "compact", "toy", folder / "compact")
    for path in (folder / "compact").glob("*.lock"):
        path.unlink()


def _read_cache(folder):
    found = cache.load(folder / "compact", "toy", folder / "compact")
    if found is None:
        raise ValueError("It is made again: the files are not those that were noted.")
    return [found.senders, found.receivers, found.features, found.labels]


def _partial(make, *arguments):
    return lambda folder: make(folder, *arguments)


KINDS = {
    "result": Kind(_make_result, _read_result, verified=True),
    "forged result": Kind(_make_forged_result, _read_result, seal=_zip_result),
    "parts": Kind(_make_parts, _read_parts),
    "forged parts": Kind(_make_parts, _read_parts, seal=seal_parts),
    "updates": Kind(_make_journal, _read_journal),
    "search": Kind(_make_search, _read_search),
    **{
        f"imported {e}": Kind(_partial(_make_imported, e), _read_imported)
        for e in ("parquet", "csv", "csv.gz")
    },
    "mapped graph": Kind(_partial(_make_graph, False), _read_graph),
    "mapped sparse graph": Kind(_partial(_make_graph, True), _read_graph),
    **{
        f"features {e}": Kind(_partial(_make_table, e), _read_table)
        for e in ("npz", "csr.npz", "parquet", "csv", "csv.gz")
    },
    **{
        f"edges {e}": Kind(_partial(_make_edges, e), _read_edges)
        for e in ("npz", "parquet", "csv")
    },
    **{
        f"labels {e}": Kind(_partial(_make_labels, e), _read_labels)
        for e in ("parquet", "csv")
    },
    "model of 0.1": Kind(_make_model, _read_model, verified=True),
    "papers": Kind(
        _make_papers, _dataset("papers", DATASETS["cora2"].layouts[0].files)
    ),
    "hetrec": Kind(
        _make_movies, _dataset("hetrec", DATASETS["movie"].layouts[0].files)
    ),
    "planetoid": Kind(
        _make_planetoid,
        _dataset("planetoid", [_PREFIX + e for e in _ENDINGS], _PREFIX),
    ),
    "npz dataset": Kind(_make_npz_dataset, _dataset("npz", ["toy.npz"])),
    "authors": Kind(
        _make_authors, _dataset("authors", ["adjmat.mat", "features.npy", "labels.npy"])
    ),
    "linqs": Kind(_make_linqs, _dataset("linqs", ["a.content", "a.cites"])),
    "heterophilous": Kind(_make_heterophilous, _dataset("heterophilous", ["toy.npz"])),
    "wikics": Kind(_make_wikics, _dataset("wikics", ["data.json"])),
    "graphsaint": Kind(
        _make_graphsaint, _dataset("graphsaint", DATASETS["flickr"].layouts[0].files)
    ),
    "ogb": Kind(_make_ogb, _dataset("ogb", [f"{n}.csv.gz" for n in _OGB])),
    "graphsage": Kind(_make_graphsage, _dataset("graphsage", ["toy-G.json"], "toy")),
    "wheel": Kind(_make_wheel, _read_wheel, verified=True),
    "compact cache": Kind(_make_cache, _read_cache, verified=True),
}


@functools.cache
def honest(name):
    """Return the files of a kind, {path: bytes}, and what reading them gives."""
    kind = KINDS[name]
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        kind.make(folder)
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        kind.seal(folder)
        kind.read(folder)  # What is imported or cached once is not counted.
        tracemalloc.start()
        right = kind.read(folder)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return files, right, used


_CLAIMS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def damage(data, rng):
    """Return the bytes of a file with one to three things wrong."""
    whole = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        how = rng.choice(
            ["bit", "byte", "cut", "insert", "zero", "claim", "digit", "copy", "value"]
        )
        at = int(rng.integers(0, max(1, len(whole))))
        if rng.random() < 0.5:  # Headers are at the beginning and at the end.
            at = min(at, int(rng.integers(0, 200)))
            at = at if rng.random() < 0.5 else max(0, len(whole) - 1 - at)
        if not whole:
            whole += b"x"
            at = 0
        length = int(rng.integers(1, 64))
        if how == "bit":
            whole[at] ^= 1 << int(rng.integers(8))
        elif how == "byte":
            whole[at] = int(rng.integers(256))
        elif how == "cut":
            del whole[at:]
        elif how == "insert":
            whole[at:at] = rng.bytes(length)
        elif how == "zero":
            whole[at : at + length] = bytes(len(whole[at : at + length]))
        elif how == "claim":  # A little-endian number of 2, 4 or 8 bytes.
            width = int(rng.choice([2, 4, 8]))
            claim = int(rng.choice(np.array(_CLAIMS, object))) % (1 << 8 * width)
            whole[at : at + width] = claim.to_bytes(width, "little")
        elif how == "digit":  # A number in text.
            digits = [i for i, c in enumerate(whole[:4000]) if chr(c).isdigit()]
            if digits:
                i = digits[int(rng.integers(len(digits)))]
                whole[i : i + 1] = str(rng.choice([-1, 0, 99, 10**9, 10**18])).encode()
        elif how == "value":
            whole = bytearray(_other_value(bytes(whole), rng))
        else:
            whole[at : at + length] = whole[:length]
    return bytes(whole)


_STRANGE = (
    None,
    True,
    -1,
    0,
    1.5,
    10**400,
    "x",
    "\ud800",
    [],
    {},
    [[]],
    [None],
    {"": 1},
)


def _other_value(data, rng):
    """Return JSON with another value in one place; other files as they are."""
    try:
        holder: Any = [json.loads(data)]
    except ValueError:
        return data
    whole, key = holder, 0
    while isinstance(holder[key], list | dict) and holder[key] and rng.random() < 0.8:
        holder = holder[key]
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        key = keys[int(rng.integers(len(keys)))]
    if isinstance(holder, dict) and rng.random() < 0.2:
        del holder[key]
    else:
        holder[key] = _STRANGE[int(rng.integers(len(_STRANGE)))]
    return json.dumps(whole[0]).encode() if whole else b""


@dataclasses.dataclass
class Outcome:
    refused: int = 0
    right: int = 0
    other: int = 0  # Read, with other values; there is nothing to tell them by.
    seconds: float = 0.0  # The longest.
    memory: float = 0.0  # The most, as a multiple of what the honest file takes.


def run(name, count, seed=0):
    """Read `count` damaged files of a kind; fail if one does what it must not."""
    files, right, used = honest(name)
    kind, outcome = KINDS[name], Outcome()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    allowed = 4 * max(used, 1 << 18)  # Messages and parsers need some.
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        for path in files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
        for case in range(count):
            rng = np.random.default_rng([seed, case])
            chosen = sorted(files)[int(rng.integers(len(files)))]
            for path, data in files.items():
                damaged = damage(data, rng) if path == chosen else data
                (folder / path).write_bytes(damaged)
            with contextlib.suppress(ValueError, LookupError, TypeError, OSError):
                kind.seal(folder)
            where = f"{name}, seed {seed}, case {case}, {chosen}"
            found, error, seconds, peak = _attempt(kind, folder)
            # Other threads of this process allocate too: a file is at fault only if it
            # takes as much again.
            if peak > allowed:
                peak = min(peak, _attempt(kind, folder)[-1])
            if isinstance(error, ValueError):
                assert len(str(error)) > 20, (where, error)
                outcome.refused += 1
            elif error is not None:
                raise AssertionError(f"{where}: {error!r}") from error
            else:
                same = _same(found, right)
                assert same or not kind.verified, where
                outcome.right += same
                outcome.other += not same
            assert seconds < 5, (where, seconds)
            assert peak <= allowed, (where, peak, used)
            outcome.seconds = max(outcome.seconds, seconds)
            outcome.memory = max(outcome.memory, peak / max(used, 1 << 18))
    # Native code, such as that of Parquet, is not traced; kilobytes on Linux.
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200 << 10, (name, grown)
    return outcome


def _attempt(kind, folder):
    """Return what is read, or the error; processor seconds; and the most memory."""
    found = error = None
    tracemalloc.start()
    began = time.process_time()
    try:
        with fuzzing.alarm():
            found = kind.read(folder)
    except Exception as raised:
        error = raised
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found, error, time.process_time() - began, peak


def _same(found, right):
    pairs = (
        [(found, right)]
        if not isinstance(right, list)
        else zip(found, right, strict=True)
    )
    return all(
        a.shape == b.shape
        and ((a != b).nnz == 0 if sp.issparse(a) else np.array_equal(a, b))
        for a, b in pairs
    )

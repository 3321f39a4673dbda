"""Readers of the file formats of datasets; files are verified before they are read."""

import array
import contextlib
import io
import itertools
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.io
import scipy.sparse as sp

from hopf_jax.datasets.benchmark_formats import (
    read_graphsaint,
    read_heterophilous,
    read_ogb,
    read_wikics,
)
from hopf_jax.datasets.checksums import checksum
from hopf_jax.datasets.contents import (
    Contents,
    as_features,
    as_labels,
    check_contents,
)
from hopf_jax.datasets.registry import DatasetError, Layout
from hopf_jax.datasets.unpickling import unpickle
from hopf_jax.graph import check_csr, check_nodes, check_sparse
from hopf_jax.runtime import (
    check_limit,
    check_memory,
    load_npz,
    open_regular,
    read_bytes,
    read_json,
    read_npy,
    reading,
)

# The authors' names of the sets, in the order of their codes in `Contents.splits`.
_SETS = ("train", "val", "test")

# In a MATLAB file: the types of elements, and the classes of sparse and dense numbers.
_MAT_MATRIX, _MAT_COMPRESSED, _MAT_NUMBERS = 14, 15, range(5, 16)

# Smaller classes of cora2 are left out. This is a guess: 79 of 81 remain, the paper's
# number, but the paper does not say which.
_FEWEST_PAPERS = 20


def read(folder: Path, layout: Layout, checksums: Mapping[str, str]) -> Contents:
    """Verify the files in a folder and read them.

    Raises:
      DatasetError: A file is damaged, or is not what its name says.
    """
    registered = {n: checksums[n] for n in layout.files if n in checksums}
    for name, expected in registered.items():
        found = checksum(folder / name, expected)
        if found != expected:
            raise DatasetError(
                f"{folder / name} is not the registered file: its checksum is "
                f"{found}, not {expected}. It is damaged or another version; delete it "
                "and load again to download it, or put the right one in its place."
            )
    try:
        contents = READERS[layout.format](folder, layout)
        check_contents(contents)
        return contents
    except Exception as error:  # A damaged file can make its reader raise anything.
        raise DatasetError(
            f"Cannot read {folder} in the {layout.format} format "
            f"({', '.join(layout.files[:4])}): {str(error).rstrip('.')}."
        ) from error


def read_authors(folder: Path, layout: Layout) -> Contents:
    """Read the format of the HOPF authors.

    The files are adjmat.mat, features.npy, labels.npy, and optionally label_names.npy
    and labels_random/<percent>/<fold>/{train,val,test}_ids.npy, masks or node ids.
    """
    arcs = sp.coo_array(_read_mat(folder / "adjmat.mat"))
    labels = as_labels(read_npy(folder / "labels.npy"))
    names = [str(c) for c in range(labels.shape[1])]
    if (folder / "label_names.npy").exists():
        names = np.char.decode(read_npy(folder / "label_names.npy"), "utf-8").tolist()
    return Contents(
        senders=arcs.col.astype(np.int32),
        receivers=arcs.row.astype(np.int32),
        features=as_features(read_npy(folder / "features.npy")),
        labels=labels,
        label_names=tuple(names),
        splits=_read_splits(folder, layout, len(labels)),
        weights=None if np.all(arcs.data == 1) else arcs.data.astype(np.float32),
    )


def read_npz(folder: Path, layout: Layout) -> Contents:
    """Read CSR arrays: adj_*, attr_* or features, labels, inductive_split."""
    (archive,) = (name for name in layout.files if name.endswith(".npz"))
    arrays = load_npz(folder / archive)
    if "attr_data" in arrays:
        parts = tuple(arrays[f"attr_{k}"] for k in ("data", "indices", "indptr"))
        features = sp.csr_array(parts, tuple(arrays["attr_shape"]))
        features = check_sparse(features, "attr")
    else:
        features = arrays["features"]
    (key,) = (k for k in arrays if k == "labels" or k.startswith("labels_"))
    labels = as_labels(arrays[key])
    names = arrays.get("class_names", np.arange(labels.shape[1]))
    num_nodes = len(labels)
    indptr, senders = check_csr(
        arrays["adj_indptr"], arrays["adj_indices"], num_nodes, num_nodes, "adj"
    )
    lengths = np.diff(indptr)
    splits = _read_splits(folder, layout, len(labels))
    if "inductive_split" in arrays:
        codes = [arrays["inductive_split"] == name for name in _SETS]
        splits["inductive"] = (np.array([[1], [2], [3]]) * codes).sum(0, np.uint8)
    return Contents(
        senders=senders.astype(np.int32),
        receivers=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        features=as_features(features),
        labels=labels,
        label_names=tuple(str(name) for name in names),
        splits=splits,
    )


def read_linqs(folder: Path, layout: Layout) -> Contents:
    """Read LINQS text: lines "id, 0 or 1 per word, class" and "cited, citing"."""
    (content,) = (name for name in layout.files if name.endswith(".content"))
    (cites,) = (name for name in layout.files if name.endswith(".cites"))
    lines = read_bytes(folder / content).splitlines()
    ids, rest = zip(*(line.split(b"\t", 1) for line in lines), strict=True)
    bits, classes = zip(*(line.rsplit(b"\t", 1) for line in rest), strict=True)
    # Each word is one digit, so every other byte is a tab.
    digits = np.stack([np.frombuffer(row, np.uint8)[::2] for row in bits]) - ord("0")
    if digits.max() > 1:
        raise ValueError(f"the words of {content} are not 0 and 1")
    names, labels = np.unique(classes, return_inverse=True)
    place = {paper: row for row, paper in enumerate(ids)}
    papers = read_bytes(folder / cites).split()
    unknown = f"paper {{!r}} of {cites} is not in {content}"
    ends = _look_up(papers, place, unknown).astype(np.int32).reshape(-1, 2)
    return Contents(
        senders=np.ascontiguousarray(ends[:, 0]),
        receivers=np.ascontiguousarray(ends[:, 1]),
        features=as_features(digits),
        labels=as_labels(labels),
        label_names=tuple(name.decode() for name in names.tolist()),
        splits={},
    )


def read_planetoid(folder: Path, layout: Layout) -> Contents:
    """Read ind.<name>.{allx,ally,tx,ty,graph,test.index}.

    The x and y files repeat rows of allx and ally. A node that no file has, as in
    Citeseer, gets neither features nor a label.
    """

    def part(ending: str) -> Any:
        return unpickle(read_bytes(folder / f"{layout.prefix}{ending}"))

    graph = part("graph")
    if not isinstance(graph, dict):
        raise ValueError(f"{layout.prefix}graph holds no dict")
    neighbours = list(graph.values())
    lengths = np.fromiter(map(len, neighbours), np.int64, len(neighbours))
    size = (folder / f"{layout.prefix}graph").stat().st_size
    if lengths.sum() > size:  # Lists can be shared; honest ones are not.
        raise ValueError(f"{layout.prefix}graph has more edges than bytes")
    owners = np.fromiter(graph, np.int32, len(neighbours))
    senders = np.fromiter(
        itertools.chain.from_iterable(neighbours), np.int32, int(lengths.sum())
    )
    words = sp.vstack([part("allx"), part("tx")], format="csr")
    classes = np.concatenate([part("ally"), part("ty")])
    index = read_bytes(folder / f"{layout.prefix}test.index")
    test = np.loadtxt(io.BytesIO(index), np.int64, ndmin=1)
    place = np.concatenate([np.arange(words.shape[0] - len(test)), test])
    num_nodes = len(graph)
    into = sp.csr_array(
        (np.ones(len(place), np.float32), (place, np.arange(len(place)))),
        (num_nodes, len(place)),
    )
    labels = np.zeros((num_nodes, classes.shape[1]), np.uint8)
    labels[place] = as_labels(classes)
    return Contents(
        senders=senders,
        receivers=np.repeat(owners, lengths),
        features=as_features(into @ words),
        labels=labels,
        label_names=tuple(str(c) for c in range(classes.shape[1])),
        splits={},
    )


def read_graphsage(folder: Path, layout: Layout) -> Contents:
    """Read <name>-{G.json,feats.npy,id_map.json,class_map.json}.

    Nodes are in the order of -feats.npy. Links are positions in the list of nodes, as
    networkx 1 writes them, or ids, as networkx 2 does; what could be both is refused.
    """
    prefix = folder / layout.prefix
    features = read_npy(f"{prefix}-feats.npy")
    rows = read_json(f"{prefix}-id_map.json")
    classes = read_json(f"{prefix}-class_map.json")
    nodes, ends, names = _read_graph(f"{prefix}-G.json")

    ids = [node["id"] for node in nodes]
    missing = "node {!r} of -G.json is not in -id_map.json"
    row = _look_up(map(str, ids), rows, missing)
    if not np.array_equal(np.sort(row), np.arange(len(features))):
        raise ValueError(
            f"-id_map.json does not map the {len(ids)} nodes of -G.json one to one to "
            f"the {len(features)} rows of -feats.npy"
        )
    if names:
        position = {i: p for p, i in enumerate(ids)}
        unknown = "a link of -G.json ends at {!r}, not a node"
        ends = _look_up(names, position, unknown)[ends]
    elif isinstance(ids[0], int) and ids != list(range(len(ids))):
        raise ValueError(
            "the nodes of -G.json have whole-number ids that are not their positions, "
            "so its links can be read in two ways; renumber the nodes"
        )
    elif ends.size and (ends.min() < 0 or ends.max() >= len(ids)):
        raise ValueError(f"a link of -G.json ends beyond its {len(ids)} nodes")

    labels = as_labels([classes[str(i)] for i in ids])
    by_row = np.empty_like(labels)
    by_row[row] = labels
    codes = np.zeros(len(ids), np.uint8)
    codes[row] = [_set_of(node) for node in nodes]
    ends = row[ends].astype(np.int32)
    return Contents(
        senders=np.ascontiguousarray(ends[:, 0]),
        receivers=np.ascontiguousarray(ends[:, 1]),
        features=as_features(features),
        labels=by_row,
        label_names=tuple(str(c) for c in range(labels.shape[1])),
        splits={"inductive": codes},
    )


def read_papers(folder: Path, layout: Layout) -> Contents:
    """Read the JSON files of cora2.

    They are paper_terms {paper: {term: tf-idf}}, term_dictionary {term: word},
    paper_references [[citing, cited]] and classification_papers {class: [paper]}, which
    also has papers without terms, which are not nodes. Classes with fewer than 20 nodes
    are left out.
    """
    del layout
    terms, dictionary, references, classes = (
        read_json(folder / f"{name}.json")
        for name in (
            "paper_terms",
            "term_dictionary",
            "paper_references",
            "classification_papers",
        )
    )
    with _named("paper_terms.json"):
        lengths = [len(weights) for weights in terms.values()]
        values = [value for weights in terms.values() for value in weights.values()]
        columns = _look_up(
            itertools.chain.from_iterable(terms.values()),
            {term: column for column, term in enumerate(dictionary)},
            "term {!r} is not in term_dictionary.json",
        )
        parts = np.array(values, np.float32), columns, np.cumsum([0, *lengths])
        features = sp.csr_array(parts, (len(terms), len(dictionary)))
    row = {paper: r for r, paper in enumerate(terms)}
    with _named("paper_references.json"):
        cited = [str(paper) for pair in references for paper in pair]
        ends = _look_up(cited, row, "paper {!r} is not in paper_terms.json")
        if any(len(pair) != 2 for pair in references):
            raise ValueError("an item is not a pair")
    with _named("classification_papers.json"):
        members = {
            name: [row[paper] for paper in map(str, papers) if paper in row]
            for name, papers in classes.items()
        }
    names = sorted(n for n, rows in members.items() if len(rows) >= _FEWEST_PAPERS)
    shape = len(row), len(names)
    check_memory(math.prod(shape), f"Labels of shape {shape}", "Are these the files?")
    labels = np.zeros(shape, np.uint8)
    for label, name in enumerate(names):
        labels[members[name], label] = 1
    return Contents(
        senders=ends[1::2].astype(np.int32),
        receivers=ends[::2].astype(np.int32),
        features=as_features(features),
        labels=labels,
        label_names=tuple(names),
        splits={},
    )


def read_hetrec(folder: Path, layout: Layout) -> Contents:
    """Read the tables of MovieLens-2k (HetRec 2011): text with tabs and a header.

    Nodes are the movies that have tags, in the order of their ids; features are the
    weights of their tags. There is one edge per pair of movies that share an actor or a
    director, with the lower node as its receiver.
    """
    tags = "movie_tags.dat"
    movies = np.unique(_read_column(folder / tags, 0, np.int64))

    def table(name: str) -> tuple[sp.csr_array, list[str]]:
        """Return a matrix of movies by the items of a table, and the items."""
        owners = _read_column(folder / name, 0, np.int64)
        items = _read_column(folder / name, 1, np.str_)
        values = np.ones(len(owners), np.float32)
        if name == tags:
            values = _read_column(folder / name, 2, np.float32)
        kept = np.isin(owners, movies)
        names, columns = np.unique(items[kept], return_inverse=True)
        rows = np.searchsorted(movies, owners[kept])
        shape = len(movies), len(names)
        return sp.csr_array((values[kept], (rows, columns)), shape), names.tolist()

    # A person who directs one movie and acts in another does not join them.
    people = ("movie_actors_recovered.tsv", "movie_directors.dat")
    cast = sp.hstack([table(name)[0] for name in people], format="csr")
    shared = sp.triu(cast @ cast.T, k=1, format="coo")
    genres, names = table("movie_genres.dat")
    return Contents(
        senders=shared.col.astype(np.int32),
        receivers=shared.row.astype(np.int32),
        features=as_features(table(tags)[0]),
        labels=(genres.toarray() > 0).astype(np.uint8),
        label_names=tuple(names),
        splits={},
    )


READERS: dict[str, Callable[[Path, Layout], Contents]] = {
    "authors": read_authors,
    "npz": read_npz,
    "linqs": read_linqs,
    "planetoid": read_planetoid,
    "graphsage": read_graphsage,
    "papers": read_papers,
    "hetrec": read_hetrec,
    "heterophilous": read_heterophilous,
    "wikics": read_wikics,
    "graphsaint": read_graphsaint,
    "ogb": read_ogb,
}


def _read_splits(folder: Path, layout: Layout, num_nodes: int) -> dict[str, np.ndarray]:
    """Return the splits that the layout lists, or else those in the folder."""
    names = [name for name in layout.files if name.startswith("labels_random/")]
    if not names:
        found = folder.glob("labels_random/*/*/*_ids.npy")
        names = [path.relative_to(folder).as_posix() for path in found]
    splits: dict[str, np.ndarray] = {}
    for name in names:
        _, percent, fold, file = name.split("/")
        code = _SETS.index(file.removesuffix("_ids.npy")) + 1
        mask = check_nodes(read_npy(folder / name), num_nodes, name)
        codes = splits.setdefault(f"{percent}/{fold}", np.zeros(num_nodes, np.uint8))
        if codes[mask].any():
            raise ValueError(f"{name} has nodes of another set")
        codes[mask] = code
    return splits


@contextlib.contextmanager
def _named(file: str) -> Iterator[None]:
    """Name the file in the message of an error that its content causes."""
    try:
        yield
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{file}: {error}") from error


def _look_up(
    names: Iterable[Any], table: Mapping[Any, int], problem: str
) -> np.ndarray:
    """Return the number of each name; `problem` formats a name without one."""
    try:
        return np.array([table[name] for name in names], np.int64)
    except KeyError as error:
        raise ValueError(problem.format(error.args[0])) from None


def _read_column(path: Path, column: int, dtype: Any) -> np.ndarray:
    """Return a column of a table: UTF-8 text with tabs and a header."""
    with _named(path.name), open_regular(path) as file:
        return np.loadtxt(
            file,
            dtype,
            comments=None,
            delimiter="\t",
            skiprows=1,
            usecols=column,
            ndmin=1,
            encoding="utf-8",
        )


def _set_of(node: dict[str, Any]) -> int:
    if "test" not in node or "val" not in node:
        return 0
    return 3 if node["test"] else 2 if node["val"] else 1


def _read_mat(path: Path) -> Any:
    """Return the variable 'adjmat' of a MATLAB file, a matrix."""
    with reading(path, "a MATLAB file") as (file, size):
        _check_mat(file, size)
        file.seek(0)
        variables = scipy.io.loadmat(file, variable_names=["adjmat"])
        if "adjmat" not in variables:
            raise ValueError("it holds no variable 'adjmat'")
        matrix = variables["adjmat"]
        if matrix.dtype.kind not in "fiub":
            raise ValueError(f"'adjmat' has dtype {matrix.dtype}")
        return check_sparse(matrix, "adjmat") if sp.issparse(matrix) else matrix


def _check_mat(file: BinaryIO, size: int) -> None:
    """Refuse what scipy would unpack without limit: all but matrices of numbers."""
    header, at, unpacked = file.read(128), 128, 0
    if header[124:] != b"\x00\x01IM":
        raise ValueError("it is not of MATLAB 5 to 7")
    while at < size:
        kind, length = struct.unpack("<II", file.read(8))
        data = file.read(min(length, size))
        if kind == _MAT_COMPRESSED:
            stream, start = zlib.decompressobj(), b""
            while data:
                part = stream.decompress(data, 1 << 20)
                start, data = start or part[:64], stream.unconsumed_tail
                unpacked += len(part)
                check_limit(unpacked, size, "what it unpacks to")
            kind, data = struct.unpack("<I", start[:4])[0], start[8:]
        if kind != _MAT_MATRIX or data[8] not in _MAT_NUMBERS:
            raise ValueError("it holds other things than matrices of numbers")
        at += 8 + length


def _read_graph(path: str) -> tuple[list[dict[str, Any]], np.ndarray, list[str]]:
    """Return the nodes, the link ends [E, 2], and the names that the ends number.

    The ends are packed into an array as they are parsed: one dict per link would take
    too much memory for Reddit.
    """
    packed = array.array("q")
    numbers: dict[str, int] = {}

    def number(end: Any) -> int:
        if isinstance(end, str):
            return numbers.setdefault(end, len(numbers))
        return end

    def pack(item: dict[str, Any]) -> dict[str, Any] | None:
        if "source" in item and "target" in item:
            packed.append(number(item["source"]))
            packed.append(number(item["target"]))
            return None
        # Features and labels are also in the other files.
        return {k: v for k, v in item.items() if k not in ("feature", "label")}

    graph = read_json(path, object_hook=pack)
    return graph["nodes"], np.array(packed, np.int64).reshape(-1, 2), list(numbers)

"""Partitioning: writes one folder per part, with own nodes and halo, and a manifest.

Every part is either complete or absent, so an interrupted partitioning can be resumed.
Memory holds about 25 bytes per node and blocks of edges and features, besides what
METIS and sparse features need.
"""

import contextlib
import functools
import json
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.batching import neighbourhood, ranges, run_sums
from hopf_jax.config import Choice, Whole, check
from hopf_jax.graph import (
    SPLITS,
    Graph,
    Scaling,
    as_graph,
    check_ids,
    complete_split,
    learn_scaling,
    names_to_json,
    new_graph_folder,
    open_graph,
    row_norm,
    sample_rows,
)
from hopf_jax.parts.assignment import (
    METHODS,
    assign,
    blocks,
    count_cut,
    edge_blocks,
    mark_within,
    node_blocks,
)
from hopf_jax.parts.manifest import (
    ASSIGNMENT,
    FORMAT,
    MANIFEST,
    NAMES,
    NAMES_TABLE,
    PART,
    ROOTS,
    SCALING,
    Parts,
    folder_of,
    open_parts,
    read_scaling,
    sends_of,
)
from hopf_jax.runtime import (
    LOCK,
    create_npy,
    digest,
    held_folder,
    import_or_explain,
    map_npy,
    new_folder,
    opened_parquet,
    physical_memory,
    read_json,
    read_npy,
    sha256,
    sweep,
    write_atomically,
)

_PROGRESS = "partition.json"
_ROWS_AT_ONCE = 1 << 15
_NAMES_AT_ONCE = 1 << 20
_LEAST_MEMORY = 1 << 28
_PER_NODE = 25  # Bytes: parts, ranks, distances, positions, and temporary arrays.

Say = Callable[[str], object]


def partition(
    graph: Graph | str | os.PathLike,
    out: str | os.PathLike,
    *,
    parts: int = 8,
    hops: int = 2,
    method: str = "auto",
    features: str = "auto",
    memory: int | None = None,
    seed: int = 0,
    say: Say = lambda text: None,
) -> Parts:
    """Divide a graph into parts that a job of several processes can learn from.

    A part is a folder with its own nodes and their halo: all nodes within some hops of
    them, which their predictions read. `open_parts` opens what is written.

    Args:
      graph: A graph, or the folder of one that `write_graph` wrote.
      out: The folder to write. If an earlier call with the same arguments was stopped,
        the parts that it completed are kept.
      parts: Number of parts, 2 or more.
      hops: Number of hops of the halo: at least the `num_hops` of the model.
      method: "metis", which cuts few edges but needs the graph in memory and
        undirected; "streaming", which reads it several times from disk; or "auto" for
        METIS if it is installed and memory suffices.
      features: "auto" to scale features, or "as-is". Pass the same value to `fit`.
      memory: Memory limit in bytes, for the choice of the method; None for half of
        this machine's.
      seed: Seed for METIS, and for the split if the graph has none.
      say: Called with lines of progress.

    Returns:
      The parts. Print them for a report of cut, halo and balance.
    """
    check(Whole(2, 1 << 20), "parts", parts)
    check(Whole(0, 16), "hops", hops)
    check(Choice(METHODS), "method", method)
    check(Choice(("auto", "as-is")), "features", features)
    check(Whole(0, 2**32 - 1), "seed", seed)
    total = physical_memory()
    memory = (total or 4 * _LEAST_MEMORY) // 2 if memory is None else memory
    check(Whole(_LEAST_MEMORY, 2**62), "memory", memory)
    names = None
    if isinstance(graph, str | os.PathLike):
        names = pathlib.Path(graph) / NAMES_TABLE
        graph = open_graph(graph)
    graph = as_graph(graph)
    if graph.num_nodes < parts:
        raise ValueError(
            f"{graph.num_nodes} nodes cannot be divided into {parts} parts. Ask for "
            "fewer."
        )
    if (least := _PER_NODE * graph.num_nodes) > memory:
        raise ValueError(
            f"{graph.num_nodes:,} nodes take {least / 1e9:.1f} GB to divide, but memory"
            f" is {memory / 1e9:.1f} GB. Give more."
        )
    if graph.missing_values and features == "as-is":
        raise ValueError(
            "Features have missing values, which are replaced when features are "
            "scaled. Give features='auto', or fill them in."
        )
    graph, _, said = complete_split(graph, 0, seed)
    if said:
        say(said)
    if not graph.train.any() or not graph.validation.any():
        raise ValueError(
            "The graph has no train or no validation nodes, and too few labels to draw "
            "some. Label more nodes."
        )
    folder = pathlib.Path(out)
    # The method counts, not the memory limit, which may differ when resuming.
    about = {
        "format": FORMAT,
        "graph": _digest(graph),
        "parts": parts,
        "hops": hops,
        "method": method,
        "features": features,
        "seed": seed,
    }
    if (folder / MANIFEST).exists():
        _check_same(folder, about)
        say(f"{folder} is complete already.")
        return open_parts(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with held_folder(folder):
        _begin(folder, about)
        writer = _Writer(graph, folder, about, say, names)
        writer.assign(memory)
        writer.learn_scaling()
        for part in range(parts):
            writer.write_part(part)
        writer.write_sends()
        writer.write_roots()
        writer.write_manifest()
    return open_parts(folder)


def _digest(graph: Graph) -> str:
    """Return a digest of the graph."""
    features: Any = graph.features
    found = {"features": features}
    if sp.issparse(features):
        found = {n: getattr(features, n) for n in ("indptr", "indices", "data")}
        found = {f"features.{name}": array for name, array in found.items()}
    for name in ("indptr", "indices", "weights", "labels", "known", *SPLITS):
        if getattr(graph, name) is not None:
            found[name] = getattr(graph, name)
    return digest(found).hex()


def _begin(folder: pathlib.Path, about: dict[str, Any]) -> None:
    """Start in an empty folder, or check that its arguments were the same."""
    if (folder / _PROGRESS).exists():
        _check_same(folder, about)
        sweep(folder)
        return
    if any(path.name != LOCK for path in folder.iterdir()):
        raise ValueError(
            f"{folder} is not empty, and holds no partitioning. Give another folder."
        )
    write_atomically(folder / _PROGRESS, (json.dumps(about) + "\n").encode())


def _check_same(folder: pathlib.Path, about: dict[str, Any]) -> None:
    found = read_json(folder / _PROGRESS)
    if not isinstance(found, dict):
        raise ValueError(f"{folder / _PROGRESS} is damaged. Remove {folder}.")
    for name, value in about.items():
        if found.get(name) != value:
            raise ValueError(
                f"{folder} holds another partitioning: {name} is {value!r}, but "
                f"{found.get(name)!r} there. Give another folder, or remove this one."
            )


class _Writer:
    """Writes the folder of a partitioning; skips existing files."""

    def __init__(
        self,
        graph: Graph,
        folder: pathlib.Path,
        about: dict[str, Any],
        say: Say,
        names: pathlib.Path | None,
    ):
        self.graph, self.folder, self.about, self.say = graph, folder, about, say
        self.parts, self.hops = about["parts"], about["hops"]
        self.scaling: Scaling | None = None
        self.names = names if names is not None and names.exists() else None

    def assign(self, memory: int) -> None:
        """Assign nodes to parts."""
        path = self.folder / ASSIGNMENT
        if not path.exists():
            kind, seed = self.about["method"], self.about["seed"]
            found = assign(self.graph, self.parts, kind, memory, seed)
            write_atomically(path, lambda file: np.save(file, found))
            self.say(f"Assigned {len(found):,} nodes to {self.parts} parts.")
        self.owner = check_ids(read_npy(path), self.parts, str(path))
        if len(self.owner) != self.graph.num_nodes:
            raise ValueError(f"{path} is damaged. Remove {self.folder}.")
        # Own nodes are ordered by id; this is the position of each in its part.
        self.rank = np.zeros(len(self.owner), np.int32)
        for part in range(self.parts):
            own = np.flatnonzero(self.owner == part)
            self.rank[own] = np.arange(len(own), dtype=np.int32)

    def learn_scaling(self) -> None:
        """Learn the scaling of features from all nodes."""
        if self.about["features"] == "as-is":
            return
        path = self.folder / SCALING
        if not path.exists():
            scaling = learn_scaling(self.graph.features, self.graph.feature_names)
            arrays: Any = scaling.pack()[1]
            kind = np.array(scaling.kind)
            write_atomically(path, lambda file: np.savez(file, kind=kind, **arrays))
        self.scaling = read_scaling(path, self.graph.feature_names)

    def write_part(self, part: int) -> None:
        """Write the folder of a part."""
        target = self.folder / folder_of(part)
        if target.exists():
            return
        graph = self.graph
        own = np.flatnonzero(self.owner == part)
        distance = mark_within(graph, own, self.hops)
        shells = [np.flatnonzero(distance == k) for k in range(self.hops + 1)]
        del distance
        nodes = np.concatenate(shells)
        within = np.cumsum([len(shell) for shell in shells]).tolist()
        readers = nodes[: within[max(0, self.hops - 1)]] if self.hops else nodes[:0]
        place = np.full(graph.num_nodes, -1, np.int32)
        place[nodes] = np.arange(len(nodes), dtype=np.int32)
        lengths = graph.indptr[readers + 1] - graph.indptr[readers]
        indptr = np.full(len(nodes) + 1, int(lengths.sum()), np.int64)
        indptr[: len(readers) + 1] = np.concatenate([[0], np.cumsum(lengths)])
        halo = nodes[within[0] :]
        order = np.lexsort((self.rank[halo], self.owner[halo]))
        receive = (within[0] + order).astype(np.int32)
        with new_folder(target) as made:
            fields = {n: getattr(graph, n) for n in ("multilabel", "label_names")}
            fields |= {"directed": graph.directed, "num_features": self.num_features}
            if graph.classes:
                fields["classes"] = graph.classes
            with new_graph_folder(made / "graph", **fields) as files:
                np.save(files / "indptr.npy", indptr)
                self._write_edges(files, readers, place, int(indptr[-1]))
                self._write_features(files, nodes)
                for name in ("labels", "known", "train", "validation", "test"):
                    np.save(files / f"{name}.npy", getattr(graph, name)[nodes])
            np.save(made / "ids.npy", nodes)
            np.save(made / "degrees.npy", self._degrees(nodes))
            np.save(made / "receive.npy", receive)
            np.save(made / "request.npy", self.rank[halo[order]])
            if self.names is not None:
                self._write_names(self.names, made, own)
            elif graph.node_names:
                names = names_to_json([graph.node_names[i] for i in own])
                (made / NAMES).write_text(json.dumps(names) + "\n")
            sets = ("known", "train", "validation", "test")
            own_sets = {n: int(getattr(graph, n)[own].sum()) for n in sets}
            trained = graph.labels[own[np.asarray(graph.train[own])]]
            data = {
                "within": within,
                "edges": int(indptr[-1]),
                "own_edges": int(lengths[: within[0]].sum()),
                "sets": own_sets,
                "train_labels": trained.sum(axis=0, dtype=np.int64).tolist(),
                "receives": np.bincount(
                    self.owner[halo], minlength=self.parts
                ).tolist(),
                "files": _digests(made),
                "bytes": sum(p.stat().st_size for p in _files(made)),
            }
            (made / PART).write_text(json.dumps(data, indent=1) + "\n")
        self.say(
            f"Part {part}: {within[0]:,} own nodes, {within[-1] - within[0]:,} in the "
            f"halo, {data['edges']:,} edges."
        )

    def _write_names(
        self, names: pathlib.Path, made: pathlib.Path, own: np.ndarray
    ) -> None:
        """Write the names of own nodes, from a table of all names."""
        arrow = import_or_explain("pyarrow", "partition")
        parquet = import_or_explain("pyarrow.parquet", "partition", "pyarrow")
        start = 0
        with (
            opened_parquet(names) as source,
            parquet.ParquetWriter(made / NAMES_TABLE, source.schema_arrow) as writer,
        ):
            if source.metadata.num_rows != self.graph.num_nodes:
                raise ValueError(f"it has {source.metadata.num_rows} names of nodes")
            for batch in source.iter_batches(_NAMES_AT_ONCE):
                stop = start + batch.num_rows
                here = own[np.searchsorted(own, start) : np.searchsorted(own, stop)]
                rows = arrow.Table.from_batches([batch]).take(here - start)
                writer.write_table(rows)
                start = stop

    @property
    def num_features(self) -> int:
        """Number of columns written."""
        scaling = self.scaling
        return self.graph.num_features if scaling is None else scaling.num_scaled

    def _write_edges(
        self, files: pathlib.Path, readers: np.ndarray, place: np.ndarray, count: int
    ) -> None:
        graph, done = self.graph, 0
        names = ["indices"] if graph.weights is None else ["indices", "weights"]
        dtypes = {"indices": np.int32, "weights": np.float32}
        out = {n: create_npy(files / f"{n}.npy", dtypes[n], (count,)) for n in names}
        for places in edge_blocks(graph, readers):
            rows = slice(done, done + len(places))
            # In the order of the whole graph, so that sums round alike.
            out["indices"][rows] = place[graph.indices[places]]
            if graph.weights is not None:
                out["weights"][rows] = graph.weights[places]
            done += len(places)

    def _write_features(self, files: pathlib.Path, nodes: np.ndarray) -> None:
        def rows() -> Iterator[Any]:
            for start in range(0, len(nodes), _ROWS_AT_ONCE):
                part = self.graph.features[nodes[start : start + _ROWS_AT_ONCE]]
                yield self._scaled(part)

        if sp.issparse(self._scaled(self.graph.features[:1])):
            matrix = sp.csr_array(sp.vstack(list(rows()), format="csr"))
            np.save(files / "features.indptr.npy", matrix.indptr.astype(np.int64))
            np.save(files / "features.indices.npy", matrix.indices.astype(np.int32))
            np.save(files / "features.data.npy", matrix.data.astype(np.float32))
            return
        shape = len(nodes), self.num_features
        out, done = create_npy(files / "features.npy", np.float32, shape), 0
        for part in rows():
            out[done : done + len(part)] = part
            done += len(part)

    def _scaled(self, part: Any) -> Any:
        part = part if sp.issparse(part) else np.asarray(part)
        return part if self.scaling is None else self.scaling.apply(part)

    def _degrees(self, nodes: np.ndarray) -> np.ndarray:
        graph = self.graph
        if graph.weights is None:
            return (graph.indptr[nodes + 1] - graph.indptr[nodes]).astype(np.float32)
        found = [np.zeros(0)]
        for some in node_blocks(graph, nodes):
            starts: Any = graph.indptr[some]
            lengths = graph.indptr[some + 1] - starts
            found.append(run_sums(graph.weights[ranges(starts, lengths)], lengths))
        return np.concatenate(found).astype(np.float32)

    def about_part(self, part: int) -> dict[str, Any]:
        """Return the description of a part that is already written."""
        path = self.folder / folder_of(part) / PART
        found = read_json(path)
        if not isinstance(found, dict) or len(found.get("receives", ())) != self.parts:
            raise ValueError(f"{path} is damaged. Remove {path.parent}.")
        return found

    def write_sends(self) -> None:
        """Write, for each part, which of its nodes the others need."""
        counts = np.array([self.about_part(q)["receives"] for q in range(self.parts)])
        for part in range(self.parts):
            path = self.folder / sends_of(part)
            if path.exists():
                continue
            found = []
            for other in range(self.parts):
                stop = int(counts[other, : part + 1].sum())
                start = stop - int(counts[other, part])
                request = map_npy(self.folder / folder_of(other) / "request.npy")
                found.append(request[start:stop])
            rows = np.concatenate(found).astype(np.int32)
            write_atomically(path, functools.partial(np.save, arr=rows))

    def write_roots(self) -> None:
        """Write ids, owners and sizes of training and validation nodes."""
        graph = self.graph
        for name in ("train", "validation"):
            path = self.folder / ROOTS[name]
            if path.exists():
                continue
            ids = np.flatnonzero(getattr(graph, name))
            sizes = [np.zeros(0, np.int64)]
            sizes += [neighbourhood(graph, some) for some in node_blocks(graph, ids)]
            arrays: dict[str, Any] = {
                "ids": ids,
                "sizes": np.concatenate(sizes).astype(np.int64),
                "owners": self.owner[ids],
            }
            if name == "validation":
                arrays["labels"] = np.asarray(graph.labels[ids])
            with new_folder(path) as made:
                for key, array in arrays.items():
                    np.save(made / f"{key}.npy", array)

    def write_manifest(self) -> None:
        """Write the manifest, which completes the folder."""
        graph = self.graph
        about = [self.about_part(part) for part in range(self.parts)]
        shared = [self.folder / sends_of(part) for part in range(self.parts)]
        shared += [f for name in ROOTS.values() for f in _files(self.folder / name)]
        shared += [self.folder / SCALING] * (self.scaling is not None)
        data = {
            "format": FORMAT,
            "hops": self.hops,
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "cut": count_cut(graph, self.owner),
            "directed": graph.directed,
            "weighted": graph.weights is not None,
            "multilabel": graph.multilabel,
            "label_names": graph.label_names,
            "classes": graph.classes,
            "columns": self.num_features,
            "features": self.about["features"],
            "row_norm": row_norm(self._scaled(sample_rows(graph.features))),
            "feature_names": graph.feature_names,
            "most_neighbours": int(
                max(np.diff(graph.indptr[a : b + 1]).max() for a, b in blocks(graph))
            ),
            "parts": about,
            "files": {
                path.relative_to(self.folder).as_posix(): sha256(path)
                for path in shared
            },
        }
        text = json.dumps(data, indent=1) + "\n"
        write_atomically(self.folder / MANIFEST, text.encode())
        with contextlib.suppress(FileNotFoundError):
            (self.folder / ASSIGNMENT).unlink()
        self.say(f"{self.folder} is complete.")


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _digests(folder: pathlib.Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): sha256(p) for p in _files(folder)}

"""The folder of a graph in parts: the manifest, and parts as memory maps."""

import dataclasses
import os
import pathlib
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hopf_jax.config import Config, Execution, Number, Whole
from hopf_jax.graph import (
    SPLITS,
    Graph,
    Label,
    PartGraph,
    Scaling,
    check_distinct,
    check_ids,
    classes_from_json,
    names_from_json,
    open_graph,
)
from hopf_jax.inference import LEAST_CHUNK_EDGES, nodes_per_chunk
from hopf_jax.kernels import Kernel
from hopf_jax.runtime import (
    MALFORMED,
    load_npz,
    map_npy,
    read_json,
    read_parquet,
    sha256,
    text_table,
)

FORMAT = 1
# Bytes of a process: Python, JAX and its compiler; per training or validation node, to
# form batches; and per edge of a chunk.
_TRAINING, _PREDICTING = 470_000_000, 360_000_000
_PER_ROOT, _PER_CHUNK_EDGE = 48, 80
# Batches: words per node and edge, hidden states of a step, copies if streamed.
_WORDS_PER_NODE, _WORDS_PER_EDGE, _STATES, _STREAMED = 8, 8, 6, 5
MANIFEST, ASSIGNMENT, SCALING = "manifest.json", "assignment.npy", "scaling.npz"
PART, NAMES, NAMES_TABLE = "part.json", "names.json", "names.parquet"
ROOTS = {"train": "training-nodes", "validation": "validation-nodes"}


def folder_of(part: int) -> str:
    """Return the folder name of a part."""
    return f"part-{part:04d}"


def sends_of(part: int) -> str:
    """Return the name of the file with the nodes that other parts need."""
    return f"sends-{part:04d}.npy"


@dataclasses.dataclass(frozen=True)
class PartInfo:
    """A part as the manifest describes it.

    Attributes:
      within: Number of nodes within 0, 1, ... hops of its own nodes.
      edges, own_edges: Number of edges it holds, and of those into its own nodes.
      sets: Number of own nodes that are known, train, validation and test.
      train_labels: Number of training nodes per label, [C].
      receives: Number of halo nodes by owner, [P].
      files: The sha256 of each of its files.
      bytes: Total size of the files.
    """

    within: tuple[int, ...]
    edges: int
    own_edges: int
    sets: Mapping[str, int]
    train_labels: tuple[int, ...]
    receives: tuple[int, ...]
    files: Mapping[str, str]
    bytes: int

    @property
    def num_own(self) -> int:
        """Number of own nodes."""
        return self.within[0]

    @property
    def num_nodes(self) -> int:
        """Number of nodes, including the halo."""
        return self.within[-1]


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """An opened part, whose arrays are memory maps.

    Attributes:
      number: Its number, from 0.
      graph: Its nodes, own ones first, then by distance; the edges into all but the
        outermost.
      ids: Their ids in the whole graph, [n]; own ones ascend.
      own: Its own nodes alone, without edges and features.
      sends: Positions of own nodes that other parts need, part by part.
      receive: Positions of halo nodes, by owner.
      folder: Where it is.
    """

    number: int
    graph: PartGraph
    ids: np.ndarray
    own: Graph
    sends: np.ndarray
    receive: np.ndarray
    folder: pathlib.Path

    def read_names(self) -> tuple[Any, ...]:
        """Return the names of own nodes, or () if nodes have none."""
        path = self.folder / NAMES_TABLE
        if path.exists():
            columns = read_parquet(path)[1]
            if len(columns) != 1 or len(columns[0]) != self.num_own:
                raise ValueError(f"{path} does not have {self.num_own} names.")
            (names,) = columns
            return tuple(names.tolist() if isinstance(names, np.ndarray) else names)
        if (self.folder / NAMES).exists():
            return names_from_json(read_json(self.folder / NAMES), self.num_own)
        return ()

    @property
    def num_own(self) -> int:
        """Number of own nodes."""
        return self.own.num_nodes

    @property
    def num_nodes(self) -> int:
        """Number of nodes, including the halo."""
        return self.graph.num_nodes


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Parts:
    """A graph in parts, as `partition` wrote it; `fit` learns from it.

    In a job of several processes (`hopf_jax.processes`) each opens its own parts only.

    Attributes:
      folder: Where it is.
      hops: Number of hops of the halos.
      num_nodes, num_edges, num_features: Of the whole graph; entries of A, and columns
        as they are stored.
      cut: Number of entries of A between parts.
      parts: Description of each part.
      label_names, classes, multilabel, directed, feature_names: As in `Graph`.
      features: How they are stored: "auto" (scaled), or "as-is".
      row_norm: Root mean square of the row norms of features, in the whole graph.
      most_neighbours: Largest number of neighbours of a node.
      files: The sha256 of each shared file.
      digest: The sha256 of the manifest, which contains those of all other files.
      check: Verify checksums when files are opened.
    """

    folder: pathlib.Path
    hops: int
    num_nodes: int
    num_edges: int
    num_features: int
    cut: int
    parts: tuple[PartInfo, ...]
    label_names: tuple[str, ...]
    classes: tuple[Label, ...]
    multilabel: bool
    directed: bool
    features: str
    row_norm: float
    feature_names: tuple[str, ...]
    most_neighbours: int
    files: Mapping[str, str]
    digest: str
    check: bool = True

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def num_labels(self) -> int:
        """Number of classes or labels, C."""
        return len(self.label_names)

    @property
    def train_labels(self) -> np.ndarray:
        """Number of training nodes per label, [C]."""
        return np.array([part.train_labels for part in self.parts], np.int64).sum(0)

    @property
    def sends(self) -> np.ndarray:
        """Number of rows sent from part p to part q in an exchange, [P, P]."""
        return np.array([part.receives for part in self.parts], np.int64).T

    def count(self, name: str) -> int:
        """Count the nodes of a set ("known", "train", ...) in all parts."""
        return sum(part.sets[name] for part in self.parts)

    def held_by(self, process: int, processes: int) -> range:
        """Return the numbers of the parts held by a process of a job.

        Raises:
          ValueError: The number of parts is not a multiple of that of processes.
        """
        if len(self) % processes:
            raise ValueError(
                f"{processes} processes cannot share {len(self)} parts evenly. Start "
                "as many as divide it, or partition the graph anew."
            )
        each = len(self) // processes
        return range(process * each, (process + 1) * each)

    def exchanged_bytes(self, processes: int, width: int | None = None) -> int:
        """Return the bytes sent between processes in an exchange of label summaries.

        Args:
          processes: Number of processes of the job.
          width: Number of columns; None for the number of labels.
        """
        holder = np.repeat(np.arange(processes), len(self.held_by(0, processes)))
        apart = holder[:, None] != holder[None, :]
        width = self.num_labels if width is None else width
        return 4 * width * int(self.sends[apart].sum())

    def open(self, number: int) -> Part:
        """Open a part.

        Raises:
          ValueError: A file is missing or damaged.
        """
        info, folder = self.parts[number], self.folder / folder_of(number)
        shared = sends_of(number)
        if self.check:
            _compare(folder, info.files)
            _compare(self.folder, {shared: self.files[shared]})
        n, own = info.num_nodes, info.num_own
        try:
            graph = open_graph(folder / "graph", check=self.check)
            degrees = map_npy(folder / "degrees.npy")
        except OSError as error:
            raise ValueError(f"{folder} cannot be read: {error}.") from error
        ids = _map_ids(folder / "ids.npy", n, self.num_nodes)
        receive = _map_ids(folder / "receive.npy", n - own, n)
        sends = _map_ids(self.folder / shared, int(self.sends[number].sum()), own)
        valid = (
            graph.num_nodes == n
            and graph.num_edges == info.edges
            and graph.num_labels == self.num_labels
            and graph.num_features == self.num_features
            and (ids[1:own] > ids[: own - 1]).all()
            and (receive >= own).all()
            and degrees.dtype == np.float32
            and degrees.shape == (n,)
            and (np.isfinite(degrees) & (degrees >= 0)).all()
        )
        if not valid:
            raise ValueError(f"{folder} is not the part that {MANIFEST} describes.")
        fields = {f.name: getattr(graph, f.name) for f in dataclasses.fields(Graph)}
        part = PartGraph(**fields, degrees=degrees)
        masks = {n: np.asarray(getattr(graph, n)[:own]) for n in ("known", *SPLITS)}
        alone = self.without_edges(graph.labels[:own], masks)
        return Part(number, part, ids, alone, sends, receive, folder)

    def without_edges(
        self, labels: np.ndarray, masks: Mapping[str, np.ndarray]
    ) -> Graph:
        """Return some nodes as a graph without edges and features.

        Args:
          labels: Their labels, [n, C].
          masks: Boolean [n] for known, train, validation and test.
        """
        return Graph(
            indptr=np.zeros(len(labels) + 1, np.int64),
            indices=np.zeros(0, np.int32),
            weights=None,
            features=np.zeros((len(labels), 0), np.float32),
            labels=labels,
            known=masks["known"],
            train=masks["train"],
            validation=masks["validation"],
            test=masks["test"],
            multilabel=self.multilabel,
            label_names=self.label_names,
        )

    def roots(self, name: str) -> dict[str, np.ndarray]:
        """Return ids, owners and sizes of all roots of a set, as memory maps.

        Args:
          name: "train" or "validation".

        Returns:
          ids [n], ascending; owners [n], their parts; sizes [n] of their
          neighbourhoods; of validation nodes also labels [n, C].
        """
        files = _files_of_roots(name)
        if self.check:
            _compare(self.folder, {f: self.files[f] for f in files.values()})
        most = {"ids": self.num_nodes, "owners": len(self), "sizes": 2**62}
        found = {
            key: _map_ids(self.folder / files[key], self.count(name), limit)
            for key, limit in most.items()
        }
        if (found["ids"][1:] <= found["ids"][:-1]).any():
            raise ValueError(f"{self.folder / files['ids']} is not in order.")
        if name == "validation":
            labels = found["labels"] = map_npy(self.folder / files["labels"])
            shape = self.count(name), self.num_labels
            if labels.dtype != np.uint8 or labels.shape != shape or (labels > 1).any():
                raise ValueError(f"{self.folder / files['labels']} holds no labels.")
        return found

    @property
    def scaling(self) -> Scaling | None:
        """Scaling of the features; None if they are not scaled."""
        if self.features == "as-is":
            return None
        _compare(self.folder, {SCALING: self.files[SCALING]})
        found = read_scaling(self.folder / SCALING, self.feature_names)
        if found.num_scaled != self.num_features:
            raise ValueError(f"{self.folder / SCALING} is of other features.")
        return found

    def peak_bytes(
        self,
        kernel: Kernel,
        config: Config,
        processes: int,
        execution: Execution | None = None,
    ) -> int:
        """Estimate the peak memory of `fit` in the largest process, in bytes.

        Excludes pages of mapped files, which the system can reclaim. For CPUs.

        Args:
          kernel: The kernel.
          config: Its settings.
          processes: Number of processes of the job.
          execution: As in `fit`.
        """
        execution = Execution() if execution is None else execution
        hidden, labels = config.hidden_size, self.num_labels
        layers = kernel.num_layers(config.num_hops)
        peaks = []
        for process in range(processes):
            held = [self.parts[i] for i in self.held_by(process, processes)]
            kept = sum(4 * p.num_nodes + len(SPLITS) * p.num_own for p in held)
            one: float = max(
                _predicting(p, kernel, layers, hidden, labels) for p in held
            )
            if kernel.iterative and (
                config.scale_summaries or config.caution != "none"
            ):  # Label summaries, as the kernel reads them.
                one += 4 * labels * max(p.num_nodes for p in held)
            mean = sum(p.edges for p in held) / max(1, sum(p.num_nodes for p in held))
            most = max(p.edges for p in held)
            edges = execution.chunk_edges or LEAST_CHUNK_EDGES
            chunk = min(edges, nodes_per_chunk(edges) * mean, most)
            one += _PER_CHUNK_EDGE * chunk
            # The memory of batches is released before all nodes are predicted.
            batches = self._batch_bytes(held, kernel, config, execution)
            peaks.append(kept + max(_TRAINING + batches, _PREDICTING + one))
        roots = self.count("train") + self.count("validation")
        return int(max(peaks) + _PER_ROOT * roots)

    def _batch_bytes(
        self,
        held: Sequence[PartInfo],
        kernel: Kernel,
        config: Config,
        execution: Execution,
    ) -> float:
        """Estimate the bytes of batches of some parts, by the mean degree."""
        degree = self.num_edges / self.num_nodes
        roots = min(config.batch_size, self.count("train")) / len(self)
        hops = kernel.reach(config.num_hops)
        near = roots * sum(degree**k for k in range(hops + 1))
        total = temporary = 0.0
        for part in held:
            nodes = min(near, part.num_nodes)
            edges = min(near - roots, part.edges)
            columns = self.num_features + self.num_labels + _WORDS_PER_NODE
            total += 4 * (nodes * columns + _WORDS_PER_EDGE * edges)
            temporary = max(temporary, 4 * _STATES * config.hidden_size * nodes)
        count = max(2, -(-self.count("train") // config.batch_size))
        resident = count * total <= execution.memory_budget
        # On the host and on the device; if streamed, also the next batch.
        return temporary + total * (2 * count if resident else _STREAMED)

    @property
    def halo_factor(self) -> float:
        """Number of nodes that all parts hold together, per node of the graph."""
        return sum(part.num_nodes for part in self.parts) / self.num_nodes

    @property
    def balance(self) -> float:
        """Size of the largest part, divided by the mean size."""
        return max(p.num_own for p in self.parts) * len(self) / self.num_nodes

    def report(self) -> str:
        """Return cut, halo and balance as text, with one row per part."""
        cut = self.cut / max(1, self.num_edges)
        edges = sum(part.edges for part in self.parts) / max(1, self.num_edges)
        lines = [
            f"{self.num_nodes:,} nodes and {self.num_edges:,} edges in {len(self)} "
            f"parts, with a halo of {self.hops} hops.",
            f"Cut: {self.cut:,} edges ({cut:.1%}) are between parts.",
            f"Halo: the parts hold {self.halo_factor:.2f} times the nodes of the graph,"
            f" and {edges:.2f} times its edges.",
            f"Balance: the largest part has {self.balance:.2f} times the mean number of"
            " own nodes.",
            f"Exchange: {4 * self.num_labels * int(self.sends.sum()):,} bytes of label "
            "summaries per iteration between parts.",
        ]
        cells: list[tuple[str, ...]] = [
            ("part", "own nodes", "halo", "edges", "train", "sends", "MB")
        ]
        sends = self.sends.sum(axis=1)
        for i, part in enumerate(self.parts):
            row = part.num_own, part.num_nodes - part.num_own, part.edges
            more = part.sets["train"], int(sends[i])
            shown = [f"{value:,}" for value in (*row, *more)]
            cells.append((str(i), *shown, f"{part.bytes / 1e6:.1f}"))
        return "\n".join([*lines, "", text_table(cells)])

    def __repr__(self) -> str:
        return (
            f"Parts({len(self)} of {self.num_nodes} nodes and {self.num_edges} edges, "
            f"halo of {self.hops} hops, {self.halo_factor:.2f} times the nodes, "
            f"{self.cut / max(1, self.num_edges):.1%} of the edges cut)"
        )


def _predicting(
    part: PartInfo, kernel: Kernel, layers: int, hidden: int, labels: int
) -> int:
    """Estimate the bytes of the arrays used to predict a part."""
    within = [part.within[min(k, len(part.within) - 1)] for k in range(layers + 1)]
    first = within[layers] if kernel.input_layer else within[max(0, layers - 1)]
    stored = first if kernel.input_layer or kernel.embeds else 0
    rows = [
        within[layers - k] + (within[layers - k + 1] if k > 1 else 0)
        for k in range(1, layers + 1)
    ]
    width = hidden * (2 if kernel.concat else 1)
    states = 4 * (hidden * stored + width * max(rows, default=0))
    outputs = 4 * labels * part.num_own
    places = 2 * 4 * part.num_nodes
    return places + max(states + outputs, 4 * outputs)


def _files_of_roots(name: str) -> dict[str, str]:
    """Return the file names of training or validation nodes by content."""
    keys = ["ids", "owners", "sizes"] + ["labels"] * (name == "validation")
    return {key: f"{ROOTS[name]}/{key}.npy" for key in keys}


def read_scaling(path: pathlib.Path, names: tuple[str, ...]) -> Scaling:
    """Read feature scaling from a file that `partition` wrote."""
    arrays = load_npz(path)
    try:
        return Scaling.unpack(str(arrays.pop("kind")), arrays, names)
    except MALFORMED as error:
        raise ValueError(f"{path} does not hold a scaling: {error}.") from error


def _map_ids(path: pathlib.Path, count: int, limit: int) -> np.ndarray:
    """Map `count` integers, checked to be between 0 and `limit` - 1."""
    try:
        found = check_ids(map_npy(path), limit, path.stem)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if len(found) != count:
        raise ValueError(f"{path} has {len(found)} entries, not {count}.")
    return found


def open_parts(folder: str | os.PathLike, *, check: bool = True) -> Parts:
    """Open a graph in parts, which `partition` wrote, to fit it.

    Args:
      folder: Where it is.
      check: Verify the checksums of opened files.

    Raises:
      ValueError: The folder does not hold a complete partitioning.
    """
    folder = pathlib.Path(folder)
    path = folder / MANIFEST
    if not path.exists():
        raise ValueError(
            f"{folder} holds no {MANIFEST}: it is no graph in parts, or not complete. "
            "`hopf partition` makes one, and goes on with one that was stopped."
        )
    try:
        return _read(folder, read_json(path), check)
    except MALFORMED as error:
        raise ValueError(f"{path} cannot be read: {error}.") from error


def _read(folder: pathlib.Path, data: dict[str, Any], check: bool) -> Parts:
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']}, this version reads {FORMAT}")
    names = data["label_names"]
    parts = tuple(_read_part(each, len(data["parts"]), data) for each in data["parts"])
    whole = Whole(0, 2**62).accepts
    numbers = ("nodes", "edges", "cut", "columns", "most_neighbours")
    valid = {name: whole(data[name]) for name in numbers}
    valid |= {name: isinstance(data[name], bool) for name in ("multilabel", "directed")}
    valid["hops"] = Whole(0, 16).accepts(data["hops"])
    valid["features"] = data["features"] in ("auto", "as-is")
    valid["row_norm"] = Number(0, open_below=True).accepts(data["row_norm"])
    valid["label_names"] = isinstance(names, list) and all(
        isinstance(name, str) for name in names
    )
    valid["feature_names"] = isinstance(data["feature_names"], list) and all(
        isinstance(n, str) for n in data["feature_names"]
    )
    shared = {sends_of(part) for part in range(len(parts))}
    shared.update(*(_files_of_roots(name).values() for name in ROOTS))
    shared.update([SCALING] * (data["features"] == "auto"))
    valid["files"] = _are_digests(data["files"]) and shared <= data["files"].keys()
    nodes = sum(part.num_own for part in parts)
    valid["parts"] = len(parts) > 1 and 0 < nodes == data["nodes"]
    for name, holds in valid.items():
        if not holds:
            raise ValueError(f"its {name} cannot be right: {reprlib.repr(data[name])}")
    check_distinct(names)
    return Parts(
        folder=folder,
        hops=data["hops"],
        num_nodes=data["nodes"],
        num_edges=data["edges"],
        num_features=data["columns"],
        cut=data["cut"],
        parts=parts,
        label_names=tuple(names),
        classes=classes_from_json(data["classes"], len(names)),
        multilabel=data["multilabel"],
        directed=data["directed"],
        features=data["features"],
        row_norm=float(data["row_norm"]),
        feature_names=tuple(data["feature_names"]),
        most_neighbours=data["most_neighbours"],
        files=data["files"],
        digest=sha256(folder / MANIFEST),
        check=check,
    )


def _read_part(each: dict[str, Any], count: int, data: dict[str, Any]) -> PartInfo:
    whole = Whole(0, 2**62).accepts
    lists = {
        "within": data["hops"] + 1,
        "train_labels": len(data["label_names"]),
        "receives": count,
    }
    valid = (
        all(
            isinstance(each[name], list)
            and len(each[name]) == length
            and all(map(whole, each[name]))
            for name, length in lists.items()
        )
        and each["within"] == sorted(each["within"])
        and sum(each["receives"]) == each["within"][-1] - each["within"][0]
        and set(each["sets"]) == {"known", "train", "validation", "test"}
        and all(map(whole, each["sets"].values()))
        and all(whole(each[name]) for name in ("edges", "own_edges", "bytes"))
        and _are_digests(each["files"])
    )
    if not valid:
        raise ValueError("its parts cannot be right")
    fields: dict[str, Any] = {n: tuple(each[n]) for n in lists}
    return PartInfo(**each | fields)


def _are_digests(files: Any) -> bool:
    return all(
        isinstance(value, str)
        and len(value) == 64
        and not pathlib.PurePosixPath(name).is_absolute()
        and ".." not in pathlib.PurePosixPath(name).parts
        for name, value in files.items()
    )


def _compare(folder: pathlib.Path, digests: Mapping[str, str]) -> None:
    """Raise `ValueError` if a file is missing or its sha256 differs."""
    for name, wanted in digests.items():
        path = folder / name
        if not path.exists():
            raise ValueError(f"{path} is missing. Partition the graph anew.")
        if sha256(path) != wanted:
            raise ValueError(
                f"{path} is damaged: its sha256 is not that of the manifest. Copy it "
                "again, or partition the graph anew."
            )

"""`load_dataset`: a dataset by its name, as a `Graph` with a split."""

import dataclasses
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.datasets import compact, fetch, formats
from hopf_jax.datasets.compact import Contents
from hopf_jax.datasets.registry import DATASETS, Counts, Dataset, Layout
from hopf_jax.datasets.synthetic import SYNTHETIC, make_chain
from hopf_jax.graph import Graph, check_draw, decode_split, draw_split, split_graph


def load_dataset(
    name: str,
    *,
    fold: int = 1,
    percent: float = 10,
    seed: int = 0,
    split: str = "transductive",
    normalize: bool = True,
    data_dir: str | Path | None = None,
) -> Graph:
    """A dataset of the paper by name (`DATASETS`), or a synthetic one (`SYNTHETIC`).

    Files are looked for in `data_dir`, `HOPF_DATA`, ../shared/datasets beside the
    checkout and the cache (`HOPF_CACHE`, else the platform's), then fetched. They are
    verified and converted once, to a compact form that later calls read.

    Args:
      fold, percent: the training set. The authors' own where they published it (10%,
        folds 1 to 5), else drawn as the paper says; see `draw_split`.
      seed: of what is drawn: splits and synthetic graphs.
      split: "transductive", or "inductive" for the graphs to learn from and to test
        on that human and human-go2022 come with.
      normalize: make the absolute values of each row of features sum to 1, but for
        Reddit's, which the authors left as they are. An all-zero row stays zero.

    Raises:
      ValueError: an unknown name, fold, percent or split.
      DatasetError: the files are damaged, or cannot be had; the message says from
        where, and where to put them.

    >>> load_dataset("chain").num_nodes
    6
    """
    if not isinstance(name, str) or (name not in DATASETS and name not in SYNTHETIC):
        raise ValueError(
            f"Unknown dataset {name!r}. Known: {', '.join(DATASETS)}; synthetic: "
            f"{', '.join(SYNTHETIC)}."
        )
    if not isinstance(split, str) or split not in ("transductive", "inductive"):
        raise ValueError(f"split is {split!r}; use 'transductive' or 'inductive'.")
    if not (data_dir is None or isinstance(data_dir, str | os.PathLike)):
        raise ValueError(f"data_dir is {data_dir!r}; give the path of a folder.")
    check_draw(percent, fold, seed)
    if split == "inductive" and not (name in DATASETS and DATASETS[name].inductive):
        some = ", ".join(row.name for row in DATASETS.values() if row.inductive)
        raise ValueError(f"{name} has no inductive split; {some} have.")
    if name in SYNTHETIC:
        return _make(name, fold, percent, seed, normalize)
    dataset = DATASETS[name]
    contents = load_contents(dataset, data_dir)
    differences = check_counts(dataset, contents)
    if differences:
        warnings.warn(f"{name}: {' '.join(differences)}", stacklevel=2)
    features = contents.features
    if normalize and dataset.normalize:
        features = normalize_rows(features)
    graph = Graph.from_edges(
        contents.senders,
        contents.receivers,
        features,
        contents.labels,
        weights=contents.weights,
        multilabel=dataset.task == "multi-label",
        label_names=contents.label_names,
    )
    masks = _choose_split(name, contents, graph.known, split, percent, fold, seed)
    return graph.with_split(**masks)


def find(dataset: Dataset, data_dir: str | Path | None = None) -> Path | None:
    """The folder on this machine that a dataset is read from; None if it has none.

    It has all files, or, being the cache, the compact form of files seen before.
    """
    cache = fetch.cache_folder() / dataset.name
    complete = _complete(dataset, data_dir, in_cache=True)
    if complete is not None:
        return complete[0]
    name = _known_stem(dataset)
    kept = name is not None and compact.has(cache / ".compact", name)
    return cache if kept else None


def load_contents(dataset: Dataset, data_dir: str | Path | None = None) -> Contents:
    """What a dataset's files hold, from its compact form; made or fetched if need be.

    The compact form is put in .compact beside the files, or in the cache where that
    cannot be written.
    """
    cache = fetch.cache_folder() / dataset.name
    # With sources the files there are `fetch`'s to check; without, the user's own.
    complete = _complete(dataset, data_dir, in_cache=not dataset.sources)
    if complete is None:
        name = _known_stem(dataset)
        found = compact.load(cache / ".compact", name) if name is not None else None
        if found is not None:
            return found
        complete = fetch.fetch(dataset, data_dir), dataset.layouts[0]
    folder, layout = complete
    places = [cache / ".compact"]
    # A folder without any write bit is meant to stay as it is, even for root.
    if folder.stat().st_mode & 0o222:
        places.insert(0, folder / ".compact")
    return compact.convert_once(
        lambda: formats.read(folder, layout, dataset.checksums),
        compact.stem(dataset, layout, folder),
        list(dict.fromkeys(places)),
    )


def count(contents: Contents) -> Counts:
    """Sizes as the files hold them."""
    num_nodes, num_labels = contents.labels.shape
    num_features = contents.features.shape[1]
    return Counts(num_nodes, len(contents.senders), num_features, num_labels)


def count_edges(contents: Contents) -> dict[str, int]:
    """The number of edges, in each of the ways that papers count them."""
    low = np.minimum(contents.senders, contents.receivers).astype(np.int64)
    high = np.maximum(contents.senders, contents.receivers)
    num_nodes = len(contents.labels)
    edges = np.unique(low * num_nodes + high)
    loops = int(np.count_nonzero(edges // num_nodes == edges % num_nodes))
    return {
        "entries": len(contents.senders),  # As stored: repeats and loops too.
        "edges": edges.size,  # Distinct and undirected, with loops.
        "edges but loops": edges.size - loops,
        "arcs": 2 * edges.size - loops,  # Both directions; a loop is one arc.
        "arcs but loops": 2 * (edges.size - loops),
    }


def check_counts(dataset: Dataset, contents: Contents) -> list[str]:
    """Says where the counts differ from the registry's.

    Where nobody published what a file holds, the paper's number of edges must be one
    of `count_edges`.
    """
    found = count(contents)
    differences = [
        f"{getattr(found, field)} {field}, but {expected} are expected."
        for field, expected in dataclasses.asdict(dataset.counts).items()
        if expected is not None and getattr(found, field) != expected
    ]
    if dataset.counts.arcs is None and dataset.published is not None:
        ways = count_edges(contents)
        if dataset.published.arcs not in ways.values():
            counted = ", ".join(f"{number} {way}" for way, number in ways.items())
            differences.append(
                f"{counted}, but the paper prints {dataset.published.arcs}."
            )
    return differences


def normalize_rows(features: Any) -> np.ndarray | sp.csr_array:
    """Rows scaled so that their absolute values sum to 1; all-zero rows stay zero."""
    with np.errstate(over="ignore"):
        sums = np.asarray(abs(features).sum(axis=1), np.float32)
        scale = np.divide(1, sums, out=np.zeros_like(sums), where=sums > 0)
    if not (np.isfinite(sums) & np.isfinite(scale)).all():  # Beyond 32 bits on the way.
        features = features.astype(np.float64)
        sums = np.asarray(abs(features).sum(axis=1))
        scale = np.divide(1, sums, out=np.zeros_like(sums), where=sums > 0)
    if sp.issparse(features):
        data = features.data * np.repeat(scale, np.diff(features.indptr))
        return sp.csr_array((data, features.indices, features.indptr), features.shape)
    return np.asarray(features) * scale[:, None]


def _complete(
    dataset: Dataset, data_dir: str | Path | None, *, in_cache: bool
) -> tuple[Path, Layout] | None:
    """The first folder with all files of a layout, and that layout."""
    roots = fetch.search_path(data_dir)
    for root in [*roots, fetch.cache_folder()] if in_cache else roots:
        layout = fetch.complete_layout(dataset, root / dataset.name)
        if layout is not None:
            return root / dataset.name, layout
    return None


def _known_stem(dataset: Dataset) -> str | None:
    """The name of the compact form, if it can be told without the files."""
    layout = dataset.layouts[0]
    if not dataset.checksums.keys() >= set(layout.files):
        return None
    return compact.stem(dataset, layout, fetch.cache_folder() / dataset.name)


def _make(name: str, fold: int, percent: float, seed: int, normalize: bool) -> Graph:
    if name == "chain":
        return make_chain()  # The figure's: no seed, and a split of its own.
    graph = split_graph(
        SYNTHETIC[name](seed=seed), percent=percent, fold=fold, seed=seed
    )
    if normalize:
        graph = dataclasses.replace(graph, features=normalize_rows(graph.features))
    return graph


def _choose_split(
    name: str,
    contents: Contents,
    known: np.ndarray,
    split: str,
    percent: float,
    fold: int,
    seed: int,
) -> dict[str, np.ndarray]:
    if split == "inductive":
        if "inductive" not in contents.splits:
            raise ValueError(
                f"These files of {name} have no inductive split; GraphSAGE's have."
            )
        return decode_split(contents.splits["inductive"])
    published = {k: v for k, v in contents.splits.items() if k != "inductive"}
    key = f"{percent:g}/{fold}"
    if key in published:
        return decode_split(published[key])
    folds = sorted(k.split("/")[1] for k in published if k.startswith(f"{percent:g}/"))
    if folds:
        raise ValueError(
            f"fold is {fold}; at {percent:g}% the authors' files of {name} have folds "
            f"{', '.join(folds)}."
        )
    # At another percentage the authors' test nodes stay the test nodes.
    test = next((decode_split(v)["test"] for v in published.values()), None)
    return draw_split(known, percent=percent, fold=fold, seed=seed, test=test)

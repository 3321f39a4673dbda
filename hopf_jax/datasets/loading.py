"""`load_dataset`: a dataset by its name, as a `Graph` with a split."""

import dataclasses
import os
import warnings
from pathlib import Path

import numpy as np

from hopf_jax.datasets import cache, readers
from hopf_jax.datasets.contents import Contents, check_counts
from hopf_jax.datasets.download import download
from hopf_jax.datasets.locations import cache_folder, find_files
from hopf_jax.datasets.registry import DATASETS, Dataset
from hopf_jax.datasets.synthetic import SYNTHETIC
from hopf_jax.graph import (
    Graph,
    check_draw,
    decode_split,
    normalize_rows,
    paper_masks,
    paper_split,
)
from hopf_jax.suggestions import did_you_mean

_OFFICIAL = "official/"  # How the splits of benchmarks are named.
_DEFAULT_PERCENT = 10


def load_dataset(
    name: str,
    *,
    fold: int = 1,
    percent: float = _DEFAULT_PERCENT,
    seed: int = 0,
    split: str = "transductive",
    normalize: bool = True,
    data_dir: str | Path | None = None,
) -> Graph:
    """Load a dataset (`DATASETS`), or make a synthetic one (`SYNTHETIC`).

    Files are looked for in `data_dir`, `HOPF_DATA`, ../shared/datasets beside the
    checkout and the cache (`HOPF_CACHE`, or the platform's), then downloaded. They are
    verified and converted once; later calls read the converted copy.

    Args:
      name: Name of the dataset.
      fold: Number of the training set, 1 or more. The authors' set is used if they
        published it (10%, folds 1 to 5), and the official split of that number of a
        benchmark; else it is drawn as by `paper_split`.
      percent: Share of all nodes for training and validation together.
      seed: Seed of random splits and of synthetic graphs.
      split: "transductive", or "inductive" for the disjoint training and test graphs
        that some datasets have.
      normalize: Scale each row of features to absolute values that sum to 1, except
        Reddit's, which the authors did not scale.
      data_dir: Folder with one folder of files per dataset.

    Raises:
      ValueError: An argument is out of range, or there is no such dataset or split.
      DatasetError: The files are damaged or cannot be found; the message says where to
        get them, and where to put them.

    >>> load_dataset("chain").num_nodes
    6
    """
    if not isinstance(name, str) or (name not in DATASETS and name not in SYNTHETIC):
        hint = did_you_mean(name, (*DATASETS, *SYNTHETIC))
        hint += " " * bool(hint)
        raise ValueError(
            f"Unknown dataset {name!r}. {hint}Known: {', '.join(DATASETS)}; synthetic: "
            f"{', '.join(SYNTHETIC)}."
        )
    if not isinstance(split, str) or split not in ("transductive", "inductive"):
        raise ValueError(f"split is {split!r}; use 'transductive' or 'inductive'.")
    if not (data_dir is None or isinstance(data_dir, str | os.PathLike)):
        raise ValueError(f"data_dir is {data_dir!r}; give the path of a folder.")
    check_draw(percent, fold, seed)
    if split == "inductive" and not (name in DATASETS and DATASETS[name].inductive):
        some = ", ".join(row.name for row in DATASETS.values() if row.inductive)
        raise ValueError(f"{name} has no inductive split; {some} have one.")
    if name == "chain":
        return SYNTHETIC[name]()  # It is not random, and has a split of its own.
    if name in SYNTHETIC:
        graph = SYNTHETIC[name](seed=seed)
        graph = paper_split(graph, percent=percent, fold=fold, seed=seed)
        if normalize:
            graph = dataclasses.replace(graph, features=normalize_rows(graph.features))
        return graph
    dataset = DATASETS[name]
    contents = load_contents(dataset, data_dir)
    if differences := check_counts(dataset, contents):
        warnings.warn(f"{name}: {' '.join(differences)}", stacklevel=2)
    features = contents.features
    if normalize and dataset.normalize:
        features = normalize_rows(features)
    labels = contents.labels
    if not contents.splits:  # Published sets may have nodes without any label.
        labels = np.where(labels.any(axis=1, keepdims=True), labels, np.nan)
    graph = Graph.from_edges(
        contents.senders,
        contents.receivers,
        features,
        labels,
        weights=contents.weights,
        multilabel=dataset.task == "multi-label",
        label_names=contents.label_names,
    )
    if split == "inductive":
        if "inductive" not in contents.splits:
            raise ValueError(
                f"These files of {name} have no inductive split; GraphSAGE's have one."
            )
        masks = decode_split(contents.splits["inductive"])
    else:
        masks = _transductive_split(name, contents, graph.known, percent, fold, seed)
    return graph.with_split(**masks)


def find(dataset: Dataset, data_dir: str | Path | None = None) -> Path | None:
    """Return the folder on this machine that a dataset is read from, or None.

    It has all files, or is the cache with a converted copy of them.
    """
    if (found := find_files(dataset, data_dir, in_cache=True)) is not None:
        return found[0]
    folder, name = _cached(dataset)
    return folder.parent if name and (folder / f"{name}.npz").is_file() else None


def load_contents(dataset: Dataset, data_dir: str | Path | None = None) -> Contents:
    """Return what the files of a dataset hold; convert or download them if necessary.

    The converted copy is kept in .compact beside the files, or in the cache if that
    folder is read-only. It is used only if the cache has noted its digest.
    """
    in_cache, name = _cached(dataset)
    # If there are sources, it is `download` that verifies files in the cache.
    found = find_files(dataset, data_dir, in_cache=not dataset.sources)
    if found is None:
        contents = cache.load(in_cache, name, in_cache) if name else None
        if contents is not None:
            return contents
        found = download(dataset, data_dir), dataset.layouts[0]
    folder, layout = found
    places = [in_cache]
    # A folder without any write permission is left as it is, even by root. A link would
    # lead to a folder of others.
    if folder.stat().st_mode & 0o222 and not (folder / ".compact").is_symlink():
        places.insert(0, folder / ".compact")
    return cache.convert_once(
        lambda: readers.read(folder, layout, dataset.checksums),
        cache.cached_name(dataset, layout, folder),
        list(dict.fromkeys(places)),
        in_cache,
    )


def _cached(dataset: Dataset) -> tuple[Path, str | None]:
    """Return where the cache keeps a converted copy; no name if it depends on files."""
    folder = cache_folder() / dataset.name
    layout, name = dataset.layouts[0], None
    if dataset.checksums.keys() >= set(layout.files):
        name = cache.cached_name(dataset, layout, folder)
    return folder / ".compact", name


def _transductive_split(
    name: str,
    contents: Contents,
    known: np.ndarray,
    percent: float,
    fold: int,
    seed: int,
) -> dict[str, np.ndarray]:
    published = {k: v for k, v in contents.splits.items() if k != "inductive"}
    official = [k for k in published if k.startswith(_OFFICIAL)]
    if official and percent == _DEFAULT_PERCENT:
        if f"{_OFFICIAL}{fold}" not in official:
            raise ValueError(
                f"fold is {fold}; {name} has official splits 1 to {len(official)}."
            )
        return decode_split(published[f"{_OFFICIAL}{fold}"])
    key = f"{percent:g}/{fold}"
    if key in published:
        return decode_split(published[key])
    folds = sorted(k.split("/")[1] for k in published if k.startswith(f"{percent:g}/"))
    if folds:
        raise ValueError(
            f"fold is {fold}; at {percent:g}% the authors' files of {name} have folds "
            f"{', '.join(folds)}."
        )
    # The authors' test nodes are used at other percentages, too.
    test = next((decode_split(v)["test"] for v in published.values()), None)
    return paper_masks(known, percent=percent, fold=fold, seed=seed, test=test)

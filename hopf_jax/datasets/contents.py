"""`Contents`: a dataset as its files hold it, and its counts."""

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.datasets.registry import Counts, Dataset
from hopf_jax.graph import check_ids, check_sparse, prefers_sparse
from hopf_jax.metrics import one_hot
from hopf_jax.runtime import check_memory

_MOST_CLASSES = 10_000  # Or as many as there are nodes.


@dataclasses.dataclass(frozen=True)
class Contents:
    """A dataset as its files hold it: nothing is merged, dropped or normalised.

    `splits` maps "<percent>/<fold>" or "inductive" to one code per node: 0 no set,
    1 training, 2 validation, 3 test.
    """

    senders: np.ndarray  # [E] int32
    receivers: np.ndarray  # [E] int32
    features: Any  # [N, F] float32: an array, a memory map or a csr_array
    labels: np.ndarray  # [N, C] uint8
    label_names: tuple[str, ...]
    splits: dict[str, np.ndarray]  # [N] uint8
    weights: np.ndarray | None = None  # [E] float32; None if all are 1


def as_features(matrix: Any) -> np.ndarray | sp.csr_array:
    """Return features as float32, dense or CSR as `prefers_sparse` says."""
    if prefers_sparse(matrix):
        return sp.csr_array(matrix, dtype=np.float32)
    if sp.issparse(matrix):
        matrix = matrix.toarray()
    return np.ascontiguousarray(matrix, np.float32)


def as_labels(labels: Any) -> np.ndarray:
    """Return class ids [N] or a 0/1 matrix [N, C] as a uint8 matrix [N, C]."""
    labels = np.asarray(labels)
    if labels.dtype.kind not in "fiub" or labels.ndim not in (1, 2) or not labels.size:
        raise ValueError(
            f"labels have dtype {labels.dtype} and shape {labels.shape}; they must be "
            "class ids [N] or 0 and 1 [N, C]"
        )
    if labels.ndim == 1:
        # A forged id far beyond the nodes would ask for a matrix as wide.
        most = max(labels.size, _MOST_CLASSES)
        if np.any(labels != np.floor(labels)) or labels.max() >= most:
            raise ValueError(f"class ids must be 0, 1, 2, ..., below {most}")
        ids = labels.astype(np.int64)
        check_memory(ids.size * (int(ids.max()) + 1), "The labels", "Are they classes?")
        return one_hot(ids, int(ids.max()) + 1).astype(np.uint8)
    if np.any((labels != 0) & (labels != 1)):
        raise ValueError("a label matrix holds 0 and 1 only")
    return labels.astype(np.uint8)


def check_contents(contents: Contents) -> None:
    """Raise `ValueError` if the parts of a dataset contradict one another."""
    num_nodes, num_labels = contents.labels.shape
    names = contents.label_names
    lengths = {name: len(codes) for name, codes in contents.splits.items()}
    lengths["features"] = contents.features.shape[0]
    for name, length in lengths.items():
        if length != num_nodes:
            raise ValueError(f"{name} has {length} rows, but labels {num_nodes}")
    if len(set(names)) != len(names) or len(names) != num_labels:
        raise ValueError(f"{num_labels} labels have {len(set(names))} different names")
    for name, ends in (
        ("senders", contents.senders),
        ("receivers", contents.receivers),
    ):
        check_ids(ends, num_nodes, name)
    if sp.issparse(contents.features):
        check_sparse(contents.features, "features")


def count(contents: Contents) -> Counts:
    """Return the sizes of a dataset as its files hold it."""
    num_nodes, num_labels = contents.labels.shape
    num_features = contents.features.shape[1]
    return Counts(num_nodes, len(contents.senders), num_features, num_labels)


def count_edges(contents: Contents) -> dict[str, int]:
    """Return the number of edges, in each of the ways that papers count them."""
    low = np.minimum(contents.senders, contents.receivers).astype(np.int64)
    high = np.maximum(contents.senders, contents.receivers)
    num_nodes = len(contents.labels)
    edges = np.unique(low * num_nodes + high)
    loops = int(np.count_nonzero(edges // num_nodes == edges % num_nodes))
    return {
        "entries": len(contents.senders),  # As stored, with repeats and loops.
        "edges": edges.size,  # Distinct and undirected, with loops.
        "edges but loops": edges.size - loops,
        "arcs": 2 * edges.size - loops,  # Both directions; a loop is one arc.
        "arcs but loops": 2 * (edges.size - loops),
    }


def check_counts(dataset: Dataset, contents: Contents) -> list[str]:
    """Return one sentence per count that differs from the registry.

    If the registry does not know the number of stored arcs, the number of edges in the
    paper must be one of `count_edges`.
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
                f"{counted}, but the paper has {dataset.published.arcs} edges."
            )
    return differences

"""A random graph written straight to disk, for sizes that memory does not hold."""

import os
import pathlib

import numpy as np

from hopf_jax.graph import describe, new_folder

_EDGES_AT_ONCE = 1 << 22
_ROWS_AT_ONCE = 1 << 18


def write_random(
    folder: str | os.PathLike,
    num_nodes: int = 10_000_000,
    num_edges: int = 50_000_000,
    num_features: int = 16,
    num_labels: int = 5,
    *,
    num_train: int = 100_000,
    num_validation: int = 10_000,
    seed: int = 0,
) -> None:
    """Write a graph like `make_random`'s for `hopf_jax.open_graph`, piece by piece.

    Edges are drawn with replacement, and loops and repetitions left out: of 50 million
    edges on 10 million nodes some tens are missing. Features are normal with a mean
    that is their class's, so that there is something to learn. Arcs wait in files by
    receiver, so that what is held at once is a piece of the graph and a few [N].
    """
    sets = num_train + num_validation
    if num_nodes < 2 or num_labels < 1 or not 0 < num_train < sets <= num_nodes:
        raise ValueError(
            f"{num_nodes} nodes, {num_labels} labels, {num_train} training and "
            f"{num_validation} validation nodes: give two nodes or more, a label, and "
            "no more nodes to the sets than there are."
        )
    rng = np.random.default_rng(seed)
    with new_folder(folder) as made:
        _write_edges(made, num_nodes, num_edges, rng)
        labels = rng.integers(0, num_labels, num_nodes)
        centres = rng.standard_normal((num_labels, num_features), np.float32)
        features = _create(made, "features", np.float32, (num_nodes, num_features))
        one_hot = _create(made, "labels", np.uint8, (num_nodes, num_labels))
        for start in range(0, num_nodes, _ROWS_AT_ONCE):
            kinds = labels[start : start + _ROWS_AT_ONCE]
            noise = rng.standard_normal((len(kinds), num_features), np.float32)
            features[start : start + len(kinds)] = centres[kinds] + noise
            one_hot[start : start + len(kinds)] = np.eye(num_labels)[kinds]
        order = rng.permutation(num_nodes)
        chosen = {"train": order[:num_train], "validation": order[num_train:sets]}
        chosen |= {"test": order[sets:][:num_validation], "known": order}
        for name, nodes in chosen.items():
            mask = np.zeros(num_nodes, bool)
            mask[nodes] = True
            np.save(made / f"{name}.npy", mask)
        for array in (features, one_hot):
            array.flush()
        describe(
            made,
            num_features=num_features,
            multilabel=False,
            label_names=tuple(str(c) for c in range(num_labels)),
            directed=False,
        )


def _write_edges(
    folder: pathlib.Path, num_nodes: int, num_edges: int, rng: np.random.Generator
) -> None:
    """CSR rows of both arcs of random edges: put in files by receiver, then sorted."""
    count = max(1, -(-2 * num_edges // _EDGES_AT_ONCE))
    width = -(-num_nodes // count)  # Receivers of a file.
    paths = [folder / f"arcs-{i}" for i in range(count)]
    for start in range(0, num_edges, _EDGES_AT_ONCE):
        drawn = min(_EDGES_AT_ONCE, num_edges - start)
        ends = rng.integers(0, num_nodes, (2, drawn), dtype=np.int64)
        ends = ends[:, ends[0] != ends[1]]
        arcs = np.concatenate([ends, ends[::-1]], axis=1)
        arcs = arcs[:, np.argsort(arcs[1] // width, kind="stable")]
        bounds = np.searchsorted(arcs[1] // width, np.arange(count + 1))
        for i, path in enumerate(paths):
            part = arcs[:, bounds[i] : bounds[i + 1]]
            with open(path, "ab") as file:
                file.write((part[1] * num_nodes + part[0]).tobytes())
    lengths = np.zeros(num_nodes, np.int64)
    with open(folder / "senders", "wb") as out:
        for path in paths:
            arcs = np.sort(np.fromfile(path, np.int64))
            arcs = arcs[np.diff(arcs, prepend=-1) > 0]
            path.unlink()
            receivers = arcs // num_nodes
            first = int(receivers[0]) if receivers.size else 0
            counts = np.bincount(receivers - first)
            lengths[first : first + len(counts)] += counts
            out.write((arcs % num_nodes).astype(np.int32).tobytes())
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    np.save(folder / "indptr.npy", indptr)
    senders = np.memmap(folder / "senders", np.int32, "r") if indptr[-1] else None
    indices = _create(folder, "indices", np.int32, (int(indptr[-1]),))
    for start in range(0, int(indptr[-1]), _EDGES_AT_ONCE):
        assert senders is not None
        stop = start + _EDGES_AT_ONCE
        indices[start:stop] = senders[start:stop]
    indices.flush()
    (folder / "senders").unlink()


def _create(folder: pathlib.Path, name: str, dtype: type, shape: tuple[int, ...]):
    return np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, shape)

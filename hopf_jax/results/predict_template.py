"""Predict the labels of a graph's nodes with the program beside this file.

Needs Python, jax and numpy, nothing else:

    python predict.py                          checks the example
    python predict.py graph.npz predictions.csv

graph.npz holds the arrays `features` [N, F] and the ends of edges, `senders` and
`receivers` [E], as rows of the features; and if there are any, `weights` [E], and the
`labels` [N, C] (0 or 1) of the nodes in the mask `train` [N]. manifest.json has the
names of columns and labels. To predict from Python, import `load` and call what it
returns.
"""

import csv
import hashlib
import json
import pathlib
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax import export

HERE = pathlib.Path(__file__).resolve().parent
# jax reads programs by this package, which `pip install jax` leaves out.
sys.path.append(str(HERE / "flatbuffers.zip"))
MOST_APART = 1e-5


def load(
    folder: pathlib.Path = HERE,
) -> tuple[dict[str, Any], Callable[..., dict[str, np.ndarray]]]:
    """Return the manifest, and a function from arrays to predictions.

    Raises:
      ValueError: A file is not the one that was published with the manifest.
    """
    manifest = json.loads((folder / "manifest.json").read_text())
    content = (folder / manifest["program"]).read_bytes()
    if hashlib.sha256(content).hexdigest() != manifest["sha256"][manifest["program"]]:
        raise ValueError(f"{manifest['program']} is damaged: its checksum is wrong.")
    program = jax.jit(export.deserialize(bytearray(content)).call)

    def predict(graph: Mapping[str, Any]) -> dict[str, np.ndarray]:
        arrays = read(graph, manifest)
        names = [each["name"] for each in manifest["outputs"]]
        found = [np.asarray(each) for each in program(*arrays)]
        return dict(zip(names, found, strict=True))

    return manifest, predict


def read(graph: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[np.ndarray]:
    """Return the inputs of the program, in order."""
    shapes = {each["name"]: each["shape"] for each in manifest["inputs"]}
    features = np.asarray(graph["features"], np.float32)
    if features.ndim != 2 or features.shape[1] != shapes["features"][1]:
        raise ValueError(
            f"features has shape {features.shape}; the program reads "
            f"{shapes['features'][1]} columns: {manifest['feature_names'][:5]} ..."
        )
    count = len(features)
    senders = np.asarray(graph["senders"], np.int32)
    receivers = np.asarray(graph["receivers"], np.int32)
    weights = np.asarray(graph.get("weights", np.ones(len(senders))), np.float32)
    for name, ends in (("senders", senders), ("receivers", receivers)):
        if ends.shape != weights.shape or ((ends < 0) | (ends >= count)).any():
            raise ValueError(
                f"{name} must hold one row of the features, 0 to {count - 1}, per edge."
            )
    senders, receivers, weights = as_read(senders, receivers, weights, count, manifest)
    train = np.asarray(graph.get("train", np.zeros(count)), bool)
    labels = np.zeros((count, shapes["labels"][1]), np.float32)
    if train.any():
        labels[train] = np.asarray(graph["labels"], np.float32)[train]
    return [features, senders, receivers, weights, train, labels]


def as_read(
    senders: np.ndarray,
    receivers: np.ndarray,
    weights: np.ndarray,
    count: int,
    manifest: Mapping[str, Any],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each edge once; in both directions, with the larger weight, if read so."""
    if manifest["read_both_directions"]:
        ends = (
            np.concatenate([senders, receivers]),
            np.concatenate([receivers, senders]),
        )
        senders, receivers = ends
        weights = np.concatenate([weights, weights])
    keys, at = np.unique(
        receivers.astype(np.int64) * count + senders, return_inverse=True
    )
    largest = np.zeros(len(keys), np.float32)
    np.maximum.at(largest, at, weights)
    if not len(keys):  # One edge of padding: the program reads one at least.
        return np.zeros(1, np.int32), np.full(1, count, np.int32), np.zeros(1, "f")
    receivers, senders = np.divmod(keys, count)
    return senders.astype(np.int32), receivers.astype(np.int32), largest


def as_text(cell: str) -> str:
    """Return a cell that a spreadsheet does not execute."""
    return f"'{cell}" if re.match(r"'*[=+\-@\t\r]", cell) else cell


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit status."""
    if len(arguments) not in (0, 2):
        print(__doc__)
        return 2
    manifest, predict = load()
    source = pathlib.Path(arguments[0]) if arguments else HERE / "example.npz"
    with np.load(source, allow_pickle=False) as file:
        graph = {name: file[name] for name in file.files}
    found = predict(graph)
    if not arguments:
        apart = float(np.abs(found["probabilities"] - graph["probabilities"]).max())
        print(f"largest difference from the library that wrote this: {apart:.1e}")
        return 0 if apart < MOST_APART else 1
    names = [as_text(name) for name in manifest["label_names"]]
    with open(arguments[1], "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["node", "label", *names])
        for node, decided in enumerate(found["labels"]):
            chosen = np.flatnonzero(decided) if decided.ndim else [int(decided)]
            label = ";".join(names[i] for i in chosen)
            table.writerow([node, label, *found["probabilities"][node].tolist()])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

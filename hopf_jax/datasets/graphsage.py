"""GraphSAGE's files: -G.json, -feats.npy, -id_map.json and -class_map.json."""

import array
import json
from pathlib import Path
from typing import Any

import numpy as np

from hopf_jax.datasets.compact import Contents, as_features, one_hot
from hopf_jax.datasets.registry import Layout


def read(folder: Path, layout: Layout) -> Contents:
    """Reads PPI or Reddit; rows follow -feats.npy, sets are those of the nodes.

    The node-link JSON is networkx 1's, whose links give positions in its list of
    nodes; ids as link ends (networkx 2's) are read too where they cannot be confused.
    """
    prefix = folder / layout.prefix
    features = np.load(f"{prefix}-feats.npy", allow_pickle=False)
    rows = _read_json(f"{prefix}-id_map.json")
    classes = _read_json(f"{prefix}-class_map.json")
    nodes, ends, names = _read_graph(f"{prefix}-G.json")

    ids = [node["id"] for node in nodes]
    missing = next((i for i in ids if str(i) not in rows), None)
    if missing is not None:
        raise ValueError(f"node {missing!r} of -G.json is not in -id_map.json")
    row = np.array([rows[str(i)] for i in ids], np.int64)
    if not np.array_equal(np.sort(row), np.arange(len(features))):
        raise ValueError(
            f"-id_map.json does not map the {len(ids)} nodes of -G.json one to one to "
            f"the {len(features)} rows of -feats.npy"
        )
    if names:
        position = {i: p for p, i in enumerate(ids)}
        unknown = next((name for name in names if name not in position), None)
        if unknown is not None:
            raise ValueError(f"a link of -G.json ends at {unknown!r}, which is no node")
        ends = np.array([position[name] for name in names], np.int64)[ends]
    elif isinstance(ids[0], int) and ids != list(range(len(ids))):
        raise ValueError(
            "the nodes of -G.json have whole-number ids that are not their positions, "
            "so its links can be read in two ways; renumber the nodes"
        )
    elif ends.size and (ends.min() < 0 or ends.max() >= len(ids)):
        raise ValueError(f"a link of -G.json ends beyond its {len(ids)} nodes")

    label = [classes[str(i)] for i in ids]
    if isinstance(label[0], list):
        labels = np.array(label, np.uint8)
    else:
        numbers = np.array(label, np.int64)
        labels = one_hot(numbers, int(numbers.max()) + 1)
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


def _set_of(node: dict[str, Any]) -> int:
    if "test" not in node or "val" not in node:
        return 0
    return 3 if node["test"] else 2 if node["val"] else 1


def _read_json(path: str) -> Any:
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


def _read_graph(path: str) -> tuple[list[dict[str, Any]], np.ndarray, list[str]]:
    """The nodes, the link ends [E, 2], and what the ends number if they are names.

    Reddit has eleven million links: each is packed into an array as it is parsed, for
    as many dicts would take tens of gigabytes.
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
        # GraphSAGE repeats features and labels here; the other files have them.
        return {k: v for k, v in item.items() if k not in ("feature", "label")}

    with open(path, encoding="utf-8") as stream:
        graph = json.load(stream, object_hook=pack)
    ends = np.frombuffer(packed, np.int64).reshape(-1, 2) if packed else None
    if ends is None:
        ends = np.zeros((0, 2), np.int64)
    return graph["nodes"], ends, list(numbers)

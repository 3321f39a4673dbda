"""Reader of GraphSAGE's files: -G.json, -feats.npy, -id_map.json, -class_map.json."""

import array
import json
from pathlib import Path
from typing import Any

import numpy as np

from hopf_jax.datasets.contents import Contents, as_features, as_labels
from hopf_jax.datasets.registry import Layout


def read(folder: Path, layout: Layout) -> Contents:
    """Read PPI or Reddit; nodes are in the order of -feats.npy.

    The links of networkx 1 give positions in the list of nodes, those of networkx 2 ids
    of nodes. Both are read, unless they could be confused.
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
            raise ValueError(f"a link of -G.json ends at {unknown!r}, not a node")
        ends = np.array([position[name] for name in names], np.int64)[ends]
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


def _set_of(node: dict[str, Any]) -> int:
    if "test" not in node or "val" not in node:
        return 0
    return 3 if node["test"] else 2 if node["val"] else 1


def _read_json(path: str, **keywords: Any) -> Any:
    with open(path, encoding="utf-8") as file:
        return json.load(file, **keywords)


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

    graph = _read_json(path, object_hook=pack)
    return graph["nodes"], np.array(packed, np.int64).reshape(-1, 2), list(numbers)

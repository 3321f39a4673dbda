"""Saving and loading a result: an uncompressed npz file, checked when it is read."""

import dataclasses
import io
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from hopf_jax.config import Execution, Number, Whole, config_from_json
from hopf_jax.graph import (
    Scaling,
    classes_from_json,
    names_from_json,
    names_to_json,
)
from hopf_jax.kernels import (
    Kernel,
    Sizes,
    find_kernel,
    kernel_from_json,
    kernel_to_json,
)
from hopf_jax.results.calibration import Calibration
from hopf_jax.results.decisions import Decision
from hopf_jax.results.result import Result, make_net
from hopf_jax.runtime import MALFORMED, is_main, load_npz, write_atomically

_FORMAT = 3
_OLDER = (1, 2)  # Without a calibration; without a scaling or a decision.
_SCALING = "scaling"
_CROSS_VALIDATED = ("cross_validated/nodes", "cross_validated/probabilities")
_SECONDS = "seconds"  # Not saved, so that the same run saves the same bytes.


def save(
    result: Result, path: str | os.PathLike, notes: Mapping[str, Any] | None = None
) -> None:
    """Write a result to a file; see `Result.save`.

    Args:
      result: The result.
      path: The file.
      notes: What `load_with_notes` returns besides the result, as plain data: one file
        cannot hold the result of one fit and the notes of another.
    """
    if not is_main():
        return

    def timeless(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{k: v for k, v in r.items() if k != _SECONDS} for r in records]

    meta: dict[str, Any] = {
        "format": _FORMAT,
        "row": kernel_to_json(result.kernel),  # The key of version 0.1.
        "config": dataclasses.asdict(result.config),
        "sizes": dataclasses.asdict(result.sizes),
        "seed": result.seed,
        "multilabel": result.multilabel,
        "label_names": result.label_names,
        "iteration": result.iteration,
        "scores": result.scores,
        "history": timeless(result.history),
        "iterations": timeless(result.iterations),
        "calibration": result.calibration and dataclasses.asdict(result.calibration),
        "feature_names": result.feature_names,
        "positions": result.positions,
        "decision": dataclasses.asdict(result.decision),
        "choice": [
            {n: v for n, v in each.items() if n != _SECONDS} for each in result.choice
        ],
        "chunk_edges": result.execution.chunk_edges,
    }
    # Only where there are any, so that files without names are as they were.
    if result.classes:
        meta["classes"] = result.classes
    if result.node_names:
        meta["node_names"] = names_to_json(result.node_names)
    if notes is not None:
        meta["notes"] = notes
    arrays: dict[str, Any] = {"probabilities": result.probabilities}
    if result.cross_validated is not None:
        pairs = zip(_CROSS_VALIDATED, result.cross_validated, strict=True)
        arrays |= dict(pairs)
    if result.scaling is not None:
        meta[_SCALING], found = result.scaling.pack()
        arrays |= {f"{_SCALING}/{name}": array for name, array in found.items()}
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    for t, params in enumerate(result.weights, start=1):
        arrays |= {f"{t}/{name}": np.asarray(params[name]) for name in sorted(params)}
    memory = io.BytesIO()
    np.savez(memory, **arrays)
    write_atomically(path, memory.getvalue())


def load(path: str | os.PathLike, kernel: str | Kernel | None = None) -> Result:
    """Return a result that was saved with `Result.save`, also by version 0.1.

    Args:
      path: The file.
      kernel: Needed only where the saved kernel has an aggregator of your own.
    """
    return load_with_notes(path, kernel)[0]


def load_with_notes(
    path: str | os.PathLike, kernel: str | Kernel | None = None
) -> tuple[Result, dict[str, Any] | None]:
    """Return a result as `load` does, and the notes that `save` was given, or None."""
    try:
        arrays = load_npz(path, compressed=False)
        meta = json.loads(arrays.pop("meta").tobytes())
        if meta["format"] not in (_FORMAT, *_OLDER):
            raise ValueError(f"format {meta['format']}, this version reads {_FORMAT}")
        fields = _fields(meta, arrays.pop("probabilities"))
        fields[_SCALING] = _take_scaling(meta, arrays, fields["sizes"])
        fields["cross_validated"] = _take_cross_validated(arrays, fields)
        weights: list[dict[str, np.ndarray]] = [{} for _ in meta["iterations"]]
        for name, array in arrays.items():
            number, part = name.split("/")
            weights[range(1, len(weights) + 1).index(int(number))][part] = array
        if kernel is None:  # Any aggregator: it is looked up below, with its own error.
            kernel_from_json(meta["row"] | {"aggregate": "mean"})
    except MALFORMED as error:
        raise ValueError(
            f"{os.fspath(path)} is not a result saved by this library: "
            f"{str(error).rstrip('.')}."
        ) from error
    saved = kernel_from_json(meta["row"]) if kernel is None else find_kernel(kernel)
    net = make_net(saved, fields["config"], fields["sizes"])
    count = fields["config"].num_members
    axis = (count,) if count > 1 else ()
    shapes = net.weight_shapes().items()
    wanted = {name: (*axis, *leaf.shape) for name, leaf in shapes}
    for t, params in enumerate(weights, start=1):
        found = {name: array.shape for name, array in params.items()}
        if found != wanted or not all(map(_is_float32, params.values())):
            raise ValueError(
                f"{os.fspath(path)} holds weights {found} of iteration {t}, but its "
                f"kernel has {wanted}. The file is damaged, or kernel= is not the one "
                "that was saved in it."
            )
    return Result(kernel=saved, weights=tuple(weights), **fields), meta.get("notes")


def _fields(meta: dict[str, Any], probabilities: np.ndarray) -> dict[str, Any]:
    """Return fields of `Result`; raise `ValueError` if they contradict one another."""
    config, sizes = config_from_json(meta["config"]), Sizes(**meta["sizes"])
    saved = meta if "chunk_edges" in meta else meta["config"]  # As version 0.1 did.
    execution = Execution(chunk_edges=saved["chunk_edges"])
    saved_rule = meta.get("decision", {"multilabel": meta["multilabel"]})
    decision = Decision.from_json(saved_rule)
    names, count = meta["label_names"], len(meta["iterations"])
    columns, positions = meta.get("feature_names", []), meta.get("positions", [])
    records = (*meta["history"], *meta["iterations"])
    scores = [meta["scores"], *(record["scores"] for record in meta["iterations"])]
    valid = {
        "sizes": (sizes.hidden, sizes.num_hops) == (config.hidden_size, config.num_hops)
        and all(map(Whole(1).accepts, (sizes.features, sizes.labels)))
        and Whole(0).accepts(sizes.summary)
        and Number(0, open_below=True).accepts(sizes.summary_scale),
        "seed": Whole(0, 2**32 - 1).accepts(meta["seed"]),
        "multilabel": isinstance(meta["multilabel"], bool),
        "decision": (decision.metric, decision.multilabel)
        == (config.metric, meta["multilabel"])
        and decision.fits(sizes.labels),
        "label_names": isinstance(names, list)
        and len(names) == sizes.labels
        and all(isinstance(name, str) for name in names)
        and len(set(names)) == len(names),
        "feature_names": isinstance(columns, list)
        and all(isinstance(name, str) for name in columns),
        "positions": isinstance(positions, list)
        and all(map(Number().accepts, positions)),
        "iteration": Whole(1, count).accepts(meta["iteration"]),
        "history": all(isinstance(record, dict) for record in records),
        "scores": all(
            isinstance(each[name], float)
            for sets in scores
            for each in sets.values()
            for name in ("micro_f1", "macro_f1")
        ),
        "probabilities": _are_probabilities(probabilities)
        and probabilities.shape[1] == sizes.labels,
        "calibration": _is_calibration(meta.get("calibration")),
    }
    for name, holds in valid.items():
        if not holds:
            raise ValueError(f"its {name} cannot be right")
    calibration = meta.get("calibration")
    as_saved = "seed", "multilabel", "iteration", "scores", "history", "iterations"
    return {name: meta[name] for name in as_saved} | {
        "config": config,
        "execution": execution,
        "decision": decision,
        "choice": tuple(meta.get("choice", ())),
        "sizes": sizes,
        "label_names": tuple(names),
        "feature_names": tuple(columns),
        "positions": tuple(positions),
        "classes": classes_from_json(meta.get("classes", []), sizes.labels),
        "node_names": names_from_json(meta.get("node_names", []), len(probabilities)),
        "probabilities": probabilities,
        "calibration": None if calibration is None else Calibration(**calibration),
    }


def _take_scaling(
    meta: dict[str, Any], arrays: dict[str, np.ndarray], sizes: Sizes
) -> Scaling | None:
    """Return how features are scaled, and remove its arrays from the others."""
    names = [name for name in arrays if name.startswith(f"{_SCALING}/")]
    found = {name.partition("/")[2]: arrays.pop(name) for name in names}
    if _SCALING not in meta:
        return None
    scaling = Scaling.unpack(meta[_SCALING], found, tuple(meta["feature_names"]))
    if scaling.num_scaled != sizes.features:
        raise ValueError("its scaling is of other features")
    return scaling


def _take_cross_validated(
    arrays: dict[str, np.ndarray], fields: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return cross-validated predictions, and remove them from the other arrays."""
    nodes, said = (arrays.pop(name, None) for name in _CROSS_VALIDATED)
    if nodes is None and said is None:
        return None
    if nodes is None or said is None:
        raise ValueError("half of its cross-validated predictions is missing")
    num_nodes, num_labels = fields["probabilities"].shape
    valid = (
        nodes.ndim == 1
        and nodes.dtype == np.int64
        and ((nodes >= 0) & (nodes < num_nodes)).all()
        and (nodes[1:] > nodes[:-1]).all()
        and _are_probabilities(said)
        and said.shape == (len(nodes), num_labels)
    )
    if not valid:
        raise ValueError("its cross-validated predictions cannot be right")
    return nodes, said


def _are_probabilities(array: np.ndarray) -> bool:
    within = (array >= 0) & (array <= 1 + 1e-5)
    return _is_float32(array) and array.ndim == 2 and bool(within.all())


def _is_calibration(saved: Any) -> bool:
    if saved is None:
        return True
    before, after = saved["ece_before"], saved["ece_after"]
    errors = [
        *before.values(),
        *(error for error in after.values() if error is not None),
    ]
    return (
        Number(0, open_below=True).accepts(saved["temperature"])
        and before.keys() == after.keys() <= {"validation", "test"}
        and all(map(Number(0, 1).accepts, errors))
    )


def _is_float32(array: np.ndarray) -> bool:
    return array.dtype == np.float32 and bool(np.isfinite(array).all())

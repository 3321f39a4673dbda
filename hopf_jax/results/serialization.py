"""The file of a saved result: read without trust, and checked before it is used."""

import json
import os
import struct
import zipfile
import zlib
from typing import Any

import numpy as np

from hopf_jax.config import Config
from hopf_jax.graph import check_whole
from hopf_jax.kernels import Sizes

FORMAT = 2
_OLDER = (1,)  # Without a calibration.
# What numpy, zipfile and json raise on a file that is another's, cut short or damaged.
UNREADABLE = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    *(EOFError, OSError, MemoryError, RuntimeError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)


def read(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The description of a result and its arrays; raises one of `UNREADABLE`."""
    # Opened here, as numpy leaves a damaged file open.
    with open(path, "rb") as file:
        with zipfile.ZipFile(file) as listed:
            if any(info.compress_type for info in listed.infolist()):
                raise ValueError("it is compressed")  # And may fill all memory.
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    meta = json.loads(arrays.pop("meta").tobytes())
    if meta["format"] not in (FORMAT, *_OLDER):
        raise ValueError(f"format {meta['format']}, this version reads {FORMAT}")
    return meta, arrays


def check(
    meta: dict[str, Any], sizes: Sizes, config: Config, probabilities: np.ndarray
) -> None:
    """Raises if what a file says of a result does not hang together."""
    check_whole(sizes.features, "features", 1)
    check_whole(sizes.labels, "labels", 1)
    check_whole(sizes.summary, "summary")
    names = meta["label_names"]
    records = (*meta["history"], *meta["iterations"])
    scores = [meta["scores"], *(record["scores"] for record in meta["iterations"])]
    good = {
        "sizes": (sizes.hidden, sizes.num_hops) == (config.hidden_size, config.num_hops)
        and max(sizes.features, sizes.labels, sizes.summary) < 2**31,
        "seed": check_whole(meta["seed"], "seed") < 2**32,
        "multilabel": isinstance(meta["multilabel"], bool),
        "label_names": isinstance(names, list)
        and len(names) == sizes.labels
        and all(isinstance(name, str) for name in names),
        "iteration": meta["iteration"] in range(1, len(meta["iterations"]) + 1),
        "history": all(isinstance(record, dict) for record in records),
        "scores": all(
            isinstance(each[name], float)
            for sets in scores
            for each in sets.values()
            for name in ("micro_f1", "macro_f1")
        ),
        "probabilities": is_float32(probabilities)
        and probabilities.ndim == 2
        and probabilities.shape[1] == sizes.labels,
    }
    for name, holds in good.items():
        if not holds:
            raise ValueError(f"its {name} cannot be right")


def is_float32(array: np.ndarray) -> bool:
    """32-bit floats, all of them finite."""
    return array.dtype == np.float32 and bool(np.isfinite(array).all())

"""A model in a folder: the saved result, and what reading its tables took."""

import dataclasses
import json
import pathlib
from typing import Any

import scipy.sparse as sp

from hopf_jax.results import Result, load
from hopf_jax.runtime import sha256, write_atomically

_FORMAT = 1
RESULT, DESCRIPTION = "result.npz", "model.json"


@dataclasses.dataclass(frozen=True)
class Reading:
    """How the tables were read, so that those of a new graph are read alike.

    Attributes:
      nodes: names of the nodes that were fitted, in the order of the result.
      features: names of the columns.
      directed, self_loops: as `Graph` takes them.
      normalize: rows of features were scaled to sum to 1.
      sparse: features were kept as a sparse matrix.
    """

    nodes: tuple[str, ...]
    features: tuple[str, ...]
    directed: bool
    self_loops: str
    normalize: bool
    sparse: bool


def save_model(folder: pathlib.Path, result: Result, reading: Reading) -> None:
    """Writes both files; the description, which vouches for the result, comes last."""
    folder.mkdir(parents=True, exist_ok=True)
    result.save(folder / RESULT)
    data = {
        "format": _FORMAT,
        "sha256": sha256(folder / RESULT),
        "reading": dataclasses.asdict(reading),
    }
    write_atomically(folder / DESCRIPTION, (json.dumps(data) + "\n").encode())


def load_model(folder: pathlib.Path) -> tuple[Result, Reading]:
    """What `save_model` wrote."""
    try:
        data = json.loads((folder / DESCRIPTION).read_bytes())
        if data["format"] != _FORMAT:
            raise ValueError(f"format {data['format']}, this version reads {_FORMAT}")
        reading = _reading(data["reading"])
    except FileNotFoundError:
        raise ValueError(
            f"{folder} holds no model: {DESCRIPTION} is missing. `hopf fit` makes one."
        ) from None
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"{folder / DESCRIPTION} cannot be read: {error}.") from None
    result = load(folder / RESULT)
    if sha256(folder / RESULT) != data["sha256"]:
        raise ValueError(
            f"{folder}: {RESULT} and {DESCRIPTION} are of two fits. Fit again."
        )
    if len(reading.nodes) != len(result.probabilities):
        raise ValueError(f"{folder / DESCRIPTION} lists other nodes than were fitted.")
    return result, reading


def as_read(matrix: Any, reading: Reading) -> Any:
    """Features dense or sparse, as those of the fit were."""
    if reading.sparse:
        return sp.csr_array(matrix)
    return matrix.toarray() if sp.issparse(matrix) else matrix


def _reading(data: dict[str, Any]) -> Reading:
    lists = {name: tuple(data[name]) for name in ("nodes", "features")}
    reading = Reading(**data | lists)
    if not all(isinstance(v, str) for v in (*reading.nodes, *reading.features)):
        raise ValueError("names of nodes and features must be text")
    if not all(
        isinstance(v, bool)
        for v in (reading.directed, reading.normalize, reading.sparse)
    ):
        raise ValueError("directed, normalize and sparse must be true or false")
    return reading

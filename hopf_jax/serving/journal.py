"""A log of graph updates on disk, which survives restarts."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from hopf_jax.graph import Graph
from hopf_jax.results import Result
from hopf_jax.runtime import AppendedLines, digest, held_folder

_UPDATES = "updates.log"


class Journal:
    """The updates of one graph, served with one model, in order.

    Args:
      folder: Created if missing. Only one process may use it at a time.
      owner: Identifies the model and the graph; see `identify`.

    Raises:
      ValueError: The folder is in use, belongs to another model or graph, or is
        damaged.
    """

    def __init__(self, folder: pathlib.Path, owner: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            stack.enter_context(held_folder(folder))
            self._lines = stack.enter_context(AppendedLines(folder / _UPDATES))
            self._held = stack.pop_all()
        if not self._lines.found:
            self._lines.append(owner.encode())
        elif self._lines.found[0] != owner.encode():
            self.close()
            raise ValueError(
                f"{folder} holds updates of another model or another graph. Give those "
                "that it was begun with, or another --state."
            )

    def read(self) -> Iterator[bytes]:
        """Yield the updates found on disk, once."""
        found, self._lines.found = self._lines.found[1:], []
        yield from found

    def append(self, update: bytes) -> None:
        """Write an update to disk before returning.

        Raises:
          OSError: The update could not be written.
        """
        self._lines.append(update)

    def close(self) -> None:
        """Release the folder."""
        self._held.close()


def identify(result: Result, graph: Graph) -> str:
    """Return a string that identifies a model and a graph."""
    arrays: dict[str, np.ndarray] = {}
    for field in dataclasses.fields(graph):
        value = getattr(graph, field.name)
        if sp.issparse(value):
            for part in ("indptr", "indices", "data"):
                arrays[f"graph/{field.name}/{part}"] = getattr(value, part)
        elif isinstance(value, np.ndarray):
            arrays[f"graph/{field.name}"] = value
        else:
            text = repr(value).encode()
            arrays[f"graph/{field.name}"] = np.frombuffer(text, np.uint8)
    for t, weights in enumerate(result.weights):
        arrays |= {f"{t}/{name}": np.asarray(w) for name, w in weights.items()}
    return digest(arrays).hex()

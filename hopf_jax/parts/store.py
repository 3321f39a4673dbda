"""Outputs and label summaries of each part on disk, by iteration.

Memory holds only the rows that a batch reads. Files are either complete or absent, and
never change, so a resumed run finds those of the iteration it continues from.
"""

import contextlib
import json
import os
import pathlib
import shutil
import weakref
from collections.abc import Iterator, Mapping

import numpy as np

from hopf_jax.parts.manifest import Part, folder_of
from hopf_jax.runtime import (
    MALFORMED,
    create_npy,
    map_npy,
    new_folder,
    read_json,
    scratch_folder,
    sha256,
)

_DIGESTS = "sha256.json"


class Store:
    """Arrays of the parts that a process holds.

    Args:
      workdir: The folder; None for a temporary one.
    """

    def __init__(self, workdir: str | os.PathLike | None):
        if workdir is None:
            stack = contextlib.ExitStack()
            workdir = stack.enter_context(scratch_folder())
            weakref.finalize(self, stack.close)
        self._folder = pathlib.Path(workdir).expanduser() / "parts"

    def _of(self, part: Part, iteration: int) -> pathlib.Path:
        return self._folder / folder_of(part.number) / f"iteration-{iteration}"

    @contextlib.contextmanager
    def writing(
        self, part: Part, iteration: int, shapes: Mapping[str, tuple[int, int]]
    ) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield float32 arrays to fill, by name; publish them at the end."""
        # A previous attempt may have left one when it was interrupted.
        with new_folder(self._of(part, iteration), replace=True) as made:
            found = {}
            for name, shape in shapes.items():
                path = made / f"{name}.npy"
                found[name] = create_npy(path, np.float32, shape)
            yield found
            digests = {name: sha256(made / f"{name}.npy") for name in shapes}
            (made / _DIGESTS).write_text(json.dumps(digests) + "\n")

    def read(self, part: Part, iteration: int, name: str) -> np.ndarray:
        """Return an array that was written, as a memory map."""
        return map_npy(self._of(part, iteration) / f"{name}.npy")

    def verify(self, part: Part, iteration: int, name: str) -> None:
        """Raise `ValueError` if an array is missing or damaged."""
        folder = self._of(part, iteration)
        try:
            if sha256(folder / f"{name}.npy") != read_json(folder / _DIGESTS)[name]:
                raise ValueError(f"{name}.npy has another sha256")
        except (*MALFORMED, OSError) as error:
            raise ValueError(
                f"{folder} is needed to resume, but cannot be read: {error}. All "
                "processes must see the workdir of the run that was stopped."
            ) from error

    def forget(self, part: Part, keep: int) -> None:
        """Remove all iterations but one, once a run has finished."""
        kept = self._of(part, keep)
        for folder in kept.parent.glob("iteration-*"):
            if folder != kept:
                shutil.rmtree(folder)
        (kept / "summary.npy").unlink(missing_ok=True)

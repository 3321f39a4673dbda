"""Callbacks for `fit(callbacks=[...])`: lines of JSON, and TensorBoard."""

import contextlib
import datetime
import json
import os
import pathlib
import sys
from typing import Any

import jax


class _Closing(contextlib.AbstractContextManager):
    """A context manager that closes itself."""

    def close(self) -> None:
        """Close the files."""

    def __exit__(self, *reason: object) -> None:
        self.close()


class JsonLines(_Closing):
    """One line of JSON per epoch: time, event, run, process, and the epoch's record.

    After a run was stopped and resumed, epochs since its last checkpoint have one line
    per attempt; the later ones count.

    Args:
      path: A local file to append to; "-" for stdout.
      run: Name of the run, in every line.
    """

    def __init__(self, path: str | os.PathLike, run: str = "") -> None:
        if "://" in os.fspath(path):
            raise ValueError(
                f"Lines cannot be appended to {os.fspath(path)}. Give a local file, or "
                "- for stdout, which batch systems collect."
            )
        self._run = run
        self._file = None
        if os.fspath(path) != "-":
            target = pathlib.Path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            self._file = target.open("a", encoding="utf-8")

    def __call__(self, record: dict[str, Any]) -> None:
        """Write the record of an epoch."""
        self.write("epoch", **record)

    def write(self, event: str, **fields: Any) -> None:
        """Write a line with any fields."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "event": event, "run": self._run}
        line |= {"process": jax.process_index()} | fields
        # In one piece, so that lines of several processes do not mix.
        file = self._file or sys.stdout
        file.write(json.dumps(line) + "\n")
        file.flush()

    def write_result(self, result: Any) -> None:
        """Write one line per iteration, and one for the result."""
        for record in result.iterations:
            self.write("iteration", **record)
        self.write(
            "finished",
            iteration=result.iteration,
            epochs=len(result.history),
            scores=result.scores,
        )

    def close(self) -> None:
        """Close the file; stdout stays open."""
        if self._file is not None:
            self._file.close()


class TensorBoard(_Closing):
    """Losses, F1 scores and learning rate for TensorBoard.

    Every iteration is a run of its own, `FOLDER/iteration-1` and so on, with the epoch
    as its step. A resumed run replaces the epochs that it repeats.

    Args:
      folder: Folder of the event files; local, or what tensorboardX takes.
    """

    def __init__(self, folder: str | os.PathLike) -> None:
        try:
            import tensorboardX
        except ImportError as error:
            raise ValueError(
                "TensorBoard files need tensorboardX: pip install 'hopf-jax"
                "[tensorboard]'."
            ) from error
        self._make = tensorboardX.SummaryWriter
        self._folder = os.fspath(folder)
        self._iteration = 0
        self._writer: Any = None

    def __call__(self, record: dict[str, Any]) -> None:
        """Write the record of an epoch."""
        values = dict(record)
        iteration, epoch = values.pop("iteration"), values.pop("epoch")
        if self._iteration != iteration:
            self.close()
            self._iteration = iteration
            folder = os.path.join(self._folder, f"iteration-{iteration}")
            self._writer = self._make(folder, purge_step=epoch)
        for name, value in values.items():
            part, _, what = name.partition("_")
            tag = f"{what}/{part}" if part in ("train", "validation") else name
            self._writer.add_scalar(tag, value, epoch)

    def close(self) -> None:
        """Write everything to the files."""
        if self._writer is not None:
            self._writer.close()

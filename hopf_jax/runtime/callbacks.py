"""Callbacks for `fit(callbacks=[...])`: lines of JSON, and TensorBoard."""

import datetime
import json
import os
import pathlib
import sys
from typing import Any, Self

import jax


class JsonLines:
    """A line of JSON an epoch: time, event, run, process, and the epoch's record.

    After a run that was stopped and goes on, epochs since its last checkpoint have a
    line of each attempt; the later ones count.

    Args:
      path: a local file, added to; "-" for stdout.
      run: names the run in every line.
    """

    def __init__(self, path: str | os.PathLike, run: str = "") -> None:
        if "://" in os.fspath(path):
            raise ValueError(
                f"Lines cannot be added to {os.fspath(path)}. Give a local file, or - "
                "for stdout, which batch systems collect."
            )
        self._run = run
        self._file = None
        if os.fspath(path) != "-":
            target = pathlib.Path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            self._file = target.open("a", encoding="utf-8")

    def __call__(self, record: dict[str, Any]) -> None:
        """An epoch, as `fit` tells it."""
        self.write("epoch", **record)

    def write(self, event: str, **fields: Any) -> None:
        """A line of one's own."""
        now = datetime.datetime.now(datetime.UTC)
        about: dict[str, Any] = {
            "time": now.isoformat(timespec="milliseconds"),
            "event": event,
        }
        about |= {"run": self._run, "process": jax.process_index()}
        # In one piece, so that lines of several processes do not mix.
        file = self._file or sys.stdout
        file.write(json.dumps(about | fields) + "\n")
        file.flush()

    def write_result(self, result: Any) -> None:
        """A line an iteration, and one for the result."""
        for record in result.iterations:
            self.write("iteration", **record)
        self.write(
            "finished",
            iteration=result.iteration,
            epochs=len(result.history),
            scores=result.scores,
        )

    def close(self) -> None:
        """Close the file, if it is one."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


class TensorBoard:
    """Losses, F1 scores and learning rate as TensorBoard reads them.

    Every iteration is a run of its own, `FOLDER/iteration-1` and so on, with the epoch
    as its step. A run that goes on takes back the epochs it does again.

    Args:
      folder: for the event files; local, or what tensorboardX takes.
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
        """An epoch, as `fit` tells it."""
        epoch = record["epoch"]
        if self._iteration != record["iteration"]:
            self.close()
            self._iteration = record["iteration"]
            folder = os.path.join(self._folder, f"iteration-{self._iteration}")
            self._writer = self._make(folder, purge_step=epoch)
        for name, value in record.items():
            if name not in ("epoch", "iteration"):
                part, _, what = name.partition("_")
                known = part in ("train", "validation")
                self._writer.add_scalar(
                    f"{what}/{part}" if known else name, value, epoch
                )

    def close(self) -> None:
        """Write what is waiting to be written."""
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

"""Logs of runs: lines of JSON, and TensorBoard files."""

import argparse
import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any

import hopf_jax
from hopf_jax.runtime import JsonLines, TensorBoard


@dataclasses.dataclass(frozen=True)
class RunLog:
    """What `fit` calls while it trains, and where its result is logged."""

    callbacks: list[Callable[[dict[str, Any]], None]]
    lines: JsonLines | None

    def write_result(self, result: hopf_jax.Result) -> None:
        """Log the result."""
        if self.lines is not None:
            self.lines.write_result(result)


@dataclasses.dataclass(frozen=True)
class LogSettings:
    """Where runs are logged; passed to worker processes."""

    log_json: str | None = None
    tensorboard: str | None = None

    @classmethod
    def of(cls, options: argparse.Namespace) -> "LogSettings":
        """Return what the options of `add_options` ask for."""
        return cls(options.log_json, options.tensorboard)

    @contextlib.contextmanager
    def open(self, run: str) -> Iterator[RunLog]:
        """Yield the log of a run with this name."""
        with contextlib.ExitStack() as stack:
            callbacks: list[Callable[[dict[str, Any]], None]] = []
            lines = None
            if self.log_json is not None:
                lines = stack.enter_context(JsonLines(self.log_json, run))
                lines.write("started")
                callbacks.append(lines)
            if self.tensorboard is not None:
                folder = os.path.join(self.tensorboard, run)
                callbacks.append(stack.enter_context(TensorBoard(folder)))
            yield RunLog(callbacks, lines)


NO_LOG = LogSettings()


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add --log-json and --tensorboard."""
    parser.add_argument(
        "--log-json",
        type=_local_file,
        metavar="PATH",
        help="append one line of JSON per epoch to this file; - is stdout",
    )
    parser.add_argument(
        "--tensorboard",
        type=_board,
        metavar="DIR",
        help="write TensorBoard event files to this folder",
    )


def _local_file(text: str) -> str:
    if "://" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not a local file, nor -")
    return text


def _board(text: str) -> str:
    try:
        TensorBoard(text)  # Fails here, once, rather than in every worker.
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text

"""What runs say while they are at it: lines of JSON, TensorBoard files."""

import argparse
import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any

import hopf_jax
from hopf_jax.runtime import JsonLines, TensorBoard


@dataclasses.dataclass(frozen=True)
class Watch:
    """Where runs report to; it travels to worker processes."""

    log_json: str | None = None
    tensorboard: str | None = None

    @contextlib.contextmanager
    def over(self, run: str) -> Iterator["Reports"]:
        """The reports of a run, by its name."""
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
            yield Reports(callbacks, lines)


UNWATCHED = Watch()


@dataclasses.dataclass(frozen=True)
class Reports:
    """What `fit` calls while it learns, and what is told of its result."""

    callbacks: list[Callable[[dict[str, Any]], None]]
    lines: JsonLines | None

    def tell(self, result: hopf_jax.Result) -> None:
        """The result."""
        if self.lines is not None:
            self.lines.write_result(result)


def add_options(parser: argparse.ArgumentParser) -> None:
    """--log-json and --tensorboard."""
    parser.add_argument(
        "--log-json",
        type=_log,
        metavar="PATH",
        help="add a line of JSON an epoch to this file; - for stdout",
    )
    parser.add_argument(
        "--tensorboard",
        type=_board,
        metavar="DIR",
        help="write TensorBoard's event files here",
    )


def _log(text: str) -> str:
    if "://" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not a local file, nor -")
    return text


def _board(text: str) -> str:
    try:
        TensorBoard(text)  # Here, rather than in every worker.
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def watch(options: argparse.Namespace) -> Watch:
    """What these options ask for."""
    return Watch(options.log_json, options.tensorboard)

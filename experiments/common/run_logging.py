"""Logs of runs: lines of JSON, and TensorBoard files."""

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import hopf_jax
from experiments.common.arguments import Parser
from hopf_jax.runtime import JsonLines, TensorBoard


class RunLog(list[Callable[[dict[str, Any]], None]]):
    """The callbacks of a run, for `fit`."""

    def write_result(self, result: hopf_jax.Result) -> None:
        """Log the result."""
        for callback in self:
            if isinstance(callback, JsonLines):
                callback.write_result(result)


class LogSettings(NamedTuple):
    """Where runs are logged; passed to worker processes."""

    log_json: str | None = None
    tensorboard: str | None = None

    @contextlib.contextmanager
    def open(self, run: str) -> Iterator[RunLog]:
        """Yield the log of a run with this name."""
        with contextlib.ExitStack() as stack:
            log = RunLog()
            if self.log_json is not None:
                lines = stack.enter_context(JsonLines(self.log_json, run))
                lines.write("started")
                log.append(lines)
            if self.tensorboard is not None:
                folder = os.path.join(self.tensorboard, run)
                log.append(stack.enter_context(TensorBoard(folder)))
            yield log


NO_LOG = LogSettings()


def settings(options: argparse.Namespace) -> LogSettings:
    """Return what the options of `add_options` ask for."""
    return LogSettings(options.log_json, options.tensorboard)


def add_options(parser: Parser) -> None:
    """Add --log-json and --tensorboard."""
    about = "append one line of JSON per epoch to this file; - is stdout"
    parser.option("log-json", _local_file, help=about)
    about = "write TensorBoard event files to this folder"
    parser.option("tensorboard", _board, help=about)


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

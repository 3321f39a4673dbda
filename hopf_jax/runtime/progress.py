"""One line that says how far work is: in a terminal, or in a notebook."""

import contextlib
import importlib
import shutil
import sys
import time
from typing import Any, Literal, Self

from hopf_jax.runtime.machine import cache_of_programs
from hopf_jax.runtime.processes import is_main
from hopf_jax.runtime.programs import watching_compilation

Show = Literal["auto", True, False] | bool
_INTERVAL = 0.2  # Seconds between two changes of the line.


class ProgressLine:
    """A line that is replaced as work goes on, and stays as a summary at the end.

    In a terminal it is on stderr. In a notebook it is one output of the cell, so that
    the saved notebook has its last text and nothing else. While a program is compiled
    it says so: the time left is not known then.

    Args:
      what: What is done, the beginning of the line.
      progress: Whether to show it; "auto" shows it in a terminal and in a notebook.
    """

    def __init__(self, what: str, progress: Show = "auto") -> None:
        self.what, self._notebook = what, _in_notebook()
        if progress == "auto":
            progress = is_main() and (self._notebook or sys.stderr.isatty())
        self.shown = bool(progress)
        self.begun = time.perf_counter()
        self._said, self._compiled, self._drawn = "", 0, 0.0
        self._handle: Any = None
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if self.shown:
            self._closing.enter_context(watching_compilation(self._tell_compilation))
        return self

    def __exit__(self, *reason: object) -> None:
        self._closing.close()
        if not self.shown:
            return
        seconds = time.perf_counter() - self.begun
        ended = "" if reason[0] is None else "stopped; "
        self._draw(f"{self.what}: {ended}{self._said}, {span(seconds)}", last=True)

    def say(self, doing: str, summary: str) -> None:
        """Show what is being done; keep the summary for the end."""
        self._said = summary
        if self.shown and time.perf_counter() - self._drawn > _INTERVAL:
            self._draw(f"{self.what}: {doing}")

    def _tell_compilation(self) -> None:
        """Say that a program is compiled; how many will follow is not known."""
        self._compiled += 1
        doing = "loading or compiling" if cache_of_programs() else "compiling"
        self._draw(f"{self.what}: {doing} program {self._compiled} ...")

    def _draw(self, text: str, *, last: bool = False) -> None:
        self._drawn = time.perf_counter()
        if self._notebook:
            shown = {"text/plain": text}
            if self._handle is None:
                display = importlib.import_module("IPython.display").display
                self._handle = display(shown, raw=True, display_id=True)
            else:
                self._handle.update(shown, raw=True)
            return
        width = shutil.get_terminal_size().columns - 1
        # Clears what a longer text left.
        print(f"\r\033[K{text[:width]}", end="\n" if last else "", file=sys.stderr)
        sys.stderr.flush()


class TimeLeft:
    """An estimate of the time that a fit still takes.

    Args:
      num_iterations, max_epochs: The most that may come.
    """

    def __init__(self, num_iterations: int, max_epochs: int) -> None:
        self._num_iterations, self._max_epochs = num_iterations, max_epochs
        self._iteration, self._epoch, self._ended = 0, 0, 0
        self._last: float | None = None
        self._seconds, self._epochs = 0.0, 0

    def epoch(self, iteration: int, epoch: int) -> str:
        """Note the end of an epoch; return a text, "" before anything is known.

        Iterations stop when they no longer improve. Until one has ended, only the most
        that may come is known.
        """
        now = time.perf_counter()
        if iteration != self._iteration:
            self._ended += self._epoch
            self._iteration = iteration
        elif self._last is not None:
            # Without the first epoch of an iteration, which may have compiled.
            self._seconds += now - self._last
            self._epochs += 1
        self._last, self._epoch = now, epoch
        if not self._epochs:
            return ""
        each, later = self._seconds / self._epochs, self._num_iterations - iteration
        if iteration == 1 or not self._ended:
            most = self._max_epochs * (1 + later) - epoch
            return f", at most {span(each * most)} left"
        usual = self._ended / (iteration - 1)
        left = max(0.0, usual - epoch) + usual * later
        return f", about {span(each * left)} left"


def span(seconds: float) -> str:
    """Return a span of time as text.

    >>> span(0.42), span(12.3), span(200), span(8000)
    ('0.4 s', '12 s', '3 min 20 s', '2 h 13 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def write_line(text: str, progress: Show) -> None:
    """Write a line to stderr where progress is shown."""
    if ProgressLine("", progress).shown:
        print(text, file=sys.stderr, flush=True)


def _in_notebook() -> bool:
    if "ipykernel" not in sys.modules:
        return False
    return importlib.import_module("IPython").get_ipython() is not None

"""One line that says how far work is: in a terminal, or in a notebook."""

import contextlib
import contextvars
import importlib
import shutil
import sys
import threading
import time
from typing import Any, Literal, Self, get_args

from hopf_jax.runtime.machine import cache_of_programs
from hopf_jax.runtime.processes import is_main
from hopf_jax.runtime.programs import Stage, watching_compilation

Show = Literal["auto", True, False] | bool
_INTERVAL = 0.2  # Seconds between two changes of the line.
_TICK = 1.0  # Seconds between two changes while a program is compiled.
_STAGES = get_args(Stage)


class ProgressLine:
    """A line that is replaced as work goes on, and stays as a summary at the end.

    In a terminal it is on stderr. In a notebook it is one output of the cell, so that
    the saved notebook has its last text and nothing else. While programs are compiled
    it says whether for training or prediction, and for how long already: the time
    left is not known then, nor how many shapes of batches need programs of their own.

    Args:
      what: What is done, the beginning of the line.
      progress: Whether to show it; "auto" shows it in a terminal and in a notebook.
    """

    def __init__(self, what: str, progress: Show = "auto") -> None:
        self.what, self._notebook = what, _in_notebook()
        if not (isinstance(progress, bool) or progress == "auto"):
            raise ValueError(f"progress is {progress!r}; use True, False or 'auto'.")
        if progress == "auto":
            progress = is_main() and (self._notebook or sys.stderr.isatty())
        self.shown = bool(progress)
        self.begun = time.perf_counter()
        self._said, self._drawn = "", 0.0
        self._compiling: list[tuple[Stage, float]] = []  # With the time they began.
        self._lock, self._ended = threading.RLock(), threading.Event()
        self._handle: Any = None
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if self.shown:
            self._closing.enter_context(watching_compilation(self._note_compilation))
            # The context of the cell, without which a notebook drops what it writes.
            context = contextvars.copy_context()
            ticking = threading.Thread(target=context.run, args=[self._tick])
            ticking.daemon = True
            ticking.start()
            self._closing.callback(ticking.join)
            self._closing.callback(self._ended.set)  # Before it is joined.
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

    def _tick(self) -> None:
        while not self._ended.wait(_TICK):
            self._show_compilation()

    def _note_compilation(self, stage: Stage, begins: bool) -> None:
        """Note that a program begins or ends to be compiled."""
        with self._lock:
            if begins:
                self._compiling.append((stage, time.perf_counter()))
            else:
                at = [each for each, _ in self._compiling].index(stage)
                del self._compiling[at]
        if begins:
            self._show_compilation()

    def _show_compilation(self) -> None:
        with self._lock:
            if not self._compiling:
                return
            stage, begun = self._compiling[0]
            doing = "loading or compiling" if cache_of_programs() else "compiling"
            which = f"{_STAGES.index(stage) + 1} of {len(_STAGES)}: {stage}"
            seconds = time.perf_counter() - begun
            since = f", {span(seconds)}" if seconds >= _TICK / 2 else ""
            self._draw(f"{self.what}: {doing} {which}{since}")

    def _draw(self, text: str, *, last: bool = False) -> None:
        with self._lock:
            self._drawn = time.perf_counter()
            if self._notebook:
                self._display(text)
                return
            width = shutil.get_terminal_size().columns - 1
            # Clears what a longer text left.
            end = "\n" if last else ""
            print(f"\r\033[K{text[:width]}", end=end, file=sys.stderr)
            sys.stderr.flush()

    def _display(self, text: str) -> None:
        shown = {"text/plain": text}
        if self._handle is None:
            display = importlib.import_module("IPython.display").display
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


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

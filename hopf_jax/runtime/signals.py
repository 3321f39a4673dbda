"""SIGTERM and SIGINT: stop the work, save it, and end the process as usual."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)

# Seconds within which a repeated signal counts as the same: a terminal, Slurm or
# `timeout` signals every process of a group, and a parent passes it on to its workers.
_SAME = 1.0


class _Stop(BaseException):
    """Stops the work, as KeyboardInterrupt does."""


class Interruption:
    """A signal that may have arrived; made by `saved_at_signals`."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._came = 0.0
        self._held = False
        self._before: dict[int, Any] = {}

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Delay signals until the block ends."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        self.check()

    def check(self) -> None:
        """Stop here if a signal is waiting, or if what it raised was caught."""
        if self._number is not None and not self._held:
            raise _Stop

    def _install(self) -> None:
        # Only the main thread receives signals and may set handlers.
        if threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            before = signal.getsignal(number)
            # None was set outside Python, and could not be restored.
            if before not in (signal.SIG_IGN, None):
                self._before[number] = signal.signal(number, self._handle)

    def _restore(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _handle(self, number: int, frame: Any) -> None:
        if self._number is None:
            self._number, self._came = number, time.monotonic()
            self.check()
        elif time.monotonic() - self._came > _SAME:
            self._restore()
            signal.raise_signal(number)


@contextlib.contextmanager
def saved_at_signals(save: Callable[[], None]) -> Iterator[Interruption]:
    """Let SIGTERM and SIGINT stop the block, call `save` and end the process as usual.

    Handlers are set in the main thread only, and restored. A second signal, a second or
    more after the first, does not wait for `save`. A handler that was set before is
    called after `save`; if it returns, the process exits nevertheless.
    """
    interruption = Interruption()
    interruption._install()
    try:
        yield interruption
    except _Stop:
        number = interruption._number
        assert number is not None
        interruption._held = True
        save()
        interruption._restore()
        signal.raise_signal(number)
        raise SystemExit(128 + number) from None
    finally:
        interruption._restore()

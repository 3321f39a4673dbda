"""SIGTERM and SIGINT while work must not be lost: unwind, save, end as they would."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)

# A terminal, Slurm or `timeout` signals every process of a group, and a parent passes
# it on to its workers: the same signal twice at once is one.
_SAME = 1.0  # seconds


class _Stop(BaseException):
    """Unwinds the work, as KeyboardInterrupt does."""


class Interruption:
    """Signals between the work and its last save; made by `saved_at_signals`."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._came = 0.0
        self._held = False
        self._before: dict[int, Any] = {}

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Inside, a signal waits: what is begun is finished first."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        self.check()

    def check(self) -> None:
        """Stop here if a signal waits, or if someone caught what it raised."""
        if self._number is not None and not self._held:
            raise _Stop

    def _install(self) -> None:
        # Python delivers signals to the main thread, and lets no other set handlers.
        if threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            before = signal.getsignal(number)
            # None: set by a program around Python, and not ours to put back.
            if before not in (signal.SIG_IGN, None):
                self._before[number] = signal.signal(number, self._handle)

    def _restore(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _handle(self, number: int, frame: Any) -> None:
        del frame
        if self._number is None:
            self._number, self._came = number, time.monotonic()
            self.check()
        elif time.monotonic() - self._came > _SAME:
            self._restore()
            signal.raise_signal(number)


@contextlib.contextmanager
def saved_at_signals(save: Callable[[], None]) -> Iterator[Interruption]:
    """SIGTERM and SIGINT stop what is inside, `save`, and end the process as usual.

    Handlers are set in the main thread alone, and put back. A second signal, a second
    or more after the first, does not wait for `save`. Where a handler of someone else's
    was set, it is called after `save`; if it returns, the process exits all the same.
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

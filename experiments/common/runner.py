"""The runner of cells: worker processes train those that have no saved record.

Most of a small cell is compilation, on one core, so two processes with one thread each
are faster than one with two threads.
"""

import contextlib
import functools
import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.process import BaseProcess

import jax
from tqdm.std import tqdm

from experiments.common import cells, output
from experiments.common.cells import Cell, Record
from experiments.common.run_logging import NO_LOG, LogSettings
from hopf_jax.datasets import DatasetError
from hopf_jax.runtime import num_threads

Done = tuple[Cell, Record | None, str]  # A cell, its record, or why it has none.
Keep = Callable[[Cell], Done]

_SINGLE_THREADED = dict.fromkeys(
    ("PJRT_NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"
)
_GRACE = 15.0  # Seconds; batch systems give 30 from SIGTERM to SIGKILL.


def default_workers() -> int:
    """Return the number of processes: up to two on a CPU, one for an accelerator."""
    if jax.default_backend() != "cpu":
        return 1
    return min(2, len(os.sched_getaffinity(0)))


def run_cells(
    wanted: Sequence[Cell],
    folder: pathlib.Path,
    *,
    fresh: bool = False,
    workers: int | None = None,
    on_done: Callable[[Cell, Record | None, str], None] = lambda *done: None,
    log: LogSettings = NO_LOG,
) -> dict[Cell, Record]:
    """Return the records of cells, with a progress bar on stderr.

    Args:
      wanted: The cells; repeated ones are run once.
      folder: Where records are saved.
      fresh: Discard saved records of these models and folds, and start over.
      workers: Number of processes; None for `default_workers`.
      on_done: Called with each cell, its record or None, and what went wrong; saved
        ones first.
      log: Where the runs are logged.
    """
    wanted = list(dict.fromkeys(wanted))
    if fresh:
        for cell in wanted:
            cell.forget(folder)
    records: dict[Cell, Record] = {}
    missing = []
    for cell in wanted:
        record = cell.read(folder)
        if record is None:
            missing.append(cell)
        else:
            records[cell] = record
            # Left by an interrupted write; still of use to siblings that are missing.
            if all(sibling.read(folder) is not None for sibling in cell.siblings):
                output.remove(cell.checkpoints(folder))
    saved = list(records)
    with tqdm(
        total=len(wanted),
        initial=len(saved),  # Not counted in the rate.
        file=sys.stderr,
        dynamic_ncols=True,
        smoothing=0,  # Cells differ widely: the mean predicts the time left best.
        mininterval=0.5 if sys.stderr.isatty() else 10,
        bar_format="{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} cells "
        "[{elapsed}, {remaining} left{postfix}]",
    ) as bar:
        for cell in saved:
            on_done(cell, records[cell], "")
        if missing:
            count = default_workers() if workers is None else workers
            keep = functools.partial(run_and_save, folder=folder, log=log)
            # Running one of several siblings runs and saves them all.
            jobs: dict[tuple[Cell, ...], list[Cell]] = {}
            for cell in missing:
                jobs.setdefault(cell.siblings, []).append(cell)
            first = [members[0] for members in jobs.values()]
            with contextlib.closing(_run(first, keep, count)) as done, _stopping(bar):
                for ran, found, problem in done:
                    for cell in jobs[ran.siblings]:
                        record = found if cell == ran else found and cell.read(folder)
                        if record is not None:
                            records[cell] = record
                        bar.set_postfix_str(cell.model, refresh=False)
                        bar.update()
                        on_done(cell, record, problem)
    return records


@contextlib.contextmanager
def _stopping(bar: tqdm) -> Iterator[None]:
    """Exit on Ctrl-C and SIGTERM with a message about what is saved."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        bar.close()
        name = "Ctrl-C" if isinstance(stop, KeyboardInterrupt) else "SIGTERM"
        output.log(
            f"\nStopped by {name}: {bar.n} of {bar.total} cells are done and saved. "
            "Run the same command without --fresh to continue."
        )
        status = stop.code if isinstance(stop, SystemExit) else 130
        raise SystemExit(status) from None


def _run(missing: list[Cell], keep: Keep, workers: int) -> Generator[Done]:
    # Products are rounded by the number of threads: on a CPU a cell has one, whether it
    # is the last that is missing or one of many.
    here = jax.default_backend() != "cpu" or num_threads() == 1
    with _stopped_by_sigterm():
        if here and (workers <= 1 or len(missing) == 1):
            for cell in missing:
                yield keep(cell)
        else:
            yield from _run_parallel(missing, keep, min(workers, len(missing)))


def run_and_save(cell: Cell, folder: pathlib.Path, log: LogSettings = NO_LOG) -> Done:
    """Run a cell with its siblings in this process, or resume it; save the records."""
    checkpoints = cell.siblings[0].checkpoints(folder)
    try:
        found = cells.run(cell, checkpoints, log)
    except (ValueError, MemoryError, DatasetError, jax.errors.JaxRuntimeError) as error:
        # One cell that diverges or does not fit in memory must not stop the others.
        return cell, None, f"{type(error).__name__}: {error}"
    for each, record in found.items():
        if each == cell or each.read(folder) is None:
            each.write(folder, record)
    output.remove(checkpoints)
    return cell, found[cell], ""


def _run_parallel(missing: list[Cell], keep: Keep, workers: int) -> Iterator[Done]:
    queue, killed = list(missing), []
    while queue:
        with pool(workers) as executor:
            flying: dict[Future[Done], Cell] = {}
            while queue or flying:
                # One per worker: if one is killed, it is known over which cell.
                while queue and len(flying) < workers:
                    cell = queue.pop(0)
                    flying[executor.submit(keep, cell)] = cell
                landed, _ = wait(flying, return_when=FIRST_COMPLETED)
                broken = False
                for future in landed:
                    cell = flying.pop(future)
                    try:
                        yield future.result()
                    except BrokenProcessPool:
                        killed.append(cell)
                        broken = True
                if broken:
                    killed.extend(flying.values())
                    break
    # Two cells at once may need too much memory where one does not.
    for cell in killed:
        try:
            with pool(1) as executor:
                yield executor.submit(keep, cell).result()
        except BrokenProcessPool:
            yield cell, None, "its process was killed, perhaps out of memory"


@contextlib.contextmanager
def pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield worker processes with one thread each, which end with this one."""
    before = {name: os.environ.get(name) for name in _SINGLE_THREADED}
    os.environ.update(_SINGLE_THREADED)
    executor = ProcessPoolExecutor(
        workers, get_context("spawn"), initializer=_begin, initargs=(os.getpid(),)
    )
    try:
        yield executor
    except BaseException:
        _stop(list((executor._processes or {}).values()))
        raise
    finally:
        executor.shutdown(cancel_futures=True)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _stop(processes: Sequence[BaseProcess]) -> None:
    """End worker processes, with some time to save a checkpoint."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + _GRACE
    for process in processes:
        process.join(max(0, until - time.monotonic()))
        process.kill()


def _begin(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent decides on Ctrl-C.
    # The default lock is a semaphore, which a process ended by a signal leaks.
    tqdm.set_lock(threading.RLock())

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="hopf-orphan").start()


@contextlib.contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the run as Ctrl-C does, workers included."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

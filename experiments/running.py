"""Run cells: those not kept yet, in worker processes, each kept when it is done.

Most of a small cell is compilation, on one core, so two processes of one thread each
are nearly twice as fast as one of two threads.
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

from experiments import cells, folders
from experiments.cells import Cell, Record
from experiments.watching import UNWATCHED, Watch
from hopf_jax.datasets import DatasetError

Done = tuple[
    Cell, Record | None, str
]  # what was asked, its record, or why there is none
Keep = Callable[[Cell], Done]

_SINGLE_THREADED = {"NPROC": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_GRACE = 15.0  # seconds; batch systems give 30 from SIGTERM to SIGKILL
_XLA_FLAG = "--xla_cpu_multi_thread_eigen=false"


def default_workers() -> int:
    """Two where the processor computes and has two cores; a device serves one."""
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
    unit: str = "cell",
    watch: Watch = UNWATCHED,
) -> dict[Cell, Record]:
    """The records of the wanted cells, kept ones first, with a bar on stderr.

    Args:
      wanted: cells; a cell asked for twice is run once.
      folder: where records are kept.
      fresh: forget what is kept of these models and folds, and start over.
      workers: processes; None for `default_workers`.
      on_done: called with each cell, its record or None, and what went wrong.
      unit: what the bar counts.
      watch: where the runs report to.
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
            folders.remove(cell.checkpoints(folder))  # Stopped before it could.
    kept = list(records)
    # The bar's rate must not count what was there before: `initial` sees to it.
    with _bar(len(wanted), len(kept), unit) as bar:
        for cell in kept:
            on_done(cell, records[cell], "")
        if missing:
            count = default_workers() if workers is None else workers
            keep = functools.partial(run_and_keep, folder=folder, watch=watch)
            # Of cells that are learned together one is run, and keeps them all.
            jobs: dict[tuple[Cell, ...], list[Cell]] = {}
            for cell in missing:
                jobs.setdefault(cell.siblings, []).append(cell)
            first = [members[0] for members in jobs.values()]
            with contextlib.closing(_run(first, keep, count)) as done, _told(bar):
                for ran, found, problem in done:
                    for cell in jobs[ran.siblings]:
                        record = found if cell == ran else found and cell.read(folder)
                        if record is not None:
                            records[cell] = record
                        name = f"{cell.model} fold {cell.fold}"
                        bar.set_postfix_str(name, refresh=False)
                        bar.update()
                        on_done(cell, record, problem)
    return records


@contextlib.contextmanager
def _told(bar: tqdm) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the command, and it says what becomes of the work."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        bar.close()
        interrupted = isinstance(stop, KeyboardInterrupt)
        name = "Ctrl-C" if interrupted else "SIGTERM"
        folders.say(
            f"\nStopped by {name}, {bar.n} of {bar.total} done. What is done is kept; "
            "the same command, without --fresh, goes on."
        )
        status = stop.code if isinstance(stop, SystemExit) else 130
        raise SystemExit(status) from None


def _bar(total: int, initial: int, unit: str) -> tqdm:
    return tqdm(
        total=total,
        initial=initial,
        unit=f" {unit}",
        file=sys.stderr,
        dynamic_ncols=True,
        smoothing=0,  # Cells differ tenfold: the mean tells the time left best.
        mininterval=0.5 if sys.stderr.isatty() else 10,
        bar_format="{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{unit}s "
        "[{elapsed}, {remaining} left{postfix}]",
    )


def _run(missing: list[Cell], keep: Keep, workers: int) -> Generator[Done]:
    with _stopped_by_sigterm():
        if workers <= 1 or len(missing) == 1:
            for cell in missing:
                yield keep(cell)
        else:
            yield from _run_parallel(missing, keep, min(workers, len(missing)))


def run_and_keep(cell: Cell, folder: pathlib.Path, watch: Watch = UNWATCHED) -> Done:
    """Run a cell, with those it is learned with, and keep records, in this process.

    Or go on with it, where it is learned alone.
    """
    try:
        if cell.together:
            found = cells.run_together(cell, folder, watch)
        else:
            found = {cell: cells.run(cell, cell.checkpoints(folder), watch)}
    except (ValueError, MemoryError, DatasetError, jax.errors.JaxRuntimeError) as error:
        # One cell that diverges or does not fit leaves the others of the table.
        return cell, None, f"{type(error).__name__}: {error}"
    for each, record in found.items():
        if each == cell or each.read(folder) is None:
            each.write(folder, record)
        else:
            folders.remove(each.checkpoints(folder))
    return cell, found[cell], ""


def _run_parallel(missing: list[Cell], keep: Keep, workers: int) -> Iterator[Done]:
    queue, killed = list(missing), []
    while queue:
        with _pool(workers) as pool:
            flying: dict[Future[Done], Cell] = {}
            while queue or flying:
                # One each: if a worker is killed, it is known over what.
                while queue and len(flying) < workers:
                    cell = queue.pop(0)
                    flying[pool.submit(keep, cell)] = cell
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
    # Two at once may be too much for the memory where one is not.
    for cell in killed:
        try:
            with _pool(1) as pool:
                yield pool.submit(keep, cell).result()
        except BrokenProcessPool:
            yield cell, None, "its process was killed: out of memory?"


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes of one thread each, that end with this one."""
    flags = os.environ.get("XLA_FLAGS", "")
    alone = _SINGLE_THREADED | {"XLA_FLAGS": f"{flags} {_XLA_FLAG}".strip()}
    before = {name: os.environ.get(name) for name in alone}
    os.environ.update(alone)
    pool = ProcessPoolExecutor(
        workers, get_context("spawn"), initializer=_begin, initargs=(os.getpid(),)
    )
    try:
        yield pool
    except BaseException:
        _stop(list((pool._processes or {}).values()))
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _stop(processes: Sequence[BaseProcess]) -> None:
    """End worker processes: a fit keeps a checkpoint, if that does not take long."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + _GRACE
    for process in processes:
        process.join(max(0, until - time.monotonic()))
        process.kill()


def _begin(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent decides on Ctrl-C.
    # Its own lock is a semaphore, which a process that is ended by a signal leaves.
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
    """SIGTERM ends the run as Ctrl-C does, workers included."""
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

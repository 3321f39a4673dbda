"""Checkpoints with orbax: a run that was stopped resumes where it stopped.

A checkpoint holds plain data and named arrays, sealed with a digest; their meaning is
up to the caller. Every process of a job reads checkpoints; the first writes them.
"""

import contextlib
import hashlib
import importlib
import itertools
import json
import os
import re
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

import jax
import numpy as np

from hopf_jax.config import Whole, check
from hopf_jax.runtime.publishing import TemporaryError, held_folder
from hopf_jax.runtime.signals import Interruption, saved_at_signals
from hopf_jax.runtime.untrusted import open_regular

_KEPT = 2  # Checkpoints: one to spare in case the newest is damaged.
_COST = 0.05  # Largest share of the time that checkpoints may take.
_META, _SEAL = "meta", "sha256"
_ITEM = "default"  # Orbax's folder within a checkpoint.
_ASIDE = "unreadable-"
_STEP = re.compile(rf"(?P<number>\d+)|{_ASIDE}(?P<aside>\d+)-\d+")

Arrays = dict[str, np.ndarray]
Packed = tuple[dict[str, Any], Arrays]  # Plain data, and arrays by name.


class _Snapshot(Protocol):
    """The state of a run after `num_epochs`, which its plain data contain."""

    @property
    def num_epochs(self) -> int: ...
    @property
    def finished(self) -> bool: ...
    def pack(self) -> Packed: ...


@contextlib.contextmanager
def checkpointed(
    workdir: str | os.PathLike | None,
    identity: Callable[[], Mapping[str, Any]],
    every: int = 1,
    notes: Mapping[str, Any] | None = None,
    free: Iterable[str] = (),
) -> Iterator[tuple[Packed | None, Callable[[_Snapshot], None]]]:
    """Yield the restored state of a run, or None, and a function that saves a new one.

    SIGTERM and SIGINT save the last state before they end the process.

    Args:
      workdir: Folder of the run; None to save nothing.
      identity: Returns what the numbers of the run depend on. A folder with checkpoints
        of another identity is refused.
      every: Number of epochs between checkpoints.
      notes: Further facts of the run; a warning is issued if they differ on resume.
      free: Names of the identity that are treated as notes.
    """
    check(Whole(1, 2**62), "checkpoint_every", every)
    if workdir is None:
        yield None, lambda snapshot: None
        return
    with contextlib.ExitStack() as stack:
        checkpoints = Checkpoints(workdir, identity(), every, notes or {}, stack, free)
        stack.callback(checkpoints.close)
        found = checkpoints.restore()
        with saved_at_signals(checkpoints.save) as interruption:
            yield found, lambda new: checkpoints.offer(new, interruption)


class Checkpoints:
    """The checkpoints of one run in a folder.

    Args:
      workdir: A local path, or one that etils and tensorstore know, such as gs://.
      identity: What the numbers of the run depend on, as plain data.
      every: Number of epochs between checkpoints; larger where checkpoints would take
        more than a twentieth of the time.
      notes: Further facts of the run, as plain data.
      stack: Holds the folder, so that a second run is refused; None for no lock.
      free: Names of the identity that are treated as notes.
    """

    def __init__(
        self,
        workdir: str | os.PathLike,
        identity: Mapping[str, Any],
        every: int,
        notes: Mapping[str, Any],
        stack: contextlib.ExitStack | None = None,
        free: Iterable[str] = (),
    ) -> None:
        # Lazy: orbax is slow to import, and needed only with a workdir.
        import orbax.checkpoint as ocp
        from etils import epath

        self._ocp = ocp
        if not isinstance(workdir, str | os.PathLike) or not os.fspath(workdir):
            raise ValueError(f"workdir is {workdir!r}; give a path, or None for none.")
        self._identity, self._notes = _plain(identity), _plain(notes)
        self._free = frozenset(free)
        self._every = every
        self._latest: _Snapshot | None = None
        self._saved: _Snapshot | None = None
        self._saved_epochs = 0
        self._earliest = 0.0
        self._writes = jax.process_index() == 0
        try:
            path = epath.Path(workdir).expanduser()
            if os.fspath(path).startswith("gs://"):
                # Orbax needs it to prune, from the third checkpoint on: fail at once.
                importlib.import_module("google.cloud.storage")
            else:
                path = path.absolute()  # As orbax wants it.
            self._folder = path / "checkpoints"
            self._folder.mkdir(parents=True, exist_ok=True)
            if stack is not None and self._writes:
                stack.enter_context(held_folder(path))
        except (FileExistsError, NotADirectoryError) as error:
            raise ValueError(
                f"workdir is {os.fspath(workdir)}, which is not a folder."
            ) from error
        except ImportError as error:
            raise ValueError(
                f"workdir is {os.fspath(workdir)}, and a package for that is missing: "
                f"{error}. For gs://, pip install 'hopf-jax[gcs]'."
            ) from error
        self._known: list[int] = []  # Read or written by this process.
        self._manager = self._open()
        self._reader = ocp.StandardCheckpointer()

    def _open(self) -> Any:
        ocp, me = self._ocp, jax.process_index()
        policies = ocp.checkpoint_managers.preservation_policy
        return ocp.CheckpointManager(
            self._folder,
            options=ocp.CheckpointManagerOptions(
                create=False,
                preservation_policy=policies.PreserveAll(),  # `_prune` decides.
                cleanup_tmp_directories=self._writes,
                enable_async_checkpointing=False,
                # Every process acts alone: all hold the same state, and waiting for
                # others could deadlock, as signals arrive at different times.
                multiprocessing_options=ocp.options.MultiprocessingOptions(
                    primary_host=me, active_processes={me}
                ),
            ),
        )

    def close(self) -> None:
        """Stop orbax's threads."""
        self._manager.close()
        self._reader.close()

    def _next_step(self) -> int:
        """Return a number above all others, of stray and set-aside folders too."""
        found = (_STEP.fullmatch(path.name) for path in self._entries())
        return max((_number(each[0]) for each in found if each), default=0) + 1

    def restore(self) -> Packed | None:
        """Return the newest readable checkpoint, or None if there is none.

        One that cannot be read is set aside with a warning, and the one before it is
        used: the run then repeats some epochs, and ends the same. Those that were set
        aside earlier are tried again, as a read error may have passed.

        Raises:
          TemporaryError: There are checkpoints, but none can be read.
        """
        problems: dict[str, str] = {}
        for name in sorted(self._names(), key=_number, reverse=True):
            try:
                meta, arrays = _read(self._reader, self._folder / name)
            except Exception as error:  # Damaged files fail in many ways.
                problems[name] = f"{type(error).__name__}: {error}"
                continue
            self._check(meta["identity"], meta.get("notes", {}))
            for failed, problem in problems.items():
                self._set_aside(failed, problem)
            self._known.append(_number(name))
            self._saved_epochs = meta["state"]["num_epochs"]
            return meta["state"], arrays
        if problems:
            name, problem = next(iter(problems.items()))
            raise TemporaryError(
                f"None of the checkpoints in {self._folder} can be read. The newest, "
                f"{name}, fails with {problem}. Nothing was deleted. Try again; if it "
                "fails again, give another workdir to start over."
            )
        return None

    def _entries(self) -> list[Any]:
        try:
            return list(self._folder.iterdir())
        except FileNotFoundError:  # Object storage has no empty folders.
            return []

    def _names(self) -> list[str]:
        """Return the checkpoints, also those set aside; empty folders are none."""
        return [
            path.name
            for path in self._entries()
            if _STEP.fullmatch(path.name) and path.is_dir() and any(path.iterdir())
        ]

    def _set_aside(self, name: str, problem: str) -> None:
        """Rename a checkpoint that cannot be read, so that it is not in the way."""
        warnings.warn(
            f"Checkpoint {self._folder / name} cannot be read and is set aside: "
            f"{problem}",
            stacklevel=7,  # The caller of fit.
        )
        if self._writes and name.isdecimal():
            taken = {path.name for path in self._entries()}
            new = (f"{_ASIDE}{name}-{i}" for i in itertools.count())
            free = next(each for each in new if each not in taken)
            (self._folder / name).rename(self._folder / free)

    def _prune(self) -> None:
        """Delete what may be deleted: the only place that deletes checkpoints.

        A folder goes once `_KEPT` newer checkpoints are on disk, each of which this
        process has read or written completely. So nothing goes on doubt.
        """
        self._known = sorted(self._known)[-_KEPT:]
        if len(self._known) < _KEPT:
            return
        for name in self._names():
            if _number(name) < self._known[0]:
                _remove(self._folder / name)

    def _check(self, found: Mapping[str, Any], notes: Mapping[str, Any]) -> None:
        mine, folder = self._identity, self._folder.parent
        if found.get("format") != mine.get("format"):
            version = found.get("version of hopf_jax", "another version")
            raise ValueError(
                f"{folder} holds checkpoints of hopf_jax {version}, which this version "
                "cannot resume. Finish the run with that version, or give another "
                "workdir."
            )
        if differing := differences(mine, found, without=self._free):
            raise ValueError(
                f"{folder} holds another run: {differing}. Give each run a workdir of "
                "its own, or remove this one."
            )
        before = {n: found.get(n) for n in self._free} | dict(notes)
        if differing := differences(
            {n: mine.get(n) for n in self._free} | self._notes, before
        ):
            warnings.warn(
                f"The run in {folder} is resumed with other settings of execution: "
                f"{differing}. Its results may differ in the last digits from those of "
                "an uninterrupted run.",
                stacklevel=7,  # The caller of fit.
            )

    def offer(self, snapshot: _Snapshot, interruption: Interruption) -> None:
        """Note the state of the run, and save it if a checkpoint is due."""
        self._latest = snapshot
        interruption.check()
        since = snapshot.num_epochs - self._saved_epochs
        due = since >= self._every and time.monotonic() >= self._earliest
        if due or snapshot.finished:
            with interruption.hold():
                self.save()

    def save(self) -> None:
        """Save the state noted last, unless it is saved already."""
        if not self._writes or self._latest is None or self._latest is self._saved:
            return
        begun = time.monotonic()
        state, arrays = self._latest.pack()
        meta = {"identity": self._identity, "notes": self._notes, "state": state}
        step = self._next_step()
        sealed = self._ocp.args.StandardSave(_seal(meta, arrays))
        try:
            self._manager.save(step, args=sealed)
        except ValueError as error:  # As tensorstore reports a full disk.
            raise OSError(f"{self._folder / str(step)}: {error}") from error
        self._known.append(step)
        self._prune()
        self._saved, self._saved_epochs = self._latest, self._latest.num_epochs
        ended = time.monotonic()
        self._earliest = ended + (ended - begun) / _COST


def read_checkpoint(folder: str | os.PathLike) -> Packed:
    """Return the plain data and the arrays of one checkpoint; raise if it is damaged.

    The plain data are the `identity` and the `notes` of the run, and its `state`.
    """
    import orbax.checkpoint as ocp
    from etils import epath

    with ocp.StandardCheckpointer() as reader:
        return _read(reader, epath.Path(folder).absolute())


def _remove(folder: Any) -> None:
    """Delete a folder, or a link to one, but not what a link leads to."""
    if os.path.islink(folder):
        folder.unlink()
    else:
        folder.rmtree()


def _read(reader: Any, folder: Any) -> Packed:
    for root, _, files in [] if "://" in os.fspath(folder) else os.walk(folder):
        for name in files:  # Native code would wait for ever at a pipe.
            open_regular(os.path.join(root, name)).close()
    arrays = reader.restore(folder / _ITEM)
    return _unseal(arrays), arrays


def _number(name: str) -> int:
    """Return the number of a checkpoint, or of one that was set aside."""
    found = _STEP.fullmatch(name)
    assert found is not None
    return int(found["number"] or found["aside"])


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data as it is read back from JSON: tuples become lists."""
    return json.loads(json.dumps(data))


def differences(
    mine: Mapping[str, Any],
    found: Mapping[str, Any],
    without: Collection[str] = (),
    where: str = "the checkpoint",
) -> str:
    """Return which facts of two runs differ, and how, for a message."""
    names = [n for n in {**mine, **found} if n not in without]
    return "; ".join(
        f"{n} is {mine.get(n)!r}, but {found.get(n)!r} in {where}"
        for n in names
        if mine.get(n) != found.get(n)
    )


def _seal(meta: Mapping[str, Any], arrays: Arrays) -> Arrays:
    # Orbax cannot save arrays without elements; readers know their shapes.
    arrays = {name: np.asarray(a) for name, a in arrays.items() if a.size}
    arrays[_META] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    return arrays | {_SEAL: np.frombuffer(digest(arrays), np.uint8)}


def _unseal(arrays: Arrays) -> dict[str, Any]:
    """Return the plain data of a checkpoint; raise if it is damaged."""
    seal = arrays.pop(_SEAL)
    if digest(arrays) != seal.tobytes():
        raise ValueError("its contents do not have the digest they were saved with")
    meta = json.loads(arrays.pop(_META).tobytes())
    if "state" not in meta:  # The format of version 0.1, which `_check` refuses.
        meta = {"identity": meta["identity"], "state": meta}
    return meta


def digest(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return a digest of names, types, shapes and contents.

    A memory map is read piece by piece.
    """
    state = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        state.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        rows = array.reshape(1) if array.ndim == 0 else array
        step = max(1, 2**24 // max(1, rows[:1].nbytes))
        for start in range(0, len(rows), step):
            state.update(np.ascontiguousarray(rows[start : start + step]).data)
    return state.digest()

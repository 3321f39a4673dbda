"""Checkpoints of `fit`, with orbax: a run that was stopped goes on where it stood.

A checkpoint is all that later epochs depend on and all that was found so far, as named
arrays sealed with a digest. Keys of random draws are not among them: they follow from
the seed, the iteration and the epoch. Every process of a job reads; the first writes.
"""

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.metadata
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse as sp

from hopf_jax.config import Config
from hopf_jax.graph import Graph
from hopf_jax.interruption import Interruption, saved_at_signals
from hopf_jax.models import Row, row_to_json
from hopf_jax.patience import Patience
from hopf_jax.training import Progress, State

_FORMAT = 1
_KEPT = 2  # checkpoints; the older one is for when the newer is damaged
_COST = 0.05  # of the time may go into checkpoints
_META, _SEAL = "meta", "sha256"
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")


class Standing(NamedTuple):
    """Where a run stands between two epochs.

    Attributes:
      summary: what the iteration reads of those before it, or None.
      history: records of epochs; only added to, so that the first `num_epochs` of them
        are this standing's, whatever has been added since.
      weights, iterations: of the iterations that are done.
      right: how right each was on each validation node.
      best: the one to report so far (from 1), with its probabilities.
      progress: inside the iteration that is being learned; None before its first epoch.
      finished: nothing is left to learn.
    """

    summary: np.ndarray | None
    history: list[dict[str, Any]]
    num_epochs: int = 0
    weights: tuple[dict[str, Any], ...] = ()
    iterations: tuple[dict[str, Any], ...] = ()
    right: tuple[np.ndarray, ...] = ()
    best: int = 0
    probabilities: np.ndarray = np.zeros(0, np.float32)
    progress: Progress | None = None
    finished: bool = False


@contextlib.contextmanager
def kept(
    workdir: str | os.PathLike | None,
    run: tuple[Graph, Row, Config, int],
    first: Standing,
    start: Callable[[], State],
    every: int = 1,
) -> Iterator[tuple[Standing, Callable[[Standing], None]]]:
    """Where a run stands, and a function that takes note of where it comes to.

    Args:
      workdir: where it is kept, at SIGTERM and SIGINT too; None to keep nothing.
      run: graph, row, settings and seed; the folder of another run is refused.
      first: where a run begins that is not in the folder yet.
      start: makes the state that training starts from, for its structure.
      every: epochs from one checkpoint to the next.
    """
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise ValueError(
            f"checkpoint_every is {every!r}; it must be a whole number, 1 or more."
        )
    if workdir is None:
        yield first, lambda standing: None
        return
    with contextlib.closing(Keeper(workdir, identify(*run), start, every)) as keeper:
        found = keeper.restore()
        with saved_at_signals(keeper.save) as interruption:
            yield found or first, lambda new: keeper.offer(new, interruption)


class Keeper:
    """Keeps where a run stands in a folder, and finds it again.

    Args:
      workdir: a local path, or one that etils and tensorstore know, such as gs://.
      identity: what the run depends on (`identify`); a folder that has another is
        refused.
      start: makes the state that training starts from, for its structure.
      every: epochs from one checkpoint to the next. It is longer where checkpoints
        would take more than a twentieth of the time.
    """

    def __init__(
        self,
        workdir: str | os.PathLike,
        identity: Mapping[str, Any],
        start: Callable[[], State],
        every: int = 1,
    ) -> None:
        # A second of import, for those who ask.
        import orbax.checkpoint as ocp
        from etils import epath

        self._ocp = ocp
        if not isinstance(workdir, str | os.PathLike) or not os.fspath(workdir):
            raise ValueError(f"workdir is {workdir!r}; give a path, or None for none.")
        self._identity = dict(identity)
        self._start = start
        self._every = every
        self._latest: Standing | None = None
        self._saved: Standing | None = None
        self._earliest = 0.0
        self._writes = jax.process_index() == 0
        try:
            path = epath.Path(workdir).expanduser()
            if os.fspath(path).startswith("gs://"):
                # Orbax would miss it at the third checkpoint, when it prunes.
                importlib.import_module("google.cloud.storage")
            else:
                path = path.absolute()  # As orbax wants it.
            self._folder = path / "checkpoints"
            self._folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise ValueError(
                f"workdir is {os.fspath(workdir)}, which is not a folder."
            ) from error
        except ImportError as error:
            raise ValueError(
                f"workdir is {os.fspath(workdir)}, and a package for that is missing: "
                f"{error}. For gs://, pip install 'hopf-jax[gcs]'."
            ) from error
        self._manager = self._open()

    def _open(self) -> Any:
        ocp, me = self._ocp, jax.process_index()
        policies = ocp.checkpoint_managers.preservation_policy
        return ocp.CheckpointManager(
            self._folder,
            options=ocp.CheckpointManagerOptions(
                create=False,
                preservation_policy=policies.LatestN(_KEPT),
                cleanup_tmp_directories=self._writes,
                enable_async_checkpointing=False,
                # As if alone: what is saved is the same on all processes, and a signal
                # reaches them at different times, so that they must not wait here.
                multiprocessing_options=ocp.options.MultiprocessingOptions(
                    primary_host=me, active_processes={me}
                ),
            ),
        )

    def close(self) -> None:
        """Let go of orbax's threads."""
        self._manager.close()

    def restore(self) -> Standing | None:
        """Where the run stood when it was last kept; None if it is to begin.

        A checkpoint that cannot be read is removed with a warning, and the one before
        it is used: the run then does again what it had done, and ends the same.
        """
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                arrays = self._manager.restore(
                    step, args=self._ocp.args.StandardRestore()
                )
                meta = _unseal(arrays)
            except Exception as error:  # Damaged files fail in many ways.
                warnings.warn(
                    f"Checkpoint {self._folder / str(step)} cannot be read and is left "
                    f"out: {type(error).__name__}: {error}",
                    stacklevel=5,  # Whoever called fit.
                )
                if self._writes:
                    self._manager.delete(step)
                continue
            self._check(meta["identity"])
            self._latest = self._saved = _unpack(meta, arrays, self._start)
            return self._latest
        return None

    def _check(self, found: Mapping[str, Any]) -> None:
        mine = json.loads(json.dumps(self._identity))
        names = [n for n in mine | found if mine.get(n) != found.get(n)]
        if names:
            what = "; ".join(
                f"{n} is {mine.get(n)!r}, there {found.get(n)!r}" for n in names
            )
            raise ValueError(
                f"{self._folder.parent} holds another run: {what}. Give each run a "
                "workdir of its own, or remove this one."
            )

    def offer(self, standing: Standing, interruption: Interruption) -> None:
        """Take note of where the run stands, and keep it if it is time to."""
        self._latest = standing
        interruption.check()
        since = standing.num_epochs - (self._saved.num_epochs if self._saved else 0)
        due = since >= self._every and time.monotonic() >= self._earliest
        if due or standing.finished:
            with interruption.hold():
                self.save()

    def save(self) -> None:
        """Keep the last standing offered, unless it is kept already."""
        if not self._writes or self._latest is None or self._latest is self._saved:
            return
        begun = time.monotonic()
        arrays = _pack(self._latest, self._identity)
        step = max(self._manager.all_steps(), default=0) + 1
        self._manager.save(step, args=self._ocp.args.StandardSave(arrays))
        self._saved, ended = self._latest, time.monotonic()
        self._earliest = ended + (ended - begun) / _COST


def identify(graph: Graph, row: Row, config: Config, seed: int) -> dict[str, Any]:
    """What a run's numbers depend on, as plain data; the graph as a digest."""
    versions = {f"version of {n}": importlib.metadata.version(n) for n in _PACKAGES}
    # Of the code that runs; a checkout need not be what is installed.
    package = importlib.import_module(__name__.partition(".")[0])
    versions[f"version of {package.__name__}"] = package.__version__
    settings = {f"config.{n}": v for n, v in dataclasses.asdict(config).items()}
    rows = {f"row.{n}": v for n, v in row_to_json(row).items()}
    about = {"format": _FORMAT, "graph": _digest_graph(graph), "seed": seed}
    return about | rows | settings | versions | {"backend": jax.default_backend()}


def _digest_graph(graph: Graph) -> str:
    parts: dict[str, Any] = {}
    for field in dataclasses.fields(graph):
        value = getattr(graph, field.name)
        if sp.issparse(value):
            each = ("indptr", "indices", "data")
            parts |= {f"{field.name}.{n}": getattr(value, n) for n in each}
            value = np.asarray(value.shape)
        if not isinstance(value, np.ndarray):
            value = np.frombuffer(json.dumps(value).encode(), np.uint8)
        parts[field.name] = value
    return _digest(parts)[:16].hex()


def _digest(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Of names, types, shapes and contents; a memory map is read piece by piece."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        rows = array.reshape(1) if array.ndim == 0 else array
        step = max(1, 2**24 // max(1, rows[:1].nbytes))
        for start in range(0, len(rows), step):
            digest.update(np.ascontiguousarray(rows[start : start + step]).data)
    return digest.digest()


def _pack(standing: Standing, identity: Mapping[str, Any]) -> dict[str, np.ndarray]:
    progress = standing.progress
    meta: dict[str, Any] = {
        "identity": identity,
        "history": standing.history[: standing.num_epochs],
        "iterations": standing.iterations,
        "best": standing.best,
        "finished": standing.finished,
        "progress": None,
    }
    arrays = {"probabilities": standing.probabilities}
    if standing.summary is not None:
        arrays["summary"] = standing.summary
    for t, params in enumerate(standing.weights, start=1):
        arrays |= {f"weights.{t}.{name}": w for name, w in params.items()}
    arrays |= {f"right.{t}": scores for t, scores in enumerate(standing.right, start=1)}
    if progress is not None:
        rule = dataclasses.asdict(progress.rule)
        meta["progress"] = {"epoch": progress.epoch, "rule": rule}
        for name in ("state", "best"):
            leaves = jax.device_get(jax.tree.leaves(getattr(progress, name)))
            arrays |= {f"{name}.{i}": leaf for i, leaf in enumerate(leaves)}
    # Orbax keeps no array without elements, nor is there anything in one to keep.
    arrays = {name: np.asarray(a) for name, a in arrays.items() if a.size}
    arrays[_META] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    return arrays | {_SEAL: np.frombuffer(_digest(arrays), np.uint8)}


def _unseal(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The plain data of a checkpoint that is whole."""
    seal = arrays.pop(_SEAL)
    if _digest(arrays) != seal.tobytes():
        raise ValueError("its contents do not have the digest they were saved with")
    return json.loads(arrays.pop(_META).tobytes())


def _unpack(
    meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray], start: Callable
) -> Standing:
    like = jax.eval_shape(start)

    def tree(prefix: str, like: Any) -> Any:
        leaves, structure = jax.tree.flatten(like)
        found = [
            arrays.get(f"{prefix}.{i}", np.zeros(leaf.shape, leaf.dtype))
            for i, leaf in enumerate(leaves)
        ]
        return jax.tree.unflatten(structure, found)

    progress = None
    if meta["progress"] is not None:
        rule = Patience(**meta["progress"]["rule"])
        epoch = meta["progress"]["epoch"]
        progress = Progress(epoch, tree("state", like), tree("best", like), rule)
    weights = tuple(
        {
            name: arrays.get(f"weights.{t}.{name}", np.zeros(leaf.shape, leaf.dtype))
            for name, leaf in like.params.items()
        }
        for t in range(1, len(meta["iterations"]) + 1)
    )
    return Standing(
        summary=arrays.get("summary"),
        history=meta["history"],
        num_epochs=len(meta["history"]),
        weights=weights,
        iterations=tuple(meta["iterations"]),
        right=tuple(
            arrays[f"right.{t}"] for t in range(1, len(meta["iterations"]) + 1)
        ),
        best=meta["best"],
        probabilities=arrays.get("probabilities", np.zeros(0, np.float32)),
        progress=progress,
        finished=meta["finished"],
    )

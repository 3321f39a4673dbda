"""Cells: one model trained on one fold with one configuration, and its record.

The key of a cell covers everything its figures depend on, so a saved record is reused
only for the same data, kernel, settings, seed, package versions and code.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import pathlib
import resource
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import hopf_jax
from experiments.common import output
from experiments.common.run_logging import NO_LOG, LogSettings
from hopf_jax.datasets import load_dataset
from hopf_jax.kernels import MODELS, kernel_to_json
from hopf_jax.metrics import f1_scores, one_hot

HELD_OUT = "held-out "  # Cell.split of `split_known`, followed by the turn.
HELD_OUT_PARTS = 4

Record = dict[str, Any]
Iterations = list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One model on one fold: what a record is a record of."""

    dataset: str
    model: str
    fold: int
    config: hopf_jax.Config
    seed: int = 0
    split: str = "transductive"
    together: tuple[int, ...] = ()  # Folds to train in one program; () is this alone.

    @property
    def siblings(self) -> tuple["Cell", ...]:
        """The cells that are trained in one program with this one, itself included."""
        folds = self.together or (self.fold,)
        return tuple(dataclasses.replace(self, fold=fold) for fold in folds)

    def settings(self) -> dict[str, Any]:
        """Return everything the record depends on, as plain data."""
        # A program for several folds rounds differently.
        shared = {"together": self.together} if self.together else {}
        return shared | {
            "dataset": self.dataset,
            "model": self.model,
            "kernel": kernel_to_json(MODELS[self.model]),
            "fold": self.fold,
            "seed": self.seed,
            "split": self.split,
            "config": dataclasses.asdict(self.config),
            "versions": output.versions(),
            "code": output.code_digest(),
        }

    @property
    def key(self) -> str:
        """A short digest of the settings."""
        text = json.dumps(self.settings(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def path(self, folder: pathlib.Path) -> pathlib.Path:
        """Return its file in a folder of cells."""
        return folder / f"{self.model}-fold{self.fold}-{self.key}.json"

    @property
    def name(self) -> str:
        """Its name in logs."""
        return f"{self.dataset}/{self.model}/fold-{self.fold}/{self.key}"

    def checkpoints(self, folder: pathlib.Path) -> pathlib.Path:
        """Return the folder of checkpoints while it is trained."""
        return self.path(folder).with_suffix("")

    def read(self, folder: pathlib.Path) -> Record | None:
        """Return the saved record, or None."""
        found = output.read_json(self.path(folder))
        if not isinstance(found, dict) or "record" not in found:
            return None
        return found["record"]

    def write(self, folder: pathlib.Path, record: Record) -> None:
        """Save a record."""
        data = {"settings": self.settings(), "record": record}
        output.write_json(self.path(folder), data)

    def forget(self, folder: pathlib.Path) -> None:
        """Remove all records of this model and fold, whatever their settings."""
        for path in list(folder.iterdir()) if folder.exists() else ():
            if path.name.startswith(f"{self.model}-fold{self.fold}-"):
                output.remove(path)


@functools.lru_cache(maxsize=1)
def _load(dataset: str, fold: int, split: str) -> hopf_jax.Graph:
    if split.startswith(HELD_OUT):
        turn = int(split.removeprefix(HELD_OUT))
        return split_known(load_dataset(dataset, fold=fold), turn, fold)
    return load_dataset(dataset, fold=fold, split=split)


def split_known(graph: hopf_jax.Graph, turn: int, seed: int) -> hopf_jax.Graph:
    """Split the labelled nodes again: a part is held out as the test nodes.

    The others are training and validation nodes, as 4 to 1.

    Args:
      graph: A graph with a split; its test nodes are in no set afterwards.
      turn: Which of `HELD_OUT_PARTS` parts is held out, from 0.
      seed: Seed of the parts.
    """
    known = np.flatnonzero(graph.train | graph.validation)
    known = np.random.default_rng(seed).permutation(known)
    parts = np.array_split(known, HELD_OUT_PARTS)
    others = np.concatenate(parts[:turn] + parts[turn + 1 :])
    count = len(others) // 5
    return graph.with_split(others[count:], others[:count], parts[turn])


def run(
    cell: Cell, workdir: pathlib.Path | None = None, log: LogSettings = NO_LOG
) -> dict[Cell, Record]:
    """Train and score a cell and its siblings; F1 in percent, as the paper prints it.

    Args:
      cell: The cell.
      workdir: Folder of checkpoints; training resumes from them.
      log: Where the runs are logged.

    Returns:
      One record per sibling, with equal shares of the seconds.
    """
    siblings = cell.siblings
    graphs = [_load(c.dataset, c.fold, c.split) for c in siblings]
    begun = time.perf_counter()
    with contextlib.ExitStack() as stack:
        stack.enter_context(expecting_warnings())
        logs = [stack.enter_context(log.open(c.name)) for c in siblings]
        if cell.together:

            def on_epoch(record: dict[str, Any]) -> None:
                fields = {name: v for name, v in record.items() if name != "fold"}
                for callback in logs[record["fold"]]:
                    callback(fields)

            results = hopf_jax.fit_folds(
                graphs,
                cell.model,
                cell.config,
                seed=cell.seed,
                callbacks=[on_epoch],
                progress=False,
                workdir=workdir,
            )
            found = [(result, _in_percent(result)) for result in results]
        else:
            fit = functools.partial(hopf_jax.fit, callbacks=logs[0], workdir=workdir)
            learn = _learn_inductively if cell.split == "inductive" else _learn
            found = [learn(cell, graphs[0], fit)]
        for own, (result, _) in zip(logs, found, strict=True):
            own.write_result(result)
    seconds = (time.perf_counter() - begun) / len(found)
    return {
        each: _record(result, iterations, seconds)
        for each, (result, iterations) in zip(siblings, found, strict=True)
    }


def expecting_warnings() -> Any:
    """Return a context without `HopfWarning`: the paper's settings are as they are."""
    return warnings.catch_warnings(action="ignore", category=hopf_jax.HopfWarning)


def _record(result: hopf_jax.Result, iterations: Iterations, seconds: float) -> Record:
    # A run that was resumed has taken longer than this process measured.
    seconds = max(seconds, sum(r["seconds"] for r in result.iterations))
    epoch_seconds = float(np.median([r["seconds"] for r in result.history]))
    return {
        "scores": iterations[result.iteration - 1]["scores"],
        "iteration": result.iteration,
        "iterations": iterations,
        "epochs": len(result.history),
        "seconds": round(seconds, 3),
        "epoch_seconds": round(epoch_seconds, 6),
        "losses": {
            name: [
                float(f"{r[f'{name}_loss']:.5g}")
                for r in result.history
                if not r.get("member")
            ]
            for name in ("train", "validation")
        },
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _learn(
    cell: Cell, graph: hopf_jax.Graph, fit: Callable[..., hopf_jax.Result]
) -> tuple[hopf_jax.Result, Iterations]:
    result = fit(graph, cell.model, cell.config, seed=cell.seed, progress=False)
    return result, _in_percent(result)


def _learn_inductively(
    cell: Cell, graph: hopf_jax.Graph, fit: Callable[..., hopf_jax.Result]
) -> tuple[hopf_jax.Result, Iterations]:
    """Train without the test graphs, then replay every iteration on them."""
    seen, new = induced(graph, ~graph.test), induced(graph, graph.test)
    result, iterations = _learn(cell, seen, fit)
    # Labels of the new graphs are for scoring only: they have no training nodes.
    unlabelled = new.with_split()
    for t, record in enumerate(iterations, start=1):
        other = dataclasses.replace(result, iteration=t)
        predicted = result.decision.decide(other.predict_proba(unlabelled))
        if not graph.multilabel:
            predicted = one_hot(predicted, graph.num_labels)
        scores = f1_scores(new.labels, predicted)
        record["scores"]["test"] = {k: 100 * v for k, v in scores.items()}
    return result, iterations


def induced(graph: hopf_jax.Graph, mask: np.ndarray) -> hopf_jax.Graph:
    """Return the graph of some nodes and the edges between them."""
    nodes = np.flatnonzero(mask)
    return hopf_jax.Graph.from_scipy(
        graph.adjacency[nodes][:, nodes],
        graph.features[nodes],
        graph.labels[nodes],
        multilabel=graph.multilabel,
        label_names=graph.label_names,
        train=graph.train[nodes],
        validation=graph.validation[nodes],
        test=graph.test[nodes],
        directed=graph.directed,
    )


def _in_percent(result: hopf_jax.Result) -> Iterations:
    """Return the records of all iterations, with F1 in percent."""
    return [
        record
        | {
            "scores": {
                name: {metric: 100 * value for metric, value in each.items()}
                for name, each in record["scores"].items()
            },
            "seconds": round(record["seconds"], 3),
        }
        for record in result.iterations
    ]

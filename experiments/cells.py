"""A cell: one model learned on one fold with one configuration, and its record.

Everything a figure depends on is in the cell's key, so a record is used again only for
the very same question: same data, row, settings, seed, package versions and code.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import pathlib
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import hopf_jax
from experiments import folders
from experiments.watching import UNWATCHED, Watch
from hopf_jax.datasets import load_dataset
from hopf_jax.kernels import MODELS, kernel_to_json
from hopf_jax.metrics import f1_scores, one_hot
from hopf_jax.together import CannotJoinError, fit_folds

Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Cell:
    """What one record answers."""

    dataset: str
    model: str
    fold: int
    config: hopf_jax.Config
    seed: int = 0
    percent: float = 10
    split: str = "transductive"
    together: tuple[int, ...] = ()  # folds to learn in one program; () for this alone

    @property
    def siblings(self) -> tuple["Cell", ...]:
        """The cells that are learned in one program with this one, itself included."""
        folds = self.together or (self.fold,)
        return tuple(dataclasses.replace(self, fold=fold) for fold in folds)

    def settings(self) -> dict[str, Any]:
        """Everything the record depends on, as plain data."""
        # Another program rounds otherwise.
        shared = {"together": self.together} if self.together else {}
        return shared | {
            "dataset": self.dataset,
            "model": self.model,
            "row": kernel_to_json(MODELS[self.model]),
            "fold": self.fold,
            "seed": self.seed,
            "percent": self.percent,
            "split": self.split,
            "config": dataclasses.asdict(self.config),
            "versions": folders.versions(),
            "code": folders.code_digest(),
        }

    @property
    def key(self) -> str:
        """A short digest of the settings."""
        text = json.dumps(self.settings(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def path(self, folder: pathlib.Path) -> pathlib.Path:
        """Its file in a folder of cells."""
        return folder / f"{self.model}-fold{self.fold}-{self.key}.json"

    @property
    def name(self) -> str:
        """What its log lines call it."""
        return f"{self.dataset}/{self.model}/fold-{self.fold}/{self.key}"

    def checkpoints(self, folder: pathlib.Path) -> pathlib.Path:
        """Where its fit keeps checkpoints until it is done."""
        return self.path(folder).with_suffix("")

    def read(self, folder: pathlib.Path) -> Record | None:
        """The record kept earlier, if there is one."""
        found = folders.read_json(self.path(folder))
        if not isinstance(found, dict) or "record" not in found:
            return None
        return found["record"]

    def write(self, folder: pathlib.Path, record: Record) -> None:
        """Keep a record; checkpoints are not needed any more."""
        data = {"settings": self.settings(), "record": record}
        folders.write_json(self.path(folder), data)
        folders.remove(self.checkpoints(folder))

    def forget(self, folder: pathlib.Path) -> None:
        """Remove what is kept of this model and fold, whatever its settings."""
        for path in list(folder.iterdir()) if folder.exists() else ():
            if path.name.startswith(f"{self.model}-fold{self.fold}-"):
                folders.remove(path)


@functools.lru_cache(maxsize=1)
def _load(dataset: str, fold: int, percent: float, split: str) -> hopf_jax.Graph:
    return load_dataset(dataset, fold=fold, percent=percent, split=split)


def run(
    cell: Cell, workdir: pathlib.Path | None = None, watch: Watch = UNWATCHED
) -> Record:
    """Learn and score; F1 in percent, as the paper prints it.

    Args:
      cell: what.
      workdir: where its fit keeps checkpoints, and goes on from them.
      watch: where it reports to.
    """
    graph = _load(cell.dataset, cell.fold, cell.percent, cell.split)
    begun = time.perf_counter()
    learn = _learn_inductively if cell.split == "inductive" else _learn
    with watch.over(cell.name) as reports:
        fit = functools.partial(
            hopf_jax.fit, callbacks=reports.callbacks, workdir=workdir
        )
        result, iterations = learn(cell, graph, fit)
        reports.tell(result)
    # A fit that went on has spent more than this process saw of it.
    seconds = max(
        time.perf_counter() - begun, sum(r["seconds"] for r in result.iterations)
    )
    return _record(result, iterations, seconds)


def run_together(
    cell: Cell, folder: pathlib.Path, watch: Watch = UNWATCHED
) -> dict[Cell, Record]:
    """`run` of a cell and its siblings in one program, or one by one if it must be.

    Seconds are shared out evenly. In one program it is all of them or none; one by one
    each keeps checkpoints in the folder, as alone.
    """
    siblings = cell.siblings
    graphs = [_load(c.dataset, c.fold, c.percent, c.split) for c in siblings]
    begun = time.perf_counter()
    try:
        with contextlib.ExitStack() as stack:
            reports = [stack.enter_context(watch.over(c.name)) for c in siblings]

            def tell(record: dict[str, Any]) -> None:
                told = {name: v for name, v in record.items() if name != "fold"}
                for callback in reports[record["fold"]].callbacks:
                    callback(told)

            results = fit_folds(
                *(graphs, cell.model, cell.config),
                seed=cell.seed,
                callbacks=[tell],
                progress=False,
            )
            for each, result in zip(reports, results, strict=True):
                each.tell(result)
    except CannotJoinError as error:
        folders.say(f"{cell.model}: folds are learned one by one. {error}")
        return {c: run(c, c.checkpoints(folder), watch) for c in siblings}
    seconds = (time.perf_counter() - begun) / len(results)
    return {
        each: _record(result, [_in_percent(r) for r in result.iterations], seconds)
        for each, result in zip(siblings, results, strict=True)
    }


def _record(
    result: hopf_jax.Result, iterations: list[dict[str, Any]], seconds: float
) -> Record:
    return {
        "scores": iterations[result.iteration - 1]["scores"],
        "iteration": result.iteration,
        "iterations": iterations,
        "epochs": len(result.history),
        "seconds": round(seconds, 3),
        "epoch_seconds": _median([r["seconds"] for r in result.history]),
        "losses": {
            name: [float(f"{r[f'{name}_loss']:.5g}") for r in result.history]
            for name in ("train", "validation")
        },
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _learn(
    cell: Cell, graph: hopf_jax.Graph, fit: Callable[..., hopf_jax.Result]
) -> tuple[hopf_jax.Result, list[dict[str, Any]]]:
    result = fit(graph, cell.model, cell.config, seed=cell.seed, progress=False)
    return result, [_in_percent(record) for record in result.iterations]


def _learn_inductively(
    cell: Cell, graph: hopf_jax.Graph, fit: Callable[..., hopf_jax.Result]
) -> tuple[hopf_jax.Result, list[dict[str, Any]]]:
    """Learn without the test graphs, then replay every iteration on them."""
    seen, new = induced(graph, ~graph.test), induced(graph, graph.test)
    result, iterations = _learn(cell, seen, fit)
    # Labels of the new graphs are for scoring only: no node of them is a training node.
    unlabelled = new.with_split()
    for t, record in enumerate(iterations, start=1):
        first = dataclasses.replace(result, iteration=t)
        predicted = first.predict(unlabelled)
        if not graph.multilabel:
            predicted = one_hot(predicted, graph.num_labels)
        scores = f1_scores(new.labels, predicted)
        record["scores"]["test"] = {k: 100 * v for k, v in scores.items()}
    return result, iterations


def induced(graph: hopf_jax.Graph, mask: np.ndarray) -> hopf_jax.Graph:
    """The graph of these nodes and of the edges among them."""
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


def _in_percent(record: dict[str, Any]) -> dict[str, Any]:
    scores = {
        name: {metric: 100 * value for metric, value in each.items()}
        for name, each in record["scores"].items()
    }
    return record | {"scores": scores, "seconds": round(record["seconds"], 3)}


def _median(values: list[float]) -> float:
    return round(float(np.median(values)), 6)

"""`tune`: search for a model and its settings, with Optuna.

A trial is a `fit` with one model and drawn learning rate, weight decay and dropout.
These three are data of the compiled programs, so that all trials of a model share them.
Linear models are solved instead, for all numbers of hops and penalties.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import pathlib
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hopf_jax.config import Config, Execution, Number, Whole, check
from hopf_jax.fitting import evidence_of, fit, fit_solved, score_name
from hopf_jax.graph import Graph, complete_split
from hopf_jax.kernels import SOLVED_MODELS, TUNED_MODELS, Kernel, find_kernel
from hopf_jax.learning import identify
from hopf_jax.results import Result
from hopf_jax.runtime import (
    HopfWarning,
    ProgressLine,
    Show,
    Tabular,
    differences,
    held_folder,
    read_bytes,
    releasing_programs,
    shard_steps,
)
from hopf_jax.suggestions import answering_typos

_RANGES = {
    "learning_rate": (1e-3, 5e-2, True),
    "l2": (1e-5, 3e-2, True),
    "dropout": (0.05, 0.8, False),  # Not 0, which has programs of its own.
}
_MANY_HOPS, _DEEP_HOPS = 10, 8  # Of linear hops after a layer; of identity mappings.
_LOSS_COUNTS = 1e-3  # The loss decides between equal scores.
_FIRST_RUNG = 30  # Epochs before a trial can be stopped; then 3, 9, ... times as many.
_FACTOR = 3
_ENOUGH_TRIALS = 10  # To say what mattered.
_STUDY, _TRIALS = "tune", "trials.log"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Tuning(Tabular):
    """What `tune` found; shown as a table of the best trials.

    Attributes:
      result: The best model with its settings, fitted.
      model: Its name.
      config: Its settings.
      trials: One record per trial, in order: number, model, score and loss on held-out
        labels, state ("complete" or "pruned"), seconds, and the settings drawn.
      solved: One record per linear model that was solved: model, score, loss, num_hops.
      seconds: Seconds of the search, without those of earlier calls it resumed.
    """

    result: Result
    model: str
    config: Config
    trials: tuple[dict[str, Any], ...]
    solved: tuple[dict[str, Any], ...]
    seconds: float

    @functools.cached_property
    def table(self) -> list[dict[str, Any]]:
        """Completed trials, the best first."""
        done = [trial for trial in self.trials if trial["state"] == "complete"]
        return sorted(done, key=lambda trial: -trial["value"])

    @functools.cached_property
    def importances(self) -> dict[str, float]:
        """Share of each setting in the variation of the scores, the largest first.

        By the variance of the mean score between values of a setting; numbers are
        divided into thirds.
        """
        done = self.table
        scores = np.array([trial["score"] for trial in done])
        if len(done) < _ENOUGH_TRIALS or np.ptp(scores) == 0:
            return {}
        found = {}
        for name in ("model", *_RANGES):
            values = np.array([trial[name] for trial in done])
            groups = values
            if name != "model":
                groups = np.searchsorted(np.quantile(values, [1 / 3, 2 / 3]), values)
            means = {g: scores[groups == g].mean() for g in np.unique(groups)}
            between = np.array([means[g] for g in groups])
            found[name] = float(between.var() / scores.var())
        return dict(sorted(found.items(), key=lambda each: -each[1]))

    def plot(self) -> Any:
        """Return a matplotlib figure: scores by setting, and what mattered."""
        # Lazy: matplotlib is slow to import, and rarely needed.
        from hopf_jax.results import plots

        return plots.plot_tuning(self.table, tuple(_RANGES), self.importances)

    def _caption(self) -> str:
        stopped = sum(trial["state"] == "pruned" for trial in self.trials)
        return (
            f"Best: {self.model}. {len(self.trials)} trials, {stopped} of them stopped "
            "early; scores on held-out labels in percent"
        )

    def _remarks(self) -> str:
        shares = (f"{name} {100 * s:.0f}%" for name, s in self.importances.items())
        return f"What mattered: {', '.join(shares) or 'too few trials to say'}."

    def _cells(self) -> list[tuple[str, ...]]:
        cells: list[tuple[str, ...]] = [("model", "hops", "score", "loss", *_RANGES)]
        for trial in self.table[:10]:
            numbers = (f"{trial[name]:.2g}" for name in _RANGES)
            score = f"{100 * trial['score']:.1f}"
            hops, loss = str(trial["num_hops"]), f"{trial['loss']:.3f}"
            cells.append((trial["model"], hops, score, loss, *numbers))
        for each in self.solved:
            score, loss = f"{100 * each['score']:.1f}", f"{each['loss']:.3f}"
            about = (each["model"], str(each["num_hops"]), score, loss)
            cells.append((*about, *["solved"] * len(_RANGES)))
        return cells


@answering_typos
def tune(
    graph: Graph,
    models: Sequence[str] = TUNED_MODELS,
    budget: int = 60,
    config: Config | None = None,
    *,
    timeout: float | None = None,
    seed: int = 0,
    workers: int | None = None,
    workdir: str | os.PathLike | None = None,
    progress: Show = "auto",
    execution: Execution | None = None,
) -> Tuning:
    """Search for the model and the settings that do best on held-out labels.

    The first trials are those of every model with the settings given. Then models,
    learning rates, weight decays and dropout rates are proposed by Optuna's TPE
    sampler; trials that fall behind are stopped early (successive halving). Linear
    models (sgc, i-sgc, i-sgc-mean) are solved, for all penalties and numbers of hops,
    and are no trials. Held-out labels are those of all parts of a cross-validation over
    training and validation nodes, as in `fit(graph)`; if there are thousands of labels,
    or with `Config(folds=0)`, those of the validation nodes. Test nodes are not looked
    at. Needs Optuna: `pip install "hopf-jax[tune]"`.

    Args:
      graph: A graph with some labels.
      models: Names from `hopf_jax.MODELS`. Kernels with linear hops get 10 hops, those
        with identity mappings 8, and others `Config.num_hops`.
      budget: Number of trials. 1 or more.
      config: Settings that are not searched for; the defaults if None.
      timeout: Seconds after which no trial is started; None for no limit.
      seed: Seed of the search and of every fit.
      workers: Number of trials at a time; None for the number of cores. With more than
        one, which trials are drawn depends on which end first.
      workdir: A local folder for this search alone. Trials are noted there, and the
        same call again continues after them.
      progress: Show a progress bar on stderr; "auto" shows it in a terminal and in a
        notebook.
      execution: Memory, chunk size and devices of every fit; the defaults if None.

    Returns:
      A `Tuning`: the best `result`, `trials`, `importances`, `plot()`.
    """
    optuna = _import_optuna()
    check(Whole(1), "budget", budget)
    check(Whole(0, 2**32 - 1), "seed", seed)
    if timeout is not None:
        check(Number(0), "timeout", timeout)
    names = [models] if isinstance(models, str) else list(models)
    if linear := [name for name in names if name in SOLVED_MODELS]:
        names = [name for name in names if name not in SOLVED_MODELS]
    kernels = {name: find_kernel(name) for name in names}
    if not kernels and not linear:
        raise ValueError("models is empty; give names from hopf_jax.MODELS.")
    config = Config() if config is None else config
    graph, folds, _ = complete_split(graph, config.folds, seed, pool=True)
    config = dataclasses.replace(config, folds=folds or config.folds)
    execution = dataclasses.replace(execution or Execution(), shared_programs=True)
    settings = {n: dataclasses.asdict(_settings(k, config)) for n, k in kernels.items()}
    identity = _identity(graph, kernels, config, execution, seed)
    begun = time.perf_counter()
    lock = threading.Lock()
    kept: list[Any] = []  # The best trial: its value, number and result.
    solved = []
    if linear:
        solved = fit_solved(graph, config, seed=seed, execution=execution)
        if not solved and not names:
            raise ValueError(
                f"{linear[0]} cannot be solved: the graph is too large, or settings "
                "ask for what only nets have. Add models of nets, such as 'appnp'."
            )

    def run(trial: Any) -> float:
        started = time.perf_counter()
        name = trial.suggest_categorical("model", names)
        drawn = {
            each: trial.suggest_float(each, low, high, log=log)
            for each, (low, high, log) in _RANGES.items()
        }
        chosen = dataclasses.replace(Config(**settings[name]), **drawn)
        result = fit(
            graph,
            name,
            chosen,
            seed=seed,
            callbacks=[_stop_early(optuna, trial, chosen.metric)],
            progress=False,
            execution=execution,
        )
        about = evidence_of(result)
        with lock:  # Trials end in several threads.
            if not kept or _value(about) > kept[0]:
                kept[:] = [_value(about), trial.number, result]
        for key, value in (about | {"num_hops": chosen.num_hops}).items():
            trial.set_user_attr(key, value)
        trial.set_user_attr("seconds", time.perf_counter() - started)
        return _value(about)

    states = optuna.trial.TrialState
    counted = (states.COMPLETE, states.PRUNED)
    with contextlib.ExitStack() as stack:
        study = _open_study(optuna, workdir, identity, seed, stack)
        left = budget - len(study.get_trials(deepcopy=False, states=counted))
        # Until all trials are over: those of one model share their programs.
        stack.enter_context(releasing_programs())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", HopfWarning)  # What is wrong with some trial.
        line = stack.enter_context(ProgressLine("tune", progress))
        ended = itertools.count(1)

        def tell(*_: object) -> None:
            with lock:
                said = f"{next(ended)} of {left} trials"
                line.say(said, said)

        if not study.get_trials(deepcopy=False):
            for name in names:
                given = {
                    each: float(np.clip(getattr(config, each), low, high))
                    for each, (low, high, _) in _RANGES.items()
                }
                study.enqueue_trial({"model": name, **given})
        if left > 0 and names:
            study.optimize(
                run,
                n_trials=left,
                timeout=timeout,
                n_jobs=workers or os.cpu_count() or 1,
                # A trial that diverges is a bad one, and no reason to stop.
                catch=(ValueError,),
                callbacks=[tell],
            )
    trials = tuple(_record(trial) for trial in study.get_trials(states=counted))
    done = [trial for trial in trials if trial["state"] == "complete"]
    if not done and not solved:
        failed = study.get_trials(states=(states.FAIL,))
        raise ValueError(
            f"None of {len(trials) + len(failed)} trials was completed. Raise budget "
            "or timeout; hopf_jax.fit says what is wrong with a model."
        )
    names_of = {find_kernel(name): name for name in SOLVED_MODELS}
    records = tuple(
        {"model": names_of[each.kernel], "num_hops": each.config.num_hops}
        | evidence_of(each)
        for each in solved
    )
    found = [*done, *records]
    best = max(range(len(found)), key=lambda place: _value(found[place]))
    if best >= len(done):
        result = solved[best - len(done)]
        model, chosen = str(records[best - len(done)]["model"]), result.config
    else:
        model, own = done[best]["model"], {name: done[best][name] for name in _RANGES}
        chosen = dataclasses.replace(Config(**settings[model]), **own)
        if kept and kept[1] == done[best]["number"]:
            result = kept[2]
        else:  # It was a trial of an earlier call.
            result = fit(
                graph, model, chosen, seed=seed, progress=False, execution=execution
            )
    seconds = time.perf_counter() - begun
    return Tuning(result, model, chosen, trials, records, seconds)


def _value(about: dict[str, Any]) -> float:
    """Return what trials are compared by: the score, and of equals the loss."""
    return float(about["score"] - _LOSS_COUNTS * min(about["loss"], 100.0))


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ImportError('tune needs Optuna: pip install "hopf-jax[tune]".') from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _settings(kernel: Kernel, config: Config) -> Config:
    """Return settings with the number of hops that suits a kernel."""
    if config.num_hops != Config.num_hops or config.fanouts is not None:
        return config
    if not kernel.learned_hops and kernel.input_layer:
        return dataclasses.replace(config, num_hops=_MANY_HOPS)
    if kernel.identity:
        return dataclasses.replace(config, num_hops=_DEEP_HOPS)
    return config


def _stop_early(
    optuna: Any, trial: Any, metric: str
) -> Callable[[dict[str, Any]], None]:
    """Return a callback that reports the best score so far, and ends bad trials."""
    best: dict[int, float] = {}
    name = f"validation_{score_name(metric)}"

    def after(record: dict[str, Any]) -> None:
        if record["iteration"] > 1:
            return
        member = record.get("member", 0)
        best[member] = max(best.get(member, 0.0), record[name])
        if member == min(best) and record["epoch"] % _FIRST_RUNG == 0:
            trial.report(float(np.mean(list(best.values()))), record["epoch"])
            if trial.should_prune():
                raise optuna.TrialPruned

    return after


def _identity(
    graph: Graph,
    kernels: dict[str, Kernel],
    config: Config,
    execution: Execution,
    seed: int,
) -> dict[str, Any]:
    """Return all that a search depends on, but its budget, as plain data."""
    about: dict[str, Any] = {"models": list(kernels), "ranges": _RANGES}
    about["number of devices"] = shard_steps(
        execution.devices, config.batches_per_step
    ).num_devices
    for name, kernel in kernels.items():
        for field, value in identify([graph], kernel, config, [seed]).items():
            own = field.startswith("kernel.")
            about[f"{field} of {name}" if own else field] = value
    return json.loads(json.dumps(about))


def _open_study(
    optuna: Any,
    workdir: str | os.PathLike | None,
    identity: dict[str, Any],
    seed: int,
    stack: contextlib.ExitStack,
) -> Any:
    """Return a new study, or that of an earlier call with the same arguments.

    `stack` holds the folder, so that no other process adds trials to it.
    """
    if workdir is None:
        return _make_study(optuna, None, identity, seed)
    folder = pathlib.Path(workdir)
    folder.mkdir(parents=True, exist_ok=True)
    stack.enter_context(held_folder(folder))
    path = folder / _TRIALS
    if os.path.lexists(path):
        _cut_half_written(path)
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    try:
        storage = optuna.storages.JournalStorage(backend)
        return _make_study(optuna, storage, identity, seed)
    except _OtherSearchError as other:
        raise ValueError(
            f"{folder} holds another search: {other}. Give another workdir."
        ) from None
    except Exception as error:  # Damage can make optuna raise anything.
        raise ValueError(
            f"{path} is damaged: {error}. Nothing was changed; give another workdir."
        ) from error


def _cut_half_written(path: pathlib.Path) -> None:
    """Remove the end of a record that a killed process had begun to write."""
    content = read_bytes(path)
    if (complete := content.rfind(b"\n") + 1) < len(content):
        os.truncate(path, complete)


class _OtherSearchError(Exception):
    """A study was made for other arguments."""


def _make_study(optuna: Any, storage: Any, identity: dict[str, Any], seed: int) -> Any:
    pruner = optuna.pruners.SuccessiveHalvingPruner(
        min_resource=_FIRST_RUNG, reduction_factor=_FACTOR
    )
    study = optuna.create_study(
        storage=storage,
        study_name=_STUDY,
        direction="maximize",
        pruner=pruner,
        load_if_exists=True,
    )
    known = study.user_attrs.get("identity", identity)
    if not isinstance(known, dict):  # The digest that an earlier version noted.
        raise _OtherSearchError("one of an earlier version")
    if differing := differences(identity, known, where="its notes"):
        raise _OtherSearchError(differing)
    study.set_user_attr("identity", identity)
    # Another seed after a restart, or the same trials would be drawn again.
    drawn = len(study.get_trials(deepcopy=False))
    study.sampler = optuna.samplers.TPESampler(seed=(seed + drawn) % 2**32)
    return study


def _record(trial: Any) -> dict[str, Any]:
    return {
        "number": trial.number,
        "state": trial.state.name.lower(),
        "value": trial.value,
        **trial.params,
        **trial.user_attrs,
    }

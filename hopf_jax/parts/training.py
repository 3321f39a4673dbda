"""The HOPF loop (Algorithm 1) over a graph in parts, in one or several processes."""

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from hopf_jax.config import Config, Execution
from hopf_jax.graph import SPLITS
from hopf_jax.inference import (
    LEAST_CHUNK_EDGES,
    Known,
    WholeGraph,
    as_read,
    complete_iteration,
    predict_own,
)
from hopf_jax.kernels import Kernel, find_kernel
from hopf_jax.learning import (
    Member,
    Objective,
    Progress,
    RunState,
    TeamState,
    as_good_as_any,
    first_state,
    identify,
    learn,
    make_plan,
    sizes_of,
    start_iteration,
)
from hopf_jax.metrics import f1_from_counts, label_counts, mean_loss
from hopf_jax.parts.exchange import exchange
from hopf_jax.parts.manifest import Part, Parts
from hopf_jax.parts.population import PartPopulation
from hopf_jax.parts.result import PartsResult
from hopf_jax.parts.store import Store
from hopf_jax.results import (
    Result,
    calibrate,
    decide_as_scored,
    decide_by,
    make_net,
    node_scores,
    score,
)
from hopf_jax.runtime import (
    ProgressLine,
    Show,
    TimeLeft,
    checkpointed,
    gather_rows,
    give_back_memory,
    is_main,
    releasing_programs,
)

_ROWS_AT_ONCE = 1 << 16
# Settings that need more than a part and its halo, and the only value allowed.
_FIXED: dict[str, Any] = {
    "members": 1,
    "batches_per_step": 1,
    "fanouts": None,
    "neighbor_fraction": 1.0,
    "ghost_edges": 0,
    "summary": "labels",
}
_REFUSED = {
    "training_summaries": "cross-fitted",
    "caution": "share",
    "norm": "batch",
}

Callback = Callable[[dict[str, Any]], object]


def settle(parts: Parts, kernel: Kernel, config: Config) -> Config:
    """Return the settings of a run on parts; raise `ValueError` for unsupported ones.

    Random bits are drawn per node, so they do not depend on the parts.
    """
    for name, only in _FIXED.items():
        if getattr(config, name) != only:
            raise ValueError(
                f"{name} is {getattr(config, name)!r}, which a graph in parts cannot "
                f"have. Set {name}={only!r}."
            )
    for name, refused in _REFUSED.items():
        if getattr(config, name) == refused:
            raise ValueError(
                f"{name} is {refused!r}, which a graph in parts cannot have. Choose "
                "another."
            )
    if config.folds:
        raise ValueError(
            f"folds is {config.folds}, but the split of a graph in parts was made when "
            "it was partitioned. Set folds=0."
        )
    if config.features != parts.features:
        raise ValueError(
            f"features is {config.features!r}, but the parts hold features "
            f"{parts.features!r}. Set features={parts.features!r}, or partition the "
            "graph anew."
        )
    if parts.directed and config.directions == "both":
        raise ValueError(
            "The parts hold a directed graph, whose edges cannot be read in both "
            "directions. Set directions='given', or partition graph.undirected()."
        )
    if kernel.aggregate.ordered:
        raise ValueError(
            "This kernel reads neighbours in random order, which a graph in parts "
            "cannot give it. Choose another model."
        )
    layers = kernel.num_layers(config.num_hops) if kernel.psi else 0
    reach = max(layers, kernel.reach(config.num_hops))
    if reach > parts.hops:
        raise ValueError(
            f"num_hops is {config.num_hops}, but the parts have a halo of {parts.hops} "
            f"hops. Lower num_hops, or partition the graph with hops={reach}."
        )
    return dataclasses.replace(config, noise="node", folds=0)


@releasing_programs()
def fit_parts(
    parts: Parts,
    model: str | Kernel,
    config: Config,
    *,
    seed: int,
    callbacks: Sequence[Callback] = (),
    progress: Show = "auto",
    workdir: str | os.PathLike | None = None,
    checkpoint_every: int = 1,
    execution: Execution,
) -> PartsResult:
    """Learn to predict the labels of a graph in parts; arguments are those of `fit`."""
    kernel = find_kernel(model)
    kernel = kernel.with_skips() if config.residual else kernel
    config = settle(parts, kernel, config)
    give_back_memory()
    me, count = jax.process_index(), jax.process_count()
    mine = parts.held_by(me, count)
    devices = jax.device_count() if count > 1 else 1
    if execution.devices is None and len(parts) % devices:
        raise ValueError(
            f"{devices} devices cannot share {len(parts)} parts evenly. Give each "
            "process fewer, or partition the graph anew."
        )
    held = [parts.open(number) for number in mine]
    first = held[0].graph
    lanes = dataclasses.replace(config, batches_per_step=len(parts))
    chunk_edges = execution.chunk_edges or LEAST_CHUNK_EDGES
    chunked = dataclasses.replace(execution, chunk_edges=chunk_edges)
    plan = make_plan(first, kernel, lanes, chunked)
    sizes = sizes_of(first, kernel, config)
    if sizes.summary_scale != 1:  # The scale of all nodes, not of the first part.
        sizes = dataclasses.replace(sizes, summary_scale=parts.row_norm)
    net = make_net(kernel, config, sizes)
    objective = Objective.of(config, parts.multilabel)
    run_of = _Run(parts, held, net, config, plan, Store(workdir))
    identity = identify([], kernel, config, [seed]) | {"parts": parts.digest}
    notes = plan.notes | {"processes": count}
    with checkpointed(workdir, lambda: identity, checkpoint_every, notes) as (
        restored,
        save,
    ):
        run = RunState((TeamState(None, []),))
        if restored is not None:
            like = first_state(objective, net.weight_shapes())
            run = RunState.unpack(*restored, like, 1)
            run_of.verify(run.teams[0])
        if not run.finished:
            members = [Member(first, seed)]
            whole: Any = None  # The whole graph is neither precomputed nor resident.
            population = PartPopulation(
                parts, held, net, objective, members, plan, whole, config
            )
        name = model if isinstance(model, str) else "own kernel"
        with ProgressLine(f"fit {name}", progress) as line:
            times = config.num_iterations if kernel.iterative else 1
            shown = line, TimeLeft(times, config.max_epochs)
            while not run.finished:
                run = run_of.iterate(population, run, save, shown, callbacks)
                save(run)
    (state,) = run.teams
    gather_rows(
        np.zeros((1, 1), np.float32)
    )  # Wait until the first process has saved the result.
    run_of.forget(state)
    decision = run_of.decide(state.judged)
    result = Result(
        kernel=kernel,
        config=config,
        sizes=net.sizes,
        seed=seed,
        multilabel=parts.multilabel,
        label_names=parts.label_names,
        classes=parts.classes,
        weights=state.weights,
        iteration=state.best,
        probabilities=np.zeros((0, parts.num_labels), np.float32),
        scores=state.iterations[state.best - 1]["scores"],
        history=state.history,
        iterations=list(state.iterations),
        calibration=calibrate(run_of.judge, decision.correct(state.judged)),
        decision=decision,
        scaling=parts.scaling,
        feature_names=parts.feature_names,
        execution=dataclasses.replace(execution, devices=None),
    )
    by_number = {part.number: part for part in held}
    return PartsResult(result, parts, by_number, run_of.store)


class _Run:
    """State that is constant over the iterations of a run."""

    def __init__(
        self,
        parts: Parts,
        held: Sequence[Part],
        net: Any,
        config: Config,
        plan: Any,
        store: Store,
    ):
        self.parts, self.held, self.net, self.config = parts, held, net, config
        self.plan, self.store = plan, store
        about = parts.roots("validation")
        self._owners = np.asarray(about["owners"])
        labels = np.asarray(about["labels"])
        every, none = np.ones(len(labels), bool), np.zeros(len(labels), bool)
        masks = dict.fromkeys(("known", "validation"), every)
        masks |= dict.fromkeys(("train", "test"), none)
        self.judge = parts.without_edges(labels, masks)

    def verify(self, state: TeamState) -> None:
        """Raise `ValueError` if files that a restored state needs are damaged."""
        for part in self.held if state.best else ():
            self.store.verify(part, state.best, "output")
            if self.net.kernel.iterative and not state.finished:
                self.store.verify(part, len(state.iterations), "summary")

    def forget(self, state: TeamState) -> None:
        """Remove files that a finished run does not need."""
        for part in self.held:
            self.store.forget(part, state.best)

    def decide(self, judged: np.ndarray) -> Any:
        """Choose the decision rule by the outputs of validation nodes, [n, C]."""
        counts = self.parts.train_labels.astype(np.float64)
        labelled = self.parts.count("train")
        many, true = self.parts.multilabel, self.judge.labels
        return decide_by(self.config, many, counts, labelled, judged, true)

    def summaries(self, iteration: int) -> list[np.ndarray] | None:
        """Return the label summaries of the held parts that an iteration reads."""
        if not self.net.kernel.iterative:
            return None
        if iteration > 1:
            read = functools.partial(self.store.read, name="summary")
            return [read(part, iteration - 1) for part in self.held]
        nothing = np.zeros((1, self.net.sizes.summary), np.float32)
        return [  # Zeros without memory of their own.
            np.broadcast_to(nothing, (part.num_nodes, nothing.shape[1]))
            for part in self.held
        ]

    def iterate(
        self,
        population: PartPopulation,
        run: RunState,
        save: Callable[[RunState], None],
        shown: tuple[ProgressLine, TimeLeft],
        callbacks: Sequence[Callback],
    ) -> RunState:
        """Run one iteration of Algorithm 1."""
        begun = time.perf_counter()
        (state,), config, net = run.teams, self.config, self.net
        t = 1 + len(state.iterations)
        last = state.weights[-1] if state.weights else None
        seed = population.members[0].seed
        key, start = start_iteration(net, seed, t, last, config.warm_start)
        epochs = run.progress.epoch if run.progress else 0
        before, trained = run.num_epochs - epochs, 0.0

        def on_epoch(records: dict[int, dict[str, Any]], progress: Progress) -> None:
            nonlocal epochs, trained
            epochs, record = progress.epoch, records[0]
            trained += record["seconds"]
            state.history.append({"iteration": t} | record)
            if is_main():
                for callback in callbacks:
                    callback(dict(state.history[-1]))
            line, left = shown
            line.say(
                f"iteration {t}, epoch {epochs}, validation F1 "
                f"{100 * record['validation_micro_f1']:.1f}" + left.epoch(t, epochs),
                f"{t} iteration{'s' * (t > 1)}, {before + epochs} epochs",
            )
            now = state._replace(num_epochs=len(state.history))
            save(RunState((now,), progress, before + epochs))

        given = self.summaries(t)
        read = None
        if given is not None:
            read = [
                functools.partial(self._as_read, part, t, each)
                for part, each in zip(self.held, given, strict=True)
            ]
        (params,) = learn(
            population,
            [start],
            population.read(read, t),
            config,
            [key],
            on_epoch,
            progress=run.progress,
        )
        del read
        population.read(None, t)  # Release batches before all nodes are predicted.
        overhead = time.perf_counter() - begun - trained
        state = self._complete(state, params, given, overhead)
        return RunState((state,), None, before + epochs)

    def _as_read(
        self, part: Part, t: int, summary: np.ndarray, nodes: Any = slice(None)
    ) -> np.ndarray:
        """Return the label summaries of nodes of a part, as iteration t reads them."""
        scale, graph = self.net.sizes.summary_scale, part.graph
        known = Known(graph.train[nodes], graph.labels[nodes], graph.multilabel)
        return as_read(known, self.config, t, summary[nodes], scale)

    def _complete(
        self,
        state: TeamState,
        params: Any,
        given: Sequence[np.ndarray] | None,
        overhead: float,
    ) -> TeamState:
        """Return the state after an iteration: predict, exchange, and score."""
        begun = time.perf_counter() - overhead
        config, t = self.config, len(state.iterations) + 1
        judged, change, nbytes = self._predict(params, given, t)
        decision = self.decide(judged)
        corrected = decision.correct(judged)
        scoring = config.scoring
        scores = score(self.judge, corrected, scoring, decision)
        scores |= self._score_others(decision, t)
        own = [record for record in state.history if record["iteration"] == t]
        every = np.arange(len(judged))
        record: dict[str, Any] = {
            "iteration": t,
            "epochs": max(record["epoch"] for record in own),
            "scores": {name: scores[name] for name in SPLITS if name in scores},
            "validation_loss": mean_loss(
                self.judge.labels, corrected, self.judge.multilabel
            ),
            "seconds": sum(r["seconds"] for r in own) + time.perf_counter() - begun,
            "exchanged_bytes": nbytes,
        }
        iterative = self.net.kernel.iterative
        finished = t == (config.num_iterations if iterative else 1)
        finished |= iterative and change < config.tolerance
        right = node_scores(self.judge, every, corrected, scoring, decision)
        state = state._replace(
            num_epochs=len(state.history),
            weights=(*state.weights, params),
            iterations=(*state.iterations, record),
            right=(*state.right, right),
            finished=finished,
        )
        held = [record["scores"]["validation"] for record in state.iterations]
        if as_good_as_any(held, state.right):
            state = state._replace(best=t, judged=judged)
        return state

    def _predict(
        self, params: Any, given: Sequence[np.ndarray] | None, t: int
    ) -> tuple[np.ndarray, float, int]:
        """Predict the nodes of all parts, one part after another, and exchange halos.

        Returns:
          Outputs of all validation nodes [n, C]; the mean change of label summaries;
          and how many bytes all processes sent.
        """
        count, change, nbytes = self.parts.num_labels, 0.0, 0
        rows: list[np.ndarray] = []
        with contextlib.ExitStack() as stack:
            written = {}
            for place, part in enumerate(self.held):
                shapes = {"output": (part.num_own, count)}
                if given is not None:
                    shapes["summary"] = (part.num_nodes, count)
                give_back_memory()  # From batches, or the previous part.
                files = stack.enter_context(self.store.writing(part, t, shapes))
                summary = None if given is None else given[place]
                done = self._predict_part(part, params, summary, t)
                files["output"][:] = done.output
                rows.append(done.output[part.own.validation])
                if summary is not None and done.summaries is not None:
                    new = done.summaries[0]
                    files["summary"][: part.num_own] = new
                    change += _sum_of_changes(new, summary)
                written[part.number] = files
                del done
            if given is not None:
                sent = exchange(
                    self.parts,
                    self.held,
                    count,
                    lambda part, at: written[part.number]["summary"][at],
                    lambda part, at, new: _put(written[part.number], at, new),
                )
                nbytes = sent.sent
        # Also a barrier: all have written the iteration before any process records it.
        (every,) = gather_rows_of([np.concatenate(rows)])
        sums = gather_rows_of([np.array([[change]], np.float32)])[0]
        sizes = gather_rows_of([np.array([divmod(nbytes, 1 << 30)], np.int32)])[0]
        total = sum(int(a) * (1 << 30) + int(b) for a, b in sizes)
        judged = np.zeros((len(self._owners), count), np.float32)
        judged[np.argsort(self._owners, kind="stable")] = every
        mean = float(sums.sum()) / (self.parts.num_nodes * count)
        return judged, mean, total

    def _predict_part(
        self, part: Part, params: Any, summary: np.ndarray | None, t: int
    ) -> Any:
        read = None if summary is None else self._as_read(part, t, summary)

        def predict(member: int, own: np.ndarray | None) -> Any:
            edges, halo = self.plan.chunk_edges, self.plan.halo
            within = self.parts.parts[part.number].within
            whole = WholeGraph(part.graph, edges, halo=halo, counts=within)
            return predict_own(self.net, params, whole, read)

        return complete_iteration(
            part.own,
            self.config,
            t,
            None if summary is None else summary[None, : part.num_own],
            predict,
            multilabel=self.parts.multilabel,
            scale=self.net.sizes.summary_scale,
        )

    def _score_others(self, decision: Any, t: int) -> dict[str, dict[str, float]]:
        """Return the F1 scores of the training and test nodes of all parts."""
        names = ("train", "test")
        counts = np.zeros((len(names), 3, self.parts.num_labels), np.int64)
        for part in self.held:
            output = self.store.read(part, t, "output")
            for place, name in enumerate(names):
                nodes = np.flatnonzero(getattr(part.own, name))
                for start in range(0, len(nodes), _ROWS_AT_ONCE):
                    some = nodes[start : start + _ROWS_AT_ONCE]
                    said = decision.correct(np.asarray(output[some]))
                    scoring = self.config.scoring
                    decided = decide_as_scored(part.own, said, scoring, some, decision)
                    counts[place] += label_counts(part.own.labels[some], decided)
        (every,) = gather_rows_of([counts.reshape(1, -1).astype(np.int32)])
        totals = every.sum(axis=0, dtype=np.int64).reshape(counts.shape)
        return {
            name: f1_from_counts(*totals[place])
            for place, name in enumerate(names)
            if self.parts.count(name)
        }


def gather_rows_of(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Gather the rows of all processes, for each array, in order of processes."""
    return [np.concatenate(gather_rows(array)) for array in arrays]


def _put(files: Mapping[str, np.ndarray], at: np.ndarray, rows: np.ndarray) -> None:
    files["summary"][at] = rows


def _sum_of_changes(new: np.ndarray, last: np.ndarray) -> float:
    """Return the sum of absolute differences in the first rows."""
    total = 0.0
    for start in range(0, len(new), _ROWS_AT_ONCE):
        rows = new[start : start + _ROWS_AT_ONCE]
        difference = rows - last[start : start + len(rows)]
        total += float(np.abs(difference).sum(dtype=np.float64))
    return total

"""`fit` and `fit_folds`: the HOPF loop (Algorithm 1) over one or several members."""

import dataclasses
import functools
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np
from tqdm.std import tqdm

from hopf_jax.config import Choice, Config, Execution, Whole, check
from hopf_jax.graph import Graph
from hopf_jax.inference import (
    WholeGraph,
    complete_iteration,
    first_summary,
    mean_change,
    predict_logits,
)
from hopf_jax.kernels import DEFAULT_MODEL, Kernel, Net, Sizes, find_kernel
from hopf_jax.learning import (
    CannotJoinError,
    JointPopulation,
    Member,
    MemberState,
    Objective,
    Params,
    Population,
    Progress,
    RunState,
    as_good_as_any,
    first_state,
    identify,
    learn,
    make_plan,
)
from hopf_jax.results import Result, calibrate, make_net, node_scores, readable, score
from hopf_jax.runtime import checkpointed, is_main

Callback = Callable[[dict[str, Any]], None]
Show = Literal["auto", True, False] | bool

_log = logging.getLogger(__name__)


def fit(
    graph: Graph,
    model: str | Kernel = DEFAULT_MODEL,
    config: Config | None = None,
    *,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    progress: Show = "auto",
    workdir: str | os.PathLike | None = None,
    checkpoint_every: int = 1,
    execution: Execution | None = None,
) -> Result:
    """Train a kernel on the training nodes of a graph, iterate it, and score it.

    Args:
      graph: A graph with a split: training nodes to learn from, validation nodes to
        stop and choose by. Test nodes are only scored.
      model: A name from `hopf_jax.MODELS`, or a `Kernel` of your own.
      config: Settings of the algorithm; the defaults if None.
      seed: The same seed on the same machine gives the same result, bit for bit.
      callbacks: Functions called after every epoch with its record, as in
        `Result.history`; in a job of several processes, in the first of them.
      progress: Show a progress bar on stderr; "auto" shows it in a terminal and in a
        notebook.
      workdir: A folder for this run alone, local or gs://. Checkpoints are saved there,
        also on SIGTERM and SIGINT. The same call again resumes a run that was stopped,
        and ends with the same result, bit for bit; or returns the result of a finished
        run.
      checkpoint_every: Number of epochs between checkpoints, with a workdir. The
        interval grows if saving would take more than 5% of the time. 1 or more.
      execution: Memory, chunk size and devices; the defaults if None. A run may be
        resumed with another `Execution`.

    Returns:
      A `Result`: predictions, scores, history.

    >>> from hopf_jax.datasets import make_chain
    >>> config = Config(num_iterations=1, max_epochs=2, min_epochs=1, hidden_size=4)
    >>> fit(make_chain(), config=config, progress=False).predict_proba().shape
    (6, 2)
    """
    (result,) = _fit_members(
        [graph],
        [seed],
        lambda member, record: [callback(record) for callback in callbacks],
        workdir,
        model=model,
        config=config,
        execution=execution,
        progress=progress,
        checkpoint_every=checkpoint_every,
    )
    return result


def fit_folds(
    graphs: Sequence[Graph],
    model: str | Kernel,
    config: Config | None = None,
    *,
    seed: int | Sequence[int] = 0,
    callbacks: Sequence[Callback] = (),
    progress: Show = "auto",
    workdir: str | os.PathLike | None = None,
    checkpoint_every: int = 1,
    execution: Execution | None = None,
    mapping: Literal["auto", "vmap", "loop"] = "auto",
) -> list[Result]:
    """Run `fit` on several splits of one graph, in one program per epoch if possible.

    Each graph is one member of the run, with the batches, random bits and stopping rule
    that `fit` gives it; one that has stopped keeps its best weights and waits for the
    others. Results are those of `fit` up to rounding: first losses agree to 1e-4, later
    ones diverge as training amplifies rounding. Members that do not fit into one
    program (different graphs or numbers of batches, sampled neighbours, or too little
    memory) are trained one after another.

    Args:
      graphs: The same graph with different splits.
      model: A name from `hopf_jax.MODELS`, or a `Kernel` of your own.
      config: Settings of the algorithm; the defaults if None.
      seed: One seed for all graphs, or one per graph.
      callbacks: As in `fit`; records also have `fold`, the index of their graph.
      progress: As in `fit`.
      workdir: As in `fit`.
      checkpoint_every: As in `fit`.
      execution: As in `fit`.
      mapping: "vmap" computes all members in one batched operation, "loop" one after
        another within the program; "auto" is a loop on a CPU and vmap elsewhere.

    Returns:
      One `Result` per graph. The seconds of an epoch are divided among the members that
      it trained.
    """
    graphs = list(graphs)
    if not graphs:
        raise ValueError("graphs is empty; give the splits of a graph.")
    check(Choice(("auto", "vmap", "loop")), "mapping", mapping)
    seeds = list(seed) if isinstance(seed, Sequence) else [seed] * len(graphs)
    if len(seeds) != len(graphs):
        raise ValueError(f"There are {len(graphs)} graphs, but {len(seeds)} seeds.")
    fit_members = functools.partial(
        _fit_members,
        model=model,
        config=config,
        execution=execution,
        progress=progress,
        checkpoint_every=checkpoint_every,
    )

    def tell(first: int, member: int, record: dict[str, Any]) -> None:
        for callback in callbacks:
            callback(record | {"fold": first + member})

    try:
        joint: Any = functools.partial(JointPopulation, mapping=mapping)
        joint = joint if len(graphs) > 1 else Population
        return fit_members(
            graphs, seeds, functools.partial(tell, 0), workdir, make_population=joint
        )
    except CannotJoinError as error:
        _log.warning("The graphs are trained one after another. %s", error)
        starts = error.run.split()
    results = []
    for i, (graph, own) in enumerate(zip(graphs, seeds, strict=True)):
        folder = None if workdir is None else os.path.join(os.fspath(workdir), str(i))
        say = functools.partial(tell, i)
        results += fit_members([graph], [own], say, folder, start=starts[i])
    return results


def _fit_members(
    given: Sequence[Graph],
    seeds: Sequence[int],
    tell: Callable[[int, dict[str, Any]], object],
    workdir: str | os.PathLike | None,
    *,
    model: str | Kernel,
    config: Config | None,
    execution: Execution | None,
    progress: Show,
    checkpoint_every: int,
    make_population: Callable[..., Population] = Population,
    start: RunState | None = None,
) -> list[Result]:
    """Run the HOPF loop over members; return one `Result` per graph.

    Algorithm 1: start from empty label summaries; learn to predict from them; infer all
    nodes; make the next summaries from these predictions; repeat.

    Args:
      given, seeds: Graphs and seeds, one per member.
      tell: Called with a member and the record of its epoch, in the first process.
      workdir: As in `fit`.
      model, config, execution, progress, checkpoint_every: As in `fit`.
      make_population: The class of the population that is trained.
      start: The state to start from, if there is no checkpoint; None for the first.
    """
    kernel = find_kernel(model)
    config = Config() if config is None else config
    execution = Execution() if execution is None else execution
    members = []
    for graph, seed in zip(given, seeds, strict=True):
        check_inputs(graph, config, execution, seed)
        members.append(Member(readable(graph, kernel, config, seed), seed))
    graph = members[0].graph
    net = make_net(kernel, config, sizes_of(graph, kernel, config))
    objective = Objective.of(config, graph.multilabel)
    plan = make_plan(graph, kernel, config, execution)
    with checkpointed(
        workdir,
        lambda: identify(given, kernel, config, seeds),
        checkpoint_every,
        plan.notes,
    ) as (restored, save):
        run = start or RunState(
            tuple(MemberState(first_summary(m.graph, net), []) for m in members)
        )
        if restored is not None:
            like = first_state(objective, net.weight_shapes())
            run = RunState.unpack(*restored, like)
        if not run.finished:  # A finished run needs no batches.
            whole = plan.whole_graph(graph)
            try:
                population = make_population(
                    net, objective, members, plan, whole, config.weighted_loss
                )
            except CannotJoinError as error:
                error.run = run
                raise
        done = sum(state.num_epochs for state in run.members)
        with progress_bar(progress, desc="fit", unit=" epochs", initial=done) as bar:
            while not run.finished:
                run = _iterate(population, whole, config, run, save, bar, tell)
                save(run)
    return [
        Result(
            kernel=kernel,
            config=config,
            sizes=net.sizes,
            seed=member.seed,
            multilabel=graph.multilabel,
            label_names=member.graph.label_names,
            weights=state.weights,
            iteration=state.best,
            probabilities=state.probabilities,
            scores=state.iterations[state.best - 1]["scores"],
            history=state.history,
            iterations=list(state.iterations),
            calibration=calibrate(member.graph, state.probabilities),
            graph=own,
            # Devices cannot be pickled, and predictions use the first.
            execution=dataclasses.replace(execution, devices=None),
        )
        for state, own, member in zip(run.members, given, members, strict=True)
    ]


def _iterate(
    population: Population,
    whole: WholeGraph,
    config: Config,
    run: RunState,
    save: Callable[[RunState], None],
    bar: tqdm,
    tell: Callable[[int, dict[str, Any]], object],
) -> RunState:
    """Run one iteration of Algorithm 1 for all members that are not finished."""
    begun, trained = time.perf_counter(), 0.0
    net, states = population.net, run.members
    live = [not state.finished for state in states]
    # Members that are not finished have completed the same number of iterations.
    t = 1 + max(len(state.iterations) for state in states)
    last = [state.weights[-1] if state.weights else None for state in states]
    starts = [
        start_iteration(net, member.seed, t, params, config.warm_start)
        for member, params in zip(population.members, last, strict=True)
    ]
    epochs = run.progress.epoch if run.progress else 0
    before = run.num_epochs - epochs

    def on_epoch(records: dict[int, dict[str, Any]], progress: Progress) -> None:
        nonlocal epochs, trained
        epochs = progress.epoch
        trained += sum(record["seconds"] for record in records.values())
        for i, record in records.items():
            states[i].history.append({"iteration": t} | record)
            bar.update()
            if not bar.disable:
                bar.set_postfix(
                    iteration=t,
                    loss=f"{record['train_loss']:.3f}",
                    validation_f1=f"{100 * record['validation_micro_f1']:.1f}",
                    refresh=False,
                )
            if is_main():
                tell(i, states[i].history[-1])
        now = tuple(s._replace(num_epochs=len(s.history)) for s in states)
        save(RunState(now, progress, before + epochs))

    # Learn, with the label summaries of the previous iteration as fixed inputs.
    params = learn(
        population,
        [start for _, start in starts],
        population.inputs([state.summary for state in states]),
        config,
        [key for key, _ in starts],
        on_epoch,
        live=live,
        progress=run.progress,
    )
    del starts
    overhead = (time.perf_counter() - begun - trained) / sum(live)
    # Infer all nodes, and turn the predictions into the next label summaries.
    completed = [
        _complete(state, member.graph, net, config, learned, whole, overhead)
        if alive
        else state
        for state, member, learned, alive in zip(
            states, population.members, params, live, strict=True
        )
    ]
    return RunState(tuple(completed), None, before + epochs)


def _complete(
    state: MemberState,
    graph: Graph,
    net: Net,
    config: Config,
    params: Params,
    whole: WholeGraph,
    overhead: float,
) -> MemberState:
    """Return the state of a member after an iteration: predict, summarise and score.

    The iteration took `overhead` seconds besides its epochs and what is done here.
    """
    begun = time.perf_counter() - overhead
    t, history, last = len(state.iterations) + 1, state.history, state.summary
    outputs = predict_logits(net, params, whole, last, config.summary == "hidden")
    predicted, new = complete_iteration(
        graph, config, t, last, *outputs, multilabel=graph.multilabel
    )
    del outputs
    seconds = sum(r["seconds"] for r in history if r["iteration"] == t)
    record = {
        "iteration": t,
        "epochs": history[-1]["epoch"],
        "scores": score(graph, predicted, config.scoring),
        "seconds": seconds + time.perf_counter() - begun,
    }
    finished = t == (config.num_iterations if net.kernel.iterative else 1)
    if last is not None and new is not None:
        finished |= mean_change(new, last) < config.tolerance
    right = node_scores(graph, graph.validation, predicted, config.scoring)
    state = state._replace(
        summary=new,
        num_epochs=len(history),
        weights=(*state.weights, params),
        iterations=(*state.iterations, record),
        right=(*state.right, right),
        finished=finished,
    )
    held = [record["scores"]["validation"] for record in state.iterations]
    if as_good_as_any(held, state.right):
        state = state._replace(best=t, probabilities=predicted)
    return state


def check_inputs(graph: Graph, config: Config, execution: Execution, seed: int) -> None:
    """Raise `ValueError` if `graph` has no usable split, or for wrong arguments."""
    if not isinstance(graph, Graph):
        raise ValueError(
            f"graph is a {type(graph).__name__}; convert it to a hopf_jax.Graph, "
            "for example with Graph.from_networkx or Graph.from_scipy."
        )
    for value, kind in ((config, Config), (execution, Execution)):
        if not isinstance(value, kind):
            name = kind.__name__
            raise ValueError(
                f"{name.lower()} is a {type(value).__name__}; give a hopf_jax.{name}."
            )
    check(Whole(0, 2**32 - 1), "seed", seed)
    for name in ("train", "validation"):
        if not getattr(graph, name).any():
            raise ValueError(
                f"The graph has no {name} nodes. Give some with graph.with_split(...), "
                "or draw them with hopf_jax.datasets.split_graph."
            )
    if graph.num_features == 0:
        raise ValueError("The graph has no features: features has 0 columns.")


def sizes_of(graph: Graph, kernel: Kernel, config: Config) -> Sizes:
    """Return the layer widths of a kernel on a graph."""
    features, hidden, hops = graph.num_features, config.hidden_size, config.num_hops
    summary = 0
    if kernel.iterative:
        hidden_width = kernel.width(features, hidden, kernel.num_layers(hops))
        summary = graph.num_labels if config.summary == "labels" else hidden_width
    return Sizes(features, graph.num_labels, hidden, hops, summary)


@functools.partial(jax.jit, static_argnames=("net",))
def _draw(net, seed, iteration):
    """Return the key of an iteration and new weights, in one jitted call."""
    key = jax.random.key(seed)
    learn_key, init_key = jax.random.split(jax.random.fold_in(key, iteration))
    return learn_key, net.init(init_key, method="declare")["params"]


def start_iteration(
    net: Net, seed: int, iteration: int, last: Params | None, warm_start: bool
) -> tuple[jax.Array, Params]:
    """Return the key of an iteration and the weights it starts from.

    New weights, or the previous ones with a new output layer.
    """
    learn_key, fresh = _draw(net, np.uint32(seed), np.uint32(iteration))
    if last is None or not warm_start:
        return learn_key, fresh
    new = {name: fresh[name] for name in fresh if name.endswith("_output")}
    return learn_key, last | new


def progress_bar(progress: Show, **settings: Any) -> tqdm:
    """Return a bar on stderr; "auto" shows it in a terminal and in a notebook."""
    if progress == "auto":
        notebook = "ipykernel" in sys.modules
        progress = is_main() and (notebook or sys.stderr.isatty())
    return tqdm(disable=not progress, leave=True, mininterval=0.2, **settings)

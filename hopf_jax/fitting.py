"""`fit` and `fit_folds`: the HOPF loop (Algorithm 1) over one or several members."""

import dataclasses
import functools
import logging
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, overload

import jax
import numpy as np

from hopf_jax.config import (
    Choice,
    Config,
    Execution,
    Whole,
    as_python,
    check,
    find_setting,
)
from hopf_jax.graph import (
    SPLITS,
    Graph,
    Scaling,
    as_graph,
    complete_split,
    fingerprint,
    learn_scaling,
)
from hopf_jax.inference import (
    WholeGraph,
    as_read,
    complete_iteration,
    first_summaries,
    mean_change,
    member_of,
    predict_logits,
)
from hopf_jax.kernels import (
    CANDIDATES,
    DEFAULT_MODEL,
    LINEAR_MODEL,
    SOLVED_MODELS,
    Kernel,
    Net,
    find_kernel,
)
from hopf_jax.learning import (
    CannotJoinError,
    JointPopulation,
    Objective,
    Params,
    Population,
    Progress,
    RunState,
    Solution,
    Team,
    TeamState,
    as_good_as_any,
    can_solve,
    can_vote,
    check_data,
    check_same,
    check_training,
    first_state,
    identify,
    learn,
    likely_best,
    make_plan,
    make_team,
    sizes_of,
    solve,
    start_iteration,
    voting_model,
)
from hopf_jax.metrics import mean_loss
from hopf_jax.parts import Parts, PartsResult, fit_parts
from hopf_jax.results import (
    Result,
    calibrate,
    make_decision,
    make_net,
    node_scores,
    readable,
    score,
    summary_scores,
    with_features,
)
from hopf_jax.runtime import (
    ProgressLine,
    Show,
    TimeLeft,
    check_memory,
    checkpointed,
    is_main,
    releasing_programs,
    warn_once,
    write_line,
)

Callback = Callable[[dict[str, Any]], None]

_log = logging.getLogger(__name__)

_MOST_EDGES_READ = 10_000_000  # Per prediction of all nodes, by a candidate.
_ENOUGH_LABELS, _MOST_REPEATS = 200, 5  # To divide labels once, and how often else.


@overload
def fit(
    graph: Graph,
    model: str | Kernel | None = None,
    config: Config | None = None,
    *,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    progress: Show = "auto",
    workdir: str | os.PathLike | None = None,
    checkpoint_every: int = 1,
    execution: Execution | None = None,
    **settings: Any,
) -> Result: ...


@overload
def fit(
    graph: Parts,
    model: str | Kernel | None = None,
    config: Config | None = None,
    *,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    progress: Show = "auto",
    workdir: str | os.PathLike | None = None,
    checkpoint_every: int = 1,
    execution: Execution | None = None,
    **settings: Any,
) -> PartsResult: ...


def fit(
    graph: Graph | Parts,
    model: str | Kernel | None = None,
    config: Config | None = None,
    *,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    progress: Show = "auto",
    workdir: str | os.PathLike | None = None,
    checkpoint_every: int = 1,
    execution: Execution | None = None,
    **settings: Any,
) -> Result | PartsResult:
    """Learn to predict the labels of a graph's nodes.

    Args:
      graph: A graph with some labels, or a `Data` of PyTorch Geometric. Training nodes
        are learned from, validation nodes decide when to stop and which iteration to
        use, and test nodes are only scored. A graph without a split is cross-validated,
        so that all of its labels are learned from (see `Config.folds`).
      model: A name from `hopf_jax.MODELS`, or a `Kernel` of your own. None to compare
        several models on held-out labels and keep the best (see `Result.choice`).
      config: Settings of the algorithm; the defaults if None.
      seed: Random seed. The same seed on the same machine gives the same result, bit
        for bit; on a CPU, with the same number of threads (`PJRT_NPROC`).
      callbacks: Functions of one argument, called after every epoch with its record, as
        in `Result.history`. In a job of several processes only the first calls them.
      progress: Show a progress bar on stderr; "auto" shows it in a terminal and in a
        notebook.
      workdir: A folder for checkpoints of this run only, local or gs://. They are also
        saved on SIGTERM and SIGINT. Call `fit` again with the same arguments to resume
        an interrupted run, with the same result, bit for bit, or to load the result of
        a finished one.
      checkpoint_every: Number of epochs between checkpoints. The interval grows if
        saving would take more than 5% of the time. 1 or more.
      execution: Memory, chunk size and devices; the defaults if None. A run may be
        resumed with other memory and chunks, and with `Execution.other_devices` on
        another number of devices.
      settings: Fields of `Config`, which override those in `config`.

    Returns:
      A `Result` with predictions, scores and history; a `PartsResult` for a graph in
      parts (`open_parts`).

    >>> from hopf_jax.datasets import make_chain
    >>> config = Config(num_iterations=1, max_epochs=2, min_epochs=1, hidden_size=4)
    >>> fit(make_chain(), "gcn", config, progress=False).predict_proba().shape
    (6, 2)
    """
    config = with_settings(config, settings)
    execution = Execution() if execution is None else execution
    if isinstance(graph, Parts):
        check_settings(config, execution, seed)
        return fit_parts(
            graph,
            DEFAULT_MODEL if model is None else model,
            config,
            seed=seed,
            callbacks=callbacks,
            progress=progress,
            workdir=workdir,
            checkpoint_every=checkpoint_every,
            execution=execution,
        )
    graph, seed = as_graph(graph), as_python(seed)
    check_arguments(graph, config, execution, seed)
    _check_callbacks(callbacks)
    graph, folds, said = complete_split(graph, config.folds, seed, pool=model is None)
    config = dataclasses.replace(config, folds=folds or config.folds)
    _announce(progress, said)
    fit_one = functools.partial(
        _fit_teams,
        [graph],
        [seed],
        lambda team, record: [callback(dict(record)) for callback in callbacks],
        execution=execution,
        progress=progress,
        checkpoint_every=checkpoint_every,
    )
    if model is not None:
        (result,) = fit_one(workdir, model=model, config=config)
        return result
    found: list[tuple[Result, dict[str, Any], list[str]]] = []

    def try_out(
        name: str, config: Config, place: str = "", solved: Solution | None = None
    ) -> None:
        begun, folder = time.perf_counter(), None
        if workdir is not None and solved is None:  # What is solved takes seconds.
            folder = os.path.join(os.fspath(workdir), name)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            (result,) = fit_one(
                folder, model=name, config=config, place=place, solved=solved
            )
        record = {"model": name, **evidence_of(result)}
        record["seconds"] = time.perf_counter() - begun
        found.append((result, record, [str(each.message) for each in told]))

    candidates, linear = _candidates(graph, config), _has_linear_model(graph, config)
    count = len(candidates) + linear
    for i, (name, own) in enumerate(candidates, start=1):
        try_out(name, dataclasses.replace(config, **own), f" ({i} of {count})")
    if linear:
        with ProgressLine(f"fit linear models ({count} of {count})", progress) as line:
            line.say("", "solved")
            for name, chosen, solved in _solved(graph, config, seed):
                try_out(name, chosen, solved=solved)
    found.sort(key=lambda each: (-each[1]["score"], each[1]["loss"]))
    evidence = [(record["score"], record["loss"]) for _, record, _ in found]
    judged = int((graph.train if folds else graph.validation).sum())
    found.insert(0, found.pop(likely_best(evidence, judged)))
    warn_once(found[0][2])  # What is wrong with the others matters no more.
    choice = tuple(record for _, record, _ in found)
    _announce(progress, describe_choice(choice))
    return dataclasses.replace(found[0][0], choice=choice)


def describe_choice(choice: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence about the models that were compared, with the chosen first."""
    tried = ", ".join(
        f"{c['model']} {100 * c['score']:.1f}% ({c['loss']:.2f})" for c in choice
    )
    return f"Chose {choice[0]['model']} by score and loss on held-out labels: {tried}."


def with_settings(config: Config | None, settings: Mapping[str, Any]) -> Config:
    """Return settings with some replaced; raise `ValueError` for unknown names."""
    config = Config() if config is None else config
    if not settings or not isinstance(config, Config):
        return config
    known = {field.name for field in dataclasses.fields(Config)}
    for name in settings:
        if name not in known:
            hint = find_setting(name)
            raise ValueError(f"No setting is called {name!r}. {hint}")
    return dataclasses.replace(config, **settings)


def _candidates(graph: Graph, config: Config) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the models to choose from, with settings that the user did not change."""
    if not graph.num_edges:
        return list(CANDIDATES[:1])
    found = []
    for name, own in CANDIDATES:
        changed = config.fanouts is not None  # One per hop.
        changed |= any(getattr(config, n) != getattr(Config, n) for n in own)
        hops = 1 if changed else max([1, *own.values()])
        if hops * graph.num_edges <= _MOST_EDGES_READ or not own:
            found.append((name, {} if changed else own))
    return found


def _has_linear_model(graph: Graph, config: Config) -> bool:
    """Return whether linear models can be solved for a graph, with these settings."""
    # A logistic regression has none of the other settings of a net, and learned votes
    # are for summaries that are averaged and read as they are.
    names = (
        "num_hops", "bias", "weighted_loss", "fanouts", "smoothing", "precision",
        "num_iterations", "average_labels", "caution", "summary", "scale_summaries",
        "training_summaries",
    )  # fmt: skip
    plain = all(getattr(config, name) == getattr(Config, name) for name in names)
    return plain and can_solve(graph) and jax.process_count() == 1


def _solved(
    graph: Graph, config: Config, seed: int
) -> Iterator[tuple[str, Config, Solution]]:
    """Yield the linear models, with their settings and weights."""
    if config.folds and config.members == Config.members and not graph.multilabel:
        # Few labels say little about penalties if they are divided only once.
        repeats = math.ceil(_ENOUGH_LABELS / max(1, int(graph.train.sum())))
        config = dataclasses.replace(config, members=min(repeats, _MOST_REPEATS))
    own = {name: dataclasses.replace(config, **s) for name, s in SOLVED_MODELS.items()}
    (scaled,), _ = scale_features([graph], config)
    kernel = find_kernel(LINEAR_MODEL)
    team = make_team(readable(scaled, kernel, config, seed), kernel, config, seed)
    voting = own[voting_model(team.graph)]
    votes = voting.num_iterations if can_vote(team.graph) else 0
    for name, solved in solve(team.graph, team.members, votes).items():
        yield name, dataclasses.replace(own[name], num_hops=solved.num_hops), solved


def fit_solved(
    graph: Graph,
    config: Config,
    *,
    seed: int = 0,
    execution: Execution | None = None,
) -> list[Result]:
    """Return the linear models that `fit` solves when it chooses a model.

    An empty list where the graph is too large, or settings ask for what only nets have.

    Args:
      graph: A graph with training nodes; with validation nodes or `Config.folds`.
      config: Settings.
      seed: Seed of the parts of a cross-validation.
      execution: As in `fit`.
    """
    if not _has_linear_model(graph, config):
        return []
    fit_one = functools.partial(
        _fit_teams,
        [graph],
        [seed],
        lambda *_: None,
        None,
        execution=execution,
        progress=False,
        checkpoint_every=1,
    )
    return [
        fit_one(model=name, config=chosen, solved=solved)[0]
        for name, chosen, solved in _solved(graph, config, seed)
    ]


def _take_solved(
    run: RunState,
    team: Team,
    net: Net,
    config: Config,
    solved: Solution,
    whole: WholeGraph,
) -> RunState:
    """Return the state of a run whose weights were solved, not trained."""
    (state,) = run.teams
    while not state.finished:
        t = 1 + len(state.iterations)
        state.history.extend(
            {"iteration": t}
            | ({"member": m} if len(team.members) > 1 else {})
            | {"epoch": 1, "learning_rate": 0.0, "seconds": 0.0}
            | record
            for m, record in enumerate(solved.records[t - 1])
        )
        params = solved.params[t - 1]
        state = _complete(state, team, net, config, params, whole, 0.0)
    return RunState((state,), None, len(state.iterations))


def score_name(metric: str) -> str:
    """Return the name of the F1 score by which models are chosen."""
    return "macro_f1" if metric in ("macro", "balanced") else "micro_f1"


def evidence_of(result: Result) -> dict[str, float]:
    """Return the score and the loss by which models are chosen."""
    record = result.iterations[result.iteration - 1]
    name = score_name(result.config.metric)
    return {
        "score": record["scores"]["validation"][name],
        "loss": record["validation_loss"],
    }


def _announce(progress: Show, text: str) -> None:
    """Log a line; write it to stderr where a progress bar is shown."""
    if text:
        _log.info(text)
        write_line(text, progress)


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
    **settings: Any,
) -> list[Result]:
    """Run `fit` on several splits of one graph, in one program per epoch if possible.

    Each graph is trained and stopped as `fit` would; one that has stopped keeps its
    best weights and waits for the others. Results equal those of `fit` up to rounding,
    which training amplifies: the first losses agree to 1e-4, later ones less. Splits
    that cannot share a program (different numbers of batches, sampled neighbours, or
    too little memory) are trained side by side, and different graphs one after another.

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
      settings: Fields of `Config`, which override those in `config`.

    Returns:
      One `Result` per graph. The seconds of an epoch are divided among the members that
      it trained.
    """
    if isinstance(graphs, Graph):
        raise ValueError("graphs is one graph; give a list of its splits, or use fit.")
    graphs, config = list(graphs), with_settings(config, settings)
    if not graphs:
        raise ValueError("graphs is empty; give the splits of a graph.")
    check(Choice(("auto", "vmap", "loop")), "mapping", mapping)
    _check_callbacks(callbacks)
    seeds = list(seed) if isinstance(seed, Sequence) else [seed] * len(graphs)
    seeds = list(map(as_python, seeds))
    if len(seeds) != len(graphs):
        raise ValueError(f"There are {len(graphs)} graphs, but {len(seeds)} seeds.")

    def tell(first: int, team: int, record: dict[str, Any]) -> None:
        for callback in callbacks:
            callback(record | {"fold": first + team})

    fit_teams = functools.partial(
        _fit_teams,
        model=model,
        config=config,
        execution=execution,
        progress=progress,
        checkpoint_every=checkpoint_every,
        mapping=mapping if len(graphs) > 1 else None,
    )
    try:
        return fit_teams(graphs, seeds, functools.partial(tell, 0), workdir)
    except CannotJoinError as error:
        _log.warning("The graphs are trained one after another. %s", error)
    results = []
    for i, (graph, own) in enumerate(zip(graphs, seeds, strict=True)):
        folder = None if workdir is None else os.path.join(os.fspath(workdir), str(i))
        results += fit_teams([graph], [own], functools.partial(tell, i), folder)
    return results


@releasing_programs()
def _fit_teams(
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
    mapping: Literal["auto", "vmap", "loop"] | None = None,
    place: str = "",
    solved: Solution | None = None,
) -> list[Result]:
    """Run the HOPF loop; return one `Result` per graph.

    Algorithm 1: start from empty label summaries; learn to predict from them; infer all
    nodes; make the next summaries from these predictions; repeat.

    Args:
      given, seeds: Graphs and seeds, one per team.
      tell: Called with a team and the record of its epoch, in the first process.
      workdir: As in `fit`.
      model, config, execution, progress, checkpoint_every: As in `fit`.
      mapping: How members are computed in one program; None for one program per member,
        unless there are several on an accelerator.
      place: What follows the name of the model in the line of progress.
      solved: Weights that need no training.
    """
    config = Config() if config is None else config
    kernel = find_kernel(model)
    kernel = kernel.with_skips() if config.residual else kernel
    execution = Execution() if execution is None else execution
    for graph, seed in zip(given, seeds, strict=True):
        check_inputs(graph, config, execution, seed)
    scaled, scalings = scale_features(given, config)
    teams = []
    for graph, seed in zip(scaled, seeds, strict=True):
        graph = readable(graph, kernel, config, seed)
        teams.append(make_team(graph, kernel, config, seed))
    check_same([team.graph for team in teams])
    if is_main():
        warn_once(w for t in teams for w in check_data(t.graph, kernel, config))
    graph = teams[0].graph
    net = make_net(kernel, config, sizes_of(graph, kernel, config))
    _check_memory(graph, net, config.num_members)
    objective = Objective.of(config, graph.multilabel)
    plan = make_plan(graph, kernel, config, execution)
    with checkpointed(
        workdir,
        lambda: identify(given, kernel, config, seeds) | plan.identity,
        checkpoint_every,
        plan.notes,
        plan.identity if execution.other_devices else (),
    ) as (restored, save):
        if restored is not None:
            like = first_state(objective, net.weight_shapes())
            helpers = len(teams[0].helpers)
            run = RunState.unpack(*restored, like, config.num_members, helpers)
        else:
            empty = (first_summaries(t.graph, net, config, t.num_views) for t in teams)
            run = RunState(tuple(TeamState(summaries, []) for summaries in empty))
        if solved is not None:
            whole = plan.whole_graph(graph)
            run = _take_solved(run, teams[0], net, config, solved, whole)
        if not run.finished:  # A finished run needs no batches.
            whole = plan.whole_graph(graph)
            members = [member for team in teams for member in team.nets]
            population = _make_population(
                mapping, net, objective, members, plan, whole, config
            )
        name = model if isinstance(model, str) else "own kernel"
        shown_progress = False if run.finished else progress
        with ProgressLine(f"fit {name}{place}", shown_progress) as line:
            times = config.num_iterations if kernel.iterative else 1
            shown = line, TimeLeft(times, config.max_epochs)
            while not run.finished:
                run = _iterate(teams, population, whole, config, run, save, shown, tell)
                save(run)
    results = []
    for state, own, scaling, team, seed in zip(
        run.teams, given, scalings, teams, seeds, strict=True
    ):
        decision = make_decision(config, team.graph, state.judged, team.judged)
        probabilities = decision.correct(state.probabilities)
        judged, crossed = decision.correct(state.judged), None
        if team.folds:
            nodes = np.flatnonzero(team.judged.validation)
            crossed = nodes, judged[nodes]
        result = Result(
            kernel=kernel,
            config=config,
            sizes=net.sizes,
            seed=seed,
            multilabel=graph.multilabel,
            label_names=team.graph.label_names,
            classes=own.classes,
            node_names=own.node_names,
            weights=state.weights,
            iteration=state.best,
            probabilities=probabilities,
            scores=state.iterations[state.best - 1]["scores"],
            history=state.history,
            iterations=list(state.iterations),
            calibration=calibrate(team.judged, judged),
            cross_validated=crossed,
            decision=decision,
            scaling=scaling,
            feature_names=own.feature_names,
            positions=fingerprint(own.features) if own.positional else (),
            graph=own,
            # Devices cannot be pickled, and predictions use the first.
            execution=dataclasses.replace(execution, devices=None),
        )
        results.append(result)
    if is_main():
        warn_once(
            message
            for team, each in zip(teams, results, strict=True)
            for message in check_training(
                team.graph, config, each.iterations, each.scores["train"]
            )
        )
    return results


def _check_memory(graph: Graph, net: Net, members: int) -> None:
    """Raise `ValueError` for weights or hidden states that no machine like this holds.

    Native code would end the process instead.
    """
    shapes = [leaf.shape for leaf in net.weight_shapes().values()]
    weights = sum(math.prod(shape) for shape in shapes)
    states = graph.num_nodes * (net.sizes.hidden + net.sizes.labels)
    check_memory(
        4 * (4 * members * weights + states),  # With a gradient and Adam's two moments.
        f"Training {weights:,} weights on {graph.num_nodes:,} nodes",
        "Lower hidden_size or members, or use fewer features or labels.",
    )


def _make_population(
    mapping: Literal["auto", "vmap", "loop"] | None, *arguments: Any
) -> Population:
    """Return members in one program where that is wanted and possible."""
    several = len(arguments[2]) > 1
    if several and (mapping or jax.default_backend() != "cpu"):
        try:
            return JointPopulation(*arguments, mapping=mapping or "auto")
        except CannotJoinError as error:
            _log.warning("Each net is trained in a program of its own. %s", error)
    return Population(*arguments)


def _iterate(
    teams: Sequence[Team],
    population: Population,
    whole: WholeGraph,
    config: Config,
    run: RunState,
    save: Callable[[RunState], None],
    shown: tuple[ProgressLine, TimeLeft],
    tell: Callable[[int, dict[str, Any]], object],
) -> RunState:
    """Run one iteration of Algorithm 1 for all teams that are not finished."""
    begun, trained = time.perf_counter(), 0.0
    net, states, count = population.net, run.teams, len(teams[0].nets)
    live = [not state.finished for state in states]
    # Teams that are not finished have completed the same number of iterations.
    t = 1 + max(len(state.iterations) for state in states)
    starts = []
    read: list[np.ndarray | None] = []
    for team, state in zip(teams, states, strict=True):
        read += _read_by(team, state.summaries, config, t, net.sizes.summary_scale)
        for m, member in enumerate(team.nets):
            own = _last_weights(state, m, config.num_members)
            starts.append(start_iteration(net, member.seed, t, own, config.warm_start))
    epochs = run.progress.epoch if run.progress else 0
    before = run.num_epochs - epochs

    def on_epoch(records: dict[int, dict[str, Any]], progress: Progress) -> None:
        nonlocal epochs, trained
        epochs = progress.epoch
        trained += sum(record["seconds"] for record in records.values())
        for i, record in records.items():
            team, m = divmod(i, count)
            which = {"member": m} if count > 1 else {}
            states[team].history.append({"iteration": t} | which | record)
            if is_main():
                tell(team, states[team].history[-1])
        line, left = shown
        mean = sum(r["validation_micro_f1"] for r in records.values()) / len(records)
        line.say(
            f"iteration {t}, epoch {epochs}, validation F1 {100 * mean:.1f}"
            + left.epoch(t, epochs),
            f"{t} iteration{'s' * (t > 1)}, {before + epochs} epochs",
        )
        now = tuple(s._replace(num_epochs=len(s.history)) for s in states)
        save(RunState(now, progress, before + epochs))

    # Learn, with the label summaries of the previous iteration as fixed inputs.
    params = learn(
        population,
        [start for _, start in starts],
        population.inputs(read, t),
        config,
        [key for key, _ in starts],
        on_epoch,
        live=np.repeat(live, count).tolist(),
        progress=run.progress,
    )
    del starts, read
    overhead = (time.perf_counter() - begun - trained) / sum(live)
    # Infer all nodes, and turn the predictions into the next label summaries.
    completed = [
        _complete(
            state,
            team,
            net,
            config,
            params[i * count : (i + 1) * count],
            whole,
            overhead,
        )
        if live[i]
        else state
        for i, (state, team) in enumerate(zip(states, teams, strict=True))
    ]
    return RunState(tuple(completed), None, before + epochs)


def _last_weights(state: TeamState, net: int, num_members: int) -> Params | None:
    """Return the weights that a net, member or helper, had after the last iteration."""
    if not state.weights:
        return None
    if net < num_members:
        return member_of(state.weights[-1], net, num_members)
    return {name: weights[net - num_members] for name, weights in state.helpers.items()}


def _read_by(
    team: Team,
    summaries: np.ndarray | None,
    config: Config,
    iteration: int,
    scale: float,
) -> Sequence[np.ndarray | None]:
    """Return the summaries that each net of a team learns from; often one for all."""
    if summaries is None:
        return [None] * len(team.nets)
    graphs = [team.graph] * len(summaries)
    for i, own in enumerate(team.folds or [helper.graph for helper in team.helpers]):
        graphs[i] = own
    pairs = zip(graphs, summaries, strict=True)
    views = [as_read(graph, config, iteration, view, scale) for graph, view in pairs]
    if team.helpers:  # Roots read different views.
        return [np.stack(views)] * len(team.nets)
    return views[: len(team.nets)] if len(views) > 1 else views * len(team.nets)


def _complete(
    state: TeamState,
    team: Team,
    net: Net,
    config: Config,
    params: Sequence[Params],
    whole: WholeGraph,
    overhead: float,
) -> TeamState:
    """Return the state of a team after an iteration: predict, summarise and score.

    The iteration took `overhead` seconds besides its epochs and what is done here.
    """
    begun = time.perf_counter() - overhead
    graph, history, last = team.graph, state.history, state.summaries
    t = len(state.iterations) + 1

    def predict(member: int, summary: np.ndarray | None) -> Any:
        with_hidden = config.summary == "hidden"
        return predict_logits(net, params[member], whole, summary, with_hidden)

    predicted, new, held_out = complete_iteration(
        graph,
        config,
        t,
        last,
        predict,
        multilabel=graph.multilabel,
        scale=net.sizes.summary_scale,
        helpers=[helper.graph for helper in team.helpers],
        folds=team.folds,
    )
    # What this iteration is judged by: predictions of nodes whose labels no net saw.
    judged = predicted if held_out is None else held_out
    # What it chooses on validation nodes is chosen anew for every iteration.
    decision = make_decision(config, graph, judged, team.judged)
    corrected = decision.correct(judged)
    scores = score(team.judged, corrected, config.scoring, decision)
    scores |= score(graph, decision.correct(predicted), config.scoring, decision)
    own = [record for record in history if record["iteration"] == t]
    held = team.judged.validation
    record: dict[str, Any] = {
        "iteration": t,
        "epochs": max(record["epoch"] for record in own),
        "scores": {name: scores[name] for name in SPLITS if name in scores},
        "validation_loss": mean_loss(
            graph.labels[held], corrected[held], graph.multilabel
        ),
        "seconds": sum(r["seconds"] for r in own) + time.perf_counter() - begun,
    }
    if last is not None and t > 1 and config.summary == "labels":
        record["summary_f1"] = summary_scores(team, config, last, t)
    finished = t == (config.num_iterations if net.kernel.iterative else 1)
    if last is not None and new is not None:
        finished |= mean_change(new[-1], last[-1]) < config.tolerance
    right = node_scores(team.judged, held, corrected, config.scoring, decision)
    count = config.num_members
    members, helpers = params[:count], params[count:]
    state = state._replace(
        summaries=new,
        num_epochs=len(history),
        weights=(*state.weights, members[0] if len(members) == 1 else _stack(members)),
        helpers=_stack(helpers) if helpers else {},
        iterations=(*state.iterations, record),
        right=(*state.right, right),
        finished=finished,
    )
    so_far = [record["scores"]["validation"] for record in state.iterations]
    if as_good_as_any(so_far, state.right):
        state = state._replace(best=t, probabilities=predicted, judged=judged)
    return state


def _stack(params: Sequence[Params]) -> Params:
    return {name: np.stack([p[name] for p in params]) for name in params[0]}


def check_arguments(
    graph: Graph, config: Config, execution: Execution, seed: int
) -> None:
    """Raise `ValueError` for arguments of a wrong type."""
    as_graph(graph)
    check_settings(config, execution, seed)


def check_settings(config: Config, execution: Execution, seed: int) -> None:
    """Raise `ValueError` for settings of a wrong type."""
    for value, kind in ((config, Config), (execution, Execution)):
        if not isinstance(value, kind):
            name = kind.__name__
            raise ValueError(
                f"{name.lower()} is a {type(value).__name__}; give a hopf_jax.{name}."
            )
    check(Whole(0, 2**32 - 1), "seed", seed)


def _check_callbacks(callbacks: Any) -> None:
    listed = isinstance(callbacks, list | tuple)
    if not listed or not all(map(callable, callbacks)):
        raise ValueError(
            f"callbacks is {callbacks!r}; give a list of functions of one argument."
        )


def check_inputs(graph: Graph, config: Config, execution: Execution, seed: int) -> None:
    """Raise `ValueError` if `graph` has no usable split, or for wrong arguments."""
    check_arguments(graph, config, execution, seed)
    if not graph.known.any():
        raise ValueError(
            "The graph has no train nodes, because none has a label. Give the labels "
            "that are known when you make it: Graph.from_networkx(..., labels=...)."
        )
    if graph.known.sum() == 1:
        raise ValueError(
            "Only one node of the graph has a label. Give two at least, one to learn "
            "from and one to judge by, and several of each class to learn anything."
        )
    for name in ("train",) if config.folds else ("train", "validation"):
        if not getattr(graph, name).any():
            raise ValueError(
                f"The graph has no {name} nodes. Give some with graph.with_split(...), "
                "or draw them with hopf_jax.split_graph(graph)."
            )
    if graph.positional and not graph.num_edges:
        raise ValueError(
            "The graph has neither features nor edges between different nodes, so "
            "there is nothing to learn from. Give features when you make it."
        )
    if graph.num_features == 0:
        raise ValueError("The graph has no features: features has 0 columns.")


def scale_features(
    graphs: Sequence[Graph], config: Config
) -> tuple[list[Graph], list[Scaling | None]]:
    """Return graphs with features as nets read them, and how they were scaled.

    Graphs that share features, as the splits of one graph do, share scaled ones.
    """
    if config.features == "as-is":
        if any(graph.missing_values for graph in graphs):
            raise ValueError(
                "Features have missing values, which are replaced when features are "
                "scaled. Set Config(features='auto'), or fill them in."
            )
        return list(graphs), [None] * len(graphs)
    made: dict[int, tuple[Scaling, Any]] = {}
    for graph in graphs:
        if id(graph.features) not in made:
            scaling = learn_scaling(graph.features, graph.feature_names)
            made[id(graph.features)] = scaling, scaling.apply(graph.features)
    found = [made[id(graph.features)] for graph in graphs]
    scaled = [
        with_features(graph, features)
        for graph, (_, features) in zip(graphs, found, strict=True)
    ]
    return scaled, [scaling for scaling, _ in found]

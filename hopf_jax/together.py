"""`fit_folds`: several splits of one graph, trained in one program an epoch.

Weights, optimiser state and batches get a leading axis of folds. On an accelerator that
axis is a `vmap`: small nets that leave most of it idle become one larger one. On a CPU,
where a batched sparse product is slow and nothing is idle, it is a loop.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax.custom_batching import sequential_vmap

from hopf_jax.ahead import FirstHop, known_ahead
from hopf_jax.batching import Layout, fill
from hopf_jax.checkpoints import Standing
from hopf_jax.config import Config
from hopf_jax.feeding import Feed, FeedSettings, Group
from hopf_jax.fitting import (
    Callback,
    check_inputs,
    conclude,
    feed_settings,
    progress_bar,
    show_epoch,
    sizes_of,
    start_iteration,
    to_result,
)
from hopf_jax.graph import Graph
from hopf_jax.inference import WholeGraph, predict_logits
from hopf_jax.models import Row, find_row
from hopf_jax.nets import Net
from hopf_jax.result import Result, make_net, readable
from hopf_jax.summaries import first_summary
from hopf_jax.training import (
    Inputs,
    Objective,
    Params,
    first_rule,
    first_state,
    judge,
    label_weights,
    resident_epoch,
    zero_totals,
)

Mapping = Literal["vmap", "loop"]
_GRAPH = ("indptr", "indices", "weights", "features", "labels", "known")


class CannotJoinError(ValueError):
    """These folds cannot be trained in one program; `fit` may still train each."""


def fit_folds(
    graphs: Sequence[Graph],
    model: str | Row,
    config: Config | None = None,
    *,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    progress: Literal["auto", True, False] | bool = "auto",
    mapping: Literal["auto", "vmap", "loop"] = "auto",
) -> list[Result]:
    """`fit` on several splits of one graph, all of them in one program an epoch.

    Each fold has the batches, the random draws and the stopping rule that `fit` gives
    it; a fold that has stopped keeps its best weights and waits for the others. Numbers
    are `fit`'s up to rounding, as another program computes them: first losses agree to
    1e-4, later ones drift apart as far as training amplifies that. There are no
    checkpoints: a run that is stopped starts over.

    It is made for accelerators; `python -m experiments.together` measures what it
    gains over `fit` on each fold.

    Args:
      graphs: the same graph with different splits, in as many batches each.
      model: a name from `hopf_jax.MODELS`, or a `Row` of your own.
      config: settings; the defaults if None. All batches of all folds have to fit
        `memory_budget`, with all neighbours and one batch a step.
      seed: of every fold, as in `fit`.
      callbacks: called after every epoch of every fold with its record and `fold`, its
        place in `graphs`.
      progress: a bar on stderr, of epochs of all folds; as in `fit`.
      mapping: "vmap", one batched computation; "loop", a fold after the other within
        the program; "auto" is a loop on a CPU and vmap elsewhere.

    Returns:
      A `Result` a graph. The seconds of an epoch are shared out among the folds that
      it trained.
    """
    row, config = find_row(model), Config() if config is None else config
    graphs = list(graphs)
    if not graphs:
        raise ValueError("graphs is empty; give the splits of a graph.")
    for graph in graphs:
        check_inputs(graph, config, seed)
    if mapping not in ("auto", "vmap", "loop"):
        raise ValueError(f"mapping is {mapping!r}; it must be auto, vmap or loop.")
    if mapping == "auto":
        mapping = "loop" if jax.default_backend() == "cpu" else "vmap"
    _check_joint(graphs, config)
    given, graphs = graphs, [readable(graph, row, config, seed) for graph in graphs]
    first, folds = graphs[0], range(len(graphs))
    net = make_net(row, config, sizes_of(first, row, config))
    objective = Objective(
        first.multilabel, config.l2, config.clip, config.scoring == "cardinality"
    )
    feeds = _feeds(graphs, row, config, seed)
    whole = WholeGraph(first, config.chunk_edges)
    hop = FirstHop(row, whole) if known_ahead(first, row, config) else None
    fixed = Inputs(
        whole.all_features() if feeds[0].features == "resident" else None,
        None,
        np.stack(
            [label_weights(g.labels[g.train], config.weighted_loss) for g in graphs]
        ),
    )
    standings = [Standing(first_summary(first, net), []) for _ in folds]
    last: list[Params | None] = [None for _ in folds]
    with progress_bar(progress, desc="fit_folds", unit=" epochs") as bar:
        while live := [i for i in folds if not standings[i].finished]:
            t = len(standings[live[0]].iterations) + 1  # All of them are as far.
            starts = [start_iteration(net, seed, t, p, config.warm_start) for p in last]
            learn_key = starts[0][0]  # All folds have the seed, and so the draws.

            def on_epoch(fold: int, record: dict[str, float], t: int = t) -> None:
                standings[fold].history.append({"iteration": t} | record)
                show_epoch(bar, standings[fold].history[-1])
                for callback in callbacks:
                    callback(standings[fold].history[-1] | {"fold": fold})

            inputs, axes = _inputs(fixed, standings, row, hop)
            learned = _learn(
                _Program(net, objective, mapping, axes),
                [params for _, params in starts],
                *(feeds, inputs, config, learn_key, live, on_epoch),
            )
            del inputs
            for i in live:
                now, standing = time.perf_counter(), standings[i]
                records = [r for r in standing.history if r["iteration"] == t]
                begun = now - sum(record["seconds"] for record in records)
                outputs = predict_logits(
                    *(net, learned[i], whole, standing.summary),
                    with_hidden=config.summary == "hidden",
                )
                standings[i] = conclude(
                    standing, graphs[i], net, config, learned[i], outputs, begun
                )
                last[i] = learned[i]
    return [
        to_result(*fold, net, config, seed)
        for fold in zip(standings, given, graphs, strict=True)
    ]


def _check_joint(graphs: list[Graph], config: Config) -> None:
    """What keeps these folds out of one program, before any work is done."""
    for i, graph in enumerate(graphs[1:], start=1):
        for name in _GRAPH:
            if not _equal(getattr(graphs[0], name), getattr(graph, name)):
                raise CannotJoinError(
                    f"graphs[{i}] differs from graphs[0] in its {name}. Give one graph "
                    "with several splits, for example by graph.with_split(...)."
                )
        for name in ("multilabel", "label_names", "directed"):
            if getattr(graphs[0], name) != getattr(graph, name):
                raise CannotJoinError(
                    f"graphs[{i}].{name} is {getattr(graph, name)}, but "
                    f"{getattr(graphs[0], name)} in graphs[0]. Give one graph."
                )
    if config.fanouts is not None:
        raise CannotJoinError(
            "config.fanouts draws neighbours anew every epoch, and batches of folds "
            "that are trained together stay on the device. Use fanouts=None, or fit."
        )
    if config.batches_per_step > 1 or jax.process_count() > 1:
        raise CannotJoinError(
            f"{config.batches_per_step} batches a step, {jax.process_count()} "
            "processes: folds are trained together on one device, one batch a step. "
            "Use fit."
        )


def _equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if one is None or other is None or type(one) is not type(other):
        return False
    if sp.issparse(one):
        names = ("indptr", "indices", "data")
        same = all(_equal(getattr(one, n), getattr(other, n)) for n in names)
        return same and one.shape == other.shape
    return np.array_equal(one, other)


class _Feed:
    """The batches of every fold, resident, in one layout that holds them all.

    Batches are cut, numbered and ordered as `fit` does, fold by fold. Where the folds'
    orders are the same, as nearly always, the order has no axis of folds, and random
    bits are drawn once for all of them.
    """

    def __init__(
        self, graphs: list[Graph], sets: str, how: FeedSettings, budget: int, seed: int
    ):
        roots = [np.flatnonzero(getattr(graph, sets)) for graph in graphs]
        self._feeds = [
            Feed(graph, nodes, how, seed)
            for graph, nodes in zip(graphs, roots, strict=True)
        ]
        first = self._feeds[0]
        counts = [feed.num_batches for feed in self._feeds]
        if len(set(counts)) > 1:
            raise CannotJoinError(
                f"The {sets} nodes make {counts} batches in the {len(counts)} graphs; "
                "they must be as many in each. Set another batch_size, or use fit."
            )
        sizes = np.concatenate([feed.sizes for feed in self._feeds])
        layout = first.layouts[0]
        if any(feed.layouts != [layout] for feed in self._feeds):
            layout = Layout.over(sizes, how.num_hops)
        needed = len(graphs) * first.room(layout)
        if needed > budget:
            raise CannotJoinError(
                f"The {sets} batches of {len(graphs)} folds need {needed} bytes, but "
                f"memory_budget is {budget}. Raise it, give fewer folds, or use fit."
            )
        self.features = first.features
        self._batches = jax.device_put(
            _stack([feed.stacked(layout) for feed in self._feeds])
        )
        self._alike = all(
            len(feed.members) == len(first.members)
            and all(map(np.array_equal, feed.members, first.members))
            for feed in self._feeds
        )

    def group(self, epoch: int) -> Group:
        """All batches of an epoch; those of axis 0 in `axes` by fold."""
        feeds = self._feeds[:1] if self._alike else self._feeds
        count = self._feeds[0].num_batches
        room = max(2, count)  # As `stack` makes it.
        orders = [fill(feed.order(epoch), room, 0) for feed in feeds]
        return Group(
            self._batches,
            fill(np.arange(count, dtype=np.int32), room, 0),
            orders[0] if self._alike else np.stack(orders),
            np.array(count, np.int32),
        )

    @property
    def axes(self) -> Group:
        """Which parts of a group have an axis of folds."""
        order: Any = None if self._alike else 0
        return Group(0, None, order, None)  # type: ignore[arg-type]


def _feeds(
    graphs: list[Graph], row: Row, config: Config, seed: int
) -> tuple[_Feed, _Feed]:
    budget = config.memory_budget
    train, held = (
        # Padded here, together, and not by each `Feed`.
        dataclasses.replace(how, memory_budget=0)
        for how in feed_settings(graphs[0], row, config)
    )
    return (
        _Feed(graphs, "train", train, budget, seed),
        _Feed(graphs, "validation", held, budget, seed),
    )


def _inputs(
    fixed: Inputs, standings: list[Standing], row: Row, hop: FirstHop | None
) -> tuple[Inputs, Inputs]:
    """What the batches of an iteration share, and which of it has an axis of folds."""
    inputs, axes = fixed, Inputs(None, None, 0)  # type: ignore[arg-type]
    summaries = [s.summary for s in standings if s.summary is not None]
    if summaries:
        inputs = inputs._replace(summary=np.stack(summaries))
        axes = axes._replace(summary=0)  # type: ignore[arg-type]
    if hop is not None:
        folds = [hop.neighbours(s.summary) for s in standings]
        # What is read of the features is the same in all folds.
        of = tuple(0 if name == "y" else None for name in row.psi)
        blocks = zip(of, *folds, strict=True)
        read = tuple(b[0] if axis is None else np.stack(b) for axis, *b in blocks)
        inputs = inputs._replace(neighbours=read)
        axes = axes._replace(neighbours=of)  # type: ignore[arg-type]
    return jax.device_put(inputs), axes


class _Program(NamedTuple):
    """What an epoch is compiled for."""

    net: Net
    objective: Objective
    mapping: Mapping
    inputs: Inputs  # axes


@functools.partial(jax.jit, static_argnames=("program", "axes"))
def folds_epoch(program, axes, live, state, groups, inputs, key, rates, zero):
    """`resident_epoch` of all folds; those that are not live stay as they are."""
    net, objective, mapping, shared = program

    def one(live, state, groups, inputs, key, rate, zero):
        def run():
            others = inputs, key, rate, zero
            return resident_epoch(net, objective, state, *groups, *others)

        # In a loop a branch, under vmap a choice between results.
        return jax.lax.cond(live, run, lambda: (state, zero, zero))

    each = sequential_vmap(one) if mapping == "loop" else one
    in_axes = (0, 0, axes, shared, None, 0, None)
    return jax.vmap(each, in_axes)(live, state, groups, inputs, key, rates, zero)


@jax.jit
def _choose(which, one, other):
    """Fold by fold, one or the other."""

    def pick(a, b):
        return jnp.where(which.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, one, other)


def _learn(
    program: _Program,
    params: list[Params],
    feeds: tuple[_Feed, _Feed],
    inputs: Inputs,
    config: Config,
    key: jax.Array,
    live: list[int],
    on_epoch: Callable[[int, dict[str, float]], None],
) -> list[Params]:
    """The best weights that training from `params` comes to, as `learn`, by fold."""
    train, validation = feeds
    state = best = jax.device_put(
        _stack([first_state(program.objective, p) for p in params])
    )
    rules = {i: first_rule(config) for i in live}
    zero = zero_totals(inputs.label_weights.shape[1])
    axes = train.axes, validation.axes
    held_out = validation.group(0)
    epoch = 0
    while epoch < config.max_epochs and rules:
        epoch += 1
        begun = time.perf_counter()
        rates, now = np.zeros((2, len(params)), np.float32)
        for i, rule in rules.items():
            rates[i], now[i] = rule.learning_rate, 1
        groups = (train.group(epoch),), (held_out,)
        state, *totals = folds_epoch(
            *(program, tuple((a,) for a in axes), now > 0, state, groups, inputs),
            *((key, np.uint32(epoch)), rates, zero),
        )
        seen, held = jax.device_get(totals)
        said = np.full(len(params), "wait", "U7")
        records = {}
        for i, rule in rules.items():
            try:
                said[i], records[i] = judge(rule, epoch, _take(seen, i), _take(held, i))
            except ValueError as error:
                raise ValueError(f"graphs[{i}]: {error}") from error
        if (said == "keep").any():
            best = _choose(said == "keep", state, best)
        if (said == "restore").any():
            state = _choose(said == "restore", best, state)
        seconds = (time.perf_counter() - begun) / len(rules)
        for i, record in records.items():
            on_epoch(i, record | {"seconds": seconds})
        rules = {i: rule for i, rule in rules.items() if not rule.stopped}
    return [_take(best.params, i) for i in range(len(params))]


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def _take(tree: Any, fold: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[fold], tree)

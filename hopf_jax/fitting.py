"""`fit`: the HOPF loop (learn, infer, average), for every row."""

import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np
from tqdm.std import tqdm

from hopf_jax.ahead import FirstHop, known_ahead
from hopf_jax.calibration import calibrate
from hopf_jax.checkpoints import Standing, kept
from hopf_jax.config import Config
from hopf_jax.feeding import Feed, FeedSettings
from hopf_jax.graph import Graph
from hopf_jax.inference import WholeGraph, predict_together, share
from hopf_jax.lanes import LaneFeed
from hopf_jax.models import DEFAULT_MODEL, Row, find_row
from hopf_jax.nets import Net, Sizes
from hopf_jax.patience import as_good_as_any
from hopf_jax.processes import is_main
from hopf_jax.result import Result, make_net, node_scores, readable, score
from hopf_jax.sparse import Matrix
from hopf_jax.spreading import Spread, spread_over
from hopf_jax.summaries import (
    first_summary,
    mean_change,
    next_summary,
    output,
    probabilities,
)
from hopf_jax.training import (
    Inputs,
    Objective,
    Params,
    Progress,
    State,
    first_state,
    label_weights,
    learn,
)

Callback = Callable[[dict[str, Any]], None]


def fit(
    graph: Graph,
    model: str | Row = DEFAULT_MODEL,
    config: Config | None = None,
    *,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    progress: Literal["auto", True, False] | bool = "auto",
    workdir: str | os.PathLike | None = None,
    checkpoint_every: int = 1,
    devices: int | Sequence[Any] | None = None,
) -> Result:
    """Learn a row on the training nodes of a graph, iterate it, and score it.

    Args:
      graph: with a split: training nodes to learn from, validation nodes to stop and
        choose by. Test nodes are only scored.
      model: a name from `hopf_jax.MODELS`, or a `Row` of your own.
      config: settings; the defaults if None.
      seed: the same seed on the same machine gives the same result, bit for bit.
      callbacks: called after every epoch with its record, as in `Result.history`; in a
        job of several processes, in the first of them.
      progress: a bar on stderr; "auto" shows it in a terminal and in a notebook.
      workdir: a folder of this run's own, local or gs://. Checkpoints go there, at
        SIGTERM and SIGINT too. The same call again goes on where the run was stopped,
        and ends with the same result, bit for bit; or returns it, if it was finished.
      checkpoint_every: epochs from one checkpoint to the next, with a workdir. Longer
        where checkpoints would take more than a twentieth of the time. 1 or more.
      devices: how many devices of jax, or which, share the `config.batches_per_step`
        subgraphs of a step, which must be a multiple of their number. None is the first
        device, or all of them in a job of several processes (`hopf_jax.processes`).

    Returns:
      A `Result`: predictions, scores, history; saved, loaded and drawn.

    >>> from hopf_jax.datasets import make_chain
    >>> config = Config(num_iterations=1, max_epochs=2, min_epochs=1, hidden_size=4)
    >>> fit(make_chain(), config=config, progress=False).predict_proba().shape
    (6, 2)
    """
    row, config = find_row(model), Config() if config is None else config
    check_inputs(graph, config, seed)
    run = (graph, row, config, seed)  # What its numbers depend on.
    given, graph = graph, readable(graph, row, config, seed)
    net = make_net(row, config, sizes_of(graph, row, config))
    objective = Objective(
        graph.multilabel, config.l2, config.clip, config.scoring == "cardinality"
    )
    spread = spread_over(devices, config.batches_per_step)
    omega = label_weights(graph.labels[graph.train], config.weighted_loss)

    with (
        kept(
            *(workdir, run, Standing(first_summary(graph, net), [])),
            functools.partial(_first_state, net, objective),
            checkpoint_every,
        ) as (standing, keep),
        progress_bar(
            progress, desc="fit", unit=" epochs", initial=standing.num_epochs
        ) as bar,
    ):
        history = standing.history
        params: Params | None = standing.weights[-1] if standing.weights else None
        # A run that is finished in its workdir needs no batches.
        made = None if standing.finished else _prepare(graph, row, config, seed, spread)
        while made is not None and not standing.finished:
            feeds, whole, first, features = made
            t = len(standing.iterations) + 1
            before = [record for record in history if record["iteration"] == t]
            begun = time.perf_counter() - sum(record["seconds"] for record in before)
            learn_key, params = start_iteration(net, seed, t, params, config.warm_start)

            def on_epoch(
                record: dict[str, Any], progress: Progress, last: Standing = standing
            ) -> None:
                history.append({"iteration": len(last.iterations) + 1} | record)
                show_epoch(bar, history[-1])
                for callback in callbacks if is_main() else ():
                    callback(history[-1])
                keep(last._replace(num_epochs=len(history), progress=progress))

            inputs = Inputs(features, standing.summary, omega)
            if first is not None:
                read = first.neighbours(standing.summary)
                inputs = inputs._replace(neighbours=read)
                del read
            params = learn(
                *(net, objective, params, feeds, inputs, config, learn_key, on_epoch),
                progress=standing.progress,
            )
            del inputs  # An iteration is to hold no more than the first.
            # Not held by a name: an iteration is to leave nothing but its standing.
            standing = conclude(
                *(standing, graph, net, config, params),
                predict_together(
                    *(net, params, whole, standing.summary),
                    with_hidden=config.summary == "hidden",
                ),
                begun,
            )
            keep(standing)
    return to_result(standing, given, graph, net, config, seed)


def conclude(
    standing: Standing,
    graph: Graph,
    net: Net,
    config: Config,
    params: Params,
    outputs: tuple[np.ndarray, np.ndarray | None],
    begun: float,
) -> Standing:
    """Where a run stands once an iteration is learned and all nodes are predicted.

    Args:
      standing: while the iteration was learned; its history is complete.
      graph: as the row reads it, with the split that is learned.
      net: the row and its widths.
      config: settings.
      params: what was learned.
      outputs: logits [N, C] and, where summaries are made of it, h_K [N, *].
      begun: when the iteration began, by `time.perf_counter`.
    """
    logits, hidden = outputs
    t, history = len(standing.iterations) + 1, standing.history
    predicted = probabilities(logits, graph.multilabel)
    last = new = standing.summary
    if last is not None:
        new = next_summary(graph, config, t, last, predicted, hidden)
    predicted = output(graph, config, predicted, new)
    record: dict[str, Any] = {"iteration": t, "epochs": history[-1]["epoch"]}
    record |= {"scores": score(graph, predicted, config.scoring)}
    record |= {"seconds": time.perf_counter() - begun}
    right = node_scores(graph, graph.validation, predicted, config.scoring)
    finished = t == (config.num_iterations if net.row.iterative else 1)
    if last is not None and new is not None:
        finished |= mean_change(new, last) < config.tolerance
    standing = standing._replace(
        summary=new,
        num_epochs=len(history),
        weights=(*standing.weights, jax.device_get(params)),
        iterations=(*standing.iterations, record),
        right=(*standing.right, right),
        progress=None,
        finished=finished,
    )
    held = [record["scores"]["validation"] for record in standing.iterations]
    if as_good_as_any(held, standing.right):
        standing = standing._replace(best=t, probabilities=predicted)
    return standing


def to_result(
    standing: Standing, given: Graph, graph: Graph, net: Net, config: Config, seed: int
) -> Result:
    """The result of a finished run on a graph, as given and as the row reads it."""
    return Result(
        row=net.row,
        config=config,
        sizes=net.sizes,
        seed=seed,
        multilabel=graph.multilabel,
        label_names=graph.label_names,
        weights=standing.weights,
        iteration=standing.best,
        probabilities=standing.probabilities,
        scores=standing.iterations[standing.best - 1]["scores"],
        history=standing.history,
        iterations=list(standing.iterations),
        calibration=calibrate(graph, standing.probabilities),
        graph=given,
    )


def check_inputs(graph: Graph, config: Config, seed: int) -> None:
    """Says what `fit` cannot learn from."""
    if not isinstance(graph, Graph):
        raise ValueError(
            f"graph is a {type(graph).__name__}; make a hopf_jax.Graph of it, for "
            "example with Graph.from_networkx or Graph.from_scipy."
        )
    if not isinstance(config, Config):
        raise ValueError(
            f"config is a {type(config).__name__}; give a hopf_jax.Config."
        )
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise ValueError(f"seed is {seed!r}; give a whole number from 0, below 2**32.")
    for name in ("train", "validation"):
        if not getattr(graph, name).any():
            raise ValueError(
                f"The graph has no {name} nodes. Give some with graph.with_split(...), "
                "or draw them with hopf_jax.datasets.split_graph."
            )
    if graph.num_features == 0:
        raise ValueError("The graph has no features: features has 0 columns.")


def sizes_of(graph: Graph, row: Row, config: Config) -> Sizes:
    """The widths of a row on a graph."""
    features, hidden, hops = graph.num_features, config.hidden_size, config.num_hops
    summary = 0
    if row.iterative:
        hidden_width = row.width(features, hidden, row.num_layers(hops))
        summary = graph.num_labels if config.summary == "labels" else hidden_width
    return Sizes(features, graph.num_labels, hidden, hops, summary)


def _prepare(
    graph: Graph, row: Row, config: Config, seed: int, spread: Spread | None
) -> tuple[tuple[Feed, Feed], WholeGraph, FirstHop | None, Matrix]:
    """What all iterations use: batches, chunks, the first hop, features to gather."""
    feeds = _feeds(graph, row, config, seed, spread)
    whole = _whole(graph, row, config)
    first: FirstHop | None = None
    if known_ahead(graph, row, config):
        every = WholeGraph(graph, config.chunk_edges) if whole.shared else whole
        first = FirstHop(row, every)
    resident = feeds[0].features == "resident"
    return feeds, whole, first, whole.all_features() if resident else None


def feed_settings(
    graph: Graph, row: Row, config: Config
) -> tuple[FeedSettings, FeedSettings]:
    """How batches of training and of validation nodes are cut and kept."""
    reach = row.reach(config.num_hops) - known_ahead(graph, row, config)
    fanouts = None if config.fanouts is None else config.fanouts[:reach]
    train = FeedSettings(
        reach, config.batch_size, fanouts, memory_budget=config.memory_budget
    )
    held = FeedSettings(
        reach,
        config.batch_size,
        fanouts,
        memory_budget=config.memory_budget,
        resample=False,
        shuffle=False,
        transposed=False,
    )
    return train, held


def _feeds(
    graph: Graph, row: Row, config: Config, seed: int, spread: Spread | None = None
) -> tuple[Feed, Feed]:
    train, held = feed_settings(graph, row, config)
    learned, checked = np.flatnonzero(graph.train), np.flatnonzero(graph.validation)
    if spread is None:
        return Feed(graph, learned, train, seed), Feed(graph, checked, held, seed)
    return (
        LaneFeed(graph, learned, train, seed, spread),
        LaneFeed(graph, checked, held, seed, spread),
    )


def _whole(graph: Graph, row: Row, config: Config) -> WholeGraph:
    """All nodes, or in a job of several processes this one's share of them."""
    count = jax.process_count()
    if count == 1:
        return WholeGraph(graph, config.chunk_edges)
    own = share(graph.indptr, jax.process_index(), count)
    halo = row.num_layers(config.num_hops) if row.psi else 0
    return WholeGraph(graph, config.chunk_edges, own, halo)


def _first_state(net: Net, objective: Objective) -> State:
    params = net.init(jax.random.key(0), method="declare")["params"]
    return first_state(objective, params)


@functools.partial(jax.jit, static_argnames=("net",))
def _draw(net, seed, iteration):
    """An iteration's key and fresh weights, as one program."""
    key = jax.random.key(seed)
    learn_key, init_key = jax.random.split(jax.random.fold_in(key, iteration))
    return learn_key, net.init(init_key, method="declare")["params"]


def start_iteration(
    net: Net, seed: int, iteration: int, last: Params | None, warm_start: bool
) -> tuple[jax.Array, Params]:
    """The key; fresh weights, or the last iteration's with a fresh output layer."""
    learn_key, fresh = _draw(net, np.uint32(seed), np.uint32(iteration))
    if last is None or not warm_start:
        return learn_key, fresh
    new = {name: fresh[name] for name in fresh if name.endswith("_output")}
    return learn_key, last | new


def progress_bar(progress: Any, **settings: Any) -> tqdm:
    """A bar on stderr; "auto" shows it in a terminal and in a notebook."""
    if progress == "auto":
        notebook = "ipykernel" in sys.modules
        progress = is_main() and (notebook or sys.stderr.isatty())
    return tqdm(disable=not progress, leave=True, mininterval=0.2, **settings)


def show_epoch(bar: tqdm, record: dict[str, Any]) -> None:
    """One epoch further."""
    bar.update()
    if not bar.disable:
        bar.set_postfix(
            iteration=record["iteration"],
            loss=f"{record['train_loss']:.3f}",
            validation_f1=f"{100 * record['validation_micro_f1']:.1f}",
            refresh=False,
        )

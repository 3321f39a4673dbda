"""Compare updates of a changing graph with replays of the whole graph.

Fits a model, then makes random changes, one at a time: a node with four edges comes, a
node goes, an edge comes or goes, a label becomes known, features change. Each is
applied by `Update.update`, and every few of them all nodes are predicted anew on the
changed graph, and compared. Reported are medians of seconds, after programs of all
sizes were compiled by as many other changes; a replay is timed on the same graph again
(nothing is compiled) and on the changed graph, whose new size means new programs.
Writes WORKDIR/updating.json; exits with 1 if predictions differ by more than 1e-5.
"""

import functools
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

import hopf_jax
from experiments.common import arguments, output
from hopf_jax import Graph, Update
from hopf_jax.datasets import load_dataset

_NEW_EDGES = 4
_REPLAYS = 5
_LIMIT = 1e-5
_KINDS = ("add node", "drop node", "add edge", "drop edge", "label", "features")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.updating")
    parser.option("dataset", arguments.one(arguments.dataset_names), "pubmed")
    parser.option("model", arguments.one(arguments.model_names), "i-nip-mean")
    arguments.add_counts(parser, changes=200, check=20)
    arguments.add_max_epochs(parser)
    arguments.add_seed(parser, "seed of training and of the changes")
    options = parser.parse_args(argv)
    graph = load_dataset(options.dataset, fold=1)
    config = arguments.limit_epochs(hopf_jax.Config(), options.max_epochs)
    result = hopf_jax.fit(graph, options.model, config, seed=options.seed)
    found = compare(result, graph, options.changes, options.check, options.seed)
    found |= {"dataset": options.dataset, "model": options.model}
    for name in ("update", "predict_new", "replay", "replay_of_changed"):
        wall, processor = (found[name][unit] for unit in ("seconds", "processor"))
        print(f"{name:<18} {1e3 * wall:9.2f} ms, processor {1e3 * processor:9.2f} ms")
    print(
        f"An update is {found['times_as_fast']:.0f} times as fast as a replay with "
        f"compiled programs, and {found['times_as_fast_as_changed']:.0f} times as one "
        f"of the changed graph; largest difference over {options.changes} changes: "
        f"{found['largest_difference']:.1e}."
    )
    output.write_results(options.workdir / "updating.json", found, options.invocation)
    return 0 if found["largest_difference"] <= _LIMIT else 1


def compare(
    result: hopf_jax.Result, graph: Graph, changes: int, check: int, seed: int
) -> dict[str, Any]:
    """Return seconds of updates and replays, and how far their results differ."""
    result.predict_proba(graph)  # Compiles.
    replays = [timed(lambda: result.predict_proba(graph))[1] for _ in range(_REPLAYS)]
    rng = np.random.default_rng(seed)
    now, first = timed(lambda: result.update(graph))
    for i in range(changes):  # Compiles programs of all sizes.
        now = now.update(**random_change(now, graph, rng, i))
    updates, anew, apart, computed = [], [], [], []
    for i in range(changes):
        change = random_change(now, graph, rng, i)
        now, seconds = timed(functools.partial(now.update, **change))
        updates.append(seconds)
        computed.append(now.recomputed)
        if i % check == check - 1:
            changed = now.graph
            want, seconds = timed(functools.partial(result.predict_proba, changed))
            anew.append(seconds)
            apart.append(float(np.abs(want - now.predict_proba()).max()))
    new = []
    for _ in range(min(changes, 40)):
        row = _row(graph, rng)
        links = [int(i) for i in rng.choice(now.num_nodes, _NEW_EDGES, replace=False)]
        new.append(timed(functools.partial(now.predict_new, row, links))[1])
    found: dict[str, Any] = {
        "changes": changes,
        "first_call_seconds": first[0],
        "recomputed": statistics.median(computed),
        "largest_difference": max(apart),
    }
    for name, times in (
        ("update", updates),
        ("predict_new", new[len(new) // 2 :]),
        ("replay", replays),
        ("replay_of_changed", anew),
    ):
        wall, processor = (
            statistics.median(column) for column in zip(*times, strict=True)
        )
        found[name] = {"seconds": wall, "processor": processor}
    found["times_as_fast"] = found["replay"]["seconds"] / found["update"]["seconds"]
    found["times_as_fast_as_changed"] = (
        found["replay_of_changed"]["seconds"] / found["update"]["seconds"]
    )
    found["by_kind"] = {
        kind: statistics.median(seconds for seconds, _ in updates[k :: len(_KINDS)])
        for k, kind in enumerate(_KINDS)
    }
    return found


def timed(call: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    """Return what a call returns, and its seconds by the clock and the processor."""
    wall, processor = time.perf_counter(), time.process_time()
    found = call()
    return found, (time.perf_counter() - wall, time.process_time() - processor)


def random_change(
    now: Update, like: Graph, rng: np.random.Generator, number: int
) -> dict[str, Any]:
    """Return a change of the kind of this number; nodes have no names."""
    count, kind = now.num_nodes, _KINDS[number % len(_KINDS)]
    one, *others = (int(i) for i in rng.choice(count, 1 + _NEW_EDGES, replace=False))
    if kind == "add node":
        edges = [(count, other) for other in others]
        return {"add_nodes": [_row(like, rng)], "add_edges": edges}
    if kind == "drop node":
        return {"drop": [one]}
    if kind == "add edge":
        return {"add_edges": [(one, others[0])]}
    if kind == "drop edge":
        graph = now.graph
        at = int(rng.integers(graph.num_edges))
        row = int(np.searchsorted(graph.indptr, at, side="right")) - 1
        return {"drop_edges": [(int(graph.indices[at]), row)]}
    if kind == "label":
        return {"labels": {one: like.label_names[int(rng.integers(like.num_labels))]}}
    return {"features": {one: _row(like, rng)}}


def _row(graph: Graph, rng: np.random.Generator) -> Any:
    """Return the features of some node."""
    node = int(rng.integers(graph.num_nodes))
    features: Any = graph.features
    row = features[[node]]
    return row.toarray()[0] if sp.issparse(row) else row[0]


if __name__ == "__main__":
    sys.exit(main())

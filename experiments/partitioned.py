"""Partitioned training, simulated: hosts that hold a part of the graph and its halo.

Each host has its own nodes and what is within C hops of them; features, edges and
labels of all else are made nonsense, so that reading them would show. Hosts learn
together, each from the training nodes of its part, and after an iteration send one
another the label summaries of halo nodes. The predictions of all hosts, iteration by
iteration, are compared with a prediction of the whole graph by the same weights. Writes
partitioned.json to WORKDIR/partitioned.
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

import hopf_jax
from experiments import arguments, folders, halos
from hopf_jax.batching import (
    Batch,
    Layout,
    LoaderSettings,
    Neighborhoods,
    ShardedLoader,
    Subgraph,
    deal,
    pad,
)
from hopf_jax.fitting import sizes_of, start_iteration
from hopf_jax.inference import WholeGraph, predict_logits, rings
from hopf_jax.kernels import find_kernel
from hopf_jax.learning import (
    Inputs,
    Objective,
    Params,
    first_summary,
    label_weights,
    learn,
    next_summary,
    probabilities,
)
from hopf_jax.results import make_net, score
from hopf_jax.runtime import StepSharding, shard_steps

_MODULE = "experiments.partitioned"
_MODEL = "i-nip-mean"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(argv)
    config = hopf_jax.Config(
        num_hops=options.hops,
        hidden_size=16,
        num_iterations=options.iterations,
        batches_per_step=options.hosts,
        max_epochs=options.epochs,
        min_epochs=min(50, options.epochs),
    )
    data: dict[str, Any] = {"hosts": options.hosts, "hops": options.hops, "graphs": {}}
    worst = 0.0
    for name in options.datasets:
        graph = hopf_jax.load_dataset(name, fold=1)
        parts = halos.metis(graph, options.hosts)
        found = simulate(graph, parts, config)
        worst = max(worst, found["difference"])
        data["graphs"][name] = found
        print(
            f"{name}: {options.hosts} hosts hold {found['held_share']:.2f} of nodes "
            f"each and receive {found['received_bytes']} bytes of label summaries an "
            f"iteration; predictions differ by {found['difference']:.1e} at most; test "
            f"F1 {100 * found['test_micro_f1']:.1f}",
            flush=True,
        )
    path = options.workdir / "partitioned" / "partitioned.json"
    folders.write_json(path, data | folders.provenance([_MODULE, *argv]))
    return 0 if worst <= 1e-5 else 1


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser(__doc__, _MODULE)
    parser.add_argument(
        "--datasets", type=arguments.dataset_names, default=("cora", "pubmed")
    )
    for name, default in (("hosts", 4), ("hops", 1), ("iterations", 5), ("epochs", 60)):
        parser.add_argument(f"--{name}", type=arguments.positive, default=default)
    return parser


def simulate(
    graph: hopf_jax.Graph, parts: np.ndarray, config: hopf_jax.Config, seed: int = 0
) -> dict[str, Any]:
    """Learn on hosts that hold one part each; how far predictions are off, and more.

    Args:
      graph: with sparse features, which batches bring along.
      parts: the host of each node, [N].
      config: with as many `batches_per_step` as there are hosts.
      seed: of all that is random.
    """
    row = find_kernel(_MODEL)
    hosts = [
        Host(graph, np.flatnonzero(parts == p), row.reach(config.num_hops))
        for p in range(config.batches_per_step)
    ]
    net = make_net(row, config, sizes_of(graph, row, config))
    objective = Objective(graph.multilabel, config.l2, config.clip)
    spread = shard_steps(None, config.batches_per_step)
    assert spread is not None
    how = LoaderSettings(hosts[0].halo, config.batch_size, memory_budget=2 * 10**9)
    held = dataclasses.replace(how, shuffle=False, transposed=False)
    loaders = (
        HostFeed(graph, hosts, graph.train, how, seed, spread),
        HostFeed(graph, hosts, graph.validation, held, seed, spread),
    )
    omega = label_weights(graph.labels[graph.train], config.weighted_loss)
    summary: Any = first_summary(graph, net)
    params: Params | None = None
    worst = 0.0
    for t in range(1, config.num_iterations + 1):
        key, params = start_iteration(net, seed, t, params, config.warm_start)
        inputs = Inputs(None, summary, omega)
        params = learn(net, objective, params, loaders, inputs, config, key)
        logits = np.zeros((graph.num_nodes, graph.num_labels), np.float32)
        for host in hosts:
            # Of the summaries, a host has those of what it holds.
            known = np.full_like(summary, np.nan)
            known[host.nodes] = summary[host.nodes]
            whole = WholeGraph(host.graph, config.chunk_edges, host.own, host.halo)
            logits[host.own] = predict_logits(net, params, whole, known)[0]
        predicted = probabilities(logits, graph.multilabel)
        unparted = WholeGraph(graph, config.chunk_edges)
        want = predict_logits(net, params, unparted, summary)[0]
        wanted = probabilities(want, graph.multilabel)
        worst = max(worst, float(np.abs(predicted - wanted).max()))
        summary = next_summary(graph, config, t, summary, predicted, None)
    received = [4 * graph.num_labels * (len(h.nodes) - len(h.own)) for h in hosts]
    return {
        "difference": worst,
        "held_share": max(len(host.nodes) for host in hosts) / graph.num_nodes,
        "received_bytes": max(received),
        "test_micro_f1": score(graph, predicted)["test"]["micro_f1"],
    }


class Host:
    """What one host holds: its own nodes and their halo. All else is nonsense."""

    def __init__(self, graph: hopf_jax.Graph, own: np.ndarray, halo: int):
        self.own, self.halo = own, halo
        self.nodes, counts, _ = rings(graph, own, halo)
        self.graph = hold(graph, self.nodes, self.nodes[: counts[max(0, halo - 1)]])
        self.hoods = Neighborhoods(self.graph, halo)


def hold(
    graph: hopf_jax.Graph, nodes: np.ndarray, receivers: np.ndarray
) -> hopf_jax.Graph:
    """The graph with features and labels of some nodes, and edges into some of them.

    Features of the others are NaN, their labels 0; other edges come from one node.
    Degrees, which travel with a node, stay right.
    """
    held = np.zeros(graph.num_nodes, bool)
    held[nodes] = True
    read = np.zeros(graph.num_nodes, bool)
    read[receivers] = True
    features: Any = graph.features.copy()
    if sp.issparse(features):
        features.data[np.repeat(~held, np.diff(features.indptr))] = np.nan
    else:
        features[~held] = np.nan
    edges = np.repeat(read, np.diff(graph.indptr))
    return dataclasses.replace(
        graph,
        indices=np.where(edges, graph.indices, nodes[0]),
        features=features,
        labels=graph.labels * held[:, None],
    )


class HostFeed(ShardedLoader):
    """Batches of roots by host: a lane is a host, and extracts from what it holds."""

    def __init__(
        self,
        graph: hopf_jax.Graph,
        hosts: Sequence[Host],
        roots: np.ndarray,
        how: LoaderSettings,
        seed: int,
        spread: StepSharding,
    ):
        self._hosts = hosts
        super().__init__(graph, np.flatnonzero(roots), how, seed, spread)

    def _deal(self, roots: np.ndarray) -> list[np.ndarray]:
        dealt: list[np.ndarray] = []
        self._host_of: list[int] = []
        for p, host in enumerate(self._hosts):
            rng = np.random.default_rng([self.seed, 0, p])
            own = np.intersect1d(roots, host.own)
            if own.size:
                dealt += deal(host.graph, own, self.how.batch_size, rng)
            self._host_of += [p] * (len(dealt) - len(self._host_of))
        return dealt

    def _arrange(self) -> None:
        self.layouts = [Layout.over(self.sizes, self.how.num_hops)]
        self.members = [np.arange(len(self.roots), dtype=np.int32)]

    def _lanes(self, members: np.ndarray) -> list[np.ndarray]:
        host_of = np.array(self._host_of)[members]
        return [members[host_of == p] for p in range(len(self._hosts))]

    def _subgraph(self, number: int, epoch: int) -> Subgraph:
        return self._hosts[self._host_of[number]].hoods.subgraph(self.roots[number])

    def _padded(self, number: int, epoch: int, layout: Layout) -> Batch:
        return pad(
            self._hosts[self._host_of[number]].graph,
            self._subgraph(number, epoch),
            layout,
            features=self.features,
            transposed=self.how.transposed,
        )


if __name__ == "__main__":
    sys.exit(main())

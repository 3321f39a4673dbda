"""Simulate partitioned training: hosts that hold a part of the graph and its halo.

Each host has its own nodes and those within C hops of them; features, edges and labels
of all other nodes are made invalid, so that reading them would show. The hosts train
jointly, each on the training nodes of its part, and exchange the label summaries of
halo nodes after every iteration. In every iteration the predictions of all hosts are
compared with a prediction of the whole graph by the same weights. Writes
partitioned.json to WORKDIR/partitioned.
"""

import dataclasses
import functools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

import hopf_jax
from experiments import paper
from experiments.common import arguments, output
from experiments.scaling import halos
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
from hopf_jax.inference import (
    WholeGraph,
    complete_iteration,
    first_summaries,
    nodes_by_distance,
    predict_logits,
    probabilities,
)
from hopf_jax.kernels import find_kernel
from hopf_jax.learning import (
    Member,
    Objective,
    Params,
    Plan,
    Population,
    learn,
    make_plan,
)
from hopf_jax.results import make_net, score
from hopf_jax.runtime import StepSharding

_MODEL = "i-nip-mean"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.scaling.partitioned")
    parser.option("datasets", arguments.dataset_names, ("cora", "pubmed"))
    arguments.add_counts(parser, hosts=4, hops=1, iterations=5, epochs=60)
    options = parser.parse_args(argv)
    config = paper.protocol_config(
        num_hops=options.hops,
        hidden_size=16,
        num_iterations=options.iterations,
        batches_per_step=options.hosts,
        max_epochs=options.epochs,
        min_epochs=min(50, options.epochs),
        **paper.AS_PRINTED,
    )
    data: dict[str, Any] = {"hosts": options.hosts, "hops": options.hops, "graphs": {}}
    for name in options.datasets:
        graph = hopf_jax.load_dataset(name, fold=1)
        parts = halos.partition(graph, "metis", options.hosts)
        found = data["graphs"][name] = simulate(graph, parts, config)
        print(
            f"{name}: each of {options.hosts} hosts holds up to "
            f"{found['held_share']:.2f} of the nodes and receives up to "
            f"{found['received_bytes']} bytes of label summaries per iteration; "
            f"predictions differ by at most {found['difference']:.1e}; test F1 "
            f"{100 * found['test_micro_f1']:.1f}",
            flush=True,
        )
    path = options.workdir / "partitioned" / "partitioned.json"
    output.write_results(path, data, options.invocation)
    worst = max(found["difference"] for found in data["graphs"].values())
    return 0 if worst <= 1e-5 else 1


def simulate(
    graph: hopf_jax.Graph, parts: np.ndarray, config: hopf_jax.Config, seed: int = 0
) -> dict[str, Any]:
    """Train on hosts that hold one part each, and compare with the whole graph.

    Args:
      graph: A graph with sparse features, which batches contain.
      parts: The host of each node, [N].
      config: Settings, with one of `batches_per_step` per host.
      seed: Seed of everything random.

    Raises:
      ValueError: If features are dense: all hosts would read them from one array, in
        which nothing is made invalid.
    """
    kernel = find_kernel(_MODEL)
    execution = hopf_jax.Execution()
    plan = make_plan(graph, kernel, config, execution)
    if plan.features == "resident":
        raise ValueError(
            "The graph has dense features, which all hosts would read from one array. "
            "Give it sparse features, as a scipy.sparse array."
        )
    hosts = [
        Host(graph, np.flatnonzero(parts == p), plan.training.num_hops)
        for p in range(config.batches_per_step)
    ]
    net = make_net(kernel, config, sizes_of(graph, kernel, config))
    whole = WholeGraph(graph, plan.chunk_edges)
    population = HostPopulation(
        hosts,
        net,
        Objective.of(config, graph.multilabel),
        [Member(graph, seed)],
        plan,
        whole,
        config,
    )
    summaries: Any = first_summaries(graph, net, config)
    params: Params | None = None
    worst = 0.0
    for t in range(1, config.num_iterations + 1):
        key, start = start_iteration(net, seed, t, params, config.warm_start)
        summary = summaries[0]
        inputs = population.inputs([summary], t)
        (params,) = learn(population, [start], inputs, config, [key])
        logits = np.zeros((graph.num_nodes, graph.num_labels), np.float32)
        for host in hosts:
            # A host has the summaries of the nodes it holds.
            known = np.full_like(summary, np.nan)
            known[host.nodes] = summary[host.nodes]
            own = WholeGraph(host.graph, plan.chunk_edges, host.own, host.halo)
            logits[host.own] = predict_logits(net, params, own, known)[0]
        wanted = predict_logits(net, params, whole, summary)[0]
        predicted = probabilities(logits, graph.multilabel)
        difference = np.abs(predicted - probabilities(wanted, graph.multilabel))
        worst = max(worst, float(difference.max()))
        predict = functools.partial(_known, logits)
        summaries = complete_iteration(
            graph, config, t, summaries, predict, multilabel=graph.multilabel
        ).summaries
    received = [4 * graph.num_labels * (len(h.nodes) - len(h.own)) for h in hosts]
    return {
        "difference": worst,
        "held_share": max(len(host.nodes) for host in hosts) / graph.num_nodes,
        "received_bytes": max(received),
        "test_micro_f1": score(graph, predicted)["test"]["micro_f1"],
    }


def _known(logits: np.ndarray, member: int, read: Any) -> tuple[np.ndarray, None]:
    return logits, None


class Host:
    """One host: its own nodes, their halo, and a graph with nothing else in it."""

    def __init__(self, graph: hopf_jax.Graph, own: np.ndarray, halo: int):
        self.own, self.halo = own, halo
        self.nodes, counts, _ = nodes_by_distance(graph, own, halo)
        self.graph = hold(graph, self.nodes, self.nodes[: counts[max(0, halo - 1)]])
        self.neighborhoods = Neighborhoods(self.graph, halo)


def hold(
    graph: hopf_jax.Graph, nodes: np.ndarray, receivers: np.ndarray
) -> hopf_jax.Graph:
    """Return the graph with features and labels of some nodes, and edges into some.

    Features of other nodes are NaN and their labels 0; other edges come from one node.
    Degrees, which are known with a node, stay right.
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


class HostPopulation(Population):
    """One member whose batches come from several hosts."""

    def __init__(self, hosts: Sequence[Host], *arguments: Any):
        self._hosts = hosts
        super().__init__(*arguments)

    def _make_loaders(self, plan: Plan) -> None:
        ((graph, seed, *_),) = self.members
        assert isinstance(plan.sharding, StepSharding)
        train, validation = (
            HostLoader(graph, self._hosts, roots, how, seed, plan.sharding)
            for roots, how in (
                (graph.train, plan.training),
                (graph.validation, plan.validation),
            )
        )
        self.loaders = [(train, validation)]


class HostLoader(ShardedLoader):
    """Batches of roots by host: every lane is a host, and reads only its graph."""

    def __init__(
        self,
        graph: hopf_jax.Graph,
        hosts: Sequence[Host],
        roots: np.ndarray,
        how: LoaderSettings,
        seed: int,
        sharding: StepSharding,
    ):
        self._hosts = hosts
        super().__init__(graph, np.flatnonzero(roots), how, seed, sharding)

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
        host = self._hosts[self._host_of[number]]
        return host.neighborhoods.subgraph(self.roots[number])

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

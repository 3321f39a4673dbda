"""Measure halos: what a host needs besides its part of a graph.

For every dataset, number of hosts and number of hops, the graph is partitioned by METIS
and at random, and the nodes within these hops of each part are counted. "Held" is what
all hosts hold together, parts and halos, as a multiple of the nodes (or arcs) of the
graph: 1 is no halo, the number of hosts is the whole graph on each. Writes halos.json
to WORKDIR/halos.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import hopf_jax
from experiments.common import arguments, output
from hopf_jax.inference import nodes_by_distance

_KINDS = ("metis", "random")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.scaling.halos")
    parser.option(
        "datasets",
        arguments.dataset_names,
        ("cora", "citeseer", "pubmed", "yeast", "amazon", "human-go2022"),
    )
    parser.option("hosts", arguments.numbers, (2, 4, 8, 16, 32, 64))
    parser.option("hops", arguments.positive, 4, "most hops")
    options = parser.parse_args(argv)
    graphs: dict[str, Any] = {}
    for name in options.datasets:
        graph = hopf_jax.load_dataset(name)
        found: dict[str, Any] = {kind: {} for kind in _KINDS}
        for kind in _KINDS:
            for hosts in options.hosts:
                entry = measure(graph, partition(graph, kind, hosts), options.hops)
                found[kind][str(hosts)] = entry
                held = " ".join(f"{value:6.2f}" for value in entry["nodes"])
                print(f"{name:<14} {kind:<6} {hosts:>3} hosts  nodes x {held}")
        sizes = {"nodes": graph.num_nodes, "arcs": graph.num_edges}
        graphs[name] = sizes | {"held": found}
    data = {"hops": list(range(1, options.hops + 1)), "graphs": graphs}
    path = options.workdir / "halos" / "halos.json"
    output.write_results(path, data, options.invocation)
    return 0


def partition(graph: hopf_jax.Graph, kind: str, hosts: int) -> np.ndarray:
    """Return the host of each node, [N], by METIS or at random."""
    if kind == "random":
        return np.random.default_rng(0).permutation(graph.num_nodes) % hosts
    import pymetis

    adjacency = pymetis.CSRAdjacency(graph.indptr, graph.indices)
    options = pymetis.Options(seed=0)
    _, parts = pymetis.part_graph(hosts, adjacency, options=options)
    return np.asarray(parts)


def measure(graph: hopf_jax.Graph, parts: np.ndarray, most_hops: int) -> dict[str, Any]:
    """Return nodes and arcs that all hosts hold, as multiples, by hops of the halo.

    With C hops a host needs the arcs into nodes within C - 1 hops. "most" is the share
    of all nodes on the host that holds most of them.
    """
    hosts = np.unique(parts)
    nodes, arcs = np.zeros((2, len(hosts), most_hops))
    for i, host in enumerate(hosts):
        own = np.flatnonzero(parts == host)
        held, counts, _ = nodes_by_distance(graph, own, most_hops)
        read = np.cumsum(graph.indptr[held + 1] - graph.indptr[held])
        nodes[i] = counts[1:]
        arcs[i] = read[np.array(counts[:-1]) - 1]
    return {
        "nodes": (nodes.sum(axis=0) / graph.num_nodes).round(4).tolist(),
        "arcs": (arcs.sum(axis=0) / graph.num_edges).round(4).tolist(),
        "most": (nodes.max(axis=0) / graph.num_nodes).round(4).tolist(),
    }


if __name__ == "__main__":
    sys.exit(main())

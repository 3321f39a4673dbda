"""Halos: what a host needs besides its part of a graph, measured on the real graphs.

For every dataset on hand, number of hosts and number of hops: the graph is parted by
METIS and at random, and the nodes within so many hops of each part are counted. Held is
what the hosts hold together, part and halo, as a multiple of the nodes (or arcs) of the
graph; 1 is no halo, and as many as there are hosts is the whole graph on each. Writes
halos.json to WORKDIR/halos.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import hopf_jax
from experiments import arguments, folders
from hopf_jax.inference import nodes_by_distance

_MODULE = "experiments.halos"
_KINDS = ("metis", "random")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(argv)
    graphs: dict[str, Any] = {}
    for name in options.datasets:
        graph = hopf_jax.load_dataset(name)
        found: dict[str, Any] = {
            kind: {
                str(hosts): measure(graph, part(graph, kind, hosts), options.hops)
                for hosts in options.hosts
            }
            for kind in _KINDS
        }
        sizes = {"nodes": graph.num_nodes, "arcs": graph.num_edges}
        graphs[name] = sizes | {"held": found}
        for kind in _KINDS:
            for hosts, of in found[kind].items():
                held = " ".join(f"{value:6.2f}" for value in of["nodes"])
                print(
                    f"{name:<14} {kind:<6} {hosts:>3} hosts  nodes x {held}", flush=True
                )
    data = {"hops": list(range(1, options.hops + 1)), "graphs": graphs}
    path = options.workdir / "halos" / "halos.json"
    folders.write_json(path, data | folders.provenance([_MODULE, *argv]))
    folders.say(f"Wrote {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser(__doc__, _MODULE)
    parser.add_argument(
        "--datasets",
        type=arguments.dataset_names,
        default=("cora", "citeseer", "pubmed", "yeast", "amazon", "human-go2022"),
    )
    parser.add_argument(
        "--hosts", type=arguments.numbers, default=(2, 4, 8, 16, 32, 64)
    )
    parser.add_argument("--hops", type=arguments.positive, default=4, help="most hops")
    return parser


def part(graph: hopf_jax.Graph, kind: str, hosts: int) -> np.ndarray:
    """The host of each node, [N], by METIS or at random."""
    return {"metis": metis, "random": at_random}[kind](graph, hosts)


def metis(graph: hopf_jax.Graph, hosts: int) -> np.ndarray:
    """The host of each node, with few edges between hosts."""
    import pymetis

    adjacency = pymetis.CSRAdjacency(graph.indptr, graph.indices)
    options = pymetis.Options(seed=0)
    _, parts = pymetis.part_graph(hosts, adjacency, options=options)
    return np.asarray(parts)


def at_random(graph: hopf_jax.Graph, hosts: int) -> np.ndarray:
    """The host of each node, as many nodes each."""
    return np.random.default_rng(0).permutation(graph.num_nodes) % hosts


def measure(graph: hopf_jax.Graph, parts: np.ndarray, most_hops: int) -> dict[str, Any]:
    """Nodes and arcs that all hosts hold, as multiples, with 1, 2, ... hops of halo.

    With C hops a host needs the arcs into nodes within C - 1 hops. "most" is the share
    of all nodes on the host that has most of them.
    """
    hosts = np.unique(parts)
    nodes, arcs = np.zeros((2, len(hosts), most_hops))
    for i, host in enumerate(hosts):
        held, counts, _ = nodes_by_distance(graph, np.flatnonzero(parts == host), most_hops)
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

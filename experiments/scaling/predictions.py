"""Measure predictions of all nodes of random graphs, in one chunk and in several.

Ten arcs per node. A net with new weights predicts twice; the second time, with programs
that are compiled, counts. Processor time is that of all threads. Writes
predictions.json to WORKDIR.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.common import arguments, output
from hopf_jax import MODELS, Config, Graph
from hopf_jax.datasets import make_random
from hopf_jax.inference import WholeGraph, edges_per_chunk, predict_logits
from hopf_jax.kernels import Net, Sizes, new_key

_FEATURES, _LABELS = 16, 5


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.scaling.predictions")
    parser.option("nodes", str, "100000,1000000", "numbers of nodes")
    parser.option("hidden", str, "16,128", "widths of the net")
    parser.option("model", str, "i-nip-mean", "the model")
    parser.option("chunk_edges", int, 2_000_000, "edges per chunk, to compare with")
    options = parser.parse_args(argv)
    found = []
    for nodes in map(int, options.nodes.split(",")):
        graph = make_random(nodes, 5 * nodes, _FEATURES, _LABELS)
        for hidden in map(int, options.hidden.split(",")):
            for wanted in (options.chunk_edges, None):
                found.append(_measure(graph, options.model, hidden, wanted))
                print(", ".join(f"{k} {v:,}" for k, v in found[-1].items()), flush=True)
    path = options.workdir / "predictions.json"
    output.write_results(path, {"predictions": found}, options.invocation)
    return 0


def _measure(
    graph: Graph, model: str, hidden: int, wanted: int | None
) -> dict[str, Any]:
    kernel, hops = MODELS[model], Config.num_hops
    summary = _LABELS if kernel.iterative else 0
    net = Net(kernel, Sizes(_FEATURES, _LABELS, hidden, hops, summary), bias=True)
    params = net.initial_weights(new_key(0))
    read = np.zeros((graph.num_nodes, summary), np.float32) if summary else None
    chunk_edges = edges_per_chunk(graph, hidden, wanted)
    for _ in range(2):
        whole = WholeGraph(graph, chunk_edges)
        begun, processor = time.perf_counter(), time.process_time()
        predict_logits(net, params, whole, read)
        processor = time.process_time() - processor
        seconds = time.perf_counter() - begun
    return {
        "nodes": graph.num_nodes,
        "hidden": hidden,
        "chunks": len(whole.bounds) - 1,
        "seconds": round(seconds, 2),
        "processor seconds": round(processor, 2),
    }


if __name__ == "__main__":
    sys.exit(main())

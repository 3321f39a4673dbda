"""Compare one hop of each kernel with PyTorch Geometric's layer, with the same weights.

    python -m experiments.benchmark.layers

prints the largest difference for every model whose hop is a layer of PyG, and exits
with 1 if one is above 1e-5. It needs the environment that `make benchmark PEER=1` makes
(requirements-benchmark.txt). Hops that PyG has no layer for are left out.
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from experiments.common import output
from hopf_jax import MODELS, Config, Graph
from hopf_jax.inference import WholeGraph
from hopf_jax.kernels import Kernel, Signals, Sizes, new_key
from hopf_jax.results import make_net

PEER = output.ROOT / ".venv-benchmark" / "bin" / "python"
TOLERANCE = 1e-5
_HIDDEN = 16


def random_graph(num_nodes: int, seed: int) -> Graph:
    """Return an undirected graph without loops, with some nodes without neighbours."""
    rng = np.random.default_rng(seed)
    senders, receivers = rng.integers(0, num_nodes - 3, (2, 4 * num_nodes))
    features = rng.normal(size=(num_nodes, _HIDDEN))
    labels = rng.integers(0, 3, num_nodes)
    return Graph.from_edges(senders, receivers, features, labels)


def our_hop(
    kernel: Kernel, graph: Graph, h0: np.ndarray, h: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return a hop [N, *] without skips, and its weights by name.

    The second hop; the first, which reads h only, if there is one only, or if the
    input of the second would be twice as wide.
    """
    kernel = dataclasses.replace(kernel, skip_from=0)
    config = Config(hidden_size=_HIDDEN, bias=False)
    net = make_net(kernel, config, Sizes(_HIDDEN, 3, _HIDDEN, 2))
    params = net.initial_weights(new_key(1))
    number = 1 if kernel.concat else kernel.num_layers(2)
    (chunk,) = WholeGraph(graph, 1 << 30).chunks()
    hop, signals = chunk.batch.hop_graph(0), Signals(h0, h, None)
    ours = net.apply({"params": params}, number, hop, signals, method="hop")
    part = f"_{number}_"
    own = {n.replace(part, "_"): np.asarray(w) for n, w in params.items() if part in n}
    return np.asarray(ours), own


def compare(num_nodes: int = 200, seed: int = 0) -> dict[str, float]:
    """Return the largest difference between our hop and PyG's layer, by model."""
    graph = random_graph(num_nodes, seed)
    rng = np.random.default_rng([seed, 1])
    h0, h = rng.normal(size=(2, num_nodes, _HIDDEN)).astype(np.float32)
    receivers = np.repeat(np.arange(num_nodes), np.diff(graph.indptr))
    given = {"edges": np.stack([graph.indices, receivers]).astype(np.int64)}
    ours = {}
    for model, kernel in MODELS.items():
        if kernel.iterative:  # No layer of PyG reads label summaries.
            continue
        ours[model], weights = our_hop(kernel, graph, h0, h)
        given |= {f"{model}/{name}": w for name, w in weights.items()}
    with tempfile.TemporaryDirectory() as folder:
        source, target = (str(pathlib.Path(folder, n)) for n in ("in.npz", "out.npz"))
        np.savez(source, h=h, h0=h0, **given)  # type: ignore[arg-type]
        command = [str(PEER), "-m", "experiments.benchmark.pyg_layers", source, target]
        subprocess.run(command, check=True, cwd=output.ROOT)
        theirs = dict(np.load(target))
    found = {}
    for model, layer in theirs.items():
        if MODELS[model].learned_hops:
            layer = np.maximum(layer, 0)
        found[model] = float(np.abs(layer - ours[model]).max())
    return found


def main(argv: list[str] | None = None) -> int:
    """Print the largest difference for each model; return 1 if one is too large."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    if not PEER.exists():
        print(f"{PEER} is missing: make .venv-benchmark/.installed", file=sys.stderr)
        return 2
    found = compare(seed=options.seed)
    for model, difference in found.items():
        print(f"{model:<12}{difference:.1e}")
    others = ", ".join(model for model in MODELS if model not in found)
    print(f"No such layer in PyG: {others}.")
    print(json.dumps({"largest": max(found.values()), "tolerance": TOLERANCE}))
    return int(max(found.values()) > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())

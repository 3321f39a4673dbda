"""Node information morphing: how much of a node's own information each kernel keeps.

First in linear kernels, where the share of h_0 by hop has a formula: the formula beside
what the library computes, on a regular graph. Then in trained models: the share of each
hop in a prediction, from Jacobians. Writes morphing.png and morphing.json to
WORKDIR/morphing.

Without weights and nonlinearity a kernel is a matrix: h_k = M_k h_0. Its diagonal is
the weight of the node itself, provided that no walk returns to it: the regular graph is
directed, and node i reads from i + 1, ... i + d around a ring that is long enough.

Every hop is scaled to rows of sum 1 before the next one, so that a weight is a share;
shares without scaling, which differ for the NIP family, are measured too.
"""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import hopf_jax
from experiments import paper
from experiments.common import arguments, drawing
from experiments.common.cells import expecting_warnings
from hopf_jax import Graph, Kernel, Result
from hopf_jax.datasets import DatasetError, load_dataset
from hopf_jax.inference import WholeGraph, edges_per_chunk, replay
from hopf_jax.kernels import MODELS, Net, Signals, Sizes, new_key
from hopf_jax.results import influences, make_net, readable

_MODELS = ("gcn", "gcn-s", "gcn-mean", "gs-mean", "nip-mean", "i-nip-mean")
_LINEAR_HOPS = 6


class LinearKernel(NamedTuple):
    """A kernel without weights, and its share of h_0 on a d-regular graph."""

    kernel: Kernel
    formula: str
    share: Callable[[int, int], float]  # After k hops, (k, d), each scaled to sum 1.
    unscaled: Callable[[int, int], float] | None = None  # None if it is the same.


def linear(model: str, *, skips: bool = True) -> Kernel:
    """Return the kernel of a model without weights and nonlinearity.

    Without weights, skips start at hop 1.
    """
    kernel = MODELS[model]
    return dataclasses.replace(
        kernel,
        input_layer=False,
        learned_hops=False,
        skip_from=int(skips and kernel.skip_from > 0),
    )


KERNELS: Mapping[str, LinearKernel] = MappingProxyType(
    {
        "gcn": LinearKernel(linear("gcn"), "(d + 1)^-k", lambda k, d: (d + 1.0) ** -k),
        # The paper counts A as one part and gives 2^-k, but its rows sum to d.
        "wl": LinearKernel(linear("wl"), "(d + 1)^-k", lambda k, d: (d + 1.0) ** -k),
        "gcn-mean, no skips": LinearKernel(
            linear("gcn-mean", skips=False), "2^-k", lambda k, d: 2.0**-k
        ),
        "gcn-s": LinearKernel(
            linear("gcn-s"),
            "((d + 2) / (2 d + 2))^k",
            lambda k, d: ((d + 2) / (2 * (d + 1))) ** k,
        ),
        "gcn-mean": LinearKernel(
            linear("gcn-mean"), "(2 / 3)^k", lambda k, d: (2 / 3) ** k
        ),
        "nip-mean, no skips": LinearKernel(
            linear("nip-mean", skips=False),
            "1 / 2",
            lambda k, d: 0.5 if k else 1.0,
            lambda k, d: 1 / (k + 1),
        ),
        "nip-mean": LinearKernel(
            linear("nip-mean"),
            "(1 + 3^-k) / 2",
            lambda k, d: (1 + 3.0**-k) / 2,
            lambda k, d: (k + 1) / (2 ** (k + 1) - 1),
        ),
        "rwr": LinearKernel(
            linear("rwr"), "0.15 (its alpha)", lambda k, d: 0.15 if k else 1.0
        ),
    }
)


def regular_graph(degree: int, num_hops: int) -> Graph:
    """Return a graph of equal degrees without a walk back to a node within the hops."""
    count = degree * num_hops + 2
    receivers = np.repeat(np.arange(count), degree)
    senders = (receivers + np.tile(np.arange(1, degree + 1), count)) % count
    identity = np.eye(count, dtype=np.float32)
    return Graph.from_edges(senders, receivers, identity, directed=True)


def measured_shares(
    kernel: Kernel, graph: Graph, num_hops: int, *, scaled: bool = True
) -> list[float]:
    """Return the share of h_0 in h_0, ... h_K, as the library computes it."""
    net = Net(kernel, Sizes(graph.num_features, 1, 1, num_hops))
    params = {"params": net.initial_weights(new_key(0))}
    (chunk,) = WholeGraph(graph, graph.num_edges).chunks()
    hop = chunk.batch.hop_graph(0)
    h = h0 = np.asarray(graph.features, np.float32)
    shares = [1.0]
    for k in range(1, num_hops + 1):
        h = np.asarray(net.apply(params, k, hop, Signals(h0, h, None), method="hop"))
        total = h.sum(axis=1, keepdims=True)
        shares.append(float((np.diag(h) / total[:, 0]).mean()))
        if scaled:
            h = h / total
    return shares


def decay(degree: int, num_hops: int) -> dict[str, Any]:
    """Return the formula beside the measurement for every linear kernel."""
    graph = regular_graph(degree, num_hops)
    hops = range(num_hops + 1)
    found = {}
    for name, (kernel, formula, share, unscaled) in KERNELS.items():
        entry: dict[str, Any] = {
            "formula": formula,
            "expected": [share(k, degree) for k in hops],
            "measured": measured_shares(kernel, graph, num_hops),
            "expected_unscaled": [(unscaled or share)(k, degree) for k in hops],
            "measured_unscaled": measured_shares(kernel, graph, num_hops, scaled=False),
        }
        pairs = zip(entry["expected"], entry["measured"], strict=True)
        entry["largest_relative_error"] = max(abs(m / e - 1) for e, m in pairs)
        found[name] = entry
    return found


def hop_shares(
    result: Result, graph: Graph, num_nodes: int = 64, seed: int = 0
) -> dict[str, Any]:
    """Return the mean share of each hop in the predictions for some test nodes.

    The share of hop m is the influence (`hopf_jax.results.explanations`) of the
    attributes of the nodes m hops away. Label summaries are constants here, as they are
    in training.

    Args:
      result: The result of `fit` on the graph.
      graph: The graph.
      num_nodes: Number of test nodes, drawn from those with a neighbour.
      seed: Seed of the draw.
    """
    config = result.config
    graph = readable(graph, result.kernel, config, result.seed)
    candidates = np.flatnonzero(graph.test & (np.diff(graph.indptr) > 0))
    roots = np.random.default_rng(seed).permutation(candidates)[:num_nodes]
    net = make_net(result.kernel, config, result.sizes)
    weights = result.weights[: result.iteration]
    chunk_edges = edges_per_chunk(graph, config.hidden_size, None)
    whole = WholeGraph(graph, chunk_edges)
    views, _ = replay(net, weights, whole, config, graph.multilabel)
    summary = None if views is None else views[-1]
    every_label = np.eye(result.sizes.labels, dtype=np.float32)
    shares = np.zeros((len(roots), config.num_hops + 1))
    each = influences(net, weights[-1], graph, summary, roots, every_label)
    for i, found in enumerate(each):
        shares[i] = np.bincount(found.hops, found.attributes, shares.shape[1])
    total = shares.sum(axis=1, keepdims=True)
    varies = total[:, 0] > 0  # A constant prediction has no shares.
    shares = shares[varies] / total[varies]
    return {
        "shares": [round(float(v), 5) for v in shares.mean(axis=0)],
        "std": [round(float(v), 5) for v in shares.std(axis=0)],
        "nodes": int(varies.sum()),
        "constant_predictions": int((~varies).sum()),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.morphing")
    parser.option("dataset", arguments.one(arguments.dataset_names), "cora")
    parser.option("models", arguments.model_names, _MODELS)
    parser.option(
        "hops", arguments.numbers, (2, 4), "numbers of hops of the trained models"
    )
    parser.option("degree", arguments.positive, 4, "degree of the regular graph")
    parser.option("nodes", arguments.positive, 64, "number of test nodes to explain")
    arguments.add_seed(parser)
    arguments.add_max_epochs(parser)
    options = parser.parse_args(argv)
    linear_kernels = decay(options.degree, _LINEAR_HOPS)
    print(f"Share of h_0 by hop, linear kernels, {options.degree}-regular graph:")
    for name, entry in linear_kernels.items():
        shares = " ".join(f"{share:.4f}" for share in entry["measured"])
        worst = entry["largest_relative_error"]
        print(f"{name:<20} {shares}   = {entry['formula']} (within {worst:.0e})")
    try:
        trained = _trained(options)
    except (DatasetError, ValueError) as error:
        parser.error(str(error))
    data = {
        "linear": {"degree": options.degree, "kernels": linear_kernels},
        "trained": {"dataset": options.dataset, "hops": trained},
    }
    figure = _draw(linear_kernels, trained, options)
    folder = options.workdir / "morphing"
    drawing.save_results(folder, "morphing", data, figure, options.invocation)
    return 0


def _trained(options: argparse.Namespace) -> dict[str, Any]:
    dataset = options.dataset
    graph = load_dataset(dataset)
    print(f"Share of each hop in predictions, trained on {dataset} (fold 1):")
    found: dict[str, Any] = {}
    for hops in options.hops:
        found[str(hops)] = {}
        config = arguments.limit_epochs(
            paper.config_for(dataset, hops), options.max_epochs
        )
        for model in options.models:
            with expecting_warnings():
                result = hopf_jax.fit(
                    graph, model, config, seed=options.seed, progress=False
                )
            entry = hop_shares(result, graph, options.nodes, options.seed)
            f1 = entry["test_micro_f1"] = 100 * result.scores["test"]["micro_f1"]
            found[str(hops)][model] = entry
            shares = " ".join(f"{share:.3f}" for share in entry["shares"])
            print(f"{hops} hops  {model:<12} {shares}   micro-F1 {f1:.1f}", flush=True)
    return found


def _draw(linear_kernels: dict[str, Any], trained: dict[str, Any], options: Any) -> Any:
    figure = drawing.new(6 + 4.6 * len(trained), 4.6)
    panels = figure.subplots(1, 1 + len(trained), squeeze=False)[0]
    hops = range(_LINEAR_HOPS + 1)
    for i, (name, entry) in enumerate(linear_kernels.items()):
        colour = drawing.COLOURS[i % len(drawing.COLOURS)]
        style = "-" if i < len(drawing.COLOURS) else ":"
        panels[0].plot(hops, entry["expected"], style, color=colour, linewidth=1)
        label = f"{name}: {entry['formula']}"
        marker = "osv^DxP*"[i % 8]
        panels[0].plot(hops, entry["measured"], marker, color=colour, ms=5, label=label)
    panels[0].set_yscale("log")
    panels[0].yaxis.set_major_formatter("{x:g}")
    drawing.tidy(
        panels[0],
        xlabel="hop k",
        ylabel="share of $h_0$ in $h_k$ (log scale)",
        title=f"Linear kernels, d = {options.degree}: lines formula, marks measured",
    )
    panels[0].legend(frameon=False, fontsize="small", loc="lower left")
    for panel, (count, models) in zip(panels[1:], trained.items(), strict=True):
        drawing.shares(
            panel,
            list(models),
            [entry["shares"] for entry in models.values()],
            title=f"Trained on {options.dataset}, {count} hops",
            xlabel="share of the Jacobian",
        )
    return figure


if __name__ == "__main__":
    sys.exit(main())

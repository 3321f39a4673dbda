"""Node information morphing in the linear kernels: the weight of h_0 by hop.

Without weights and nonlinearity a kernel is a matrix: h_k = M_k h_0. Its diagonal is
what a node has kept of itself, provided that no walk returns to it, and so the graph
here is directed: node i reads from i + 1, ... i + d, around a ring long enough.

Every hop is scaled to rows of sum 1 before the next one, so that a weight is a share.
For kernels of the WL family, which are homogeneous in h_{k-1}, this is the share of
h_0 in the unscaled h_k too (the paper's alpha^k / (alpha + beta)^k). For the NIP family
it is not: unscaled, a sum of k + 1 terms of equal size has 1 / (k + 1) of h_0 in it,
and with skips, which double h_{k-1}, (k + 1) / (2^(k + 1) - 1). Both are measured.
"""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from hopf_jax import Graph, Kernel
from hopf_jax.inference import WholeGraph
from hopf_jax.kernels import MODELS, Net, Signals, Sizes


class Kernel(NamedTuple):
    """A row without weights, and the share of h_0 after k hops on a d-regular graph."""

    row: Kernel
    share: Callable[[int, int], float]  # (k, d), every hop scaled to sum 1
    raw_share: Callable[[int, int], float] | None = None  # not scaled; None: the same
    formula: str = ""


def linear(model: str, *, skips: bool = True) -> Kernel:
    """A model's row without weights and nonlinearity, with or without its skips."""
    row = MODELS[model]
    return dataclasses.replace(
        row,
        input_layer=False,
        learned_hops=False,
        skip_from=int(skips and row.skip_from > 0),  # Without weights, from hop 1 on.
    )


KERNELS: Mapping[str, Kernel] = MappingProxyType(
    {
        "gcn": Kernel(
            linear("gcn"), lambda k, d: (d + 1.0) ** -k, formula="(d + 1)^-k"
        ),
        # The paper counts A as one part and gives 2^-k; its rows sum to d.
        "wl": Kernel(linear("wl"), lambda k, d: (d + 1.0) ** -k, formula="(d + 1)^-k"),
        "gcn-mean, no skips": Kernel(
            linear("gcn-mean", skips=False), lambda k, d: 2.0**-k, formula="2^-k"
        ),
        "gcn-s": Kernel(
            linear("gcn-s"),
            lambda k, d: ((d + 2) / (2 * (d + 1))) ** k,
            formula="((d + 2) / (2 d + 2))^k",
        ),
        "gcn-mean": Kernel(
            linear("gcn-mean"), lambda k, d: (2 / 3) ** k, formula="(2 / 3)^k"
        ),
        "nip-mean, no skips": Kernel(
            linear("nip-mean", skips=False),
            lambda k, d: 0.5 if k else 1.0,
            lambda k, d: 1 / (k + 1),
            formula="1 / 2",
        ),
        "nip-mean": Kernel(
            linear("nip-mean"),
            lambda k, d: (1 + 3.0**-k) / 2,
            lambda k, d: (k + 1) / (2 ** (k + 1) - 1),
            formula="(1 + 3^-k) / 2",
        ),
        "rwr": Kernel(
            linear("rwr"), lambda k, d: 0.15 if k else 1.0, formula="0.15 (its alpha)"
        ),
    }
)


def regular_graph(degree: int, num_hops: int) -> Graph:
    """Every node reads `degree` others, and none is on a walk back within the hops."""
    count = degree * num_hops + 2
    receivers = np.repeat(np.arange(count), degree)
    senders = (receivers + np.tile(np.arange(1, degree + 1), count)) % count
    identity = np.eye(count, dtype=np.float32)
    return Graph.from_edges(senders, receivers, identity, directed=True)


def measured_shares(
    row: Kernel, graph: Graph, num_hops: int, *, scaled: bool = True
) -> list[float]:
    """The share of h_0 in h_0, ... h_K of a node, as the library's code computes it."""
    sizes = Sizes(graph.num_features, 1, 1, num_hops)
    net = Net(row, sizes)
    params = net.init(jax.random.key(0), method="declare")
    (chunk,) = WholeGraph(graph, graph.num_edges).chunks()
    hop_graph, receivers = chunk.batch.hop_graph(0)
    h = h0 = np.asarray(graph.features, np.float32)
    shares = [1.0]
    for k in range(1, num_hops + 1):
        signals = Signals(h0, h, None)
        out: Any = net.apply(params, k, hop_graph, signals, receivers, method="hop")
        h = np.asarray(out)
        total = h.sum(axis=1, keepdims=True)
        shares.append(float((np.diag(h) / total[:, 0]).mean()))
        if scaled:
            h = h / total
    return shares


def decay(degree: int, num_hops: int) -> dict[str, Any]:
    """Formula beside measurement for every kernel."""
    graph = regular_graph(degree, num_hops)
    hops = range(num_hops + 1)
    found = {}
    for name, kernel in KERNELS.items():
        raw_share = kernel.raw_share or kernel.share
        entry: dict[str, Any] = {
            "formula": kernel.formula,
            "expected": [kernel.share(k, degree) for k in hops],
            "measured": measured_shares(kernel.row, graph, num_hops),
            "expected_unscaled": [raw_share(k, degree) for k in hops],
            "measured_unscaled": measured_shares(
                kernel.row, graph, num_hops, scaled=False
            ),
        }
        pairs = zip(entry["expected"], entry["measured"], strict=True)
        entry["largest_relative_error"] = max(abs(m / e - 1) for e, m in pairs)
        found[name] = entry
    return found

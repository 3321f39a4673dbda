"""What a run and each of its iterations start from: widths, keys and weights."""

import numpy as np

from hopf_jax.config import Config
from hopf_jax.graph import Graph, row_norm
from hopf_jax.kernels import Kernel, Net, Sizes, fold_in, new_key, split_key
from hopf_jax.learning.loss import Params


def sizes_of(graph: Graph, kernel: Kernel, config: Config) -> Sizes:
    """Return the layer widths of a kernel on a graph."""
    features, hidden, hops = graph.num_features, config.hidden_size, config.num_hops
    summary = 0
    if kernel.iterative:
        hidden_width = kernel.width_read(features, hidden, kernel.num_layers(hops))
        summary = graph.num_labels if config.summary == "labels" else hidden_width
    scaled = summary and config.scale_summaries and config.summary == "labels"
    scale = row_norm(graph.features) if scaled else 1.0
    return Sizes(features, graph.num_labels, hidden, hops, summary, scale)


def start_iteration(
    net: Net, seed: int, iteration: int, last: Params | None, warm_start: bool
) -> tuple[np.ndarray, Params]:
    """Return the key of an iteration and the weights it starts from.

    New weights, or the previous ones with a new output layer.
    """
    key = fold_in(new_key(seed), iteration)
    learn_key, init_key = split_key(key)
    fresh = net.initial_weights(init_key)
    if last is None or not warm_start:
        return learn_key, fresh
    new = {name: fresh[name] for name in fresh if name.endswith("_output")}
    return learn_key, last | new

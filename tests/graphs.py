"""Small graphs of every kind, and the nets and batches that tests make of them."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from hopf_jax import MODELS, Config, Graph
from hopf_jax.batching.padding import Layout, pad
from hopf_jax.batching.subgraphs import Neighborhoods
from hopf_jax.datasets import DATASETS, find
from hopf_jax.fitting import sizes_of
from hopf_jax.kernels import threefry
from hopf_jax.results.result import make_net

NUM_NODES, NUM_FEATURES, NUM_LABELS, NUM_HOPS = 18, 7, 3, 2
ISOLATED = (3, 11)
KINDS = ("plain", "weighted", "directed", "isolated", "loops", "all")

# Every batch below fits these, so that a row compiles once for all kinds of graph.
SMALL = Layout((8, 24, 24), (96, 96), 80)
LARGE = Layout((16, 32, 48), (112, 144), 120)


def needs(name):
    """A mark for a test of a real dataset: tests fetch nothing."""
    absent = find(DATASETS[name]) is None
    return pytest.mark.skipif(absent, reason=f"{name} is not on hand")


def tiny(kind="plain", *, multilabel=False, sparse=False, seed=0):
    """18 nodes, one of them a hub, in three sets."""
    rng = np.random.default_rng(seed)
    senders = np.concatenate([rng.integers(0, NUM_NODES, 30), np.full(9, 5)])
    receivers = np.concatenate([rng.integers(0, NUM_NODES, 30), np.arange(9, 18)])
    if kind in ("loops", "all"):
        senders = np.concatenate([senders, [0, 5, 7]])
        receivers = np.concatenate([receivers, [0, 5, 7]])
    if kind in ("isolated", "all"):
        keep = ~(np.isin(senders, ISOLATED) | np.isin(receivers, ISOLATED))
        senders, receivers = senders[keep], receivers[keep]
    weights = None
    if kind in ("weighted", "all"):
        weights = rng.uniform(0.2, 3, len(senders)).astype(np.float32)
    features = rng.normal(size=(NUM_NODES, NUM_FEATURES)).astype(np.float32)
    features[rng.random(features.shape) < 0.5] = 0
    labels = rng.integers(0, NUM_LABELS, NUM_NODES)
    if multilabel:
        labels = rng.integers(0, 2, (NUM_NODES, NUM_LABELS))
        labels[0] = 1
    return Graph.from_edges(
        senders,
        receivers,
        sp.csr_array(features) if sparse else features,
        labels,
        weights=weights,
        directed=kind in ("directed", "all"),
        self_loops="keep" if kind in ("loops", "all") else "drop",
        multilabel=multilabel,
        train=np.arange(0, 8),
        validation=np.arange(8, 13),
        test=np.arange(13, 18),
    )


def dense_features(graph):
    features = graph.features
    return features.toarray() if sp.issparse(features) else np.asarray(features)


def random_summary(graph, width=NUM_LABELS, seed=1):
    rng = np.random.default_rng(seed)
    return rng.random((graph.num_nodes, width)).astype(np.float32)


def summary_for(row, graph):
    return random_summary(graph) if row.iterative else None


@functools.cache
def net_of(model, *, num_hops=NUM_HOPS, bias=False, dropout=0.0, sparse=False):
    """The net of a row (by name, or the row itself) and random weights."""
    row = MODELS[model] if isinstance(model, str) else model
    config = Config(num_hops=num_hops, hidden_size=5, bias=bias, dropout=dropout)
    net = make_net(row, config, sizes_of(tiny(sparse=sparse), row, config))
    params = net.initial_weights(threefry.new_key(2))
    if bias:  # They start from 0, where an error would not show.
        params = {
            name: w + 0.1 * np.arange(1, w.size + 1, dtype=np.float32).reshape(w.shape)
            if name.startswith("b_")
            else w
            for name, w in params.items()
        }
    return net, params


def cut(layout, reach):
    """The layout for fewer hops."""
    return dataclasses.replace(
        layout, nodes=layout.nodes[: reach + 1], edges=layout.edges[:reach]
    )


def batch_of(graph, roots, row, *, layout=SMALL, num_hops=NUM_HOPS, transposed=True):
    """The padded subgraph of these roots; sparse features travel with it."""
    reach = row.reach(num_hops)
    subgraph = Neighborhoods(graph, reach).subgraph(np.asarray(roots))
    layout = cut(layout, reach)
    how = "sparse" if sp.issparse(graph.features) else "dense"
    return pad(graph, subgraph, layout, features=how, transposed=transposed)


def spread(batch, summary):
    """The label summaries of a batch's nodes."""
    return None if summary is None else summary[batch.graph.nodes["id"]]


# Compiled for these tests only: quickly, rather than to be quick.
quick_jit = functools.partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 0}
)


@functools.partial(quick_jit, static_argnums=0)
def logits_of(net, params, batch, x, summary):
    return net.apply({"params": params}, batch, x, summary)

"""The library's side of the benchmark: a training epoch in a process of its own.

A worker; `pyg_worker` is its counterpart. An epoch is that of `fit`, without the
validation that follows it there. As in `fit`, the first hop is precomputed where it is
constant, unless the case says `precompute=False`.
"""

import dataclasses
import pathlib
import sys
import time
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp

from experiments import paper
from experiments.benchmark import limits
from experiments.common import workers
from hopf_jax import Config, Execution, Graph
from hopf_jax.batching import Loader, Neighborhoods
from hopf_jax.inference import WholeGraph
from hopf_jax.kernels import MODELS, Sizes, new_key, split_key
from hopf_jax.learning import (
    FirstHop,
    Inputs,
    Objective,
    Program,
    evaluate_groups,
    first_state,
    label_weights,
    make_plan,
    train_groups,
    words_of_epoch,
    zero_totals,
)
from hopf_jax.results import make_net

MODULE = "experiments.benchmark.library_worker"
_COMPILED = "/jax/core/compile/backend_compile_duration"


def store(graph: Graph, folder: pathlib.Path) -> None:
    """Write the graph to where both sides read it."""
    if graph.weights is not None:
        raise ValueError("The graph has edge weights, which the peer does not support.")
    arrays: dict[str, Any] = {
        "indptr": graph.indptr,
        "indices": graph.indices,
        "labels": graph.labels,
        "roots": np.flatnonzero(graph.train),
        "validation": np.flatnonzero(graph.validation),
        "test": np.flatnonzero(graph.test),
        "omega": label_weights(graph.labels[graph.train]),
    }
    if sp.issparse(graph.features):
        matrix: Any = graph.features
        arrays |= {
            f"features_{name}": getattr(matrix, name)
            for name in ("indptr", "indices", "data", "shape")
        }
    else:
        arrays["features"] = np.asarray(graph.features)
    np.savez(folder / "graph.npz", **arrays)


def read(folder: pathlib.Path, multilabel: bool) -> tuple[Graph, np.ndarray]:
    """Return the stored graph, and the weights of its training labels."""
    stored = np.load(folder / "graph.npz")
    if "features" in stored:
        features = stored["features"]
    else:
        parts = (stored[f"features_{name}"] for name in ("data", "indices", "indptr"))
        features = sp.csr_array(tuple(parts), shape=tuple(stored["features_shape"]))
    masks = {}
    for name in ("roots", "validation", "test"):
        masks[name] = np.zeros(len(stored["labels"]), bool)
        masks[name][stored[name]] = True
    # Not by a constructor that checks: its copies would count as peak memory.
    graph = Graph(
        indptr=stored["indptr"],
        indices=stored["indices"],
        weights=None,
        features=features,
        labels=stored["labels"],
        known=masks["roots"] | masks["validation"] | masks["test"],
        train=masks["roots"],
        validation=masks["validation"],
        test=masks["test"],
        multilabel=multilabel,
    )
    return graph, stored["omega"]


def cache_programs(folder: pathlib.Path) -> None:
    """Let JAX keep all compiled programs in a folder."""
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


class LibraryWorker:
    """Trains NIP-MEAN epoch by epoch with the library."""

    def __init__(self) -> None:
        self.compiled: list[float] = []
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == _COMPILED:
            self.compiled.append(duration_secs)

    def compile(self, folder: str, case: dict[str, Any]) -> dict[str, Any]:
        """Compile what `prepare` and `epochs` need, and cache it for them.

        To be run in a separate process: the compiler's memory is not the epoch's.
        """
        self.prepare(folder, case)
        return {
            "compile_seconds": sum(self.compiled),
            "compilations": len(self.compiled),
            "compile_peak_gb": workers.peak_gb(),
        }

    def prepare(self, folder: str, case: dict[str, Any]) -> dict[str, Any]:
        """Read the graph, make batches, and store initial weights for other sides."""
        files = pathlib.Path(folder)
        cache_programs(files / "programs")
        graph, omega = read(files, case["multilabel"])
        own = {n: v for n, v in case.items() if n not in ("multilabel", "resample")}
        config = Config(**own)
        hops, hidden = config.num_hops, config.hidden_size
        kernel = MODELS[paper.TIMED_MODEL]
        plan = make_plan(graph, kernel, config, Execution())
        sizes = Sizes(graph.num_features, graph.num_labels, hidden, hops)
        net = make_net(kernel, config, sizes)
        self.program = Program(net, Objective.of(config, case["multilabel"]))
        self.key, start = split_key(new_key(0))
        params = net.initial_weights(start)
        np.savez(files / "weights.npz", **params)  # type: ignore[arg-type]
        how = dataclasses.replace(plan.training, resample=case.get("resample", True))
        begun = time.perf_counter()
        self.loader = Loader(graph, np.flatnonzero(graph.train), how, seed=0)
        batching_seconds = time.perf_counter() - begun
        # All hops, as NeighborLoader extracts them.
        self.neighborhoods = Neighborhoods(graph, hops, config.fanouts)
        whole = WholeGraph(graph, plan.chunk_edges)
        features = whole.all_features() if plan.features == "resident" else None
        self.inputs = Inputs(features, None, omega)
        ahead_seconds = None
        if plan.precompute:
            begun = time.perf_counter()
            found = jax.device_put(FirstHop(kernel, whole).neighbours(None))
            self.inputs = self.inputs._replace(neighbours=jax.block_until_ready(found))
            ahead_seconds = time.perf_counter() - begun
        del whole  # Its memory is not the epoch's.
        self.state = first_state(self.program.objective, params)
        self.rate, self.epoch = np.float32(config.learning_rate), 0
        loss = None if config.fanouts else self._mean_loss()
        self.compiled.clear()
        self.epochs(1)
        widths = graph.num_features, hidden, graph.num_labels
        ahead = plan.precompute
        return {
            "loss": loss,
            "ahead": ahead,
            "batching_seconds": batching_seconds,
            "ahead_seconds": ahead_seconds,
            "work": limits.work(self.loader.sizes, hops, *widths, ahead=ahead),
        } | counts(self.loader)

    def epochs(self, count: int) -> dict[str, Any]:
        """Run some epochs; return their seconds, and the peak memory so far."""
        return workers.timed(self._train, count)

    def trace(self, folder: str, count: int) -> dict[str, Any]:
        """Run some epochs, and write a trace of their operations to a folder."""
        with jax.profiler.trace(folder):
            return self.epochs(count)

    def extract(self) -> dict[str, Any]:
        """Extract all batches without padding; return seconds, nodes and edges."""
        nodes = edges = 0
        begun = time.perf_counter()
        for number, roots in enumerate(self.loader.roots):
            subgraph = self.neighborhoods.subgraph(roots, (0, number))
            nodes, edges = nodes + len(subgraph.nodes), edges + len(subgraph.senders)
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "nodes": nodes, "edges": edges}

    def _train(self) -> None:
        self.epoch += 1
        words = words_of_epoch(self.key, self.epoch, self.loader.num_batches)
        carry: Any = (self.state, zero_totals(len(self.inputs.label_weights)))
        for part in self.loader.parts(self.epoch):
            carry = train_groups(
                self.program, part, carry, self.inputs, words, self.rate
            )
        self.state = jax.block_until_ready(carry)[0]

    def _mean_loss(self) -> float:
        """Return the mean loss without dropout, which is equal on all sides."""
        totals: Any = zero_totals(len(self.inputs.label_weights))
        for part in self.loader.parts(0):
            totals = evaluate_groups(
                self.program, part, totals, self.inputs, self.state.params
            )
        return float(totals.loss / totals.roots)


def counts(loader: Loader) -> dict[str, Any]:
    """Return counts of batches, padding and bytes, which do not depend on time."""
    hops = loader.how.num_hops
    reached = [hops, -2] if hops else [0]  # Without hops there are no edges.
    real = loader.sizes[:, reached].sum(axis=0)
    padded = sum(
        len(members) * np.array([layout.nodes[-1], *layout.edges[-1:]])
        for layout, members in zip(loader.layouts, loader.members, strict=True)
    )
    nodes, edges = (*real, 0)[:2]
    waste = (*(padded / np.maximum(real, 1) - 1), 0.0)
    kept = [
        leaf for group in loader.groups(0) for leaf in jax.tree.leaves(group.batches)
    ]
    return {
        "batches": loader.num_batches,
        "layouts": len(loader.layouts),
        "resident": loader.resident,
        "resident_bytes": sum(leaf.nbytes for leaf in kept),
        "nodes": int(nodes),
        "edges": int(edges),
        "node_waste": float(waste[0]),
        "edge_waste": float(waste[1]),
    }


def actions(threads: int) -> dict[str, Any]:
    """Return what the worker can be asked to do."""
    del threads  # JAX uses all cores of the process.
    own = LibraryWorker()
    names = ("compile", "prepare", "epochs", "trace", "extract")
    return {name: getattr(own, name) for name in names} | {"limits": limits.measure}


if __name__ == "__main__":
    sys.exit(workers.main(__doc__, actions))

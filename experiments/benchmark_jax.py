"""This library's side of the benchmark: a training epoch, in a process of its own.

A worker of `experiments.turns`; `experiments.peer_pyg` is its counterpart. An epoch is
`fit`'s, without the validation that comes after it there: the peer does none. As in
`fit`, what the first hop reads is computed ahead where it is a constant (`ahead.py`),
unless the case says `precompute=False`.
"""

import pathlib
import sys
import time
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp

from experiments import limits, paper, turns
from hopf_jax import Config, Graph
from hopf_jax.batching import Loader, LoaderSettings, Neighborhoods
from hopf_jax.inference import WholeGraph
from hopf_jax.kernels import MODELS, Sizes
from hopf_jax.learning import (
    FirstHop,
    Inputs,
    Objective,
    evaluate_groups,
    first_state,
    known_ahead,
    label_weights,
    train_groups,
    zero_totals,
)
from hopf_jax.results import make_net

_COMPILED = "/jax/core/compile/backend_compile_duration"


def store(graph: Graph, folder: pathlib.Path) -> None:
    """Leave the graph where both sides read it from."""
    if graph.weights is not None:
        raise ValueError("The peer's mean knows no edge weights.")
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
    """The stored graph, and the weights of its training labels."""
    stored = np.load(folder / "graph.npz")
    if "features" in stored:
        features = stored["features"]
    else:
        parts = (stored[f"features_{name}"] for name in ("data", "indices", "indptr"))
        features = sp.csr_array(tuple(parts), shape=tuple(stored["features_shape"]))
    # Not through a constructor that checks: its copies would count as peak memory.
    masks = {}
    for name in ("roots", "validation", "test"):
        masks[name] = np.zeros(len(stored["labels"]), bool)
        masks[name][stored[name]] = True
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


class Own:
    """An epoch of NIP-MEAN here."""

    def __init__(self) -> None:
        self.compiled: list[float] = []
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == _COMPILED:
            self.compiled.append(duration_secs)

    def compile(self, folder: str, case: dict[str, Any]) -> dict[str, Any]:
        """Compile all that `prepare` and `epochs` need, and leave it for them.

        In a process of its own: the compiler's memory is not the epoch's.
        """
        self.prepare(folder, case)
        return {
            "compile_seconds": sum(self.compiled),
            "compilations": len(self.compiled),
            "compile_peak_gb": turns.peak_gb(),
        }

    def prepare(self, folder: str, case: dict[str, Any]) -> dict[str, Any]:
        """Read the graph, cut batches, get programs; leave weights for the others."""
        files = pathlib.Path(folder)
        jax.config.update("jax_compilation_cache_dir", str(files / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        graph, omega = read(files, case["multilabel"])
        own = {n: v for n, v in case.items() if n not in ("multilabel", "resample")}
        config = Config(**own)
        hops, hidden = config.num_hops, config.hidden_size
        row = MODELS[paper.TIMED_MODEL]
        sizes = Sizes(graph.num_features, graph.num_labels, hidden, hops)
        self.net = make_net(row, config, sizes)
        self.objective = Objective(case["multilabel"], config.l2, config.clip)
        self.key, start = jax.random.split(jax.random.key(0))
        params = self.net.init(start, method="declare")["params"]
        np.savez(files / "weights.npz", **jax.device_get(params))
        ahead = known_ahead(graph, row, config)
        how = LoaderSettings(
            row.reach(hops) - ahead,
            config.batch_size,
            config.fanouts,
            memory_budget=config.memory_budget,
            resample=case.get("resample", True),
        )
        begun = time.perf_counter()
        self.loader = Loader(graph, np.flatnonzero(graph.train), how, seed=0)
        batching_seconds = time.perf_counter() - begun
        # All hops: what NeighborLoader cuts.
        self.hoods = Neighborhoods(graph, hops, config.fanouts)
        dense = self.loader.features == "resident"
        whole = WholeGraph(graph, config.chunk_edges)
        features = whole.all_features() if dense else None
        self.inputs = Inputs(features, None, omega)
        ahead_seconds = None
        if ahead:
            begun = time.perf_counter()
            found = jax.device_put(FirstHop(row, whole).neighbours(None))
            self.inputs = self.inputs._replace(neighbours=jax.block_until_ready(found))
            ahead_seconds = time.perf_counter() - begun
        del whole  # For predictions, which are not timed here.
        self.state = first_state(self.objective, params)
        self.rate, self.epoch = np.float32(config.learning_rate), 0
        loss = None if config.fanouts else self._mean_loss()
        self.compiled.clear()
        first = self.epochs(1)["seconds"][0]
        widths = graph.num_features, hidden, graph.num_labels
        return {
            "loss": loss,
            "ahead": ahead,
            "batching_seconds": batching_seconds,
            "ahead_seconds": ahead_seconds,
            "first_epoch_seconds": first,
            "work": limits.work(self.loader.sizes, hops, *widths, ahead=ahead),
        } | counts(self.loader)

    def epochs(self, count: int) -> dict[str, Any]:
        """Seconds of some epochs, and the peak of memory so far."""
        seconds, begun_cpu = [], time.process_time()
        for _ in range(count):
            begun = time.perf_counter()
            self._train()
            seconds.append(time.perf_counter() - begun)
        cpu = (time.process_time() - begun_cpu) / count
        return {"seconds": seconds, "cpu_seconds": cpu, "peak_gb": turns.peak_gb()}

    def trace(self, folder: str, count: int) -> dict[str, Any]:
        """The same epochs, with a trace of their operations left in a folder."""
        with jax.profiler.trace(folder):
            return self.epochs(count)

    def extract(self) -> dict[str, Any]:
        """Batches cut, neither padded nor moved: seconds, nodes and edges."""
        nodes = edges = 0
        begun = time.perf_counter()
        for number, roots in enumerate(self.loader.roots):
            cut = self.hoods.subgraph(roots, (0, number))
            nodes, edges = nodes + len(cut.nodes), edges + len(cut.senders)
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "nodes": nodes, "edges": edges}

    def _train(self) -> None:
        self.epoch += 1
        key = self.key, np.uint32(self.epoch)
        carry: Any = (self.state, zero_totals(len(self.inputs.label_weights)))
        for part in self.loader.parts(self.epoch):
            carry = train_groups(
                self.net, self.objective, carry, part, self.inputs, key, self.rate
            )
        self.state = jax.block_until_ready(carry)[0]

    def _mean_loss(self) -> float:
        """Of all roots, first weights, no dropout: equal on both sides."""
        totals: Any = zero_totals(len(self.inputs.label_weights))
        for part in self.loader.parts(0):
            totals = evaluate_groups(
                self.net, self.objective, totals, part, self.inputs, self.state.params
            )
        return float(totals.loss / totals.roots)


def counts(loader: Loader) -> dict[str, Any]:
    """What depends on no clock: batches, padding, bytes."""
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


def _actions(threads: int) -> dict[str, Any]:
    del threads  # JAX takes as many as the process may use.
    own = Own()
    return {
        "compile": own.compile,
        "prepare": own.prepare,
        "epochs": own.epochs,
        "trace": own.trace,
        "extract": own.extract,
        "limits": limits.measure,
    }


if __name__ == "__main__":
    sys.exit(turns.work(__doc__, _actions))

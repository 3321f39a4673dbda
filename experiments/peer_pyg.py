"""The benchmark's peer: the same model and epoch in PyTorch Geometric.

Run by the peer's own interpreter (requirements-benchmark.txt), which has no JAX: this
file imports nothing of hopf_jax. A worker of `experiments.turns`.

NIP-MEAN as the row computes it, with h_0 of the first hop's node part:

    h_0 = relu(X W_1_phi),  h_1 = relu(X W_1_phi + mean(X) W_1_psi)
    h_k = relu(h_0 W_k_phi + mean(h_{k-1}) W_k_psi + h_{k-1}),  logits h_K W_output

Every layer is trimmed to the nodes and edges that are still wanted. The peer gets the
fastest of its own ways to aggregate, and of the two orders of product and mean, tried
on some batches before the timing begins.
"""

import argparse
import itertools
import pathlib
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch_geometric
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.utils import scatter, segment

from experiments import turns

try:
    import torch_sparse
except ImportError:
    torch_sparse = None

_TRIED_BATCHES = 6


class Edges(NamedTuple):
    """Edges of one layer, sorted by receiver."""

    senders: torch.Tensor
    receivers: torch.Tensor
    indptr: torch.Tensor
    counts: torch.Tensor  # [R, 1], at least 1
    matrix: Any  # torch_sparse's, or None
    num_receivers: int


class Batch(NamedTuple):
    """What a step needs."""

    x: torch.Tensor
    labels: torch.Tensor
    layers: tuple[Edges, ...]  # the first hop's first


def mean_by_scatter(edges: Edges, h: torch.Tensor) -> torch.Tensor:
    """Gather and scatter, PyG's default."""
    sent = h.index_select(0, edges.senders)
    total = scatter(sent, edges.receivers, 0, edges.num_receivers, reduce="sum")
    return total / edges.counts


def mean_by_segment(edges: Edges, h: torch.Tensor) -> torch.Tensor:
    """Gather and reduce sorted segments."""
    sent = h.index_select(0, edges.senders)
    return segment(sent, edges.indptr, reduce="sum") / edges.counts


def mean_by_matrix(edges: Edges, h: torch.Tensor) -> torch.Tensor:
    """A sparse matrix product, without an intermediate of the edges' size."""
    total = torch_sparse.matmul(edges.matrix, h, reduce="sum")
    return total / edges.counts


MEANS: dict[str, Callable[[Edges, torch.Tensor], torch.Tensor]] = {
    "scatter": mean_by_scatter,
    "segment": mean_by_segment,
}
if torch_sparse is not None:
    MEANS["torch_sparse"] = mean_by_matrix


class Peer:
    """An epoch of NIP-MEAN, with batches from the loader or stored ones."""

    def __init__(self, threads: int):
        torch.set_num_threads(threads)

    def prepare(self, folder: str, case: dict[str, Any]) -> dict[str, Any]:
        """Read the graph and the weights that the other side left in `folder`."""
        torch.manual_seed(0)
        self.case, files = case, pathlib.Path(folder)
        stored = np.load(files / "graph.npz")
        indptr, indices = (torch.from_numpy(stored[n]) for n in ("indptr", "indices"))
        receivers = torch.repeat_interleave(
            torch.arange(len(indptr) - 1), indptr.diff()
        )
        x = torch.from_numpy(_features(stored))
        labels = torch.from_numpy(stored["labels"].astype(np.float32))
        edge_index = torch.stack([indices.long(), receivers])
        data = Data(x=x, y=labels, edge_index=edge_index)
        self.omega = torch.from_numpy(stored["omega"])
        self.weights = {
            name: torch.nn.Parameter(torch.from_numpy(value))
            for name, value in np.load(files / "weights.npz").items()
        }
        self.optimizer = torch.optim.Adam(
            self.weights.values(),
            lr=case["learning_rate"],
            weight_decay=case["l2"],
            fused=True,
        )
        hops = case["num_hops"]
        self.loader = NeighborLoader(
            data,
            num_neighbors=case["fanouts"] or [-1] * hops,
            input_nodes=torch.from_numpy(stored["roots"]),
            batch_size=case["batch_size"],
            shuffle=True,
        )
        self.stored: list[Batch] | None = None
        self.mean, self.multiply_first = next(iter(MEANS)), False
        first = next(iter(self.loader)).edge_index[1]
        assert bool((first.diff() >= 0).all()), "edges are not sorted by receiver"
        begun = time.perf_counter()
        if case["cached"]:
            self.stored = list(self._loaded())
        stored_seconds = time.perf_counter() - begun
        loss = None if case["fanouts"] else self._mean_loss()
        self._choose()
        return {
            "loss": loss,
            "mean": self.mean,
            "multiply_first": self.multiply_first,
            "storing_seconds": stored_seconds if case["cached"] else None,
            "batches": len(self.loader),
            "versions": {
                "torch": torch.__version__,
                "torch_geometric": torch_geometric.__version__,
                "torch_sparse": getattr(torch_sparse, "__version__", None),
            },
        }

    def epochs(self, count: int) -> dict[str, Any]:
        """Seconds of some epochs, and the peak of memory so far."""
        seconds, begun_cpu = [], time.process_time()
        for _ in range(count):
            begun = time.perf_counter()
            for batch in self._batches():
                self._step(batch)
            seconds.append(time.perf_counter() - begun)
        cpu = (time.process_time() - begun_cpu) / count
        return {"seconds": seconds, "cpu_seconds": cpu, "peak_gb": turns.peak_gb()}

    def extract(self) -> dict[str, Any]:
        """Batches cut by NeighborLoader alone: seconds, nodes and edges."""
        nodes = edges = 0
        begun = time.perf_counter()
        for data in self.loader:
            nodes, edges = nodes + data.num_nodes, edges + data.num_edges
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "nodes": nodes, "edges": edges}

    def _batches(self) -> Iterable[Batch]:
        if self.stored is None:
            return self._loaded()
        return (self.stored[i] for i in torch.randperm(len(self.stored)).tolist())

    def _loaded(self) -> Iterable[Batch]:
        for data in self.loader:
            yield _trimmed(data, self.case["num_hops"])

    def _choose(self) -> None:
        """The fastest way of the peer's on this graph, least seconds of two trials."""
        some = list(itertools.islice(self._loaded(), _TRIED_BATCHES))
        kept = {name: value.detach().clone() for name, value in self.weights.items()}
        spent: dict[tuple[str, bool], float] = {}
        for _ in range(2):
            for way in itertools.product(MEANS, (False, True)):
                self.mean, self.multiply_first = way
                self._step(some[0])
                begun = time.perf_counter()
                for batch in some:
                    self._step(batch)
                seconds = time.perf_counter() - begun
                spent[way] = min(seconds, spent.get(way, seconds))
        self.mean, self.multiply_first = min(spent, key=lambda way: spent[way])
        with torch.no_grad():
            for name, value in kept.items():
                self.weights[name].copy_(value)
        self.optimizer.state.clear()

    def _step(self, batch: Batch) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        logits = self._logits(batch, self.case["dropout"])
        self._losses(logits, batch.labels).mean().backward()
        torch.nn.utils.clip_grad_value_(self.weights.values(), self.case["clip"])
        self.optimizer.step()

    def _logits(self, batch: Batch, rate: float) -> torch.Tensor:
        def drop(h: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.dropout(h, rate) if rate else h

        w, h0 = self.weights, batch.x
        h = x = drop(batch.x)
        for k, edges in enumerate(batch.layers, 1):
            count = edges.num_receivers
            if k == 1:
                own = x[:count] @ w["w_1_phi"]
                h0 = torch.relu(own)
                h = torch.relu(own + self._neighbours(edges, x, w["w_1_psi"]))
                continue
            own = drop(h0[:count]) @ w[f"w_{k}_phi"]
            read = self._neighbours(edges, drop(h), w[f"w_{k}_psi"])
            h = torch.relu(own + read + h[:count])
        return drop(h) @ w["w_output"]

    def _neighbours(self, edges: Edges, h: torch.Tensor, w: torch.Tensor):
        mean = MEANS[self.mean]
        return mean(edges, h @ w) if self.multiply_first else mean(edges, h) @ w

    def _losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self.case["multilabel"]:
            each = torch.nn.functional.binary_cross_entropy_with_logits(
                logits, labels, reduction="none"
            )
        else:
            each = -labels * torch.log_softmax(logits, 1)
        return each @ self.omega

    @torch.no_grad()
    def _mean_loss(self) -> float:
        """Of all roots, first weights, no dropout: equal on both sides."""
        total = count = 0.0
        for batch in self._batches():
            losses = self._losses(self._logits(batch, 0.0), batch.labels)
            total, count = total + losses.sum().item(), count + len(losses)
        return total / count


def _features(stored: Any) -> np.ndarray:
    if "features" in stored:
        return stored["features"]
    indptr, shape = stored["features_indptr"], stored["features_shape"]
    dense = np.zeros(shape, np.float32)
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    dense[rows, stored["features_indices"]] = stored["features_data"]
    return dense


def _trimmed(data: Any, num_hops: int) -> Batch:
    """Each layer's edges; nodes and edges of a loaded batch come hop by hop."""
    senders, receivers = data.edge_index
    within, layers = data.batch_size, []
    for _ in range(num_hops):
        stop = int(torch.searchsorted(receivers, within))
        to, of = receivers[:stop], senders[:stop]
        reached = max(within, int(of.max()) + 1 if stop else 0)
        counts = torch.bincount(to, minlength=within)
        indptr = torch.zeros(within + 1, dtype=torch.long)
        torch.cumsum(counts, 0, out=indptr[1:])
        matrix = None
        if torch_sparse is not None:
            matrix = torch_sparse.SparseTensor(
                rowptr=indptr,
                col=of,
                sparse_sizes=(within, reached),
                is_sorted=True,
                trust_data=True,
            )
        least = counts.clamp(min=1).float().unsqueeze(1)
        layers.append(Edges(of, to, indptr, least, matrix, within))
        within = reached
    # The first hop reads all; the last one only what is around the roots.
    return Batch(data.x, data.y[: data.batch_size], tuple(reversed(layers)))


def main() -> int:
    """Serve the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    peer = Peer(options.threads)
    actions = {"prepare": peer.prepare, "epochs": peer.epochs, "extract": peer.extract}
    turns.serve(actions, options.threads)
    return 0


if __name__ == "__main__":
    sys.exit(main())

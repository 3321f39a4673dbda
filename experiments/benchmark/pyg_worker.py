"""The peer's side of the benchmark: the same model and epoch in PyTorch Geometric.

A worker, run by an interpreter without JAX (requirements-benchmark.txt): this file
imports nothing of hopf_jax.

NIP-MEAN as its kernel computes it, with h_0 from the node part of the first hop:

    h_0 = relu(X W_1_phi),  h_1 = relu(X W_1_phi + mean(X) W_1_psi)
    h_k = relu(h_0 W_k_phi + mean(h_{k-1}) W_k_psi + h_{k-1}),  logits h_K W_output

Every layer is trimmed to the nodes and edges that are still needed. The peer uses the
fastest of its ways to aggregate, of the two orders of product and mean, and of sparse
and dense features where they are stored as sparse, tried on some batches beforehand.
"""

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

from experiments.common import workers

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
    matrix: Any  # A torch_sparse matrix, or None.
    num_receivers: int


class Batch(NamedTuple):
    """The inputs of a step."""

    x: Any  # [N, F], dense or a torch_sparse matrix.
    labels: torch.Tensor
    layers: tuple[Edges, ...]  # The first hop comes first.
    ids: torch.Tensor  # [N], ids of the nodes in the graph.


def mean_by_scatter(edges: Edges, h: torch.Tensor) -> torch.Tensor:
    """Gather and scatter, the default of PyG."""
    sent = h.index_select(0, edges.senders)
    total = scatter(sent, edges.receivers, 0, edges.num_receivers, reduce="sum")
    return total / edges.counts


def mean_by_segment(edges: Edges, h: torch.Tensor) -> torch.Tensor:
    """Gather and reduce sorted segments."""
    sent = h.index_select(0, edges.senders)
    return segment(sent, edges.indptr, reduce="sum") / edges.counts


def mean_by_matrix(edges: Edges, h: torch.Tensor) -> torch.Tensor:
    """Multiply by a sparse matrix, without an array of one row per edge."""
    total = torch_sparse.matmul(edges.matrix, h, reduce="sum")
    return total / edges.counts


MEANS: dict[str, Callable[[Edges, torch.Tensor], torch.Tensor]] = {
    "scatter": mean_by_scatter,
    "segment": mean_by_segment,
}
if torch_sparse is not None:
    MEANS["torch_sparse"] = mean_by_matrix


class Peer:
    """Trains NIP-MEAN epoch by epoch, with batches from the loader or stored ones."""

    def __init__(self, threads: int):
        torch.set_num_threads(threads)

    def _read(self, folder: str, case: dict[str, Any], kinds: tuple[str, ...]) -> None:
        """Read the graph and the weights that the other side stored in `folder`."""
        torch.manual_seed(0)
        self.case, files = case, pathlib.Path(folder)
        stored = np.load(files / "graph.npz")
        indptr, indices = (torch.from_numpy(stored[n]) for n in ("indptr", "indices"))
        receivers = torch.repeat_interleave(
            torch.arange(len(indptr) - 1), indptr.diff()
        )
        self.features = _features(stored, kinds)
        labels = torch.from_numpy(stored["labels"].astype(np.float32))
        edge_index = torch.stack([indices.long(), receivers])
        self.data = Data(y=labels, edge_index=edge_index, num_nodes=len(labels))
        self.omega = torch.from_numpy(stored["omega"])
        self.weights = self._first_weights(files)
        self.optimizer = self._adam()
        hops = case["num_hops"]
        self.loader = NeighborLoader(
            self.data,
            num_neighbors=case["fanouts"] or [-1] * hops,
            input_nodes=torch.from_numpy(stored["roots"]),
            batch_size=case["batch_size"],
            shuffle=True,
        )
        self.stored: list[Batch] | None = None
        first = next(iter(self.loader)).edge_index[1]
        assert bool((first.diff() >= 0).all()), "edges are not sorted by receiver"

    def _first_weights(self, files: pathlib.Path) -> dict[str, torch.nn.Parameter]:
        return {
            name: torch.nn.Parameter(torch.from_numpy(value))
            for name, value in np.load(files / "weights.npz").items()
        }

    def _adam(self) -> torch.optim.Adam:
        return torch.optim.Adam(
            self.weights.values(),
            lr=self.case["learning_rate"],
            weight_decay=self.case["l2"],
            fused=True,
        )

    def prepare(
        self, folder: str, case: dict[str, Any], cached: bool, way: list[Any]
    ) -> dict[str, Any]:
        """Prepare for epochs, computed in the given way."""
        self._read(folder, case, (way[0],))
        self.kind, self.mean, self.multiply_first = way
        begun = time.perf_counter()
        if cached:
            self.stored = list(self._loaded())
        stored_seconds = time.perf_counter() - begun
        loss = None if case["fanouts"] else self._mean_loss()
        return {
            "loss": loss,
            "mean": self.mean,
            "multiply_first": self.multiply_first,
            "features": self.kind,
            "storing_seconds": stored_seconds if cached else None,
            "batches": len(self.loader),
            "versions": {
                "torch": torch.__version__,
                "torch_geometric": torch_geometric.__version__,
                "torch_sparse": getattr(torch_sparse, "__version__", None),
            },
        }

    def epochs(self, count: int) -> dict[str, Any]:
        """Run some epochs; return their seconds, and the peak memory so far."""

        def epoch() -> None:
            for batch in self._batches():
                self._step(batch)

        return workers.timed(epoch, count)

    def extract(self) -> dict[str, Any]:
        """Extract all batches with NeighborLoader; return seconds, nodes and edges."""
        nodes = edges = 0
        begun = time.perf_counter()
        for data in self.loader:
            nodes, edges = nodes + len(data.n_id), edges + data.num_edges
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "nodes": nodes, "edges": edges}

    def _batches(self) -> Iterable[Batch]:
        if self.stored is None:
            return self._loaded()
        return (self.stored[i] for i in torch.randperm(len(self.stored)).tolist())

    def _loaded(self, loader: Any = None) -> Iterable[Batch]:
        for data in self.loader if loader is None else loader:
            x = _rows(self.features[self.kind], data.n_id)
            yield _trimmed(data, x, self.case["num_hops"])

    def choose(self, folder: str, case: dict[str, Any]) -> dict[str, Any]:
        """Return the fastest way on this graph, by the least seconds of two trials.

        To be run in a separate process: the memory of trials is not the epoch's.
        """
        self._read(folder, case, ("dense", "sparse"))
        spent: dict[tuple[str, str, bool], float] = {}
        for _ in range(2):
            for way in itertools.product(self.features, MEANS, (False, True)):
                self.kind, self.mean, self.multiply_first = way
                begun = time.perf_counter()
                for batch in itertools.islice(self._loaded(), _TRIED_BATCHES):
                    self._step(batch)
                seconds = time.perf_counter() - begun
                spent[way] = min(seconds, spent.get(way, seconds))
        best = min(spent, key=lambda way: spent[way])
        tried = {" ".join(map(str, way)): seconds for way, seconds in spent.items()}
        return {"way": list(best), "tried": tried}

    def _step(self, batch: Batch) -> None:
        logits = self._logits(batch, self.case["dropout"])
        self._update(self._losses(logits, batch.labels).mean())

    def _update(self, loss: torch.Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_value_(self.weights.values(), self.case["clip"])
        self.optimizer.step()

    def _logits(self, batch: Batch, rate: float) -> torch.Tensor:
        def drop(h: Any) -> Any:
            if not rate:
                return h
            if not is_sparse(h):
                return torch.nn.functional.dropout(h, rate)
            values = torch.nn.functional.dropout(h.storage.value(), rate)
            return h.set_value(values, layout="coo")

        w, h0 = self.weights, batch.x
        h = x = drop(batch.x)
        for k, edges in enumerate(batch.layers, 1):
            count = edges.num_receivers
            if k == 1:
                own = product(x, w["w_1_phi"], count)
                h0 = torch.relu(own)
                h = torch.relu(own + self._neighbours(edges, x, w["w_1_psi"], batch))
                continue
            own = drop(h0[:count]) @ w[f"w_{k}_phi"]
            read = self._neighbours(edges, drop(h), w[f"w_{k}_psi"], batch)
            h = torch.relu(own + read + h[:count])
        return drop(h) @ w["w_output"]

    def _neighbours(
        self, edges: Edges, h: Any, w: torch.Tensor, batch: Batch
    ) -> torch.Tensor:
        """Return mean(h) W, in the chosen order of mean and product."""
        del batch
        mean = MEANS[self.mean]
        if self.multiply_first or is_sparse(h):
            return mean(edges, product(h, w))
        return mean(edges, h) @ w

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
        """Return the mean loss without dropout, which is equal on all sides."""
        total = count = 0.0
        for batch in self._batches():
            losses = self._losses(self._logits(batch, 0.0), batch.labels)
            total, count = total + losses.sum().item(), count + len(losses)
        return total / count


def product(x: Any, w: torch.Tensor, count: int | None = None) -> torch.Tensor:
    """Return the first rows of x w; all if no count is given."""
    if not is_sparse(x):
        return x[:count] @ w
    return torch_sparse.matmul(x, w)[:count]


def _rows(x: Any, ids: torch.Tensor) -> Any:
    """Return some rows of a dense or sparse matrix."""
    return (
        torch_sparse.index_select(x, 0, ids) if is_sparse(x) else x.index_select(0, ids)
    )


def is_sparse(x: Any) -> bool:
    """Return whether x is a torch_sparse matrix."""
    return not isinstance(x, torch.Tensor)


def _features(stored: Any, kinds: tuple[str, ...]) -> dict[str, Any]:
    """Return features of these kinds; sparse only where they are stored so."""
    made: dict[str, Any] = {}
    if "features" in stored:
        return {"dense": torch.from_numpy(stored["features"])}
    parts = [stored[f"features_{name}"] for name in ("indptr", "indices", "data")]
    indptr, indices = (torch.from_numpy(part.astype(np.int64)) for part in parts[:2])
    shape = tuple(int(count) for count in stored["features_shape"])
    if "dense" in kinds:
        rows = torch.repeat_interleave(torch.arange(shape[0]), indptr.diff())
        made["dense"] = torch.zeros(shape)
        made["dense"][rows, indices] = torch.from_numpy(parts[2])
    if "sparse" in kinds and torch_sparse is not None:
        made["sparse"] = torch_sparse.SparseTensor(
            rowptr=indptr,
            col=indices,
            value=torch.from_numpy(parts[2]),
            sparse_sizes=shape,
        )
    return made


def _trimmed(data: Any, x: Any, num_hops: int) -> Batch:
    """Return the edges of each layer; a loaded batch is sorted by hop."""
    senders, receivers = data.edge_index
    within, layers = data.batch_size, []
    for _ in range(num_hops):
        stop = int(torch.searchsorted(receivers, within))
        to, of = receivers[:stop], senders[:stop]
        reached = max(within, int(of.max()) + 1 if stop else 0)
        layers.append(layer(of, to, within, reached))
        within = reached
    # The first hop reads all nodes, the last one only the roots' neighbours.
    return Batch(x, data.y[: data.batch_size], tuple(reversed(layers)), data.n_id)


def layer(
    senders: torch.Tensor, receivers: torch.Tensor, num_receivers: int, reached: int
) -> Edges:
    """Return edges sorted by receiver, from the first `reached` nodes."""
    counts = torch.bincount(receivers, minlength=num_receivers)
    indptr = torch.zeros(num_receivers + 1, dtype=torch.long)
    torch.cumsum(counts, 0, out=indptr[1:])
    matrix = None
    if torch_sparse is not None:
        matrix = torch_sparse.SparseTensor(
            rowptr=indptr,
            col=senders,
            sparse_sizes=(num_receivers, reached),
            is_sorted=True,
            trust_data=True,
        )
    least = counts.clamp(min=1).float().unsqueeze(1)
    return Edges(senders, receivers, indptr, least, matrix, num_receivers)


def _actions(threads: int) -> dict[str, Any]:
    peer = Peer(threads)
    return {n: getattr(peer, n) for n in ("choose", "prepare", "epochs", "extract")}


if __name__ == "__main__":
    sys.exit(workers.main(__doc__, _actions))

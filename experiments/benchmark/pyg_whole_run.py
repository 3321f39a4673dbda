"""The peer's side of whole runs: I-NIP-MEAN from a graph to its test score.

A straightforward loop in PyTorch Geometric, run by an interpreter without JAX: T
iterations of training with the same stopping rule (`hopf_jax/learning/stopping.py`),
predictions for all nodes at once, averaged label summaries, and the same rule for the
reported iteration. Batches are extracted by NeighborLoader once and stored, which is
faster for the peer.

The kernel is NIP-MEAN with the label summary y of neighbours read at every hop:

    h_0 = relu(X W_1_phi),  h_1 = relu(X W_1_phi + mean([X, y]) W_1_psi)
    h_k = relu(h_0 W_k_phi + mean([h_{k-1}, y]) W_k_psi + h_{k-1})
"""

import copy
import math
import pathlib
import sys
import time
from typing import Any

import numpy as np
import torch
from torch_geometric.loader import NeighborLoader

from experiments.benchmark.pyg_worker import (
    MEANS,
    Batch,
    Edges,
    Peer,
    is_sparse,
    layer,
    product,
)
from experiments.common import workers

workers.library_without_jax()
from hopf_jax.learning.stopping import Patience, as_good_as_any  # noqa: E402
from hopf_jax.metrics import f1_from_counts, f1_scores  # noqa: E402


class Whole(Peer):
    """Runs I-NIP-MEAN from a graph to its score."""

    def whole(
        self, folder: str, case: dict[str, Any], way: list[Any], seed: int
    ) -> dict[str, Any]:
        """Return the reported score, and the seconds from the graph in memory to it."""
        self._read(folder, case, (way[0],))
        self.kind, self.mean, self.multiply_first = way
        begun = time.perf_counter()
        torch.manual_seed(seed)
        self.stored = list(self._loaded())
        held = self._validation_batches()
        everything = self._everything()
        last = torch.zeros_like(self.labels)
        epochs, weights = 0, None
        iterations: list[dict[str, Any]] = []
        right: list[np.ndarray] = []
        reported = 0
        for t in range(1, case["num_iterations"] + 1):
            self.summary = last
            self.weights = self._draw()
            if weights is not None and case["warm_start"]:
                kept = {n: w for n, w in weights.items() if n != "w_output"}
                for name, value in kept.items():
                    self.weights[name].data.copy_(value)
            epochs += self._learn(held)
            weights = {name: w.detach().clone() for name, w in self.weights.items()}
            with torch.no_grad():
                predicted = torch.softmax(self._logits(everything, 0.0), 1)
            share = (t - 1) / case["num_iterations"] if case["average_labels"] else 0.0
            last = (1 - share) * predicted + share * last
            # The output is averaged, except for training nodes.
            given = last.clone()
            given[self.split["train"]] = predicted[self.split["train"]]
            last[self.split["train"]] = self.labels[self.split["train"]]
            decided = given.argmax(1).numpy()
            iterations.append(
                {name: self._score(decided, mask) for name, mask in self.split.items()}
            )
            true = self.labels.argmax(1).numpy()
            nodes = self.split["validation"]
            right.append((decided[nodes] == true[nodes]).astype(np.float64))
            held_scores = [scores["validation"] for scores in iterations]
            if as_good_as_any(held_scores, right):
                reported = t
        return {
            "seconds": time.perf_counter() - begun,
            "epochs": epochs,
            "iteration": reported,
            "test_micro_f1": iterations[reported - 1]["test"]["micro_f1"],
            "peak_gb": workers.peak_gb(),
        }

    def _read(self, folder: str, case: dict[str, Any], kinds: tuple[str, ...]) -> None:
        super()._read(folder, case, kinds)
        stored = np.load(pathlib.Path(folder) / "graph.npz")
        if case["multilabel"]:
            raise ValueError("The peer's whole run supports one label per node.")
        self.labels: torch.Tensor = self.data.y
        self.split = {"train": stored["roots"]} | {
            name: stored[name] for name in ("validation", "test")
        }
        self.indptr = torch.from_numpy(stored["indptr"]).long()
        self.indices = torch.from_numpy(stored["indices"]).long()
        if not case["weighted_loss"]:
            self.omega = torch.ones_like(self.omega)
        self.summary = torch.zeros_like(self.labels)

    def _first_weights(self, files: pathlib.Path) -> dict[str, torch.nn.Parameter]:
        del files  # Drawn here instead: the sides use different random numbers.
        return self._draw()

    def _draw(self) -> dict[str, torch.nn.Parameter]:
        """Return new weights, normal with std sqrt(2 / fan_out)."""
        hidden, labels = self.case["hidden_size"], self.data.y.shape[1]
        features = next(iter(self.features.values())).size(1)
        shapes = {"w_output": (hidden, labels)}
        for k in range(1, self.case["num_hops"] + 1):
            width = features if k == 1 else hidden
            shapes[f"w_{k}_phi"] = (width, hidden)
            shapes[f"w_{k}_psi"] = (width + labels, hidden)
        return {
            name: torch.nn.Parameter(torch.randn(shape) * math.sqrt(2 / shape[1]))
            for name, shape in shapes.items()
        }

    def _validation_batches(self) -> list[Batch]:
        loader = NeighborLoader(
            self.data,
            num_neighbors=[-1] * self.case["num_hops"],
            input_nodes=torch.from_numpy(self.split["validation"]),
            batch_size=self.case["batch_size"],
        )
        return list(self._loaded(loader))

    def _everything(self) -> Batch:
        """Return the whole graph as a batch, with all edges in every layer."""
        count = len(self.labels)
        receivers = torch.repeat_interleave(torch.arange(count), self.indptr.diff())
        edges = layer(self.indices, receivers, count, count)
        layers = (edges,) * self.case["num_hops"]
        ids = torch.arange(count)
        return Batch(self.features[self.kind], self.labels, layers, ids)

    def _learn(self, held: list[Batch]) -> int:
        """Train until the stopping rule ends it; return the number of epochs."""
        case = self.case
        least = min(case["min_epochs"], case["max_epochs"])
        rule = Patience(case["learning_rate"], case["patience"], least)
        self.optimizer = self._adam()
        best = self._state()
        epoch = 0
        while epoch < case["max_epochs"] and not rule.stopped:
            epoch += 1
            for group in self.optimizer.param_groups:
                group["lr"] = rule.learning_rate
            train = self._scores(self._batches(), learn=True)
            with torch.no_grad():
                validation = self._scores(held, learn=False)
            action = rule.update(epoch, train, validation)
            if action == "keep":
                best = self._state()
            elif action == "restore":
                self._restore(best)
        self._restore(best)
        return epoch

    def _state(self) -> Any:
        kept = {name: w.detach().clone() for name, w in self.weights.items()}
        return kept, copy.deepcopy(self.optimizer.state_dict())

    def _restore(self, state: Any) -> None:
        weights, optimizer = state
        for name, value in weights.items():
            self.weights[name].data.copy_(value)
        self.optimizer.load_state_dict(copy.deepcopy(optimizer))

    def _scores(self, batches: Any, learn: bool) -> dict[str, float]:
        """Return mean loss and F1 over batches; train on each if `learn`."""
        total, count, size = 0.0, 0, self.labels.shape[1]
        hits = torch.zeros(3, size)
        for batch in batches:
            logits = self._logits(batch, self.case["dropout"] if learn else 0.0)
            losses = self._losses(logits, batch.labels)
            if learn:
                self._update(losses.mean())
            total, count = total + losses.sum().item(), count + len(losses)
            decided = torch.nn.functional.one_hot(logits.argmax(1), size).bool()
            true = batch.labels > 0
            for i, hit in enumerate((decided & true, decided & ~true, ~decided & true)):
                hits[i] += hit.sum(0)
        return {"loss": total / count} | f1_from_counts(*hits.numpy())

    def _score(self, decided: np.ndarray, nodes: np.ndarray) -> dict[str, float]:
        found = np.eye(self.labels.shape[1], dtype=bool)[decided[nodes]]
        return f1_scores(self.labels.numpy()[nodes] > 0, found)

    def _neighbours(
        self, edges: Edges, h: Any, w: torch.Tensor, batch: Batch
    ) -> torch.Tensor:
        """Return mean([h, y]) W, in the chosen order of mean and product."""
        mean, width = MEANS[self.mean], h.size(1)
        y = self.summary[batch.ids[: h.size(0)]]
        if is_sparse(h):
            return mean(edges, product(h, w[:width]) + y @ w[width:])
        both = torch.cat([h, y], 1)
        return mean(edges, both @ w) if self.multiply_first else mean(edges, both) @ w


def _actions(threads: int) -> dict[str, Any]:
    peer = Whole(threads)
    return {"choose": peer.choose, "whole": peer.whole}


if __name__ == "__main__":
    sys.exit(workers.main(__doc__, _actions))

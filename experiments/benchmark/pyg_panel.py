"""GCN, GraphSAGE and GAT of PyTorch Geometric, for panel and leaderboard.

Run by an interpreter without JAX (requirements-benchmark.txt): this file imports
nothing of hopf_jax. Reads an .npz of a graph and writes one with the probabilities of
each model. All are trained on the whole graph with Adam, stopped early by validation
nodes, tuned in weight decay and hidden size, and then trained on all labels for as many
epochs.
"""

import copy
import itertools
import sys
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch_geometric.nn import GAT, GCN, GraphSAGE

_MOST_EPOCHS, _PATIENCE, _RATE = 300, 50, 0.01
_DECAYS, _HIDDEN = (5e-4, 5e-3), (16, 64)


def main(source: str, target: str) -> None:
    """Read a graph, train all models, and write their probabilities."""
    given = np.load(source)
    torch.set_num_threads(1)
    models = {"PyG GCN": GCN, "PyG GraphSAGE": GraphSAGE, "PyG GAT": GAT}
    found: dict[str, Any] = {n: _tuned(model, given) for n, model in models.items()}
    np.savez(target, **found)


def _tuned(model: type, given: np.lib.npyio.NpzFile) -> np.ndarray:
    """Return probabilities [2, N, C], before and after validation nodes are learned."""
    found = []
    for decay, hidden in itertools.product(_DECAYS, _HIDDEN):
        score, epochs, said = _train(model, given, decay, hidden, None)
        found.append(((score, -decay, -hidden, epochs), said))
    (_, decay, hidden, epochs), held = max(found, key=lambda each: each[0])
    return np.stack([held, _train(model, given, -decay, -hidden, epochs)[2]])


def _train(
    model: type,
    given: np.lib.npyio.NpzFile,
    decay: float,
    hidden: int,
    epochs: int | None,
) -> tuple[tuple[float, float], int, np.ndarray]:
    """Return score and loss of validation nodes, epochs, probabilities of all nodes.

    With a number of epochs, learns from training and validation nodes alike.
    """
    torch.manual_seed(0)
    x = torch.tensor(given["features"])
    edges = torch.tensor(given["edges"])
    labels = torch.tensor(given["labels"]).float()
    held = torch.tensor(given["validation"])
    learned = torch.tensor(given["train"]) | (held if epochs is not None else False)
    multilabel = bool(given["multilabel"])
    net = model(x.shape[1], hidden, 2, labels.shape[1], dropout=0.5)
    weights = {}
    if model is GCN and "weights" in given:
        weights["edge_weight"] = torch.tensor(given["weights"])
    optimizer = torch.optim.Adam(net.parameters(), lr=_RATE, weight_decay=decay)
    objective = (
        functional.binary_cross_entropy_with_logits
        if multilabel
        else functional.cross_entropy
    )
    best, best_epoch, kept = (-1.0, -np.inf), 0, copy.deepcopy(net.state_dict())
    for epoch in range(1, (epochs or _MOST_EPOCHS) + 1):
        net.train()
        optimizer.zero_grad()
        objective(net(x, edges, **weights)[learned], labels[learned]).backward()
        optimizer.step()
        if epochs is None:
            net.eval()
            with torch.no_grad():
                said = net(x, edges, **weights)[held]
                loss = float(objective(said, labels[held]))
            if multilabel:
                right = ((said > 0) == (labels[held] > 0)).float().mean()
            else:
                right = (said.argmax(1) == labels[held].argmax(1)).float().mean()
            if (float(right), -loss) > best:
                best, best_epoch = (float(right), -loss), epoch
            elif epoch - best_epoch > _PATIENCE:
                break
    if epochs is not None:
        kept = net.state_dict()
    net.load_state_dict(kept)
    net.eval()
    with torch.no_grad():
        said = net(x, edges, **weights)
    shares = torch.sigmoid(said) if multilabel else torch.softmax(said, 1)
    return best, best_epoch, shares.numpy()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Outputs of PyTorch Geometric's layers with given weights, for experiments.benchmark.

Run by an interpreter without JAX (requirements-benchmark.txt): this file imports
nothing of hopf_jax. Reads an .npz of a graph, a hop's inputs h and h_0, and the weights
of the hop of each model as "model/name"; writes one with the output of each layer.
"""

import sys
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch_geometric import nn as pyg

Weights = dict[str, torch.Tensor]
Made = Callable[[Weights, "Read"], torch.Tensor]


class Read:
    """What a layer reads: the edges, h, and h_0, of the same width."""

    def __init__(self, given: np.lib.npyio.NpzFile):
        self.edges = torch.from_numpy(given["edges"])  # [2, E]: senders, receivers.
        self.h, self.h0 = (torch.from_numpy(given[name]) for name in ("h", "h0"))
        counts = torch.bincount(self.edges[1], minlength=len(self.h))
        self.shares = 1 / counts.clamp(min=1).float()[self.edges[1]]  # Of D^-1 A.


def gcn(w: Weights, read: Read) -> torch.Tensor:
    """GCNConv."""
    layer = pyg.GCNConv(*w["w_psi"].shape, bias=False)
    layer.lin.weight.data = w["w_psi"].T
    return layer(read.h, read.edges)


class LstmByDegree(pyg.LSTMAggregation):
    """LSTMAggregation, one degree at a time.

    At once, PyG pads the neighbours of every node to the largest degree with zeros,
    and its LSTM reads them: then all but the nodes of that degree differ from the LSTM
    of GraphSAGE, which ends with the last neighbour.
    """

    def forward(
        self, x, index=None, ptr=None, dim_size=None, dim=-2, max_num_elements=None
    ) -> torch.Tensor:
        """Return the last output for each node; 0 without neighbours."""
        degree = torch.bincount(index, minlength=dim_size)
        found = x.new_zeros(dim_size, self.out_channels)
        for count in degree[degree > 0].unique():
            nodes = torch.nonzero(degree == count)[:, 0]
            own = (degree == count)[index]
            place = torch.searchsorted(nodes, index[own])
            found[nodes] = super().forward(x[own], place, dim_size=len(nodes), dim=dim)
        return found


def lstm(w: Weights) -> LstmByDegree:
    """Return the aggregation of gs-lstm: its forget gate is open by 1, without bias."""
    width, hidden = len(w["w_input"]), len(w["w_recurrent"])
    layer = LstmByDegree(width, hidden)
    # The gates of torch are in, forget, new, out; ours in, forget, out, new.
    order = torch.arange(4 * hidden).reshape(4, hidden)[[0, 1, 3, 2]].ravel()
    layer.lstm.weight_ih_l0.data = w["w_input"].T[order].contiguous()
    layer.lstm.weight_hh_l0.data = w["w_recurrent"].T[order].contiguous()
    layer.lstm.bias_ih_l0.data = torch.zeros(4 * hidden)
    layer.lstm.bias_ih_l0.data[hidden : 2 * hidden] = 1
    layer.lstm.bias_hh_l0.data = torch.zeros(4 * hidden)
    return layer


def sage(w: Weights, read: Read, aggr: str) -> torch.Tensor:
    """SAGEConv, whose sum of two parts is our concatenation if each has its columns."""
    (width, hidden), own = w["w_psi"].shape, w["w_phi"]
    start = "mean" if aggr == "lstm" else aggr
    layer = pyg.SAGEConv(len(own), 2 * hidden, start, bias=False, project=aggr == "max")
    if aggr == "lstm":  # Afterwards: the layer draws new weights for what it is given.
        layer.aggr_module = lstm(w)
    zeros = torch.zeros(hidden, len(own))
    layer.lin_r.weight.data = torch.cat([own.T, zeros])
    if aggr == "max":
        # The projection has the width of x, and ours that of the hop.
        layer.lin = nn.Linear(*w["w_pool"].shape, bias=False)
        layer.lin.weight.data = w["w_pool"].T
    layer.lin_l = nn.Linear(width, 2 * hidden, bias=False)
    layer.lin_l.weight.data = torch.cat([torch.zeros(hidden, width), w["w_psi"].T])
    return layer(read.h, read.edges)


def appnp(w: Weights, read: Read) -> torch.Tensor:
    """One step of APPNP from h, with a restart at h_0."""
    layer = pyg.APPNP(K=1, alpha=0.1)
    of_h = layer(read.h, read.edges) - 0.1 * read.h
    return of_h + 0.1 * read.h0


def walk(w: Weights, read: Read) -> torch.Tensor:
    """APPNP on D^-1 A, a random walk with restart."""
    layer = pyg.APPNP(K=1, alpha=0.15, normalize=False, add_self_loops=False)
    of_h = layer(read.h, read.edges, read.shares) - 0.15 * read.h
    return of_h + 0.15 * read.h0


def smooth(w: Weights, read: Read) -> torch.Tensor:
    """SGConv with the identity for weights."""
    width = read.h.shape[1]
    layer = pyg.SGConv(width, width, K=1, bias=False)
    layer.lin.weight.data = torch.eye(width)
    return layer(read.h, read.edges)


def gcnii(w: Weights, read: Read) -> torch.Tensor:
    """GCN2Conv, as a second layer."""
    layer = pyg.GCN2Conv(read.h.shape[1], alpha=0.1, theta=0.5, layer=2)
    layer.weight1.data = w["w_psi"]
    return layer(read.h, read.h0, read.edges)


def gat(w: Weights, read: Read) -> torch.Tensor:
    """GATConv."""
    heads, width = w["w_sender"].shape
    layer = pyg.GATConv(len(w["w_psi"]), width, heads, bias=False)
    layer.lin.weight.data = w["w_psi"].T
    layer.att_src.data, layer.att_dst.data = w["w_sender"][None], w["w_receiver"][None]
    return layer(read.h, read.edges)


def gin(w: Weights, read: Read) -> torch.Tensor:
    """GINConv with a net of two layers."""
    first, second = (
        nn.Linear(*w[name].shape, bias=False) for name in ("w_psi", "w_second")
    )
    layer = pyg.GINConv(nn.Sequential(first, nn.ReLU(), second), train_eps=True)
    # Afterwards: the layer draws new weights for its net.
    first.weight.data, second.weight.data = w["w_psi"].T, w["w_second"].T
    layer.eps.data = w["g_alpha"] - 1
    return layer(read.h, read.edges)


def total(w: Weights, read: Read) -> torch.Tensor:
    """GINConv without a net, which is Weisfeiler-Lehman's sum."""
    return pyg.GINConv(nn.Identity())(read.h, read.edges)


def own(w: Weights, read: Read) -> torch.Tensor:
    """A linear layer, of the node alone."""
    layer = nn.Linear(*w["w_phi"].shape, bias=False)
    layer.weight.data = w["w_phi"].T
    return layer(read.h)


# Layers by the models whose hop, before its skip and ReLU, they equal.
LAYERS: dict[str, Made] = {
    "bl-node": own,
    "wl": total,
    "gcn": gcn,
    "gcn-s": gcn,
    "gs-mean": lambda w, read: sage(w, read, "mean"),
    "gs-max": lambda w, read: sage(w, read, "max"),
    "gs-lstm": lambda w, read: sage(w, read, "lstm"),
    "rwr": walk,
    "sgc": smooth,
    "sign": smooth,
    "appnp": appnp,
    "gpr-gnn": smooth,
    "gcnii": gcnii,
    "gat": gat,
    "gin": gin,
}


@torch.no_grad()
def main(source: str, target: str) -> None:
    """Read inputs and weights, and write what each layer makes of them."""
    given = np.load(source)
    read, found = Read(given), {}
    for model, layer in LAYERS.items():
        start = f"{model}/"
        weights = {
            name.removeprefix(start): torch.from_numpy(given[name])
            for name in given.files
            if name.startswith(start)
        }
        found[model] = layer(weights, read).numpy()
    np.savez(target, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])

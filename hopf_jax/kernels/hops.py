"""The loop over hops, for every way to run a kernel.

Training on a batch, predicting a graph as one program and predicting it chunk by chunk
differ in how signals are stored and read, not in the loop.
"""

from typing import Any, Protocol

from hopf_jax.kernels.table import Kernel


class Steps(Protocol):
    """How signals are read and computed, in a representation of their own."""

    def features(self) -> Any:
        """Return X as the first hop reads it."""

    def embed(self, away: int) -> Any:
        """Return h_0 of the nodes within `away` hops of the roots, or of more nodes."""

    def hop(self, k: int, away: int, h0: Any, h: Any) -> Any:
        """Return h_k of the nodes within `away` hops of the roots."""

    def join(self, hops: list[Any]) -> Any:
        """Return several of h_0, ... h_K of the roots side by side."""


def run_hops(kernel: Kernel, num_layers: int, steps: Steps) -> Any:
    """Return h_K of the roots, or side by side all hops that the output layer reads.

    Without an input layer the first hop reads X for both h_0 and h, and h_0 is computed
    from X after it, if a later hop reads it.
    """
    embedded = kernel.input_layer
    h0 = h = steps.embed(num_layers) if embedded else steps.features()
    hops = [h]
    for k in range(1, num_layers + 1):
        h = steps.hop(k, num_layers - k, h0, h)
        if kernel.embeds and not embedded and k < num_layers:
            h0, embedded = steps.embed(num_layers - k), True
        if kernel.reads_out == "ends":
            hops = [hops[0], h]
        elif kernel.reads_out != "last":
            hops.append(h)
    # Without hops, what is read may still be the features as they are stored.
    alone = kernel.reads_out == "last" or (kernel.reads_out == "ends" and len(hops) < 2)
    return h if alone else steps.join(hops)

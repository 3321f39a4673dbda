"""The only file that knows flax: declares the weights of a row, calls `propagate`."""

import dataclasses
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph

from hopf_jax import noise
from hopf_jax.batching import Batch
from hopf_jax.models import Row
from hopf_jax.propagation import (
    HopWeights,
    Products,
    Signals,
    embedding,
    first_products,
    propagate,
)
from hopf_jax.sparse import Matrix, SparseMatrix, matmul, to_dense

Init = Literal["glorot", "fan-out"]
Precision = Literal["float32", "bfloat16"]


def _glorot(key: jax.Array, shape: tuple[int, int], dtype=jnp.float32) -> jax.Array:
    """Uniform with variance 2 / (fan_in + fan_out)."""
    draw = jax.lax.optimization_barrier(jax.random.uniform(key, shape, dtype, -1))
    return draw * jnp.sqrt(3 * jnp.asarray(2 / sum(shape), dtype))


def _fan_out(key: jax.Array, shape: tuple[int, int], dtype=jnp.float32) -> jax.Array:
    """Normal with std sqrt(2 / fan_out), as in the authors' program: far larger than
    Glorot's for a wide input, so that ReLU units do not die before they learn."""
    # XLA would join the two factors of a draw, and round otherwise than without jit.
    draw = jax.lax.optimization_barrier(jax.random.normal(key, shape, dtype))
    return draw * jnp.sqrt(jnp.asarray(2 / shape[1], dtype))


_INITIALIZERS = {
    "glorot": _glorot,
    "fan-out": _fan_out,
}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Widths of a net; hashable, hence static under jit."""

    features: int
    labels: int
    hidden: int
    num_hops: int
    summary: int = 0  # width of the label summary; 0 where the row reads none


class Net(nn.Module):
    """A row with weights: h_0, then K hops, then the output layer."""

    row: Row
    sizes: Sizes
    dropout: float = 0.0
    init_weights: Init = "glorot"
    bias: bool = False
    precision: Precision = "float32"  # Of what is multiplied; weights are float32.

    def setup(self) -> None:
        """Declare every weight under the paper's name for it."""
        row, sizes = self.row, self.sizes
        if row.input_layer:
            self.w_0 = self._matrix("w_0", sizes.features, sizes.hidden)
            self.b_0 = self._bias("b_0", sizes.hidden)
        first = width = row.width(sizes.features, sizes.hidden, 0)
        hops = []
        for k in range(1, row.num_layers(sizes.num_hops) + 1):
            widths = {"h0": first, "h": width, "y": sizes.summary}
            hops.append(self._hop_weights(k, widths))
            width = row.width(sizes.features, sizes.hidden, k)
            first = sizes.hidden if row.embeds else first
        self.hops = hops
        self.w_output = self._matrix("w_output", width, sizes.labels)
        self.b_output = self._bias("b_output", sizes.labels)

    def _hop_weights(self, k: int, widths: dict[str, int]) -> HopWeights:
        row, hidden = self.row, self.sizes.hidden
        if not row.learned_hops:
            return HopWeights(None, None, {})
        psi_width = sum(widths[s] for s in row.psi)
        psi = phi = None
        aggregate = {}
        if row.psi:
            aggregate = {
                name: self._matrix(f"w_{k}_{name}", *shape)
                for name, shape in row.aggregate.shapes(psi_width, hidden).items()
            }
            psi_width = row.aggregate.width(psi_width, hidden)
            psi = self._matrix(f"w_{k}_psi", psi_width, hidden)
        if row.phi:
            phi_width = sum(widths[s] for s in row.phi)
            shared = row.shared_weights
            phi = psi if shared else self._matrix(f"w_{k}_phi", phi_width, hidden)
        out = row.width(self.sizes.features, hidden, k)
        return HopWeights(phi, psi, aggregate, self._bias(f"b_{k}", out))

    def _matrix(self, name: str, fan_in: int, fan_out: int) -> jax.Array:
        init = _INITIALIZERS[self.init_weights]
        if not fan_in * fan_out:
            init = nn.initializers.zeros
        return self.param(name, init, (fan_in, fan_out)).astype(self.precision)

    def _bias(self, name: str, width: int) -> jax.Array | None:
        return self.param(name, nn.initializers.zeros, (width,)) if self.bias else None

    def declare(self) -> None:
        """Nothing but the weights: what `init` needs to draw them."""

    def embed(
        self,
        x: Matrix,
        words: jax.Array | None = None,
        products: Products | None = None,
    ) -> Matrix:
        """h_0 [N, H] of features [N, F], for rows that have one."""
        if products is not None:
            return nn.relu(products.own)
        dropped = drop(words, 0, x, self.dropout)
        if not self.row.input_layer:
            phi: Any = self.hops[0].phi
            return nn.relu(embedding(self.row, phi, dropped, self.sizes.features))
        h = matmul(dropped, self.w_0)
        h = nn.relu(h if self.b_0 is None else h + self.b_0[None, :])
        return h.astype(self.precision)

    def readable(self, x: Matrix) -> Matrix:
        """Features as the first hop can read them: dense where no weights meet them."""
        return x if self.row.multiplies_input else to_dense(x, self.sizes.features)

    def hop(
        self,
        k: int,
        graph: jraph.GraphsTuple,
        signals: Signals,
        num_receivers: int,
        words: jax.Array | None = None,
        neighbours: jax.Array | None = None,
        products: Products | None = None,
    ) -> jax.Array:
        """h_k [R, *] of the first R nodes of the graph of hop k (1 to K).

        What they read of their neighbours may be given; then no edges are read. So may
        products of sparse features with this hop's weights.
        """
        row = self.row
        if not row.learned_hops:
            out = propagate(row, self.hops[k - 1], graph, signals, num_receivers)
            return out + signals.h[:num_receivers] if self._skips(k) else out
        signals = Signals(*(self._rounded(signal) for signal in signals))
        # Label summaries are not dropped: they are few, and already uncertain.
        if k == 1 and not row.input_layer:
            x = drop(words, 0, signals.h, self.dropout)  # As `embed` drops them.
            dropped = signals._replace(h0=x, h=x)
        else:
            dropped = signals._replace(
                h0=drop(words, 3 * k, signals.h0, self.dropout),
                h=drop(words, 3 * k + 1, signals.h, self.dropout),
            )
        draws = None
        if words is not None and row.aggregate.ordered:
            draws = noise.bits(words, 3 * k + 2, graph.senders.shape[0])
        known = neighbours, products
        out = propagate(
            row, self.hops[k - 1], graph, dropped, num_receivers, draws, *known
        )
        if self._skips(k):
            # At a first hop that reads X, what it skips from is made of X here.
            raw = k == 1 and not row.input_layer
            h = self.embed(signals.h, words, products) if raw else signals.h
            out += h[:num_receivers]
        return nn.relu(out).astype(self.precision)

    def _rounded(self, signal: Matrix) -> Matrix:
        """Dense signals as they are multiplied: what is gathered is no wider."""
        if signal is None or isinstance(signal, SparseMatrix):
            return signal
        return signal.astype(self.precision)

    def _products(self, x: Matrix, words: jax.Array | None) -> Products | None:
        """Of sparse features with both weights of the first hop, if it has both."""
        row = self.row
        reads = all(set(names) - {"y"} for names in (row.phi, row.psi))
        linear = row.reads_input_linearly and not row.shared_weights
        if not (isinstance(x, SparseMatrix) and self.hops and reads and linear):
            return None
        dropped = drop(words, 0, x, self.dropout)
        return first_products(row, self.hops[0], dropped, self.sizes.features)

    def _skips(self, k: int) -> bool:
        return 0 < self.row.skip_from <= k

    def readout(self, h: jax.Array, words: jax.Array | None = None) -> jax.Array:
        """Logits [R, C] of h_K [R, *]."""
        logits = matmul(drop(words, 1, h, self.dropout), self.w_output)
        logits = logits.astype(jnp.float32)
        return logits if self.b_output is None else logits + self.b_output[None, :]

    def __call__(
        self,
        batch: Batch,
        x: Matrix,
        summary: jax.Array | None,
        words: jax.Array | None = None,
        neighbours: jax.Array | None = None,
    ) -> jax.Array:
        """Logits [R, C] of a batch's roots.

        Args:
          batch: a padded subgraph.
          x: features of its nodes, [N, F].
          summary: label summaries of its nodes, [N, C]; no gradient flows into them.
          words: random words [2] of a training step; None predicts.
          neighbours: what its nodes read of their neighbours at hop 1, [N, *], if it is
            known already (`ahead.py`); the batch then reaches one hop less.
        """
        if summary is not None:
            summary = jax.lax.stop_gradient(summary)
        return self.logits(batch, x, summary, words, neighbours)

    def logits(
        self,
        batch: Batch,
        x: Matrix,
        summary: jax.Array | None,
        words: jax.Array | None = None,
        neighbours: jax.Array | None = None,
    ) -> jax.Array:
        """As calling the net, and the gradient flows into the summaries too."""
        row, sizes = self.row, self.sizes
        layers = row.num_layers(sizes.num_hops)
        h0 = h = self.embed(x, words) if row.input_layer else self.readable(x)
        products = self._products(x, words)
        for k in range(1, layers + 1):
            # Layer k is wanted within K - k hops of the roots, if anyone reads on.
            away = layers - k if "h" in row.psi else 0
            graph, receivers = batch.hop_graph(away)
            signals = Signals(h0, h, summary)
            if row.psi:
                senders = graph.nodes["degree"].shape[0]
                signals = Signals(*(first_rows(s, senders) for s in signals))
            known = (neighbours, products) if k == 1 else ()
            h = self.hop(k, graph, signals, receivers, words, *known)
            if k == 1 and k < layers and row.embeds and not row.input_layer:
                # Neighbours read h_0 farther out than a node does.
                far = x if "h0" in row.psi else first_rows(x, receivers)
                h0 = self.embed(far, words, products)
        return self.readout(h, words)


def first_rows(signal: Matrix, count: int) -> Matrix:
    """The first rows of a dense signal; sparse features are cut after the product."""
    if signal is None or isinstance(signal, SparseMatrix):
        return signal
    return signal[:count]


def drop(words: jax.Array | None, site: int, x: Matrix, rate: float) -> Matrix:
    """Dropout of the entries of x, or of the non-zeros of a sparse matrix."""
    if words is None or rate == 0 or x is None:
        return x
    if isinstance(x, SparseMatrix):
        return x._replace(values=drop(words, site, x.values, rate))
    draw = noise.bits(words, site, x.size).reshape(x.shape)
    return jnp.where(draw >= jnp.uint32(rate * 2**32), x / (1 - rate), 0)

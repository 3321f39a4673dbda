"""A kernel with weights, as a flax module. No other file imports flax."""

import dataclasses
import functools
import itertools
import math
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from hopf_jax.batching import (
    Batch,
    HopGraph,
    Matrix,
    SparseMatrix,
    matmul,
    row_of_entry,
    to_dense,
)
from hopf_jax.kernels import random_bits
from hopf_jax.kernels.aggregators import mean
from hopf_jax.kernels.hops import run_hops
from hopf_jax.kernels.initial_weights import (
    Declaration,
    declarations,
    declare,
    draw,
)
from hopf_jax.kernels.propagation import (
    HopWeights,
    Products,
    Signals,
    feature_rows,
    first_products,
    propagate,
)
from hopf_jax.kernels.table import Kernel


def _walk_shares(num_hops: int) -> np.ndarray:
    """Return the shares of random walks that end after 0, 1, ... K steps, [K + 1]."""
    going = np.float32(1 - _RESTART)
    shares = np.float32(_RESTART) * going ** np.arange(num_hops + 1, dtype=np.float32)
    shares[-1] = (1 - _RESTART) ** num_hops
    return shares


_SUMMARY = 2  # The site of `drop` for label summaries.
_SECOND, _READ = 1 << 14, 1 << 15  # Sites beyond those of all hops.
_RESTART = 0.1  # Share of walks that end at each step, in the first gamma.
_SMALLEST_VARIANCE = 1e-5
_MOMENTUM = 0.1  # Share of a batch in the running statistics.
_STATISTICS = ("mean", "variance")
_ZERO = np.zeros(())


class Rate(NamedTuple):
    """A dropout rate as data: programs for different rates are the same."""

    threshold: Any  # Of 32 random bits, below which a number is dropped.
    kept: Any  # The share that is kept.

    @classmethod
    def of(cls, rate: float) -> "Rate":
        """Return a rate from 0, below 1."""
        return cls(np.uint32(rate * 2**32), np.float32(1 - rate))


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Widths and depth of a net; static under jit."""

    features: int
    labels: int
    hidden: int
    num_hops: int
    summary: int = 0  # Width of the label summary; 0 where the kernel reads none.
    summary_scale: float = 1.0  # What label summaries are multiplied by to be read.


class Net(nn.Module):
    """A kernel with weights: h_0, K hops, and the output layer."""

    kernel: Kernel
    sizes: Sizes
    dropout: float | Rate = 0.0
    init_weights: Literal["glorot", "fan-out"] = "glorot"
    bias: bool = False
    # Of products; weights are float32.
    precision: Literal["float32", "bfloat16"] = "float32"
    summary_dropout: float | Rate = 0.0
    norm: Literal["none", "layer", "batch"] = "none"
    noise: Literal["batch", "node"] = "batch"

    def setup(self) -> None:
        """Declare the weights, under the paper's names."""
        kernel, sizes = self.kernel, self.sizes
        if kernel.input_layer:
            self.w_0 = self._matrix("w_0", sizes.features, sizes.hidden)
            self.b_0 = self._bias("b_0", sizes.hidden)
            self.n_0 = self._norm_weights(0, sizes.hidden)
        first = width = kernel.width(sizes.features, sizes.hidden, 0)
        read = [width]
        hops, second, norms = [], [], []
        for k in range(1, kernel.num_layers(sizes.num_hops) + 1):
            widths = {"h0": first, "h": width, "y": sizes.summary}
            hops.append(self._hop_weights(k, widths))
            width = kernel.width(sizes.features, sizes.hidden, k)
            first = sizes.hidden if kernel.embeds else first
            read.append(width)
            if kernel.second_layer:
                matrix = self._matrix(f"w_{k}_second", width, width)
                second.append((matrix, self._bias(f"b_{k}_second", width)))
            if kernel.learned_hops:
                norms.append(self._norm_weights(k, width))
        self.hops, self.second, self.norms = hops, second, norms
        if kernel.reads_out == "weighted":
            self.gamma = self._weight(
                "gamma", (len(read),), _walk_shares(len(read) - 1)
            )
        elif kernel.reads_out == "each":
            self.read = [
                (
                    self._matrix(f"w_{k}_read", columns, sizes.hidden),
                    self._bias(f"b_{k}_read", sizes.hidden),
                )
                for k, columns in enumerate(read)
            ]
        width = kernel.width_read(sizes.features, sizes.hidden, len(hops))
        if kernel.votes is not None:
            width += sizes.summary
        self.w_output = self._matrix("w_output", width, sizes.labels)
        self.b_output = self._bias("b_output", sizes.labels)

    def _hop_weights(self, k: int, widths: dict[str, int]) -> HopWeights:
        kernel, hidden = self.kernel, self.sizes.hidden
        if not kernel.learned_hops:
            return HopWeights(None, None, {})
        psi = phi = None
        aggregate = {}
        if kernel.psi:
            psi_width = sum(widths[s] for s in kernel.psi)
            aggregate = {
                name: self._matrix(f"w_{k}_{name}", *shape)
                for name, shape in kernel.aggregate.shapes(psi_width, hidden).items()
            }
            psi_width = kernel.aggregate.width(psi_width, hidden)
            psi = self._matrix(f"w_{k}_psi", psi_width, hidden)
            if kernel.identity:
                share = math.log(kernel.identity / k + 1)
                psi = (1 - share) * jnp.eye(hidden, dtype=psi.dtype) + share * psi
        if kernel.phi:
            phi_width = sum(widths[s] for s in kernel.phi)
            shared = kernel.shared_weights
            phi = psi if shared else self._matrix(f"w_{k}_phi", phi_width, hidden)
        out = kernel.width(self.sizes.features, hidden, k)
        gates = (
            self._weight(f"g_{k}_{name}", (1,), np.array(gate.scale))
            if gate.learned and read
            else None
            for name, gate, read in (
                ("alpha", kernel.alpha, kernel.phi),
                ("beta", kernel.beta, kernel.psi),
            )
        )
        return HopWeights(phi, psi, aggregate, self._bias(f"b_{k}", out), *gates)

    def _norm_weights(self, k: int, width: int) -> dict[str, jax.Array]:
        """Declare the scale and shift of a normalised layer, and its statistics."""
        if self.norm == "none":
            return {}
        names = {"scale": 1.0, "shift": 0.0}
        if self.norm == "batch":
            names |= {"mean": 0.0, "variance": 1.0}
        return {
            name: self._weight(f"n_{k}_{name}", (width,), np.array(start))
            for name, start in names.items()
        }

    def _matrix(self, name: str, fan_in: int, fan_out: int) -> jax.Array:
        start = self.init_weights if fan_in * fan_out else _ZERO
        return self._weight(name, (fan_in, fan_out), start).astype(self.precision)

    def _bias(self, name: str, width: int) -> jax.Array | None:
        return self._weight(name, (width,), _ZERO) if self.bias else None

    def _weight(self, name: str, shape: tuple[int, ...], start: Any) -> jax.Array:
        declare(Declaration(name, shape, start))
        return self.param(name, nn.initializers.zeros, shape)

    @property
    def num_layers(self) -> int:
        """Number of hops that are computed."""
        return self.kernel.num_layers(self.sizes.num_hops)

    def with_dropout(self, dropout: float | Rate, summaries: float | Rate) -> "Net":
        """Return the net with other rates of dropout, also of label summaries."""
        return self.clone(dropout=dropout, summary_dropout=summaries)

    def declare(self) -> None:
        """Declare the weights and compute nothing; for `init`."""

    def weight_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the shapes and types of all weights, by name."""
        return {
            each.name: jax.ShapeDtypeStruct(each.shape, jnp.float32)
            for each in sorted(_declared_by(self), key=lambda each: each.name)
        }

    def initial_weights(self, key: np.ndarray) -> dict[str, np.ndarray]:
        """Return new weights by name, drawn from a key of `threefry`."""
        return draw(key, _declared_by(self))

    def embed(
        self,
        x: Matrix,
        words: jax.Array | None = None,
        products: Products | None = None,
        mask: jax.Array | None = None,
    ) -> Matrix:
        """Return h_0 [N, H] of features [N, F], for kernels that have one.

        `mask` is as in `hop`.
        """
        if products is not None:
            return nn.relu(products.own)
        dropped = drop(words, 0, x, self.dropout)
        if not self.kernel.input_layer:
            # The rows of W_1_phi without those for the node's own label summary.
            own = feature_rows(self.kernel.phi, self.hops[0].phi, self.sizes.features)
            return nn.relu(matmul(dropped, own))
        h = matmul(dropped, self.w_0)
        h = h if self.b_0 is None else h + self.b_0[None, :]
        if self.n_0:
            h = self._normalized(h, self.n_0, words, mask)
        return nn.relu(h).astype(self.precision)

    def readable(self, x: Matrix) -> Matrix:
        """Return features as the first hop reads them: sparse only before weights."""
        return x if self.kernel.multiplies_input else to_dense(x, self.sizes.features)

    def hop(
        self,
        k: int,
        hop: HopGraph,
        signals: Signals,
        words: jax.Array | None = None,
        neighbours: jax.Array | None = None,
        products: Products | None = None,
        labels: jax.Array | None = None,
        mask: jax.Array | None = None,
    ) -> jax.Array:
        """Return h_k [R, *] of the receivers of hop k (1 to K).

        Args:
          k: The hop.
          hop: Its edges.
          signals: What its senders can read, each [S, *].
          words: Random words [2] of a training step; None to predict.
          neighbours: F(A) Psi [R, *] if it is known; edges are not read then.
          products: Products of sparse features with its weights, if they are known.
          labels: F(A) Y [R, C] with dropout, if it is known.
          mask: 1 for the real ones of the first receivers, the roots, which the
            statistics of a normalised batch are of; None if all receivers are.
        """
        kernel = self.kernel
        if not kernel.learned_hops:
            weights = self.hops[k - 1]
            out = propagate(kernel, weights, hop, signals, neighbours=neighbours)
            return out + signals.h[: hop.num_receivers] if self._skips(k) else out
        signals = Signals(*(self._rounded(signal) for signal in signals))
        y = drop(words, _SUMMARY, signals.y, self.summary_dropout)
        signals = signals._replace(y=y)
        if k == 1 and not kernel.input_layer:
            x = drop(words, 0, signals.h, self.dropout)  # The mask of `embed`.
            dropped = signals._replace(h0=x, h=x)
        else:
            dropped = signals._replace(
                h0=drop(words, 3 * k, signals.h0, self.dropout),
                h=drop(words, 3 * k + 1, signals.h, self.dropout),
            )
        draws = None
        if words is not None and kernel.aggregate.ordered:
            draw = words.words if isinstance(words, random_bits.NodeWords) else words
            draws = random_bits.bits(draw, 3 * k + 2, hop.graph.senders.shape[0])
        weights = self.hops[k - 1]
        out = propagate(
            kernel, weights, hop, dropped, draws, neighbours, products, labels
        )
        if kernel.second_layer:
            matrix, bias = self.second[k - 1]
            inner = drop(words, _SECOND + k, nn.relu(out), self.dropout)
            out = matmul(inner, matrix)
            out = out if bias is None else out + bias[None, :]
        if self.norms[k - 1]:
            out = self._normalized(out, self.norms[k - 1], words, mask)
        if self._skips(k):
            # A first hop that reads X has no h_0 yet to skip from.
            raw = k == 1 and not kernel.input_layer
            h = self.embed(signals.h, words, products) if raw else signals.h
            out += h[: hop.num_receivers]
        return nn.relu(out).astype(self.precision)

    def _normalized(
        self,
        x: jax.Array,
        weights: dict[str, jax.Array],
        words: jax.Array | None,
        mask: jax.Array | None,
    ) -> jax.Array:
        """Return x [R, *] with mean 0 and variance 1, then scaled and shifted.

        Over the columns of each row ("layer"), or over rows ("batch"): while training
        over the roots of the batch, and to predict by running means of these.
        """
        wide = x.astype(jnp.float32)
        if self.norm == "layer":
            mean_of = wide.mean(axis=1, keepdims=True)
            variance = wide.var(axis=1, keepdims=True)
        elif words is None:
            mean_of, variance = (weights[name][None, :] for name in _STATISTICS)
        else:
            ones = jnp.ones(wide.shape[0]) if mask is None else mask
            share = (ones / jnp.maximum(jnp.sum(ones), 1))[:, None]
            roots = wide[: ones.shape[0]]
            mean_of = jnp.sum(share * roots, axis=0, keepdims=True)
            variance = jnp.sum(share * (roots - mean_of) ** 2, axis=0, keepdims=True)
            seen = jax.lax.stop_gradient((mean_of[0], variance[0]))
            for name, now in zip(_STATISTICS, seen, strict=True):
                # Its gradient is how far the running mean is from that of this batch.
                self.sow("drift", "all", 0.5 * jnp.sum((weights[name] - now) ** 2))
        out = (wide - mean_of) * jax.lax.rsqrt(variance + _SMALLEST_VARIANCE)
        out = out * weights["scale"][None, :] + weights["shift"][None, :]
        return out.astype(x.dtype)

    @staticmethod
    def update_statistics(new: dict, old: dict, gradient: dict) -> dict:
        """Return new weights in which statistics of batches are running means.

        Args:
          new: Weights after a training step.
          old: Weights before it.
          gradient: The gradient of the loss with its "drift".
        """
        names = [n for n in old if n.startswith("n_") and n.endswith(_STATISTICS)]
        return new | {n: old[n] - _MOMENTUM * gradient[n] for n in names}

    def _rounded(self, signal: Matrix) -> Matrix:
        """Return a dense signal in the precision of products, before it is gathered."""
        if signal is None or isinstance(signal, SparseMatrix):
            return signal
        return signal.astype(self.precision)

    def first_products(self, x: Matrix, words: jax.Array | None) -> Products | None:
        """Return products of sparse features with both weights of the first hop.

        None where features are dense, or where the hop lacks one of the weights.
        """
        kernel = self.kernel
        reads = all(set(names) - {"y"} for names in (kernel.phi, kernel.psi))
        linear = kernel.reads_input_linearly and not kernel.shared_weights
        if not (isinstance(x, SparseMatrix) and self.hops and reads and linear):
            return None
        dropped = drop(words, 0, x, self.dropout)
        return first_products(kernel, self.hops[0], dropped, self.sizes.features)

    def input_products(self, x: Matrix) -> tuple[jax.Array | None, jax.Array | None]:
        """Return products [N, H] of features with the first hop's W_phi and W_psi.

        None for a part that reads no features, and for W_psi where weights are shared.
        """
        kernel, weights = self.kernel, self.hops[0]

        def product(names: tuple, matrix: Any) -> jax.Array | None:
            if not set(names) - {"y"}:
                return None
            return matmul(x, feature_rows(names, matrix, self.sizes.features))

        own = product(kernel.phi, weights.phi)
        shared = kernel.shared_weights
        return own, None if shared else product(kernel.psi, weights.psi)

    def _skips(self, k: int) -> bool:
        return 0 < self.kernel.skip_from <= k

    def votes(self, hop: HopGraph, y: jax.Array) -> jax.Array:
        """Return the F(A) Y [R, C] that the output layer of a kernel with votes reads.

        Args:
          hop: The edges to the roots.
          y: Label summaries of its senders, [S, C].
        """
        assert self.kernel.votes is not None
        return self.kernel.votes(hop, self._rounded(y), {})

    def readout(
        self,
        h: jax.Array,
        words: jax.Array | None = None,
        votes: jax.Array | None = None,
    ) -> jax.Array:
        """Return the logits [R, C] of what `run_hops`, and `votes`, returned."""
        if self.kernel.reads_out == "weighted":
            each = h.reshape(h.shape[0], self.gamma.shape[0], -1)  # [R, K + 1, H]
            h = jnp.sum(self.gamma[None, :, None] * each, axis=1).astype(h.dtype)
        elif self.kernel.reads_out == "each":
            stops = itertools.accumulate(matrix.shape[0] for matrix, _ in self.read)
            parts = jnp.split(drop(words, _READ, h, self.dropout), list(stops)[:-1], 1)
            read = [
                nn.relu(matmul(part, matrix) + (0 if bias is None else bias[None, :]))
                for part, (matrix, bias) in zip(parts, self.read, strict=True)
            ]
            h = jnp.concatenate(read, axis=1)
        dropped = drop(words, 1, h, self.dropout)
        if votes is not None:
            votes = drop(words, _SUMMARY, votes, self.summary_dropout)
            dropped = jnp.concatenate([dropped, votes], axis=1)
        logits = matmul(dropped, self.w_output)
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
        """Return the logits [R, C] of the roots of a batch.

        Args:
          batch: A padded subgraph.
          x: Features of its nodes, [N, F].
          summary: Label summaries of its nodes, [N, C].
          words: Random words [2] of a training step; None to predict.
          neighbours: What its nodes read from their neighbours at hop 1, [N, *], if it
            is precomputed; the batch then reaches one hop less.
        """
        steps = _BatchSteps(self, batch, x, summary, words, neighbours)
        h = run_hops(self.kernel, self.num_layers, steps)
        return self.readout(*steps.read(h))

    def with_roughness(
        self, batch: Batch, x: Matrix, summary: Any, words: Any, neighbours: Any
    ) -> tuple[jax.Array, jax.Array]:
        """Return the logits of the roots, and how rough their embeddings are, [R].

        That is the mean of ||h_v - h_u||^2 over the neighbours u of a root v, at the
        last hop but one, for kernels that compute it for neighbours.
        """
        steps = _BatchSteps(self, batch, x, summary, words, neighbours)
        h = run_hops(self.kernel, self.num_layers, steps)
        return self.readout(*steps.read(h)), roughness(*steps.last)


@functools.lru_cache(maxsize=64)
def _declared_by(net: Net) -> tuple[Declaration, ...]:
    """Return the weights of a net in the order in which it declares them."""
    start = functools.partial(net.init, method="declare")
    with declarations() as found:
        jax.eval_shape(lambda: start(jax.random.key(0)))
    return tuple(found)


class _BatchSteps:
    """The steps of `run_hops` on a batch: each hop computes what the next ones read."""

    def __init__(self, net, batch, x, summary, words, neighbours):
        if words is not None and net.noise == "node":
            words = random_bits.NodeWords(words, jnp.asarray(batch.graph.nodes["id"]))
        self.net, self.batch, self.x, self.words = net, batch, x, words
        self.summary, self.neighbours = summary, neighbours
        self.products = net.first_products(x, words)
        self.labels = self._labels()
        self.last: Any = None  # The edges and the input of the last hop.

    def features(self) -> Matrix:
        return self.net.readable(self.x)

    def embed(self, away: int) -> Matrix:
        kernel, x = self.net.kernel, self.x
        if not kernel.input_layer and "h0" not in kernel.psi:
            x = first_rows(x, self._hop_graph(away).num_receivers)
        return self.net.embed(x, self.words, self.products, self.batch.mask)

    def hop(self, k: int, away: int, h0: Matrix, h: Matrix) -> jax.Array:
        hop, signals = self._hop_graph(away), Signals(h0, h, self.summary)
        if self.net.kernel.psi:
            signals = Signals(*(first_rows(s, _senders(hop)) for s in signals))
        self.last = hop, signals.h
        labels = first_rows(self.labels, hop.num_receivers)
        known = (self.neighbours, self.products) if k == 1 else (None, None)
        mask = self.batch.mask
        return self.net.hop(k, hop, signals, self.words, *known, labels, mask)

    def join(self, hops: list[Matrix]) -> jax.Array:
        roots = self.batch.labels.shape[0]
        return jnp.concatenate([self.net._rounded(h[:roots]) for h in hops], axis=1)

    def read(self, h: Matrix) -> tuple[Any, ...]:
        """Return what the output layer reads, of the roots."""
        if self.net.kernel.votes is None:
            return h, self.words
        hop = self.batch.hop_graph(0)
        votes = self.net.votes(hop, first_rows(self.summary, _senders(hop)))
        # Without hops, h is the features of all nodes of the batch.
        own = to_dense(h, self.net.sizes.features)[: hop.num_receivers]
        return own, self.words, votes

    def _labels(self) -> jax.Array | None:
        """Return F(A) Y with dropout, for all hops; None where it is part of Psi.

        Dropout comes after the sum: before it, the many neighbours would average it
        out, and F(A) Y has as few columns as there are labels.
        """
        net, kernel, rate = self.net, self.net.kernel, self.net.summary_dropout
        apart = kernel.aggregate.linear and not kernel.shared_weights
        reads = "y" in kernel.psi and net.num_layers > 0 and self.neighbours is None
        if self.words is None or not rate or not (reads and apart):
            return None
        hop = self._hop_graph(net.num_layers - 1)
        y = first_rows(net._rounded(self.summary), _senders(hop))
        return drop(self.words, _SUMMARY, kernel.aggregate(hop, y, {}), rate)

    def _hop_graph(self, away: int) -> HopGraph:
        # If no hop reads the hidden states of neighbours, only the roots are needed.
        return self.batch.hop_graph(away if "h" in self.net.kernel.psi else 0)


def _senders(hop: HopGraph) -> int:
    return hop.graph.nodes["degree"].shape[0]


def roughness(hop: HopGraph, h: jax.Array) -> jax.Array:
    """Return the mean of ||h_v - h_u||^2 over the neighbours u of each receiver v, [R].

    With m the mean over neighbours, that is ||h_v||^2 - 2 h_v m(h) + m(||h||^2).
    """
    h = h.astype(jnp.float32)
    own, square = h[: hop.num_receivers], jnp.sum(h * h, axis=1, keepdims=True)
    read = mean(hop, jnp.concatenate([h, square], axis=1), {})  # [R, H + 1]
    near = hop.graph.nodes["degree"][: hop.num_receivers] > 0
    apart = square[: hop.num_receivers, 0] - 2 * jnp.sum(own * read[:, :-1], axis=1)
    return jnp.where(near, apart + read[:, -1], 0)


def first_rows(signal: Matrix, count: int) -> Matrix:
    """Return the first rows of a dense signal; sparse ones are sliced later."""
    if signal is None or isinstance(signal, SparseMatrix):
        return signal
    return signal[:count]


def drop(
    words: jax.Array | random_bits.NodeWords | None,
    site: int,
    x: Matrix,
    rate: float | Rate,
) -> Matrix:
    """Apply dropout to x [n, *] of the first nodes; of a sparse matrix, to non-zeros.

    Every `site` has its own random bits: 0 for the features, 1 for the output layer, 2
    for label summaries, and 3k, 3k + 1 for h_0 and h at hop k.
    """
    if words is None or rate == 0 or x is None:
        return x
    if isinstance(x, SparseMatrix):
        values = x.values
        if isinstance(words, random_bits.NodeWords):
            rows = row_of_entry(x.rows.indptr, values.shape[0])
            draw = random_bits.bits_of_entries(words, site, rows, x.rows.indices)
        else:
            draw = random_bits.bits(words, site, values.size)
        return x._replace(values=_dropped(draw, values, rate))
    if isinstance(words, random_bits.NodeWords):
        draw = random_bits.bits_of_rows(words, site, x.shape)
    else:
        draw = random_bits.bits(words, site, x.size).reshape(x.shape)
    return _dropped(draw, x, rate)


def _dropped(draw: jax.Array, x: Any, rate: float | Rate) -> jax.Array:
    if isinstance(rate, Rate):
        return jnp.where(draw >= rate.threshold, x / rate.kept.astype(x.dtype), 0)
    return jnp.where(draw >= jnp.uint32(rate * 2**32), x / (1 - rate), 0)

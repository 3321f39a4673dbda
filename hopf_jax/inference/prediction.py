"""Predictions for all nodes, hop by hop over the whole graph: linear in its edges."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hopf_jax.batching import SparseMatrix, fill, round_up, to_dense
from hopf_jax.inference.whole_graph import (
    Chunk,
    WholeGraph,
    collect,
    is_small_graph,
)
from hopf_jax.kernels import Net, Signals, run_hops
from hopf_jax.runtime import compiled, gather_rows


def predict_logits(
    net: Net,
    params: dict,
    whole: WholeGraph,
    summary: np.ndarray | None,
    with_hidden: bool = False,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return logits [all nodes, C], and h_K [all nodes, *] if asked for.

    In a job of several processes each computes its share, and they exchange the rows.
    Arguments are those of `predict_own`.
    """
    logits, hidden = predict_own(net, params, whole, summary, with_hidden)
    if whole.shared:  # The one exchange per iteration.
        logits = np.concatenate(gather_rows(logits))
        hidden = None if hidden is None else np.concatenate(gather_rows(hidden))
    return logits, hidden


def predict_own(
    net: Net,
    params: dict,
    whole: WholeGraph,
    summary: np.ndarray | None,
    with_hidden: bool = False,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return logits [n, C] of a graph's own nodes, and h_K [n, *] if asked for.

    Args:
      net: The kernel and its widths.
      params: Its weights.
      whole: The graph in chunks.
      summary: Label summaries [all nodes, *], or None where the kernel reads none.
      with_hidden: Also return h_K; None otherwise.
    """
    params = jax.device_put(params)  # Once, rather than with every chunk.
    # Kernels that do not iterate predict once, so that one program gains little, and it
    # would round differently for symmetric aggregators.
    constant = net.kernel.constant
    at_once = net.kernel.iterative or whole.few_programs
    # Hops without weights share a program anyway.
    at_once |= net.kernel.learned_hops and is_small_graph(whole.graph, net.sizes.hidden)
    if whole.single and at_once and not constant:
        (chunk,) = whole.chunks()
        x = whole.features(chunk, senders=True)
        found = _predict_at_once(net, with_hidden, params, chunk.batch, x, summary)
        return jax.device_get(found)
    steps = _ChunkSteps(net, params, whole, summary)

    def run() -> np.ndarray:
        return steps.stored(run_hops(net.kernel, net.num_layers, steps))

    same = ("hops", net.kernel, net.num_layers)
    h = whole.keep(same, lambda: jax.device_put(run())) if constant else run()
    votes = steps.votes()
    logits = np.zeros((whole.counts[0], net.sizes.labels), np.float32)
    for a, b in whole.spans():
        part, *said = (
            rows if whole.single else fill(np.asarray(rows[a:b]), round_up(b - a), 0)
            for rows in (h, votes)
            if rows is not None
        )
        read = (part, None, *said) if said else (part,)
        logits[a:b] = jax.device_get(_call(net, "readout", params, *read))[: b - a]
    return logits, jax.device_get(h) if with_hidden else None


@compiled(num_static=2, stage="prediction")
def _predict_at_once(net, with_hidden, params, batch, x, summary):
    """`predict_logits` of a graph that is one chunk, as one program."""
    steps = _OneProgramSteps(net, params, batch, x, summary)
    h = to_dense(run_hops(net.kernel, net.num_layers, steps), net.sizes.features)
    read: tuple[Any, ...] = (h,)
    if net.kernel.votes is not None:
        read = h, None, steps.call("votes", steps.graph, summary)
    return steps.call("readout", *read), h.astype(jnp.float32) if with_hidden else None


class _OneProgramSteps:
    """The steps of `run_hops` on one chunk, within one program."""

    def __init__(self, net, params, batch, x, summary):
        self.net, self.params, self.x, self.summary = net, params, x, summary
        self.graph = batch.hop_graph(0)

    def call(self, method, *arguments):
        # The barrier prevents fusion, so that rounding is that of separate programs.
        out = self.net.apply({"params": self.params}, *arguments, method=method)
        return jax.lax.optimization_barrier(out)

    def features(self):
        return self.call("readable", self.x)

    def embed(self, away):
        return self.call("embed", self.x)

    def hop(self, k, away, h0, h):
        return self.call("hop", k, self.graph, Signals(h0, h, self.summary))

    def join(self, hops):
        return jnp.concatenate(hops, axis=1)


class _ChunkSteps:
    """The steps of `run_hops` chunk by chunk, with signals on the host.

    A signal is an array [nodes, *], or None for the features.
    """

    def __init__(
        self, net: Net, params: dict, whole: WholeGraph, summary: np.ndarray | None
    ):
        self.net, self.params, self.whole, self.summary = net, params, whole, summary

    def features(self) -> None:
        return None

    def embed(self, away: int) -> np.ndarray:
        layers, whole = self.net.num_layers, self.whole
        parts = (
            (c, _call(self.net, "embed", self.params, whole.features(c, senders=False)))
            for c in whole.chunks(layers)
        )
        return collect(parts, whole.count(layers))

    def hop(self, k: int, away: int, h0: Any, h: Any) -> np.ndarray:
        kernel = self.net.kernel
        # A first hop may read the features for both; later h_0 is not gathered for
        # kernels that do not read it.
        apart = h is not None and "h0" in kernel.phi + kernel.psi
        read = (h0 if apart else h), h
        if not kernel.learned_hops:  # From the second on, linear hops are one program.
            k = min(k, max(2, kernel.skip_from))
        parts = (
            (c, _hop(self.net, k, self.params, c.batch, self._signals(c, *read)))
            for c in self.whole.chunks(away)
        )
        return collect(parts, self.whole.count(away))

    def join(self, hops: list[Any]) -> np.ndarray:
        count = self.whole.counts[0]
        return np.concatenate([self.stored(h)[:count] for h in hops], axis=1)

    def votes(self) -> np.ndarray | None:
        """Return what the output layer reads of the labels of neighbours, if any."""
        if self.net.kernel.votes is None or self.summary is None:
            return None
        y = self.summary
        parts = (
            (
                c,
                _votes(self.net, self.params, c.batch, self.whole.rows(c, y)),
            )
            for c in self.whole.chunks()
        )
        return collect(parts, self.whole.count())

    def stored(self, h: np.ndarray | None) -> np.ndarray:
        """Return a signal as an array, with features as dense ones."""
        if h is not None:
            return h
        width, whole = self.net.sizes.features, self.whole
        parts = [
            to_dense(whole.features(c, senders=False), width)[: c.stop - c.start]
            for c in whole.chunks()
        ]
        return np.concatenate(parts)

    def _signals(self, chunk: Chunk, h0: Any, h: Any) -> Signals:
        summary = self.summary
        y = None if summary is None else self.whole.rows(chunk, summary)
        own = self._rows(chunk, h0)
        return Signals(own, own if h is h0 else self._rows(chunk, h), y)

    def _rows(self, chunk: Chunk, signal: np.ndarray | None) -> Any:
        if signal is not None:
            return self.whole.rows(chunk, signal, placed=True)
        x = self.whole.features(chunk, senders=True)
        if not isinstance(x, SparseMatrix):
            return x
        return _call(self.net, "readable", self.params, x)


@compiled(num_static=2, stage="prediction")
def _call(net, method, params, *x):
    return net.apply({"params": params}, *x, method=method)


@compiled(num_static=1, stage="prediction")
def _votes(net, params, batch, y):
    return net.apply({"params": params}, batch.hop_graph(0), y, method="votes")


@compiled(num_static=2, stage="prediction")
def _hop(net, k, params, batch, signals):
    graph = batch.hop_graph(0)
    return net.apply({"params": params}, k, graph, signals, method="hop")

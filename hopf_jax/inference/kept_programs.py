"""The compiled programs that compute some rows of the signals of a kept replay."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jraph

from hopf_jax.batching import HopGraph, Rows, SparseMatrix, row_of_entry, to_dense
from hopf_jax.inference.summaries import member_of
from hopf_jax.kernels import Net, Products, Signals

_PROGRAMS_KEPT = 8  # Nets whose compiled programs are kept.


class Programs:
    """The compiled programs of a net, for signals with an axis of members [n, M, *]."""

    def __init__(
        self, net: Net, members: int, with_hidden: bool, multilabel: bool
    ) -> None:
        self.net, self.members = net, members
        self.with_hidden, self.multilabel = with_hidden, multilabel
        self._hops: dict[tuple[int, bool], Any] = {}

    @functools.cached_property
    def embed(self) -> Any:
        """(params, features) -> h_0 [n, M, H]."""
        return jax.jit(lambda params, x: self._each(self._embed, params, (), (x,)))

    @functools.cached_property
    def products(self) -> Any:
        """(params, features) -> X W_phi and X W_psi, each [n, M, H] or None."""

        def one(params, x):
            found = self._apply(params, "input_products", x)
            return [f if f is None else f.astype(jnp.float32) for f in found]

        return jax.jit(lambda params, x: self._each(one, params, (), (x,)))

    @functools.cached_property
    def votes(self) -> Any:
        """(params, edges, y [n, views, C]) -> F(A) Y [R, views, C]."""

        def run(params, edges, y):
            params = member_of(params, 0, self.members)  # It has no weights: any.
            graph = _local_graph(*edges)
            return jax.vmap(lambda y: self._apply(params, "votes", graph, y), 1, 1)(y)

        return jax.jit(run)

    @functools.cached_property
    def readout(self) -> Any:
        """(params, signals of all hops, votes) -> probabilities [n, M, C], h_K.

        Votes are [n, views, C], or None; and so is h_K unless it is read.
        """

        def run(params, signals, votes):
            raw = [isinstance(s, SparseMatrix) or s.ndim == 2 for s in signals]
            mine = [s for s, shared in zip(signals, raw, strict=True) if not shared]
            x = [s for s, shared in zip(signals, raw, strict=True) if shared]

            def one(params, mine, own_votes, x, shared_votes):
                left, right = iter(mine), iter(x)
                width = self.net.sizes.features
                hops = [
                    to_dense(next(right), width) if shared else next(left)
                    for shared in raw
                ]
                votes = shared_votes if own_votes is None else own_votes
                return self._read_out(
                    params, jnp.concatenate(hops, axis=1), None, votes
                )

            own_votes, shared_votes = _by_member(votes)
            return self._each(one, params, (mine, own_votes), (x, shared_votes))

        return jax.jit(run)

    def hop(self, k: int, readout: bool) -> Any:
        """Return the program of hop k; with the last one, of the output layer too."""
        if (k, readout) not in self._hops:
            program = jax.jit(functools.partial(self._hop, k, readout))
            self._hops[k, readout] = program
        return self._hops[k, readout]

    def _hop(self, k, readout, params, edges, h0, h, y, products, read):
        hop = _local_graph(*edges)
        own_y, shared_y = _by_member(y)
        neighbours, labels = read
        own_labels, shared_labels = _by_member(labels)
        raw = h is not None and (isinstance(h, SparseMatrix) or h.ndim == 2)

        def one(params, mine, shared):
            h0, h, y, products, neighbours, labels = mine
            x, shared_y, shared_labels = shared
            h, y = x if h is None else h, shared_y if y is None else y
            labels = shared_labels if labels is None else labels
            known = None
            if products is not None:
                known, h = Products(*products), _no_features(edges[1].shape[0])
            elif x is not None:
                h = self._apply(params, "readable", x)
            signals = Signals(h if h0 is None else h0, h, y)
            out = self._apply(
                params, "hop", k, hop, signals, None, neighbours, known, labels
            )
            return self._read_out(params, out) if readout else out.astype(jnp.float32)

        if self.net.kernel.constant:
            first = member_of(params, 0, self.members)
            h0 = None if h0 is None else self._apply(first, "readable", h0)
            mine = h0, None, None, None, neighbours, None
            return one(first, mine, (h, None, None))
        mine = h0, None if raw else h, own_y, products, neighbours, own_labels
        shared = h if raw else None, shared_y, shared_labels
        return self._each(one, params, (mine,), (shared,))

    def _embed(self, params, x):
        return self._apply(params, "embed", x).astype(jnp.float32)

    def _read_out(self, params, h, *more):
        logits = self._apply(params, "readout", h, *more)
        act = jax.nn.sigmoid if self.multilabel else jax.nn.softmax
        return act(logits), h.astype(jnp.float32) if self.with_hidden else None

    def _apply(self, params, method, *arguments):
        return self.net.apply({"params": params}, *arguments, method=method)

    def _each(self, function, params, mine, shared):
        """Apply a function for each member; its results get an axis 1 of members."""
        if self.members == 1:
            mine = jax.tree.map(lambda array: array[:, 0], mine)
            found = function(params, *mine, *shared)
            return jax.tree.map(lambda array: array[:, None], found)
        each = jax.vmap(lambda p, m: function(p, *m, *shared), (0, 1), 1)
        return each(params, mine)


@functools.lru_cache(maxsize=_PROGRAMS_KEPT)
def programs_of(*arguments: Any) -> Programs:
    """Return the programs of a net; see `Programs`."""
    return Programs(*arguments)


def _by_member(y):
    """Return [n, views, *] where members read their own, [n, *] where not."""
    if y is None or y.shape[1] > 1:
        return y, None
    return None, y[:, 0]


def _local_graph(indptr, degree, weights) -> HopGraph:
    """Return the edges into R receivers, which R + e sends along edge e.

    Without `indptr` there are none.
    """
    if indptr is None:
        indptr = jnp.zeros(degree.shape[0] + 1, jnp.int32)
    receivers = indptr.shape[0] - 1
    edges = degree.shape[0] - receivers
    senders = receivers + jnp.arange(edges, dtype=jnp.int32)
    if weights is None:
        weights = jnp.ones(edges, jnp.float32)
    graph = jraph.GraphsTuple(
        nodes={"degree": degree},
        edges={"weight": weights},
        senders=senders,
        receivers=row_of_entry(indptr, edges),
        n_node=None,
        n_edge=None,
        globals=None,
    )
    return HopGraph(graph, Rows(indptr, senders), receivers)


def _no_features(count: int) -> SparseMatrix:
    """Return a sparse matrix without entries, where products stand for the features."""
    empty = Rows(jnp.zeros(count + 1, jnp.int32), jnp.zeros(1, jnp.int32))
    return SparseMatrix(empty, jnp.zeros(1, jnp.float32))

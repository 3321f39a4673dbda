"""What the first hop reads of neighbours, computed once where it is a constant.

At the first hop Psi is the features and the label summary. Where neither dropout nor
sampling stands before it, F(A) Psi is the same in every step of an iteration: computed
ahead for all nodes, it takes the outermost hop, the largest, out of every batch.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp

from hopf_jax.config import Config
from hopf_jax.graph import Graph
from hopf_jax.inference import Chunk, WholeGraph, collect
from hopf_jax.models import Row
from hopf_jax.sparse import Array


def known_ahead(graph: Graph, row: Row, config: Config) -> bool:
    """Whether F(A) Psi of the first hop is a constant, and as small as the features.

    These are on the device then too. A memory budget plays no part, so that streamed
    and resident training come to the same numbers.
    """
    layers = row.num_layers(config.num_hops)
    asked = config.precompute and row.reads_input_linearly and layers
    if not asked or row.reach(layers) != layers:
        return False
    features = graph.features
    dense = not sp.issparse(features) and not isinstance(features, np.memmap)
    return dense and config.dropout == 0 and config.fanouts is None


class FirstHop:
    """F(A) Psi of the first hop, [all nodes, *], chunk by chunk.

    The features' part is the same in all iterations, and computed once.

    Args:
      row: the model; F(A) and Psi are its.
      whole: the graph in chunks, all of it; its features are dense, and at a first hop
        h_0 and h are the features.
    """

    def __init__(self, row: Row, whole: WholeGraph):
        self._row, self._whole = row, whole
        self._read: Any = None
        if row.psi != ("y",):
            read = self._aggregated(lambda c: whole.features(c, senders=True))
            self._read = jax.device_put(read)

    def neighbours(self, summary: np.ndarray | None) -> tuple[Array, ...]:
        """Blocks [all nodes, *] that stand side by side, one a signal of Psi.

        With these label summaries [all nodes, *]; None where the row reads none.
        """

        def read(chunk: Chunk) -> Any:
            return self._whole.rows(chunk, np.asarray(summary))

        return tuple(
            self._aggregated(read) if name == "y" else self._read
            for name in self._row.psi
        )

    def _aggregated(self, read: Callable[[Chunk], Any]) -> np.ndarray:
        chunks = self._whole.chunks()
        parts = ((c, _aggregate(self._row, c.batch, read(c))) for c in chunks)
        return collect(parts, self._whole.count())


@functools.partial(jax.jit, static_argnames=("row",))
def _aggregate(row, batch, x):
    graph, receivers = batch.hop_graph(0)
    return row.aggregate.apply(graph, x, receivers, {}, None)

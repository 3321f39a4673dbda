"""What the first hop reads of neighbours, computed once where it is a constant.

At the first hop Psi is the features and the label summary. Where neither dropout nor
sampling stands before it, F(A) Psi is the same in every step of an iteration: computed
ahead for all nodes, it takes the outermost hop, the largest, out of every batch.
"""

import functools
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp

from hopf_jax.config import Config
from hopf_jax.graph import Graph
from hopf_jax.inference import WholeGraph, collect, rows_of
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
      graph: with dense features, which h_0 and h are at a first hop.
      row: the model; F(A) and Psi are its.
      whole: the graph in chunks, all of it.
    """

    def __init__(self, graph: Graph, row: Row, whole: WholeGraph):
        self._row, self._whole = row, whole
        self._read: Any = None
        if row.psi != ("y",):
            x = whole.all_features() if whole.single else np.asarray(graph.features)
            self._read = jax.device_put(self._aggregated(x))

    def neighbours(self, summary: np.ndarray | None) -> tuple[Array, ...]:
        """Blocks [all nodes, *] that stand side by side, one a signal of Psi.

        With these label summaries [all nodes, *]; None where the row reads none.
        """
        return tuple(
            self._aggregated(np.asarray(summary)) if name == "y" else self._read
            for name in self._row.psi
        )

    def _aggregated(self, x: Any) -> np.ndarray:
        row, whole = self._row, self._whole
        return collect(
            (
                (c, _aggregate(row, c.batch, x if whole.single else rows_of(c, x)))
                for c in whole.chunks()
            ),
            len(x),
        )


@functools.partial(jax.jit, static_argnames=("row",))
def _aggregate(row, batch, x):
    graph, receivers = batch.hop_graph(0)
    return row.aggregate.apply(graph, x, receivers, {}, None)

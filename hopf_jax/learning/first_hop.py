"""What the first hop reads from neighbours, computed once where it is constant.

At the first hop Psi is the features and the label summary. Where neither dropout nor
sampling comes before it, F(A) Psi is the same in every step of an iteration: computed
once for all nodes, it takes the outermost hop, the largest, out of every batch.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from hopf_jax.batching import Array
from hopf_jax.inference import Chunk, WholeGraph, collect
from hopf_jax.kernels import Kernel
from hopf_jax.runtime import compiled


class FirstHop:
    """F(A) Psi of the first hop, [all nodes, *], chunk by chunk.

    The part of the features is the same in all iterations, and computed once.

    Args:
      kernel: The kernel, which defines F(A) and Psi.
      whole: The whole graph in chunks, with dense features; at a first hop h_0 and h
        are the features.
    """

    def __init__(self, kernel: Kernel, whole: WholeGraph):
        self._kernel, self._whole = kernel, whole
        self._read: Any = None
        if kernel.psi != ("y",):
            read = self._aggregated(lambda c: whole.features(c, senders=True))
            self._read = jax.device_put(read)

    def neighbours(self, summary: np.ndarray | None) -> tuple[Array, ...]:
        """Return one block [all nodes, *] per signal of Psi.

        Args:
          summary: Label summaries [all nodes, *], or [views, all nodes, *]; None where
            the kernel reads none.
        """
        return tuple(
            self._labels(np.asarray(summary)) if name == "y" else self._read
            for name in self._kernel.psi
        )

    def _labels(self, summary: np.ndarray) -> np.ndarray:
        if summary.ndim > 2:
            return np.stack([self._labels(view) for view in summary])
        return self._aggregated(functools.partial(self._whole.rows, array=summary))

    def _aggregated(self, read: Callable[[Chunk], Any]) -> np.ndarray:
        chunks = self._whole.chunks()
        parts = ((c, _aggregate(self._kernel, c.batch, read(c))) for c in chunks)
        return collect(parts, self._whole.count())


@compiled(num_static=1)
def _aggregate(kernel, batch, x):
    return kernel.aggregate(batch.hop_graph(0), x, {})

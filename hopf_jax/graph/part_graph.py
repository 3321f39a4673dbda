"""A part of a graph, with degrees of the whole."""

import dataclasses

import numpy as np

from hopf_jax.graph.graph import Graph


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PartGraph(Graph):
    """Some nodes of a graph with their edges, and the nodes that these come from.

    Attributes:
      degrees: Degrees in the whole graph, [N] float32: the outermost nodes have no rows
        of their own here.
    """

    degrees: np.ndarray = dataclasses.field(kw_only=True)

    @property
    def degree(self) -> np.ndarray:
        """Row sums of the A of the whole graph, [N] float32."""
        return self.degrees

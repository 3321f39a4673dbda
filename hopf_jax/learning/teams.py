"""Teams: the members of one graph, whose probabilities are averaged."""

from typing import NamedTuple

import numpy as np

from hopf_jax.config import Config
from hopf_jax.graph import Graph
from hopf_jax.kernels import Kernel
from hopf_jax.learning.population import Member


class Team(NamedTuple):
    """The members of one graph.

    Attributes:
      graph: The graph as the kernel reads it.
      members: Its members, with seeds of their own.
      parts: The part of each training node, [N], and -1 for other nodes, if summaries
        are cross-fitted: member m learns from all parts but part m. None otherwise.
    """

    graph: Graph
    members: tuple[Member, ...]
    parts: np.ndarray | None = None


def make_team(graph: Graph, kernel: Kernel, config: Config, seed: int) -> Team:
    """Return the members that settings ask for; the first has the seed itself."""
    seeds = [seed, *(_derived(seed, m) for m in range(1, config.members))]
    crossed = config.training_summaries == "cross-fitted"
    if not (crossed and kernel.iterative):
        return Team(graph, tuple(Member(graph, each) for each in seeds))
    if config.summary == "hidden":
        # Nets that start alike have hidden states that mean alike, more or less.
        seeds = [seed] * config.members
    parts = divide(graph, config.members, seed)
    views = np.where(parts < 0, config.members, parts)
    members = (
        Member(graph.with_split(graph.train & (parts != m), graph.validation), s, views)
        for m, s in enumerate(seeds)
    )
    return Team(graph, tuple(members), parts)


def divide(graph: Graph, count: int, seed: int) -> np.ndarray:
    """Return the part of each training node, -1 for others; labels are spread evenly.

    >>> from hopf_jax.datasets import make_chain
    >>> sorted(divide(make_chain(), 2, 0).tolist())
    [-1, -1, -1, -1, 0, 1]
    """
    nodes = np.flatnonzero(graph.train)
    if len(nodes) < count:
        raise ValueError(
            f"Cross-fitting divides {len(nodes)} training nodes among {count} members. "
            "Label more nodes, or lower members."
        )
    nodes = np.random.default_rng([seed, 3]).permutation(nodes)
    nodes = nodes[np.argsort(graph.labels[nodes].argmax(axis=1), kind="stable")]
    parts = np.full(graph.num_nodes, -1)
    parts[nodes] = np.arange(len(nodes)) % count
    return parts


def _derived(seed: int, member: int) -> int:
    return int(np.random.SeedSequence([seed, member]).generate_state(1)[0])

"""Teams: the nets of one graph.

Members predict, and their probabilities are averaged. Where label summaries are
cross-fitted, helpers make those that training nodes read: each learns from all parts of
the training nodes but one, and that part reads what it predicts.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hopf_jax.config import Config
from hopf_jax.graph import Graph, stratified_folds
from hopf_jax.kernels import Kernel
from hopf_jax.learning.population import Member


class Team(NamedTuple):
    """The nets of one graph.

    Attributes:
      graph: The graph as the kernel reads it.
      members: Its members, with seeds of their own.
      helpers: One for each part of the training nodes, which learns from the others.
      parts: The part of each training node, [N], and -1 for other nodes, if summaries
        are cross-fitted. None otherwise.
      folds: What each member learns from and is stopped by, if that differs: `graph`
        with another split. All labels of the folds are training nodes of `graph`.
    """

    graph: Graph
    members: tuple[Member, ...]
    helpers: tuple[Member, ...] = ()
    parts: np.ndarray | None = None
    folds: tuple[Graph, ...] = ()

    @property
    def nets(self) -> tuple[Member, ...]:
        """All that is trained."""
        return self.members + self.helpers

    @property
    def num_views(self) -> int:
        """Number of label summaries: one of all members, and one per partial view."""
        return 1 + len(self.folds or self.helpers)

    @property
    def judged(self) -> Graph:
        """The graph with those nodes for validation that iterations are judged by."""
        if not self.folds:
            return self.graph
        return self.graph.with_split(validation=self.graph.train, test=self.graph.test)


def make_team(graph: Graph, kernel: Kernel, config: Config, seed: int) -> Team:
    """Return the nets that settings ask for; the first has the seed itself."""
    crossed = config.training_summaries == "cross-fitted" and kernel.iterative
    count = config.num_members + (config.parts if crossed else 0)
    seeds = [seed, *(_derived(seed, m) for m in range(1, count))]
    if config.folds:
        return _make_folds(graph, config.folds, seeds)
    if not crossed:
        return Team(graph, tuple(Member(graph, each) for each in seeds))
    if config.summary == "hidden":
        # Nets that start alike have hidden states that mean alike, more or less.
        seeds = [seed] * count
    parts = divide(graph, config.parts, seed)
    views = np.where(parts < 0, config.parts, parts)
    others = [
        graph.with_split(graph.train & (parts != m), graph.validation)
        for m in range(config.parts)
    ]
    learned = [*[graph] * config.num_members, *others]
    nets = [
        Member(each, own, views, helper=i >= config.num_members)
        for i, (each, own) in enumerate(zip(learned, seeds, strict=True))
    ]
    members, helpers = nets[: config.num_members], nets[config.num_members :]
    return Team(graph, tuple(members), tuple(helpers), parts)


def _make_folds(graph: Graph, count: int, seeds: Sequence[int]) -> Team:
    """Return members that learn from all parts of the labels but one.

    Where there are several for each part, the labels are divided anew every time.
    """
    graph = graph.with_split(graph.train | graph.validation, test=graph.test)
    folds = []
    for start in range(0, len(seeds), count):
        parts = stratified_folds(graph, graph.train, count, seeds[start])
        folds += [
            graph.with_split(graph.train & (parts != i), parts == i)
            for i in range(count)
        ]
    members = tuple(
        Member(fold, seed, pool=graph) for fold, seed in zip(folds, seeds, strict=True)
    )
    return Team(graph, members, folds=tuple(folds))


def divide(graph: Graph, count: int, seed: int) -> np.ndarray:
    """Return the part of each training node, -1 for others; labels are spread evenly.

    >>> from hopf_jax.datasets import make_chain
    >>> sorted(divide(make_chain(), 2, 0).tolist())
    [-1, -1, -1, -1, 0, 1]
    """
    nodes = np.flatnonzero(graph.train)
    if len(nodes) < count:
        raise ValueError(
            f"Cross-fitting divides {len(nodes)} training nodes into {count} parts. "
            "Label more nodes, or lower parts."
        )
    nodes = np.random.default_rng([seed, 3]).permutation(nodes)
    nodes = nodes[np.argsort(graph.labels[nodes].argmax(axis=1), kind="stable")]
    parts = np.full(graph.num_nodes, -1)
    parts[nodes] = np.arange(len(nodes)) % count
    return parts


def _derived(seed: int, member: int) -> int:
    return int(np.random.SeedSequence([seed, member]).generate_state(1)[0])

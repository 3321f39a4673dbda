"""A population of one net, trained on batches of a graph in parts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hopf_jax.batching import Neighborhoods
from hopf_jax.config import Config
from hopf_jax.learning import Member, Plan, Population, weights_of_counts
from hopf_jax.parts.loader import PartLoader, Summaries, deal_roots
from hopf_jax.parts.manifest import Part, Parts
from hopf_jax.runtime import StepSharding


class PartPopulation(Population):
    """A single net, whose batches are divided among the parts.

    Args:
      parts: The graph in parts.
      held: The parts of this process.
      arguments: As for `Population`; the member's graph is any of the held parts.
    """

    def __init__(self, parts: Parts, held: Sequence[Part], *arguments: Any):
        self._parts, self._held = parts, held
        super().__init__(*arguments)

    def make_loaders(self, plan: Plan) -> None:
        """Set `loaders` for training and validation nodes."""
        (member,), sharding = self.members, plan.sharding
        assert isinstance(sharding, StepSharding)
        pair = ("train", plan.training), ("validation", plan.validation)
        hops = plan.training.num_hops
        hoods = [Neighborhoods(part.graph, hops) for part in self._held]
        self.loaders = [
            tuple(
                PartLoader(
                    self._held,
                    hoods,
                    deal_roots(self._parts, name, how, member.seed),
                    how,
                    member.seed,
                    sharding,
                )
                for name, how in pair
            )
        ]

    def label_weights(self, member: Member, config: Config) -> np.ndarray:
        """Return label weights from the counts of all parts, [C]."""
        return weights_of_counts(self._parts.train_labels, config.weighted_loss)

    def training_nodes(self, member: Member) -> None:
        """Return None: batches mark their training nodes themselves."""

    def read(self, summaries: Sequence[Summaries] | None, iteration: int) -> Any:
        """Set the inputs of an iteration; return those shared by all batches.

        Args:
          summaries: Functions, one per part, that return label summaries of nodes; None
            if the kernel reads none.
          iteration: The iteration, from 1.
        """
        for loader in self.loaders[0]:
            loader.read(summaries)
        return self.inputs([None], iteration)

"""The net of a run on parts, as a population of one whose batches come from them."""

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
    """One member, whose batches are divided among the parts.

    Args:
      parts: The graph in parts.
      held: The parts of this process.
      arguments: As for `Population`; the member's graph is any of the held parts.
    """

    def __init__(self, parts: Parts, held: Sequence[Part], *arguments: Any):
        self._parts, self._held = parts, held
        super().__init__(*arguments)

    def make_loaders(self, plan: Plan) -> None:
        """Set `loaders`: the batches of training and of validation nodes."""
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
        """Return the weights of labels, by the counts of all parts, [C]."""
        return weights_of_counts(self._parts.train_labels, config.weighted_loss)

    def training_nodes(self, member: Member) -> None:
        """Return None: batches say which of their nodes are training nodes."""

    def read(self, summaries: Sequence[Summaries] | None, iteration: int) -> Any:
        """Give the batches what an iteration reads; return what they share.

        Args:
          summaries: What returns the label summaries of nodes of each part; None if the
            kernel reads none.
          iteration: The iteration, from 1.
        """
        for loader in self.loaders[0]:
            loader.read(summaries)
        return self.inputs([None], iteration)

"""Cases of the benchmark: graphs, and the nets that are trained on them."""

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

from experiments import paper
from hopf_jax import Config, Graph
from hopf_jax.datasets import load_dataset, make_random

_SIZES = paper.SCALING


@dataclasses.dataclass(frozen=True)
class Case:
    """A graph and the net that is trained on it."""

    name: str
    load: Callable[[], Graph]
    config: Config
    extended: bool = False  # Measured with --all only.

    def settings(self, multilabel: bool) -> dict[str, Any]:
        """Return what the workers of all sides need to know."""
        names = (
            *("num_hops", "hidden_size", "batch_size", "fanouts", "dropout"),
            *("learning_rate", "l2", "clip", "precompute"),
        )
        settings = {name: getattr(self.config, name) for name in names}
        return settings | {"multilabel": multilabel}


def _synthetic(num_nodes: int = _SIZES["num_nodes"]) -> Graph:
    edges = num_nodes * _SIZES["num_edges"] // _SIZES["num_nodes"]
    return make_random(num_nodes, edges, _SIZES["num_features"], _SIZES["num_labels"])


def _paper_case(dataset: str, hidden: int, extended: bool = False) -> Case:
    config = dataclasses.replace(
        paper.config_for(dataset, 2), hidden_size=hidden, fanouts=None, batch_size=128
    )
    return Case(f"{dataset} K=2", lambda: load_dataset(dataset), config, extended)


def _synthetic_case(
    name: str,
    hops: int,
    fanouts: tuple[int, ...] | None = None,
    extended: bool = False,
) -> Case:
    config = Config(
        num_hops=hops,
        hidden_size=_SIZES["hidden"],
        batch_size=_SIZES["batch_size"],
        fanouts=fanouts,
        dropout=0.0,  # As in `make scaling`.
    )
    return Case(f"synthetic {name}", _synthetic, config, extended)


CASES = (
    _paper_case("cora", 16),
    _paper_case("pubmed", 16),
    _synthetic_case("K=1", 1),
    _synthetic_case("K=2", 2),
    _synthetic_case("K=3", 3, extended=True),
    _synthetic_case("25,10", 2, (25, 10), extended=True),
    _paper_case("human-go2022", 128, extended=True),
)
QUICK = Case(
    "quick K=1",
    lambda: _synthetic(1000),
    Config(num_hops=1, hidden_size=8, batch_size=32, dropout=0.0),
)


def named(names: str) -> list[Case]:
    """Return the cases whose names occur in a text, at least one."""
    # A name may contain a comma: "synthetic 25,10".
    chosen = [case for case in CASES if case.name in names]
    if not chosen:
        known = "; ".join(case.name for case in CASES)
        raise argparse.ArgumentTypeError(f"{names!r} has none of: {known}")
    return chosen

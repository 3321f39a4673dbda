"""What `make benchmark` measures: graphs, and the nets that are trained on them."""

import dataclasses
from collections.abc import Callable
from typing import Any

from experiments import paper
from hopf_jax import Config, Graph
from hopf_jax.datasets import load_dataset, make_random


@dataclasses.dataclass(frozen=True)
class Case:
    """A graph and the net that is trained on it."""

    name: str
    load: Callable[[], Graph]
    config: Config
    extended: bool = False  # measured with --all only

    def told(self, multilabel: bool) -> dict[str, Any]:
        """What the workers of all sides are told of it."""
        names = (
            *("num_hops", "hidden_size", "batch_size", "fanouts", "dropout"),
            *("learning_rate", "l2", "clip", "memory_budget", "precompute"),
        )
        settings = {name: getattr(self.config, name) for name in names}
        return settings | {"multilabel": multilabel}


def _synthetic(num_nodes: int | None = None) -> Graph:
    sizes = paper.SCALING
    nodes = num_nodes or sizes["num_nodes"]
    edges = nodes * sizes["num_edges"] // sizes["num_nodes"]
    return make_random(nodes, edges, sizes["num_features"], sizes["num_labels"])


def _paper_config(dataset: str, hidden: int) -> Config:
    config = paper.config_for(dataset, 2)
    return dataclasses.replace(config, hidden_size=hidden, fanouts=None, batch_size=128)


def _synthetic_config(hops: int, fanouts: tuple[int, ...] | None = None) -> Config:
    sizes = paper.SCALING
    # Without dropout, as in `make scaling`.
    return Config(
        num_hops=hops,
        hidden_size=sizes["hidden"],
        batch_size=sizes["batch_size"],
        fanouts=fanouts,
        dropout=0.0,
    )


CASES = (
    Case("cora K=2", lambda: load_dataset("cora"), _paper_config("cora", 16)),
    Case("pubmed K=2", lambda: load_dataset("pubmed"), _paper_config("pubmed", 16)),
    Case("synthetic K=1", _synthetic, _synthetic_config(1)),
    Case("synthetic K=2", _synthetic, _synthetic_config(2)),
    Case("synthetic K=3", _synthetic, _synthetic_config(3), extended=True),
    Case("synthetic 25,10", _synthetic, _synthetic_config(2, (25, 10)), extended=True),
    Case(
        "human-go2022 K=2",
        lambda: load_dataset("human-go2022"),
        _paper_config("human-go2022", 128),
        extended=True,
    ),
)
QUICK = Case(
    "quick K=1",
    lambda: _synthetic(4000),
    Config(num_hops=1, hidden_size=8, batch_size=32, dropout=0.0),
)


def named(names: str) -> list[Case]:
    """The cases whose names are among these; at least one."""
    # A name may have a comma: "synthetic 25,10".
    chosen = [case for case in CASES if case.name in names]
    if not chosen:
        known = "; ".join(case.name for case in CASES)
        raise SystemExit(f"--cases names none of: {known}")
    return chosen

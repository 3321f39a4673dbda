"""The state of a run between two epochs, as checkpoints save and restore it."""

import dataclasses
import importlib
import importlib.metadata
import json
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse as sp

from hopf_jax.config import Config
from hopf_jax.graph import Graph
from hopf_jax.kernels import Kernel, kernel_to_json
from hopf_jax.learning.loss import Params
from hopf_jax.learning.stopping import Patience
from hopf_jax.runtime import digest

_FORMAT = 3  # Of checkpoints; version 0.1 wrote format 1.
_PLAIN = ("iterations", "best", "finished")  # Fields saved as they are.
_UNREAD = ("node_names", "classes")  # Of a graph: what no number depends on.
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")


class State(NamedTuple):
    """The arrays that a training step changes."""

    params: Params
    optimizer: Any


class Progress(NamedTuple):
    """The state of training after an epoch: all that later epochs depend on.

    `take(state, i)` and `take(best, i)` are the states of member i.
    """

    epoch: int
    state: Any
    best: Any
    rules: tuple[Patience, ...]  # One per member.
    take: Callable[[Any, int], State] = operator.getitem


class TeamState(NamedTuple):
    """The state of the members of one graph between two iterations.

    Attributes:
      summaries: Label summaries that the next iteration reads, [views, N, *], or None.
      history: Records of epochs, only ever appended to; the first `num_epochs` belong
        to this state.
      weights, iterations: Weights and records of the iterations completed; weights have
        a leading axis of members where there are several.
      helpers: Weights of the helpers after the last iteration, with a leading axis;
        empty without helpers.
      right: Score of each node that the iteration to report is chosen by, for each of
        these iterations.
      best: The iteration to report so far (from 1).
      probabilities: Output [N, C] of that iteration, as the nets gave it.
      judged: Output [N, C] that it was chosen by; the same, unless members have folds.
      finished: Nothing is left to learn.
    """

    summaries: np.ndarray | None
    history: list[dict[str, Any]]
    num_epochs: int = 0
    weights: tuple[Params, ...] = ()
    iterations: tuple[dict[str, Any], ...] = ()
    helpers: Mapping[str, np.ndarray] = types.MappingProxyType({})
    right: tuple[np.ndarray, ...] = ()
    best: int = 0
    probabilities: np.ndarray = np.zeros(0, np.float32)
    judged: np.ndarray = np.zeros(0, np.float32)
    finished: bool = False


class RunState(NamedTuple):
    """The state of a run: of its teams, one per graph, and of the current iteration."""

    teams: tuple[TeamState, ...]
    progress: Progress | None = None  # None before the first epoch of an iteration.
    num_epochs: int = 0  # So far; an epoch of several members counts once.

    @property
    def finished(self) -> bool:
        """Whether nothing is left to learn."""
        return all(team.finished for team in self.teams)

    def pack(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the state as plain data and named arrays."""
        arrays: dict[str, Any] = {}
        teams = []
        for i, team in enumerate(self.teams):
            plain = {name: getattr(team, name) for name in _PLAIN}
            teams.append({"history": team.history[: team.num_epochs]} | plain)
            arrays[f"{i}.probabilities"] = team.probabilities
            if team.judged is not team.probabilities:
                arrays[f"{i}.judged"] = team.judged
            if team.summaries is not None:
                arrays[f"{i}.summaries"] = team.summaries
            for t, params in enumerate(team.weights, start=1):
                arrays |= {f"{i}.weights.{t}.{name}": w for name, w in params.items()}
            arrays |= {f"{i}.helpers.{n}": w for n, w in team.helpers.items()}
            for t, scores in enumerate(team.right, start=1):
                arrays[f"{i}.right.{t}"] = scores
        data: dict[str, Any] = {"teams": teams, "progress": None}
        data["num_epochs"] = self.num_epochs
        if (progress := self.progress) is not None:
            rules = [dataclasses.asdict(rule) for rule in progress.rules]
            data["progress"] = {"epoch": progress.epoch, "rules": rules}
            for name in ("state", "best"):
                states = jax.device_get(getattr(progress, name))
                for i in range(len(rules)):
                    leaves = jax.tree.leaves(progress.take(states, i))
                    named = {f"{name}.{i}.{j}": leaf for j, leaf in enumerate(leaves)}
                    arrays |= named
        return data, arrays

    @classmethod
    def unpack(
        cls,
        data: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        like: State,
        num_members: int,
        num_helpers: int = 0,
    ) -> "RunState":
        """Return the state that `pack` took apart.

        Args:
          data, arrays: What `pack` returned. Arrays without elements may be missing.
          like: Shapes of the state of one member.
          num_members, num_helpers: Numbers of members and of helpers per team.
        """
        axis = (num_members,) if num_members > 1 else ()

        def found(name: str, leaf: Any, axis: tuple[int, ...] = ()) -> np.ndarray:
            return arrays.get(name, np.zeros((*axis, *leaf.shape), leaf.dtype))

        def states(name: str, count: int) -> tuple[State, ...]:
            leaves, structure = jax.tree.flatten(like)
            each = (
                [found(f"{name}.{i}.{j}", leaf) for j, leaf in enumerate(leaves)]
                for i in range(count)
            )
            return tuple(jax.tree.unflatten(structure, some) for some in each)

        none, shapes = np.zeros(0, np.float32), like.params.items()
        teams = []
        for i, about in enumerate(data["teams"]):
            said = arrays.get(f"{i}.probabilities", none)
            times = range(1, len(about["iterations"]) + 1)
            teams.append(
                TeamState(
                    summaries=arrays.get(f"{i}.summaries"),
                    history=about["history"],
                    num_epochs=len(about["history"]),
                    weights=tuple(
                        {n: found(f"{i}.weights.{t}.{n}", w, axis) for n, w in shapes}
                        for t in times
                    ),
                    iterations=tuple(about["iterations"]),
                    helpers={
                        n: found(f"{i}.helpers.{n}", w, (num_helpers,))
                        for n, w in shapes
                        if num_helpers and about["iterations"]
                    },
                    right=tuple(arrays[f"{i}.right.{t}"] for t in times),
                    best=about["best"],
                    probabilities=said,
                    judged=arrays.get(f"{i}.judged", said),
                    finished=about["finished"],
                )
            )
        progress = None
        if (about := data["progress"]) is not None:
            rules = tuple(Patience(**rule) for rule in about["rules"])
            both = states("state", len(rules)), states("best", len(rules))
            progress = Progress(about["epoch"], *both, rules)
        return cls(tuple(teams), progress, data["num_epochs"])


def identify(
    graphs: Sequence[Graph], kernel: Kernel, config: Config, seeds: Sequence[int]
) -> dict[str, Any]:
    """Return what the numbers of a run depend on, as plain data; graphs as digests.

    Excludes `Execution`, so that a job killed for lack of memory can resume with less.
    """
    versions = {f"version of {n}": importlib.metadata.version(n) for n in _PACKAGES}
    # Of the imported code, which may differ from the installed package.
    package = importlib.import_module(__name__.partition(".")[0])
    versions[f"version of {package.__name__}"] = package.__version__
    settings = {f"config.{n}": v for n, v in dataclasses.asdict(config).items()}
    table = {f"kernel.{n}": v for n, v in kernel_to_json(kernel).items()}
    about: dict[str, Any] = {"format": _FORMAT}
    about |= {f"graph {i}": _digest_graph(graph) for i, graph in enumerate(graphs)}
    about |= {f"seed {i}": seed for i, seed in enumerate(seeds)}
    return about | table | settings | versions | {"backend": jax.default_backend()}


def _digest_graph(graph: Graph) -> str:
    parts: dict[str, Any] = {}
    for field in dataclasses.fields(graph):
        if field.name in _UNREAD:
            continue
        value = getattr(graph, field.name)
        if sp.issparse(value):
            each = ("indptr", "indices", "data")
            parts |= {f"{field.name}.{n}": getattr(value, n) for n in each}
            value = np.asarray(value.shape)
        if not isinstance(value, np.ndarray):
            value = np.frombuffer(json.dumps(value).encode(), np.uint8)
        parts[field.name] = value
    return digest(parts)[:16].hex()

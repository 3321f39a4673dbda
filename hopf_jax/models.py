"""The paper's Table 1 as data: one frozen row a model."""

import dataclasses
import sys
import types
from collections.abc import Mapping
from typing import Literal

import jax

from hopf_jax.aggregators import (
    AGGREGATES,
    Aggregate,
    mean,
    pooled_max,
    random_lstm,
    symmetric,
    total,
)

Signal = Literal["h0", "h", "y"]


@dataclasses.dataclass(frozen=True)
class Gate:
    """alpha or beta as a function of the degree d: scale * (d + 1)^power."""

    scale: float = 1.0
    power: float = 0.0

    def __post_init__(self) -> None:
        """A gate that is no number fails here."""
        for name in ("scale", "power"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not abs(value) <= sys.float_info.max:
                raise ValueError(f"{name} is {value!r:.40}; give a finite number.")

    def __call__(self, degree: jax.Array) -> jax.Array | float:
        """Degrees [R] to weights [R], or one number where the degree plays no part."""
        if not self.power:
            return float(self.scale)
        return self.scale * (degree + 1) ** self.power


one = Gate()
self_loop = Gate(power=-1.0)


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the paper's table of models; each field is one of its columns.

    Attributes:
      phi: what a node reads of itself: "h0" its own embedding, "h" the last hop's,
        "y" the label summary of the last iteration.
      psi: what it reads of its neighbours.
      aggregate: F(A).
      alpha, beta: gates of the node's and of the neighbours' part.
      shared_weights: W_phi = W_psi.
      concat: the two parts are set side by side (GraphSAGE) instead of added.
      skip_from: the first hop k that adds h_{k-1}; 0 for none.
      input_layer: h_0 = relu(X W_0) is a layer of its own (Algorithm 1). Otherwise
        (the paper's definitions, W_1 being [F, H]) the first hop reads X for h_0 and h,
        and h_0 = relu(X W_1_phi) from then on.
      learned_hops: hops have weights and a ReLU; otherwise they are linear.
    """

    phi: tuple[Signal, ...]
    psi: tuple[Signal, ...]
    aggregate: Aggregate
    alpha: Gate = one
    beta: Gate = one
    shared_weights: bool = False
    concat: bool = False
    skip_from: int = 0
    input_layer: bool = False
    learned_hops: bool = True

    def __post_init__(self) -> None:
        """An impossible row fails when it is written, not at epoch 40."""
        for name in ("phi", "psi"):
            signals = getattr(self, name)
            if not isinstance(signals, tuple) or not all(
                isinstance(s, str) and s in ("h0", "h", "y") for s in signals
            ):
                raise ValueError(
                    f"{name} is {signals!r}; it must be a tuple of 'h0', 'h' and 'y'."
                )
            if "y" in signals[1:-1]:
                raise ValueError(f"{name} is {signals}: put 'y' first or last.")
            if len(set(signals)) != len(signals):
                raise ValueError(f"{name} names a signal twice: {signals}.")
        if not self.phi and not self.psi:
            raise ValueError("A row reads something: phi and psi are both empty.")
        if not isinstance(self.aggregate, Aggregate):
            raise ValueError(
                f"aggregate is {self.aggregate!r}; wrap it: Aggregate('name', fn)."
            )
        for name in ("alpha", "beta"):
            if not isinstance(getattr(self, name), Gate):
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; give a Gate, as in Gate(0.5)."
                )
        for name in ("shared_weights", "concat", "input_layer", "learned_hops"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; use True or False."
                )
        if type(self.skip_from) is not int or self.skip_from < 0:
            raise ValueError(
                f"skip_from is {self.skip_from!r:.40}; give a hop, or 0 for no skips."
            )
        if self.shared_weights and (self.phi != self.psi or self.concat):
            raise ValueError(
                f"Shared weights need phi == psi and a sum: {self.phi}, {self.psi}."
            )
        if self.shared_weights and not self.aggregate.linear:
            raise ValueError(f"{self.aggregate.name} cannot share weights with phi.")
        if self.skip_from and self.concat:
            raise ValueError("A concatenation changes the width: it cannot skip.")
        if self.skip_from == 1 and not (self.embeds or not self.learned_hops):
            raise ValueError("Without phi there is no h_0 to skip from at hop 1.")
        if not self.learned_hops and (
            self.concat
            or not self.aggregate.linear
            or any(len(s) > 1 or "y" in s for s in (self.phi, self.psi))
        ):
            raise ValueError(
                "Hops without weights keep one width: phi and psi are one of 'h0' and "
                "'h', added, and the aggregate is linear."
            )

    @property
    def iterative(self) -> bool:
        """It reads label summaries, so HOPF iterates it."""
        return "y" in self.phi or "y" in self.psi

    @property
    def deep(self) -> bool:
        """A hop reads the hop before it; otherwise one hop says it all."""
        return "h" in self.phi + self.psi or bool(self.skip_from)

    @property
    def multiplies_input(self) -> bool:
        """Features meet a weight matrix before all else, so they may stay sparse."""
        if self.input_layer or not (self.psi or not self.learned_hops):
            return True
        if not self.learned_hops:
            return False
        return self.aggregate.linear or (self.aggregate.sparse and len(self.psi) == 1)

    @property
    def reads_input_linearly(self) -> bool:
        """Its first hop has weights and reads X itself, by a linear F(A)."""
        return self.learned_hops and not self.input_layer and self.aggregate.linear

    @property
    def embeds(self) -> bool:
        """There is an h_0 that is not the features, and something reads it."""
        later = "h0" in self.phi + self.psi or self.skip_from == 1
        own = set(self.phi) - {"y"}
        return self.input_layer or (self.learned_hops and bool(own) and later)

    def num_layers(self, num_hops: int) -> int:
        """Layers that matter: with no path from hop to hop, only the last."""
        return num_hops if self.deep else min(num_hops, 1)

    def width(self, features: int, hidden: int, num_hops: int) -> int:
        """Columns of h_K."""
        if num_hops == 0 or not self.learned_hops:
            return hidden if self.input_layer else features
        return hidden * (2 if self.concat and self.phi and self.psi else 1)

    def reach(self, num_hops: int) -> int:
        """How many hops away a prediction reads within one iteration."""
        if not self.psi:
            return 0
        return num_hops if "h" in self.psi else min(num_hops, 1)


# fmt: off
MODELS: Mapping[str, Row] = types.MappingProxyType({
    "bl-node":    Row(("h0",), (),         mean, skip_from=2),
    "bl-neigh":   Row((),      ("h",),     mean, skip_from=2),
    "ss-ica":     Row(("h0",), ("y",),     mean),
    "wl":         Row(("h",),  ("h",),     total, learned_hops=False),
    "gcn":        Row(("h",),  ("h",),     symmetric, self_loop, shared_weights=True),
    "gcn-s":      Row(("h",),  ("h",),     symmetric, self_loop, shared_weights=True, skip_from=2),
    "gcn-mean":   Row(("h",),  ("h",),     mean, shared_weights=True, skip_from=2),
    "gs-mean":    Row(("h",),  ("h",),     mean, concat=True),
    "gs-max":     Row(("h",),  ("h",),     pooled_max, concat=True),
    "gs-lstm":    Row(("h",),  ("h",),     random_lstm, concat=True),
    "nip-mean":   Row(("h0",), ("h",),     mean, skip_from=2),
    "i-nip-mean": Row(("h0",), ("h", "y"), mean, skip_from=2),
    "rwr":        Row(("h0",), ("h",),     mean, Gate(0.15), Gate(0.85), input_layer=True, learned_hops=False),
})
# fmt: on

DEFAULT_MODEL = "i-nip-mean"
# What to compare first: a node alone, its neighbours alone, both, and labels besides.
FIRST_MODELS = ("bl-node", "bl-neigh", "nip-mean", "i-nip-mean")


def find_row(model: str | Row) -> Row:
    """The row of that name, or the row itself.

    >>> find_row("nip-mean").phi, find_row("nip-mean").psi
    (('h0',), ('h',))
    """
    if isinstance(model, Row):
        return model
    if not isinstance(model, str) or model not in MODELS:
        raise ValueError(
            f"No model is called {model!r}. Known: {', '.join(MODELS)}. A Row of your "
            "own is accepted too."
        )
    return MODELS[model]


def row_to_json(row: Row) -> dict:
    """A row as plain data; the aggregate is kept by name."""
    data = dataclasses.asdict(dataclasses.replace(row, aggregate=mean))
    return data | {"aggregate": row.aggregate.name}


def row_from_json(data: dict) -> Row:
    """The inverse of `row_to_json`, for the aggregates of this library."""
    name = data["aggregate"]
    if not isinstance(name, str) or name not in AGGREGATES:
        raise ValueError(
            f"The saved row aggregates with {name!r}, which is not of this library "
            f"({', '.join(AGGREGATES)}). Pass the row: hopf_jax.load(path, row=...)."
        )
    gates = {g: Gate(**data[g]) for g in ("alpha", "beta")}
    signals = {s: tuple(data[s]) for s in ("phi", "psi")}
    return Row(**data | gates | signals | {"aggregate": AGGREGATES[name]})

"""The paper's Table 1 as data, and later models as more rows of it."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal

import jax

from hopf_jax.config import Number, Whole, check_fields, constrained
from hopf_jax.kernels.aggregators import (
    AGGREGATES,
    Aggregate,
    attention,
    mean,
    pooled_max,
    random_lstm,
    symmetric,
    symmetric_loops,
    total,
)
from hopf_jax.suggestions import did_you_mean

Signal = Literal["h0", "h", "y"]
Readout = Literal["last", "ends", "weighted", "each"]


@dataclasses.dataclass(frozen=True)
class Gate:
    """alpha or beta as a function of the degree d: scale * (d + 1)^power.

    With `learned`, every hop learns a scale of its own, which starts from `scale`.
    """

    scale: float = constrained(Number(), 1.0)
    power: float = constrained(Number(), 0.0)
    learned: bool = False

    def __post_init__(self) -> None:
        """Raise `ValueError` for a gate that is not a number."""
        check_fields(self)

    def __call__(
        self, degree: jax.Array, learned: jax.Array | None = None
    ) -> jax.Array | float:
        """Return weights [R] for degrees [R], or one number if they do not depend on it.

        Args:
          degree: Degrees in the whole graph, [R].
          learned: The learned scale, [1], where there is one.
        """
        if learned is not None:
            return learned * (degree + 1) ** self.power
        if not self.power:
            return float(self.scale)
        return self.scale * (degree + 1) ** self.power


one = Gate()
self_loop = Gate(power=-1.0)


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One row of the table of models; each field is one of its columns.

    Attributes:
      phi: What a node reads of itself: "h0" its own embedding, "h" the previous hop,
        "y" the label summary of the previous iteration.
      psi: What it reads from its neighbours.
      aggregate: F(A).
      alpha, beta: Gates of the node's and of the neighbours' part.
      shared_weights: W_phi = W_psi; phi and psi are the same, or with an input layer
        one of "h0" and "h" each.
      concat: The two parts are concatenated (GraphSAGE) instead of added.
      skip_from: The first hop k that adds h_{k-1}; 0 for none.
      input_layer: h_0 = relu(X W_0) is a layer of its own (Algorithm 1). Otherwise
        (the paper's definitions, with W_1 [F, H]) the first hop reads X for h_0 and h,
        and h_0 = relu(X W_1_phi) from then on.
      learned_hops: Whether hops have weights and a ReLU; otherwise they are linear.
      second_layer: A hop is a net of two layers: h_k = relu(relu(...) W_k_second).
      identity: lambda of GCNII's identity mapping: instead of W_k the hop multiplies
        by (1 - b) I + b W_k with b = log(lambda / k + 1). 0 for W_k itself.
      reads_out: What the output layer reads: "last" is h_K; "ends" is [h_0, h_K];
        "weighted" the sum of gamma_k h_k over all hops, with learned gamma that start
        as the shares of random walks that end after k steps; "each" the concatenation
        of relu(h_k W_k_read) over all hops.
      votes: F(A) of the label summaries that the output layer reads beside h_K: logits
        = [h_K, F(A) Y] W_L, so that the labels of neighbours speak for themselves. None
        if it reads none.
    """

    phi: tuple[Signal, ...]
    psi: tuple[Signal, ...]
    aggregate: Aggregate
    alpha: Gate = one
    beta: Gate = one
    shared_weights: bool = False
    concat: bool = False
    skip_from: int = constrained(Whole(0), 0)
    input_layer: bool = False
    learned_hops: bool = True
    second_layer: bool = False
    identity: float = constrained(Number(0), 0.0)
    reads_out: Readout = "last"
    votes: Aggregate | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` for a kernel that cannot be computed."""
        check_fields(self)
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
            raise ValueError(
                "phi and psi are both empty; a kernel must read something."
            )
        if not isinstance(self.aggregate, Aggregate):
            raise ValueError(
                f"aggregate is {self.aggregate!r}; wrap it: Aggregate('name', fn)."
            )
        if self.votes is not None and not (
            isinstance(self.votes, Aggregate)
            and self.votes.linear
            and not self.votes.of_products
        ):
            raise ValueError(
                f"votes is {self.votes!r}; give an Aggregate that is linear and has no "
                "weights, such as that of MODELS['nip-mean']."
            )
        for name in ("alpha", "beta"):
            if not isinstance(getattr(self, name), Gate):
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; give a Gate, as in Gate(0.5)."
                )
        alike = self.phi == self.psi or (
            self.input_layer
            and len(self.phi) == len(self.psi) == 1
            and not self.iterative
        )
        if self.shared_weights and (not alike or self.concat):
            raise ValueError(
                f"Shared weights need phi == psi and a sum: {self.phi}, {self.psi}."
            )
        if self.shared_weights and not self.aggregate.linear:
            raise ValueError(f"{self.aggregate.name} cannot share weights with phi.")
        if self.skip_from == 1 and self.concat:
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
        if not self.learned_hops and (
            self.second_layer or self.alpha.learned or self.beta.learned
        ):
            raise ValueError(
                "Hops without weights have no second layer and no learned gate."
            )
        if self.identity and not (
            self.learned_hops and self.shared_weights and self.input_layer
        ):
            raise ValueError(
                "identity is between one weight matrix and I: it needs learned hops, "
                "shared_weights and an input_layer."
            )
        if self.reads_out != "last" and (
            self.concat
            or "y" in self.phi + self.psi
            or (self.votes is not None and self.reads_out != "ends")
            or (self.learned_hops and not self.input_layer)
        ):
            raise ValueError(
                f"reads_out={self.reads_out!r} needs hops of one width and no 'y': an "
                "input_layer or linear hops, added. Only 'ends' goes with votes."
            )

    @property
    def iterative(self) -> bool:
        """Whether it reads label summaries, so that HOPF iterates it."""
        return "y" in self.phi + self.psi or self.votes is not None

    @property
    def deep(self) -> bool:
        """Whether a hop reads the previous one; otherwise all hops are the same."""
        return "h" in self.phi + self.psi or bool(self.skip_from)

    @property
    def constant(self) -> bool:
        """Whether h_K has no weights: all members and iterations have the same."""
        return not (self.learned_hops or self.input_layer)

    @property
    def multiplies_input(self) -> bool:
        """Whether features are multiplied by weights first, so that they may be sparse."""
        if self.input_layer or not (self.psi or not self.learned_hops):
            return True
        if not self.learned_hops:
            return False
        if self.aggregate.linear or self.aggregate.of_products:
            return True
        return self.aggregate.sparse and len(self.psi) == 1

    @property
    def reads_input_linearly(self) -> bool:
        """Whether its first hop has weights and reads X through a linear F(A)."""
        return self.learned_hops and not self.input_layer and self.aggregate.linear

    @property
    def embeds(self) -> bool:
        """Whether there is an h_0 besides the features, and something reads it."""
        later = "h0" in self.phi + self.psi or self.skip_from == 1
        own = set(self.phi) - {"y"}
        return self.input_layer or (self.learned_hops and bool(own) and later)

    def with_skips(self) -> "Kernel":
        """Return the kernel with skips from the second hop on, unless it has some."""
        return self if self.skip_from else dataclasses.replace(self, skip_from=2)

    def num_layers(self, num_hops: int) -> int:
        """Return the number of hops to compute: one if no hop reads the previous one."""
        return num_hops if self.deep else min(num_hops, 1)

    def width(self, features: int, hidden: int, num_hops: int) -> int:
        """Return the number of columns of h_K."""
        if num_hops == 0 or not self.learned_hops:
            return hidden if self.input_layer else features
        return hidden * (2 if self.concat and self.phi and self.psi else 1)

    def width_read(self, features: int, hidden: int, num_hops: int) -> int:
        """Return the number of columns that the output layer reads of the hops."""
        last = self.width(features, hidden, num_hops)
        if self.reads_out == "ends" and num_hops:
            return self.width(features, hidden, 0) + last
        return hidden * (num_hops + 1) if self.reads_out == "each" else last

    def reach(self, num_hops: int) -> int:
        """Return how many hops away a prediction reads within one iteration."""
        votes = int(self.votes is not None)
        if not self.psi:
            return votes
        return max(votes, num_hops if "h" in self.psi else min(num_hops, 1))


# fmt: off
MODELS: Mapping[str, Kernel] = types.MappingProxyType({
    "bl-node":    Kernel(("h0",), (),         mean, skip_from=2),
    "bl-neigh":   Kernel((),      ("h",),     mean, skip_from=2),
    "ss-ica":     Kernel(("h0",), ("y",),     mean),
    "wl":         Kernel(("h",),  ("h",),     total, learned_hops=False),
    "gcn":        Kernel(("h",),  ("h",),     symmetric, self_loop, shared_weights=True),
    "gcn-s":      Kernel(("h",),  ("h",),     symmetric, self_loop, shared_weights=True, skip_from=2),
    "gcn-mean":   Kernel(("h",),  ("h",),     mean, shared_weights=True, skip_from=2),
    "gs-mean":    Kernel(("h",),  ("h",),     mean, concat=True),
    "gs-max":     Kernel(("h",),  ("h",),     pooled_max, concat=True),
    "gs-lstm":    Kernel(("h",),  ("h",),     random_lstm, concat=True),
    "nip-mean":   Kernel(("h0",), ("h",),     mean, skip_from=2),
    "i-nip-mean": Kernel(("h0",), ("h", "y"), mean, skip_from=2),
    "rwr":        Kernel(("h0",), ("h",),     mean, Gate(0.15), Gate(0.85), input_layer=True, learned_hops=False),
    # Later models: Wu et al. 2019, Frasca et al. 2020, Klicpera et al. 2019, Chien et
    # al. 2021, Chen et al. 2020, Velickovic et al. 2018, Xu et al. 2019.
    "sgc":        Kernel(("h",),  ("h",),     symmetric, self_loop, learned_hops=False),
    "i-sgc":      Kernel(("h",),  ("h",),     symmetric, self_loop, learned_hops=False, reads_out="ends", votes=total),
    "i-sgc-mean": Kernel(("h",),  ("h",),     symmetric, self_loop, learned_hops=False, votes=mean),
    "sign":       Kernel(("h",),  ("h",),     symmetric, self_loop, learned_hops=False, reads_out="each"),
    "appnp":      Kernel(("h0",), ("h",),     symmetric_loops, Gate(0.1), Gate(0.9), input_layer=True, learned_hops=False),
    "gpr-gnn":    Kernel(("h",),  ("h",),     symmetric, self_loop, input_layer=True, learned_hops=False, reads_out="weighted"),
    "gcnii":      Kernel(("h0",), ("h",),     symmetric_loops, Gate(0.1), Gate(0.9), shared_weights=True, input_layer=True, identity=0.5),
    "gat":        Kernel((),      ("h",),     attention),
    "gin":        Kernel(("h",),  ("h",),     total, Gate(1, learned=True), shared_weights=True, second_layer=True),
})
# fmt: on

DEFAULT_MODEL = "i-nip-mean"
# What `fit` chooses from: the node alone; with its neighbours; with many hops, for few
# labels; with its neighbours' labels. Beside them two linear models are solved, without
# and with the votes of neighbours, which have their own number of iterations.
CANDIDATES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("bl-node", {}), ("gcn", {}), ("rwr", {"num_hops": 10}), ("i-nip-mean", {}),
)  # fmt: skip
LINEAR_MODEL, VOTING_MODEL, MEAN_VOTING_MODEL = "sgc", "i-sgc", "i-sgc-mean"
SOLVED_MODELS: Mapping[str, Mapping[str, Any]] = types.MappingProxyType(
    {
        LINEAR_MODEL: {},
        VOTING_MODEL: {"num_iterations": 10, "scale_summaries": False},
        # Of nodes with several labels.
        MEAN_VOTING_MODEL: {"num_iterations": 3, "scale_summaries": False},
    }
)
# What `tune` searches: linear models, which are solved; many hops; and all of Eq. 1.
TUNED_MODELS = ("i-sgc", "appnp", "i-nip-mean")
# A first comparison: the node alone, its neighbours alone, both, and labels as well.
FIRST_MODELS = ("bl-node", "bl-neigh", "nip-mean", "i-nip-mean")


# What other libraries call some of them.
_ALSO_CALLED = {"graphsage": "gs-mean", "sage": "gs-mean", "mlp": "bl-node"}


def find_kernel(model: str | Kernel) -> Kernel:
    """Return the kernel of a name, or the kernel itself.

    >>> find_kernel("nip-mean").phi, find_kernel("nip-mean").psi
    (('h0',), ('h',))
    """
    if isinstance(model, Kernel):
        return model
    if isinstance(model, list | tuple):
        raise ValueError(
            f"model is {model!r}; give one name. hopf_jax.compare(graph, models) "
            "compares several, and fit(graph) chooses."
        )
    if not isinstance(model, str) or model not in MODELS:
        own = _ALSO_CALLED.get(str(model).lower())
        hint = f"It is called {own!r} here." if own else did_you_mean(model, MODELS)
        hint += " " * bool(hint)
        raise ValueError(
            f"No model is called {model!r}. {hint}Known: {', '.join(MODELS)}. A Kernel "
            "of your own is accepted too."
        )
    return MODELS[model]


def kernel_to_json(kernel: Kernel) -> dict:
    """Return a kernel as plain data, with its aggregator by name."""
    data = dataclasses.asdict(dataclasses.replace(kernel, aggregate=mean, votes=None))
    votes = {} if kernel.votes is None else {"votes": kernel.votes.name}
    return data | {"aggregate": kernel.aggregate.name} | votes


def kernel_from_json(data: dict) -> Kernel:
    """Return the kernel of such data, with an aggregator of this library."""
    read = {name: data[name] for name in ("aggregate", "votes") if data.get(name)}
    for name in read.values():
        if not isinstance(name, str) or name not in AGGREGATES:
            raise ValueError(
                f"The saved kernel uses the aggregator {name!r}, which is not of this "
                f"library ({', '.join(AGGREGATES)}). Pass the kernel: hopf_jax.load(path, "
                "kernel=...)."
            )
    aggregates = {field: AGGREGATES[name] for field, name in read.items()}
    gates = {g: Gate(**data[g]) for g in ("alpha", "beta")}
    signals = {s: tuple(data[s]) for s in ("phi", "psi")}
    return Kernel(**data | gates | signals | aggregates)

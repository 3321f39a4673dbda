"""Settings of a run: what its numbers depend on, and how it is executed."""

import dataclasses
import reprlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

import numpy as np

from hopf_jax.suggestions import answering_typos, did_you_mean


@dataclasses.dataclass(frozen=True)
class Whole:
    """A constraint: a whole number within bounds."""

    least: int
    most: int = 2**31 - 1

    def accepts(self, value: Any) -> bool:
        """Return whether `value` is such a number; a bool is not."""
        return type(value) is int and self.least <= value <= self.most

    def __str__(self) -> str:
        end = f"to {self.most}" if self.most < 2**62 else "or more"
        return f"a whole number, {self.least} {end}"


@dataclasses.dataclass(frozen=True)
class Number:
    """A constraint: a finite number within bounds, each of them allowed or not."""

    least: float = -sys.float_info.max
    most: float = sys.float_info.max
    open_below: bool = False
    open_above: bool = False

    def accepts(self, value: Any) -> bool:
        """Return whether `value` is such a number; a bool is not."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        above = value > self.least if self.open_below else value >= self.least
        below = value < self.most if self.open_above else value <= self.most
        return above and below

    def __str__(self) -> str:
        if self.least == -sys.float_info.max:
            return "a finite number"
        if self.most == sys.float_info.max:
            return f"a number {'above 0' if self.open_below else '0 or more'}"
        low = f"{'above' if self.open_below else 'from'} {self.least:g}"
        high = f"{'below' if self.open_above else 'up to'} {self.most:g}"
        return f"a number {low}, {high}"


@dataclasses.dataclass(frozen=True)
class Choice:
    """A constraint: one of some values of one type, texts or bools."""

    choices: tuple[str | bool, ...]

    def accepts(self, value: Any) -> bool:
        """Return whether `value` is one of the choices; 1 is not True."""
        return isinstance(value, type(self.choices[0])) and value in self.choices

    def __str__(self) -> str:
        return " or ".join(map(repr, self.choices))


Constraint = Whole | Number | Choice


def constrained(constraint: Constraint, default: Any) -> Any:
    """Declare a dataclass field together with its constraint."""
    return dataclasses.field(default=default, metadata={"constraint": constraint})


def check_fields(instance: Any) -> None:
    """Raise `ValueError` for the first field that breaks its constraint.

    The constraint of a bool and of a `Literal` is its type. Numbers of numpy become
    those of Python.
    """
    for field in dataclasses.fields(instance):
        own = as_python(getattr(instance, field.name))
        object.__setattr__(instance, field.name, own)
        constraint = field.metadata.get("constraint")
        if getattr(instance, field.name) is None and type(None) in get_args(field.type):
            continue
        if field.type is bool:
            constraint = Choice((True, False))
        elif get_origin(field.type) is Literal:
            constraint = Choice(get_args(field.type))
        if constraint is not None:
            check(constraint, field.name, getattr(instance, field.name))


def as_python(value: Any) -> Any:
    """Return a number of numpy as that of Python; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def check(constraint: Constraint, name: str, value: Any) -> None:
    """Raise `ValueError` for a value that breaks its constraint."""
    if not constraint.accepts(value):
        refuse(name, value, constraint)


def refuse(name: str, value: Any, wanted: object) -> None:
    """Raise `ValueError`: the setting `name` must be what `wanted` says."""
    # Shortened: a number can have thousands of digits.
    raise ValueError(f"{name} is {reprlib.repr(value)}; it must be {wanted}.")


_POSITIVE = Number(0, open_below=True)

# What other libraries call some of the settings.
_ALSO_CALLED = {
    **dict.fromkeys(("lr", "step_size"), "learning_rate"),
    **dict.fromkeys(("epochs", "num_epochs", "n_epochs", "max_iter"), "max_epochs"),
    **dict.fromkeys(("num_layers", "n_layers", "layers", "depth"), "num_hops"),
    **dict.fromkeys(
        ("hidden_channels", "hidden_dim", "hidden", "units"), "hidden_size"
    ),
    **dict.fromkeys(("weight_decay", "alpha"), "l2"),
    **dict.fromkeys(("early_stopping", "n_iter_no_change"), "patience"),
    **dict.fromkeys(("cv", "n_splits"), "folds"),
    "class_weight": "weighted_loss",
    "num_neighbors": "fanouts",
    "dtype": "precision",
}
_OF_THE_GRAPH = {"y": "labels", "label": "labels"} | {
    name: name for name in ("labels", "train", "validation", "test", "directed")
}
_OF_FIT = {"random_state": "seed", "verbose": "progress", "checkpoint_dir": "workdir"}


def find_setting(name: str) -> str:
    """Return a hint for a setting that `Config` does not have: where to find it."""
    known = [field.name for field in dataclasses.fields(Config)]
    if name in _ALSO_CALLED:
        return f"It is called {_ALSO_CALLED[name]!r} here."
    if name in _OF_FIT:
        return f"It is called {_OF_FIT[name]!r} here, an argument of fit."
    if name in [field.name for field in dataclasses.fields(Execution)]:
        return f"It belongs to fit(..., execution=hopf_jax.Execution({name}=...))."
    if name in _OF_THE_GRAPH:
        own = _OF_THE_GRAPH[name]
        call = f"hopf_jax.Graph.from_networkx(graph, {own}=...)"
        return f"Give it when you make the graph: {call}."
    return did_you_mean(name, known) or "help(hopf_jax.Config) lists the settings."


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the algorithm: everything that the numbers of a run depend on.

    A `Config` is immutable; `dataclasses.replace(config, num_hops=3)` returns a changed
    copy. *Label summaries* are the labels predicted in the previous iteration, together
    with the known ones; iterative kernels read those of a node's neighbours.

    Attributes:
      num_hops: Number of hops that are learned end to end. 0 to 16.
      hidden_size: Number of hidden units of every hop. 1 or more.
      num_iterations: Number of iterations of kernels that read label summaries; other
        kernels have one. 1 or more.
      tolerance: Stop iterating when the label summaries change by less than this on
        average. 0 or more; 0 always runs all iterations.
      average_labels: Average label summaries over iterations, as Algorithm 1 does.
      warm_start: Start each iteration from the weights of the previous one, with a new
        output layer, instead of from new weights.
      training_summaries: What training nodes read of label summaries while training;
        their own labels must not leak to them ("The echo" in the documentation).
        "masked" hides a random share of the training nodes at each step, and computes
        the loss on these. "cross-fitted" divides the training nodes into `parts`, and
        uses networks that were not trained on a part to make the summaries for it.
        "as-printed" is Algorithm 1, which leaks.
      hidden_share: Share of the training nodes that "masked" hides. Above 0, up to 1.
      summary_dropout: Dropout rate of label summaries; None for that of `dropout`.
      scale_summaries: Scale label summaries to the size of the features, so that weight
        decay and learning rate treat both alike. Not with summary="hidden".
      parts: Number of parts for "cross-fitted"; each needs one more network. 2 or more.
      members: Number of networks, with different seeds, whose probabilities are
        averaged. 1 or more.
      folds: Number of folds of cross-validation. The labels are divided into this many
        parts, `members` networks are trained on all parts but one, for each part, and
        the average of all networks predicts. Held-out predictions decide when training
        stops, and which iteration and model to use. 0 for no cross-validation, or 2 and
        more. None for 5 if the graph has no validation nodes or `fit` chooses the
        model, unless there are thousands of labels, and 0 otherwise.
      caution: How far predicted labels are trusted (cautious inference, McDowell et al.
        2009). "none" reads all of them; "share" reads the most confident ones, more of
        them in each iteration; "confidence" weights each by its confidence. Known
        labels are always read.
      summary: What an iteration passes to the next: "labels", or "hidden" for the
        output of the last hop.
      metric: The score to predict for: "micro" (accuracy; with several labels per node,
        one threshold for all labels), "macro" (rare labels count as much as common
        ones; one threshold per label), "balanced" (mean recall), or "as-trained" (the
        network's own output, as in the paper). Training does not depend on it, and
        probabilities are the same except with "as-trained".
      scoring: Which labels count as predicted when nodes with several labels are
        scored: "threshold", or "cardinality" (as many labels as the node has, as the
        paper's authors do). `predict` always uses thresholds.
      batch_size: Number of root nodes per batch. 1 or more.
      batches_per_step: Number of batches per training step, which
        `Execution.devices` share. 1 to 65536.
      fanouts: Number of neighbours to sample at each hop while training, such as
        (10, 5), nearest hop first; None for all. Predictions use all neighbours.
      directions: How directed edges are used: in "both" directions, or as "given", so
        that nodes read their senders only.
      neighbor_fraction: Share of every node's neighbours that is used, sampled once
        (the paper's Figure 2). Above 0, up to 1.
      ghost_edges: Number of weighted links from every node to the labelled nodes
        nearest to it by random walks with restart; 0 for none. 0 to 1000.
      learning_rate: Learning rate of Adam. Above 0.
      l2: Weight of half the sum of squares of all weights. 0 or more.
      smoothing: Weight of Laplacian smoothing: the mean squared distance between the
        embeddings of a node and of its neighbours. 0 or more.
      dropout: Dropout rate on the input of every weight matrix. From 0, below 1.
      noise: Whether random bits of dropout depend on the place in the "batch", or on
        the "node". With "node", a graph in parts has the same numbers as a whole one.
      weighted_loss: Weight each label by its rarity among training nodes.
      clip: Largest absolute gradient per weight. Above 0.
      max_epochs: Maximum number of epochs per iteration. 1 or more.
      min_epochs: Number of epochs before early stopping begins. 0 or more.
      patience: Number of epochs without improvement on validation nodes before the
        learning rate and the patience are halved; training stops when that happens
        twice in a row. 1 or more.
      init_weights: "glorot" (uniform), or "fan-out" (normal, std sqrt(2 / fan_out)).
      bias: Learn a bias with every weight matrix.
      norm: Normalisation of every hop before its ReLU: "none", "layer" or "batch" (not
        with several batches per step).
      residual: Add skip connections to every hop from the second on.
      precompute: Aggregate the features of neighbours once before training where they
        are constant (no dropout, no fan-outs, dense features), so that batches reach
        one hop less. Changes rounding, and possibly the order of batches.
      precision: Number format of matrix products: "float32" or "bfloat16", which halves
        the memory of hidden layers and is fast on TPUs and GPUs.
      features: "auto" to scale features (`Graph.describe` says how), or "as-is".

    >>> Config(dropout=1)
    Traceback (most recent call last):
    ValueError: dropout is 1; it must be a number from 0, below 1.
    """

    num_hops: int = constrained(Whole(0, 16), 2)
    hidden_size: int = constrained(Whole(1), 64)
    num_iterations: int = constrained(Whole(1), 5)
    tolerance: float = constrained(Number(0), 0.0)
    average_labels: bool = True
    warm_start: bool = True
    training_summaries: Literal["as-printed", "masked", "cross-fitted"] = "masked"
    hidden_share: float = constrained(Number(0, 1, open_below=True), 0.5)
    summary_dropout: float | None = constrained(Number(0, 1, open_above=True), 0.0)
    scale_summaries: bool = True
    parts: int = constrained(Whole(2, 1000), 2)
    members: int = constrained(Whole(1, 1000), 1)
    folds: int | None = constrained(Whole(0, 1000), None)
    caution: Literal["none", "share", "confidence"] = "none"
    summary: Literal["labels", "hidden"] = "labels"
    metric: Literal["micro", "macro", "balanced", "as-trained"] = "micro"
    scoring: Literal["threshold", "cardinality"] = "threshold"
    batch_size: int = constrained(Whole(1), 4096)
    batches_per_step: int = constrained(Whole(1, 2**16), 1)
    fanouts: tuple[int, ...] | None = None
    directions: Literal["both", "given"] = "both"
    neighbor_fraction: float = constrained(Number(0, 1, open_below=True), 1.0)
    ghost_edges: int = constrained(Whole(0, 1000), 0)
    learning_rate: float = constrained(_POSITIVE, 1e-2)
    l2: float = constrained(Number(0), 2e-3)
    smoothing: float = constrained(Number(0), 0.0)
    dropout: float = constrained(Number(0, 1, open_above=True), 0.5)
    noise: Literal["batch", "node"] = "batch"
    weighted_loss: bool = False
    clip: float = constrained(_POSITIVE, 5.0)
    max_epochs: int = constrained(Whole(1), 2000)
    min_epochs: int = constrained(Whole(0), 50)
    patience: int = constrained(Whole(1), 30)
    init_weights: Literal["glorot", "fan-out"] = "glorot"
    bias: bool = True
    norm: Literal["none", "layer", "batch"] = "none"
    residual: bool = False
    precompute: bool = True
    precision: Literal["float32", "bfloat16"] = "float32"
    features: Literal["auto", "as-is"] = "auto"

    def __post_init__(self) -> None:
        """Raise `ValueError` for the first setting out of range."""
        check_fields(self)
        if self.caution != "none" and self.summary != "labels":
            raise ValueError(
                "caution weighs predicted labels, but summary is 'hidden'. Set "
                "summary='labels' or caution='none'."
            )
        if self.folds == 1:
            refuse("folds", 1, "0 (no cross-validation), or 2 and more")
        if self.folds and self.training_summaries == "cross-fitted":
            raise ValueError(
                "folds are cross-fitted already: each net predicts nodes it never saw. "
                "Set training_summaries='masked' or folds=0."
            )
        if self.norm == "batch" and self.batches_per_step > 1:
            raise ValueError(
                "norm='batch' takes its statistics from one batch, but "
                f"batches_per_step is {self.batches_per_step}. Set norm='layer' or "
                "batches_per_step=1."
            )
        fanouts = self.fanouts
        if fanouts is None:
            return
        fanouts = tuple(fanouts) if isinstance(fanouts, list) else fanouts
        listed = isinstance(fanouts, tuple) and len(fanouts) == self.num_hops
        if not listed or not all(map(Whole(1).accepts, fanouts)):
            refuse("fanouts", fanouts, f"{self.num_hops} whole numbers above 0")
        object.__setattr__(self, "fanouts", fanouts)

    @property
    def num_members(self) -> int:
        """Number of nets whose probabilities are averaged."""
        return self.members * max(1, self.folds or 0)

    @property
    def dropout_of_summaries(self) -> float:
        """Dropout rate on label summaries."""
        return self.dropout if self.summary_dropout is None else self.summary_dropout


@dataclasses.dataclass(frozen=True)
class Execution:
    """How a run uses the machine. Results do not depend on it, except for rounding.

    Attributes:
      devices: Number of JAX devices to use, or the devices themselves. They share the
        `Config.batches_per_step` batches of a step, which must be a multiple of their
        number. None for the first device, or for all of them in a job of several
        processes (`hopf_jax.processes`).
      memory_budget: Bytes of batches to keep on the device; others are streamed. 0 to
        stream all. Results of `fit` are the same, bit for bit.
      chunk_edges: Number of edges per chunk when all nodes are predicted. Reduce it to
        save memory. 1 or more. None for the whole graph at once if that takes no more
        than a gigabyte besides the graph, as it does up to some million nodes.
      other_devices: Allow a run to be resumed on another number of devices, which
        changes rounding.
      shared_programs: Share compiled programs between fits that differ only in dropout
        (above 0), l2 and learning rate, as `tune` does. Changes rounding. None for
        graphs so small that compiling takes longer than training.

    >>> Execution(chunk_edges=0)
    Traceback (most recent call last):
    ValueError: chunk_edges is 0; it must be a whole number, 1 or more.
    """

    devices: int | Sequence[Any] | None = None
    memory_budget: int = constrained(Whole(0, 2**62), 2_000_000_000)
    chunk_edges: int | None = constrained(Whole(1, 2**62), None)
    other_devices: bool = False
    shared_programs: bool | None = constrained(Choice((True, False)), None)

    def __post_init__(self) -> None:
        """Raise `ValueError` for the first setting out of range."""
        check_fields(self)


Config.__init__ = answering_typos(  # type: ignore[method-assign]
    Config.__init__, find_setting
)
Execution.__init__ = answering_typos(  # type: ignore[method-assign]
    Execution.__init__
)


def config_from_json(data: Mapping[str, Any]) -> Config:
    """Return saved settings, also those that an earlier version saved.

    It saved some of `Execution` among them, read features as they were, trained on
    summaries as printed, and took the output of a net as it is.
    """
    execution = {field.name for field in dataclasses.fields(Execution)}
    earlier: dict[str, Any] = {
        "features": "as-is",
        "training_summaries": "as-printed",
        "scale_summaries": False,
        "summary_dropout": 0.0,
        "metric": "as-trained",
        "directions": "given",
        "folds": 0,
    }
    found = {n: v for n, v in data.items() if n not in execution}
    return Config(**earlier | found)

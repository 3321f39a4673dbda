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

    Vary one with `dataclasses.replace(config, num_hops=3)`.

    Attributes:
      num_hops: Number of hops learned end to end, the paper's C. 0 to 16.
      hidden_size: Width of every hop, the paper's d. 1 or more.
      num_iterations: Number of iterations T of a kernel that reads label summaries;
        other kernels have one. 1 or more.
      tolerance: Stop iterating when the mean absolute change of the label summaries is
        below this. 0 or more; 0 always runs all iterations.
      average_labels: Average the summaries over iterations with a_t = (t - 1) / T.
      warm_start: Start an iteration from the weights of the previous one, with a new
        output layer, instead of from new weights.
      training_summaries: Which label summaries training nodes read while they learn
        ("The echo" in the documentation): "masked" (at each step a random share of the
        training nodes is hidden from the summaries, and the loss is on these);
        "cross-fitted" (the training nodes are divided into `parts`; the summaries that
        a part reads come from nets and labels that never saw it); or "as-printed"
        (those of Algorithm 1, which hold their own labels).
      hidden_share: The share that is hidden if summaries are masked, one node at least.
        Above 0, up to 1.
      summary_dropout: Dropout rate on label summaries, whose columns are few; None for
        that of `dropout`.
      scale_summaries: Scale label summaries to the size of the features (the root mean
        square of their rows' norms), so that weight decay and learning rate treat both
        alike. Not with summary="hidden".
      parts: Number of parts if summaries are cross-fitted; one more net is trained for
        each, on the other parts. 2 or more.
      members: Number of nets, with different seeds, whose probabilities are averaged. 1
        or more.
      folds: Cross-validate: divide the training and validation nodes into this many
        parts, and train as many times `members` nets, each on all parts but one. The
        average of all nets has learned from all labels, and every label is predicted by
        nets that never saw it (with several `members`, the labels are divided anew for
        each): these predictions stop the training of all nets at once,
        and iterations, models and calibration are judged by them. 0, or 2 and more;
        None for 5 where `fit` chooses the model or the graph has no validation nodes,
        unless there are thousands of labels, and 0 otherwise.
      caution: How far predicted labels are trusted (cautious inference, McDowell et al.
        2009): "none" (all are read as they are), "share" (iteration t of T reads those
        of the most confident share (t - 1) / (T - 1) of the nodes), or "confidence"
        (each is weighted by its confidence). Known labels are always read.
      summary: What an iteration passes on to the next: "labels" (predicted labels, and
        the known ones of training nodes) or "hidden" (h_K).
      metric: The score that predictions are made for: "micro" (the likeliest label, for
        the highest accuracy; with several labels per node, those above one threshold,
        chosen on validation nodes by micro-F1), "macro" (rare labels are favoured as
        far as it raises macro-F1 on validation nodes; a threshold per label),
        "balanced" (labels are predicted as if all were equally common, for the highest
        mean recall), or "as-trained" (the net's own output, as in the paper: the
        largest, or those above one half). Probabilities are corrected to the labels'
        true shares, except with "as-trained". Training does not depend on it.
      scoring: Which labels count as predicted when a multi-label node is scored:
        "threshold" (those above their threshold), or "cardinality" (as many of the
        likeliest as the node has, which is how the paper's authors score). `predict`
        always uses thresholds.
      batch_size: Number of root nodes per batch. 1 or more.
      batches_per_step: Number of batches whose mean gradient makes one training step;
        `Execution.devices` share them. 1 to 65536.
      fanouts: Number of neighbours sampled at each hop, roots first, in every epoch of
        training; predictions use all neighbours. None for all.
      directions: Which edges of a directed graph are read: "both" (A becomes
        max(A, A^T)), or "given" (nodes read their senders only).
      neighbor_fraction: Share of every node's neighbours that is used at all, sampled
        once (the paper's Figure 2). Above 0, up to 1.
      ghost_edges: Number of weighted links from every node to the labelled nodes
        nearest to it by random walks with restart; 0 for none. 0 to 1000.
      learning_rate: Learning rate of Adam. Above 0.
      l2: Weight of half the sum of squares of all weights. 0 or more.
      smoothing: Weight of the mean squared distance between the embedding of a root and
        those of its neighbours, at the last hop but one (Laplacian smoothing). 0 or
        more.
      dropout: Dropout rate on the input of every weight matrix. From 0, below 1.
      noise: What random bits of dropout belong to, besides seed and batch: a place in
        the "batch", or a "node". With "node" batches can be divided among the parts of
        a graph with the same numbers, as `open_parts` does.
      weighted_loss: Weight each label by its rarity among training nodes (WCE).
      clip: Largest absolute gradient per weight. Above 0.
      max_epochs: Maximum number of epochs per iteration. 1 or more.
      min_epochs: Epochs before weights are kept and patience counts. 0 or more.
      patience: Number of epochs without a better validation loss or F1 before the
        learning rate and the patience are halved. 1 or more.
      init_weights: "glorot" (uniform), or "fan-out" (normal, std sqrt(2 / fan_out)).
      bias: Learn a bias with every weight matrix.
      norm: Normalise the input layer and every hop that has weights, before its ReLU,
        with a learned scale and shift: "none", "layer" (over the columns of each node)
        or "batch" (over the roots of a batch, and to predict by running means; not with
        several batches per step).
      residual: Add h_{k-1} to every hop from the second on, also in kernels without
        skips.
      precompute: Compute what the first hop reads from neighbours once for all nodes,
        where it is constant (no dropout, no fan-outs, dense features): batches then
        reach one hop less. Changes rounding, and the order of batches where they are
        grouped by size differently.
      precision: Number format of products, "float32" or "bfloat16". The latter halves
        the memory of hidden layers, and is fast on TPUs and GPUs. Weights, optimizer,
        sums over neighbours and the loss stay float32.
      features: "auto" (columns are standardised, rows of a bag of words scaled to one
        sum, constant columns left out; `Graph.describe` says which), or "as-is".

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
    """How a run uses the machine. A run can be resumed with less memory.

    Attributes:
      devices: Number of JAX devices, or the devices themselves, that share the
        `Config.batches_per_step` subgraphs of a step, which must be a multiple of their
        number. None is the first device, or all of them in a job of several processes
        (`hopf_jax.processes`). Results agree up to rounding, so a run is resumed on
        another number of devices only if `other_devices` is true.
      memory_budget: Bytes of batches kept on the device; beyond it they are streamed. 0
        always streams. Results of `fit` are the same, bit for bit; `fit_folds` trains
        in programs of their own what no longer fits into one, with the same results up
        to rounding.
      chunk_edges: Number of edges per chunk when all nodes are predicted; fewer edges
        take less memory. 1 or more. Results agree up to rounding.
      other_devices: Resume a run that was begun on another number of devices, with a
        warning. Its results agree up to rounding with those of either number.
      shared_programs: Fits that differ only in dropout (above 0), l2 and learning rate
        share compiled programs, as `tune` needs it. Results agree up to rounding.

    >>> Execution(chunk_edges=0)
    Traceback (most recent call last):
    ValueError: chunk_edges is 0; it must be a whole number, 1 or more.
    """

    devices: int | Sequence[Any] | None = None
    memory_budget: int = constrained(Whole(0, 2**62), 2_000_000_000)
    chunk_edges: int = constrained(Whole(1, 2**62), 2_000_000)
    other_devices: bool = False
    shared_programs: bool = False

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

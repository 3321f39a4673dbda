"""`Config`: every setting of a run, with its range; the row of the model aside."""

import dataclasses
import reprlib
import sys
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of `fit`. Vary one with `dataclasses.replace(config, num_hops=3)`.

    Attributes:
      num_hops: hops learned end to end, the paper's C. 0 to 16.
      hidden_size: width of every hop, the paper's d. 1 or more.
      num_iterations: iterations T of a row that reads label summaries; other rows have
        one. 1 or more.
      tolerance: stop iterating when the label summaries move by less than this on
        average (mean absolute difference). 0 or more; 0 always runs all iterations.
      average_labels: temporal averaging of the summaries with a_t = (t - 1) / T.
      warm_start: an iteration starts from the last one's weights, its output layer
        afresh; otherwise it learns everything anew.
      summary: what an iteration passes on: "labels" (predicted, known ones where they
        may be known) or "hidden" (h_K).
      scoring: which labels count as predicted when a multi-label node is scored:
        "threshold" (those above one half), or "cardinality" (as many of the likeliest
        as it truly has: how the paper's authors score). `predict` knows no truth, and
        always uses the threshold.
      batch_size: roots a batch, which is one subgraph. 1 or more.
      batches_per_step: batches whose mean gradient makes one training step. They are
        spread over the devices of `fit`, and the result does not depend on how many
        these are. 1 or more.
      fanouts: neighbours drawn at each hop, roots first, anew every epoch of training;
        predictions use all. None for all neighbours.
      neighbor_fraction: share of every node's neighbours that is used at all, drawn
        once (the paper's Figure 2). Above 0, up to 1.
      learning_rate: of Adam. Above 0.
      l2: weight of half the sum of squares of all weights. 0 or more.
      dropout: rate on the input of every weight matrix. From 0, below 1.
      weighted_loss: weigh each label by its rarity among training nodes (WCE).
      clip: largest gradient of a single weight. Above 0.
      max_epochs: an iteration's most. 1 or more.
      min_epochs: weights are kept and patience counts only from here on. 0 or more.
      patience: epochs without a better validation loss or F1 before the learning rate
        and the patience are halved. 1 or more.
      init_weights: "glorot" (uniform), or "fan-out" (normal, std sqrt(2 / fan_out)).
      bias: learn a bias beside every weight matrix.
      memory_budget: bytes of batches kept on the device; beyond it they are streamed.
        0 always streams.
      precompute: where nothing random stands before it (no dropout, no fan-outs, dense
        features), compute what the first hop reads of neighbours once for all nodes:
        batches then reach one hop less. Results differ by rounding, and by the order
        of batches where these are grouped by size otherwise.
      precision: what products multiply, "float32" or "bfloat16": half the memory of
        what hops hold, and fast where the device multiplies it (TPU, GPU). Weights,
        their steps, sums over neighbours and the loss are float32 with both.
      chunk_edges: edges of the whole graph predicted on at once. 1 or more.

    >>> Config(dropout=1)
    Traceback (most recent call last):
    ValueError: dropout is 1; it must be a number from 0, below 1.
    """

    num_hops: int = 2
    hidden_size: int = 64
    num_iterations: int = 5
    tolerance: float = 0.0
    average_labels: bool = True
    warm_start: bool = True
    summary: Literal["labels", "hidden"] = "labels"
    scoring: Literal["threshold", "cardinality"] = "threshold"
    batch_size: int = 128
    batches_per_step: int = 1
    fanouts: tuple[int, ...] | None = None
    neighbor_fraction: float = 1.0
    learning_rate: float = 1e-2
    l2: float = 1e-3
    dropout: float = 0.5
    weighted_loss: bool = True
    clip: float = 5.0
    max_epochs: int = 2000
    min_epochs: int = 50
    patience: int = 30
    init_weights: Literal["glorot", "fan-out"] = "fan-out"
    bias: bool = False
    memory_budget: int = 2_000_000_000
    precompute: bool = True
    precision: Literal["float32", "bfloat16"] = "float32"
    chunk_edges: int = 2_000_000

    def __post_init__(self) -> None:
        """A setting out of range fails here, by name."""
        self._whole("num_hops", 0, 16)
        for name in ("hidden_size", "num_iterations", "batch_size", "max_epochs"):
            self._whole(name, 1)
        for name in ("patience", "batches_per_step"):
            self._whole(name, 1)
        self._whole("min_epochs", 0)
        self._whole("memory_budget", 0, 2**62)
        self._whole("chunk_edges", 1, 2**62)
        for name in ("tolerance", "l2"):
            self._within(name, lambda v: v >= 0, "0 or more")
        for name in ("learning_rate", "clip"):
            self._within(name, lambda v: v > 0, "above 0")
        self._within("dropout", lambda v: 0 <= v < 1, "from 0, below 1")
        self._within("neighbor_fraction", lambda v: 0 < v <= 1, "above 0, up to 1")
        yes_or_no = ("average_labels", "warm_start", "weighted_loss", "bias")
        for name in (*yes_or_no, "precompute"):
            if not isinstance(getattr(self, name), bool):
                self._refuse(name, "True or False")
        self._either("summary", "labels", "hidden")
        self._either("scoring", "threshold", "cardinality")
        self._either("init_weights", "glorot", "fan-out")
        self._either("precision", "float32", "bfloat16")
        if self.fanouts is not None:
            listed = isinstance(self.fanouts, tuple | list)
            fanouts = tuple(self.fanouts) if listed else ()
            if len(fanouts) != self.num_hops or not all(
                type(f) is int and 0 < f < 2**31 for f in fanouts
            ):
                self._refuse("fanouts", f"{self.num_hops} whole numbers above 0")
            object.__setattr__(self, "fanouts", fanouts)

    def _whole(self, name: str, least: int, most: int = 2**31 - 1) -> None:
        value = getattr(self, name)
        if type(value) is not int or not least <= value <= most:
            self._refuse(name, f"a whole number, {least} to {most}")

    def _either(self, name: str, *choices: str) -> None:
        value = getattr(self, name)
        if not isinstance(value, str) or value not in choices:
            self._refuse(name, " or ".join(map(repr, choices)))

    def _within(self, name: str, good: Any, says: str) -> None:
        value = getattr(self, name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not good(value) or value > sys.float_info.max:
            self._refuse(name, f"a number {says}")

    def _refuse(self, name: str, wanted: str) -> None:
        # Not all of it: a number can have thousands of digits.
        value = reprlib.repr(getattr(self, name))
        raise ValueError(f"{name} is {value}; it must be {wanted}.")

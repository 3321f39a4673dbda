"""Every kernel at the library's defaults on a graph that a stranger might have.

A thousand nodes in four blocks of equal size: edges with probability 0.03 inside a
block and 0.004 across, eight Gaussian features whose means are 0.4 times the number of
the class, 100 training and 40 validation nodes. Prints test micro-F1 of each kernel,
without and with one more column that says nothing, an age from 18 to 80; "auto" is
`fit` without a model. Writes WORKDIR/four_blocks.json.
"""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import hopf_jax
from experiments.common import arguments, output
from hopf_jax import MODELS, Graph

_NUM_NODES, _NUM_CLASSES, _NUM_FEATURES = 1000, 4, 8
_INSIDE, _ACROSS, _SHIFT = 0.03, 0.004, 0.4
_TRAIN, _VALIDATION = 100, 40
AUTO = "auto"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.four_blocks")
    arguments.add_counts(parser, seeds=3)
    quick = [name for name, kernel in MODELS.items() if not kernel.aggregate.ordered]
    about = "comma-separated (default: all but gs-lstm, which is slow)"
    parser.option("models", lambda text: text.split(","), [AUTO, *quick], about)
    options = parser.parse_args(argv)
    scores: dict[str, Any] = {}
    print(f"{'model':<12} without age  with age")
    for model in options.models:
        scores[model] = {
            age: [score(model, seed, age == "with") for seed in range(options.seeds)]
            for age in ("without", "with")
        }
        without, others = (np.mean(scores[model][age]) for age in ("without", "with"))
        print(f"{model:<12} {without:11.1f} {others:9.1f}", flush=True)
    path = options.workdir / "four_blocks.json"
    output.write_results(path, {"scores": scores}, options.invocation)
    return 0


def score(model: str, seed: int, with_age: bool) -> float:
    """Return the test micro-F1 of a model on the graph of a seed, in percent."""
    name = None if model == AUTO else model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Isolated nodes.
        result = hopf_jax.fit(make_blocks(seed, with_age), name, progress=False)
    return 100 * result.scores["test"]["micro_f1"]


def make_blocks(seed: int, with_age: bool) -> Graph:
    """Draw the graph; an age changes nothing else of it."""
    rng = np.random.default_rng(seed)
    classes = np.arange(_NUM_NODES) % _NUM_CLASSES
    chances = np.where(classes[:, None] == classes, _INSIDE, _ACROSS)
    senders, receivers = np.nonzero(np.triu(rng.random(chances.shape) < chances, 1))
    features = rng.standard_normal((_NUM_NODES, _NUM_FEATURES))
    features += _SHIFT * classes[:, None]
    drawn = rng.permutation(_NUM_NODES)
    if with_age:
        ages = rng.integers(18, 81, (_NUM_NODES, 1))
        features = np.hstack([features, ages])
    train, validation, test = np.split(drawn, [_TRAIN, _TRAIN + _VALIDATION])
    graph = Graph.from_edges(senders, receivers, features.astype(np.float32), classes)
    return graph.with_split(train, validation, test)


if __name__ == "__main__":
    sys.exit(main())

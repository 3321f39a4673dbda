"""Choose the rules of stopping and reporting on nodes held out from training sets.

The training and validation nodes of a fold are split again: a quarter is held out and
scored, the rest are training and validation nodes as 4 to 1; test nodes are not used.
Every stopping rule trains on every split; reporting rules choose among the resulting
iterations. The pair with the highest held-out micro-F1, averaged over datasets and
models, is chosen; of equals the first listed. Each dataset is also left out in turn: a
choice that does not change then does not depend on its labels. Writes
WORKDIR/choosing/DATASET.json after every split, and choosing.json from all of them.
"""

import contextlib
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np

import hopf_jax
from experiments import paper
from experiments.common import arguments, output
from hopf_jax import fitting
from hopf_jax.datasets import load_dataset
from hopf_jax.learning import stopping, training

_MODELS = ("i-nip-mean", "ss-ica", "bl-node")
_DATASETS = ("cora", "citeseer", "yeast", "amazon")
_PARTS = 4  # One part is held out.

# Whether a falling training loss counts as progress in the first iteration, whether in
# later ones, and the factor by which it must fall.
STOPPING = {
    "never": (False, False, 0.995),
    "always": (True, True, 0.995),
    "fresh": (True, False, 0.995),
    "fresh, 1%": (True, False, 0.99),
}


class _ValidationOnly(stopping.Patience):
    """A rule for which a falling training loss is no progress."""

    def _learns(self, train: dict[str, float]) -> bool:
        return False


Held = Sequence[Mapping[str, float]]
Right = Sequence[np.ndarray]


def _last_within(errors: float, held: Held, right: Right) -> int:
    """Return the iteration that `fit` would report, with this number of errors."""
    reported = 0
    for t in range(1, len(held) + 1):
        if stopping.as_good_as_any(held[:t], right[:t], errors):
            reported = t - 1
    return reported


REPORTING: dict[str, Callable[[Held, Right], int]] = {
    "last": lambda held, right: len(held) - 1,
    "best": lambda held, right: stopping.best_of(held),
    "last within 1 error": functools.partial(_last_within, 1),
    "last within 2 errors": functools.partial(_last_within, 2),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.choosing")
    parser.option("dataset", arguments.dataset_names, _DATASETS)
    about = f"number of quarters held out in turn, up to {_PARTS}"
    parser.option("turns", int, 1, about, choices=range(1, _PARTS + 1))
    parser.option("models", arguments.model_names, _MODELS)
    arguments.add_folds(parser)
    arguments.add_seed(parser)
    options = parser.parse_args(argv)
    folder = options.workdir / "choosing"
    provenance = output.provenance(options.invocation)
    for name in options.dataset:
        scores: dict[str, list[float]] = {}
        for fold, turn, model in itertools.product(
            options.folds, range(options.turns), options.models
        ):
            graph = split_known(load_dataset(name, fold=fold), turn, fold)
            for rules, score in _score(graph, name, model, options.seed).items():
                scores.setdefault(f"{model} | {rules}", []).append(score)
            output.log(f"{name} fold {fold} turn {turn + 1} {model}")
            output.write_json(
                folder / f"{name}.json", {"micro_f1": scores, **provenance}
            )
    found = {
        name: read["micro_f1"]
        for name in paper.DATASETS
        if (read := output.read_json(folder / f"{name}.json")) is not None
    }
    report = choose(found)
    for rules, entry in report["means"].items():
        each = "  ".join(f"{name} {value:.2f}" for name, value in entry.items())
        print(f"{rules:<36} {each}")
    print(f"Chosen: {report['chosen']}")
    for name, rules in report["without"].items():
        print(f"without {name}: {rules}")
    output.write_results(folder / "choosing.json", report, options.invocation)
    return 0


def split_known(graph: hopf_jax.Graph, turn: int, seed: int) -> hopf_jax.Graph:
    """Split the labelled nodes again; those held out become the test nodes."""
    known = np.flatnonzero(graph.train | graph.validation)
    known = np.random.default_rng(seed).permutation(known)
    parts = np.array_split(known, _PARTS)
    others = np.concatenate(parts[:turn] + parts[turn + 1 :])
    count = len(others) // 5
    masks = {"validation": others[:count], "train": others[count:], "test": parts[turn]}
    return graph.with_split(
        **{name: np.isin(np.arange(graph.num_nodes), n) for name, n in masks.items()}
    )


def choose(found: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, Any]:
    """Return the rules with the best mean, over all datasets and with each left out."""
    pairs = [f"{s} | {r}" for s, r in itertools.product(STOPPING, REPORTING)]
    means: dict[str, dict[str, float]] = {}
    for pair in pairs:
        of = {
            name: [np.mean(v) for k, v in scores.items() if k.endswith(f" | {pair}")]
            for name, scores in found.items()
        }
        means[pair] = {name: float(np.mean(values)) for name, values in of.items()}

    def best(names: Sequence[str]) -> str:
        return max(pairs, key=lambda p: round(np.mean([means[p][n] for n in names]), 6))

    return {
        "means": {
            pair: {**each, "mean": float(np.mean(list(each.values())))}
            for pair, each in means.items()
        },
        "chosen": best(list(found)),
        "without": {
            name: best([other for other in found if other != name])
            for name in found
            if len(found) > 1
        },
    }


def _score(graph: hopf_jax.Graph, name: str, model: str, seed: int) -> dict[str, float]:
    """Return held-out micro-F1 in percent, by rules."""
    config = paper.config_for(name)
    scores = {}
    for rule_name in STOPPING:
        with stopping_by(rule_name) as seen:
            result = hopf_jax.fit(graph, model, config, seed=seed, progress=False)
        for reporting, rule in REPORTING.items():
            t = rule(*seen[-1])
            score = result.iterations[t]["scores"]["test"]["micro_f1"]
            scores[f"{rule_name} | {reporting}"] = 100 * score
    return scores


@contextlib.contextmanager
def stopping_by(name: str) -> Iterator[list[tuple[Held, Right]]]:
    """Let `fit` stop by this rule; yield a list of what each iteration is reported by.

    The library has one rule, which is not a setting, so it is patched.
    """
    first, later, falls = STOPPING[name]
    seen: list[tuple[Held, Right]] = []

    def rule(rate: float, wait: int, least: int) -> stopping.Patience:
        counts = later if seen else first
        return (stopping.Patience if counts else _ValidationOnly)(rate, wait, least)

    def note(held: Held, right: Right) -> bool:
        seen.append((list(held), list(right)))
        return True

    with (
        mock.patch.object(training, "Patience", rule),
        mock.patch.object(stopping, "_FALLS", falls),
        mock.patch.object(fitting, "as_good_as_any", note),
    ):
        yield seen


if __name__ == "__main__":
    sys.exit(main())

"""Choose settings and rules on nodes held out from training sets.

The training and validation nodes of a fold are split again: a quarter is held out and
scored, the rest are training and validation nodes as 4 to 1; test nodes are not used.

--compare summaries: kinds of label summaries (`SUMMARIES`). The kind with the highest
held-out micro-F1 of the reported iteration, averaged over datasets, is chosen; of
equals the first listed. Writes WORKDIR/choosing/summaries.json.

--compare rules: rules of stopping and reporting, as printed. Every stopping rule trains
on every split; reporting rules choose among the resulting iterations. The pair with the
highest held-out micro-F1, averaged over datasets and models, is chosen. Writes
WORKDIR/choosing/DATASET.json after every split, and choosing.json from all of them.

Each dataset is also left out in turn: a choice that stays the same then does not hang
on one dataset.
"""

import argparse
import contextlib
import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np

import hopf_jax
from experiments import paper
from experiments.common import arguments, output, runner
from experiments.common.cells import (
    HELD_OUT,
    HELD_OUT_PARTS,
    Cell,
    Record,
    expecting_warnings,
    split_known,
)
from experiments.common.score_table import by_iteration, leak_by_iteration
from hopf_jax import fitting
from hopf_jax.datasets import load_dataset
from hopf_jax.learning import stopping, training

_MODELS = ("i-nip-mean", "ss-ica", "bl-node")
_ITERATIVE = "i-nip-mean"  # Its summaries are compared.

_DROPPED: Mapping[str, Any] = {"summary_dropout": None, "warm_start": False}
_MASKED: Mapping[str, Any] = {**_DROPPED, "training_summaries": "masked"}
_CROSSED: Mapping[str, Any] = {**_DROPPED, "training_summaries": "cross-fitted"}
# Kinds of label summaries, as settings beside the paper's.
SUMMARIES: Mapping[str, Mapping[str, Any]] = {
    "as printed": paper.AS_PRINTED,
    "as printed, cold": {**paper.AS_PRINTED, "warm_start": False},
    "dropout": _DROPPED,
    "masked": _MASKED,
    "masked, warm": {**_MASKED, "warm_start": True},
    "masked, scaled": {**_MASKED, "scale_summaries": True},
    "masked, 3 members": {**_MASKED, "members": 3},
    "cross-fitted, 2": _CROSSED,
    "cross-fitted, 2, warm": {**_CROSSED, "warm_start": True},
    "cross-fitted, 5": {**_CROSSED, "parts": 5},
    "cross-fitted, 2, scaled": {**_CROSSED, "scale_summaries": True},
    # The paper's future work, each beside "masked".
    "cautious by share": {**_MASKED, "caution": "share"},
    "cautious by confidence": {**_MASKED, "caution": "confidence"},
    "ghost edges": {**_MASKED, "ghost_edges": 5},
    "smoothed": {**_MASKED, "smoothing": 0.01},
}

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
    parser.option("compare", str, "summaries", choices=("summaries", "rules"))
    about = "comma-separated (default: the paper's on this machine)"
    parser.option("dataset", arguments.dataset_names, help=about)
    about = f"number of quarters held out in turn, up to {HELD_OUT_PARTS}"
    parser.option("turns", int, 1, about, choices=range(1, HELD_OUT_PARTS + 1))
    parser.option("models", arguments.model_names, _MODELS, "of --compare rules")
    about = "comma-separated numbers of --compare summaries, from 1 (default: all)"
    parser.option("kinds", kinds_named, tuple(SUMMARIES), about)
    arguments.add_folds(parser)
    arguments.add_seed(parser)
    arguments.add_max_epochs(parser)
    about = "number of processes (default: 2 on a CPU, else 1)"
    parser.option("workers", arguments.positive, help=about)
    options = parser.parse_args(argv)
    options.dataset = options.dataset or arguments.available()
    if options.compare == "summaries":
        compare_summaries(options)
    else:
        compare_rules(options)
    return 0


def kinds_named(text: str) -> tuple[str, ...]:
    """Return the kinds of `SUMMARIES` with these numbers, from 1."""
    names = list(SUMMARIES)
    try:
        return tuple(names[int(number) - 1] for number in text.split(","))
    except (ValueError, IndexError):
        listed = "; ".join(f"{i}: {n}" for i, n in enumerate(names, start=1))
        raise argparse.ArgumentTypeError(f"{text!r}: give some of {listed}") from None


def compare_summaries(options: argparse.Namespace) -> None:
    """Train every kind of summaries on every split, and choose one."""
    cells: dict[tuple[str, str], list[Cell]] = {}
    for turn, fold, name, kind in itertools.product(
        range(options.turns), options.folds, options.dataset, options.kinds
    ):
        config = dataclasses.replace(paper.config_for(name), **SUMMARIES[kind])
        config = arguments.limit_epochs(config, options.max_epochs)
        split = f"{HELD_OUT}{turn}"
        cell = Cell(name, _ITERATIVE, fold, config, options.seed, split)
        cells.setdefault((kind, name), []).append(cell)
    folder = options.workdir / "choosing"
    records = runner.run_cells(
        # Splits first, so that a run that is stopped has compared all kinds.
        [cell for row in zip(*cells.values(), strict=True) for cell in row],
        folder / "cells",
        workers=options.workers,
    )
    table = {
        kind: {
            name: summarise([records[cell] for cell in cells[kind, name]])
            for name in options.dataset
        }
        for kind in options.kinds
    }
    scores = {k: {n: e["reported"] for n, e in row.items()} for k, row in table.items()}
    report = {"kinds": table, **best_of(scores)}
    for kind, row in table.items():
        print(f"{kind}")
        for name, entry in row.items():
            means = " ".join(f"{value:.2f}" for value in entry["micro_f1"])
            gaps = " ".join(f"{h}: {value:+.1f}" for h, value in entry["leak"].items())
            print(
                f"  {name:<12} {means}  reported {entry['reported']:.2f}  "
                f"leak {gaps}  {entry['seconds']:.0f} s"
            )
    print(f"Chosen: {report['chosen']}")
    for name, kind in report["without"].items():
        print(f"without {name}: {kind}")
    output.write_results(folder / "summaries.json", report, options.invocation)


def summarise(records: Sequence[Record]) -> dict[str, Any]:
    """Return means over splits: held-out F1 by iteration, and the leak at the last.

    The leak is the F1 of neighbours' summaries as predictions of training nodes' labels
    minus that of held-out nodes, by the number of hops, in percent.
    """
    return {
        "micro_f1": by_iteration(records, "test", "micro_f1"),
        "macro_f1": by_iteration(records, "test", "macro_f1"),
        "train_micro_f1": by_iteration(records, "train", "micro_f1"),
        "reported": float(np.mean([r["scores"]["test"]["micro_f1"] for r in records])),
        "each": [r["scores"]["test"]["micro_f1"] for r in records],
        "leak": {
            hops: each["train"][-1] - each["test"][-1]
            for hops, each in leak_by_iteration(records).items()
        },
        "epochs": float(np.mean([record["epochs"] for record in records])),
        "seconds": float(np.mean([record["seconds"] for record in records])),
    }


def best_of(means: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return the candidate with the best mean, over all datasets and without each.

    Args:
      means: {candidate: {dataset: F1}}; of equals the first is chosen.
    """
    names = list(next(iter(means.values())))

    def best(over: Sequence[str]) -> str:
        return max(means, key=lambda c: round(np.mean([means[c][n] for n in over]), 6))

    others = {name: [n for n in names if n != name] for name in names}
    without = {name: best(over) for name, over in others.items() if over}
    return {"chosen": best(names), "without": without}


def compare_rules(options: argparse.Namespace) -> None:
    """Train by every stopping rule on every split, and choose a pair of rules."""
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
        for name in options.dataset
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

    return {
        "means": {
            pair: {**each, "mean": float(np.mean(list(each.values())))}
            for pair, each in means.items()
        },
        **best_of(means),
    }


def _score(graph: hopf_jax.Graph, name: str, model: str, seed: int) -> dict[str, float]:
    """Return held-out micro-F1 in percent, by rules."""
    config = paper.config_for(name)
    scores = {}
    for rule_name in STOPPING:
        with expecting_warnings(), stopping_by(rule_name) as seen:
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

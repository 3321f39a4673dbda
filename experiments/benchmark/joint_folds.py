"""Compare training folds in one program with `fit` on each of them, in seconds.

Every measurement is a process that trains all folds, compilation included: "fit" one
fold after another (compiled once, as folds share a layout), "loop" and "vmap" with
`hopf_jax.fit_folds`. The ratio is the seconds of fit over those of the other: above 1,
joint training pays. CPU is the same for processor time, which other work on the machine
disturbs less. Writes joint_folds.json to WORKDIR.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

import hopf_jax
from experiments import paper
from experiments.common import arguments, output, workers
from hopf_jax.datasets import DatasetError, load_dataset

_MODULE = "experiments.benchmark.joint_folds"
Way = Literal["fit", "loop", "vmap"]

_WAYS: tuple[Way, ...] = ("fit", "loop", "vmap")
_TIMEOUT = 1800.0
_LINE = "{:<12}{:<7}{:<6}{:<9}{:<7}{:<9}{:<7}{:<14}{}"
_HEAD = _LINE.format(
    *("model", "cores", "way", "seconds", "ratio", "CPU", "ratio"),
    *("ms per epoch", "test F1"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.serve is not None:
        workers.use_cores(options.serve)
        workers.serve({"learn": learn})
        return 0
    try:
        load_dataset(options.dataset, fold=options.folds[0])
    except (DatasetError, ValueError) as error:
        parser.error(str(error))
    rows: list[dict[str, Any]] = []
    data = {
        "dataset": options.dataset,
        "folds": list(options.folds),
        "repeats": options.repeats,
        "rows": rows,
    }
    path = options.workdir / "joint_folds.json"
    print(_HEAD, flush=True)
    for model in options.models:
        for cores in options.cores:
            if cores > len(os.sched_getaffinity(0)):
                print(f"{cores} cores: left out, as there are fewer")
                continue
            for way, row in _measure(options, model, cores).items():
                rows.append({"model": model, "cores": cores, "way": way} | row)
                print(_describe(rows[-1]), flush=True)
    output.write_results(path, data, options.invocation)
    return 0


def _parser() -> arguments.Parser:
    parser = arguments.parser(__doc__, _MODULE)
    parser.option("dataset", arguments.one(arguments.dataset_names), "cora")
    parser.option("models", arguments.model_names, ("nip-mean", "i-nip-mean"))
    arguments.add_folds(parser)
    parser.option("cores", arguments.numbers, (1, 2))
    about = "processes per measurement, in turns; the median counts"
    parser.option("repeats", arguments.positive, 2, about)
    arguments.add_max_epochs(parser)
    parser.option("serve", int, help=argparse.SUPPRESS)
    return parser


def learn(
    dataset: str, model: str, folds: list[int], way: Way, max_epochs: int | None
) -> dict[str, Any]:
    """Train all folds in this process; return times and scores."""
    graphs = [load_dataset(dataset, fold=fold) for fold in folds]
    config = arguments.limit_epochs(paper.config_for(dataset), max_epochs)
    begun, spent = time.perf_counter(), time.process_time()
    if way == "fit":
        results = [hopf_jax.fit(g, model, config, progress=False) for g in graphs]
    else:
        results = hopf_jax.fit_folds(graphs, model, config, progress=False, mapping=way)
    seconds = time.perf_counter() - begun
    epochs = [record["seconds"] for result in results for record in result.history]
    return {
        "seconds": seconds,
        "cpu_seconds": time.process_time() - spent,
        "epochs": len(epochs),
        "epoch_seconds": float(np.median(epochs)),
        "test_micro_f1": [r.scores["test"]["micro_f1"] for r in results],
    }


def _measure(
    options: argparse.Namespace, model: str, cores: int
) -> dict[Way, dict[str, Any]]:
    found: dict[Way, list[dict[str, Any]]] = {way: [] for way in _WAYS}
    asked = {"dataset": options.dataset, "model": model, "folds": list(options.folds)}
    for _ in range(options.repeats):
        for way in _WAYS:
            command = [sys.executable, "-m", _MODULE, "--serve", str(cores)]
            worker = workers.Worker(command, _TIMEOUT)
            try:
                reply = worker.ask(
                    "learn", way=way, max_epochs=options.max_epochs, **asked
                )
            finally:
                worker.end()
            found[way].append(reply)
    rows = {}
    for way, replies in found.items():
        # The seed is the same, so only times differ.
        medians = {
            name: statistics.median(reply[name] for reply in replies)
            for name in ("seconds", "cpu_seconds", "epoch_seconds")
        }
        every = {"all_seconds": [reply["seconds"] for reply in replies]}
        rows[way] = replies[0] | medians | every
    for row in rows.values():
        row["ratio"] = rows["fit"]["seconds"] / row["seconds"]
        row["cpu_ratio"] = rows["fit"]["cpu_seconds"] / row["cpu_seconds"]
    return rows


def _describe(row: dict[str, Any]) -> str:
    return _LINE.format(
        *(row["model"], row["cores"], row["way"]),
        *(f"{row['seconds']:.1f}", f"{row['ratio']:.2f}"),
        *(f"{row['cpu_seconds']:.1f}", f"{row['cpu_ratio']:.2f}"),
        f"{1000 * row['epoch_seconds']:.2f}",
        f"{100 * np.mean(row['test_micro_f1']):.2f}",
    )


if __name__ == "__main__":
    sys.exit(main())

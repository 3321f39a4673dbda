"""One model on one fold, as a batch job: one command, given again until it is done.

Trains with checkpoints in WORKDIR, and writes result.npz (hopf_jax.load reads it) and
scores.json there. Stopped by SIGTERM, SIGINT or a crash, the same command goes on where
it was and ends with the same bytes; when all is done it trains nothing. Its exit status
is 0 when the files are written, 2 for what no restart can mend (the command line, or a
WORKDIR of another run), and anything else for what one may.
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence

import hopf_jax
from experiments import arguments, folders, paper, watching
from hopf_jax.datasets import DatasetError, load_dataset
from hopf_jax.runtime import processes

_MODULE = "experiments.job"
_MODEL = "i-nip-mean"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    made = parser()
    options = made.parse_args(argv)
    try:
        processes.initialize(options.coordinator, options.processes, options.process_id)
        run(options, argv)
    except (DatasetError, ValueError) as error:
        made.error(str(error))
    return 0


def parser() -> argparse.ArgumentParser:
    """What the command line takes."""
    made = arguments.parser(__doc__, _MODULE, results=False)
    made.add_argument("--dataset", type=arguments.dataset_name, required=True)
    made.add_argument(
        "--model",
        type=arguments.model_name,
        default=_MODEL,
        help="(default: %(default)s)",
    )
    made.add_argument("--fold", type=arguments.fold, default=1, help="(default: 1)")
    made.add_argument("--seed", type=arguments.seed, default=0, help="(default: 0)")
    made.add_argument(
        "--hops", type=arguments.positive, help="(default: the paper's by dataset)"
    )
    made.add_argument(
        "--max-epochs", type=arguments.positive, help="stop every iteration here"
    )
    made.add_argument(
        "--checkpoint-every",
        type=arguments.positive,
        default=1,
        metavar="EPOCHS",
        help="at least so many from one checkpoint to the next (default: 1)",
    )
    made.add_argument(
        "--batches-per-step",
        type=arguments.positive,
        default=1,
        metavar="SUBGRAPHS",
        help="of a training step, a multiple of the devices (default: 1)",
    )
    made.add_argument(
        "--devices",
        type=arguments.positive,
        help="that share a step (default: 1, or all of several processes)",
    )
    made.add_argument(
        "--coordinator",
        metavar="HOST:PORT",
        help="of a job of several processes, where the cluster does not tell",
    )
    made.add_argument("--processes", type=arguments.positive, help="of the job")
    made.add_argument("--process-id", type=int, help="which of them this is, from 0")
    watching.add_options(made)
    return made


def run(options: argparse.Namespace, argv: Sequence[str]) -> hopf_jax.Result:
    """Train, or go on, or find it done; the result, with its files written."""
    name = f"{options.dataset}/{options.model}/fold-{options.fold}/seed-{options.seed}"
    config = paper.config_for(options.dataset, options.hops)
    config = dataclasses.replace(config, batches_per_step=options.batches_per_step)
    config = arguments.shortened(config, options.max_epochs)
    graph = load_dataset(options.dataset, fold=options.fold)
    with watching.watch(options).over(name) as reports:
        result = hopf_jax.fit(
            graph,
            options.model,
            config,
            seed=options.seed,
            callbacks=reports.callbacks,
            workdir=options.workdir,
            checkpoint_every=options.checkpoint_every,
            execution=hopf_jax.Execution(devices=options.devices),
        )
        if not processes.is_main():
            return result
        for path in (options.workdir / "result.npz", options.workdir / "scores.json"):
            folders.sweep(path)
        result.save(options.workdir / "result.npz")
        scores = {
            "run": name,
            "scores": result.scores,
            "iteration": result.iteration,
            "iterations": len(result.iterations),
            "epochs": len(result.history),
            **folders.provenance([_MODULE, *argv]),
        }
        folders.write_json(options.workdir / "scores.json", scores)
        reports.tell(result)
    return result


if __name__ == "__main__":
    sys.exit(main())

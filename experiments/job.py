"""Train one model on one fold as a batch job; run the same command again to resume.

Saves checkpoints in WORKDIR, and writes result.npz (for hopf_jax.load) and scores.json
there. Stopped by SIGTERM, SIGINT or a crash, the same command resumes and ends with the
same bytes; after the end it trains nothing. The exit status is 0 when the files are
written, 2 for errors that a restart cannot repair (the command line, or a WORKDIR of
another run), and anything else for errors that it may: 75 for a full disk, a WORKDIR
in use, or checkpoints or a server that cannot be read now.
"""

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence

import hopf_jax
from experiments import paper
from experiments.common import arguments, output, run_logging
from hopf_jax.datasets import DatasetError, load_dataset
from hopf_jax.runtime import TemporaryError, processes


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    made = parser()
    options = made.parse_args(argv)
    try:
        processes.initialize(options.coordinator, options.processes, options.process_id)
        run(options)
    except (TemporaryError, OSError) as error:
        output.log(f"{made.prog}: try again: {error}")
        return os.EX_TEMPFAIL
    except (DatasetError, ValueError) as error:
        made.error(str(error))
    return 0


def parser() -> arguments.Parser:
    """Return the parser of the command line."""
    made = arguments.parser(__doc__, "experiments.job", default_workdir=False)
    positive = arguments.positive
    made.option("dataset", arguments.one(arguments.dataset_names), required=True)
    made.option("model", arguments.one(arguments.model_names), "i-nip-mean")
    made.option("fold", arguments.one(arguments.folds), 1)
    arguments.add_seed(made)
    made.option("hops", positive, help="(default: the paper's by dataset)")
    arguments.add_max_epochs(made)
    made.option("checkpoint-every", positive, 1, "least epochs between checkpoints")
    about = "subgraphs per training step, a multiple of the devices"
    made.option("batches-per-step", positive, 1, about)
    about = "devices that share a step (default: 1, or all of several processes)"
    made.option("devices", positive, help=about)
    made.flag("other-devices", "resume a job begun on another number of devices")
    default = hopf_jax.Execution()
    for name in ("memory-budget", "chunk-edges"):
        about = "as in hopf_jax.Execution; a job may resume with another"
        made.option(name, int, getattr(default, name.replace("-", "_")), about)
    about = "HOST:PORT of the first of several processes, if not detected"
    made.option("coordinator", str, help=about)
    made.option("processes", positive, help="number of processes of the job")
    made.option("process-id", int, help="number of this process, from 0")
    run_logging.add_options(made)
    return made


def run(options: argparse.Namespace) -> hopf_jax.Result:
    """Train or resume, write the files, and return the result."""
    name = f"{options.dataset}/{options.model}/fold-{options.fold}/seed-{options.seed}"
    config = paper.config_for(options.dataset, options.hops)
    config = dataclasses.replace(config, batches_per_step=options.batches_per_step)
    config = arguments.limit_epochs(config, options.max_epochs)
    graph = load_dataset(options.dataset, fold=options.fold)
    with run_logging.settings(options).open(name) as log:
        result = hopf_jax.fit(
            graph,
            options.model,
            config,
            seed=options.seed,
            callbacks=log,
            workdir=options.workdir,
            checkpoint_every=options.checkpoint_every,
            execution=hopf_jax.Execution(
                options.devices,
                options.memory_budget,
                options.chunk_edges,
                options.other_devices,
            ),
        )
        if not processes.is_main():
            return result
        result.save(options.workdir / "result.npz")
        scores = {
            "run": name,
            "scores": result.scores,
            "iteration": result.iteration,
            "iterations": len(result.iterations),
            "epochs": len(result.history),
            **output.provenance(options.invocation),
        }
        output.write_json(options.workdir / "scores.json", scores)
        log.write_result(result)
    return result


if __name__ == "__main__":
    sys.exit(main())

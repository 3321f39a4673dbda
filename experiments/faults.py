"""Kill a batch job at random moments, and check that it ends with the same bytes.

Runs `experiments.job` once undisturbed, and once killed many times (half of them
SIGKILL, half SIGTERM; some before its first epoch, some while it writes a checkpoint)
and started again. Compares result.npz and scores.json byte by byte, and looks for
partial files in the workdir. Writes WORKDIR/faults/faults.json; exits with 1 if
anything differs.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from experiments.common import arguments, output

_FILES = ("result.npz", "scores.json")
_PATIENCE = 600  # Seconds to wait for a job.


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.faults")
    arguments.add_counts(parser, kills=20)
    parser.option("dataset", arguments.one(arguments.dataset_names), "cora")
    parser.option("model", arguments.one(arguments.model_names), "i-nip-mean")
    arguments.add_max_epochs(parser)
    arguments.add_seed(parser, "seed of signals and moments")
    parser.flag("cache", "keep compiled programs between starts")
    options = parser.parse_args(argv)
    folder = options.workdir / "faults"
    output.remove(folder)
    found = compare(folder, options)
    output.write_results(folder / "faults.json", found, options.invocation)
    print(
        f"{found['kills']} kills ({found['by_signal']}), {found['starts']} starts, "
        f"{found['epochs_run']} epochs run for {found['epochs']}, "
        f"{found['seconds']} s against {found['undisturbed_seconds']} s undisturbed; "
        f"partial files after {found['half_written']} kills. "
        f"Same bytes: {found['same']}. Left over: {found['left_over'] or 'nothing'}."
    )
    return 0 if all(found["same"].values()) and not found["left_over"] else 1


class Job:
    """A job with its own workdir, which may be started several times."""

    def __init__(self, folder: pathlib.Path, options: argparse.Namespace):
        self.folder, self.options = folder, options
        self.workdir, self.log = folder / "work", folder / "log.jsonl"

    def start(self) -> subprocess.Popen:
        """Start the command."""
        options = self.options
        command = [sys.executable, "-m", "experiments.job"]
        command += ["--dataset", options.dataset, "--model", options.model]
        if options.max_epochs is not None:
            command += ["--max-epochs", str(options.max_epochs)]
        # Relative, so that both jobs have the same command line.
        command += ["--workdir", "work", "--log-json", "log.jsonl"]
        cache = {
            "JAX_COMPILATION_CACHE_DIR": str(options.workdir.absolute() / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        environment = os.environ | {"PYTHONPATH": str(output.ROOT)}
        self.folder.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment | (cache if options.cache else {}),
            stderr=subprocess.PIPE,
            text=True,
        )

    def epochs(self) -> list[tuple[int, int]]:
        """Return the iteration and number of every epoch in the log."""
        if not self.log.exists():
            return []
        lines = self.log.read_text().splitlines()
        records = [json.loads(line) for line in lines if line.endswith("}")]
        epochs = [r for r in records if r["event"] == "epoch"]
        return [(r["iteration"], r["epoch"]) for r in epochs]

    def finish(self) -> None:
        """Start the job and wait for its end."""
        with self.start() as process:
            errors = process.communicate(timeout=_PATIENCE)[1]
        if process.returncode != 0:
            raise RuntimeError(f"The job ended with {process.returncode}: {errors}")


def compare(folder: pathlib.Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run both jobs and compare what they wrote."""
    rng = random.Random(options.seed)
    undisturbed, killed = (Job(folder / n, options) for n in ("whole", "killed"))
    begun = time.perf_counter()
    undisturbed.finish()
    whole = time.perf_counter() - begun
    epochs = len(undisturbed.epochs())
    signals = ([signal.SIGKILL, signal.SIGTERM] * options.kills)[: options.kills]
    rng.shuffle(signals)
    kills = []
    begun = time.perf_counter()
    for turn, number in enumerate(signals):
        when = rng.choices(("epochs", "start", "checkpoint"), (3, 1, 2))[0]
        # Not so far that the job ends before its last kill. A checkpoint is written
        # after the first epoch.
        left = epochs - len(set(killed.epochs()))
        most = min(left // 2, 3 * left // (2 * (len(signals) - turn)))
        ahead = rng.randint(1, max(1, most)) if when == "epochs" else 1
        kills.append(_kill(killed, number, when, ahead, rng))
    killed.finish()
    seconds = time.perf_counter() - begun
    same = {
        name: (undisturbed.workdir / name).read_bytes()
        == (killed.workdir / name).read_bytes()
        for name in _FILES
    }
    return {
        "kills": len(kills),
        "by_signal": {n.name: signals.count(n) for n in sorted(set(signals))},
        "starts": len(kills) + 1,
        "epochs": epochs,
        "epochs_run": len(killed.epochs()),
        "half_written": sum(kill["half_written"] > 0 for kill in kills),
        "seconds": round(seconds, 1),
        "undisturbed_seconds": round(whole, 1),
        "same": same,
        "left_over": left_over(killed.workdir),
        "each": kills,
    }


def _kill(
    job: Job, number: signal.Signals, when: str, ahead: int, rng: random.Random
) -> dict[str, Any]:
    """Start the job and kill it: some epochs on, while it starts or saves."""
    before, begun = len(job.epochs()), time.perf_counter()
    with job.start() as process:
        if when == "start":
            time.sleep(rng.uniform(0.2, 8))
        while when != "start" and process.poll() is None:
            far = len(job.epochs()) >= before + ahead
            if far and (when == "epochs" or left_over(job.workdir)):
                break
            if time.perf_counter() - begun > _PATIENCE:
                process.kill()
            time.sleep(0.005)
        # At any moment of an epoch, or of writing a checkpoint.
        time.sleep(rng.uniform(0, 0.2 if when == "epochs" else 0.05))
        process.send_signal(number)
        errors = process.communicate(timeout=_PATIENCE)[1]
    if process.returncode != -number:
        raise RuntimeError(
            f"Sent {number.name}, the job ended with {process.returncode}: {errors}"
        )
    seen = job.epochs()[before:]
    return {
        "signal": number.name,
        "when": when,
        "after_seconds": round(time.perf_counter() - begun, 1),
        "from": seen[0] if seen else None,
        "to": seen[-1] if seen else None,
        "half_written": len(left_over(job.workdir)),
    }


def left_over(workdir: pathlib.Path) -> list[str]:
    """Return the files of a workdir that are neither results nor checkpoints."""
    if not workdir.exists():
        return []
    found = [p for p in workdir.iterdir() if p.name not in (*_FILES, "checkpoints")]
    kept = workdir / "checkpoints"
    if kept.exists():
        found += [p for p in kept.iterdir() if not p.name.isdecimal()]
    return sorted(str(p.relative_to(workdir)) for p in found)


if __name__ == "__main__":
    sys.exit(main())

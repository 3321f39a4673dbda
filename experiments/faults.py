"""Kill a batch job at random moments, and check that it ends with the same bytes.

Runs `experiments.job` once undisturbed, and once killed many times (half of them
SIGKILL, half SIGTERM; some before its first epoch, some while it writes a checkpoint)
and started again. With --damage, most kills are followed by damage to the checkpoints:
a byte flipped, a file or a checkpoint's contents removed, a folder added; one
checkpoint always stays intact. Compares result.npz and scores.json byte by byte, looks
for partial files in the workdir, and checks that no start went back behind the newest
intact checkpoint. Writes WORKDIR/faults/faults.json; exits with 1 if anything differs.
"""

import argparse
import collections
import contextlib
import functools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence, Set
from typing import Any

from experiments.common import arguments, output
from hopf_jax.runtime import read_checkpoint

_FILES = ("result.npz", "scores.json")
_PATIENCE = 3600  # Seconds to wait for a job; a machine may be busy.
_DAMAGED_SHARE = 0.7  # Of the kills, if damage is wanted.


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.faults")
    arguments.add_counts(parser, kills=20)
    parser.option("dataset", arguments.one(arguments.dataset_names), "cora")
    parser.option("model", arguments.one(arguments.model_names), "i-nip-mean")
    arguments.add_max_epochs(parser)
    arguments.add_seed(parser, "seed of signals and moments")
    parser.flag("cache", "keep compiled programs between starts")
    parser.flag("damage", "damage checkpoints between starts")
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
        f"Damage: {found['damage'] or 'none'}; starts behind the newest intact "
        f"checkpoint: {found['went_back']}. "
        f"Same bytes: {found['same']}. Left over: {found['left_over'] or 'nothing'}."
    )
    wrong = found["left_over"] or found["went_back"]
    return 0 if all(found["same"].values()) and not wrong else 1


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
    order = undisturbed.epochs()
    epochs = len(order)
    signals = ([signal.SIGKILL, signal.SIGTERM] * options.kills)[: options.kills]
    rng.shuffle(signals)
    kills: list[dict[str, Any]] = []
    damaged: set[str] = set()
    went_back = 0
    begun = time.perf_counter()

    def start_again(run: Callable[[], Any]) -> Any:
        """Start the killed job; note whether it repeats epochs that were safe."""
        nonlocal went_back
        kept = max(_intact(killed.workdir, damaged).values(), default=0)
        before = len(killed.epochs())
        found = run()
        began = killed.epochs()[before:][:1]
        went_back += bool(began) and order.index(began[0]) < kept
        return found

    for turn, number in enumerate(signals):
        when = rng.choices(("epochs", "start", "checkpoint"), (3, 1, 2))[0]
        # Not so far that the job ends before its last kill. A checkpoint is written
        # after the first epoch.
        left = epochs - len(set(killed.epochs()))
        most = min(left // 2, 3 * left // (2 * (len(signals) - turn)))
        ahead = rng.randint(1, max(1, most)) if when == "epochs" else 1
        kill = functools.partial(_kill, killed, number, when, ahead, rng)
        kills.append(start_again(kill))
        if options.damage and rng.random() < _DAMAGED_SHARE:
            kills[-1]["damage"] = damage(killed.workdir, damaged, rng)
    start_again(killed.finish)
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
        "damage": dict(
            collections.Counter(k["damage"] for k in kills if k.get("damage"))
        ),
        "went_back": went_back,
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


def _checkpoints(workdir: pathlib.Path) -> list[pathlib.Path]:
    """Return the folders of complete checkpoints, the newest last."""
    found = (workdir / "checkpoints").glob("*/default")
    folders = [path.parent for path in found if path.parent.name.isdecimal()]
    return sorted(folders, key=lambda path: int(path.name))


def _intact(workdir: pathlib.Path, damaged: Set[str]) -> dict[pathlib.Path, int]:
    """Return the undamaged checkpoints and their numbers of epochs, the newest last.

    A kill can leave one that was being pruned: it is older than the newest two.
    """
    found = {}
    for folder in _checkpoints(workdir):
        if folder.name not in damaged:
            with contextlib.suppress(ValueError, OSError, LookupError):
                found[folder] = read_checkpoint(folder)[0]["state"]["num_epochs"]
    return found


def damage(workdir: pathlib.Path, damaged: set[str], rng: random.Random) -> str:
    """Damage a checkpoint, but never the last one that is intact, or add a folder.

    Args:
      workdir: Of the job.
      damaged: Names of checkpoints that were damaged, added to here.
      rng: Chooses the checkpoint and the damage.

    Returns:
      What was done.
    """
    folder = workdir / "checkpoints"
    if not folder.exists():
        return ""
    intact = list(_intact(workdir, damaged))
    kinds = ["folder added"]
    if len(intact) > 1:
        kinds += ["byte flipped", "file removed", "contents removed"]
    kind = rng.choice(kinds)
    if kind == "folder added":
        numbers = [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
        stray = folder / str(max(numbers, default=0) + rng.randint(1, 3))
        # With something in it, it could be a checkpoint: only beside an intact one.
        (stray / "default" if intact and rng.random() < 0.5 else stray).mkdir(
            parents=True
        )
        damaged.add(stray.name)
        return kind
    # The newest, if it can be: it is the one that a restart reads first.
    chosen = intact[-1] if rng.random() < 0.7 else rng.choice(intact)
    damaged.add(chosen.name)
    if kind == "contents removed":
        shutil.rmtree(chosen / "default")
        return kind
    files = sorted(path for path in chosen.rglob("*") if path.is_file())
    path = rng.choice(files)
    if kind == "byte flipped" and (content := bytearray(path.read_bytes())):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
    else:
        path.unlink()
    return kind


def left_over(workdir: pathlib.Path) -> list[str]:
    """Return the files of a workdir that are neither results nor checkpoints."""
    if not workdir.exists():
        return []
    known = (*_FILES, "checkpoints", "run.lock")
    found = [p for p in workdir.iterdir() if p.name not in known]
    kept = workdir / "checkpoints"
    if kept.exists():
        # Those that could not be read are set aside until newer ones are complete.
        names = re.compile(r"\d+|unreadable-\d+-\d+")
        found += [p for p in kept.iterdir() if not names.fullmatch(p.name)]
    return sorted(str(p.relative_to(workdir)) for p in found)


if __name__ == "__main__":
    sys.exit(main())

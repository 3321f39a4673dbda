"""Compare a training epoch here with one in PyTorch Geometric, on one machine.

NIP-MEAN, the same roots, batches of the same size, all neighbours, Adam, weighted cross
entropy. Each side is a process with the same number of cores; they take turns (ours,
ours without a precomputed first hop, PyG, PyG with stored batches, ours, ...), and
ratios are of adjacent turns. The command fails if the sides compute different losses
from the same weights. experiments/README.md has the details.

PyG has its own environment, .venv-benchmark (`make benchmark PEER=1` makes it); without
it, its columns say "not installed". Writes benchmark.json, benchmark.md and
benchmark.png to WORKDIR, after every case.
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from experiments import paper
from experiments.benchmark import cases, library_worker, report, whole_runs
from experiments.benchmark.cases import CASES, QUICK, Case
from experiments.common import arguments, drawing, output, workers
from hopf_jax import Execution
from hopf_jax.kernels import MODELS
from hopf_jax.learning import make_plan

_PEER = pathlib.Path(".venv-benchmark/bin/python")
_SAME_LOSS = 1e-4  # Relative; float32 sums in another order.
_LEAST_ROUNDS = 3  # Whatever --budget says; batches are extracted in as many.
_LONG_EPOCH = 1.5  # Seconds from which one epoch per turn is enough.
_OWN = ("ours", "ours_plain")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = _parser().parse_args(argv)
    peer, load = find_peer(options.peer), os.getloadavg()[0]
    busy = load > 0.25
    options.rounds = options.rounds or (2 if options.quick else 7)
    options.epochs = options.epochs or (1 if options.quick else 3)
    measured: dict[str, Any] = {}
    data: dict[str, Any] = {
        "cases": measured,
        "machine_limit": None,
        "threads": options.threads,
        "rounds": options.rounds,
        "epochs_a_turn": options.epochs,
        "peer": "installed" if peer else report.NOT_INSTALLED,
        "load_before": load,
        "machine_was_busy": busy,
        "quick": options.quick,
    } | output.provenance(options.invocation)
    with tempfile.TemporaryDirectory() as folder:
        usual = [case for case in CASES if options.all or not case.extended]
        for case in [QUICK] if options.quick else options.cases or usual:
            measured[case.name] = _measure(case, peer, options, folder)
            limit = data["machine_limit"] = report.machine_limit(measured)
            for entry in measured.values():
                entry["limit"] = {
                    side: report.share_of_limit(entry["sides"][side], limit)
                    for side in _OWN
                }
            print(report.table({case.name: measured[case.name]}), flush=True)
            _write(options.workdir, data)
        if options.whole_runs or options.all:
            whole = data["whole_runs"] = {}
            for run in [whole_runs.QUICK] if options.quick else whole_runs.RUNS:
                whole[run.name] = whole_runs.measure(
                    run, peer, options.threads, options.timeout, folder
                )
                _write(options.workdir, data)
            print(report.whole_table(whole))
    if limit is not None:
        print(
            f"The machine, {options.threads} threads: {limit['gflops']:.0f} GFLOP/s, "
            f"{limit['gb_per_s']:.1f} GB/s; load before the run {load:.1f}."
        )
    print(f"Written: {options.workdir}/benchmark.json, benchmark.md, benchmark.png")
    if busy:
        output.log("The machine was busy with other work: do not publish these times.")
    wrong = [name for name, entry in measured.items() if entry["same_loss"] is False]
    if wrong:
        output.log(f"The sides computed different losses: {', '.join(wrong)}.")
    return 1 if wrong else 0


def _write(folder: pathlib.Path, data: dict[str, Any]) -> None:
    output.write_json(folder / "benchmark.json", data)
    output.write_text(folder / "benchmark.md", report.markdown(data))
    drawing.save(report.draw(data["cases"]), folder / "benchmark.png")


def _parser() -> arguments.Parser:
    parser = arguments.parser(__doc__, "experiments.benchmark")
    cases.add_options(parser)
    parser.flag("all", "also K = 3, fan-outs, human-go2022 and whole runs")
    parser.flag("whole-runs", "also time whole runs of I-NIP-MEAN, to the test score")
    parser.flag("quick", "one small graph, for tests")
    parser.option("rounds", arguments.positive, help="most turns per side (default: 7)")
    about = "most epochs per turn (default: 3; 1 where an epoch is long)"
    parser.option("epochs", arguments.positive, help=about)
    about = "seconds per case after which no more rounds begin, except for the first 3"
    parser.option("budget", float, 90.0, about)
    parser.option("timeout", float, 900.0, "seconds per turn")
    about = f"a Python with PyG (default: {_PEER}, if it exists)"
    parser.option("peer", pathlib.Path, help=about)
    return parser


def find_peer(given: pathlib.Path | None) -> str | None:
    """Return the interpreter of the peer, or None if there is none."""
    found = given or output.ROOT / _PEER
    # The default one counts only if its set-up was finished.
    there = found if given else found.parent.parent / ".installed"
    # Not resolved: the target of the link is outside the environment.
    return str(found.absolute()) if there.exists() else None


def _measure(
    case: Case, peer: str | None, options: argparse.Namespace, folder: str
) -> dict[str, Any]:
    """Measure one case: every side prepares, then they take turns."""
    graph = case.load()
    library_worker.store(graph, pathlib.Path(folder))
    settings = case.settings(graph.multilabel)
    kernel = MODELS[paper.TIMED_MODEL]
    ahead = make_plan(graph, kernel, case.config, Execution()).precompute
    described = {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "labels": graph.num_labels,
        "roots": int(graph.train.sum()),
    }
    del graph
    own = library_worker.MODULE, sys.executable
    plain = own if ahead or case.config.fanouts else report.SAME
    theirs = (
        report.NOT_INSTALLED
        if peer is None
        else ("experiments.benchmark.pyg_worker", peer)
    )
    sides = _Sides(options)
    try:
        # Ours first: it stores its weights for the others.
        sides.start("ours", own, folder, settings)
        # With fan-outs the peer's stored batches are one sample, so ours replays one.
        changed = {"precompute": False} if ahead else {"resample": False}
        sides.start("ours_plain", plain, folder, settings | changed)
        sides.start("pyg", theirs, folder, settings)
        sides.start("pyg_cached", theirs, folder, settings)
        sides.take_turns()
        # Last, and by the same process: its memory is not the epoch's.
        sides.ask("ours", "limits")
    finally:
        sides.end()
    entries = sides.entries
    for entry in entries.values():
        report.summarise(entry)
    losses = [e["loss"] for e in entries.values() if e.get("loss") is not None]
    same = None  # Nothing to compare with.
    if len(losses) > 1:
        same = max(losses) - min(losses) <= _SAME_LOSS * abs(losses[0])
    ratios = report.ratios(entries)
    if case.config.fanouts and not isinstance(ratios["pyg"], str):
        ratios |= dict.fromkeys(("pyg_cached", "pyg_plain"), report.UNLIKE)
    return {
        "graph": described,
        "settings": settings,
        "peer_tried": sides.chosen.get("tried"),
        "sides": entries,
        "ratios": ratios,
        "extraction_ratio": report.extraction_ratio(entries),
        "same_loss": same,
    }


class _Sides:
    """The sides of a case: their processes, and what they measured."""

    def __init__(self, options: argparse.Namespace):
        self.entries: dict[str, dict[str, Any]] = {}
        self.chosen: dict[str, Any] = {}  # The fastest way of the peer.
        self._workers: dict[str, workers.Worker] = {}
        self._options = options

    def start(
        self,
        side: str,
        worker: tuple[str, str] | str,
        folder: str,
        settings: dict[str, Any],
    ) -> None:
        """Start the worker of a side, a module and its interpreter, and prepare it.

        In place of the worker may stand the reason why there is none.
        """
        if isinstance(worker, str):
            self.entries[side] = {"outcome": worker}
            return
        process = *worker, self._options.threads, self._options.timeout
        self.entries[side] = {"outcome": "measured", "turns": []}
        self._workers[side] = workers.start(*process)
        asked: dict[str, Any] = {"folder": folder, "case": settings}
        if side in _OWN or not self.chosen:
            self.ask(side, "compile" if side in _OWN else "choose", **asked)
            if side not in self._workers:
                return
            # A new process: the memory of compilations and trials does not count.
            self._workers.pop(side).end()
            self._workers[side] = workers.start(*process)
        if side not in _OWN:
            asked |= {"cached": side == "pyg_cached", "way": self.chosen["way"]}
        self.ask(side, "prepare", **asked)

    def take_turns(self) -> None:
        """Run rounds of epochs, as many as are asked for and the time allows."""
        begun, longest = time.monotonic(), 0.0
        for number in range(self._options.rounds):
            late = time.monotonic() - begun > self._options.budget
            if number >= _LEAST_ROUNDS and late:
                return
            if number < _LEAST_ROUNDS:
                for side in ("ours", "pyg"):  # The others extract the same batches.
                    self.ask(side, "extract")
            # The first epochs show how long they are, and count like any other.
            one = number == 0 or longest > _LONG_EPOCH
            for side in list(self._workers):
                self.ask(side, "epochs", count=1 if one else self._options.epochs)
                last = self.entries[side]["turns"][-1:]
                longest = max([longest, *(s for turn in last for s in turn)])

    def ask(self, side: str, action: str, **asked: Any) -> None:
        """Send a request; a side that fails is dropped, and the others go on."""
        if side not in self._workers:
            return
        entry = self.entries[side]
        try:
            reply = self._workers[side].ask(action, **asked)
        except workers.WorkerError as error:
            output.log(f"{report.SIDES[side]}: {error}")
            entry["outcome"] = str(error).splitlines()[-1]
            self._workers.pop(side).end()
            return
        if action in ("compile", "prepare"):
            entry |= reply
        elif action == "choose":
            self.chosen = reply
        elif action == "epochs":
            entry["turns"].append(reply["seconds"])
            entry.setdefault("cpu_turns", []).append(reply["cpu_seconds"])
            entry["peak_gb"] = reply["peak_gb"]
        elif action == "extract":
            entry.setdefault("extractions", []).append(reply)
        else:
            entry["machine"] = reply

    def end(self) -> None:
        """End all processes."""
        for worker in self._workers.values():
            worker.end()


if __name__ == "__main__":
    sys.exit(main())

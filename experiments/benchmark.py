"""A training epoch here and in PyTorch Geometric, in one run on one machine.

NIP-MEAN, the same roots, batches of the same size, all neighbours, Adam, weighted cross
entropy. Each side is a process of its own with the same number of cores; they take
turns (ours, ours with nothing computed ahead, PyG, PyG with stored batches, ours, ...),
and a ratio is of neighbouring turns. With fan-outs ours and PyG draw anew every epoch;
stored batches are one draw, and our second side then replays one draw too. Before the
timing all compute the loss of all roots from the same weights, and the run fails where
they differ.

PyG has its own environment, .venv-benchmark (`make benchmark PEER=1` makes it); without
it its columns say "not installed". Writes benchmark.json, benchmark.md and
benchmark.png to WORKDIR, after every case. Other work on the machine makes all figures
worse, and not equally: the load is written beside them.
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from experiments import (
    arguments,
    benchmark_jax,
    benchmark_report,
    benchmark_sums,
    case_by_case,
    drawing,
    folders,
    paper,
    whole_runs,
)
from experiments.benchmark_cases import CASES, QUICK, Case, named
from experiments.turns import Worker, WorkerError
from hopf_jax.kernels import MODELS
from hopf_jax.learning import known_ahead

_MODULE = "experiments.benchmark"
_PEER = pathlib.Path(".venv-benchmark/bin/python")
_SAME_LOSS = 1e-4  # Relative; float32 sums in another order.
# A case has so many rounds at least, however long they take, and extracts in as many.
_LEAST_ROUNDS = 3
_LONG_EPOCH = 1.5  # Seconds from which one epoch a turn is enough.


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(argv)
    peer, load = _find_peer(options.peer), os.getloadavg()[0]
    cases = _chosen(options)
    measured: dict[str, Any] = {}
    out = options.workdir
    about = {
        "threads": options.threads,
        "rounds": options.rounds,
        "epochs_a_turn": options.epochs,
        "peer": "installed" if peer else benchmark_report.NOT_INSTALLED,
        "load_before": load,
        "machine_was_busy": _busy(load),
        "quick": options.quick,
    } | folders.provenance([_MODULE, *argv])
    benchmark_report.print_head()
    data: dict[str, Any] = {"cases": measured, "machine_limit": None} | about
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            measured[case.name] = _measure(case, peer, options, folder)
            limit = benchmark_sums.machine_limit(measured)
            for entry in measured.values():
                entry["limit"] = {
                    side: benchmark_sums.share_of_limit(entry["sides"][side], limit)
                    for side in ("ours", "ours_plain")
                }
            benchmark_report.print_row(case.name, measured[case.name])
            data["machine_limit"] = limit
            _write(out, data)
        if options.whole_runs or options.all:
            whole = data["whole_runs"] = {}
            for run in [whole_runs.QUICK] if options.quick else whole_runs.RUNS:
                whole[run.name] = whole_runs.measure(
                    run, peer, options.threads, options.timeout, folder
                )
                _write(out, data)
            benchmark_report.print_whole(whole)
    if limit is not None:
        print(
            f"The machine, {options.threads} threads: {limit['gflops']:.0f} GFLOP/s, "
            f"{limit['gb_per_s']:.1f} GB/s; load before the run {load:.1f}."
        )
    print(f"Written: {out}/benchmark.json, benchmark.md, benchmark.png")
    if _busy(load):
        folders.say("The machine was busy with other work: these times are no figures.")
    wrong = [name for name, entry in measured.items() if entry["same_loss"] is False]
    if wrong:
        folders.say(f"The two sides computed different losses: {', '.join(wrong)}.")
    return 1 if wrong else 0


def _write(out: pathlib.Path, data: dict[str, Any]) -> None:
    """After every case: the last ones take long, and may be interrupted."""
    folders.write_json(out / "benchmark.json", data)
    folders.write_text(out / "benchmark.md", benchmark_report.markdown(data))
    drawing.save(benchmark_report.draw(data["cases"]), out / "benchmark.png")


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser(__doc__, _MODULE)
    parser.add_argument(
        "--all",
        action="store_true",
        help="K = 3, fan-outs, human-go2022 and whole runs too",
    )
    parser.add_argument(
        "--whole-runs",
        action="store_true",
        help="also time whole runs of I-NIP-MEAN, to the test score",
    )
    parser.add_argument("--cases", help='comma-separated, such as "cora K=2"')
    parser.add_argument(
        "--quick", action="store_true", help="one small graph: for tests, no figure"
    )
    parser.add_argument(
        "--rounds", type=arguments.positive, help="most turns a side (default: 7)"
    )
    parser.add_argument(
        "--epochs",
        type=arguments.positive,
        help="most epochs a turn (default: 3; one where an epoch is long)",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=90.0,
        help="seconds of a case's turns, after which no more rounds begin "
        f"({_LEAST_ROUNDS} there are; default: 90)",
    )
    parser.add_argument("--threads", type=arguments.positive, default=2)
    parser.add_argument(
        "--timeout", type=float, default=900.0, help="of a turn, seconds (default: 900)"
    )
    parser.add_argument(
        "--peer",
        type=pathlib.Path,
        help=f"a Python with PyG (default: {_PEER}, if it is there)",
    )
    return parser


def _find_peer(given: pathlib.Path | None) -> str | None:
    """The peer's interpreter, or None if there is none."""
    found = given or folders.ROOT / _PEER
    # The default one only when its set-up was finished.
    there = found if given else found.parent.parent / ".installed"
    # Not resolved: a link that is followed leaves its environment.
    return str(found.absolute()) if there.exists() else None


def _busy(load: float) -> bool:
    """Whether others had more than a quarter of a core."""
    return load > 0.25


def _chosen(options: argparse.Namespace) -> list[Case]:
    options.rounds = options.rounds or (2 if options.quick else 7)
    options.epochs = options.epochs or (1 if options.quick else 3)
    if options.quick:
        return [QUICK]
    if options.cases is None:
        return [case for case in CASES if options.all or not case.extended]
    return named(options.cases)


def _measure(
    case: Case, peer: str | None, options: argparse.Namespace, folder: str
) -> dict[str, Any]:
    """One case: every side prepares, then they take turns."""
    graph = case.load()
    benchmark_jax.store(graph, pathlib.Path(folder))
    config = case.config
    told = case.told(graph.multilabel)
    ahead = known_ahead(graph, MODELS[paper.TIMED_MODEL], config)
    described = {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "labels": graph.num_labels,
        "roots": int(graph.train.sum()),
    }
    del graph
    own_python = sys.executable
    # With fan-outs the peer's stored batches are one draw, so ours is given that too.
    other = {"precompute": False} if ahead else {"resample": False}
    plain = own_python if ahead or config.fanouts else None
    pythons = {"ours": own_python, "ours_plain": plain}
    pythons |= {"pyg": peer, "pyg_cached": peer}
    workers: dict[str, Worker] = {}
    sides: dict[str, dict[str, Any]] = {}
    chosen: dict[str, Any] = {}  # the peer's fastest way
    try:
        for side, python in pythons.items():
            if python is None:
                absent = benchmark_report.NOT_INSTALLED
                if side == "ours_plain":
                    absent = benchmark_report.SAME
                sides[side] = {"outcome": absent}
                continue
            # Ours first: it leaves its weights for the others.
            own = side in ("ours", "ours_plain")
            module = "experiments.benchmark_jax" if own else "experiments.peer_pyg"
            process = module, python, options.threads, options.timeout
            workers[side] = case_by_case.start(*process)
            sides[side] = {"outcome": "measured", "turns": []}
            asked: dict[str, Any] = {"folder": folder, "case": told}
            if side == "ours_plain":
                asked["case"] = told | other
            if own or not chosen:
                _try(sides, workers, side, "compile" if own else "choose", **asked)
                if side not in workers:
                    continue
                # Anew: what compiled, or was tried, does not count as memory.
                workers.pop(side).end()
                workers[side] = case_by_case.start(*process)
                chosen = sides[side].pop("chosen", {})
            if not own:
                asked |= {"cached": side == "pyg_cached", "way": chosen["way"]}
            _try(sides, workers, side, "prepare", **asked)
        _take_turns(sides, workers, options)
        # Last, and by the same process: what it holds for this is not the epoch's.
        _try(sides, workers, "ours", "limits")
    finally:
        for worker in workers.values():
            worker.end()
    for entry in sides.values():
        benchmark_sums.summarise(entry)
    losses = [s["loss"] for s in sides.values() if s.get("loss") is not None]
    same = None  # Nothing to compare with.
    if len(losses) > 1:
        same = max(losses) - min(losses) <= _SAME_LOSS * abs(losses[0])
    ratios = benchmark_sums.ratios(sides)
    if config.fanouts and not isinstance(ratios["pyg"], str):
        ratios |= dict.fromkeys(("pyg_cached", "pyg_plain"), benchmark_report.UNLIKE)
    return {
        "graph": described,
        "settings": told,
        "peer_tried": chosen.get("tried"),
        "sides": sides,
        "ratios": ratios,
        "extraction_ratio": benchmark_sums.extraction_ratio(sides),
        "same_loss": same,
    }


def _take_turns(
    sides: dict[str, dict[str, Any]],
    workers: dict[str, Worker],
    options: argparse.Namespace,
) -> None:
    """Rounds of epochs, as many as are asked for and the time allows."""
    begun, longest = time.monotonic(), 0.0
    for number in range(options.rounds):
        if number >= _LEAST_ROUNDS and time.monotonic() - begun > options.budget:
            return
        if number < _LEAST_ROUNDS:
            for side in ("ours", "pyg"):  # The others cut the same batches.
                _try(sides, workers, side, "extract")
        # The first epochs say how long they are, and are counted like any other.
        count = 1 if number == 0 or longest > _LONG_EPOCH else options.epochs
        for side in list(workers):
            _try(sides, workers, side, "epochs", count=count)
            last = sides[side]["turns"][-1:]
            longest = max([longest, *(seconds for turn in last for seconds in turn)])


def _try(
    sides: dict[str, dict[str, Any]],
    workers: dict[str, Worker],
    side: str,
    what: str,
    **asked: Any,
) -> None:
    """A request; a side that fails is out, and the others go on."""
    if side not in workers:
        return
    try:
        reply = workers[side].ask(what, **asked)
    except WorkerError as ended:
        folders.say(f"{benchmark_report.SIDES[side]}: {ended}")
        sides[side]["outcome"] = str(ended).splitlines()[-1]
        workers.pop(side).end()
        return
    if what in ("compile", "prepare"):
        sides[side] |= reply
    elif what == "choose":
        sides[side]["chosen"] = reply
    elif what == "epochs":
        sides[side]["turns"].append(reply["seconds"])
        sides[side].setdefault("cpu_turns", []).append(reply["cpu_seconds"])
        sides[side]["peak_gb"] = reply["peak_gb"]
    elif what == "extract":
        sides[side].setdefault("extractions", []).append(reply)
    else:
        sides[side]["machine"] = reply


if __name__ == "__main__":
    sys.exit(main())

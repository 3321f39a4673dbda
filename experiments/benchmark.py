"""A training epoch here and in PyTorch Geometric, in one run on one machine.

NIP-MEAN, the same roots, batches of the same size, all neighbours, Adam, weighted cross
entropy. Each side is a process of its own with the same number of cores; they take
turns (ours, PyG, PyG with stored batches, ours, ...), and a ratio is of neighbouring
turns. Before the timing both compute the loss of all roots from the same weights, and
the run fails where they differ.

PyG has its own environment, .venv-benchmark (`make benchmark PEER=1` makes it); without
it its columns say "not installed". Writes benchmark.json and benchmark.png to
WORKDIR/benchmark. Other work on the machine makes all figures worse, and not equally:
the load is written beside them.
"""

import argparse
import dataclasses
import os
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from experiments import (
    arguments,
    benchmark_jax,
    benchmark_report,
    drawing,
    folders,
    paper,
)
from experiments.turns import Worker, WorkerError
from hopf_jax import Config, Graph
from hopf_jax.datasets import load_dataset, make_random

_MODULE = "experiments.benchmark"
_PEER = pathlib.Path(".venv-benchmark/bin/python")
_SAME_LOSS = 1e-4  # Relative; float32 sums in another order.


@dataclasses.dataclass(frozen=True)
class Case:
    """A graph and the net that is trained on it."""

    name: str
    load: Callable[[], Graph]
    config: Config
    extended: bool = False  # measured with --all only


def _synthetic(num_nodes: int | None = None) -> Graph:
    sizes = paper.SCALING
    nodes = num_nodes or sizes["num_nodes"]
    edges = nodes * sizes["num_edges"] // sizes["num_nodes"]
    return make_random(nodes, edges, sizes["num_features"], sizes["num_labels"])


def _paper_config(dataset: str, hidden: int) -> Config:
    config = paper.config_for(dataset, 2)
    return dataclasses.replace(config, hidden_size=hidden, fanouts=None, batch_size=128)


def _synthetic_config(hops: int, fanouts: tuple[int, ...] | None = None) -> Config:
    sizes = paper.SCALING
    # Without dropout, as in `make scaling`.
    return Config(
        num_hops=hops,
        hidden_size=sizes["hidden"],
        batch_size=sizes["batch_size"],
        fanouts=fanouts,
        dropout=0.0,
    )


CASES = (
    Case("cora K=2", lambda: load_dataset("cora"), _paper_config("cora", 16)),
    Case("pubmed K=2", lambda: load_dataset("pubmed"), _paper_config("pubmed", 16)),
    Case("synthetic K=1", _synthetic, _synthetic_config(1)),
    Case("synthetic K=2", _synthetic, _synthetic_config(2)),
    Case("synthetic K=3", _synthetic, _synthetic_config(3), extended=True),
    Case("synthetic 25,10", _synthetic, _synthetic_config(2, (25, 10)), extended=True),
    Case(
        "human-go2022 K=2",
        lambda: load_dataset("human-go2022"),
        _paper_config("human-go2022", 128),
        extended=True,
    ),
)
_QUICK = Case(
    "quick K=1",
    lambda: _synthetic(4000),
    Config(num_hops=1, hidden_size=8, batch_size=32, dropout=0.5),
)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(argv)
    peer, load = _find_peer(options.peer), os.getloadavg()[0]
    cases = _chosen(options)
    measured: dict[str, Any] = {}
    out = options.workdir / "benchmark"
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
    limit = None
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            measured[case.name] = _measure(case, peer, options, folder)
            limit = benchmark_report.limit(measured)
            for entry in measured.values():
                entry["limit"] = benchmark_report.share(entry, limit)
            benchmark_report.print_row(case.name, measured[case.name])
            # After every case: the last ones take long, and may be interrupted.
            data = {"cases": measured, "machine_limit": limit} | about
            folders.write_json(out / "benchmark.json", data)
            drawing.save(benchmark_report.draw(measured), out / "benchmark.png")
    if limit is not None:
        print(
            f"The machine, {options.threads} threads: {limit['gflops']:.0f} GFLOP/s, "
            f"{limit['gb_per_s']:.1f} GB/s; load before the run {load:.1f}."
        )
    print(f"Written: {out}/benchmark.json, benchmark.png")
    if _busy(load):
        folders.say("The machine was busy with other work: these times are no figures.")
    wrong = [name for name, entry in measured.items() if entry["same_loss"] is False]
    if wrong:
        folders.say(f"The two sides computed different losses: {', '.join(wrong)}.")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser(__doc__, _MODULE)
    parser.add_argument(
        "--all", action="store_true", help="K = 3, fan-outs and human-go2022 too"
    )
    parser.add_argument("--cases", help='comma-separated, such as "cora K=2"')
    parser.add_argument(
        "--quick", action="store_true", help="one small graph: for tests, no figure"
    )
    parser.add_argument(
        "--rounds", type=arguments.positive, help="turns a side (default: 7)"
    )
    parser.add_argument(
        "--epochs", type=arguments.positive, help="epochs a turn (default: 3)"
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
        return [_QUICK]
    if options.cases is None:
        return [case for case in CASES if options.all or not case.extended]
    known = {case.name: case for case in CASES}
    # A name may have a comma: "synthetic 25,10".
    chosen = [case for name, case in known.items() if name in options.cases]
    if not chosen:
        raise SystemExit(f"--cases names none of: {'; '.join(known)}")
    return chosen


def _start(module: str, python: str, options: argparse.Namespace) -> Worker:
    command = [python, "-m", module, "--threads", str(options.threads)]
    return Worker(command, folders.ROOT, options.timeout)


def _measure(
    case: Case, peer: str | None, options: argparse.Namespace, folder: str
) -> dict[str, Any]:
    """One case: every side prepares, then they take turns."""
    graph = case.load()
    benchmark_jax.store(graph, pathlib.Path(folder))
    config = case.config
    told = {
        name: getattr(config, name)
        for name in (
            *("num_hops", "hidden_size", "batch_size", "fanouts", "dropout"),
            *("learning_rate", "l2", "clip", "memory_budget"),
        )
    } | {"multilabel": graph.multilabel}
    described = {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "labels": graph.num_labels,
        "roots": int(graph.train.sum()),
    }
    del graph
    pythons = {"ours": sys.executable, "pyg": peer, "pyg_cached": peer}
    workers: dict[str, Worker] = {}
    sides: dict[str, dict[str, Any]] = {}
    chosen: dict[str, Any] = {}  # the peer's fastest way
    try:
        for side, python in pythons.items():
            if python is None:
                sides[side] = {"outcome": benchmark_report.NOT_INSTALLED}
                continue
            own = side == "ours"  # First: it leaves its weights for the others.
            module = "experiments.benchmark_jax" if own else "experiments.peer_pyg"
            workers[side] = _start(module, python, options)
            sides[side] = {"outcome": "measured", "turns": []}
            asked: dict[str, Any] = {"folder": folder, "case": told}
            if not own:
                if not chosen:
                    _try(sides, workers, side, "choose", **asked)
                    chosen = sides[side].pop("chosen", {})
                    if not chosen:
                        continue
                    # Anew, so that what was tried does not count as memory.
                    workers.pop(side).end()
                    workers[side] = _start(module, python, options)
                asked |= {"cached": side == "pyg_cached", "way": chosen["way"]}
            _try(sides, workers, side, "prepare", **asked)
        for _ in range(options.rounds):
            for side in list(workers):
                _try(sides, workers, side, "extract")
                _try(sides, workers, side, "epochs", count=options.epochs)
        # Last, and by the same process: what it holds for this is not the epoch's.
        _try(sides, workers, "ours", "limits")
    finally:
        for worker in workers.values():
            worker.end()
    for entry in sides.values():
        _summarise(entry)
    losses = [s["loss"] for s in sides.values() if s.get("loss") is not None]
    same = None  # Nothing to compare with.
    if len(losses) > 1:
        same = max(losses) - min(losses) <= _SAME_LOSS * abs(losses[0])
    return {
        "graph": described,
        "settings": told,
        "peer_tried": chosen.get("tried"),
        "sides": sides,
        "ratios": {
            side: _ratio(sides["ours"], sides[side]) for side in ("pyg", "pyg_cached")
        },
        "extraction_ratio": _extraction_ratio(sides),
        "same_loss": same,
    }


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
    if what == "prepare":
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


def _summarise(side: dict[str, Any]) -> None:
    """Medians and spread of a side's turns."""
    if side["outcome"] != "measured":
        return
    every = [seconds for turn in side["turns"] for seconds in turn]
    side["seconds"] = spread(every)
    side["cpu_seconds"] = spread(side["cpu_turns"])
    cut = side["extractions"]
    side["extraction"] = {
        "seconds": spread([one["seconds"] for one in cut]),
        "nodes_per_s": statistics.median(one["nodes"] / one["seconds"] for one in cut),
        "edges_per_s": statistics.median(one["edges"] / one["seconds"] for one in cut),
    }
    del side["extractions"]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {
        "median": statistics.median(values),
        "least": min(values),
        "most": max(values),
    }


def _ratio(ours: dict[str, Any], peer: dict[str, Any]) -> dict[str, float] | str:
    """The peer's seconds over ours, of neighbouring turns; or why there is none."""
    for side in (ours, peer):
        if side["outcome"] != "measured":
            return side["outcome"]
    ratio = spread(
        [
            statistics.median(theirs) / statistics.median(own)
            for own, theirs in zip(ours["turns"], peer["turns"], strict=True)
        ]
    )
    # On a busy machine threads that wait for each other are hit hardest; the best
    # epoch of each side, and the cores' own time, say more there than medians.
    best = peer["seconds"]["least"] / ours["seconds"]["least"]
    cpu = peer["cpu_seconds"]["median"] / ours["cpu_seconds"]["median"]
    return ratio | {"of_least": best, "of_cpu": cpu}


def _extraction_ratio(sides: dict[str, dict[str, Any]]) -> float | None:
    """Edges a second here over NeighborLoader's."""
    ours, peer = sides["ours"], sides["pyg"]
    if "extraction" not in ours or "extraction" not in peer:
        return None
    return ours["extraction"]["edges_per_s"] / peer["extraction"]["edges_per_s"]


if __name__ == "__main__":
    sys.exit(main())

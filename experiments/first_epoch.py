"""Measure how soon a fit starts: with nothing compiled, and with programs kept on disk.

Processes fit a graph of 500 nodes, first with an empty folder of programs, then with
what the one before left there. With `--beside`, another working tree of the library
takes turns with this one. Times are from the start of `fit` to the end of its first
epoch, and to its end; processor time, which other work disturbs less, is that of the
whole process.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from experiments.common import arguments, output

_HERE = pathlib.Path(__file__).parents[1]
_FIT = """
import json, sys, time, warnings
import numpy as np
import hopf_jax
from hopf_jax.datasets import make_planted
warnings.simplefilter("ignore")
model, nodes, epochs = sys.argv[1] or None, int(sys.argv[2]), int(sys.argv[3])
hopf_jax.keep_programs()
graph = make_planted(nodes, 4 * nodes, 16, 4, homophily=0.8, seed=0)
imported, begun, seconds = time.process_time(), time.perf_counter(), []
note = lambda record: seconds.append(
    (time.perf_counter() - begun, time.process_time() - imported))
hopf_jax.fit(graph, model, max_epochs=epochs, progress=False, callbacks=[note])
note({})
print(json.dumps({"first_epoch": seconds[0][0], "fit": seconds[-1][0],
                  "first_epoch_processor": seconds[0][1],
                  "fit_processor": seconds[-1][1]}))
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.first_epoch")
    parser.option("model", str, "i-nip-mean", "the model to fit; '' to choose one")
    parser.option("nodes", int, 500, "number of nodes")
    parser.option("epochs", int, 30, "the most epochs of an iteration")
    parser.option("rounds", int, 1, "how often to measure; medians are printed")
    parser.option("beside", str, "", "another working tree, to take turns with")
    options = parser.parse_args(argv)
    trees = {"this": _HERE}
    if options.beside:
        trees["other"] = pathlib.Path(options.beside).resolve()
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        for name, tree in trees.items():
            with tempfile.TemporaryDirectory() as folder:
                for which in ("compiled", "kept"):
                    seconds = _measure(tree, folder, options)
                    found.setdefault(f"{name}, {which}", []).append(seconds)
    medians = {name: _medians(runs) for name, runs in found.items()}
    print(f"{'seconds':<16} first epoch   (processor)   whole fit   (processor)")
    for name, each in medians.items():
        print(
            f"{name:<16} {each['first_epoch']:11.2f} "
            f"{each['first_epoch_processor']:13.2f} {each['fit']:11.2f} "
            f"{each['fit_processor']:13.2f}"
        )
    base = medians["other, compiled" if options.beside else "this, compiled"]
    for name, each in medians.items():
        shares = ", ".join(f"{k} {each[k] / base[k]:.0%}" for k in base)
        print(f"{name}: {shares}")
    path = options.workdir / "first_epoch.json"
    output.write_results(path, {"seconds": found}, options.invocation)
    return 0


def _measure(tree: pathlib.Path, folder: str, options: Any) -> dict[str, float]:
    """Return the seconds that a process took to fit."""
    given = options.model, str(options.nodes), str(options.epochs)
    done = subprocess.run(
        [sys.executable, "-c", _FIT, *given],
        cwd=tree,  # Whose modules come first.
        env=os.environ | {"HOPF_CACHE": folder},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def _medians(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(r[name] for r in runs) for name in runs[0]}


if __name__ == "__main__":
    sys.exit(main())

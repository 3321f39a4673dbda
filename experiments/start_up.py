"""Measure how much sooner a fit starts with programs that were kept on disk.

Two processes fit Zachary's karate club, the first with an empty folder of programs. The
time is from the start of Python to the end of the first epoch.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from experiments.common import arguments, output

_FIT = """
import time
begun = time.perf_counter()
import networkx as nx
import hopf_jax
hopf_jax.keep_programs()
graph = hopf_jax.Graph.from_networkx(nx.karate_club_graph(), labels="club")
seconds = []
hopf_jax.fit(graph, {model!r}, num_iterations=2, progress=False,
             callbacks=[lambda record: seconds.append(time.perf_counter() - begun)])
print(seconds[0], seconds[-1])
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.start_up")
    parser.option("model", str, "i-nip-mean", "the model to fit")
    options = parser.parse_args(argv)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for which in ("compiled", "kept"):
            done = subprocess.run(
                [sys.executable, "-c", _FIT.format(model=options.model)],
                env=os.environ | {"HOPF_CACHE": folder},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            first, last = map(float, done.stdout.split())
            found[which] = {"first_epoch": first, "whole_fit": last}
            print(
                f"{which:<9} first epoch {first:5.1f} s, fit {last:5.1f} s", flush=True
            )
    share = found["kept"]["first_epoch"] / found["compiled"]["first_epoch"]
    print(f"The second run starts in {share:.0%} of the time of the first.")
    path = options.workdir / "start_up.json"
    output.write_results(path, {"seconds": found}, options.invocation)
    return 0


if __name__ == "__main__":
    sys.exit(main())

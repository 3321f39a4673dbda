"""Fit many graphs of different sizes in one process, and watch its memory.

A service that fits one graph after another must not grow: compiled programs of finished
fits are released. Prints resident memory and the number of memory maps (Linux allows a
process some 65,000) every few fits, writes WORKDIR/longevity/longevity.json, and exits
with 1 if either grows by more than a tenth after the first quarter of the fits.
"""

import itertools
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import hopf_jax
from experiments.common import arguments, output
from hopf_jax.datasets import make_planted

_TOLERANCE = 0.1
_SETTINGS = hopf_jax.Config(num_hops=2, hidden_size=8, num_iterations=2, max_epochs=3)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.longevity")
    arguments.add_counts(parser, fits=200, sizes=50)
    parser.option("model", arguments.one(arguments.model_names), "i-nip-mean")
    options = parser.parse_args(argv)
    curve = watch(options.fits, options.sizes, options.model)
    growth = {name: grown(curve, name) for name in ("rss_mb", "maps")}
    data = {"fits": options.fits, "sizes": options.sizes, "growth": growth}
    path = options.workdir / "longevity" / "longevity.json"
    output.write_results(path, data | {"curve": curve}, options.invocation)
    shown = ", ".join(f"{name} {100 * share:+.1f}%" for name, share in growth.items())
    print(f"After the first quarter: {shown}.")
    return 0 if max(growth.values()) <= _TOLERANCE else 1


def watch(fits: int, sizes: int, model: str) -> list[dict[str, Any]]:
    """Fit graphs of `sizes` sizes in turn; return what the process took after each."""
    curve = []
    for fit, size in zip(range(1, fits + 1), itertools.cycle(range(sizes))):
        graph = make_planted(400 + 53 * size, 4 * (400 + 53 * size), seed=size)
        hopf_jax.fit(graph, model, _SETTINGS, progress=False).predict()
        curve.append({"fit": fit, "nodes": graph.num_nodes} | measure())
        if fit % max(1, fits // 20) == 0:
            print(*(f"{name} {value}" for name, value in curve[-1].items()), flush=True)
    return curve


def measure() -> dict[str, int]:
    """Return the resident memory of this process and its number of memory maps."""
    status = pathlib.Path("/proc/self/status").read_text().splitlines()
    (resident,) = (line.split()[1] for line in status if line.startswith("VmRSS:"))
    with open("/proc/self/maps") as maps:
        return {"rss_mb": int(resident) // 1024, "maps": sum(1 for _ in maps)}


def grown(curve: Sequence[dict[str, Any]], name: str) -> float:
    """Return by which share a value grows after the first quarter of the fits.

    The most of the last quarter is compared with the most of the first.
    """
    quarter = max(1, len(curve) // 4)
    first, last = curve[:quarter], curve[-quarter:]
    return max(c[name] for c in last) / max(c[name] for c in first) - 1


if __name__ == "__main__":
    sys.exit(main())

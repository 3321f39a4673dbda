"""Medians, spreads and ratios of the measurements of all sides."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.benchmark.limits import least_seconds

# {ratio: (numerator, denominator)}.
RATIOS = {
    "pyg": ("pyg", "ours"),
    "pyg_cached": ("pyg_cached", "ours"),
    "pyg_plain": ("pyg", "ours_plain"),
    "pyg_cached_plain": ("pyg_cached", "ours_plain"),
}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median, least and most."""
    return {
        "median": statistics.median(values),
        "least": min(values),
        "most": max(values),
    }


def summarise(side: dict[str, Any]) -> None:
    """Add medians and spreads of the turns to the entry of a side."""
    extractions = side.pop("extractions", [])
    if side["outcome"] != "measured":
        return
    every = [seconds for turn in side["turns"] for seconds in turn]
    side["seconds"] = spread(every)
    side["cpu_seconds"] = spread(side["cpu_turns"])
    if extractions:
        side["extraction"] = {
            "seconds": spread([one["seconds"] for one in extractions]),
            **{
                f"{what}_per_s": statistics.median(
                    one[what] / one["seconds"] for one in extractions
                )
                for what in ("nodes", "edges")
            },
        }


def ratios(sides: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the peer's seconds over ours, of adjacent turns; or why there is none."""
    return {
        name: _ratio(sides[own], sides[peer]) for name, (peer, own) in RATIOS.items()
    }


def _ratio(ours: dict[str, Any], peer: dict[str, Any]) -> dict[str, float] | str:
    for side in (ours, peer):
        if side["outcome"] != "measured":
            return side["outcome"]
    ratio = spread(
        [
            statistics.median(theirs) / statistics.median(own)
            for own, theirs in zip(ours["turns"], peer["turns"], strict=True)
        ]
    )
    # On a busy machine the best epoch of each side and its processor time are more
    # reliable than medians.
    best = peer["seconds"]["least"] / ours["seconds"]["least"]
    cpu = peer["cpu_seconds"]["median"] / ours["cpu_seconds"]["median"]
    return ratio | {"of_least": best, "of_cpu": cpu}


def extraction_ratio(sides: Mapping[str, dict[str, Any]]) -> float | None:
    """Return edges per second here over those of NeighborLoader."""
    ours, peer = sides["ours"], sides["pyg"]
    if "extraction" not in ours or "extraction" not in peer:
        return None
    return ours["extraction"]["edges_per_s"] / peer["extraction"]["edges_per_s"]


def machine_limit(measured: Mapping[str, Any]) -> dict[str, float] | None:
    """Return the best measured speed over all cases, or None."""
    ours = [entry["sides"]["ours"] for entry in measured.values()]
    found = [side["machine"] for side in ours if "machine" in side]
    if not found:
        return None
    return {name: max(one[name] for one in found) for name in found[0]}


def share_of_limit(
    side: dict[str, Any], limit: dict[str, float] | None
) -> dict[str, float] | None:
    """Return the seconds of the counted work, and their share of our epoch."""
    if limit is None or side["outcome"] != "measured":
        return None
    seconds = least_seconds(side["work"], limit)
    return {"seconds": seconds, "share": seconds / side["seconds"]["median"]}

"""The report of the benchmark: medians and ratios, its table and its figure."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.benchmark.limits import least_seconds
from experiments.common import drawing
from experiments.common.markdown import markdown_table

SIDES = {
    "ours": "hopf_jax",
    "ours_plain": "hopf_jax, plain",
    "pyg": "PyG",
    "pyg_cached": "PyG, stored batches",
}
NOT_INSTALLED = "not installed"
UNLIKE = "not alike"  # One samples anew, the other replays one sample.
SAME = "as ours"  # A plain side would be the same program.
MOST_WASTE = 0.25

_HEAD = [
    *("case", "ours, s", "plain, s", "PyG, s", "stored, s", "PyG / ours"),
    *("stored / ours", "PyG / plain", "stored / plain", "extract", "peak GB"),
    *("batch, first hop, compile, s", "padding n, e < 25%", "limit", "resident"),
]
_WHOLE_HEAD = [
    "run",
    "side",
    "seconds",
    "epochs",
    "test micro-F1",
    "iteration",
    "ratio",
]


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


def row(name: str, entry: Mapping[str, Any]) -> list[str]:
    """Return the row of a case."""
    sides, ours = entry["sides"], entry["sides"]["ours"]
    measured = ours["outcome"] == "measured"
    near, extraction = entry["limit"]["ours"], entry["extraction_ratio"]
    peaks = [
        f"{side['peak_gb']:.2f}" if "peak_gb" in side else "-"
        for side in sides.values()
    ]
    spent = [ours.get(f"{what}_seconds") for what in ("batching", "ahead", "compile")]
    return [
        name,
        *(_range(s.get("seconds", s["outcome"])) for s in sides.values()),
        *(_range(ratio) for ratio in entry["ratios"].values()),
        "-" if extraction is None else f"{extraction:.2g}",
        " ".join(peaks),
        " ".join("-" if one is None else f"{one:.1f}" for one in spent),
        waste(sides),
        "-" if near is None else f"{near['share']:.0%}",
        f"{ours['resident_bytes'] / 1e6:.0f} MB" if measured else "-",
    ]


def waste(sides: Mapping[str, dict[str, Any]]) -> str:
    """Return the padding on our sides, and whether it is below the bound."""
    found = [
        (side["node_waste"], side["edge_waste"])
        for side in sides.values()
        if "node_waste" in side
    ]
    if not found:
        return "-"
    within = all(most < MOST_WASTE for pair in found for most in pair)
    listed = ", ".join(f"{nodes:.0%} {edges:.0%}" for nodes, edges in found)
    return f"{listed} {'yes' if within else 'NO'}"


def table(measured: Mapping[str, Any]) -> str:
    """Return the table of all cases, in Markdown."""
    rows = [row(name, entry) for name, entry in measured.items()]
    return markdown_table(_HEAD, rows, numbers=False)


def markdown(data: Mapping[str, Any]) -> str:
    """Return the page: the table, and a description of its columns."""
    limit, whole = data["machine_limit"], data.get("whole_runs")
    lines = [
        "# A training epoch, here and in PyTorch Geometric",
        "",
        f"`{data['command']}`, commit {data['commit']}, {data['threads']} threads, "
        f"load before the run {data['load_before']:.1f}.",
        "",
        table(data["cases"]),
        "",
        "Seconds and ratios are medians (least-most) of turns. *plain*: the first hop "
        "is not precomputed (`precompute=False`), as in the peer; with fan-outs, one "
        "sample is replayed, as in *stored*. *stored*: PyG replays stored batches. "
        "*extract*: edges per second put into batches, ours over NeighborLoader's. "
        "*peak GB*: in the order of the sides, our programs compiled by another "
        "process (whose peak is compile_peak_gb in the JSON). *batch, first hop, "
        "compile*: seconds before the first epoch, once. *padding*: padding of nodes "
        "and edges on our sides, and whether all is below 25%. *limit*: the time of "
        "the epoch's counted work at the measured speed of the machine, as a share of "
        "our epoch.",
    ]
    if limit is not None:
        lines += [
            "",
            f"The machine: {limit['gflops']:.0f} GFLOP/s (product of matrices), "
            f"{limit['gb_per_s']:.1f} GB/s (copy).",
        ]
    if whole:
        lines += ["", "## Whole runs", ""]
        lines += [
            whole_table(whole),
            "",
            "From graph to reported test score, I-NIP-MEAN, fold 1, the paper's "
            "settings and the same stopping rule; ours with batching and compilation. "
            "The peer replays stored batches. Random numbers differ, and so do epochs.",
        ]
    return "\n".join([*lines, ""])


def whole_table(whole: Mapping[str, Any]) -> str:
    """Return the table of whole runs, with one row per side, in Markdown."""
    rows: list[list[str]] = []
    for name, entry in whole.items():
        for side, found in entry["sides"].items():
            cells = [found["outcome"], *["-"] * 4]
            if found["runs"]:
                (run,) = found["runs"]
                cells = [f"{run['seconds']:.1f}", str(run["epochs"])]
                cells += [f"{100 * run['test_micro_f1']:.2f}", str(run["iteration"])]
                ratio = entry["ratio"] if side != "ours" else None
                cells.append("-" if ratio is None else f"{ratio['median']:.3g}")
            rows.append([name, SIDES[side], *cells])
    return markdown_table(_WHOLE_HEAD, rows, numbers=False)


def _range(value: dict[str, float] | str) -> str:
    """Return "median (least-most)", or why there is none."""
    if isinstance(value, str):
        return value[:15]
    least, median, most = (value[name] for name in ("least", "median", "most"))
    return f"{median:.3g} ({least:.3g}-{most:.3g})"


def draw(measured: Mapping[str, Any]) -> Any:
    """Draw seconds of an epoch, and ratios, as one group of bars per case."""
    figure = drawing.new(max(7.5, 2.0 + 2.1 * len(measured)), 4.2)
    left, right = figure.subplots(1, 2)
    entries = list(measured.values())
    for i, (side, label) in enumerate(SIDES.items()):
        seconds = [entry["sides"][side].get("seconds") for entry in entries]
        _bars(left, i, seconds, color=drawing.COLOURS[i], label=label)
    for i, name in enumerate(RATIOS):
        ratios = [entry["ratios"][name] for entry in entries]
        known = [None if isinstance(ratio, str) else ratio for ratio in ratios]
        look = {"color": drawing.COLOURS[2 + i % 2], "alpha": 1 if i < 2 else 0.45}
        _bars(right, i, known, label=name, **look)
    drawing.tidy(left, ylabel="seconds (log scale)", title="Training epoch")
    title = "Ratio (pale: without precomputing)"
    drawing.tidy(right, ylabel="their seconds / ours", title=title)
    if left.patches:
        left.set_yscale("log")
    right.axhline(1, color="0.4", linewidth=1)
    for axes in (left, right):
        axes.set_xticks(range(len(measured)), list(measured), rotation=25, ha="right")
    if not right.patches:
        text = f"PyG: {NOT_INSTALLED}"
        right.text(0.5, 0.5, text, ha="center", transform=right.transAxes)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, ncols=4, loc="outside lower center")
    return figure


def _bars(axes: Any, place: int, values: Sequence[Any], **look: Any) -> None:
    """Draw medians as bars, least and most as whiskers; None has no bar."""
    met = [(at, value) for at, value in enumerate(values) if value is not None]
    if met:
        axes.bar(
            [at + (place - 1.5) * 0.2 for at, _ in met],
            [value["median"] for _, value in met],
            0.2,
            yerr=(
                [value["median"] - value["least"] for _, value in met],
                [value["most"] - value["median"] for _, value in met],
            ),
            capsize=2,
            **look,
        )

"""The table of the benchmark, for the terminal and as Markdown, and its figure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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

_HEAD = {
    "case": 17,
    "ours, s": 21,
    "plain, s": 21,
    "PyG, s": 21,
    "stored, s": 21,
    "PyG / ours": 16,
    "stored / ours": 16,
    "PyG / plain": 16,
    "stored / plain": 16,
    "extract": 7,
    "peak GB": 19,
    "batch, first hop, compile, s": 28,
    "padding n, e < 25%": 18,
    "limit": 6,
    "resident": 8,
}


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


def print_head() -> None:
    """Print the header of the table."""
    _print(list(_HEAD), _HEAD.values())


def print_row(name: str, entry: Mapping[str, Any]) -> None:
    """Print the row of a case."""
    _print(row(name, entry), _HEAD.values())


def _print(cells: Sequence[str], widths: Iterable[int]) -> None:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    print("  ".join(padded).rstrip(), flush=True)


def markdown(data: Mapping[str, Any]) -> str:
    """Return the page: the table, and a description of its columns."""
    limit, whole = data["machine_limit"], data.get("whole_runs")
    lines = [
        "# A training epoch, here and in PyTorch Geometric",
        "",
        f"`{data['command']}`, commit {data['commit']}, {data['threads']} threads, "
        f"load before the run {data['load_before']:.1f}.",
        "",
        _table(list(_HEAD), [row(*case) for case in data["cases"].items()]),
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
            _table(WHOLE_HEAD, whole_rows(whole)),
            "",
            "From graph to reported test score, I-NIP-MEAN, fold 1, the paper's "
            "settings and the same stopping rule; ours with batching and compilation. "
            "The peer replays stored batches. Random numbers differ, and so do epochs.",
        ]
    return "\n".join([*lines, ""])


WHOLE_HEAD = ("run", "side", "seconds", "epochs", "test micro-F1", "iteration", "ratio")


def whole_rows(whole: Mapping[str, Any]) -> list[list[str]]:
    """Return one row per side of every whole run."""
    rows: list[list[str]] = []
    for name, entry in whole.items():
        for side, found in entry["sides"].items():
            runs = found["runs"]
            if not runs:
                rows.append([name, SIDES[side], found["outcome"], *["-"] * 4])
                continue
            listed = [
                ", ".join(f"{run['seconds']:.1f}" for run in runs),
                ", ".join(str(run["epochs"]) for run in runs),
                ", ".join(f"{100 * run['test_micro_f1']:.2f}" for run in runs),
                ", ".join(str(run["iteration"]) for run in runs),
            ]
            ratio = entry["ratio"] if side != "ours" else None
            last = "-" if ratio is None else f"{ratio['median']:.3g}"
            rows.append([name, SIDES[side], *listed, last])
    return rows


def print_whole(whole: Mapping[str, Any]) -> None:
    """Print the table of the whole runs."""
    rows = [list(WHOLE_HEAD), *whole_rows(whole)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        _print(cells, widths)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return markdown_table(head, rows, numbers=False)


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
    width = 0.2
    for i, (side, label) in enumerate(SIDES.items()):
        met = [
            (at + (i - 1.5) * width, entry["sides"][side]["seconds"])
            for at, entry in enumerate(measured.values())
            if entry["sides"][side]["outcome"] == "measured"
        ]
        _bars(left, met, width, drawing.COLOURS[i], label)
    shades = [drawing.COLOURS[i] for i in (2, 3)] * 2
    ratios = ("pyg", "pyg_cached", "pyg_plain", "pyg_cached_plain")
    for i, (name, colour) in enumerate(zip(ratios, shades, strict=True)):
        met = [
            (at + (i - 1.5) * width, entry["ratios"][name])
            for at, entry in enumerate(measured.values())
            if not isinstance(entry["ratios"][name], str)
        ]
        _bars(right, met, width, colour, name, faint=i >= 2)
    drawing.tidy(left, ylabel="seconds (log scale)", title="Training epoch")
    drawing.tidy(
        right,
        ylabel="their seconds / ours",
        title="Ratio (pale: without precomputing)",
    )
    if left.patches:
        left.set_yscale("log")
    right.axhline(1, color="0.4", linewidth=1)
    for axes in (left, right):
        axes.set_xticks(range(len(measured)), list(measured), rotation=25, ha="right")
    if not right.patches:
        right.text(
            *(0.5, 0.5, f"PyG: {NOT_INSTALLED}"),
            ha="center",
            transform=right.transAxes,
        )
    handles, labels = left.get_legend_handles_labels()
    figure.legend(
        handles, labels, frameon=False, ncols=len(SIDES), loc="outside lower center"
    )
    return figure


def _bars(
    axes: Any,
    met: Sequence[Any],
    width: float,
    colour: str,
    label: str,
    faint: bool = False,
) -> None:
    """Draw medians as bars, least and most as whiskers."""
    if not met:
        return
    medians = [value["median"] for _, value in met]
    below = [value["median"] - value["least"] for _, value in met]
    above = [value["most"] - value["median"] for _, value in met]
    axes.bar(
        [at for at, _ in met],
        medians,
        width,
        yerr=(below, above),
        color=colour,
        alpha=0.45 if faint else 1,
        capsize=2,
        label=label,
    )

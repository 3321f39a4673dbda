"""The benchmark's table in the terminal, and its picture."""

from collections.abc import Mapping
from typing import Any

from experiments import drawing

SIDES = {"ours": "hopf_jax", "pyg": "PyG", "pyg_cached": "PyG, stored batches"}
NOT_INSTALLED = "not installed"


def limit(measured: Mapping[str, Any]) -> dict[str, float] | None:
    """What the machine can do: the best of all cases; None if none came so far."""
    ours = [entry["sides"]["ours"] for entry in measured.values()]
    found = [side["machine"] for side in ours if "machine" in side]
    if not found:
        return None
    return {name: max(one[name] for one in found) for name in found[0]}


def share(
    entry: dict[str, Any], limit: dict[str, float] | None
) -> dict[str, float] | None:
    """How near our epoch is to the machine's limit, by its counted work."""
    ours = entry["sides"]["ours"]
    if limit is None or ours["outcome"] != "measured":
        return None
    work = ours["work"]
    seconds = work["gflop"] / limit["gflops"] + work["gb"] / limit["gb_per_s"]
    return {"seconds": seconds, "share": seconds / ours["seconds"]["median"]}


_COLUMNS = "{:<17} {:>22} {:>22} {:>22} {:>16} {:>16} {:>16} {:>8} {:>11} {:>6} {:>8}"


def print_head() -> None:
    """The table's first line."""
    print(
        _COLUMNS.format(
            *("case", "ours, s", "PyG, s", "PyG stored, s", "PyG / ours"),
            *("stored / ours", "peak GB", "compile", "waste n, e", "limit", "resident"),
        )
    )


def print_row(name: str, entry: dict[str, Any]) -> None:
    """A case's line."""
    sides, ours = entry["sides"], entry["sides"]["ours"]
    measured = ours["outcome"] == "measured"
    near = entry["limit"]
    peaks = [
        f"{side['peak_gb']:.2f}" if "peak_gb" in side else "-"
        for side in sides.values()
    ]
    print(
        _COLUMNS.format(
            name,
            *(_range(s.get("seconds", s["outcome"]), 3) for s in sides.values()),
            *(_range(ratio, 3) for ratio in entry["ratios"].values()),
            " ".join(peaks),
            f"{ours['compile_seconds']:.1f} s" if measured else "-",
            f"{ours['node_waste']:.0%} {ours['edge_waste']:.0%}" if measured else "-",
            "-" if near is None else f"{near['share']:.0%}",
            f"{ours['resident_bytes'] / 1e6:.0f} MB" if measured else "-",
        ),
        flush=True,
    )


def _range(value: dict[str, float] | str, digits: int) -> str:
    """Median (least-most), to so many figures; or why there is none."""
    if isinstance(value, str):
        return value[:15]
    least, median, most = (value[name] for name in ("least", "median", "most"))
    return f"{median:.{digits}g} ({least:.{digits}g}-{most:.{digits}g})"


def draw(measured: dict[str, Any]) -> Any:
    """Seconds of an epoch, and ratios, a group of bars a case."""
    figure = drawing.new(max(7.0, 2.0 + 1.9 * len(measured)), 4.2)
    left, right = figure.subplots(1, 2)
    width = 0.26
    for i, (side, label) in enumerate(SIDES.items()):
        met = [
            (at + (i - 1) * width, entry["sides"][side]["seconds"])
            for at, entry in enumerate(measured.values())
            if entry["sides"][side]["outcome"] == "measured"
        ]
        _bars(left, met, width, drawing.COLOURS[i], label)
        if side == "ours":
            continue
        ratios = [
            (at + (i - 1.5) * width, entry["ratios"][side])
            for at, entry in enumerate(measured.values())
            if not isinstance(entry["ratios"][side], str)
        ]
        _bars(right, ratios, width, drawing.COLOURS[i], label)
    drawing.tidy(left, ylabel="seconds (log scale)", title="A training epoch")
    drawing.tidy(right, ylabel="their seconds / ours", title="Ratio (above 1: faster)")
    if any(e["sides"]["ours"]["outcome"] == "measured" for e in measured.values()):
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


def _bars(axes: Any, met: list[Any], width: float, colour: str, label: str) -> None:
    """Medians as bars, least and most as whiskers."""
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
        capsize=2,
        label=label,
    )

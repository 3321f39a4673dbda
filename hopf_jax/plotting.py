"""Pictures of a result."""

import io
from typing import Any

from matplotlib.figure import Figure


class Picture(Figure):
    """A figure that a notebook shows as a cell's last line.

    IPython draws plain Figures only once pyplot has been imported; before, it prints
    their size. Where it does draw them, it does so in its own way and asks no more.
    """

    def _repr_png_(self) -> bytes:
        memory = io.BytesIO()
        self.savefig(memory, format="png")
        return memory.getvalue()


def plot_result(
    history: list[dict[str, Any]], iterations: list[dict[str, Any]], reported: int
) -> Picture:
    """Losses by epoch, and F1 by iteration, side by side."""
    # Not pyplot's: nothing to close, no backend to choose.
    figure = Picture(figsize=(10, 3.6), layout="constrained")
    losses, scores = figure.subplots(1, 2)
    epochs = range(1, len(history) + 1)
    for name, colour in (("train", "C0"), ("validation", "C1")):
        values = [record[f"{name}_loss"] for record in history]
        losses.plot(epochs, values, color=colour, label=name, linewidth=1)
    last = 0
    for record in iterations[:-1]:
        last += record["epochs"]
        losses.axvline(last, color="0.8", linewidth=0.8, zorder=0)
    losses.set(xlabel="epoch", ylabel="weighted cross entropy", title="Loss by epoch")
    losses.legend(frameon=False)
    at = [record["iteration"] for record in iterations]
    for split, style in (("train", ":"), ("validation", "--"), ("test", "-")):
        if split not in iterations[0]["scores"]:
            continue
        for metric, colour in (("micro_f1", "C2"), ("macro_f1", "C3")):
            values = [100 * record["scores"][split][metric] for record in iterations]
            label = f"{split} {metric.replace('_f1', '-F1')}"
            scores.plot(at, values, style, marker="o", ms=4, color=colour, label=label)
    scores.axvline(reported, color="0.8", zorder=0)
    scores.set(xlabel="iteration", ylabel="F1, %", title="F1 by iteration")
    scores.set_xticks(at)
    # Beside the lines: six entries leave no corner free.
    scores.legend(
        frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5)
    )
    return figure

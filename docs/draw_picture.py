"""Draw the picture of the README: `python docs/draw_picture.py`.

Who appears with whom in Les Misérables: on the left the labels that are given, on the
right those that `fit` predicts.
"""

import pathlib

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import networkx as nx

import hopf_jax

TARGET = pathlib.Path(__file__).parent / "_static" / "les-miserables.png"
CIRCLES = {
    "bishop": ["Myriel", "MlleBaptistine", "MmeMagloire"],
    "students": ["Enjolras", "Courfeyrac", "Combeferre"],
    "gang": ["Thenardier", "Gueulemer", "Montparnasse"],
    "Fantine's friends": ["Favourite", "Tholomyes", "Dahlia"],
    "court": ["Judge", "Champmathieu", "Brevet"],
}
COLOURS = dict(
    zip(CIRCLES, ("#CC79A7", "#0072B2", "#D55E00", "#E69F00", "#009E73"), strict=True)
)
NAMED = ("Valjean", "Javert", "Gavroche", "Cosette", "Marius", "Fantine", "Myriel")


def draw(axes, graph, places, labels, sure, title):
    """Draw the graph with a colour per label; grey for none, pale where unsure."""
    nx.draw_networkx_edges(graph, places, ax=axes, edge_color="0.85", width=0.7)
    for name, (x, y) in places.items():
        colour = COLOURS.get(labels.get(name), "0.8")
        axes.scatter(x, y, s=55, color=colour, alpha=0.3 + 0.7 * sure.get(name, 1),
                     edgecolors="white", linewidths=0.6, zorder=3)  # fmt: skip
    for name in NAMED:
        axes.annotate(name, places[name], (0, 6), textcoords="offset points",
                      ha="center", fontsize=8, zorder=4)  # fmt: skip
    axes.set_title(title, fontsize=11)
    axes.axis("off")


def main():
    """Fit, and draw both pictures side by side."""
    story = nx.les_miserables_graph()
    known = {name: circle for circle, names in CIRCLES.items() for name in names}
    graph = hopf_jax.Graph.from_networkx(story, labels=known)
    result = hopf_jax.fit(graph, seed=0)
    table = result.to_frame()
    found = dict(zip(table["node"], table["label"], strict=True))
    sure = dict(zip(table["node"], table["confidence"], strict=True))
    places = nx.kamada_kawai_layout(story, weight=None)
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    draw(left, story, places, known, {}, f"{len(known)} of {len(story)} are known")
    draw(right, story, places, found, sure, "all are predicted; pale: unsure")
    for circle, colour in COLOURS.items():
        right.scatter([], [], s=55, color=colour, label=circle)
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=10)
    figure.savefig(TARGET, dpi=110, facecolor="white", pil_kwargs={"optimize": True})
    print(f"{TARGET}: {TARGET.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()

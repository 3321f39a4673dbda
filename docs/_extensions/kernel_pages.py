"""A section for every kernel of `MODELS`: its equation, a picture, when to use it.

A page has a fence called `kernels`, whose lines say when to use each kernel: its name,
a colon and the text. Equation and picture are made from the fields of the kernel, so a
new row of the table is on the page before anyone writes a line about it.
"""

import os
import pathlib
import re

import numpy as np

FENCE = re.compile(r"^```\{kernels\}\n(.*?)^```$", re.DOTALL | re.MULTILINE)

SIGNALS = {"h0": "h_0", "h": "h_{k-1}", "y": r"\hat Y^{t-1}"}
AGGREGATES = {
    "mean": "D^{-1}A",
    "symmetric": r"\tilde D^{-1/2} A \tilde D^{-1/2}",
    "sum": "A",
    "symmetric-loops": r"\tilde D^{-1/2} (A + I) \tilde D^{-1/2}",
    "max": r"\max_{N}",
    "attention": r"\mathrm{attention}_{N \cup \{v\}}",
}
WITH_ITSELF = ("symmetric-loops", "attention")


def equation(kernel):
    """Return the hop of a kernel in LaTeX."""
    weights = ("W_k", "W_k") if kernel.shared_weights else (r"W_k^\phi", r"W_k^\psi")
    w_phi, w_psi = weights if kernel.learned_hops else ("", "")
    parts = []
    if kernel.phi:
        parts.append(f"{gate(kernel.alpha)} {signals(kernel.phi)} {w_phi}")
    if kernel.psi:
        name = kernel.aggregate.name
        short = name.partition("-")[0].upper()  # lstm-32 has a bound of neighbours.
        matrix = AGGREGATES.get(name, rf"\mathrm{{{short}}}_{{N}}")
        read = signals(kernel.psi)
        read = read if kernel.aggregate.linear else f"({read})"
        parts.append(f"{gate(kernel.beta)} {matrix} {read} {w_psi}")
    if kernel.concat and len(parts) == 2:
        inside = rf"[\, {parts[0]},\; {parts[1]} \,]"
    else:
        inside = " + ".join(parts)
    if kernel.skip_from:
        inside += " + h_{k-1}"
    first = r"h_0 = \sigma(X W_0), \qquad " if kernel.input_layer else ""
    hop = rf"\sigma\left({inside}\right)" if kernel.learned_hops else inside
    last = ""
    if kernel.votes is not None:
        votes = rf"{AGGREGATES[kernel.votes.name]} {SIGNALS['y']}"
        last = rf", \qquad \hat Y^t = \mathrm{{softmax}}([h_K, {votes}] W_L)"
    return f"{first}h_k = {hop}{last}"


def signals(names):
    """Return what is read, in LaTeX: one signal, or several side by side."""
    read = [SIGNALS[name] for name in names]
    return read[0] if len(read) == 1 else "[" + ", ".join(read) + "]"


def gate(gate):
    """Return the weight of a part, in LaTeX."""
    scale = "" if gate.scale == 1 else f"{gate.scale:g}"
    power = {0: "", -1: r"\tilde D^{-1}"}.get(
        gate.power, rf"\tilde D^{{{gate.power:g}}}"
    )
    return (scale + r"\," if scale else "") + power


def influence(kernel, adjacency, num_hops):
    """Return how much node 0 depends on the features of each node, and on its label.

    All weights are one and nothing is cut off, so that the kernel alone is seen;
    aggregators that are not linear are replaced by the mean.
    """
    degree = adjacency.sum(axis=1)
    if kernel.aggregate.name in WITH_ITSELF:
        read = adjacency + np.eye(len(degree))
    else:
        read = adjacency
    spread = read / read.sum(axis=1, keepdims=True)
    if kernel.aggregate.name.startswith("symmetric"):
        scale = 1 / np.sqrt(degree + 1)
        spread = scale[:, None] * read * scale
    elif kernel.aggregate.name == "sum":
        spread = adjacency
    alpha, beta = (
        np.broadcast_to(gate(degree), degree.shape)[:, None]
        for gate in (kernel.alpha, kernel.beta)
    )
    own = np.eye(len(degree))
    features, labels = own, np.zeros_like(own)
    for hop in range(1, kernel.num_layers(num_hops) + 1):
        before = {"h0": own, "h": features, "y": np.zeros_like(own)}
        labels_before = {"h0": np.zeros_like(own), "h": labels, "y": own}
        skip = bool(kernel.skip_from) and hop >= kernel.skip_from
        features, labels = (
            alpha * sum((read[s] for s in kernel.phi), np.zeros_like(own))
            + beta * spread @ sum((read[s] for s in kernel.psi), np.zeros_like(own))
            + skip * read["h"]
            for read in (before, labels_before)
        )
    if kernel.votes is not None:
        labels = labels + adjacency
    return features[0], labels[0]


def tree():
    """Return edges and positions of a node, three neighbours, and two more of each."""
    edges = [(0, 1), (0, 2), (0, 3), (1, 4), (1, 5), (2, 6), (2, 7), (3, 8), (3, 9)]
    angles = np.deg2rad([90, 210, 330])
    places = [(0.0, 0.0), *((np.cos(a), np.sin(a)) for a in angles)]
    for a in angles:
        places += [
            (1.9 * np.cos(a + turn), 1.9 * np.sin(a + turn)) for turn in (-0.42, 0.42)
        ]
    return edges, np.array(places)


def draw(kernel, path, num_hops=2):
    """Draw what the prediction of the node in the middle depends on."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    edges, places = tree()
    adjacency = np.zeros((len(places), len(places)))
    for u, v in edges:
        adjacency[u, v] = adjacency[v, u] = 1
    features, labels = influence(kernel, adjacency, num_hops)
    share = features / features.sum() if features.sum() else features
    figure, axes = plt.subplots(figsize=(3.4, 3.0))
    for u, v in edges:
        axes.plot(*places[[u, v]].T, color="0.75", linewidth=1.5, zorder=1)
    axes.scatter(
        *places.T, c=share, s=620, cmap="Blues", vmin=0, vmax=0.9,
        edgecolors="0.35", linewidths=1.2, zorder=2,
    )  # fmt: skip
    for place, part in zip(places, share, strict=True):
        if part > 0:
            colour = "white" if part > 0.45 else "0.15"
            axes.text(*place, f"{100 * part:.0f}%", color=colour, fontsize=8.5,
                      ha="center", va="center", zorder=4)  # fmt: skip
    read = places[labels > 0]
    if len(read):
        axes.scatter(*(read + 0.27).T, marker="s", s=70, color="#d55e00",
                     edgecolors="white", zorder=3)  # fmt: skip
    axes.set(xlim=(-2.4, 2.4), ylim=(-2.1, 2.35), aspect="equal")
    axes.axis("off")
    figure.savefig(path, dpi=160, bbox_inches="tight", facecolor="white")
    plt.close(figure)


def described(kernel):
    """Return in words what a kernel reads."""
    words = {
        "h0": "own embedding",
        "h": "output of the previous hop",
        "y": "predicted labels",
    }
    own = " and ".join(words[s] for s in kernel.phi) or "nothing"
    near = " and ".join(words[s] for s in kernel.psi) or "nothing"
    iterated = " Iterates." if kernel.iterative else ""
    if kernel.votes is not None:
        iterated = " The output layer also reads predicted labels." + iterated
    whose = "neighbours"
    if kernel.aggregate.name in WITH_ITSELF:
        whose = "neighbours and the node together"
    if not kernel.phi:
        return f"*Reads* of {whose}: {near}.{iterated}"
    return f"*Reads* of the node: {own}; of {whose}: {near}.{iterated}"


def sections(models, when, folder, relative):
    """Return the sections of all kernels as MyST Markdown."""
    made = []
    for name, kernel in models.items():
        draw(kernel, folder / f"kernel-{name}.png")
        made.append(
            f"## {name}\n\n$${equation(kernel)}$$\n\n"
            f"```{{image}} {relative}/kernel-{name}.png\n"
            f":alt: What a prediction of {name} depends on\n:class: kernel\n```\n\n"
            f"{when.get(name, '')}\n\n{described(kernel)}\n"
        )
    return "\n".join(made)


def setup(app):
    """Expand the mark on the page of kernels."""

    def read(app, name, source):
        fence = FENCE.search(source[0])
        if not fence:
            return
        import hopf_jax

        app.env.note_dependency(hopf_jax.kernels.table.__file__)
        app.env.note_dependency(__file__)
        folder = pathlib.Path(app.doctreedir).parent / "kernels"
        folder.mkdir(parents=True, exist_ok=True)
        page = pathlib.Path(app.srcdir, name).parent
        relative = pathlib.Path(os.path.relpath(folder, page)).as_posix()
        when = dict(line.split(": ", 1) for line in fence[1].splitlines())
        unknown = set(when) - set(hopf_jax.MODELS)
        if unknown:
            raise ValueError(f"{name} describes kernels that do not exist: {unknown}")
        made = sections(hopf_jax.MODELS, when, folder, relative)
        source[0] = source[0].replace(fence[0], made)

    app.connect("source-read", read)
    return {"parallel_read_safe": True}

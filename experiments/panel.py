"""The defaults of `fit(graph)` against simple competitors, on graphs of many kinds.

Generated graphs (experiments.panel_graphs), and the training nodes of the datasets on
this machine: half of them are labelled, the others are scored, and test nodes are not
looked at. `fit(graph)` gets the labelled nodes without a split; competitors hold a
fifth of them out to choose their settings, and then learn from all. GCN and GraphSAGE
of PyTorch Geometric take part where it is installed (make panel PEER=1). Writes
panel.json and panel.png to WORKDIR/panel; graphs that are done are not run again.
"""

import dataclasses
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from typing import Any

import numpy as np
import scipy.sparse as sp

import hopf_jax
from experiments.common import arguments, drawing, output, runner
from experiments.panel_graphs import draw_kind, make_graph
from hopf_jax import Graph
from hopf_jax.baselines import BASELINES, Learner, best_of
from hopf_jax.datasets import load_dataset
from hopf_jax.graph import learn_scaling, split_graph
from hopf_jax.metrics import f1_scores
from hopf_jax.runtime import code_digest

OURS = "fit(graph)"
PEER = output.ROOT / ".venv-benchmark" / "bin" / "python"
_LABELLED = 0.5  # Share of a dataset's training nodes.
_HIDDEN, _PENALTIES = ((64,), (64, 64)), (1e-3, 0.1, 3.0)
TOLERANCE = 1.0  # Points below the best competitor that the report names.


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.panel")
    about = "comma-separated, and no other graphs (default: generated ones, and the "
    about += "paper's on this machine)"
    parser.option("dataset", arguments.dataset_names, help=about)
    parser.flag("generated", "generated graphs only, no datasets")
    arguments.add_counts(parser, graphs=24)
    arguments.add_seed(parser, "seed of the generated graphs")
    parser.flag("fresh", "discard what is saved")
    options = parser.parse_args(argv)
    folder = options.workdir / "panel"
    names = [f"generated {options.seed}-{i}" for i in range(options.graphs)]
    if options.dataset:
        names = list(options.dataset)
    elif not options.generated:
        names += arguments.available()
    found: dict[str, Any] = {}
    for name, record in run_graphs(names, folder / "graphs", options.fresh):
        found[name] = record
        print(line_of(name, record), flush=True)
    found = {name: found[name] for name in names}
    summary = summarise(found)
    print("\n" + report(summary, len(found)))
    data = {"summary": summary, "graphs": found}
    drawing.save_results(folder, "panel", data, _draw(found), options.invocation)
    return 0


def run_graphs(
    names: Sequence[str], folder: pathlib.Path, fresh: bool = False
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each graph's record: those that are saved, then others as they end."""
    missing = []
    for name in names:
        saved = None if fresh else output.read_json(_path(folder, name))
        if saved is None or saved.get("source") != code_digest():
            missing.append(name)
        else:
            yield name, saved["record"]
    with runner.pool(runner.default_workers()) as pool:
        running = {pool.submit(run_graph, name): name for name in missing}
        for done in as_completed(running):
            name, record = running[done], done.result()
            saved = {"source": code_digest(), "record": record}
            output.write_json(_path(folder, name), saved)
            yield name, record


def _path(folder: pathlib.Path, name: str) -> pathlib.Path:
    return folder / f"{name.replace(' ', '-')}.json"


def run_graph(name: str) -> dict[str, Any]:
    """Return what a graph is like, and scores in percent and seconds of all methods."""
    about, graph, labels, scored = graph_of(name)
    scores, seconds = {}, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # What is wrong with a graph is intended.
        begun = time.perf_counter()
        result = hopf_jax.fit(graph, progress=False)
        seconds[OURS] = time.perf_counter() - begun
        scores[OURS] = _score(result.predict_proba(), labels, scored, graph.multilabel)
        for method, said, spent in _competitors(graph):
            scores[method] = _score(said, labels, scored, graph.multilabel)
            seconds[method] = spent
    chosen = [choice["model"] for choice in result.choice or ()]
    return {"about": about, "scores": scores, "seconds": seconds, "choice": chosen}


def graph_of(name: str) -> tuple[str, Graph, np.ndarray, np.ndarray]:
    """Return what a graph is like, the graph, all labels [N, C], scored nodes [N]."""
    if not name.startswith("generated "):
        return _known_part(name)
    rng = np.random.default_rng([int(part) for part in name.split()[1].split("-")])
    kind = draw_kind(rng)
    graph, classes = make_graph(kind, rng)
    return str(kind), graph, np.eye(graph.num_labels)[classes], ~graph.known


def _known_part(name: str) -> tuple[str, Graph, np.ndarray, np.ndarray]:
    whole = load_dataset(name)
    shown = split_graph(
        _showing(whole, whole.train), train=_LABELLED, validation=0
    ).train
    about = f"{np.count_nonzero(shown)} labelled training nodes"
    return about, _showing(whole, shown), whole.labels, whole.train & ~shown


def _showing(graph: Graph, nodes: np.ndarray) -> Graph:
    """Return the graph without a split and without the labels of other nodes."""
    labels = np.where(nodes[:, None], graph.labels, 0)
    return dataclasses.replace(graph.with_split(), labels=labels, known=nodes)


def _competitors(graph: Graph) -> Iterator[tuple[str, np.ndarray, float]]:
    """Yield names, probabilities [N, C] and seconds; features are scaled as ours."""
    features = learn_scaling(graph.features).apply(graph.features)
    graph = dataclasses.replace(graph, features=features, feature_names=())
    graph = split_graph(graph)
    methods = {**BASELINES, "MLP": mlp}
    del methods["majority"]  # Its ties are luck where labels are drawn by class.
    for name, method in methods.items():
        begun = time.perf_counter()
        yield name, method(graph), time.perf_counter() - begun
    if PEER.exists():
        begun = time.perf_counter()
        found = peer_probabilities(graph)
        spent = (time.perf_counter() - begun) / len(found)
        for name, (_, said) in found.items():
            yield name, said, spent


def mlp(graph: Graph) -> np.ndarray:
    """Return what scikit-learn's MLP predicts; sizes and L2 by validation."""
    # Lazy: scikit-learn is slow to import.
    from sklearn.neural_network import MLPClassifier

    rows = graph.features
    rows = sp.csr_matrix(rows) if sp.issparse(rows) else np.asarray(rows)
    labels = graph.labels if graph.multilabel else graph.labels.argmax(axis=1)

    def learner(hidden: tuple[int, ...], penalty: float) -> Learner:
        def learn(nodes: np.ndarray) -> np.ndarray:
            model = MLPClassifier(hidden, alpha=penalty, max_iter=200, random_state=0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Not converged is good enough.
                model.fit(rows[nodes], labels[nodes])
            shares = model.predict_proba(rows)
            if graph.multilabel:
                return shares
            said = np.zeros((graph.num_nodes, graph.num_labels))
            said[:, model.classes_] = shares
            return said

        return learn

    learners = [learner(h, p) for h in _HIDDEN for p in _PENALTIES]
    return best_of(graph, learners).final


def peer_probabilities(graph: Graph) -> dict[str, np.ndarray]:
    """Return the probabilities of PyTorch Geometric's models, by name: [2, N, C].

    The first have learned from the training nodes, the second from validation nodes,
    too.
    """
    both = graph.undirected() if graph.directed else graph
    edges = both.adjacency.tocoo()
    features = graph.features
    arrays: dict[str, Any] = {
        "features": sp.csr_array(features).toarray(),
        "edges": np.stack([edges.col, edges.row]).astype(np.int64),
        "labels": graph.labels,
        "train": graph.train,
        "validation": graph.validation,
        "multilabel": np.array(graph.multilabel),
    }
    if graph.weights is not None:
        arrays["weights"] = edges.data.astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        source, target = f"{folder}/graph.npz", f"{folder}/said.npz"
        np.savez(source, **arrays)
        command = [str(PEER), "-m", "experiments.benchmark.pyg_panel", source, target]
        subprocess.run(command, cwd=output.ROOT, check=True)
        with np.load(target) as said:
            return dict(said)


def _score(
    said: np.ndarray, labels: np.ndarray, scored: np.ndarray, multilabel: bool
) -> float:
    """Return the micro F1 of probabilities, in percent; one label: the accuracy."""
    if multilabel:
        return 100 * f1_scores(labels[scored], said[scored] > 0.5)["micro_f1"]
    right = said[scored].argmax(axis=1) == labels[scored].argmax(axis=1)
    return 100 * float(right.mean())


def summarise(found: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return mean score, mean rank (1 is best) and seconds by method, best rank first.

    Of ours also how far it falls short of the best competitor, in the mean and at most.
    """
    methods = list(next(iter(found.values()))["scores"])
    scores = np.array([[each["scores"][m] for m in methods] for each in found.values()])
    seconds = [[each["seconds"][m] for m in methods] for each in found.values()]
    # Ties share their mean rank.
    above = (scores[:, None, :] > scores[:, :, None]).sum(axis=2)
    level = (scores[:, None, :] == scores[:, :, None]).sum(axis=2)
    ranks = (above + (level + 1) / 2).mean(axis=0)
    summary = {
        methods[i]: {
            "score": float(scores[:, i].mean()),
            "rank": float(ranks[i]),
            "seconds": float(np.mean(seconds, axis=0)[i]),
        }
        for i in np.argsort(ranks, kind="stable")
    }
    short = np.array([shortfall(each["scores"]) for each in found.values()])
    summary[OURS] |= {
        "shortfall": float(short.mean()),
        "worst_shortfall": float(short.max()),
        "short_by_more": int((short > TOLERANCE).sum()),
    }
    return summary


def shortfall(scores: Mapping[str, float]) -> float:
    """Return how far ours is below the best competitor; negative if it is above."""
    return max(value for name, value in scores.items() if name != OURS) - scores[OURS]


def report(summary: Mapping[str, Mapping[str, float]], count: int) -> str:
    """Return the summary as text."""
    lines = [f"{'Mean of ' + str(count) + ' graphs':<22} score   rank  seconds"]
    for name, each in summary.items():
        values = f"{each['score']:5.1f}  {each['rank']:5.2f}  {each['seconds']:7.1f}"
        lines.append(f"{name:<22} {values}")
    ours = summary[OURS]
    lines.append(
        f"{OURS} is {ours['shortfall']:.1f} points below the best competitor in the "
        f"mean, {ours['worst_shortfall']:.1f} at most, and more than {TOLERANCE:g} on "
        f"{ours['short_by_more']} graphs."
    )
    return "\n".join(lines)


def line_of(name: str, record: Mapping[str, Any]) -> str:
    """Return a line about one graph."""
    scores = record["scores"]
    others = {method: value for method, value in scores.items() if method != OURS}
    best = max(others, key=lambda method: others[method])
    chosen = record["choice"][0] if record["choice"] else "-"
    return (
        f"{name:<16} {scores[OURS]:5.1f} ({chosen}); {others[best]:5.1f} {best}; "
        f"{-shortfall(scores):+5.1f}  {record['about']}"
    )


def _draw(found: Mapping[str, Mapping[str, Any]]) -> Any:
    """Draw how far each method is above or below the best competitor, by graph."""
    order = sorted(found, key=lambda name: shortfall(found[name]["scores"]))
    figure = drawing.new(8, 1.5 + 0.24 * len(order))
    axes = figure.subplots()
    for place, name in enumerate(order):
        scores = found[name]["scores"]
        best = scores[OURS] + shortfall(scores)
        others = [value - best for method, value in scores.items() if method != OURS]
        at = [place] * len(others)
        axes.plot(others, at, "o", color=drawing.PAPER, label="competitors")
        axes.plot([scores[OURS] - best], [place], "D", color=drawing.OURS, label=OURS)
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.set_xlim(-15, 8)
    about = [f"{name}: {found[name]['about']}" for name in order]
    axes.set_yticks(range(len(order)), about, fontsize=6)
    label = "points above the best competitor (cut at -15)"
    drawing.tidy(axes, xlabel=label)
    axes.legend(*(each[:2] for each in axes.get_legend_handles_labels()), frameon=False)
    return figure


if __name__ == "__main__":
    sys.exit(main())

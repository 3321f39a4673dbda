"""All methods on all datasets on this machine: HOPF, baselines, PyTorch Geometric.

For each dataset and fold: the paper's figure and settings, `fit(graph)`, linear kernels
alone, `tune(graph)` and its choice with five members, Correct & Smooth on these, all of
hopf_jax.baselines, and PyTorch Geometric's tuned GCN, GraphSAGE and GAT where it is
installed (make leaderboard PEER=1). Everything is chosen on training and validation
nodes. Writes leaderboard.json and leaderboard.html to
WORKDIR/leaderboard; what is done is not run again.
"""

import argparse
import dataclasses
import html
import pathlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from typing import Any

import numpy as np

import hopf_jax
from experiments import panel, paper
from experiments.common import arguments, output, runner
from hopf_jax import Config, Graph
from hopf_jax.baselines import BASELINES
from hopf_jax.datasets import load_dataset
from hopf_jax.fitting import scale_features
from hopf_jax.kernels import LINEAR_MODEL
from hopf_jax.metrics import f1_scores, wilcoxon
from hopf_jax.results import decide_as_scored, decide_by
from hopf_jax.runtime import code_digest

DEFAULTS, SOLVED = "fit(graph)", "linear kernels, solved"
TUNED, MEMBERS, SMOOTHED = "tuned", "tuned, five members", " + Correct & Smooth"
PRINTED, PAPER = "paper's settings", "the paper's best figure"
OURS = (DEFAULTS, SOLVED, SOLVED + SMOOTHED, TUNED, TUNED + SMOOTHED, MEMBERS)
METRICS = ("micro_f1", "macro_f1")
COUNTED = "counted_micro_f1"  # With the true number of labels, as the paper scores.
_PRINTED_MODEL = "i-nip-mean"
_NUM_MEMBERS = 5
SIGNIFICANT = 0.05

Scores = dict[str, dict[str, float]]  # By method: METRICS, COUNTED, seconds.


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.leaderboard")
    about = "comma-separated (default: the paper's on this machine)"
    parser.option("dataset", arguments.dataset_names, help=about)
    arguments.add_folds(parser)
    arguments.add_seed(parser)
    arguments.add_counts(parser, budget=60)
    about = f"comma-separated groups of methods, of {', '.join(GROUPS)}"
    parser.option("groups", groups_named, tuple(GROUPS), about)
    arguments.add_max_epochs(parser)
    parser.flag("fresh", "discard what is saved")
    options = parser.parse_args(argv)
    folder = options.workdir / "leaderboard"
    datasets = options.dataset or arguments.available()
    if not datasets:
        output.log(f"No dataset is on this machine: {arguments.FETCH}.")
        return 1
    settings = {
        "seed": options.seed,
        "budget": options.budget,
        "max_epochs": options.max_epochs,
    }
    found: dict[str, dict[int, Scores]] = {name: {} for name in datasets}
    for dataset, fold, scores in run(
        datasets, options.folds, settings, folder, options
    ):
        found[dataset].setdefault(fold, {}).update(scores)
    boards = {name: summarise(name, found[name]) for name in datasets}
    print(as_text(boards))
    data = {"settings": settings, "boards": boards, "folds": found}
    output.write_results(folder / "leaderboard.json", data, options.invocation)
    page = as_html(boards, settings, output.commit())
    output.write_text(folder / "leaderboard.html", page)
    print(f"Written: {folder / 'leaderboard.html'}")
    return 0


def run(
    datasets: Sequence[str],
    folds: Sequence[int],
    settings: Mapping[str, Any],
    folder: pathlib.Path,
    options: Any,
) -> Iterator[tuple[str, int, Scores]]:
    """Yield the scores of each dataset, fold and group of methods, as they end."""
    about = {"source": code_digest(), "settings": dict(settings)}
    missing = []
    for dataset in datasets:
        for fold in folds:
            for group in options.groups:
                path = folder / "cells" / f"{dataset}-{fold}-{group}.json"
                saved = None if options.fresh else output.read_json(path)
                if saved is None or {k: saved.get(k) for k in about} != about:
                    missing.append((path, dataset, fold, group))
                else:
                    yield dataset, fold, saved["scores"]
    with runner.pool(runner.default_workers()) as pool:
        running = {
            pool.submit(run_cell, *cell[1:], dict(settings)): cell for cell in missing
        }
        for done in as_completed(running):
            path, dataset, fold, group = running[done]
            scores = done.result()
            output.write_json(path, {**about, "scores": scores})
            output.log(f"{dataset}, fold {fold}, {group}: {_brief(scores)}")
            yield dataset, fold, scores


def groups_named(text: str) -> tuple[str, ...]:
    """Return names of `GROUPS`."""
    names = tuple(text.split(","))
    if not set(names) <= set(GROUPS):
        raise argparse.ArgumentTypeError(f"{text!r}: give some of {', '.join(GROUPS)}")
    return names


def run_cell(
    dataset: str, fold: int, group: str, settings: Mapping[str, Any]
) -> Scores:
    """Return test scores in percent, and seconds, of a group of methods on a fold."""
    graph = load_dataset(dataset, fold=fold)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GROUPS[group](dataset, graph, settings)


def _config(settings: Mapping[str, Any]) -> Config:
    return arguments.limit_epochs(Config(), settings["max_epochs"])


def _score_printed(dataset: str, graph: Graph, settings: Mapping[str, Any]) -> Scores:
    config = arguments.limit_epochs(paper.config_for(dataset), settings["max_epochs"])
    seed, begun = settings["seed"], time.perf_counter()
    result = hopf_jax.fit(graph, _PRINTED_MODEL, config, seed=seed, progress=False)
    scores = {n: 100 * float(result.scores["test"][n]) for n in METRICS}
    if graph.multilabel:
        scores[COUNTED] = scores["micro_f1"]
    return {PRINTED: scores | {"seconds": time.perf_counter() - begun}}


def _score_defaults(dataset: str, graph: Graph, settings: Mapping[str, Any]) -> Scores:
    config, begun = _config(settings), time.perf_counter()
    result = hopf_jax.fit(graph, config=config, seed=settings["seed"], progress=False)
    return {DEFAULTS: _scores_of(graph, result, begun)}


def _score_solved(dataset: str, graph: Graph, settings: Mapping[str, Any]) -> Scores:
    config, begun = _config(settings), time.perf_counter()
    seed = settings["seed"]
    found = hopf_jax.tune(graph, LINEAR_MODEL, 1, config, seed=seed, progress=False)
    scores = {SOLVED: _scores_of(graph, found.result, begun)}
    return scores | _smoothed(graph, SOLVED, found.result, begun)


def _score_tuned(dataset: str, graph: Graph, settings: Mapping[str, Any]) -> Scores:
    begun, seed = time.perf_counter(), settings["seed"]
    found = hopf_jax.tune(
        graph,
        budget=settings["budget"],
        config=_config(settings),
        seed=seed,
        workers=1,  # The cells share the cores.
        progress=False,
    )
    scores = {TUNED: _scores_of(graph, found.result, begun)}
    scores |= _smoothed(graph, TUNED, found.result, begun)
    if found.config.num_members < _NUM_MEMBERS:  # A cross-validation has them.
        config = dataclasses.replace(found.config, members=_NUM_MEMBERS)
        result = hopf_jax.fit(graph, found.model, config, seed=seed, progress=False)
        scores[MEMBERS] = _scores_of(graph, result, begun)
    else:
        scores[MEMBERS] = scores[TUNED]
    return scores


def _smoothed(graph: Graph, name: str, result: Any, begun: float) -> Scores:
    """Return the scores of a result that is corrected and smoothed."""
    found = hopf_jax.fit_baseline(graph, "correct-and-smooth", base=result)
    return {name + SMOOTHED: _scores_of(graph, found, begun)}


def _score_baselines(dataset: str, graph: Graph, settings: Mapping[str, Any]) -> Scores:
    scores = {}
    for name in BASELINES:
        begun = time.perf_counter()
        found = hopf_jax.fit_baseline(graph, name)
        scores[name] = _scores_of(graph, found, begun)
    return scores


def _score_peer(dataset: str, graph: Graph, settings: Mapping[str, Any]) -> Scores:
    """Score PyTorch Geometric's models; nothing where it is not installed."""
    if not panel.PEER.exists():
        return {}
    begun = time.perf_counter()
    (scaled,), _ = scale_features([graph], Config())
    found, nodes = panel.peer_probabilities(scaled), np.flatnonzero(graph.validation)
    return {
        name: _percent(graph, said, nodes, held[nodes], begun, len(found))
        for name, (held, said) in found.items()
    }


GROUPS: dict[str, Callable[[str, Graph, Mapping[str, Any]], Scores]] = {
    "baselines": _score_baselines,
    "solved": _score_solved,
    "peer": _score_peer,
    "tuned": _score_tuned,
    "defaults": _score_defaults,
    "printed": _score_printed,
}


def _scores_of(graph: Graph, result: Any, begun: float) -> dict[str, float]:
    """Return the scores of a result, or of a baseline."""
    crossed = getattr(result, "cross_validated", None)
    nodes = np.flatnonzero(graph.validation)
    held = getattr(result, "held_out", result.predict_proba())[nodes]
    if crossed is not None:
        nodes, held = crossed
    return _percent(graph, result.predict_proba(), nodes, held, begun)


def _percent(
    graph: Graph,
    said: np.ndarray,
    nodes: np.ndarray,
    held: np.ndarray,
    begun: float,
    share: int = 1,
) -> dict[str, float]:
    """Return test scores in percent, each of labels that were decided for it.

    Args:
      graph: The graph.
      said: Probabilities [N, C].
      nodes, held: Nodes whose labels decide, and what was predicted for them before
        their labels were learned from, [n, C].
      begun: When the method was started.
      share: Number of methods that share the time.
    """
    known = graph.labels[graph.train | graph.validation]
    counts = known.sum(axis=0, dtype=np.float64)
    true, scores = graph.labels[graph.test], {}
    for metric in ("micro", "macro"):
        rule = decide_by(
            Config(metric=metric),
            graph.multilabel,
            counts,
            len(known),
            held,
            graph.labels[nodes],
        )
        decided = decide_as_scored(graph, said, "threshold", decision=rule)
        name = f"{metric}_f1"
        scores[name] = 100 * f1_scores(true, decided[graph.test])[name]
    if graph.multilabel:
        decided = decide_as_scored(graph, said, "cardinality")[graph.test]
        scores[COUNTED] = 100 * f1_scores(true, decided)["micro_f1"]
    return scores | {"seconds": (time.perf_counter() - begun) / share}


def _brief(scores: Scores) -> str:
    return ", ".join(f"{name} {each['micro_f1']:.1f}" for name, each in scores.items())


def summarise(dataset: str, folds: Mapping[int, Scores]) -> dict[str, dict[str, Any]]:
    """Return mean and deviation of each method, best micro-F1 first.

    Only folds on which a method was run count. Ours also have `p_value` of Wilcoxon's
    test over folds that they are better than the baseline with the best mean, by micro-
    and by macro-F1.
    """
    methods = list(dict.fromkeys(name for scores in folds.values() for name in scores))
    board: dict[str, dict[str, Any]] = {}
    for name in methods:
        each = [scores[name] for scores in folds.values() if name in scores]
        board[name] = {"folds": len(each)}
        for metric in (*METRICS, COUNTED):
            if metric not in each[0]:
                continue
            values = np.array([scores[metric] for scores in each])
            board[name] |= {metric: float(values.mean())}
            board[name] |= {f"{metric}_std": float(values.std())}
        board[name]["seconds"] = float(np.mean([s["seconds"] for s in each]))
    known = [name for name in methods if name in BASELINES]
    for metric in METRICS if known else ():
        best = max(known, key=lambda name: board[name][metric])
        table = {
            name: {str(fold): scores[name][metric] for fold, scores in folds.items()}
            for name in (*OURS, best)
            if all(name in scores for scores in folds.values())
        }
        for name in table.keys() - {best} if best in table else ():
            p_value = wilcoxon(table, name, best).p_value if len(folds) > 1 else 1.0
            board[name][f"{metric}_p_value"] = p_value
            board[name][f"{metric}_against"] = best
    figures = [paper.published(dataset, model) for model in paper.TRANSDUCTIVE]
    printed = [figure for figure in figures if figure is not None]
    if printed:
        board[PAPER] = {"folds": 0, "micro_f1": max(printed)}
        if any(COUNTED in line for line in board.values()):
            board[PAPER][COUNTED] = max(printed)
    return dict(sorted(board.items(), key=lambda item: -item[1]["micro_f1"]))


def _rows(board: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of one line per method."""
    for name, line in board.items():
        cells = [name]
        for metric in (*METRICS, COUNTED):
            shown = "-"
            if metric in line:
                shown = f"{line[metric]:.1f}"
            if f"{metric}_std" in line:
                shown += f" ± {line[f'{metric}_std']:.1f}"
            if line.get(f"{metric}_p_value", 1) < SIGNIFICANT:
                shown += "*"
            cells.append(shown)
        cells.append(str(line["folds"] or "-"))
        cells.append(f"{line['seconds']:.1f}" if "seconds" in line else "-")
        yield tuple(cells)


_HEADER = ("method", "micro-F1", "macro-F1", "counted", "folds", "seconds")
_NOTE = (
    "Test scores in percent, mean ± standard deviation over folds. Labels are decided "
    "for micro-F1 and for macro-F1 in turn. counted: micro-F1 with the true number of "
    "labels of each node, as the paper scores nodes with several labels; its settings "
    "and figures are scored so in every column. *: better than the best baseline by "
    "that score (Wilcoxon over folds, level 0.05)."
)


def as_text(boards: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the boards as text."""
    lines = []
    for dataset, board in boards.items():
        rows = [(dataset, *_HEADER[1:]), *_rows(board)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += [
            "  ".join(
                cell.ljust(width) for cell, width in zip(row, widths, strict=True)
            )
            for row in rows
        ]
        lines.append("")
    return "\n".join([*lines, _NOTE])


def as_html(
    boards: Mapping[str, Mapping[str, Any]],
    settings: Mapping[str, Any],
    commit: str | None,
) -> str:
    """Return the boards as a page that needs no other file."""
    parts = []
    for dataset, board in boards.items():
        head = "".join(f"<th>{cell}</th>" for cell in _HEADER)
        body = "".join(
            f"<tr{' class=ours' if row[0] in OURS else ''}>"
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
            + "</tr>\n"
            for row in _rows(board)
        )
        title = html.escape(dataset)
        parts.append(f"<h2>{title}</h2>\n<table><tr>{head}</tr>\n{body}</table>")
    about = ", ".join(f"{name} {value}" for name, value in settings.items())
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<title>Leaderboard</title><style>body{font-family:sans-serif;margin:2em auto;"
        "max-width:50em}table{border-collapse:collapse;width:100%}td,th{padding:.3em "
        ".7em;text-align:left;border-bottom:1px solid #ddd}.ours{font-weight:bold}"
        "</style></head>\n<body><h1>Leaderboard</h1>\n"
        f"<p>{html.escape(_NOTE)}</p>\n"
        + "\n".join(parts)
        + f"\n<p>Commit {html.escape(str(commit))}; {html.escape(about)}.</p>"
        "</body></html>\n"
    )


if __name__ == "__main__":
    sys.exit(main())

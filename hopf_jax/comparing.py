"""`compare`: fits several models on several folds."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from hopf_jax.checks import check_number, check_whole
from hopf_jax.comparison import Comparison, Metric, Set, check_sets
from hopf_jax.config import Config
from hopf_jax.datasets import draw_split
from hopf_jax.fitting import fit, progress_bar
from hopf_jax.graph import Graph
from hopf_jax.models import FIRST_MODELS, MODELS, Row, find_row
from hopf_jax.result import Result


def compare(
    graph: Graph | None,
    models: str | Row | Sequence[str | Row] | Mapping[str, str | Row] = FIRST_MODELS,
    folds: int | Sequence[Graph] = 5,
    config: Config | None = None,
    *,
    seed: int = 0,
    percent: float | None = None,
    on: Set = "test",
    metric: Metric = "micro_f1",
    level: float = 0.95,
    resamples: int = 1000,
    progress: Literal["auto", True, False] | bool = "auto",
) -> Comparison:
    """Fit several models on several folds of a graph, and compare their scores.

    To choose a model, look at `on="validation"` (or `.scored(on="validation")`
    afterwards); test nodes are for the end.

    Args:
      graph: with labels. If it has test nodes, they stay the test nodes of every fold.
        None where `folds` are graphs that are not of one graph.
      models: names from `hopf_jax.MODELS` and rows of your own; or {name: row}.
      folds: how many splits to draw, as the paper does: a fold has training and
        validation nodes of its own, and the same test nodes. Or graphs, each with its
        split, for example `[load_dataset("cora", fold=i) for i in range(1, 6)]`.
      config: settings of every fit; the defaults if None.
      seed: of the splits drawn, of the fits and of the resamples.
      percent: of all nodes, for training and validation together, in the splits drawn.
        None: about as many as its own split has; the paper's 10 if it has none.
      on: the nodes to score, "validation" or "test".
      metric: "micro_f1" or "macro_f1".
      level: of the bootstrap's bounds. Above 0, below 1.
      resamples: of the bootstrap. 1 or more.
      progress: a bar with the time left on stderr; "auto" shows it in a terminal and in
        a notebook.

    Returns:
      A `Comparison`: `lines`, `to_pandas()`, `plot()`, and the fits in `results`.
    """
    rows = _name_rows(models)
    check_number(level, "level", lambda p: 0 < p < 1, "above 0, below 1")
    check_whole(resamples, "resamples", 1)
    graphs = _draw(graph, folds, percent, seed)
    results: dict[str, list[Result]] = {name: [] for name in rows}
    # Checks its settings now rather than after the last fit.
    Comparison({}, graphs, metric, on)
    total = len(graphs) * len(rows)
    with progress_bar(progress, desc="compare", unit=" fits", total=total) as bar:
        # Folds outside: after one of them the time left is known for every model.
        for place, split in enumerate(graphs, start=1):
            for name, row in rows.items():
                if not bar.disable:
                    bar.set_postfix(fold=place, model=name)
                results[name].append(fit(split, row, config, seed=seed, progress=False))
                bar.update()
    return Comparison(
        {name: tuple(found) for name, found in results.items()},
        graphs,
        metric,
        on,
        seed,
        level,
        resamples,
    )


def _name_rows(models: Any) -> dict[str, Row]:
    if isinstance(models, str | Row):
        models = (models,)
    if not isinstance(models, Mapping | Sequence):
        raise ValueError(f"models is {models!r}; give a list of names and rows.")
    if not isinstance(models, Mapping):
        known = {row: name for name, row in MODELS.items()}
        named = [
            (m if isinstance(m, str) else known.get(find_row(m), f"row {i}"), m)
            for i, m in enumerate(models, start=1)
        ]
        models = dict(named)
        if len(models) < len(named):
            raise ValueError(f"models lists one twice: {[name for name, _ in named]}.")
    if not models:
        raise ValueError("models is empty; give a name from hopf_jax.MODELS or a Row.")
    return {str(name): find_row(model) for name, model in models.items()}


def _draw(
    graph: Graph | None, folds: Any, percent: float | None, seed: int
) -> tuple[Graph, ...]:
    """The folds, each with its split."""
    if graph is not None and not isinstance(graph, Graph):
        raise ValueError(
            f"graph is a {type(graph).__name__}; make a hopf_jax.Graph of it, or give "
            "None and a list of graphs as folds."
        )
    if isinstance(folds, int) and not isinstance(folds, bool):
        if graph is None or folds < 1:
            raise ValueError(
                f"folds is {folds} and graph is {graph}; give a graph and a number of "
                "folds above 0, or a list of graphs with splits as folds."
            )
        labelled = graph.train | graph.validation
        if percent is None:
            percent = 100 * float(labelled.mean()) if labelled.any() else 10
        test = graph.test if graph.test.any() else None
        return tuple(
            graph.with_split(
                **draw_split(
                    graph.known, percent=percent, fold=fold, seed=seed, test=test
                )
            )
            for fold in range(1, folds + 1)
        )
    if isinstance(folds, Graph | str | np.ndarray) or not isinstance(folds, Iterable):
        raise ValueError(f"folds is {folds!r}; give a number or a list of graphs.")
    if percent is not None:
        raise ValueError("percent is for folds to draw; these folds have their splits.")
    graphs = tuple(folds)
    if not graphs:
        raise ValueError("folds is empty; give a number or graphs with splits.")
    for place, fold in enumerate(graphs):
        if not isinstance(fold, Graph):
            raise ValueError(f"folds[{place}] is a {type(fold).__name__}, not a Graph.")
        check_sets(fold, f"folds[{place}]", ("train", "validation"))
        if graph is not None and fold.num_nodes != graph.num_nodes:
            raise ValueError(
                f"folds[{place}] has {fold.num_nodes} nodes, but graph has "
                f"{graph.num_nodes}. Give None for graph to compare over several."
            )
    return graphs

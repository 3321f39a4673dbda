"""`compare`: fit several models on several folds, and compare their scores."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from hopf_jax import metrics
from hopf_jax.config import Config, Execution, Number
from hopf_jax.fitting import fit, progress_bar
from hopf_jax.graph import Graph, check_value, check_whole, draw_split
from hopf_jax.kernels import FIRST_MODELS, MODELS, Kernel, find_kernel
from hopf_jax.results import Result, decide_as_scored, html_table, text_table

Metric = Literal["micro_f1", "macro_f1"]
Set = Literal["validation", "test"]
_METRICS = {"micro_f1": "micro-F1", "macro_f1": "macro-F1"}
_MOST_DRAWS = 20_000_000  # Entries of a block of resamples: 160 MB.


class Line(NamedTuple):
    """What a comparison says of one model; scores and shortfall in percent."""

    model: str
    score: float  # mean over folds
    std: float  # of the folds
    low: float  # bounds of the score
    high: float
    gap: float  # the best model's score less this one's
    gap_low: float  # its bounds, from the same resamples for both models
    gap_high: float
    rank: float  # mean over folds; 1 is the best
    shortfall: float  # mean over folds of (best - score) / best; NaN if a best is 0
    wins: int  # folds on which no model is better
    p_value: float  # of Wilcoxon's test that the best model is better; NaN for itself
    apart: bool  # its rank is told from the best rank (Nemenyi, level 0.05)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What `compare` found; shows itself in a terminal and in a notebook.

    The bounds are of a bootstrap: each resample draws folds, and nodes of the scored
    set, with replacement, the same ones for every model. Folds that are scored on the
    same nodes get the same nodes. So they cover both which nodes were trained on and
    which were scored, as far as so few folds show it.

    The tests take folds for independent. Folds of one graph share its test nodes and
    some training nodes, so their p-values are somewhat too small: believe a gap whose
    bounds agree.

    Attributes:
      results: of each model, by name, one a fold.
      graphs: the folds, each with its split.
      metric: "micro_f1" or "macro_f1".
      on: the nodes scored, "validation" or "test".
      seed: of the resamples too.
      level: of the bounds.
      resamples: how many.
    """

    results: Mapping[str, tuple[Result, ...]]
    graphs: tuple[Graph, ...]
    metric: Metric = "micro_f1"
    on: Set = "test"
    seed: int = 0
    level: float = 0.95
    resamples: int = 1000

    def __post_init__(self) -> None:
        """Settings out of range fail here."""
        _check_choice("metric", self.metric, tuple(_METRICS))
        _check_choice("on", self.on, ("validation", "test"))
        for place, graph in enumerate(self.graphs):
            check_sets(graph, f"folds[{place}]", (self.on,))

    def scored(self, *, on: Set | None = None, metric: Metric | None = None) -> Self:
        """The same fits, scored on other nodes or by another metric."""
        return dataclasses.replace(self, on=on or self.on, metric=metric or self.metric)

    @functools.cached_property
    def table(self) -> dict[str, dict[str, float]]:
        """{model: {fold: score in percent}}, as the functions of `metrics` take it."""
        return {
            model: {
                f"fold {place}": 100 * result.scores[self.on][self.metric]
                for place, result in enumerate(results, start=1)
            }
            for model, results in self.results.items()
        }

    @functools.cached_property
    def lines(self) -> tuple[Line, ...]:
        """A line a model, the best mean score first."""
        names, folds = list(self.results), len(self.graphs)
        scores = np.array([list(row.values()) for row in self.table.values()])
        best = names[int(scores.mean(axis=1).argmax())]
        drawn = self._resampled()
        tail = 50 * (1 - self.level)
        sides = (tail, 100 - tail)
        ranks, won = metrics.average_ranks(self.table), metrics.wins(self.table)
        short = dict.fromkeys(names, float("nan"))
        if (scores.max(axis=0) > 0).all():
            short = metrics.shortfall(self.table)
        difference = self.critical_difference if len(names) > 1 else float("inf")
        lines = []
        for name, row in zip(names, scores, strict=True):
            low, high = np.percentile(drawn[name], sides)
            gap_low, gap_high = np.percentile(drawn[best] - drawn[name], sides)
            p_value = float("nan")
            if name != best and folds > 1:
                p_value = metrics.wilcoxon(self.table, best, name).p_value
            lines.append(
                Line(
                    name,
                    float(row.mean()),
                    float(row.std()),
                    float(low),
                    float(high),
                    float(np.mean(list(self.table[best].values())) - row.mean()),
                    float(gap_low),
                    float(gap_high),
                    ranks[name],
                    short[name],
                    won[name],
                    p_value,
                    bool(ranks[name] - min(ranks.values()) >= difference),
                )
            )
        return tuple(sorted(lines, key=lambda line: -line.score))

    @property
    def friedman(self) -> metrics.Outcome | None:
        """Whether all models perform alike; None below three models or two folds."""
        if len(self.results) < 3 or len(self.graphs) < 2:
            return None
        return metrics.friedman(self.table)

    @property
    def critical_difference(self) -> float:
        """Mean ranks closer than this are not told apart (Nemenyi, level 0.05)."""
        return metrics.critical_difference(len(self.results), len(self.graphs))

    def _resampled(self) -> dict[str, np.ndarray]:
        """Each model's score in percent, [resamples]."""
        rng = np.random.default_rng([self.seed, len(self.graphs)])
        folds, count = len(self.graphs), self.resamples
        times = rng.multinomial(folds, np.full(folds, 1 / folds), size=count)
        masks = [getattr(graph, self.on) for graph in self.graphs]
        alike: dict[bytes, list[int]] = {}  # Folds by the nodes they are scored on.
        for fold, mask in enumerate(masks):
            alike.setdefault(np.packbits(mask).tobytes(), []).append(fold)
        decided = {
            (name, fold): decide_as_scored(
                graph, result.probabilities, result.config.scoring
            )[masks[fold]]
            for name, results in self.results.items()
            for fold, (graph, result) in enumerate(
                zip(self.graphs, results, strict=True)
            )
        }
        totals = {name: np.zeros(count) for name in self.results}
        for members in alike.values():
            nodes = int(masks[members[0]].sum())
            block = max(1, _MOST_DRAWS // nodes)
            for start in range(0, count, block):
                part = slice(start, min(start + block, count))
                drawn = rng.multinomial(
                    nodes, np.full(nodes, 1 / nodes), size=part.stop - start
                )
                for fold in members:
                    true = self.graphs[fold].labels[masks[fold]]
                    for name, total in totals.items():
                        scores = metrics.resampled_f1_scores(
                            true, decided[name, fold], drawn
                        )
                        total[part] += scores[self.metric] * times[part, fold]
        return {name: 100 * total / folds for name, total in totals.items()}

    def to_pandas(self) -> Any:
        """A DataFrame: a row a model, a column a field of `Line`."""
        try:
            import pandas as pd
        except ImportError:
            raise ImportError(
                'to_pandas needs pandas: pip install "hopf-jax[tables]".'
            ) from None
        return pd.DataFrame(self.lines, columns=Line._fields).set_index("model")

    def plot(self) -> Any:
        """A matplotlib figure: scores with bounds and folds, and shortfalls."""
        from hopf_jax.results import plots

        return plots.plot_comparison(
            self.lines,
            {name: list(row.values()) for name, row in self.table.items()},
            f"{self.on} {_METRICS[self.metric]}, %",
            f"{self.level:.0%} bounds",
        )

    def _caption(self) -> str:
        folds = len(self.graphs)
        return (
            f"{self.on} {_METRICS[self.metric]} in percent, {folds} "
            f"fold{'s' * (folds > 1)}; [{self.level:.0%} bounds] resample folds and "
            "nodes"
        )

    def _remarks(self) -> str:
        if len(self.graphs) < 2:
            return "One fold: nothing to test."
        said = "p: Wilcoxon, the best is better."
        if self.friedman is not None:
            said += f" Friedman, all alike: p = {_p(self.friedman.p_value)}."
        if len(self.results) > 1:
            said += (
                f" * its rank is {self.critical_difference:.2f} or more from the best: "
                "told apart (Nemenyi)."
            )
        return said

    def _cells(self) -> list[tuple[str, ...]]:
        head = ("model", "score", "bounds", "gap", "bounds", "rank", "shortfall", "p")
        cells: list[tuple[str, ...]] = [head]
        for line in self.lines:
            first = line is self.lines[0]
            cells.append(
                (
                    line.model,
                    f"{line.score:.1f} ± {line.std:.1f}",
                    f"[{line.low:.1f}, {line.high:.1f}]",
                    "" if first else f"{line.gap:.1f}",
                    "" if first else f"[{line.gap_low:.1f}, {line.gap_high:.1f}]",
                    f"{line.rank:.1f}{'*' * line.apart}",
                    "-" if np.isnan(line.shortfall) else f"{line.shortfall:.1f}%",
                    "" if np.isnan(line.p_value) else _p(line.p_value),
                )
            )
        return cells

    def __repr__(self) -> str:
        return text_table(self._caption(), self._cells(), self._remarks())

    def _repr_html_(self) -> str:
        return html_table(self._caption(), self._cells(), self._remarks())


def check_sets(graph: Graph, name: str, sets: Iterable[str]) -> None:
    """A fold has nodes in these sets."""
    for each in sets:
        if not getattr(graph, each).any():
            raise ValueError(
                f"{name} has no {each} nodes. Give some with graph.with_split(...), or "
                "score others with on=..."
            )


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} is {value!r}; it must be one of {choices}.")


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def compare(
    graph: Graph | None,
    models: str
    | Kernel
    | Sequence[str | Kernel]
    | Mapping[str, str | Kernel] = FIRST_MODELS,
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
    execution: Execution | None = None,
) -> Comparison:
    """Fit several models on several folds of a graph, and compare their scores.

    To choose a model, look at `on="validation"` (or `.scored(on="validation")`
    afterwards); test nodes are for the end.

    Args:
      graph: with labels. If it has test nodes, they stay the test nodes of every fold.
        None where `folds` are graphs that are not of one graph.
      models: names from `hopf_jax.MODELS` and kernels of your own; or {name: kernel}.
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
      execution: memory, chunk size and devices of every fit; the defaults if None.

    Returns:
      A `Comparison`: `lines`, `to_pandas()`, `plot()`, and the fits in `results`.
    """
    kernels = _name_kernels(models)
    check_value(level, "level", Number(0, 1, open_below=True, open_above=True))
    check_whole(resamples, "resamples", 1)
    graphs = _draw(graph, folds, percent, seed)
    results: dict[str, list[Result]] = {name: [] for name in kernels}
    # Checks its settings now rather than after the last fit.
    Comparison({}, graphs, metric, on)
    total = len(graphs) * len(kernels)
    with progress_bar(progress, desc="compare", unit=" fits", total=total) as bar:
        # Folds outside: after one of them the time left is known for every model.
        for place, split in enumerate(graphs, start=1):
            for name, kernel in kernels.items():
                if not bar.disable:
                    bar.set_postfix(fold=place, model=name)
                result = fit(
                    split,
                    kernel,
                    config,
                    seed=seed,
                    progress=False,
                    execution=execution,
                )
                results[name].append(result)
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


def _name_kernels(models: Any) -> dict[str, Kernel]:
    if isinstance(models, str | Kernel):
        models = (models,)
    if not isinstance(models, Mapping | Sequence):
        raise ValueError(f"models is {models!r}; give a list of names and kernels.")
    if not isinstance(models, Mapping):
        known = {kernel: name for name, kernel in MODELS.items()}
        named = [
            (m if isinstance(m, str) else known.get(find_kernel(m), f"kernel {i}"), m)
            for i, m in enumerate(models, start=1)
        ]
        models = dict(named)
        if len(models) < len(named):
            raise ValueError(f"models lists one twice: {[name for name, _ in named]}.")
    if not models:
        raise ValueError(
            "models is empty; give a name from hopf_jax.MODELS or a Kernel."
        )
    return {str(name): find_kernel(model) for name, model in models.items()}


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

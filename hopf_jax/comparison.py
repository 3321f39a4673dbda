"""`compare`: fit several models on several folds, and compare their scores."""

import dataclasses
import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from hopf_jax import metrics
from hopf_jax.baselines import BASELINES, Predictor, predict_baseline, spelled
from hopf_jax.config import Choice, Config, Execution, Number, Whole
from hopf_jax.fitting import fit, scale_features, with_settings
from hopf_jax.graph import Graph, as_graph, check_value, draw_folds
from hopf_jax.kernels import FIRST_MODELS, MODELS, Kernel, find_kernel
from hopf_jax.results import (
    Decision,
    Result,
    decide_as_scored,
    make_decision,
    score,
)
from hopf_jax.runtime import ProgressLine, Show, Tabular, import_or_explain, span

Models = str | Kernel | Sequence[str | Kernel] | Mapping[str, str | Kernel]
Metric = Literal["micro_f1", "macro_f1"]
Set = Literal["validation", "test"]
_METRICS = {"micro_f1": "micro-F1", "macro_f1": "macro-F1"}
_CONSTRAINTS: dict[str, Any] = {
    "metric": Choice(tuple(_METRICS)),
    "on": Choice(("validation", "test")),
    "level": Number(0, 1, open_below=True, open_above=True),
    "resamples": Whole(1),
}
_MOST_DRAWS = 20_000_000  # Largest number of entries in a block of resamples.


class Line(NamedTuple):
    """One model in a comparison; scores and shortfall are in percent."""

    model: str
    score: float  # Mean over folds.
    std: float  # Over folds.
    low: float  # Bounds of the score.
    high: float
    gap: float  # The best model's score minus this one's.
    gap_low: float  # Its bounds, from the same resamples for both models.
    gap_high: float
    rank: float  # Mean over folds; 1 is the best.
    shortfall: float  # Mean over folds of (best - score) / best; NaN if a best is 0.
    wins: int  # Number of folds on which no model is better.
    p_value: float  # Wilcoxon's test that the best model is better; NaN for itself.
    apart: bool  # Its rank differs from the best (Nemenyi, level 0.05).


@dataclasses.dataclass(frozen=True, repr=False)
class BaselineResult:
    """What a method of `hopf_jax.baselines` predicts, as far as it is compared.

    Attributes:
      name: The method.
      probabilities: [N, C], after learning from training and validation nodes.
      scores: F1 scores by set; those of validation nodes are of the same method before
        it learned from them.
      config: Settings; of them, `metric`, `scoring` and `features` count.
      decision: The rule that turns probabilities into labels.
      held_out: [N, C], after learning from training nodes alone.
    """

    name: str
    probabilities: np.ndarray
    scores: dict[str, dict[str, float]]
    config: Config
    decision: Decision
    held_out: np.ndarray

    def predict_proba(self) -> np.ndarray:
        """Return probabilities [N, C] of all nodes."""
        return self.probabilities

    def predict(self) -> np.ndarray:
        """Return class ids [N], or a 0/1 matrix [N, C] if multi-label."""
        return self.decision.decide(self.probabilities)


def fit_baseline(
    graph: Graph,
    name: str,
    config: Config | None = None,
    *,
    base: Predictor | np.ndarray | None = None,
) -> BaselineResult:
    """Fit a method of `hopf_jax.baselines.BASELINES` as `compare` does.

    Features are scaled as `fit` scales them, and labels decided for `Config.metric`.
    `base` is what "correct-and-smooth" corrects, such as a `Result` of this graph.
    """
    # Its probabilities are not weighted, whatever the loss of the kernels beside it.
    config = dataclasses.replace(config or Config(), weighted_loss=False)
    (scaled,), _ = scale_features([graph], config)
    said = predict_baseline(scaled, name, base)
    decision = make_decision(config, graph, said.held_out)
    scores = score(graph, said.final, config.scoring, decision)
    held = score(graph, said.held_out, config.scoring, decision)
    scores["validation"] = held["validation"]
    return BaselineResult(
        spelled(name), said.final, scores, config, decision, said.held_out
    )


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Comparison(Tabular):
    """Scores of several models on several folds; shown as a table.

    Bounds are bootstrapped over folds and scored nodes, with the same resamples for
    every model, so they cover the choice of training nodes as well as that of scored
    nodes, as far as a few folds can.

    Significance tests treat folds as independent. Folds of one graph share test nodes
    and some training nodes, so p-values are somewhat too small: trust differences only
    if the bounds support them.

    Attributes:
      results: One result per fold, by model.
      graphs: The folds, each with its split.
      metric: "micro_f1" or "macro_f1".
      on: The scored nodes, "validation" or "test".
      seed: Seed of the resamples.
      level: Level of the bounds.
      resamples: Number of resamples.
    """

    results: Mapping[str, tuple[Result | BaselineResult, ...]]
    graphs: tuple[Graph, ...]
    metric: Metric = "micro_f1"
    on: Set = "test"
    seed: int = 0
    level: float = 0.95
    resamples: int = 1000

    def __post_init__(self) -> None:
        """Raise `ValueError` for settings out of range, or folds without nodes."""
        for name, constraint in _CONSTRAINTS.items():
            check_value(getattr(self, name), name, constraint)
        _check_sets(self.graphs, self.on)

    def scored(self, *, on: Set | None = None, metric: Metric | None = None) -> Self:
        """Return the same fits, scored on other nodes or by another metric."""
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
        """One line per model, the best mean score first."""
        names, folds = list(self.results), len(self.graphs)
        scores = np.array([list(row.values()) for row in self.table.values()])
        best = int(scores.mean(axis=1).argmax())
        drawn = self._resampled()
        tail = 50 * (1 - self.level)
        bounds = functools.partial(np.percentile, q=(tail, 100 - tail))
        ranks, wins = metrics.average_ranks(self.table), metrics.wins(self.table)
        shortfalls = dict.fromkeys(names, float("nan"))
        if (scores.max(axis=0) > 0).all():
            shortfalls = metrics.shortfall(self.table)
        difference = self.critical_difference if len(names) > 1 else float("inf")
        lines = []
        for i, (name, row) in enumerate(zip(names, scores, strict=True)):
            low, high = map(float, bounds(drawn[i]))
            gap_low, gap_high = map(float, bounds(drawn[best] - drawn[i]))
            p_value = float("nan")
            if i != best and folds > 1:
                p_value = metrics.wilcoxon(self.table, names[best], name).p_value
            line = Line(
                name,
                score=float(row.mean()),
                std=float(row.std()),
                low=low,
                high=high,
                gap=float(scores[best].mean() - row.mean()),
                gap_low=gap_low,
                gap_high=gap_high,
                rank=ranks[name],
                shortfall=shortfalls[name],
                wins=wins[name],
                p_value=p_value,
                apart=bool(ranks[name] - min(ranks.values()) >= difference),
            )
            lines.append(line)
        return tuple(sorted(lines, key=lambda line: -line.score))

    @property
    def friedman(self) -> metrics.Outcome | None:
        """Friedman's test; None with fewer than three models or two folds."""
        if len(self.results) < 3 or len(self.graphs) < 2:
            return None
        return metrics.friedman(self.table)

    @property
    def critical_difference(self) -> float:
        """Smallest significant difference of mean ranks (Nemenyi, level 0.05)."""
        return metrics.critical_difference(len(self.results), len(self.graphs))

    def _resampled(self) -> np.ndarray:
        """Return the scores in percent, [models, resamples]."""
        rng = np.random.default_rng([self.seed, len(self.graphs)])
        folds, count = len(self.graphs), self.resamples
        times = rng.multinomial(folds, np.full(folds, 1 / folds), size=count)
        masks = [getattr(graph, self.on) for graph in self.graphs]
        alike: dict[bytes, list[int]] = {}  # Folds by the nodes they are scored on.
        for fold, mask in enumerate(masks):
            alike.setdefault(np.packbits(mask).tobytes(), []).append(fold)
        decided = [
            [
                _decided(graph, one, self.on)[mask]
                for graph, mask, one in zip(self.graphs, masks, results, strict=True)
            ]
            for results in self.results.values()
        ]
        totals = np.zeros((len(decided), count))
        for members in alike.values():
            nodes = int(masks[members[0]].sum())
            block = max(1, _MOST_DRAWS // nodes)
            for start in range(0, count, block):
                part = slice(start, min(start + block, count))
                size = part.stop - start
                drawn = rng.multinomial(nodes, np.full(nodes, 1 / nodes), size=size)
                for fold in members:
                    true = self.graphs[fold].labels[masks[fold]]
                    for total, said in zip(totals, decided, strict=True):
                        scores = metrics.resampled_f1_scores(true, said[fold], drawn)
                        total[part] += scores[self.metric] * times[part, fold]
        return 100 * totals / folds

    def to_pandas(self) -> Any:
        """Return a DataFrame with one row per model and the columns of `Line`."""
        pd = import_or_explain("pandas", "to_pandas")
        return pd.DataFrame(self.lines, columns=Line._fields).set_index("model")

    def plot(self) -> Any:
        """Return a matplotlib figure: scores with bounds and folds, and shortfalls."""
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
        remarks = "p: Wilcoxon, the best model is better."
        if self.friedman is not None:
            remarks += f" Friedman, all models alike: p = {_p(self.friedman.p_value)}."
        if len(self.results) > 1:
            remarks += (
                f" *: the rank differs from the best by {self.critical_difference:.2f} "
                "or more, which is significant (Nemenyi)."
            )
        return remarks

    def _cells(self) -> list[tuple[str, ...]]:
        head = ("model", "score", "bounds", "gap", "bounds", "rank", "shortfall", "p")
        cells: list[tuple[str, ...]] = [head]
        for line in self.lines:
            first = line is self.lines[0]
            cells.append(
                (
                    line.model,
                    f"{line.score:.1f} ± {line.std:.1f}"
                    if len(self.graphs) > 1
                    else f"{line.score:.1f}",
                    f"[{line.low:.1f}, {line.high:.1f}]",
                    "" if first else f"{line.gap:.1f}",
                    "" if first else f"[{line.gap_low:.1f}, {line.gap_high:.1f}]",
                    f"{line.rank:.1f}{'*' * line.apart}",
                    "-" if np.isnan(line.shortfall) else f"{line.shortfall:.1f}%",
                    "" if np.isnan(line.p_value) else _p(line.p_value),
                )
            )
        return cells


def _decided(graph: Graph, result: Result | BaselineResult, on: Set) -> np.ndarray:
    said, scoring = result.probabilities, result.config.scoring
    if isinstance(result, BaselineResult) and on == "validation":
        said = result.held_out
    return decide_as_scored(graph, said, scoring, decision=result.decision)


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _check_sets(graphs: Sequence[Graph], *sets: str) -> None:
    for place, graph in enumerate(graphs):
        for each in sets:
            if not getattr(graph, each).any():
                raise ValueError(
                    f"folds[{place}] has no {each} nodes. Give some with "
                    "graph.with_split(...), or score others with on=..."
                )


def compare(
    graph: Graph | None,
    models: Models = FIRST_MODELS,
    folds: int | Sequence[Graph] = 5,
    config: Config | None = None,
    *,
    seed: int = 0,
    share: float | None = None,
    on: Set = "test",
    metric: Metric = "micro_f1",
    level: float = 0.95,
    resamples: int = 1000,
    progress: Show = "auto",
    execution: Execution | None = None,
    **settings: Any,
) -> Comparison:
    """Fit several models on several folds of a graph, and compare their scores.

    To choose a model, use `on="validation"` (or `.scored(on="validation")` afterwards),
    and keep the test nodes for the final score.

    Args:
      graph: A graph with labels. Its test nodes, if it has any, are those of every
        fold. None where `folds` are different graphs.
      models: Names from `hopf_jax.MODELS` and from `hopf_jax.baselines.BASELINES`, and
        kernels of your own; or {name: kernel}.
      folds: Number of splits to draw from the labelled nodes, each class spread evenly,
        with different training and validation nodes but the same test nodes: the
        graph's own, or a fifth of the labelled nodes. Or graphs with splits, such as
        `[load_dataset("cora", fold=i) for i in range(1, 6)]`.
      config: Settings of every fit; the defaults if None.
      seed: Seed of the drawn splits, the fits and the resamples.
      share: Share of the labelled nodes for training and validation together, in drawn
        splits; a fifth of them are for validation. None for as many as in the graph's
        own split, or for all but the test nodes if it has none.
      on: Nodes to score, "validation" or "test".
      metric: "micro_f1" or "macro_f1".
      level: Level of the bootstrap bounds. Above 0, below 1.
      resamples: Number of bootstrap resamples. 1 or more.
      progress: Show a progress bar with the time left on stderr; "auto" shows it in a
        terminal and in a notebook.
      execution: Memory, chunk size and devices of every fit; the defaults if None.
      settings: Fields of `Config`, instead of those in `config`.

    Returns:
      A `Comparison`: `lines`, `to_pandas()`, `plot()`, and the fits in `results`.
    """
    kernels, config = _name_kernels(models), with_settings(config, settings)
    graphs = _draw(graph, folds, share, seed)
    results: dict[str, tuple[Result | BaselineResult, ...]]
    results = dict.fromkeys(kernels, ())
    # Made before the fits, so that wrong settings fail at once.
    comparison = Comparison(results, graphs, metric, on, seed, level, resamples)
    train = functools.partial(fit, seed=seed, progress=False, execution=execution)
    total = len(graphs) * len(kernels)
    with ProgressLine("compare", progress) as line:
        done, left = 0, ""
        # Folds outside: after the first, the time left is known for every model.
        for place, split in enumerate(graphs, start=1):
            for name, kernel in kernels.items():
                said = f"{done} of {total} fits"
                line.say(f"{said}; now {name}, fold {place}{left}", said)
                found: Result | BaselineResult
                if isinstance(kernel, str):
                    found = fit_baseline(split, kernel, config)
                else:
                    found = train(split, kernel, config)
                results[name] += (found,)
                done += 1
                each = (time.perf_counter() - line.begun) / done
                left = f", about {span(each * (total - done))} left"
        line.say("", f"{total} fits")
    return comparison


def _name_kernels(models: Any) -> dict[str, Kernel | str]:
    """Return kernels by name; of a baseline, its name."""
    if isinstance(models, str | Kernel):
        models = (models,)
    if not isinstance(models, Mapping | Sequence):
        raise ValueError(f"models is {models!r}; give a list of names and kernels.")
    if not isinstance(models, Mapping):
        known = {kernel: name for name, kernel in MODELS.items()}
        named = [
            (m if isinstance(m, str) else known.get(_find(m), f"kernel {i}"), m)
            for i, m in enumerate(models, start=1)
        ]
        models = dict(named)
        if len(models) < len(named):
            raise ValueError(f"models lists one twice: {[name for name, _ in named]}.")
    if not models:
        raise ValueError("models is empty; give names from hopf_jax.MODELS or kernels.")
    return {str(name): _find(model) for name, model in models.items()}


def _find(model: Any) -> Any:
    """Return the kernel of a name, or the name of a baseline."""
    if isinstance(model, str) and model not in MODELS and spelled(model) in BASELINES:
        return spelled(model)
    try:
        return find_kernel(model)
    except ValueError as error:
        raise ValueError(f"{error} Baselines: {', '.join(BASELINES)}.") from None


def _draw(
    graph: Graph | None, folds: Any, share: float | None, seed: int
) -> tuple[Graph, ...]:
    """Return the folds, each with its split."""
    graph = None if graph is None else as_graph(graph)
    if isinstance(folds, int) and not isinstance(folds, bool):
        if graph is None or folds < 1:
            raise ValueError(
                f"folds is {folds} and graph is {graph}; give a graph and a number of "
                "folds above 0, or a list of graphs with splits as folds."
            )
        return draw_folds(graph, folds, share=share, seed=seed)
    if isinstance(folds, Graph | str | np.ndarray) or not isinstance(folds, Iterable):
        raise ValueError(f"folds is {folds!r}; give a number or a list of graphs.")
    if share is not None:
        raise ValueError("share is for folds to draw; these folds have their splits.")
    graphs = tuple(folds)
    if not graphs:
        raise ValueError("folds is empty; give a number or graphs with splits.")
    for place, fold in enumerate(graphs):
        if not isinstance(fold, Graph):
            raise ValueError(f"folds[{place}] is a {type(fold).__name__}, not a Graph.")
        if graph is not None and fold.num_nodes != graph.num_nodes:
            raise ValueError(
                f"folds[{place}] has {fold.num_nodes} nodes, but graph has "
                f"{graph.num_nodes}. Give None for graph to compare over several."
            )
    _check_sets(graphs, "train", "validation")
    return graphs

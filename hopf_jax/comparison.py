"""`Comparison`: scores of models over folds, with ranks, bounds and tests."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from hopf_jax import metrics
from hopf_jax.graph import Graph
from hopf_jax.result import Result, decide_as_scored
from hopf_jax.showing import html_table, text_table

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
        from hopf_jax import plotting

        return plotting.plot_comparison(
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

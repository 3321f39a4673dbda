"""Aggregates over datasets, ours beside the paper's, and the paper's findings."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from experiments import paper
from hopf_jax import metrics
from hopf_jax.kernels import MODELS

Table = Mapping[str, Mapping[str, float]]


class Finding(NamedTuple):
    """A statement of the paper, and how to check it on a table."""

    statement: str
    check: Callable[[Table], tuple[bool, str] | None]  # None if it cannot be checked.


def summary(table: Table) -> dict[str, Any]:
    """Return the aggregate columns and tests of one table."""
    datasets = list(next(iter(table.values())))
    result: dict[str, Any] = {
        "datasets": datasets,
        "shortfall": metrics.shortfall(table),
        "rank": metrics.average_ranks(table),
        "wins": metrics.wins(table),
        "wilcoxon": [_compare(table, c) for c in paper.COMPARISONS if _has(table, c)],
    }
    if len(table) > 2 and len(datasets) > 1:
        statistic, p_value = metrics.friedman(table)
        result["friedman"] = {"statistic": statistic, "p": p_value}
    if len(table) > 1:
        result["critical_difference"] = _critical_difference(len(table), len(datasets))
    return result


def over(done: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return summaries over the tables of several datasets, {dataset: table.json}.

    Only of the models of Table 3 that every dataset has.
    """
    found = {name: table["models"] for name, table in done.items()}
    common = [
        model
        for model in paper.TRANSDUCTIVE
        if all(model in models for models in found.values())
    ]
    ours = {
        model: {name: of[model]["micro_f1"]["mean"] for name, of in found.items()}
        for model in common
    }
    known = [name for name in done if paper.published(name, "gcn") is not None]
    theirs = {
        model: {name: paper.published(name, model) or 0.0 for name in known}
        for model in common
    }
    result: dict[str, Any] = {
        "datasets": list(done),
        "models": {
            model: {name: models.get(model) for name, models in found.items()}
            for model in dict.fromkeys(m for models in found.values() for m in models)
        },
    }
    if not common:
        return result | {"ours": None, "paper": None, "findings": []}
    result["ours"] = summary(ours)
    result["without_echo"] = summary(
        {
            model: {name: _without_echo(of[model]) for name, of in found.items()}
            for model in common
        }
    )
    result["paper"] = summary(theirs) if known else None
    result["findings"] = [
        _verdict(finding, ours, theirs if known else None) for finding in FINDINGS
    ]
    return result


def _without_echo(entry: Mapping[str, Any]) -> float:
    """Return the F1 of a model, without the echo if it iterates."""
    return (entry.get("without_echo") or entry)["micro_f1"]["mean"]


def _verdict(finding: Finding, ours: Table, theirs: Table | None) -> dict[str, Any]:
    def checked(table: Table | None) -> dict[str, Any] | None:
        found = None if table is None else finding.check(table)
        return None if found is None else {"holds": found[0], "evidence": found[1]}

    return {
        "statement": finding.statement,
        "ours": checked(ours),
        "paper": checked(theirs),
        "paper_all": checked(paper.TRANSDUCTIVE),
    }


@functools.cache  # The quantile is slow to compute.
def _critical_difference(num_models: int, num_datasets: int) -> float:
    return metrics.critical_difference(num_models, num_datasets)


def _has(table: Table, comparison: paper.Comparison) -> bool:
    return comparison.model in table and comparison.other in table


def _compare(table: Table, comparison: paper.Comparison) -> dict[str, Any]:
    model, other = comparison.model, comparison.other
    gains = [table[model][name] - table[other][name] for name in table[model]]
    return {
        "model": model,
        "other": other,
        "better": sum(gain > 0 for gain in gains),
        "datasets": len(gains),
        "p": metrics.wilcoxon(table, model, other).p_value,
        "p_relative": metrics.wilcoxon(table, model, other, relative=True).p_value,
        "mean_difference": sum(gains) / len(gains),
    }


def _all_gain(gains: Mapping[str, float]) -> tuple[bool, str] | None:
    if not gains:
        return None
    evidence = ", ".join(f"{name} {gain:+.1f}" for name, gain in gains.items())
    return all(gain > 0 for gain in gains.values()), evidence


def _neighbours_help(table: Table) -> tuple[bool, str] | None:
    if not {"bl-node", "bl-neigh"} <= set(table):
        return None
    node, neighbours = table["bl-node"], table["bl-neigh"]
    names = [name for name in paper.NEIGHBOURS_HELP if name in node]
    return _all_gain({name: neighbours[name] - node[name] for name in names})


def _collective_help(table: Table) -> tuple[bool, str] | None:
    baselines = {"bl-node", "bl-neigh"}
    others = set(table) - baselines
    if not baselines <= set(table) or not others:
        return None
    node, neighbours = table["bl-node"], table["bl-neigh"]
    return _all_gain(
        {
            name: max(table[model][name] for model in others) - neighbours[name]
            for name in node
            if neighbours[name] > node[name]
        }
    )


def _better(comparison: paper.Comparison) -> Callable[[Table], Any]:
    def check(table: Table) -> tuple[bool, str] | None:
        if not _has(table, comparison):
            return None
        found = _compare(table, comparison)
        evidence = (
            f"better on {found['better']} of {found['datasets']}, by "
            f"{found['mean_difference']:+.2f} on average, Wilcoxon p = {found['p']:.3f}"
        )
        return 2 * found["better"] > found["datasets"], evidence

    return check


def _least(measure: str, model: str, among: str = "") -> Callable[[Table], Any]:
    """Return a check that a model has the least shortfall or rank of some models."""
    compute = {"shortfall": metrics.shortfall, "rank": metrics.average_ranks}[measure]

    def check(table: Table) -> tuple[bool, str] | None:
        if model not in table or len(table) < 2:
            return None
        found = compute(table)
        if among == "non-iterative":
            found = {k: v for k, v in found.items() if not MODELS[k].iterative}
        order = sorted(found, key=lambda name: found[name])
        evidence = ", ".join(f"{name} {found[name]:.2f}" for name in order[:3])
        return order[0] == model, evidence

    return check


def _differ(table: Table) -> tuple[bool, str] | None:
    if len(table) < 3 or len(next(iter(table.values()))) < 2:
        return None
    p_value = metrics.friedman(table).p_value
    return p_value < paper.FRIEDMAN_P_BELOW, f"Friedman p = {p_value:.4f}"


FINDINGS = (
    Finding(
        "Neighbours alone (BL_NEIGH) beat the node alone (BL_NODE) on the datasets the "
        "text names: " + ", ".join(paper.NEIGHBOURS_HELP),
        _neighbours_help,
    ),
    Finding(
        "Where BL_NEIGH beats BL_NODE, the best collective model beats both",
        _collective_help,
    ),
    Finding("The models do not all perform alike (Friedman, p < 0.05)", _differ),
    *(
        Finding(
            f"{c.model.upper()} is better than {c.other.upper()} on most datasets",
            _better(c),
        )
        for c in paper.COMPARISONS
    ),
    Finding(
        "NIP-MEAN has the lowest shortfall of the non-iterative models",
        _least("shortfall", "nip-mean", "non-iterative"),
    ),
    Finding(
        "I-NIP-MEAN has the lowest shortfall of all", _least("shortfall", "i-nip-mean")
    ),
    Finding("I-NIP-MEAN has the best average rank", _least("rank", "i-nip-mean")),
)

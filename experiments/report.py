"""Reports: report.md beside its pictures, report.html with the pictures in it."""

import html
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from experiments import drawing, folders, markup, paper, tables
from experiments.cells import Record
from experiments.explanations import EXPLANATIONS
from hopf_jax.kernels import MODELS

Pictures = dict[str, tuple[Figure, str]]  # file name: figure and what it shows


def write(
    folder: pathlib.Path,
    table: Mapping[str, Any],
    records: Mapping[str, Sequence[Record]],
) -> None:
    """The report of one dataset, from its table.json and the records behind it."""
    name, models = table["dataset"], table["models"]
    body = [f"# {name}: ours beside the paper's", "", *_about(table), ""]
    if not models:
        body += ["No model has finished on all folds.", ""]
    else:
        body += [tables.markdown(models), "", *_notes(table), ""]
    body += _shortcomings(name, models, records)
    body += _hops_tried(models)
    if table["failures"]:
        body += ["## Failed", "", *(f"- {said}" for said in table["failures"]), ""]
    pictures = _pictures(name, models, records) if models else {}
    _write_both(folder, f"{name}: HOPF reproduced", body, pictures, table)


def _about(table: Mapping[str, Any]) -> list[str]:
    name = table["dataset"]
    folds = ", ".join(map(str, table["folds"]))
    lines = [
        f"Micro-F1 in percent on test nodes, mean ± standard deviation of folds "
        f"{folds}; seed {table['seed']}. The paper prints no deviations. The iteration "
        "reported, and the weights, were chosen on validation nodes.",
    ]
    version = paper.VERSIONS.get(name)
    if version and name not in paper.COMPARABLE:
        lines += [
            "",
            f"**Not the paper's {version}**: this version of it has other labels or "
            "other edges, so no figure of the paper stands beside ours.",
        ]
    return lines


def _notes(table: Mapping[str, Any]) -> list[str]:
    return [
        f"Goal: the paper's less {tables.TOLERANCE} points, or what the authors' own "
        "program gives where that is lower. `train` is micro-F1 on the training nodes: "
        "a model that cannot fit them shows there. Epochs and seconds (compilation "
        "included) are a fold's mean. In all "
        f"{table['total_seconds']} seconds of computing; peak memory of a process "
        f"{table['peak_mb'] / 1024:.2f} GB.",
    ]


def _shortcomings(
    dataset: str,
    models: Mapping[str, Mapping[str, Any]],
    records: Mapping[str, Sequence[Record]],
) -> list[str]:
    """What the records say of each cell below its goal, and why, where it is known."""
    lines = []
    for model, entry in models.items():
        said = tables.verdict(entry)
        if "short" not in said:
            continue
        facts = [
            f"{said} of {tables.goal(entry):.1f}",
            f"folds {', '.join(f'{v:.1f}' for v in entry['micro_f1']['folds'])}",
            f"training micro-F1 {entry['train_micro_f1']['mean']:.1f}",
            f"validation {entry['validation_micro_f1']['mean']:.1f}",
        ]
        if MODELS[model].iterative:
            best = max(entry["iterations_micro_f1"])
            facts.append(f"best iteration's mean {best:.1f}")
        why = EXPLANATIONS.get((dataset, model), "Not explained yet.")
        lines.append(f"- **{model}**: {'; '.join(facts)}. {why}")
    return ["## Below the goal", "", *lines, ""] if lines else []


def _hops_tried(models: Mapping[str, Mapping[str, Any]]) -> list[str]:
    tried = {m: e["hops_tried"] for m, e in models.items() if "hops_tried" in e}
    if not tried:
        return []
    hops = sorted({int(h) for each in tried.values() for h in each})
    lines = [
        "## Hops, chosen by validation micro + macro F1",
        "",
        "Validation micro-F1 → test micro-F1; the chosen number in bold.",
        "",
        "| model | " + " | ".join(f"{h} hops" for h in hops) + " |",
        "|---|" + "---:|" * len(hops),
    ]
    for model, each in tried.items():
        shown = []
        for h in hops:
            if str(h) not in each:
                shown.append("")
                continue
            entry = each[str(h)]
            said = f"{entry['validation']['micro_f1']:.2f} → {entry['mean']:.2f}"
            shown.append(f"**{said}**" if h == models[model]["hops"] else said)
        lines.append(f"| {model} | " + " | ".join(shown) + " |")
    return [*lines, ""]


def _pictures(
    dataset: str,
    models: Mapping[str, Mapping[str, Any]],
    records: Mapping[str, Sequence[Record]],
) -> Pictures:
    pictures: Pictures = {
        "micro_f1.png": (
            drawing.bars(models, f"{dataset}: micro-F1"),
            "micro-F1 of every model beside the paper's",
        ),
        "macro_f1.png": (
            drawing.bars(models, f"{dataset}: macro-F1", "macro_f1"),
            "macro-F1 of every model",
        ),
    }
    several = {
        model: entry["iterations_micro_f1"]
        for model, entry in models.items()
        if len(entry["iterations_micro_f1"]) > 1
    }
    if several:
        programs = paper.AUTHORS_PROGRAM_ITERATIONS.get(dataset, {})
        references = {
            f"{m} (authors' program)": v for m, v in programs.items() if m in several
        }
        pictures["iterations.png"] = (
            drawing.iterations(
                several, f"{dataset}: F1 by iteration", references=references
            ),
            "micro-F1 by iteration",
        )
    first = {model: records[model][0]["losses"] for model in models}
    pictures["losses.png"] = (
        drawing.losses(first, f"{dataset}: losses of the first fold"),
        "losses by epoch, all iterations one after another",
    )
    return pictures


def write_aggregate(folder: pathlib.Path, summary: Mapping[str, Any]) -> None:
    """The report over several datasets."""
    body = ["# All datasets: ours beside the paper's", ""]
    ours, theirs = summary["ours"], summary["paper"]
    pictures: Pictures = {}
    if ours is None:
        body += ["No model of Table 3 has figures on every dataset.", ""]
    else:
        body += _aggregate_table(summary)
        body += _tests(ours, theirs)
        body += _findings(summary["findings"])
        for name, found, whose in (
            ("critical_difference", ours, "ours"),
            ("critical_difference_paper", theirs, "the paper's"),
        ):
            if found is None or "critical_difference" not in found:
                continue  # A single model has nothing to differ from.
            pictures[f"{name}.png"] = (
                drawing.critical_differences(
                    found["rank"],
                    found["critical_difference"],
                    f"Average ranks, {whose}, on {len(found['datasets'])} datasets",
                ),
                f"critical-difference diagram, {whose}",
            )
    _write_both(folder, "HOPF reproduced: all datasets", body, pictures, summary)


def _aggregate_table(summary: Mapping[str, Any]) -> list[str]:
    ours, theirs, names = summary["ours"], summary["paper"], summary["datasets"]
    lines = [
        "Micro-F1 in percent, ours (paper's). Aggregates are over these datasets and "
        "the models of Table 3, the paper's recomputed on the same.",
        "",
        "| model | "
        + " | ".join(names)
        + " | shortfall (paper) | rank (paper) | wins (paper) |",
        "|---|" + "---:|" * (len(names) + 3),
    ]
    for model, row in summary["models"].items():
        shown = []
        for name in names:
            entry = row[name]
            said = "-" if entry is None else f"{entry['micro_f1']['mean']:.2f}"
            if entry is not None and entry["paper"] is not None:
                said += f" ({entry['paper']:.2f})"
            shown.append(said)
        for measure, form in (("shortfall", ".1f"), ("rank", ".2f"), ("wins", "d")):
            said = "-"
            if model in ours[measure]:
                said = format(ours[measure][model], form)
                if theirs is not None:
                    said += f" ({format(theirs[measure][model], form)})"
            shown.append(said)
        lines.append(f"| {model} | " + " | ".join(shown) + " |")
    return [*lines, ""]


def _tests(ours: Mapping[str, Any], theirs: Mapping[str, Any] | None) -> list[str]:
    lines = ["## Tests", ""]
    for who, found in (("Ours", ours), ("The paper's figures", theirs)):
        if found and "friedman" in found:
            lines.append(
                f"- {who}: Friedman chi² {found['friedman']['statistic']:.1f}, p = "
                f"{found['friedman']['p']:.2g}; critical difference of ranks "
                f"{found['critical_difference']:.2f} (Nemenyi, 0.05)."
            )
    lines += [
        "",
        "| pair | ours: better on | Wilcoxon p | paper, same datasets | p | paper, 11 "
        "datasets | p |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for c in paper.COMPARISONS:
        shown = []
        for found in (ours, theirs):
            pairs = {
                (w["model"], w["other"]): w for w in (found or {}).get("wilcoxon", [])
            }
            w = pairs.get((c.model, c.other))
            shown += (
                ["-", "-"]
                if w is None
                else [f"{w['better']} of {w['datasets']}", f"{w['p']:.3f}"]
            )
        shown += [f"{c.wins} of 11", f"{c.p_difference:.3f}"]
        lines.append(f"| {c.model} > {c.other} | " + " | ".join(shown) + " |")
    return [
        *lines,
        "",
        "p is exact and one-sided, of the differences in F1. With five datasets it "
        "cannot be below 0.031.",
        "",
    ]


def _findings(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "## The paper's findings, checked",
        "",
        "| finding | ours | evidence | paper, same datasets | paper, 11 datasets |",
        "|---|---|---|---|---|",
    ]

    def told(found: Mapping[str, Any] | None) -> str:
        return "-" if found is None else "holds" if found["holds"] else "does not hold"

    for finding in findings:
        evidence = finding["ours"]["evidence"] if finding["ours"] else ""
        lines.append(
            f"| {finding['statement']} | {told(finding['ours'])} | {evidence} | "
            f"{told(finding['paper'])} | {told(finding['paper_all'])} |"
        )
    return [*lines, ""]


def _write_both(
    folder: pathlib.Path,
    title: str,
    body: Sequence[str],
    pictures: Pictures,
    provenance: Mapping[str, Any],
) -> None:
    versions = ", ".join(f"{k} {v}" for k, v in provenance["versions"].items())
    source = [
        "## Where these figures come from",
        "",
        f"- command: `{provenance['command']}`",
        f"- commit: {provenance['commit']}",
        f"- versions: {versions}",
        f"- machine: {provenance['machine']['platform']}, "
        f"{provenance['machine']['cpus']} CPUs",
        "",
    ]
    links, images = [], []
    for name, (figure, description) in pictures.items():
        drawing.save(figure, folder / name)
        links += [f"![{description}]({name})", ""]
        images.append(drawing.inline(figure, html.escape(description)))
    folders.write_text(folder / "report.md", "\n".join([*body, *links, *source]))
    main = markup.to_html([*body, "", "@pictures", "", *source])
    main = main.replace("<p>@pictures</p>", "\n".join(images))
    folders.write_text(folder / "report.html", markup.page(title, main))

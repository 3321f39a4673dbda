"""Table 2: load datasets, and print their counts beside the paper's."""

import argparse
import sys
import time
from collections.abc import Sequence

from hopf_jax import datasets

HEADER = (
    *("dataset", "task", "nodes", "entries", "edges", "loops", "features", "labels"),
    *("train/val/test", "split", "seconds", "paper's |E|", "against Table 2"),
)


def describe(name: str) -> tuple[list[str], bool]:
    """Return a row of the table, and whether its counts are the expected ones."""
    start = time.perf_counter()
    graph = datasets.load_dataset(name)
    seconds = f"{time.perf_counter() - start:.2f}"
    task = "multi-label" if graph.multilabel else "multi-class"
    sets = f"{graph.train.sum()}/{graph.validation.sum()}/{graph.test.sum()}"
    if name in datasets.SYNTHETIC:
        counts = [graph.num_nodes, graph.num_edges, graph.num_edges // 2, 0]
        counts += [graph.num_features, graph.num_labels]
        tail = [sets, "made", seconds, "-", "synthetic"]
        return [name, task, *map(str, counts), *tail], True
    dataset = datasets.DATASETS[name]
    contents = datasets.load_contents(dataset)
    found, ways = datasets.count(contents), datasets.count_edges(contents)
    counts = [found.nodes, ways["entries"], ways["edges"]]
    counts += [ways["edges"] - ways["edges but loops"], found.features, found.labels]
    authors = any(key != "inductive" for key in contents.splits)
    expected = not datasets.check_counts(dataset, contents)
    row = [name, task, *map(str, counts), sets]
    row += ["authors'" if authors else "drawn", seconds]
    return [*row, *_against_paper(dataset, found, ways, expected)], expected


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a dataset is missing or its counts differ."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.data",
        description="Load datasets, fetching what is missing, and print their counts.",
    )
    about = "names, or lists of names with commas (default: all on this machine)"
    parser.add_argument("names", nargs="*", help=about)
    given = parser.parse_args(arguments).names
    names = [name for each in given for name in each.split(",") if name]
    absent = []
    if not names:
        rows = datasets.DATASETS.values()
        names = [row.name for row in rows if datasets.find(row)]
        absent = [row.name for row in rows if row.name not in names]
    table: list[Sequence[str]] = [HEADER]
    failed, notes = False, []
    for name in names:
        print(f"Loading {name} ...", file=sys.stderr, flush=True)
        try:
            row, expected = describe(name)
        except (datasets.DatasetError, ValueError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
            continue
        table.append(row)
        failed |= not expected
        if name in datasets.DATASETS and datasets.DATASETS[name].difference:
            notes.append(f"{name}: {datasets.DATASETS[name].difference}.")
    if len(table) > 1:
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for name, *cells in table:
            aligned = map(str.rjust, cells, widths[1:])
            print("  ".join([name.ljust(widths[0]), *aligned]).rstrip())
        print("\n".join(["", *notes]) if notes else "")
    if absent:
        print(f"Not on this machine: {', '.join(absent)}. Name one to fetch it, or to")
        print("learn where to get its files: make data DATASET=reddit")
    return int(failed)


def _against_paper(
    dataset: datasets.Dataset,
    found: datasets.Counts,
    ways: dict[str, int],
    expected: bool,
) -> tuple[str, str]:
    paper = dataset.published
    if paper is None:
        return "-", "not in the paper"
    counted = next((way for way, n in ways.items() if n == paper.arcs), None)
    same = all(
        getattr(found, field) == getattr(paper, field)
        for field in ("nodes", "features", "labels")
    )
    if same and counted is not None:
        verdict = f"agrees; |E| counts {counted}"
    elif expected:
        verdict = "differs, as noted"
    else:
        verdict = "DIFFERS"
    return str(paper.arcs), verdict


if __name__ == "__main__":
    sys.exit(main())

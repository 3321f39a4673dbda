"""The command line of `hopf`: its commands, their options, and their help."""

import argparse
import dataclasses
import pathlib
import re
import typing
from typing import Any, NoReturn

from hopf_jax.baselines import BASELINES
from hopf_jax.config import Config, Execution
from hopf_jax.kernels import FIRST_MODELS, MODELS, TUNED_MODELS
from hopf_jax.parts import METHODS

# Of the labelled nodes, where `hopf fit` is asked to draw a split.
DRAWN_SHARES = {"train": 0.8, "validation": 0.2, "test": 0.0}
_TABLES = """\
tables:
  A table is a .csv, .tsv (either also .gz), .parquet or .npz file. Its first line names
  the columns (without such a line, say --no-header). Nodes may have any name or id.
    EDGES     two columns, from and to; a third called weight if edges have weights
    FEATURES  the node, then one column of numbers per feature; it lists every node
    LABELS    the node, then its class, or one column of 0 and 1 per label if nodes have
              several; leave out nodes without a label, or leave their cells empty. A
              column called set says train, validation or test.
"""
_CODES = (
    "exit codes: 0 success, 2 wrong usage or bad input (one line on stderr explains), "
    "130 interrupted."
)
_EPILOG = f"""\
example:
  hopf fit edges.csv features.csv --labels labels.csv --out model/
  hopf predict model/ > predictions.csv

`hopf COMMAND --help` describes a command. Results go to stdout, progress to stderr.
{_CODES}
"""


class _Parser(argparse.ArgumentParser):
    def __init__(self, **keywords: Any) -> None:
        raw = argparse.RawDescriptionHelpFormatter
        super().__init__(formatter_class=raw, allow_abbrev=False, **keywords)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}. See {self.prog} --help.\n")


def make_parser(version: str) -> argparse.ArgumentParser:
    """Return the parser of `hopf`; the attribute `command` names the command."""
    parser = _Parser(
        prog="hopf",
        description="Classify the nodes of a graph by their attributes, their "
        "neighbours and their neighbours' labels.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"hopf {version}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_Parser
    )
    _add_fit(commands)
    _add_predict(commands)
    _add_compare(commands)
    _add_tune(commands)
    _add_score(commands)
    _add_serve(commands)
    _add_data(commands)
    _add_partition(commands)
    _add_command(
        commands,
        "reproduce",
        "reproduce the paper's table for a dataset (in a clone of the repository)",
        "Passes its options to experiments.reproduce: --dataset pubmed, --models a,b,\n"
        "--folds 1,2, --workdir results, ... Experiments are not installed with the\n"
        "package: run it in the folder of a clone.\n",
    )
    return parser


def settings_of(options: argparse.Namespace, kind: type) -> Any:
    """Return a `Config` or an `Execution` of the options given, defaults otherwise."""
    names = [field.name for field in dataclasses.fields(kind)]
    names = [name for name in names if name not in _NO_OPTIONS]
    given = {name: getattr(options, _OPTIONS.get(name, name)) for name in names}
    return kind(**{name: value for name, value in given.items() if value is not None})


def _add_command(commands: Any, name: str, summary: str, epilog: str) -> Any:
    """Add a command and return its parser."""
    description = summary[0].upper() + summary[1:] + "."
    return commands.add_parser(
        name, help=summary, description=description, epilog=epilog + _CODES
    )


def _add_fit(commands: Any) -> None:
    summary = "train a model on tables, and write it to a folder"
    epilog = _TABLES + "\nPrints the scores of each set, tab-separated.\n"
    parser = _add_command(commands, "fit", summary, epilog)
    _add_tables(parser)
    add = parser.add_argument
    add("--out", type=pathlib.Path, required=True, help="folder to write the model to")
    names = f"one of {', '.join(MODELS)} (default: compare several, keep the best)"
    add("--model", metavar="NAME", help=names)
    split = "table with the columns node and set (default: cross-validate)"
    add("--split", metavar="FILE", help=split)
    for name, share in DRAWN_SHARES.items():
        text = (
            f"draw a split at random, with this share of the labelled nodes for {name} "
            f"(default: {share} if a split is drawn)"
        )
        add(f"--{name}", type=float, metavar="SHARE", help=text)
    _add_settings(parser)


def _add_predict(commands: Any) -> None:
    parser = _add_command(
        commands,
        "predict",
        "predict the labels of the nodes that were fitted, or of a new graph",
        "Writes CSV: node, label, probability; or node, labels (separated by ;) if\n"
        "nodes have several. Without tables it predicts the nodes that were fitted.\n\n"
        + _TABLES
        + "  Labels of a new graph are used as known: all of them, or those of the\n"
        "  set train if there are sets.\n\n",
    )
    add = parser.add_argument
    add("model", type=pathlib.Path, help="folder that hopf fit wrote")
    add("edges", nargs="?", metavar="EDGES", help="edges of a new graph")
    add("features", nargs="?", metavar="FEATURES", help="its nodes")
    add("--labels", metavar="LABELS", help="known labels of its nodes")
    add("--no-header", action="store_true", help=_NO_HEADER)
    add("--out", type=pathlib.Path, help="CSV file to write (default: stdout)")
    probabilities = "add one column with the probability of each label"
    add("--probabilities", action="store_true", help=probabilities)
    chunks = (
        "edges per chunk of a new graph; fewer take less memory (default: as fitted)"
    )
    add("--chunk-edges", type=int, metavar="N", help=chunks)


def _add_compare(commands: Any) -> None:
    epilog = _TABLES + "\nPrints a table, or the same as CSV with --csv.\n"
    summary = "compare models on several splits of a graph"
    parser = _add_command(commands, "compare", summary, epilog)
    _add_tables(parser)
    add, default = parser.add_argument, "(default: %(default)s)"
    names = f"some of {', '.join((*MODELS, *BASELINES))} {default}"
    add("--models", default=",".join(FIRST_MODELS), metavar="A,B", help=names)
    add("--folds", type=int, default=5, help=f"number of splits to draw {default}")
    share = "of the labelled nodes, to train and validate on (default: all but test)"
    add("--share", type=float, help=share)
    sets, scores = ("validation", "test"), ("micro_f1", "macro_f1")
    add("--on", choices=sets, default="test", help=f"nodes to score {default}")
    add("--score", choices=scores, default="micro_f1", help=f"what to show {default}")
    add("--csv", action="store_true", help="print CSV")
    _add_settings(parser)


def _add_tune(commands: Any) -> None:
    summary = "search for a model and its settings, and write the best to a folder"
    epilog = _TABLES + "\nPrints the best trials as a table. Needs Optuna.\n"
    parser = _add_command(commands, "tune", summary, epilog)
    _add_tables(parser)
    add, default = parser.add_argument, "(default: %(default)s)"
    add("--out", type=pathlib.Path, required=True, help="folder to write the model to")
    names = f"some of {', '.join(MODELS)} {default}"
    add("--models", default=",".join(TUNED_MODELS), metavar="A,B", help=names)
    add("--split", metavar="FILE", help="table with the columns node and set")
    add("--budget", type=int, default=60, help=f"number of trials {default}")
    add("--timeout", type=float, help="seconds after which no trial is started")
    add("--workers", type=int, help="trials at a time (default: number of cores)")
    workdir = "folder of this search alone; the same command continues it"
    add("--workdir", type=pathlib.Path, help=workdir)
    _add_settings(parser)


def _add_score(commands: Any) -> None:
    parser = _add_command(
        commands,
        "score",
        "predict all nodes of a large graph, from Parquet to Parquet, in batches",
        "Reads EDGES and FEATURES as hopf predict does, but batch by batch: features\n"
        "are never in memory as a whole. Writes the columns node, label, probability\n"
        "and confidence; or node, labels and one column per label, if nodes have\n"
        "several.\n\n",
    )
    add, default = parser.add_argument, "(default: %(default)s)"
    add("model", type=pathlib.Path, help="folder that hopf fit wrote")
    add("edges", type=pathlib.Path, metavar="EDGES", help="edges of the graph")
    add("features", type=pathlib.Path, metavar="FEATURES", help="its nodes")
    add("--labels", type=pathlib.Path, metavar="LABELS", help="known labels of nodes")
    out = "Parquet file to write"
    add("--out", type=pathlib.Path, required=True, metavar="FILE", help=out)
    probabilities = "add one column with the probability of each label"
    add("--probabilities", action="store_true", help=probabilities)
    rows = f"rows of a table that are read or written at once {default}"
    add("--batch-rows", type=int, default=1 << 16, metavar="N", help=rows)
    chunks = "edges per chunk of the prediction (default: as fitted)"
    add("--chunk-edges", type=int, metavar="N", help=chunks)


def _add_serve(commands: Any) -> None:
    parser = _add_command(
        commands,
        "serve",
        "answer predictions and explanations over HTTP, on a graph that changes",
        "Prints its address when it is ready. GET / is a page for people, /docs\n"
        "describes the interface, /health and /metrics are for machines. Whoever can\n"
        "reach it may read and change the graph: it listens on this machine alone\n"
        "unless --host says otherwise. SIGTERM stops it, once it has answered what\n"
        "was asked. Needs hopf-jax[serve].\n\n",
    )
    add, default = parser.add_argument, "(default: %(default)s)"
    model = "folder that hopf fit wrote, or a file that Result.save wrote"
    add("model", type=pathlib.Path, help=model)
    graph = (
        "folder of the graph: one that hopf_jax.write_graph wrote; or with the tables "
        "edges, features and possibly labels, such as edges.csv"
    )
    path = pathlib.Path
    add("--graph", type=path, required=True, metavar="FOLDER", help=graph)
    add("--host", default="127.0.0.1", help=f"address to listen on {default}")
    add("--port", type=int, default=8000, help=f"0 for any free one {default}")
    state = "folder that keeps updates, so that they outlive the process"
    add("--state", type=path, metavar="FOLDER", help=state)
    add("--read-only", action="store_true", help="accept no updates")
    allow = "a name by which clients call the service; may be given several times"
    add("--allow-host", action="append", default=[], metavar="NAME", help=allow)
    body = f"bytes of a request at most {default}"
    add("--max-body", type=int, default=1 << 20, metavar="N", help=body)
    seconds = f"seconds that an answer may take {default}"
    add("--timeout", type=float, default=30.0, metavar="N", help=seconds)
    queue = f"explanations and updates that may wait; others get a 503 {default}"
    add("--queue", type=int, default=64, metavar="N", help=queue)


def _add_data(commands: Any) -> None:
    parser = _add_command(
        commands,
        "data",
        "list the known datasets, download some, or export one as tables",
        "Without a name: lists all datasets and their folders, tab-separated. With\n"
        "names: downloads those that are missing and prints their sizes.\n",
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="a dataset")
    export = "write edges.csv, features.csv and labels.csv (with a column set) there"
    add("--export", type=pathlib.Path, metavar="FOLDER", help=export)
    fold = "number of the split to export (default: 1)"
    add("--fold", type=int, default=1, help=fold)


def _add_partition(commands: Any) -> None:
    summary = "divide a graph into parts, for a job of several processes"
    epilog = (
        "Prints cut, halo and balance. A partitioning that was stopped goes on with\n"
        "the same command. Tables are as for `hopf fit`, but not npz, with names of\n"
        "columns; they may be larger than memory.\n\n"
    )
    parser = _add_command(commands, "partition", summary, epilog)
    add, default = parser.add_argument, "(default: %(default)s)"
    source = (
        "folder of a graph that hopf_jax.write_graph wrote; a folder in the format of "
        "the Open Graph Benchmark; or a table of edges"
    )
    add("graph", type=pathlib.Path, metavar="GRAPH", help=source)
    add("--out", type=pathlib.Path, required=True, help="folder to write")
    add("--nodes", metavar="FILE", help="table of nodes, if GRAPH is one of edges")
    add("--labels", metavar="FILE", help="table of labels, likewise")
    add("--directed", action="store_true", help="edges of tables have a direction")
    kept = "folder for the graph of tables, which is kept (default: OUT-graph)"
    add("--keep", type=pathlib.Path, metavar="FOLDER", help=kept)
    add("--parts", type=int, default=8, help=f"number of parts {default}")
    halo = f"hops of the halo: the model's num_hops, at least {default}"
    add("--hops", type=int, default=2, help=halo)
    methods = f"metis cuts less; streaming needs no graph in memory {default}"
    add("--method", choices=METHODS, default="auto", help=methods)
    kinds, scaled = (
        ("auto", "as-is"),
        f"write features scaled, or as they are {default}",
    )
    add("--features", choices=kinds, default="auto", help=scaled)
    add("--memory", type=_bytes, metavar="SIZE", help="such as 4GB (default: half)")
    add("--seed", type=int, default=0, help="random seed (default: 0)")
    add("--quiet", action="store_true", help="no messages")


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kMGT]?)B?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size like 500MB or 4GB")
    return int(float(found[1]) * 1000 ** " kMGT".index(found[2] or " "))


# Features are a table, and folds the splits of a comparison.
_OPTIONS = {"features": "scaling", "folds": "cross_validation"}
_NO_OPTIONS = ("other_devices",)  # No command resumes a fit.
_NO_HEADER = "the first line of tables does not name the columns"


def _add_tables(parser: Any) -> None:
    add, default = parser.add_argument, "(default: %(default)s)"
    add("edges", metavar="EDGES", help="table of edges")
    add("features", metavar="FEATURES", help="table of nodes")
    add("--labels", metavar="LABELS", required=True, help="table of labels")
    add("--no-header", action="store_true", help=_NO_HEADER)
    directed = "edges have a direction; see --directions"
    add("--directed", action="store_true", help=directed)
    loops = f"edges from a node to itself {default}"
    add("--self-loops", choices=("drop", "keep"), default="drop", help=loops)
    normalize = "scale each row of features to sum to 1, as the paper does"
    add("--normalize", action="store_true", help=normalize)
    kinds = ("auto", "dense", "sparse")
    store = "how to store features; auto: sparse if wide and mostly 0"
    add("--features-as", choices=kinds, default="auto", help=store)
    names = "classes in the order of their ids (default: sorted)"
    add("--label-names", metavar="A,B", help=names)


def _add_settings(parser: Any) -> None:
    """Add a seed, and options for the fields of `Config` and `Execution`."""
    add = parser.add_argument
    add("--seed", type=int, default=0, help="random seed (default: 0)")
    add("--quiet", action="store_true", help="no progress bar and no messages")
    for title, kind in (("settings", Config), ("execution", Execution)):
        add = parser.add_argument_group(title).add_argument
        help_texts, hints = _attributes(kind.__doc__ or ""), typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if field.name in _NO_OPTIONS:
                continue
            text = f"{help_texts[field.name]} (default: {field.default})"
            keywords = _keywords(field.name, hints[field.name])
            option = "--" + _OPTIONS.get(field.name, field.name).replace("_", "-")
            add(option, help=text.replace("%", "%%"), **keywords)


def _keywords(name: str, hint: Any) -> dict[str, Any]:
    """Return what argparse needs for a field of this name and type."""
    if name == "fanouts":
        return {"type": _whole_numbers, "metavar": "A,B"}
    if hint is bool:
        return {"action": argparse.BooleanOptionalAction, "default": None}
    if typing.get_origin(hint) is typing.Literal:
        return {"choices": typing.get_args(hint)}
    return {"type": float if hint is float else int, "metavar": "N"}


def _attributes(doc: str) -> dict[str, str]:
    """Return the descriptions of attributes in a docstring, by name."""
    part = doc.split("Attributes:\n", 1)[1]
    found = re.findall(r"^ {6}(\w+): (.*(?:\n {8}.*)*)", part, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def _whole_numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list like 10,5") from None

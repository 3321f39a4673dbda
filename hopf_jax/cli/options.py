"""What `hopf` understands: its commands, their options, and their help."""

import argparse
import dataclasses
import pathlib
import re
import typing
from typing import Any, NoReturn

from hopf_jax.config import Config, Execution
from hopf_jax.kernels import DEFAULT_MODEL, FIRST_MODELS, MODELS

_TABLES = """\
tables:
  A table is a .csv, .tsv (either also .gz), .parquet or .npz file. Its first line names
  the columns (--no-header if not). Nodes go by whatever name or id they have there.
    EDGES     two columns, from and to; a third called weight if edges have weights
    FEATURES  the node, then a column of numbers a feature; it lists every node
    LABELS    the node, then its class, or a column of 0 and 1 for each of several
              labels; nodes without a label are left out or have empty cells. A column
              called set says train, validation or test.
"""
_CODES = (
    "exit codes: 0 done, 2 wrong usage or bad input (one line on stderr says what), \
130 interrupted."
)
_EPILOG = f"""\
example:
  hopf fit edges.csv features.csv --labels labels.csv --out model/
  hopf predict model/ > predictions.csv

`hopf COMMAND --help` says more of each. Results go to stdout, progress to stderr.
{_CODES}
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}. See {self.prog} --help.\n")


def make_parser(version: str) -> argparse.ArgumentParser:
    """The parser of `hopf`; `command` of what it returns says which was asked for."""
    parser = _Parser(
        prog="hopf",
        description="Classify the nodes of a graph by their attributes, their "
        "neighbours and their neighbours' labels.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"hopf {version}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_Parser
    )
    _add_fit(commands)
    _add_predict(commands)
    _add_compare(commands)
    _add_data(commands)
    _add_reproduce(commands)
    return parser


def config_of(options: argparse.Namespace) -> Config:
    """Return the settings of the algorithm that were given, defaults otherwise."""
    return Config(**_given(options, Config))


def execution_of(options: argparse.Namespace) -> Execution:
    """Return the settings of execution that were given, defaults otherwise."""
    return Execution(**_given(options, Execution))


def _given(options: argparse.Namespace, kind: type) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(kind)]
    return {n: getattr(options, n) for n in names if getattr(options, n) is not None}


def _command(commands: Any, name: str, says: str, epilog: str) -> Any:
    return commands.add_parser(
        name,
        help=says,
        description=says[0].upper() + says[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _add_fit(commands: Any) -> None:
    fit = _command(
        commands,
        "fit",
        "learn a model from tables, and write it to a folder",
        _TABLES + "\nPrints the scores of each set, tab-separated.\n" + _CODES,
    )
    _add_tables(fit)
    fit.add_argument(
        "--out", type=pathlib.Path, required=True, help="folder of the model"
    )
    fit.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        metavar="NAME",
        help=f"one of {', '.join(MODELS)} (default: %(default)s)",
    )
    fit.add_argument("--split", metavar="FILE", help="table: node, set")
    fit.add_argument(
        "--fold",
        type=int,
        default=1,
        help="which of the splits to draw where none is given (default: 1)",
    )
    _add_drawing(fit)
    _add_settings(fit)


def _add_predict(commands: Any) -> None:
    predict = _command(
        commands,
        "predict",
        "label the nodes that were fitted, or those of a new graph",
        "Writes CSV: node, label, probability; or node, labels (with ; between) where\n"
        "nodes have several. Without tables it is of the nodes that were fitted.\n\n"
        + _TABLES
        + "  Labels of a new graph lend to the prediction: all of them, or those of\n"
        "  the set train if there are sets.\n\n" + _CODES,
    )
    predict.add_argument("model", type=pathlib.Path, help="folder that hopf fit wrote")
    predict.add_argument("edges", nargs="?", metavar="EDGES", help="of a new graph")
    predict.add_argument("features", nargs="?", metavar="FEATURES", help="its nodes")
    predict.add_argument("--labels", metavar="LABELS", help="known labels of its nodes")
    predict.add_argument("--no-header", action="store_true", help=_NO_HEADER)
    predict.add_argument(
        "--out", type=pathlib.Path, help="CSV file to write (default: stdout)"
    )
    predict.add_argument(
        "--probabilities",
        action="store_true",
        help="a further column for the probability of each label",
    )


def _add_compare(commands: Any) -> None:
    compare = _command(
        commands,
        "compare",
        "compare models on folds of a graph",
        _TABLES + "\nPrints a table, or with --csv the same as CSV.\n" + _CODES,
    )
    _add_tables(compare)
    compare.add_argument(
        "--models",
        default=",".join(FIRST_MODELS),
        metavar="A,B",
        help=f"of {', '.join(MODELS)} (default: %(default)s)",
    )
    compare.add_argument(
        "--folds", type=int, default=5, help="splits to draw (default: 5)"
    )
    compare.add_argument(
        "--on",
        choices=("validation", "test"),
        default="test",
        help="nodes to score (default: test)",
    )
    compare.add_argument(
        "--metric",
        choices=("micro_f1", "macro_f1"),
        default="micro_f1",
        help="(default: micro_f1)",
    )
    compare.add_argument("--csv", action="store_true", help="print CSV")
    _add_drawing(compare)
    _add_settings(compare)


def _add_data(commands: Any) -> None:
    data = _command(
        commands,
        "data",
        "list the known datasets, fetch some, or export one as tables",
        "Without a name: every dataset and the folder it is in, tab-separated. With\n"
        "names: fetches those that are missing and prints their counts.\n" + _CODES,
    )
    data.add_argument("names", nargs="*", metavar="NAME", help="a dataset")
    data.add_argument(
        "--export",
        type=pathlib.Path,
        metavar="FOLDER",
        help="write edges.csv, features.csv and labels.csv (with a column set) of one "
        "dataset",
    )
    data.add_argument(
        "--fold", type=int, default=1, help="whose sets to export (default: 1)"
    )


def _add_reproduce(commands: Any) -> None:
    _command(
        commands,
        "reproduce",
        "reproduce the paper's table for a dataset (in a clone of the repository)",
        "Passes its options to experiments.reproduce: --dataset pubmed, --models a,b,\n"
        "--folds 1,2, --workdir results, ... Experiments are not installed with the\n"
        "package: run it in the folder of a clone.\n" + _CODES,
    )


_NO_HEADER = "tables have no names of columns in their first line"


def _add_tables(parser: Any) -> None:
    parser.add_argument("edges", metavar="EDGES", help="table of edges")
    parser.add_argument("features", metavar="FEATURES", help="table of nodes")
    parser.add_argument("--labels", metavar="LABELS", required=True, help="table")
    parser.add_argument("--no-header", action="store_true", help=_NO_HEADER)
    parser.add_argument(
        "--directed",
        action="store_true",
        help="a node reads only from the nodes with an edge to it",
    )
    parser.add_argument(
        "--self-loops",
        choices=("drop", "keep"),
        default="drop",
        help="edges from a node to itself (default: drop)",
    )
    parser.add_argument(
        "--normalize",
        action="store_true",
        help="scale each row of features to sum to 1, as the paper does",
    )
    parser.add_argument(
        "--features-as",
        choices=("auto", "dense", "sparse"),
        default="auto",
        help="how to store features; auto: sparse if wide and mostly 0",
    )
    parser.add_argument(
        "--label-names",
        metavar="A,B",
        help="classes in the order of their ids (default: sorted)",
    )


def _add_drawing(parser: Any) -> None:
    parser.add_argument(
        "--percent",
        type=float,
        help="of all nodes, to train and validate on, where splits are drawn "
        "(default: 10)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of all that is drawn (default: 0)"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="no progress bar, no remarks"
    )


def _add_settings(parser: Any) -> None:
    """Add one option per field of `Config` and `Execution`, with help from them."""
    _add_fields(parser.add_argument_group("settings"), Config)
    _add_fields(parser.add_argument_group("execution"), Execution)


def _add_fields(group: Any, kind: type) -> None:
    said = _attributes(kind.__doc__ or "")
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        name, kind = "--" + field.name.replace("_", "-"), hints[field.name]
        says = f"{said[field.name]} (default: {field.default})".replace("%", "%%")
        if kind is bool:
            action = argparse.BooleanOptionalAction
            group.add_argument(name, action=action, default=None, help=says)
        elif typing.get_origin(kind) is typing.Literal:
            group.add_argument(name, choices=typing.get_args(kind), help=says)
        elif field.name == "devices":
            group.add_argument(name, type=int, metavar="N", help=says)
        elif field.name == "fanouts":
            group.add_argument(name, type=_whole_numbers, metavar="A,B", help=says)
        else:
            group.add_argument(name, type=kind, metavar="N", help=says)


def _attributes(doc: str) -> dict[str, str]:
    """{field: what the docstring says of it}."""
    part = doc.split("Attributes:\n", 1)[1]
    found = re.findall(r"^ {6}(\w+): (.*(?:\n {8}.*)*)", part, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def _whole_numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list like 10,5") from None

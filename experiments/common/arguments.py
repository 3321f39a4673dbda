"""Command-line options that experiments share."""

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

from experiments import paper
from experiments.common import output
from hopf_jax import Config
from hopf_jax.datasets import DATASETS, SYNTHETIC, find
from hopf_jax.kernels import MODELS

FETCH = "fetch some with `make data DATASET=cora,citeseer,pubmed`"


class Parser(argparse.ArgumentParser):
    """A parser whose options include `invocation`: the module and its arguments.

    Args:
      doc: The docstring of the module, which describes it.
      module: The name of the module, for `python -m`.
    """

    def __init__(self, doc: str | None, module: str):
        super().__init__(
            prog=f"python -m {module}",
            description=doc,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self._module = module

    def option(
        self,
        name: str,
        read: Callable[[str], Any],
        default: Any = None,
        help: str = "",
        **more: Any,
    ) -> None:
        """Add --name, which a function reads; the help mentions a default."""
        if default is not None:
            several = isinstance(default, tuple)
            text = ",".join(map(str, default)) if several else str(default)
            help = f"{help} (default: {text})".strip()
        self.add_argument(f"--{name}", type=read, default=default, help=help, **more)

    def flag(self, name: str, help: str) -> None:
        """Add --name, which takes no value."""
        self.add_argument(f"--{name}", action="store_true", help=help)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> argparse.Namespace:
        """Parse the arguments, or those of the process."""
        given = list(sys.argv[1:] if args is None else args)
        options = super().parse_args(given, namespace)
        options.invocation = [self._module, *given]
        output.commit()  # Before the run, whose results will name it.
        return options


def parser(doc: str | None, module: str, *, default_workdir: bool = True) -> Parser:
    """Return a parser with --workdir, by default results/ or required."""
    made = Parser(doc, module)
    default = output.RESULTS if default_workdir else None
    required = not default_workdir
    about = "folder for results, local or gs://"
    made.option("workdir", workdir, default, about, required=required)
    return made


def add_run_options(
    made: Parser,
    models: Sequence[str] = (*paper.TRANSDUCTIVE, "wl"),
    *,
    several_folds: bool = True,
    max_epochs: int | None = None,
) -> None:
    """Add the options of experiments that train models, on folds or on one split.

    Args:
      made: The parser.
      models: The models to train by default.
      several_folds: Whether there are folds to choose from.
      max_epochs: Default limit of epochs per iteration; None for the paper's.
    """
    made.option("models", model_names, tuple(models), "comma-separated")
    if several_folds:
        add_folds(made)
    add_seed(made)
    made.flag("fresh", "discard saved cells and start over")
    about = "number of processes (default: 2 on a CPU, else 1)"
    made.option("workers", positive, help=about)
    add_max_epochs(made, max_epochs)


def add_folds(made: Parser) -> None:
    """Add --folds, all of them by default."""
    every = tuple(range(1, paper.NUM_FOLDS + 1))
    made.option("folds", folds, every, "comma-separated")


def add_seed(made: Parser, about: str = "seed of training") -> None:
    """Add --seed."""
    made.option("seed", seed, 0, about)


def add_max_epochs(made: Parser, default: int | None = None) -> None:
    """Add --max-epochs, for `limit_epochs`."""
    about = "maximum number of epochs per iteration, for a quick look"
    made.option("max-epochs", positive, default, about)


def add_counts(made: Parser, **defaults: int) -> None:
    """Add options that take a whole number above 0."""
    for name, default in defaults.items():
        made.option(name, positive, default)


def limit_epochs(config: Config, max_epochs: int | None) -> Config:
    """Return the settings with this limit of epochs per iteration, if it is given."""
    if max_epochs is None:
        return config
    return dataclasses.replace(config, max_epochs=max_epochs)


def workdir(text: str) -> pathlib.Path:
    """Return a local folder, or one of object storage with the same methods."""
    if "://" not in text:
        return pathlib.Path(text)
    if not text.startswith("gs://"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a local path nor gs://")
    from etils import epath  # Lazy: slow to import, and rarely needed.

    return cast(pathlib.Path, epath.Path(text))


def model_names(text: str) -> tuple[str, ...]:
    """Return comma-separated names of models, without repetitions."""
    names = tuple(dict.fromkeys(_split(text, "model")))
    for name in names:
        if name not in MODELS:
            raise argparse.ArgumentTypeError(
                f"no model is called {name!r}; known: {', '.join(MODELS)}"
            )
    return names


def dataset_names(text: str) -> tuple[str, ...]:
    """Return names of datasets; "all" is the paper's that are on this machine."""
    if text == "all":
        found = available()
        if not found:
            raise argparse.ArgumentTypeError(
                f"none of the paper's datasets is on this machine; {FETCH}"
            )
        return found
    names = tuple(dict.fromkeys(_split(text, "dataset")))
    for name in names:
        if name not in DATASETS and name not in SYNTHETIC:
            raise argparse.ArgumentTypeError(
                f"no dataset is called {name!r}; known: {', '.join(DATASETS)}; "
                f"synthetic: {', '.join(SYNTHETIC)}; or all"
            )
    return names


def available() -> tuple[str, ...]:
    """Return the paper's datasets whose files are on this machine."""
    return tuple(name for name in paper.DATASETS if find(DATASETS[name]) is not None)


def folds(text: str) -> tuple[int, ...]:
    """Return comma-separated folds, ascending."""
    try:
        chosen = tuple(sorted({int(part) for part in _split(text, "fold")}))
    except ValueError:
        chosen = (0,)
    if not all(1 <= number <= paper.NUM_FOLDS for number in chosen):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of folds; they are 1 to {paper.NUM_FOLDS}"
        )
    return chosen


def seed(text: str) -> int:
    """Return a seed that `fit` accepts."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number from 0, below 2**32"
        )
    return int(text)


def positive(text: str) -> int:
    """Return a whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def numbers(text: str) -> tuple[int, ...]:
    """Return comma-separated whole numbers above 0, ascending."""
    return tuple(sorted({positive(part) for part in _split(text, "number")}))


def one(read: Callable[[str], Sequence[Any]]) -> Callable[[str], Any]:
    """Return a function that reads a list with a single element."""

    def read_one(text: str) -> Any:
        found = read(text)
        if len(found) != 1:
            raise argparse.ArgumentTypeError(f"{text!r} are {len(found)}; give one")
        return found[0]

    return read_one


def _split(text: str, what: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty {what}")
    return parts

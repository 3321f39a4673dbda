"""Command-line options that experiments share."""

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Sequence
from typing import Any, TypeVar, cast

from experiments import paper
from experiments.common import output, score_table
from hopf_jax import Config
from hopf_jax.datasets import DATASETS, SYNTHETIC, find
from hopf_jax.kernels import MODELS

T = TypeVar("T")

FETCH = "fetch some with `make data DATASET=cora,citeseer,pubmed`"


class _Parser(argparse.ArgumentParser):
    """A parser whose options include `invocation`: the module and its arguments."""

    module = ""

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> argparse.Namespace:
        given = list(sys.argv[1:] if args is None else args)
        options = super().parse_args(given, namespace)
        options.invocation = [self.module, *given]
        return options


def parser(
    doc: str | None, module: str, *, default_workdir: bool = True
) -> argparse.ArgumentParser:
    """Return a parser with --workdir, described by the docstring of a module.

    Args:
      doc: The docstring.
      module: The name of the module, for `python -m`.
      default_workdir: Whether --workdir is results/ if not given; otherwise it is
        required.
    """
    made = _Parser(
        prog=f"python -m {module}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.module = module
    made.add_argument(
        "--workdir",
        type=workdir,
        default=output.RESULTS if default_workdir else None,
        required=not default_workdir,
        help="folder for results, local or gs://"
        + (" (default: results)" if default_workdir else ""),
    )
    return made


def add_run_options(
    made: argparse.ArgumentParser,
    models: Sequence[str] = score_table.MODELS,
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
    made.add_argument(
        "--models",
        type=model_names,
        default=tuple(models),
        help=f"comma-separated (default: {','.join(models)})",
    )
    if several_folds:
        add_folds(made)
    add_seed(made)
    made.add_argument(
        "--fresh", action="store_true", help="discard saved cells and start over"
    )
    made.add_argument(
        "--workers",
        type=positive,
        help="number of processes (default: 2 on a CPU, else 1)",
    )
    add_max_epochs(made, max_epochs)


def add_folds(made: argparse.ArgumentParser) -> None:
    """Add --folds, all of them by default."""
    made.add_argument(
        "--folds",
        type=folds,
        default=tuple(range(1, paper.NUM_FOLDS + 1)),
        help="comma-separated (default: 1,2,3,4,5)",
    )


def add_seed(made: argparse.ArgumentParser, what: str = "seed of training") -> None:
    """Add --seed."""
    made.add_argument("--seed", type=seed, default=0, help=f"{what} (default: 0)")


def add_max_epochs(made: argparse.ArgumentParser, default: int | None = None) -> None:
    """Add --max-epochs, for `limit_epochs`."""
    note = "; for a quick look, not for published figures"
    if default is not None:
        note = f" (default: {default}; the paper's: {Config.max_epochs})"
    made.add_argument(
        "--max-epochs",
        type=positive,
        default=default,
        help=f"maximum number of epochs per iteration{note}",
    )


def add_counts(made: argparse.ArgumentParser, **defaults: int) -> None:
    """Add options that take a whole number above 0."""
    for name, default in defaults.items():
        made.add_argument(
            f"--{name}", type=positive, default=default, help="(default: %(default)s)"
        )


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


def model_name(text: str) -> str:
    """Return the name of one model."""
    return _single(model_names(text), "model")


def dataset_name(text: str) -> str:
    """Return the name of one dataset."""
    return _single(dataset_names(text), "dataset")


def fold(text: str) -> int:
    """Return one fold."""
    return _single(folds(text), "fold")


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


def _single(found: Sequence[T], what: str) -> T:
    if len(found) != 1:
        raise argparse.ArgumentTypeError(f"{len(found)} are given; give one {what}")
    return found[0]


def _split(text: str, what: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty {what}")
    return parts

"""What the experiments' command lines share."""

import argparse
import dataclasses
import pathlib
from collections.abc import Sequence
from typing import TypeVar, cast

from experiments import folders, paper, tables
from hopf_jax import Config
from hopf_jax.datasets import DATASETS, SYNTHETIC, find
from hopf_jax.kernels import MODELS

T = TypeVar("T")

FETCH = "fetch some with `make data DATASET=cora,citeseer,pubmed`"


def parser(
    doc: str | None, module: str, *, results: bool = True
) -> argparse.ArgumentParser:
    """A parser that describes itself with a module's docstring.

    Args:
      doc: the docstring.
      module: its name.
      results: --workdir is results/ unless given; otherwise it must be given.
    """
    made = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "--workdir",
        type=workdir,
        default=folders.RESULTS if results else None,
        required=not results,
        help="where results go, local or gs://"
        + (" (default: results)" if results else ""),
    )
    return made


def add_run_options(
    made: argparse.ArgumentParser,
    models: Sequence[str] = tables.MODELS,
    *,
    several_folds: bool = True,
    max_epochs: int | None = None,
) -> None:
    """Options of experiments that learn models, on folds or on one split.

    Args:
      made: the parser.
      models: which to learn, unless others are given.
      several_folds: whether there are folds to choose from.
      max_epochs: where an iteration ends unless told otherwise; None for the paper's.
    """
    made.add_argument(
        "--models",
        type=model_names,
        default=tuple(models),
        help=f"comma-separated (default: {','.join(models)})",
    )
    if several_folds:
        add_folds(made)
    made.add_argument("--seed", type=seed, default=0, help="of training (default: 0)")
    made.add_argument(
        "--fresh", action="store_true", help="forget what is kept, and start over"
    )
    made.add_argument(
        "--workers", type=positive, help="processes (default: 2 on a CPU, else 1)"
    )
    add_max_epochs(made, max_epochs)


def add_folds(made: argparse.ArgumentParser) -> None:
    """--folds: all of them unless some are given."""
    made.add_argument(
        "--folds",
        type=folds,
        default=tuple(range(1, paper.NUM_FOLDS + 1)),
        help="comma-separated (default: 1,2,3,4,5)",
    )


def add_max_epochs(made: argparse.ArgumentParser, default: int | None = None) -> None:
    """--max-epochs, for `shortened`."""
    told = ": for a quick look, not for a figure"
    if default is not None:
        told = f" (default: {default}; the paper's: {Config.max_epochs})"
    made.add_argument(
        "--max-epochs",
        type=positive,
        default=default,
        help=f"stop every iteration here{told}",
    )


def shortened(config: Config, max_epochs: int | None) -> Config:
    """The settings with iterations that end there, if it is given."""
    if max_epochs is None:
        return config
    return dataclasses.replace(config, max_epochs=max_epochs)


def workdir(text: str) -> pathlib.Path:
    """A folder; one of object storage (gs://) has the same methods as a local one."""
    if "://" not in text:
        return pathlib.Path(text)
    from etils import epath  # A tenth of a second, for those who ask.

    if not text.startswith("gs://"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a local path nor gs://")
    return cast(pathlib.Path, epath.Path(text))


def model_name(text: str) -> str:
    """The name of one model."""
    return _single(model_names(text), "model")


def dataset_name(text: str) -> str:
    """The name of one dataset."""
    return _single(dataset_names(text), "dataset")


def fold(text: str) -> int:
    """One fold."""
    return _single(folds(text), "fold")


def model_names(text: str) -> tuple[str, ...]:
    """Comma-separated names of models, each once."""
    names = tuple(dict.fromkeys(_split(text, "model")))
    for name in names:
        if name not in MODELS:
            raise argparse.ArgumentTypeError(
                f"no model is called {name!r}; known: {', '.join(MODELS)}"
            )
    return names


def dataset_names(text: str) -> tuple[str, ...]:
    """Comma-separated names of datasets; "all" is the paper's that are on hand."""
    if text == "all":
        here = on_hand()
        if not here:
            raise argparse.ArgumentTypeError(
                f"none of the paper's datasets is on hand; {FETCH}"
            )
        return here
    names = tuple(dict.fromkeys(_split(text, "dataset")))
    for name in names:
        if name not in DATASETS and name not in SYNTHETIC:
            raise argparse.ArgumentTypeError(
                f"no dataset is called {name!r}; known: {', '.join(DATASETS)}; "
                f"synthetic: {', '.join(SYNTHETIC)}; or all"
            )
    return names


def on_hand() -> tuple[str, ...]:
    """The paper's datasets whose files are on this machine."""
    return tuple(name for name in paper.DATASETS if find(DATASETS[name]) is not None)


def folds(text: str) -> tuple[int, ...]:
    """Comma-separated folds."""
    try:
        numbers = tuple(sorted({int(part) for part in _split(text, "fold")}))
    except ValueError:
        numbers = (0,)
    if not all(1 <= number <= paper.NUM_FOLDS for number in numbers):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of folds; they are 1 to {paper.NUM_FOLDS}"
        )
    return numbers


def seed(text: str) -> int:
    """A seed that `fit` takes."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number from 0, below 2**32"
        )
    return int(text)


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def numbers(text: str) -> tuple[int, ...]:
    """Comma-separated whole numbers above 0, ascending."""
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

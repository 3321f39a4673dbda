"""HOPF: higher order propagation for collective classification, in JAX."""

import os
from typing import TYPE_CHECKING, Any

from hopf_jax import baselines
from hopf_jax.comparison import BaselineResult, Comparison, compare, fit_baseline
from hopf_jax.config import Config, Execution
from hopf_jax.datasets import load_dataset
from hopf_jax.fitting import fit, fit_folds
from hopf_jax.graph import Graph, open_graph, paper_split, split_graph, write_graph
from hopf_jax.kernels import MODELS, Aggregate, Gate, Kernel
from hopf_jax.results import (
    Confidence,
    Explanation,
    NewNode,
    Report,
    Result,
    Update,
    load,
)
from hopf_jax.runtime import (
    HopfWarning,
    callbacks,
    devices,
    did_you_mean,
    keep_programs,
    keep_programs_by_default,
    processes,
    show_versions,
)
from hopf_jax.tuning import Tuning, tune

if TYPE_CHECKING:
    from hopf_jax.sklearn_api import HOPFClassifier

__version__ = "0.2.0.dev0"

Row = Kernel  # The name of version 0.1.

__all__ = [
    "MODELS",
    "Aggregate",
    "BaselineResult",
    "Comparison",
    "Confidence",
    "Config",
    "Execution",
    "Explanation",
    "Gate",
    "Graph",
    "HOPFClassifier",
    "HopfWarning",
    "Kernel",
    "NewNode",
    "Report",
    "Result",
    "Row",
    "Tuning",
    "Update",
    "baselines",
    "callbacks",
    "compare",
    "devices",
    "fit",
    "fit_baseline",
    "fit_folds",
    "keep_programs",
    "load",
    "load_dataset",
    "open_graph",
    "paper_split",
    "processes",
    "show_versions",
    "split_graph",
    "tune",
    "write_graph",
]


def __getattr__(name: str) -> Any:
    # Lazy: scikit-learn is slow to import, and needed only by the estimator.
    if name == "HOPFClassifier":
        from hopf_jax.sklearn_api import HOPFClassifier

        return HOPFClassifier
    hint = did_you_mean(name, __all__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}. {hint}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if os.environ.get("HOPF_KEEP_PROGRAMS"):  # As `make` does.
    keep_programs_by_default()

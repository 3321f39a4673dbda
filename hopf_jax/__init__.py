"""HOPF: higher order propagation for collective classification, in JAX."""

from typing import TYPE_CHECKING, Any

from hopf_jax import baselines
from hopf_jax.comparison import BaselineResult, Comparison, compare, fit_baseline
from hopf_jax.config import Config, Execution
from hopf_jax.datasets import load_dataset
from hopf_jax.fitting import fit, fit_folds
from hopf_jax.graph import Graph, open_graph, paper_split, split_graph, write_graph
from hopf_jax.kernels import MODELS, Aggregate, Gate, Kernel
from hopf_jax.results import Confidence, Explanation, Result, load
from hopf_jax.runtime import HopfWarning, callbacks, processes
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
    "Result",
    "Row",
    "Tuning",
    "baselines",
    "callbacks",
    "compare",
    "fit",
    "fit_baseline",
    "fit_folds",
    "load",
    "load_dataset",
    "open_graph",
    "paper_split",
    "processes",
    "split_graph",
    "tune",
    "write_graph",
]


def __getattr__(name: str) -> Any:
    # Lazy: scikit-learn is slow to import, and needed only by the estimator.
    if name == "HOPFClassifier":
        from hopf_jax.sklearn_api import HOPFClassifier

        return HOPFClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""HOPF: higher order propagation for collective classification, in JAX."""

from typing import TYPE_CHECKING, Any

from hopf_jax.aggregators import Aggregate
from hopf_jax.calibration import Confidence
from hopf_jax.comparing import compare
from hopf_jax.comparison import Comparison
from hopf_jax.config import Config
from hopf_jax.datasets import load_dataset
from hopf_jax.explaining import Explanation
from hopf_jax.fitting import fit
from hopf_jax.graph import Graph
from hopf_jax.models import MODELS, Gate, Row
from hopf_jax.result import Result, load
from hopf_jax.storage import open_graph, write_graph
from hopf_jax.together import fit_folds

if TYPE_CHECKING:
    from hopf_jax.sklearn_api import HOPFClassifier

__version__ = "0.1.0"

__all__ = [
    "MODELS",
    "Aggregate",
    "Comparison",
    "Confidence",
    "Config",
    "Explanation",
    "Gate",
    "Graph",
    "HOPFClassifier",
    "Result",
    "Row",
    "compare",
    "fit",
    "fit_folds",
    "load",
    "load_dataset",
    "open_graph",
    "write_graph",
]


def __getattr__(name: str) -> Any:
    # Only for those who ask: scikit-learn takes a second to import.
    if name == "HOPFClassifier":
        from hopf_jax.sklearn_api import HOPFClassifier

        return HOPFClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

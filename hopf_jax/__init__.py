"""HOPF: higher order propagation for collective classification, in JAX."""

from hopf_jax.aggregators import Aggregate
from hopf_jax.calibration import Confidence
from hopf_jax.comparing import Comparison, compare
from hopf_jax.config import Config
from hopf_jax.datasets import load_dataset
from hopf_jax.explaining import Explanation
from hopf_jax.fitting import fit
from hopf_jax.graph import Graph
from hopf_jax.models import MODELS, Gate, Row
from hopf_jax.result import Result, load

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
    "Result",
    "Row",
    "compare",
    "fit",
    "load",
    "load_dataset",
]

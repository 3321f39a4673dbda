"""HOPF: higher order propagation for collective classification, in JAX."""

from hopf_jax.aggregators import Aggregate
from hopf_jax.config import Config
from hopf_jax.datasets import load_dataset
from hopf_jax.fitting import fit
from hopf_jax.graph import Graph
from hopf_jax.models import MODELS, Gate, Row
from hopf_jax.result import Result, load
from hopf_jax.storage import open_graph, write_graph
from hopf_jax.together import fit_folds

__version__ = "0.1.0"

__all__ = [
    "MODELS",
    "Aggregate",
    "Config",
    "Gate",
    "Graph",
    "Result",
    "Row",
    "fit",
    "fit_folds",
    "load",
    "load_dataset",
    "open_graph",
    "write_graph",
]

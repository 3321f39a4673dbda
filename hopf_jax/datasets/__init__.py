"""Datasets: the paper's by name, its splits, and graphs made for tests and timing."""

from hopf_jax.datasets.fetch import search_path
from hopf_jax.datasets.files import DatasetError
from hopf_jax.datasets.loading import (
    check_counts,
    count,
    count_edges,
    find,
    load_contents,
    load_dataset,
    normalize_rows,
)
from hopf_jax.datasets.registry import DATASETS, Counts, Dataset
from hopf_jax.datasets.streamed import write_random
from hopf_jax.datasets.synthetic import SYNTHETIC, make_chain, make_planted, make_random
from hopf_jax.graph import draw_split, split_graph

__all__ = [
    "DATASETS",
    "SYNTHETIC",
    "Counts",
    "Dataset",
    "DatasetError",
    "check_counts",
    "count",
    "count_edges",
    "draw_split",
    "find",
    "load_contents",
    "load_dataset",
    "make_chain",
    "make_planted",
    "make_random",
    "normalize_rows",
    "search_path",
    "split_graph",
    "write_random",
]

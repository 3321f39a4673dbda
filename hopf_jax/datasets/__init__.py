"""Datasets: those of the paper by name, and synthetic graphs."""

from hopf_jax.datasets.contents import Contents, check_counts, count, count_edges
from hopf_jax.datasets.loading import find, load_contents, load_dataset
from hopf_jax.datasets.registry import DATASETS, Counts, Dataset, DatasetError
from hopf_jax.datasets.synthetic import (
    SYNTHETIC,
    make_chain,
    make_planted,
    make_random,
    write_random,
)
from hopf_jax.graph import normalize_rows, paper_masks, paper_split, split_graph

"""Kernels: Table 1, aggregators F(A), Eq. 1, and weights for them."""

from hopf_jax.kernels.aggregators import (
    AGGREGATES,
    Aggregate,
    lstm,
    mean,
    pooled_max,
    symmetric,
    total,
)
from hopf_jax.kernels.hops import run_hops
from hopf_jax.kernels.module import Net, Rate, Sizes
from hopf_jax.kernels.propagation import Products, Signals
from hopf_jax.kernels.random_bits import bits_at
from hopf_jax.kernels.table import (
    CANDIDATES,
    DEFAULT_MODEL,
    FIRST_MODELS,
    LINEAR_MODEL,
    MEAN_VOTING_MODEL,
    MODELS,
    SOLVED_MODELS,
    TUNED_MODELS,
    VOTING_MODEL,
    Gate,
    Kernel,
    find_kernel,
    kernel_from_json,
    kernel_to_json,
)
from hopf_jax.kernels.threefry import fold_in, new_key, split_key

"""What all tests share."""

import hypothesis
import jax

# [N] + [N, 1] is [N, N]: a forgotten axis must fail, not broadcast.
jax.config.update("jax_numpy_rank_promotion", "raise")

# The same examples in every run, and as long for each as a first compilation takes.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)
hypothesis.settings.load_profile("fixed")

"""What `fit` returns, and what can be asked of it."""

from hopf_jax.results.calibration import Confidence, calibrate
from hopf_jax.results.explanations import Explanation, influences
from hopf_jax.results.result import (
    Result,
    decide,
    decide_as_scored,
    load,
    make_net,
    node_scores,
    readable,
    score,
)
from hopf_jax.results.text_tables import html_table, text_table

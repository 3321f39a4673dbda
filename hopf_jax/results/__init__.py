"""What `fit` returns: predictions, scores, confidence, explanations and figures."""

from hopf_jax.results.calibration import Confidence, calibrate
from hopf_jax.results.decisions import (
    Decision,
    decide_as_scored,
    decide_by,
    make_decision,
    node_scores,
    score,
)
from hopf_jax.results.echo import summary_scores
from hopf_jax.results.explanations import Explanation, hop_tree, influences
from hopf_jax.results.report import Report
from hopf_jax.results.result import Result, make_net, readable, with_features
from hopf_jax.results.serialization import load, load_with_notes, save
from hopf_jax.results.updating import NewNode, Update

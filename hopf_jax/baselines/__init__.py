"""Simple methods to compare with, and the logistic regressions beneath them."""

from hopf_jax.baselines.logistic import (
    MOST_AXES,
    Logistic,
    principal_axes,
    solve_logistic,
    to_probabilities,
)
from hopf_jax.baselines.methods import (
    BASELINES,
    Learner,
    Predictions,
    Predictor,
    best_of,
    correct_and_smooth,
    ica,
    label_propagation,
    logistic_regression,
    majority,
    mean_matrix,
    predict_baseline,
    sgc_logistic,
    smoothed_rows,
    smoothing_matrix,
    spelled,
    wvrn,
)

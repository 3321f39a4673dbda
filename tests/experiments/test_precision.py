"""The two precisions take turns and are compared."""

from experiments import precision
from experiments.benchmark_cases import QUICK


def test_both_precisions_are_measured_from_the_same_weights():
    entry = precision._measure(QUICK, rounds=1, threads=1)
    losses = entry["loss"]
    assert losses["float32"] != losses["bfloat16"]
    assert abs(losses["float32"] - losses["bfloat16"]) < 0.01 * losses["float32"]
    assert 0 < entry["ratio"]["least"] <= entry["ratio"]["most"]

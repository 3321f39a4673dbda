"""Damaged files of every kind: a ValueError or an answer, in bounded time."""

import logging

import pytest

from tests import fuzzing, fuzzing_files

FEW, MANY = 20, 650
for _name in fuzzing_files.KINDS:
    fuzzing.MANY[f"{__name__}.{_name}"] = MANY


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(FEW, id="few"),
        pytest.param(MANY, id="many", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", fuzzing_files.KINDS)
@pytest.mark.filterwarnings("ignore")  # Of numpy and scipy, about strange numbers.
def test_damaged_files(name, count, record_property):
    logging.getLogger("hopf_jax.datasets.cache").setLevel(logging.ERROR)
    outcome = fuzzing_files.run(name, count)
    record_property("fuzzed", (count, outcome.refused))
    assert outcome.refused > 0.5 * count, "the damage is not noticed"


def test_twenty_thousand_cases_are_promised():
    assert MANY * len(fuzzing_files.KINDS) >= 20_000

"""The number of examples that `make test-all` tries is itself checked."""

import importlib
import pathlib

from tests import fuzzing


def test_two_thousand_examples_are_promised():
    # Each property fails if it runs fewer than it promises.
    here = pathlib.Path(__file__).parent
    for path in here.glob("test_*.py"):
        importlib.import_module(f"tests.robustness.{path.stem}")
    promised = {name: n for name, n in fuzzing.MANY.items() if "robustness" in name}
    assert sum(promised.values()) >= 2000, promised

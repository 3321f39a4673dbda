"""Properties tested on many examples: a right answer, or a clear ValueError.

`fuzz` makes a test of a property, with few examples in `make test` and many in `make
test-all`, and fails if fewer were run. `MANY` holds the numbers of examples, which
`tests/robustness/test_count.py` adds up.
"""

import contextlib
import dataclasses
import pathlib
import signal
import traceback

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import hopf_jax

PACKAGE = pathlib.Path(hopf_jax.__file__).parent
MANY: dict[str, int] = {}  # Number of examples per property in `make test-all`.
_SECONDS = 120  # A call that takes longer, compilation included, hangs.


@dataclasses.dataclass
class Tally:
    """Counts of the examples of the running test."""

    examples: int = 0
    refused: int = 0


TALLY = Tally()


def fuzz(few, many, least=1.0, **strategies):
    """Make a test of `check(**example)` on few examples, and a slow one on many.

    `least` is the share of the examples that must run: hypothesis stops when it has
    seen all possible ones.
    """

    def decorate(check):
        MANY[f"{check.__module__}.{check.__name__}"] = int(least * many)

        def test(count, record_property):
            TALLY.examples = TALLY.refused = 0

            def run(**example):
                TALLY.examples += 1
                check(**example)

            run.__name__ = run.__qualname__ = check.__name__
            run = hypothesis.given(**strategies)(run)
            hypothesis.settings(
                max_examples=count,
                suppress_health_check=list(hypothesis.HealthCheck),
                database=None,
            )(run)()
            record_property("fuzzed", (TALLY.examples, TALLY.refused))
            assert count < many or least * many <= TALLY.examples

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        counts = [
            pytest.param(few, id="few"),
            pytest.param(many, id="many", marks=pytest.mark.slow),
        ]
        return pytest.mark.parametrize("count", counts)(test)

    return decorate


class Refused(str):
    """The message of a ValueError."""


def attempt(call, *arguments, **keywords):
    """Return what a call returns, or the message of its ValueError.

    An error raised in NumPy, SciPy or JAX fails the test: its message is about arrays
    that the user has never seen.
    """
    try:
        with alarm():
            return call(*arguments, **keywords)
    except ValueError as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        assert PACKAGE in pathlib.Path(last.filename).parents, f"{last}: {error}"
        assert len(str(error)) > 20, f"{error} says little"
        TALLY.refused += 1
        return Refused(error)


@contextlib.contextmanager
def alarm():
    """Raise `TimeoutError` in a block that takes too long, even if it only waits."""

    def stop(*_):
        raise TimeoutError(f"no answer in {_SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _array(kind, shape, seed):
    rng = np.random.default_rng(seed)
    if kind == "M8[D]":
        return rng.integers(0, 9, shape).astype("int64").astype(kind)
    values = rng.integers(0, 3, shape)
    if kind in ("float16", "float32", "float64"):
        values = values.astype(kind)
        extreme = [np.nan, np.inf, -1.5, np.finfo(kind).max, np.finfo(kind).tiny / 4]
        values[rng.random(shape) < 0.1] = rng.choice(extreme)
    elif kind in ("int64", "uint64"):
        values = values.astype(kind)
        values[rng.random(shape) < 0.1] = np.iinfo(kind).max
    return values.astype(kind)


KINDS = (
    *("bool", "int8", "int32", "int64", "uint8", "uint64", "float16", "float32"),
    *("float64", "complex64", "object", "U3", "S3", "M8[D]"),
)
arrays = st.builds(
    _array,
    st.sampled_from(KINDS),
    st.lists(st.integers(0, 7), max_size=3).map(tuple),
    st.integers(0, 99),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.sampled_from([2**31, 2**63, 2**64, -(2**63), 10**400]),
    st.floats(),
    st.sampled_from([np.float32(1), np.int64(2), np.bool_(True), 1j]),
    st.text(max_size=3),
    st.binary(max_size=3),
)
# Values that may be passed by mistake.
anything = st.one_of(
    scalars,
    arrays,
    st.lists(scalars, max_size=7),
    st.lists(st.lists(scalars, max_size=3), max_size=7),  # Mostly ragged.
    st.dictionaries(st.text(max_size=2), scalars, max_size=2),
    st.builds(object),
)

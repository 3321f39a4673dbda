"""Settings and fixtures of all tests."""

import collections
import os
import signal
import tempfile

import hypothesis
import jax
import pytest

# The user's cache must not decide which tests run. Workers inherit this one.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _CACHE = tempfile.TemporaryDirectory(prefix="hopf-tests-")
    os.environ["HOPF_CACHE"] = _CACHE.name
    # Most of a test is compilation: compile quickly, in child processes too.
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
jax.config.update("jax_disable_most_optimizations", True)

# [N] + [N, 1] is [N, N]: a forgotten axis must fail, not broadcast.
jax.config.update("jax_numpy_rank_promotion", "raise")

# The same examples in every run, and as long for each as a first compilation takes.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)
hypothesis.settings.load_profile("fixed")

# A job in a shell's background ignores Ctrl-C, which some tests send.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Let tests train on little: `tests/learning/test_warning_signs.py` asks for these.

    A mark, because the setting in pyproject.toml would import jax before this file.
    """
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore::hopf_jax.HopfWarning"))


_COMPILED: collections.Counter[str] = collections.Counter()


def _count(event, seconds, *, fun_name="", **others):
    del seconds, others
    if event.endswith("backend_compile_duration"):
        _COMPILED[fun_name.removeprefix("jit(").removesuffix(")")] += 1


jax.monitoring.register_event_duration_secs_listener(_count)


@pytest.fixture
def optimized():
    """Compile as for users, where what is tested depends on it."""
    for quickly in (False, True):
        jax.config.update("jax_disable_most_optimizations", quickly)
        jax.clear_caches()
        if not quickly:
            yield


@pytest.fixture
def compiled():
    """Number of compilations of each jitted function in this test, by its name."""
    before = _COMPILED.copy()

    class Compiled:
        def __getitem__(self, name):
            return _COMPILED[name] - before[name]

    return Compiled()


def pytest_terminal_summary(terminalreporter):
    """How many examples were tried, in all workers."""
    fuzzed = [
        numbers
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, numbers in getattr(report, "user_properties", ())
        if name == "fuzzed" and report.when == "call"
    ]
    if fuzzed:
        examples, refused = (sum(column) for column in zip(*fuzzed, strict=True))
        terminalreporter.write_line(
            f"fuzzed: {examples} examples in {len(fuzzed)} tests; "
            f"{refused} calls were refused with a ValueError"
        )

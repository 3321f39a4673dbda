"""What makes two runs the same run: code, functions, threads."""

import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

import hopf_jax
from hopf_jax import Aggregate, Config, Kernel, fit
from hopf_jax.learning import run_state
from hopf_jax.runtime import code_digest, function_digest, num_threads
from tests import graphs

SHORT = Config(num_hops=1, hidden_size=3, num_iterations=1, max_epochs=2, folds=0)


# Threads

TRAIN = """
import json, sys
import numpy as np
import hopf_jax
from hopf_jax.datasets import make_planted, paper_split

rng = np.random.default_rng(0)
made = make_planted(3000, 12000, seed=1)
features = rng.normal(size=(3000, 64)).astype(np.float32)
graph = hopf_jax.Graph.from_scipy(made.adjacency, features, made.labels)
graph = paper_split(graph, percent=60)
config = hopf_jax.Config(max_epochs=int(sys.argv[2]), folds=0)
try:
    result = hopf_jax.fit(graph, "gcn", config, workdir=sys.argv[1], progress=False)
    print(json.dumps({"sum": result.probabilities.astype(float).sum().hex()}))
except ValueError as error:
    print(json.dumps({"refused": str(error)}))
"""


def train(workdir, cores, epochs=5, **environment):
    """Train on dense features in a process of its own, on some of the cores."""
    # By the process itself: a fork would copy a process that has JAX in it.
    bound = f"import os; os.sched_setaffinity(0, {cores})\n{TRAIN}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", bound, workdir, str(epochs)],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_one_core_and_two_give_the_same_bytes_or_a_refusal(tmp_path):
    two = sorted(os.sched_getaffinity(0))[:2]
    first = train(tmp_path / "a", two)
    # What was begun on two cores is not finished on one.
    refused = train(tmp_path / "a", two[:1])["refused"]
    assert "number of threads, which PJRT_NPROC sets, is 1, but 2 in the" in refused
    # The advice holds: with as many threads, one core gives the same bytes.
    assert train(tmp_path / "a", two[:1], PJRT_NPROC="2") == first
    assert train(tmp_path / "b", two[:1], PJRT_NPROC="2") == first
    # Devices that JAX makes and this run does not use have threads, too.
    unused = "--xla_force_host_platform_device_count=2"
    assert train(tmp_path / "c", two[:1], XLA_FLAGS=unused) == first


def test_threads_are_counted_as_xla_counts_them(monkeypatch):
    for name in ("NPROC", "PJRT_NPROC"):
        monkeypatch.delenv(name, raising=False)
    assert num_threads() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("NPROC", "7")
    assert num_threads() == 7
    monkeypatch.setenv("PJRT_NPROC", "3")
    assert num_threads() == 3
    monkeypatch.setattr(run_state.jax, "local_device_count", lambda _: 5)
    assert num_threads() == 5  # XLA makes no fewer threads than devices.
    monkeypatch.setattr(run_state.jax, "default_backend", lambda: "tpu")
    kernel = hopf_jax.MODELS["gcn"]
    assert not any("threads" in n for n in run_state.identify([], kernel, SHORT, []))


# Functions

SCALE = 1.0


def _helper(x):
    return x * 2


def _sum(graph, x, num_receivers, weights, draws):
    messages = _helper(x[graph.senders]) * SCALE
    return jax.ops.segment_sum(messages, graph.receivers, num_receivers)


def _other_sum(graph, x, num_receivers, weights, draws):
    messages = 3 * x[graph.senders]
    return jax.ops.segment_sum(messages, graph.receivers, num_receivers)


def _scaled(by):
    def apply(graph, x, num_receivers, weights, draws):
        return _sum(graph, x, num_receivers, weights, draws) * by

    return apply


class _Sum:
    def __init__(self, by):
        self.by = by

    def __call__(self, *given):
        return _sum(*given) * self.by


def test_a_function_is_known_by_what_it_computes(monkeypatch):
    some = [
        *(_sum, _other_sum, _scaled(1), _scaled(2), _scaled(np.ones(2))),
        *(_Sum(1), _Sum(2), functools.partial(_sum, draws=1), jax.jit(_other_sum)),
        *(functools.partial(_sum, draws=None), lambda *_: 0, lambda *_: 1),
    ]
    found = {function_digest(function) for function in some}
    assert len(found) == len(some)
    assert {function_digest(f) for f in some} == found
    assert function_digest(_scaled(2)) == function_digest(some[3])
    before = function_digest(_sum)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "SCALE", 5.0)
        assert function_digest(_sum) != before
    monkeypatch.setitem(globals(), "_helper", lambda x: x * 3)
    assert function_digest(_sum) != before


def test_digests_are_the_same_in_another_process():
    script = (
        "from hopf_jax.runtime import code_digest, function_digest\n"
        "from tests.runtime.test_identity import _scaled\n"
        "print(code_digest(), function_digest(_scaled(2)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": "5"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [code_digest(), function_digest(_scaled(2))]


def test_another_aggregator_of_the_same_name_is_refused(tmp_path):
    def run(function, **more):
        kernel = Kernel(("h",), ("h",), Aggregate("mine", function, **more))
        return fit(
            graphs.tiny(), kernel, SHORT, workdir=tmp_path, progress=False
        ).probabilities

    first = run(_sum)
    with pytest.raises(ValueError, match=r"another run: kernel\.aggregate\.apply is '"):
        run(_other_sum)
    np.testing.assert_array_equal(run(_sum), first)


# The library itself


def test_edited_code_is_another_code(tmp_path):
    package = pathlib.Path(hopf_jax.__file__).parent
    shutil.copytree(package, tmp_path / "hopf_jax", ignore=shutil.ignore_patterns("_*"))
    identity = tmp_path / "hopf_jax" / "runtime" / "identity.py"

    def digest(path, edit):
        path = tmp_path / "hopf_jax" / path
        before = path.read_text()
        path.write_text(edit(before))
        names = {"__file__": str(identity), "__name__": "identity"}
        exec(compile(identity.read_text(), "", "exec"), names)
        found = names["code_digest"]()
        path.write_text(before)
        return found

    same = digest("config.py", str)
    assert digest("config.py", lambda text: f"{text}\n# A comment.\n") == same
    assert digest("config.py", lambda t: t.replace("Settings of", "The", 1)) == same
    assert digest("cli/tables.py", lambda text: f"{text}\nx = 1\n") == same
    assert digest("config.py", lambda text: f"{text}\nx = 1\n") != same
    epoch = digest("learning/epoch.py", lambda text: text.replace("+", "-", 1))
    assert epoch != same


def test_a_run_of_edited_code_is_refused(tmp_path, monkeypatch):
    fit(graphs.tiny(), "gcn", SHORT, workdir=tmp_path, progress=False)
    monkeypatch.setattr(run_state, "code_digest", lambda: "edited")
    with pytest.raises(ValueError, match="another run: code of hopf_jax is 'edited', "):
        fit(graphs.tiny(), "gcn", SHORT, workdir=tmp_path, progress=False)

"""A step of several subgraphs is the same step, wherever they are computed."""

import dataclasses
import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import hopf_jax
from hopf_jax import MODELS, Config, Execution
from hopf_jax.batching.loader import LoaderSettings
from hopf_jax.batching.sharded_loader import ShardedLoader
from hopf_jax.datasets import make_planted
from hopf_jax.learning.plan import make_plan
from hopf_jax.runtime.sharding import OneDevice, shard_steps
from tests.project.test_architecture import ROOT

SMALL = Config(
    num_hops=1,
    hidden_size=4,
    num_iterations=2,
    batch_size=2,
    batches_per_step=8,
    max_epochs=4,
    min_epochs=1,
    learning_rate=0.05,
)


def small_graph():
    return make_planted(200, 500, 6, 3, seed=2)


def losses(result):
    names = ("train_loss", "validation_loss", "train_macro_f1")
    return np.array([[record[name] for name in names] for record in result.history])


def test_a_step_is_the_mean_over_all_its_roots():
    # Batches of 2 and 1 roots, three lanes of them empty: one step of all roots, as one
    # batch of all roots is. Without dropout there is nothing else to differ by.
    graph = small_graph()
    one = dataclasses.replace(
        SMALL, batch_size=100, batches_per_step=1, dropout=0.0, num_iterations=1
    )
    assert graph.train.sum() == 16
    lanes = dataclasses.replace(one, batch_size=3, batches_per_step=9)
    whole, spread = (hopf_jax.fit(graph, "gcn", c, seed=3) for c in (one, lanes))
    np.testing.assert_allclose(losses(spread), losses(whole), rtol=1e-5)
    np.testing.assert_allclose(spread.probabilities, whole.probabilities, atol=1e-5)


def run(num_devices, code):
    flag = f"--xla_force_host_platform_device_count={num_devices}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"XLA_FLAGS": flag, "JAX_PLATFORMS": "cpu"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("num_devices", [4, 8])
def test_devices_share_a_step(num_devices):
    # One streams its batches, and masks summaries; one keeps its batches, precomputes
    # the first hop, and cross-fits summaries.
    config, execution = SMALL, Execution(memory_budget=0)
    if num_devices == 8:
        crossed = {"dropout": 0.0, "training_summaries": "cross-fitted"}
        config, execution = dataclasses.replace(SMALL, **crossed), Execution()
        graph, kernel = small_graph(), MODELS["i-nip-mean"]
        assert make_plan(graph, kernel, config, execution).precompute
    spread = dataclasses.replace(execution, devices=num_devices)
    code = (
        "import json, hopf_jax\n"
        "from hopf_jax import Config, Execution\n"
        "from tests.runtime import test_sharding as t\n"
        f"result = hopf_jax.fit(t.small_graph(), 'i-nip-mean', config={config!r},"
        f" execution={spread!r})\n"
        "print(json.dumps([t.losses(result).tolist(),"
        " result.probabilities.tolist(), len(result.iterations)]))\n"
    )
    found, probabilities, iterations = run(num_devices, code)
    alone = hopf_jax.fit(
        small_graph(), "i-nip-mean", config=config, execution=execution
    )
    assert iterations == 2
    np.testing.assert_allclose(found, losses(alone), rtol=1e-5)
    np.testing.assert_allclose(probabilities, alone.probabilities, atol=1e-5)


@pytest.mark.parametrize("fanouts", [None, (2,)])
def test_lanes_hold_every_root_once(fanouts):
    graph = small_graph()
    spread = shard_steps(None, 3)
    how = LoaderSettings(1, 2, fanouts, memory_budget=0)
    loader = ShardedLoader(graph, np.flatnonzero(graph.train), how, 0, spread)
    seen = []
    for epoch in (1, 2):
        steps = list(loader.stream(epoch))
        roots, numbers = [], []
        for step in steps:
            assert step.trips == 1 and step.lanes == 3
            for lane in range(3):
                at = int(step.order[2 * lane])
                batch = jax.tree.map(lambda leaf, at=at: leaf[at], step.batches)
                real = np.flatnonzero(batch.mask)
                roots += batch.graph.nodes["id"][real].tolist()
                numbers += [int(step.numbers[at])] if real.size else []
        assert sorted(roots) == np.flatnonzero(graph.train).tolist()
        assert sorted(numbers) == list(range(loader.num_batches))
        seen.append(roots)
    assert seen[0] != seen[1]  # Shuffled.


def test_a_lane_keeps_its_batches():
    graph = small_graph()
    how = LoaderSettings(1, 2, memory_budget=10**9)
    loader = ShardedLoader(
        graph, np.flatnonzero(graph.train), how, 0, shard_steps(1, 3)
    )
    (first,), (second,) = loader.groups(1), loader.groups(2)
    assert loader.resident and first.trips == 3
    rows = first.order.reshape(3, -1)
    assert not np.array_equal(first.order, second.order)
    for lane, order in enumerate(np.asarray(rows)):
        assert sorted(order) == list(range(3 * lane, 3 * lane + 3))


@pytest.mark.parametrize(
    ("devices", "lanes", "message"),
    [
        (2, 2, "devices is 2, but jax sees 1. .*force_host_platform"),
        (0, 1, "devices is 0"),
        ("all", 1, "devices is 'all'; give a number"),
        ([], 1, r"devices is \[\]"),
        (True, 1, "devices is True"),
    ],
)
def test_devices_that_are_not_there(devices, lanes, message):
    with pytest.raises(ValueError, match=message):
        shard_steps(devices, lanes)


def test_one_subgraph_on_one_device_needs_no_mesh():
    assert shard_steps(None, 1) == OneDevice()
    assert shard_steps([jax.devices()[0]], 1) == OneDevice()
    assert shard_steps(1, 4).lanes_per_device == 4


def test_lanes_that_devices_cannot_share():
    code = (
        "import json\nfrom hopf_jax.runtime.sharding import shard_steps\n"
        "said = []\n"
        "for lanes in (1, 3, 6):\n"
        "    try: said.append(shard_steps(2, lanes).own_lanes)\n"
        "    except ValueError as error: said.append(str(error))\n"
        "print(json.dumps(said))\n"
    )
    one, three, six = run(2, code)
    assert "batches_per_step is 1, which 2 devices cannot share evenly" in one
    assert "Config(batches_per_step=2) or a multiple" in three
    assert six == list(range(6))

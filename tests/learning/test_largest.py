"""The largest entries of a row are those that a stable sort puts first."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopf_jax.learning.loss import largest


@jax.jit
def by_sorting(x, counts):
    return jnp.argsort(jnp.argsort(-x, axis=1), axis=1) < counts[:, None]


def draw(rows, columns):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, columns)).astype(np.float32)
    return x, rng.integers(0, columns + 1, rows)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x,
        np.round,  # Many are equal.
        lambda x: -np.abs(x),
        np.zeros_like,
        lambda x: np.where(x > 0, np.float32(0.0), np.float32(-0.0)),
        lambda x: x * np.float32(1e38),  # Some are infinite.
        lambda x: x * np.float32(1e-42),  # Denormal: XLA may take them for 0.
    ],
)
@pytest.mark.parametrize("columns", [1, 2, 31])
def test_it_agrees_with_a_stable_sort(change, columns):
    x, counts = draw(64, columns)
    with np.errstate(over="ignore"):
        x = change(x).astype(np.float32)
    found = np.asarray(jax.jit(largest)(x, counts))
    np.testing.assert_array_equal(found, by_sorting(x, counts))
    np.testing.assert_array_equal(found.sum(axis=1), counts)


@pytest.mark.slow
def test_it_is_faster_than_sorting(capsys):
    x, counts = draw(512, 121)
    least = {}
    for name, function in (("sorting", by_sorting), ("largest", jax.jit(largest))):
        jax.block_until_ready(function(x, counts))
        seconds = []
        for _ in range(20):
            begun = time.perf_counter()
            jax.block_until_ready(function(x, counts))
            seconds.append(time.perf_counter() - begun)
        least[name] = min(seconds)
    with capsys.disabled():
        print({name: f"{1000 * seconds:.2f} ms" for name, seconds in least.items()})
    if jax.default_backend() == "cpu":
        assert least["largest"] < least["sorting"]

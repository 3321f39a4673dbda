"""Initial weights and random words: those of flax and of `jax.random`, on the host."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopf_jax.kernels import threefry
from hopf_jax.kernels.initial_weights import Declaration, draw


@pytest.mark.parametrize("seed", [0, 1, 123_456_789, 2**32 - 1])
def test_keys_and_bits_are_those_of_jax(seed):
    theirs, ours = jax.random.key(seed), threefry.new_key(seed)

    def same(keys, words):
        np.testing.assert_array_equal(jax.random.key_data(keys), words)

    same(theirs, ours)
    same(jax.random.split(theirs), threefry.split_key(ours))
    for number in (0, 7, 2**32 - 1):
        same(jax.random.fold_in(theirs, number), threefry.fold_in(ours, number))
    several = jax.vmap(jax.random.fold_in, (None, 0))(theirs, np.arange(5))
    same(several, threefry.fold_in(ours, np.arange(5)))
    for shape in ((3,), (7, 5)):
        bits = threefry.random_bits(ours, shape)
        np.testing.assert_array_equal(jax.random.bits(theirs, shape), bits)
        uniform = jax.random.uniform(theirs, shape)
        np.testing.assert_array_equal(uniform, threefry.unit_interval(bits))


class _Dense(nn.Module):
    @nn.compact
    def __call__(self):
        normal = nn.initializers.normal(1.0)
        self.param("a", nn.initializers.zeros, (3,))
        self.param("b", normal, (40, 30))
        self.param("c", nn.initializers.glorot_uniform(), (20, 10))
        self.param("d", normal, (7, 5))


def test_weights_are_those_of_flax():
    declared = (
        Declaration("a", (3,), np.zeros(())),
        Declaration("b", (40, 30), "fan-out"),
        Declaration("c", (20, 10), "glorot"),
        Declaration("d", (7, 5), "fan-out"),
    )
    ours = draw(threefry.new_key(5), declared)
    theirs = jax.jit(_Dense().init)(jax.random.key(5))["params"]
    assert list(ours) == sorted(theirs)
    for name, fan_out in (("b", 30), ("d", 5)):
        scaled = np.asarray(theirs[name]) * np.sqrt(jnp.float32(2 / fan_out))
        np.testing.assert_array_equal(ours[name], scaled)
    np.testing.assert_array_equal(ours["a"], 0)
    np.testing.assert_allclose(ours["c"], theirs["c"], rtol=2e-7)
    assert all(w.dtype == np.float32 for w in ours.values())

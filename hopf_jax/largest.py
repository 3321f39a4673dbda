"""The largest entries of each row, on the device and without a sort.

On a CPU the ranks of [512, 121], by two sorts, take XLA 23 ms, and this 0.9 (`pytest -m
slow -s tests/test_largest.py`).
"""

import jax
import jax.numpy as jnp

from hopf_jax.sparse import Array


def largest(x: Array, counts: Array) -> jax.Array:
    """Booleans [R, C]: whether an entry is among its row's counts[row] largest.

    Of equal entries the first count, as in a stable sort.

    >>> largest(jnp.array([[3.0, 1.0, 3.0, 2.0]]), jnp.array([2])).tolist()
    [[True, False, True, False]]
    """
    x, wanted = jnp.asarray(x, jnp.float32), jnp.asarray(counts)[:, None]
    keys = _ordered(x)

    def narrow(step, threshold):
        bit = jnp.uint32(1 << 31) >> step.astype(jnp.uint32)
        reached = jnp.sum(keys >= threshold | bit, axis=1, keepdims=True)
        return jnp.where(reached >= wanted, threshold | bit, threshold)

    # The key of the last one taken, bit by bit from the highest.
    threshold = jax.lax.fori_loop(0, 32, narrow, jnp.zeros_like(keys[:, :1]))
    above, equal = keys > threshold, keys == threshold
    missing = wanted - jnp.sum(above, axis=1, keepdims=True)
    before = equal.astype(jnp.float32) @ jnp.triu(jnp.ones((x.shape[1],) * 2), 1)
    return (above | equal & (before < missing)) & (wanted > 0)


def _ordered(x: jax.Array) -> jax.Array:
    """Floats as unsigned integers in the same order; both zeros are one."""
    bits = jax.lax.bitcast_convert_type(jnp.where(x == 0, 0, x), jnp.uint32)
    return jnp.where(bits >> 31 == 1, ~bits, bits | jnp.uint32(1 << 31))

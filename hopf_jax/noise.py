"""Random bits for dropout and random orders: cheap to draw, cheap to compile.

A hash of a counter instead of `jax.random`: Threefry's twenty rounds were the largest
part of a training step on a CPU, and half of its compile time. Integer arithmetic only,
so the bits are the same on every device.
"""

import jax
import jax.numpy as jnp


def words(key: jax.Array) -> jax.Array:
    """The two words [2] of a key that `bits` starts from."""
    return jax.random.key_data(key).astype(jnp.uint32)


def bits(noise: jax.Array, site: int, count: int) -> jax.Array:
    """32 random bits each, [count].

    Args:
      noise: two words, different for every training step.
      site: which place of the net draws; every place has a stream of its own.
      count: how many.
    """
    x = jax.lax.iota(jnp.uint32, count)
    # Each word goes in between two mixings, so that streams are not shifts of another.
    x = _mix(x ^ _mix(noise[0] + jnp.uint32(site)))
    return _mix(x + noise[1])


def _mix(x: jax.Array) -> jax.Array:
    """The finaliser of MurmurHash3: every input bit flips half of the output bits."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)

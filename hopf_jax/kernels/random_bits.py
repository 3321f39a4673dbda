"""Random bits for dropout and random orders: cheap to draw and to compile.

A hash of a counter instead of `jax.random`, whose Threefry would dominate a training
step on a CPU, and its compilation. Integer arithmetic only, so the bits are the same on
every device.
"""

import jax
import jax.numpy as jnp


def random_words(key: jax.Array) -> jax.Array:
    """Return the two words [2] of a key that `bits` starts from."""
    return jax.random.key_data(key).astype(jnp.uint32)


def bits(noise: jax.Array, site: int, count: int) -> jax.Array:
    """Return `count` random numbers of 32 bits, [count].

    Args:
      noise: Two words, different for every training step.
      site: The place in the net that draws; every place has its own stream.
      count: How many.
    """
    return bits_at(noise, site, jax.lax.iota(jnp.uint32, count))


def bits_at(noise: jax.Array, site: int, places: jax.Array) -> jax.Array:
    """Return the random numbers at some places of a stream, [n], as in `bits`."""
    x = places.astype(jnp.uint32)
    # Each word enters between two mixings: no stream is a shift of another.
    x = _mix(x ^ _mix(noise[0] + jnp.uint32(site)))
    return _mix(x + noise[1])


def _mix(x: jax.Array) -> jax.Array:
    """The finaliser of MurmurHash3: every input bit flips half of the output bits."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)

"""Random bits for dropout and random orders: cheap to draw and to compile.

A hash of a counter instead of `jax.random`, whose Threefry would dominate a training
step on a CPU, and its compilation. Integer arithmetic only, so the bits are the same on
every device.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class NodeWords(NamedTuple):
    """Random words of a step whose bits depend on nodes, not on places in a batch.

    A node then has the same bits in every batch with these words, so that a batch can
    be divided.
    """

    words: jax.Array  # [2]
    ids: jax.Array  # [N], of the nodes in a batch


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


def bits_of_rows(noise: NodeWords, site: int, shape: tuple[int, int]) -> jax.Array:
    """Return the random numbers of a matrix on the first nodes of a batch, [n, *]."""
    rows = jax.lax.iota(jnp.uint32, shape[0])
    columns = jax.lax.iota(jnp.uint32, shape[1])
    return bits_of_entries(noise, site, rows[:, None], columns[None, :])


def bits_of_entries(noise: NodeWords, site: int, rows: Any, columns: Any) -> jax.Array:
    """Return the random numbers of some entries of such a matrix."""
    own = bits_at(noise.words, site, jnp.take(noise.ids, rows, mode="clip"))
    return _mix(own ^ _mix(columns.astype(jnp.uint32)))


@functools.partial(jax.jit, inline=True)  # Traced once per shape, not at every site.
def _mix(x: jax.Array) -> jax.Array:
    """The finaliser of MurmurHash3: every input bit flips half of the output bits."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)

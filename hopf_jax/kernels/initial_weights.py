"""Initial weights, drawn on the host, as flax would draw them within a program.

A program that draws is compiled anew for every shape, and that takes longer than the
first epochs of a small graph. The numbers are those of `flax.linen.Module.init`.
"""

import contextlib
import contextvars
import hashlib
from collections.abc import Iterator
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hopf_jax.kernels import threefry

_FEWEST = 1 << 12  # Normal numbers per call: few programs serve all nets.

_declared: contextvars.ContextVar[list["Declaration"] | None] = contextvars.ContextVar(
    "declared", default=None
)


class Declaration(NamedTuple):
    """A weight of a net: its name, its shape, and how it starts.

    Attributes:
      start: "glorot" (uniform with variance 2 / (fan_in + fan_out)), "fan-out" (normal
        with std sqrt(2 / fan_out), as in the authors' program: far larger for a wide
        input, so that ReLU units do not die early), or the numbers themselves.
    """

    name: str
    shape: tuple[int, ...]
    start: Literal["glorot", "fan-out"] | np.ndarray


def declare(declaration: Declaration) -> None:
    """Note a weight for `declarations`; do nothing outside of it."""
    declared = _declared.get()
    if declared is not None:
        declared.append(declaration)


@contextlib.contextmanager
def declarations() -> Iterator[list[Declaration]]:
    """Collect the weights that are declared in the block, in their order."""
    found: list[Declaration] = []
    token = _declared.set(found)
    try:
        yield found
    finally:
        _declared.reset(token)


def draw(key: np.ndarray, declared: tuple[Declaration, ...]) -> dict[str, np.ndarray]:
    """Return the weights that `flax.linen.Module.init` would return for this key."""
    found: dict[str, np.ndarray] = {}
    normal: dict[str, np.ndarray] = {}
    for number, (name, shape, start) in enumerate(declared, start=1):
        if isinstance(start, np.ndarray):
            found[name] = np.broadcast_to(start, shape).astype(np.float32)
            continue
        bits = threefry.random_bits(threefry.fold_in(key, _hash(number)), shape)
        if start == "fan-out":
            normal[name] = bits
            continue
        uniform = 2 * threefry.unit_interval(bits) - 1
        found[name] = uniform * np.sqrt(np.float32(3) * np.float32(2 / sum(shape)))
    for name, numbers in _normal(normal).items():
        found[name] = numbers * np.sqrt(np.float32(2 / numbers.shape[1]))
    return {name: found[name] for name in sorted(found)}


def _hash(number: int) -> int:
    """Return what flax folds into the key of a net for its n-th weight."""
    data = number.to_bytes((number.bit_length() + 7) // 8, byteorder="big")
    return int.from_bytes(hashlib.sha1(data).digest()[:4], byteorder="big")


def _normal(bits: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the numbers that `jax.random.normal` makes of bits."""
    if not bits:
        return {}
    flat = np.concatenate([each.ravel() for each in bits.values()])
    room = max(_FEWEST, 1 << (len(flat) - 1).bit_length())
    numbers = np.asarray(_normal_of(np.resize(flat, room)))[: len(flat)]
    stops = np.cumsum([each.size for each in bits.values()])[:-1]
    parts = np.split(numbers, stops)
    return {
        name: part.reshape(each.shape)
        for (name, each), part in zip(bits.items(), parts, strict=True)
    }


@jax.jit
def _normal_of(bits):
    low = np.nextafter(np.float32(-1), np.float32(0))
    unit = jax.lax.bitcast_convert_type((bits >> 9) | 0x3F800000, jnp.float32) - 1.0
    uniform = jnp.maximum(low, unit * (np.float32(1) - low) + low)
    return np.float32(np.sqrt(2)) * jax.lax.erf_inv(uniform)

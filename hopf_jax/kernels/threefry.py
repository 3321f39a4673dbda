"""Random keys and numbers of `jax.random`, bit for bit, in NumPy.

What a run draws before it trains is little, but XLA takes longer to compile Threefry
than a small graph takes to train an iteration. A key is its two words [..., 2].
"""

import numpy as np

_PARITY = np.uint32(0x1BD11BDA)
_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)


def new_key(seed: int) -> np.ndarray:
    """Return the key of a seed of 32 bits, as `jax.random.key`."""
    return np.array([0, seed], np.uint32)


def fold_in(key: np.ndarray, data: int | np.ndarray) -> np.ndarray:
    """Return the key of a key and a number, as `jax.random.fold_in`; one per number."""
    low = np.asarray(data, np.uint32)
    return np.stack(_hash(key, np.zeros_like(low), low), axis=-1)


def split_key(key: np.ndarray) -> np.ndarray:
    """Return two keys, as `jax.random.split`."""
    return fold_in(key, np.arange(2))


def random_bits(key: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return random numbers of 32 bits, as `jax.random.bits`."""
    places = np.arange(np.prod(shape, dtype=np.uint64), dtype=np.uint64)
    high, low = (places >> np.uint64(32)), (places & np.uint64(0xFFFFFFFF))
    first, second = _hash(key, high.astype(np.uint32), low.astype(np.uint32))
    return (first ^ second).reshape(shape)


def unit_interval(bits: np.ndarray) -> np.ndarray:
    """Return the numbers from 0, below 1, that `jax.random.uniform` makes of bits."""
    return ((bits >> 9) | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)


def _hash(
    key: np.ndarray, high: np.ndarray, low: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011)."""
    key = np.asarray(key, np.uint32)
    words = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    with np.errstate(over="ignore"):  # Sums are modulo 2^32.
        x, y = high + words[0], low + words[1]
        for i in range(5):
            for rotation in _ROTATIONS[i % 2]:
                x = x + y
                y = (y << np.uint32(rotation)) | (y >> np.uint32(32 - rotation))
                y = x ^ y
            x = x + words[(i + 1) % 3]
            y = y + words[(i + 2) % 3] + np.uint32(i + 1)
    return x, y

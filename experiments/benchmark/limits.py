"""Limits: the measured speed of the machine, and the counted work of an epoch."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_SIZE = 1024  # Rows and columns of the matrices.
_COPIED = 1 << 24  # Floats, far more than caches hold.


def measure(repeats: int = 5) -> dict[str, Any]:
    """Return GFLOP/s of a float32 product and GB/s of a copy (read and written).

    The best of NumPy and JAX, and of all repeats.
    """
    square = np.ones((_SIZE, _SIZE), np.float32)
    on_device = jnp.asarray(square)
    product = jax.jit(jnp.matmul)
    source, target = np.ones(_COPIED, np.float32), np.empty(_COPIED, np.float32)
    operations, moved = 2 * _SIZE**3, 2 * source.nbytes
    multiply = min(
        _least(lambda: square @ square, repeats),
        _least(lambda: product(on_device, on_device).block_until_ready(), repeats),
    )
    copy = _least(lambda: np.copyto(target, source), repeats)
    plus_one = jax.jit(lambda x: x + 1)  # Reads and writes as a copy, in threads.
    copied = jnp.asarray(source)
    copy = min(copy, _least(lambda: plus_one(copied).block_until_ready(), repeats))
    return {"gflops": operations / multiply / 1e9, "gb_per_s": moved / copy / 1e9}


def _least(run: Callable[[], Any], repeats: int) -> float:
    run()
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def least_seconds(work: dict[str, float], machine: dict[str, float]) -> float:
    """Return the seconds of counted work at the measured speed of the machine."""
    return work["gflop"] / machine["gflops"] + work["gb"] / machine["gb_per_s"]


def work(
    sizes: np.ndarray,
    num_hops: int,
    features: int,
    hidden: int,
    labels: int,
    ahead: bool = False,
) -> dict[str, float]:
    """Return the least GFLOP and GB of an epoch of NIP-MEAN.

    Products forward and backward, without padding, in the cheaper order of product and
    mean; one row read per edge and one written per receiver; features read and written
    once per batch. Nonlinearities, dropout and Adam are not counted.

    Args:
      sizes: [B, 2 K + 2], for each batch nodes within 0 to K hops, edges into nodes
        within 0 to K - 1 hops, and non-zeros of sparse features (0 if dense); one hop
        less where the first is precomputed.
      num_hops: K.
      features: F.
      hidden: d.
      labels: C.
      ahead: Whether the first hop is precomputed.
    """
    flops = moved = 0.0
    cut = num_hops + (0 if ahead else 1)
    for size in sizes.astype(np.float64):
        nodes, edges = size[:cut], size[cut:-1]
        values = size[-1]
        # Multiplications per row of X and column of W: its non-zeros if sparse.
        per_row = values / nodes[-1] if values else features
        moved += 8 * values if values else 8 * nodes[-1] * features
        if ahead:
            # Products with X and with the precomputed hop; neither needs a gradient.
            flops += 2 * 2 * 2 * nodes[-1] * features * hidden
            moved += 8 * nodes[-1] * features
        for k in range(2 if ahead else 1, num_hops + 1):
            away = num_hops - k
            receivers, senders, used = nodes[away], nodes[away + 1], edges[away]
            width = per_row if k == 1 else hidden
            passes = 2 if k == 1 else 3  # X needs no gradient.
            first = senders * width * hidden, used * hidden
            # The mean of sparse rows is not sparse.
            wide = features if k == 1 else hidden
            after = receivers * wide * hidden, used * wide
            product, gathered = min(first, after, key=lambda cost: cost[0] + cost[1])
            flops += 2 * passes * (receivers * width * hidden + product)
            flops += 2 * (1 if k == 1 and product == after[0] else 2) * gathered
            row = gathered / max(used, 1)
            backward = 1 if k == 1 and product == after[0] else 2
            moved += 4 * backward * (gathered + receivers * row)
        flops += 2 * 3 * nodes[0] * hidden * labels
    return {"gflop": flops / 1e9, "gb": moved / 1e9}

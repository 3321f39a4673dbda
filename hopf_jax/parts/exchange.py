"""Exchanges between pairs of processes of a job.

Rows are sent by a collective of two processes, without padding: the traffic is what
`Parts.sends` counts, and no process receives rows that it does not need.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hopf_jax.parts.manifest import Part, Parts
from hopf_jax.runtime import compiled

_AXIS = "pair"
_BYTES_AT_ONCE = 1 << 26

Read = Callable[[Part, np.ndarray], np.ndarray]
Write = Callable[[Part, np.ndarray, np.ndarray], object]


class Exchanged(NamedTuple):
    """Bytes that this process sent and received in an exchange."""

    sent: int
    received: int


def exchange(
    parts: Parts, held: Sequence[Part], width: int, read: Read, write: Write
) -> Exchanged:
    """Fill the halo of every part with rows from the nodes' owners.

    All processes of a job must call it.

    Args:
      parts: The graph in parts.
      held: The parts of this process.
      width: Number of columns of a row.
      read: Returns rows [n, width] of a held part at positions of own nodes.
      write: Stores rows [n, width] of a held part at positions in its halo.
    """
    me, count = jax.process_index(), jax.process_count()
    by_number = {part.number: part for part in held}
    sent = received = 0
    for round_ in range(count):
        # Every pair of processes meets once, and the pairs of a round are disjoint.
        other = (round_ - me) % count
        if other == me:
            for source, target in itertools.permutations(held, 2):
                out = _sent_to(parts, source, [target.number])
                if len(out):
                    into = _received_from(parts, target, source.number)
                    write(target, into, read(source, out))
            continue
        theirs = parts.held_by(other, count)
        step = max(1, _BYTES_AT_ONCE // (4 * width))
        first, second = (me, other) if me < other else (other, me)
        for sender in (first, second):
            if sender == me:
                for p in sorted(by_number):
                    places = _sent_to(parts, by_number[p], theirs)
                    for start in range(0, len(places), step):
                        rows = read(by_number[p], places[start : start + step])
                        _move(first, second, sender, rows)
                        sent += rows.nbytes
            else:
                for p in theirs:
                    received += _receive(
                        parts, p, by_number, (first, second, sender), width, step, write
                    )
    return Exchanged(sent, received)


def _receive(
    parts: Parts,
    source: int,
    held: dict[int, Part],
    pair: tuple[int, int, int],
    width: int,
    step: int,
    write: Write,
) -> int:
    """Receive the rows that one part sends to all held parts; return their bytes."""
    counts = [int(parts.sends[source, q]) for q in sorted(held)]
    total, nbytes = sum(counts), 0
    bounds = np.cumsum([0, *counts])
    for start in range(0, total, step):
        stop = min(start + step, total)
        rows = _move(*pair, np.zeros((stop - start, width), np.float32))
        nbytes += rows.nbytes
        for i, q in enumerate(sorted(held)):
            a, b = max(start, bounds[i]), min(stop, bounds[i + 1])
            if a < b:
                places = _received_from(parts, held[q], source)
                here = places[a - bounds[i] : b - bounds[i]]
                write(held[q], here, rows[a - start : b - start])
    return nbytes


def _sent_to(parts: Parts, part: Part, targets: Sequence[int]) -> np.ndarray:
    """Return positions of own nodes whose rows consecutive parts need."""
    ends = np.cumsum([0, *parts.sends[part.number]])
    return np.asarray(part.sends[ends[targets[0]] : ends[targets[-1] + 1]])


def _received_from(parts: Parts, part: Part, source: int) -> np.ndarray:
    """Return positions of the halo nodes that another part owns."""
    ends = np.cumsum([0, *parts.sends[:, part.number]])
    return np.asarray(part.receive[ends[source] : ends[source + 1]])


def _move(first: int, second: int, source: int, rows: np.ndarray) -> np.ndarray:
    """Send rows to, or receive rows from, another process; return the rows."""
    devices = [
        next(d for d in jax.devices() if d.process_index == process)
        for process in (first, second)
    ]
    mesh = Mesh(np.array(devices), (_AXIS,))
    sharding = NamedSharding(mesh, PartitionSpec(_AXIS))
    shape = 2 * len(rows), rows.shape[1]
    both = jax.make_array_from_process_local_data(sharding, rows, shape)
    moved = _permuted(mesh, int(source == second), both)
    return np.asarray(moved.addressable_shards[0].data)


@compiled(num_static=2)
def _permuted(mesh, source, rows):
    spec = PartitionSpec(_AXIS)

    def move(own):
        return jax.lax.ppermute(own, _AXIS, [(source, 1 - source)])

    return jax.shard_map(
        move, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
    )(rows)

"""A training step of several subgraphs, spread over devices and processes.

The G subgraphs of a step stand in G lanes. A batch belongs to one lane for good, and
every device computes as many lanes, so which subgraphs make a step, and in which order
their gradients are added, does not depend on the devices they are spread over.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

_AXIS = "lanes"
_ALONG, _SAME = PartitionSpec(_AXIS), PartitionSpec()


@dataclasses.dataclass(frozen=True)
class Spread:
    """Which devices compute the lanes of a step; static under jit."""

    mesh: Mesh
    lanes: int

    @property
    def lanes_each(self) -> int:
        """Lanes of a device."""
        return self.lanes // self.mesh.size

    @property
    def own_lanes(self) -> list[int]:
        """Lanes of this process's devices, in order."""
        here = [d.process_index == jax.process_index() for d in self.mesh.devices.flat]
        return [n for n in range(self.lanes) if here[n // self.lanes_each]]

    def replicate(self, tree: Any) -> Any:
        """The same arrays on every device; every process brings them all."""
        return self._put(tree, _SAME)

    def replicate_key(self, key: jax.Array) -> jax.Array:
        """The same random key on every device."""
        return jax.random.wrap_key_data(self.replicate(jax.random.key_data(key)))

    def shard(self, tree: Any) -> Any:
        """Arrays whose first axis runs over the lanes; a process brings its own."""
        return self._put(tree, _ALONG)

    def _put(self, tree: Any, spec: PartitionSpec) -> Any:
        sharding = NamedSharding(self.mesh, spec)
        return jax.tree.map(
            lambda leaf: jax.make_array_from_process_local_data(
                sharding, np.asarray(leaf)
            ),
            tree,
        )

    def run(self, function: Callable, groups: Any, *others: Any) -> Any:
        """`function(groups, *others)` on every device, with the groups of its lanes.

        The result has to be the same on all of them. No gradient may be taken of it:
        take it inside, of one lane, and add up with `total`.
        """
        specs = jax.tree.map(lambda a: _ALONG if jnp.ndim(a) else _SAME, groups)
        return jax.shard_map(
            function,
            mesh=self.mesh,
            in_specs=(specs, *(_SAME for _ in others)),
            out_specs=_SAME,
            check_vma=False,
        )(groups, *others)

    def total(self, group: Any, step: Any, function: Callable) -> Any:
        """The sum of `function(batch, number)` over all lanes of a step, within `run`.

        Added up in the order of the lanes, wherever they were computed: hence not
        `psum`, whose order is the network's. As in training on one device, the trip
        count is data and rows are two or more, so that XLA compiles one loop whether
        a device has one lane or all of them.
        """
        rows = group.order.shape[0] // self.lanes_each

        def pick(lane):
            at = group.order[lane * rows + step]
            return jax.tree.map(lambda a: a[at], group.batches), group.numbers[at]

        def body(lane, out):
            value = function(*pick(lane))
            return jax.tree.map(lambda o, v: o.at[lane].set(v), out, value)

        shapes = jax.eval_shape(lambda: function(*pick(0)))
        empty = jax.tree.map(
            lambda s: jnp.zeros((self.lanes_each, *s.shape), s.dtype), shapes
        )
        out = jax.lax.fori_loop(0, group.lanes, body, empty)
        return _sum_of_all(out)


def _sum_of_all(tree: Any) -> Any:
    """Leaves [lanes of a device, ...] summed over the lanes of all devices, in order.

    Sent as one vector a type: what costs is the number of exchanges, not their size.
    """
    leaves, structure = jax.tree.flatten(tree)
    sums: list[Any] = [None] * len(leaves)
    for dtype in dict.fromkeys(leaf.dtype for leaf in leaves):
        places = [i for i, leaf in enumerate(leaves) if leaf.dtype == dtype]
        flat = [leaves[i].reshape(leaves[i].shape[0], -1) for i in places]
        joined = jnp.concatenate(flat, axis=1)
        every = jax.lax.all_gather(joined, _AXIS, tiled=True)  # [G, *]
        total = jnp.sum(every, axis=0, dtype=dtype)
        stops = np.cumsum([part.shape[1] for part in flat])[:-1]
        for i, part in zip(places, jnp.split(total, stops), strict=True):
            sums[i] = part.reshape(leaves[i].shape[1:])
    return jax.tree.unflatten(structure, sums)


def spread_over(devices: int | Sequence[Any] | None, lanes: int) -> Spread | None:
    """Where a step of so many subgraphs is computed; None for one on one device.

    Args:
      devices: how many, or which; None is the first one, and in a job of several
        processes all of them.
      lanes: subgraphs of a step, a multiple of the devices.
    """
    every = jax.devices()
    if devices is None:
        devices = every if jax.process_count() > 1 else every[:1]
    if isinstance(devices, int) and not isinstance(devices, bool):
        if not 1 <= devices <= len(every):
            raise ValueError(
                f"devices is {devices}, but jax sees {len(every)}. Ask for 1 to "
                f"{len(every)}; on a CPU, XLA_FLAGS="
                "--xla_force_host_platform_device_count=8 makes eight of one."
            )
        devices = every[:devices]
    chosen = list(devices) if isinstance(devices, Sequence) else []
    if not chosen or not all(isinstance(d, jax.Device) for d in chosen):
        raise ValueError(
            f"devices is {devices!r}; give a number, or some of jax.devices()."
        )
    held = {d.process_index for d in chosen}
    if len(held) < jax.process_count():
        raise ValueError(
            f"devices are of {len(held)} processes, but the job has "
            f"{jax.process_count()}. Leave devices out, so that all are used."
        )
    if lanes % len(chosen):
        raise ValueError(
            f"batches_per_step is {lanes}, which {len(chosen)} devices cannot share "
            f"evenly. Set Config(batches_per_step={len(chosen)}) or a multiple."
        )
    if lanes == 1:
        return None
    mesh = jax.make_mesh(
        (len(chosen),), (_AXIS,), devices=chosen, axis_types=(AxisType.Auto,)
    )
    return Spread(mesh, lanes)

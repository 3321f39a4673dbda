"""How the subgraphs of a training step are distributed over devices and processes.

The G subgraphs of a step are assigned to G lanes. A batch stays in its lane, and every
device computes the same number of lanes, so which subgraphs make a step, and in which
order their gradients are added, does not depend on the number of devices.
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
class OneDevice:
    """One subgraph per step on one device; static under jit.

    It has the interface of `StepSharding`, so that training needs no special case.
    """

    lanes: int = 1
    num_devices: int = 1

    def replicate(self, tree: Any) -> Any:
        """Put arrays on the device, once rather than with every step."""
        return jax.device_put(tree)

    def run(self, function: Callable, groups: Any, *others: Any) -> Any:
        """Return `function(groups, *others)`."""
        return function(groups, *others)

    def total(self, group: Any, step: Any, function: Callable) -> Any:
        """Return `function(batch, number)` of one step of a group."""
        at = group.order[step]
        batch = jax.tree.map(lambda leaf: leaf[at], group.batches)
        return function(batch, group.numbers[at])


@dataclasses.dataclass(frozen=True)
class StepSharding:
    """The devices that compute the lanes of a step; static under jit."""

    mesh: Mesh
    lanes: int

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return self.mesh.size

    @property
    def lanes_per_device(self) -> int:
        """Number of lanes per device."""
        return self.lanes // self.num_devices

    @property
    def own_lanes(self) -> list[int]:
        """Lanes of this process's devices, in order."""
        here = [d.process_index == jax.process_index() for d in self.mesh.devices.flat]
        return [n for n in range(self.lanes) if here[n // self.lanes_per_device]]

    def replicate(self, tree: Any) -> Any:
        """Put the same arrays on every device; every process passes all of them."""
        return self._put(tree, _SAME)

    def shard(self, tree: Any) -> Any:
        """Distribute arrays along their first axis, the lanes.

        Every process passes the rows of its own lanes.
        """
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
        """Run `function(groups, *others)` on every device, on the groups of its lanes.

        The result must be the same on all devices. Take gradients inside `function`,
        per lane, and add them up with `total`: the result itself has no gradient.
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
        """Return the sum of `function(batch, number)` over all lanes, within `run`.

        Lanes are added in their order on every device, hence not by `psum`, whose order
        depends on the network. As on one device, the trip count is data and there are
        at least two rows, so that XLA compiles the same loop for any number of lanes.
        """
        rows = group.order.shape[0] // self.lanes_per_device

        def pick(lane):
            at = group.order[lane * rows + step]
            return jax.tree.map(lambda a: a[at], group.batches), group.numbers[at]

        def body(lane, out):
            value = function(*pick(lane))
            return jax.tree.map(lambda o, v: o.at[lane].set(v), out, value)

        shapes = jax.eval_shape(lambda: function(*pick(0)))
        empty = jax.tree.map(
            lambda s: jnp.zeros((self.lanes_per_device, *s.shape), s.dtype), shapes
        )
        out = jax.lax.fori_loop(0, group.lanes, body, empty)
        return _sum_of_all(out)


def _sum_of_all(tree: Any) -> Any:
    """Sum leaves [lanes per device, ...] over the lanes of all devices, in order.

    Leaves of one type travel as one vector: exchanges cost by number, not by size.
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


def shard_steps(
    devices: int | Sequence[Any] | None, lanes: int
) -> OneDevice | StepSharding:
    """Return where the subgraphs of a training step are computed.

    Args:
      devices: Their number, or the devices; None is the first device, or all of them in
        a job of several processes.
      lanes: Number of subgraphs per step, a multiple of the number of devices.
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
        return OneDevice()
    mesh = jax.make_mesh(
        (len(chosen),), (_AXIS,), devices=chosen, axis_types=(AxisType.Auto,)
    )
    return StepSharding(mesh, lanes)

"""The processes of one job: who they are, and what they tell one another.

JAX's own runtime does the work. A process that dies takes the others with it, so that
whoever started the job (GKE, Slurm, `experiments.launch`) starts all of them again.
"""

import os
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils

# Signs of a cluster that jax would join. It is asked itself, unless it is too late.
_CLUSTERS = ("SLURM_STEP_NODELIST", "OMPI_MCA_orte_hnp_uri", "TPU_WORKER_HOSTNAMES")
_EXPLICIT = {
    "coordinator": "JAX_COORDINATOR_ADDRESS",
    "num_processes": "JAX_NUM_PROCESSES",
    "process_id": "JAX_PROCESS_ID",
}


def initialize(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    heartbeat_seconds: int = 30,
    start_seconds: int = 300,
) -> bool:
    """Join the other processes of this job, if there are any. Call it before all else.

    What is not given is read from JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and
    JAX_PROCESS_ID; failing these, jax finds out for itself on Slurm, Open MPI, GKE and
    TPUs of GCE.

    Args:
      coordinator: host:port that process 0 listens on.
      num_processes: how many there are.
      process_id: which one this is, from 0.
      heartbeat_seconds: silence after which a process counts as dead, and all end.
      start_seconds: how long to wait for the others to come.

    Returns:
      Whether there is a job to join; False is an ordinary run in one process.
    """
    coordinator = coordinator or os.environ.get(_EXPLICIT["coordinator"])
    num_processes = _whole("num_processes", num_processes)
    process_id = _whole("process_id", process_id)
    given = dict(zip(_EXPLICIT, (coordinator, num_processes, process_id), strict=True))
    missing = [name for name, value in given.items() if value is None]
    try:
        # What is missing jax asks the cluster for, if it knows the kind.
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            initialization_timeout=start_seconds,
            heartbeat_timeout_seconds=heartbeat_seconds,
            shutdown_timeout_seconds=heartbeat_seconds,
        )
    except RuntimeError:
        # Devices are in use already. Alone, in a notebook or a test, that is no matter.
        if len(missing) < len(given) or any(name in os.environ for name in _CLUSTERS):
            raise
        return False
    except ValueError as error:
        if not missing or "be defined" not in str(error):
            raise
        if len(missing) == len(given):
            return False
        wanted = " and ".join(f"{name} (or {_EXPLICIT[name]})" for name in missing)
        raise ValueError(
            f"A job of several processes needs {wanted} too; on Slurm, GKE and TPUs "
            "none has to be given."
        ) from error
    return True


def _whole(name: str, value: int | None) -> int | None:
    text = os.environ.get(_EXPLICIT[name]) if value is None else str(value)
    if text is None:
        return None
    if not text.isdecimal():
        raise ValueError(
            f"{name} is {text!r}; give a whole number, 0 or more (also as "
            f"{_EXPLICIT[name]})."
        )
    return int(text)


def is_main() -> bool:
    """Whether this process writes reports: the first, and any that is alone."""
    return jax.process_index() == 0


def gather_rows(rows: np.ndarray) -> list[np.ndarray]:
    """The rows [n, ...] of every process, by process; numbers of rows may differ.

    Every process of the job has to call it, with the same type and the same columns.
    Numbers travel in 32 bits.
    """
    if jax.process_count() == 1:
        return [rows]
    counts = multihost_utils.process_allgather(np.array([len(rows)], np.int64)).ravel()
    padded = np.zeros((int(counts.max()), *rows.shape[1:]), rows.dtype)
    padded[: len(rows)] = rows
    every = multihost_utils.process_allgather(padded)
    return [part[:count] for part, count in zip(every, counts, strict=True)]


def share_out(count: int, measure: Callable[[Sequence[int]], np.ndarray]) -> np.ndarray:
    """`measure(range(count))`, a row an item, each process measuring its share."""
    processes = jax.process_count()
    if processes == 1:
        return measure(range(count))
    mine = measure(range(jax.process_index(), count, processes))
    every = gather_rows(mine)
    out = np.zeros((count, *mine.shape[1:]), mine.dtype)
    for p, part in enumerate(every):
        out[p::processes] = part
    return out

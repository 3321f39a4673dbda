"""The processes of one job: joining them, and exchanging arrays.

If a process dies, JAX ends the others, so that whatever started the job (GKE, Slurm,
`experiments.launch`) restarts all of them.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

# Variables of clusters that jax joins by itself.
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
    """Join the other processes of this job, if there are any, before using JAX.

    What is not given is read from JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and
    JAX_PROCESS_ID; without them, JAX detects Slurm, Open MPI, GKE and TPUs of GCE.

    Args:
      coordinator: host:port on which process 0 listens.
      num_processes: Number of processes.
      process_id: Number of this process, from 0.
      heartbeat_seconds: Silence after which a process counts as dead, and all end.
      start_seconds: How long to wait for the others at the start.

    Returns:
      Whether there is a job to join; False for an ordinary run in one process.
    """
    given: dict[str, Any] = {
        "coordinator": coordinator or os.environ.get(_EXPLICIT["coordinator"]),
        "num_processes": _whole("num_processes", num_processes),
        "process_id": _whole("process_id", process_id),
    }
    missing = [name for name, value in given.items() if value is None]
    try:
        # JAX asks the cluster for what is missing, if it knows the kind.
        jax.distributed.initialize(
            given["coordinator"],
            given["num_processes"],
            given["process_id"],
            initialization_timeout=start_seconds,
            heartbeat_timeout_seconds=heartbeat_seconds,
            shutdown_timeout_seconds=heartbeat_seconds,
        )
    except RuntimeError:
        # Devices are in use already, which is fine for one process, as in a notebook.
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
    """Return an argument, or what its environment variable says."""
    text = os.environ.get(_EXPLICIT[name]) if value is None else str(value)
    if text is not None and not text.isdecimal():
        raise ValueError(
            f"{name} is {text!r}; give a whole number, 0 or more (also as "
            f"{_EXPLICIT[name]})."
        )
    return None if text is None else int(text)


def is_main() -> bool:
    """Return whether this is the first process, which writes files and reports."""
    return jax.process_index() == 0


def gather_rows(rows: np.ndarray) -> list[np.ndarray]:
    """Return the rows [n, ...] of every process; numbers of rows may differ.

    All processes must call it, with the same type and columns. Numbers are sent in 32
    bits.
    """
    if jax.process_count() == 1:
        return [rows]
    counts = multihost_utils.process_allgather(np.array([len(rows)], np.int64)).ravel()
    padded = np.zeros((int(counts.max()), *rows.shape[1:]), rows.dtype)
    padded[: len(rows)] = rows
    every = multihost_utils.process_allgather(padded)
    return [part[:count] for part, count in zip(every, counts, strict=True)]


def share_out(count: int, measure: Callable[[Sequence[int]], np.ndarray]) -> np.ndarray:
    """Return `measure(range(count))`, one row per item, shared among the processes."""
    processes = jax.process_count()
    if processes == 1:
        return measure(range(count))
    mine = measure(range(jax.process_index(), count, processes))
    out = np.zeros((count, *mine.shape[1:]), mine.dtype)
    for p, part in enumerate(gather_rows(mine)):
        out[p::processes] = part
    return out

"""What surrounds training: files, checkpoints, signals, processes, devices."""

from hopf_jax.runtime.callbacks import JsonLines, TensorBoard
from hopf_jax.runtime.checkpoints import checkpointed, digest
from hopf_jax.runtime.files import load_npz, sha256
from hopf_jax.runtime.hopf_warning import HopfWarning, warn_once
from hopf_jax.runtime.processes import gather_rows, initialize, is_main, share_out
from hopf_jax.runtime.programs import compiled, releasing_programs
from hopf_jax.runtime.publishing import (
    TemporaryError,
    new_folder,
    sweep,
    write_atomically,
)
from hopf_jax.runtime.sharding import OneDevice, StepSharding, shard_steps

"""What surrounds training: files, checkpoints, signals, processes, devices."""

from hopf_jax.runtime.callbacks import JsonLines, TensorBoard
from hopf_jax.runtime.checkpoints import (
    checkpointed,
    differences,
    digest,
    read_checkpoint,
)
from hopf_jax.runtime.files import create_npy, sha256
from hopf_jax.runtime.hopf_warning import HopfWarning, warn_once
from hopf_jax.runtime.identity import code_digest, function_digest, num_threads
from hopf_jax.runtime.machine import (
    devices,
    keep_programs,
    keep_programs_by_default,
    show_versions,
)
from hopf_jax.runtime.memory import (
    check_memory,
    give_back_memory,
    physical_memory,
)
from hopf_jax.runtime.optional import import_or_explain
from hopf_jax.runtime.parquet import (
    columns_of,
    opened_parquet,
    parquet_values,
    read_parquet,
)
from hopf_jax.runtime.processes import gather_rows, initialize, is_main, share_out
from hopf_jax.runtime.programs import compiled, is_small, releasing_programs
from hopf_jax.runtime.progress import ProgressLine, Show, TimeLeft, span, write_line
from hopf_jax.runtime.publishing import (
    LOCK,
    AppendedLines,
    TemporaryError,
    held_folder,
    new_folder,
    scratch_folder,
    sweep,
    write_atomically,
)
from hopf_jax.runtime.sharding import OneDevice, StepSharding, shard_steps
from hopf_jax.runtime.text_tables import (
    Cells,
    Tabular,
    html_lines,
    html_table,
    text_table,
)
from hopf_jax.runtime.untrusted import (
    MALFORMED,
    check_encoding,
    check_limit,
    load_npz,
    map_npy,
    open_regular,
    open_text,
    open_zip,
    read_bytes,
    read_json,
    read_npy,
    reading,
)

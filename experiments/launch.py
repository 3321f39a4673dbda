"""Run several processes of one job on this machine, and restart them if one dies.

    python -m experiments.launch --processes 2 --restarts 3 -- python -m my.job

Every process runs the command after `--` with JAX_COORDINATOR_ADDRESS,
JAX_NUM_PROCESSES and JAX_PROCESS_ID set, which `hopf_jax.processes.initialize` reads.
If one fails, the others have some seconds to end, and are then killed; if restarts are
left, all start again. Slurm and GKE do this for many machines; this is for tests and
trials on one.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from experiments.common import arguments, output

_POLL_SECONDS = 0.05


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or the status of the first failure."""
    options = _parser().parse_args(argv)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        _parser().error("give the command to run after --")
    # As Ctrl-C does: `run_processes` then ends what it started.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        for attempt in range(options.restarts + 1):
            status = run_processes(
                command, options.processes, options.devices, options.grace
            )
            if status == 0:
                return 0
            left = options.restarts - attempt
            output.log(f"launch: failed with status {status}, {left} restarts left")
        return status
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser() -> arguments.Parser:
    parser = arguments.Parser(__doc__, "experiments.launch")
    arguments.add_counts(parser, processes=2)
    about = "CPU devices per process (default: 1)"
    parser.option("devices", arguments.positive, help=about)
    parser.option("restarts", int, 0, "how often to start all processes again")
    parser.option("grace", float, 30.0, "seconds for the others to end by themselves")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def run_processes(
    command: Sequence[str], count: int, devices: int | None = None, grace: float = 30.0
) -> int:
    """Run a command as several processes of one job; return 0, or the first failure.

    A negative status is a signal, as in `subprocess`. No process outlives the call.
    """
    address = f"127.0.0.1:{free_port()}"
    started: list[subprocess.Popen] = []
    try:
        for index in range(count):
            environment = os.environ | {
                "JAX_COORDINATOR_ADDRESS": address,
                "JAX_NUM_PROCESSES": str(count),
                "JAX_PROCESS_ID": str(index),
            }
            if devices is not None:
                flag = f"--xla_force_host_platform_device_count={devices}"
                environment["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
            started.append(subprocess.Popen(command, env=environment))
        return _wait(started, grace)
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.wait()


def _wait(started: Sequence[subprocess.Popen], grace: float) -> int:
    failed_at, first = None, 0
    ended: set[int] = set()
    while True:
        for index, process in enumerate(started):
            status = process.poll()
            if status is None or index in ended:
                continue
            ended.add(index)
            if status and failed_at is None:
                failed_at, first = time.monotonic(), status
                output.log(f"launch: process {index} failed with status {status}")
            elif failed_at is not None:
                after = time.monotonic() - failed_at
                output.log(
                    f"launch: process {index} ended with status {status}, "
                    f"{after:.1f} s later"
                )
        if len(ended) == len(started):
            return first
        if failed_at is not None and time.monotonic() - failed_at > grace:
            left = sorted(set(range(len(started))) - ended)
            output.log(f"launch: killing {left}, which did not end in {grace:g} s")
            return first
        time.sleep(_POLL_SECONDS)


def free_port() -> int:
    """Return a port that is not in use now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())

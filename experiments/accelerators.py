"""Compile the programs of a fit for TPUs, without a TPU, and count what is slow there.

`make test-tpu` installs the compiler, libtpu, into an environment of its own. Every
kernel is fitted for one epoch on a small generated graph, on the CPU; the programs that
it calls are then compiled for a chip, and that of an epoch also for all chips with a
step's batches shared between them. Operations are counted in the optimised program,
each once however often a loop repeats it. XLA's seconds are an estimate from its own
model of the chip, with loops counted once: nothing is run.

The exit status is 1 if a program does not compile, or calls back to the host.
"""

import argparse
import collections
import dataclasses
import importlib.util
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.sharding import SingleDeviceSharding as OneChip

from experiments.common import arguments, output
from hopf_jax import Config, Execution, fit
from hopf_jax.batching import portable_products
from hopf_jax.datasets import make_planted
from hopf_jax.graph import Graph
from hopf_jax.kernels import MODELS
from hopf_jax.runtime import programs

TRAINING = "resident_epoch"
_PRECISIONS = ("float32", "bfloat16")
_CHIPS = ("1", "4")
_TOPOLOGY = "v5e:2x2"
# What libtpu asks of a machine with chips, and would wait for here.
_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # No device is opened, so none is shared.
}
_OPERATION = re.compile(r" = (?:\([^=]*?\)|\S+) ([a-z][a-z0-9-]*)\(")
_TO_HOST = re.compile(
    r'custom_call_target="[^"]*callback|is_host_transfer=true| (?:in|out)feed\('
)


@dataclasses.dataclass(frozen=True)
class Call:
    """A program that a fit called, with the shapes of its arguments."""

    function: Any
    static: tuple[Any, ...]
    shapes: Any  # ShapeDtypeStruct leaves, with a PartitionSpec each in `specs`.
    specs: Any

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.function.__name__


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.accelerators")
    parser.option("models", arguments.model_names, tuple(MODELS), "kernels")
    parser.option("precisions", _some_of(_PRECISIONS), _PRECISIONS, "number formats")
    parser.option("chips", _some_of(_CHIPS), _CHIPS, "numbers of chips")
    parser.option("nodes", int, 500, "number of nodes")
    options = parser.parse_args(argv)
    if importlib.util.find_spec("libtpu") is None:
        print(
            "libtpu, the compiler for TPUs, is not installed here. `make test-tpu` "
            "installs it into .venv-tpu and runs this.",
            file=sys.stderr,
        )
        return 2
    chips = _chips()
    graph = make_planted(options.nodes, 4 * options.nodes, 16, 4, seed=0)
    rows = []
    print(_HEADER, flush=True)
    for precision in options.precisions:
        for count in map(int, options.chips):
            for model in options.models:
                for row in compile_model(graph, model, precision, chips[:count]):
                    print(_line(row), flush=True)
                    rows.append(row)
    path = options.workdir / "accelerators.json"
    about = {"topology": _TOPOLOGY, "nodes": options.nodes, "programs": rows}
    output.write_results(path, about, options.invocation)
    bad = [row for row in rows if row["error"] or row["host_callbacks"]]
    scatters = sum(row["scatters"] for row in rows if not row["error"])
    print(f"{len(rows)} rows, {len(bad)} failed; {scatters} scatters in all.")
    return 1 if bad else 0


def _some_of(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(text.replace(",", " ").split()))
        if not names or not set(names) <= set(known):
            raise argparse.ArgumentTypeError(f"{text!r} is not of {', '.join(known)}")
        return names

    return read


def compile_model(
    graph: Graph, model: str, precision: str, chips: Sequence[Any]
) -> Iterator[dict[str, Any]]:
    """Yield a row for training and, on one chip, one for predicting all nodes."""
    calls = calls_of_fit(graph, model, precision, len(chips))
    parts = {"training": [call for call in calls if call.name == TRAINING]}
    if len(chips) == 1:
        parts["prediction"] = [call for call in calls if call.name != TRAINING]
    for part, own in parts.items():
        row = {"model": model, "precision": precision, "chips": len(chips)}
        yield row | {"part": part} | compile_all(own, chips)


def calls_of_fit(graph: Graph, model: str, precision: str, chips: int) -> list[Call]:
    """Return the different programs that a short fit calls."""
    config = Config(
        num_hops=2,
        num_iterations=2,
        max_epochs=1,
        min_epochs=1,
        batches_per_step=chips,
        precision=precision,  # type: ignore[arg-type]
    )
    found: dict[Any, Call] = {}
    call = programs.Compiled.__call__

    def noted(self: programs.Compiled, *given: Any) -> Any:
        static, arrays = given[: self.num_static], given[self.num_static :]
        shapes = jax.tree.map(_shape, arrays)
        leaves, structure = jax.tree.flatten(shapes)
        specs = jax.tree.unflatten(structure, map(_spec, jax.tree.leaves(arrays)))
        key = self.function, static, structure, tuple(map(str, leaves))
        found.setdefault(key, Call(self.function, static, shapes, specs))
        return call(self, *given)

    where = Execution(devices=chips)
    patched = mock.patch.object(programs.Compiled, "__call__", noted)
    with patched, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # One epoch does not learn much.
        fit(graph, model, config, execution=where, progress=False)
    return list(found.values())


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(np.shape(leaf), jnp.result_type(leaf))


def _spec(leaf: Any) -> PartitionSpec:
    placed = getattr(leaf, "sharding", None)
    return placed.spec if isinstance(placed, NamedSharding) else PartitionSpec()


def compile_all(calls: Sequence[Call], chips: Sequence[Any]) -> dict[str, Any]:
    """Return the counts of some programs together; temporaries are the largest."""
    total: dict[str, Any] = dict.fromkeys((*_COUNTED, *_ESTIMATED), 0)
    begun = time.perf_counter()
    for call in calls:
        try:
            program = compile_call(call, chips)
        except Exception as error:  # Whatever a compiler may raise is a finding.
            said = f"{call.name}: {type(error).__name__}: {error}"
            return {"error": said, "host_callbacks": 0}
        for name, count in count_operations(program.as_text()).items():
            total[name] += count
        memory = program.memory_analysis().temp_size_in_bytes
        total["temporary_bytes"] = max(total["temporary_bytes"], memory)
        seconds = (program.cost_analysis() or {}).get("optimal_seconds", 0.0)
        total["estimated_seconds"] += max(seconds, 0.0)
    took = time.perf_counter() - begun
    return {"error": "", "programs": len(calls), "compile_seconds": took} | total


def compile_call(call: Call, chips: Sequence[Any]) -> Any:
    """Compile a program for chips that need not be here."""
    mesh = None
    static = call.static
    if len(chips) > 1:
        own = static[0].sharding
        mesh = Mesh(np.array(chips), own.mesh.axis_names, axis_types=(AxisType.Auto,))
        on_chips = dataclasses.replace(own, mesh=mesh)
        static = static[0]._replace(sharding=on_chips), *static[1:]

    def place(shape, spec):
        where = OneChip(chips[0]) if mesh is None else NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=where)

    def own_function(*given):  # Its own, so that no trace for the CPU is used again.
        return call.function(*static, *given)

    with portable_products():
        placed = jax.tree.map(place, call.shapes, call.specs)
        return jax.jit(own_function).lower(*placed).compile()


_COUNTED = ("scatters", "gathers", "all_gathers", "all_reduces", "host_callbacks")
_ESTIMATED = ("temporary_bytes", "estimated_seconds")


def count_operations(text: str) -> dict[str, int]:
    """Count operations in the text of an HLO program."""
    found = collections.Counter(_OPERATION.findall(text))
    return {
        "scatters": found["scatter"],
        "gathers": found["gather"],
        "all_gathers": found["all-gather"] + found["all-gather-start"],
        "all_reduces": found["all-reduce"] + found["all-reduce-start"],
        "host_callbacks": len(_TO_HOST.findall(text)),
    }


def _chips() -> list[Any]:
    """Return descriptions of the chips, for which libtpu compiles."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", max(map(int, _CHIPS)))
    os.environ.update(_ENVIRONMENT)
    from jax.experimental import topologies

    return list(topologies.get_topology_desc(_TOPOLOGY, "tpu").devices)


_HEADER = (
    "| model | precision | chips | part | compiles | programs | scatters | gathers | "
    "all-gathers | host callbacks | temporaries, MB | XLA's estimate, ms |\n"
    "|---|---|---:|---|---|---:|---:|---:|---:|---:|---:|---:|"
)


def _line(row: dict[str, Any]) -> str:
    own = f"| {row['model']} | {row['precision']} | {row['chips']} | {row['part']} |"
    if row["error"]:
        return f"{own} no: {row['error'].splitlines()[0]} |"
    return (
        f"{own} yes | {row['programs']} | {row['scatters']} | {row['gathers']} | "
        f"{row['all_gathers']} | {row['host_callbacks']} | "
        f"{row['temporary_bytes'] / 1e6:.2f} | {1e3 * row['estimated_seconds']:.3f} |"
    )


if __name__ == "__main__":
    sys.exit(main())

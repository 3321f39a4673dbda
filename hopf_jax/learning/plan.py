"""The plan of a run: what is decided once, before any batch is made."""

import dataclasses

import jax

from hopf_jax.batching import LoaderSettings, feature_placement
from hopf_jax.config import Config, Execution
from hopf_jax.graph import Graph
from hopf_jax.inference import (
    WholeGraph,
    edges_per_chunk,
    is_small_graph,
    process_share,
)
from hopf_jax.kernels import Kernel
from hopf_jax.runtime import OneDevice, StepSharding, shard_steps

# As it is named to those who resume a run on other devices.
_DEVICES = "number of devices, which may change with Execution(other_devices=True),"


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a run is executed.

    Attributes:
      precompute: F(A) Psi of the first hop is computed once per iteration for all nodes
        (`first_hop.py`), and batches span one hop fewer.
      features: Where batches find their features: "resident" on the device, or in every
        batch, "sparse" or "dense".
      training, validation: How batches of training and of validation nodes are made.
        They are kept on the device if they fit their memory budget.
      sharding: The devices that share the batches of a step.
      halo: Distance in hops to the farthest node that a prediction depends on.
      chunk_edges: Number of edges per chunk when all nodes are predicted.
      shared_programs: Dropout and weight decay are data of the programs.
      few_programs: Predict with as few programs as possible.
      quickly: The graph is so small that programs are compiled with few optimisations.
    """

    precompute: bool
    features: str
    training: LoaderSettings
    validation: LoaderSettings
    sharding: OneDevice | StepSharding
    halo: int
    chunk_edges: int
    shared_programs: bool = False
    quickly: bool = False
    few_programs: bool = False

    @property
    def identity(self) -> dict[str, int]:
        """What makes this another run, unless the user says otherwise."""
        return {_DEVICES: self.sharding.num_devices}

    @property
    def notes(self) -> dict[str, int]:
        """What changes the rounding of a run, but not its identity."""
        notes = {"chunk_edges": self.chunk_edges}
        return notes | ({"shared_programs": 1} if self.shared_programs else {})

    def whole_graph(self, graph: Graph) -> WholeGraph:
        """Return the graph in chunks; in a job of several processes, its own share."""
        count = jax.process_count()
        if count == 1:
            whole = WholeGraph(graph, self.chunk_edges)
            whole.few_programs = self.few_programs
            return whole
        own = process_share(graph.indptr, jax.process_index(), count)
        return WholeGraph(graph, self.chunk_edges, own, self.halo)


def make_plan(
    graph: Graph, kernel: Kernel, config: Config, execution: Execution
) -> Plan:
    """Decide how a kernel is trained on a graph.

    The first hop is precomputed if F(A) Psi is constant (no dropout or sampling before
    it) and no larger than the dense features, which are on the device anyway. This
    ignores the memory budget, so that streamed and resident training give the same
    results.
    """
    features = feature_placement(graph)
    layers = kernel.num_layers(config.num_hops)
    if config.smoothing and not (layers > 1 and "h" in kernel.psi):
        raise ValueError(
            f"smoothing is {config.smoothing}, but this kernel computes no embeddings "
            "of neighbours to be smooth with: it needs num_hops of 2 or more, and 'h' "
            "in psi. Set smoothing=0."
        )
    if config.norm != "none" and not (kernel.input_layer or kernel.learned_hops):
        raise ValueError(
            f"norm is {config.norm!r}, but this kernel has no layer to normalise: its "
            "hops have no weights. Set norm='none'."
        )
    precompute = (
        config.precompute
        and kernel.reads_input_linearly
        and kernel.reach(layers) == layers > 0
        and features == "resident"
        and config.dropout == 0
        and not (kernel.iterative and config.dropout_of_summaries)
        and not (kernel.iterative and config.training_summaries == "masked")
        and kernel.votes is None
        and config.fanouts is None
    )
    reach = kernel.reach(config.num_hops) - precompute
    training = LoaderSettings(
        reach,
        config.batch_size,
        None if config.fanouts is None else config.fanouts[:reach],
        memory_budget=execution.memory_budget,
        blind=config.noise == "node",
    )
    sharding = shard_steps(execution.devices, config.batches_per_step)
    # Of the graph, so that it does not depend on how batches are stored.
    small = is_small_graph(graph, config.hidden_size)
    small = small and isinstance(sharding, OneDevice)
    shared = execution.shared_programs
    return Plan(
        precompute=precompute,
        features=features,
        training=training,
        validation=dataclasses.replace(
            training, resample=False, shuffle=False, transposed=False
        ),
        sharding=sharding,
        halo=max(layers if kernel.psi else 0, int(kernel.votes is not None)),
        chunk_edges=edges_per_chunk(graph, config.hidden_size, execution.chunk_edges),
        shared_programs=small if shared is None else shared,
        quickly=small,
        few_programs=bool(shared),
    )

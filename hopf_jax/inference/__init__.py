"""Predictions for all nodes, and the label summaries made of them."""

from hopf_jax.inference.kept_replay import Followed, KeptFeatures, KeptReplay
from hopf_jax.inference.prediction import predict_logits, predict_own
from hopf_jax.inference.summaries import (
    Known,
    as_read,
    complete_iteration,
    first_summaries,
    mean_change,
    member_of,
    next_summary,
    output,
    probabilities,
    reads_apart,
    replay,
)
from hopf_jax.inference.traced_replay import EdgeList, whole_program
from hopf_jax.inference.whole_graph import (
    LEAST_CHUNK_EDGES,
    Chunk,
    WholeGraph,
    collect,
    edges_per_chunk,
    is_small_graph,
    nodes_by_distance,
    nodes_per_chunk,
    process_share,
)

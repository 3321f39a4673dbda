"""The graph: construction, validation, labels, splits and storage."""

from hopf_jax.graph.graph import SPLITS, Graph
from hopf_jax.graph.splits import check_draw, decode_split, draw_split, split_graph
from hopf_jax.graph.storage import describe, new_folder, open_graph, write_graph
from hopf_jax.graph.validation import (
    check_ids,
    check_nodes,
    check_number,
    check_whole,
    to_array,
)

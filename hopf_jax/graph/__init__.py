"""The graph: construction, validation, labels, features, splits and storage."""

from hopf_jax.graph.changes import Changes, Schema, read_changes
from hopf_jax.graph.editing import EditableGraph, ReadEdges, Touched
from hopf_jax.graph.encoding import match_columns
from hopf_jax.graph.features import (
    normalize_rows,
    prefers_sparse,
    row_norm,
    sample_rows,
)
from hopf_jax.graph.ghost_edges import add_ghost_edges
from hopf_jax.graph.graph import SPLITS, Graph, as_graph
from hopf_jax.graph.growing import EditableRows, Growing, Journal, ranges, undo
from hopf_jax.graph.labels import Label, check_distinct, classes_from_json
from hopf_jax.graph.mistakes import which_call
from hopf_jax.graph.names import NodeIndex, names_from_json, names_to_json
from hopf_jax.graph.part_graph import PartGraph
from hopf_jax.graph.positions import fingerprint
from hopf_jax.graph.scaling import Scaling, learn_scaling, select_columns
from hopf_jax.graph.splits import (
    check_draw,
    complete_split,
    decode_split,
    draw_folds,
    paper_masks,
    paper_split,
    split_graph,
    stratified_folds,
)
from hopf_jax.graph.storage import (
    GRAPH_FILE,
    new_graph_folder,
    open_graph,
    write_graph,
)
from hopf_jax.graph.validation import (
    check_csr,
    check_ids,
    check_nodes,
    check_sparse,
    check_value,
    check_whole,
    to_array,
)

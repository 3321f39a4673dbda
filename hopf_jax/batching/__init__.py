"""From a graph to padded subgraphs on a device."""

from hopf_jax.batching.grouping import deal
from hopf_jax.batching.loader import Group, Loader, LoaderSettings
from hopf_jax.batching.padding import (
    Batch,
    HopGraph,
    Layout,
    feature_placement,
    fill,
    fill_rows,
    node_features,
    num_values,
    pad,
    round_up,
)
from hopf_jax.batching.sharded_loader import ShardedLoader, make_loader
from hopf_jax.batching.sparse import (
    Array,
    Matrix,
    Rows,
    SparseMatrix,
    matmul,
    portable_products,
    row_of_entry,
    spmm,
    to_dense,
)
from hopf_jax.batching.subgraphs import (
    Neighborhoods,
    Subgraph,
    new_nodes,
    ranges,
    shuffle_neighbors,
    thin,
)

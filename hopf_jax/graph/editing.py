"""Graphs with changes applied."""

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.graph.changes import Changes, Schema
from hopf_jax.graph.graph import Graph


def schema_of(graph: Graph, labels: tuple[Any, ...]) -> Schema:
    """Return what changes of a graph have to fit.

    Args:
      graph: The graph.
      labels: C labels as a user calls them.
    """
    return Schema(
        num_features=graph.num_features,
        feature_names=graph.feature_names,
        sparse=sp.issparse(graph.features),
        missing=graph.missing_values,
        positional=graph.positional,
        weighted=graph.weights is not None,
        named=bool(graph.node_names),
        multilabel=graph.multilabel,
        labels=labels,
    )


def change_graph(graph: Graph, changes: Changes) -> Graph:
    """Return a graph with changes; nodes after a dropped one move up."""
    old, n = graph.num_nodes, graph.num_nodes + changes.num_new
    total = graph.adjacency.copy()
    total.resize((n, n))
    for edges, sign in ((changes.removed, -1), (changes.added, 1)):
        ends = edges.receivers, edges.senders
        part = sp.coo_array((edges.weights, ends), (n, n)).tocsr()
        if graph.weights is None and part.nnz:
            part.data[:] = 1
        if not graph.directed:
            part = part.maximum(part.T.tocsr())
        if sign < 0:
            here = (part > 0).astype(np.float32)
            total = total - total.multiply(here)
        else:
            total = total + part
    total = sp.csr_array(total)
    if not graph.adjacency.diagonal().any():
        total = total - sp.diags_array(total.diagonal(), format="csr")
    keep = np.setdiff1d(np.arange(n), changes.dropped)
    total = sp.csr_array(sp.csr_array(total)[keep][:, keep])
    total.eliminate_zeros()
    total.sort_indices()
    if graph.weights is None:
        total.data[:] = 1

    def longer(array: np.ndarray) -> np.ndarray:
        return np.concatenate(
            [array, np.zeros((n - old, *array.shape[1:]), array.dtype)]
        )

    stack = sp.vstack if sp.issparse(graph.features) else np.concatenate
    features = stack([graph.features, changes.features])
    if sp.issparse(features):
        features = sp.csr_array(features).tolil()
        features[changes.revised] = changes.revised_features
        features = features.tocsr()
    else:
        features[changes.revised] = changes.revised_features
    labels, known, train = map(longer, (graph.labels, graph.known, graph.train))
    at = changes.labelled
    labels[at], known[at], train[at] = changes.labels, changes.known, changes.known
    validation, test = longer(graph.validation), longer(graph.test)
    validation[at] = test[at] = False
    names = (*graph.node_names, *changes.names)
    return dataclasses.replace(
        graph,
        indptr=total.indptr.astype(np.int64),
        indices=total.indices,
        weights=None if graph.weights is None else total.data.astype(np.float32),
        features=sp.csr_array(features[keep])
        if sp.issparse(features)
        else features[keep],
        labels=labels[keep],
        known=known[keep],
        train=train[keep],
        validation=validation[keep],
        test=test[keep],
        node_names=tuple(names[i] for i in keep) if names else (),
    )

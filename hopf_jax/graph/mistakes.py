"""Likely mistakes in calls that make a graph, and messages that name the right call."""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

from hopf_jax.suggestions import did_you_mean


def check_call(senders: Any, receivers: Any, features: Any, labels: Any) -> None:
    """Raise `ValueError` if `from_edges` was given something else than edges."""
    if hasattr(senders, "nodes") and hasattr(senders, "is_directed"):
        _refuse("senders is a networkx graph", "from_networkx(graph, features, labels)")
    if hasattr(senders, "n_node") and hasattr(senders, "senders"):
        _refuse("senders is a GraphsTuple", "from_jraph(graph, labels)")
    if hasattr(senders, "edge_index"):
        _refuse("senders is a Data of PyTorch Geometric", "from_pyg(data)")
    if sp.issparse(senders):
        _refuse("senders is a sparse matrix", "from_scipy(adjacency, features, labels)")
    shape = _shape(senders)
    if shape is None or len(shape) != 2:
        _check_swapped(features, labels)
        return
    what = f"senders has shape {shape}"
    if shape[0] == 2:
        _refuse(
            f"{what}: it looks like an edge_index",
            "from_edges(edge_index[0], edge_index[1], features, labels)",
        )
    if shape[1] == 2:
        _refuse(
            f"{what}: it looks like a list of pairs",
            "from_edges(pairs[:, 0], pairs[:, 1], features, labels) with "
            "pairs = numpy.asarray(pairs)",
        )
    if shape[0] == shape[1]:
        _refuse(
            f"{what}: it looks like an adjacency matrix",
            "from_scipy(scipy.sparse.csr_array(adjacency), features, labels)",
        )


def which_call(value: Any) -> str:
    """Return what a value is, and which call makes a graph of it."""
    labels = ""
    if hasattr(value, "nodes") and hasattr(value, "is_directed"):
        known: dict[str, None] = {}
        for node in value.nodes:
            known |= dict.fromkeys(map(str, value.nodes[node]))
        listed = ", ".join(map(repr, known))
        labels = (
            f", labels={next(iter(known))!r}" if len(known) == 1 else ", labels=..."
        )
        about = (
            f" The attributes of its nodes: {listed}."
            if known
            else (" Its nodes have no attributes: labels can be a dictionary by node.")
        )
        call = f"Graph.from_networkx(graph{labels})"
        return (
            "a networkx graph. Say which attribute of its nodes is the label: "
            f"hopf_jax.{call}.{about}"
        )
    kind, call = _kind_and_call(value)
    return f"{kind}. Make a graph of it: hopf_jax.{call}."


def _kind_and_call(value: Any) -> tuple[str, str]:
    """Return what a value is, and the call that makes a graph of such values."""
    edges = "Graph.from_edges(senders, receivers, ...)"
    if hasattr(value, "n_node") and hasattr(value, "senders"):
        return "a GraphsTuple of jraph", "Graph.from_jraph(graph, labels)"
    if sp.issparse(value):
        return "a sparse matrix", "Graph.from_scipy(graph, features, labels)"
    if hasattr(value, "columns") and hasattr(value, "iloc"):
        return "a DataFrame", "Graph.from_pandas(edges, nodes, labels=...)"
    if isinstance(value, str | bytes | os.PathLike):
        read = "pandas.read_csv(...)"
        call = f"Graph.from_pandas({read}, {read}, labels=...)"
        dataset = "hopf_jax.load_dataset loads a known dataset by its name"
        return f"{value!r}. {dataset}; a file has to be read first", call
    shape = _shape(value)
    if shape is not None and len(shape) == 2:
        what = f"an array of shape {shape}"
        if shape[1] == 2:
            return (
                f"a {type(value).__name__} of pairs",
                "Graph.from_edges(*zip(*graph), features, labels)",
            )
        if shape[0] == shape[1]:
            matrix = "scipy.sparse.csr_array(graph)"
            return what, f"Graph.from_scipy({matrix}, features, labels)"
        if shape[0] == 2:
            return what, "Graph.from_edges(*graph, features, labels)"
    kind = type(value)
    room = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"a {room}{kind.__name__}", edges


def refuse_whole_graph(value: Any, what: str) -> None:
    """Raise `ValueError` for a graph or a table of features in place of nodes."""
    kind = None
    if hasattr(value, "nodes") and hasattr(value, "is_directed"):
        kind = "a networkx graph"
    elif (
        sp.issparse(value) or hasattr(value, "edge_index") or hasattr(value, "columns")
    ):
        kind = _kind_and_call(value)[0]
    elif len(getattr(value, "shape", ())) > 1:
        kind = f"an array of shape {value.shape}"
    if kind is not None:
        raise ValueError(
            f"{what} is {kind}. Give names or ids of nodes, or a mask; to predict on "
            "another graph, a hopf_jax.Graph with the same features."
        )


def check_size(features: Any, labels: Any, num_nodes: int | None, *ends: Any) -> None:
    """Raise `ValueError` for features that have nodes as columns.

    Args:
      features: As the user gave them.
      labels: As the user gave them.
      num_nodes: Number of nodes as the edges have it, if known.
      ends: Ids of nodes, [E] each, for which columns would have to suffice.
    """
    shape, own = _shape(features), _shape(labels)
    wanted = {num_nodes}
    if own is not None and len(own) in (1, 2):
        wanted.add(own[0])
    if shape is None or len(shape) != 2 or shape[0] in wanted:
        return
    arrays = [np.asarray(each) for each in ends]
    largest = [int(a.max()) for a in arrays if a.size and a.dtype.kind in "iu"]
    if shape[1] in wanted - {None} and shape[1] > max(largest, default=-1):
        raise ValueError(
            f"features has shape {shape}, but there are {shape[1]} nodes: it looks "
            "transposed. Give one row per node, features.T."
        )


def check_mask(nodes: Any, num_nodes: int, name: str) -> None:
    """Raise `ValueError` for a share, and for a mask of 0 and 1.

    The numbers of such a mask would be read as node ids.
    """
    if isinstance(nodes, float) and 0 <= nodes <= 1:
        raise ValueError(
            f"{name} is {nodes}; give names, ids or a mask of nodes. To draw a share "
            f"of the labelled ones, call hopf_jax.split_graph(graph, {name}={nodes})."
        )
    shape = _shape(nodes)
    if shape != (num_nodes,) or num_nodes < 3:
        return
    array = np.asarray(nodes)
    if array.dtype.kind in "iu" and array.max() <= 1 and array.min() >= 0:
        raise ValueError(
            f"{name} holds {num_nodes} numbers, all of them 0 or 1: it looks like a "
            "mask, but whole numbers are node ids. Make it a mask with "
            f"numpy.asarray({name}, bool)."
        )


def number_from_one(senders: np.ndarray, receivers: np.ndarray, num_nodes: int) -> None:
    """Raise `ValueError` for node ids that start at 1."""
    if not senders.size or not receivers.size:
        return
    if senders.dtype.kind not in "iu" or receivers.dtype.kind not in "iu":
        return
    least = min(senders.min(), receivers.min())
    if least == 1 and max(senders.max(), receivers.max()) == num_nodes:
        raise ValueError(
            f"The ids in senders and receivers run from 1 to {num_nodes}, but nodes "
            f"are numbered from 0 to {num_nodes - 1}. Subtract 1 from both."
        )


def check_attribute(name: str, found: Iterable[dict], of: str) -> None:
    """Raise `ValueError` for the name of an attribute that no node or edge has.

    Args:
      name: The attribute.
      found: The attributes of all nodes or edges.
      of: "node" or "edge".
    """
    known: dict[str, None] = {}
    for attributes in found:
        if name in attributes:
            return
        known |= dict.fromkeys(map(str, attributes))
    hint = did_you_mean(name, known)
    hint += " " * bool(hint)
    listed = ", ".join(map(repr, known)) if known else "none"
    raise ValueError(
        f"No {of} has an attribute {name!r}. {hint}The {of}s' attributes: {listed}."
    )


def check_answer_is_hidden(features: Any, labels: Any) -> None:
    """Raise `ValueError` if names of features include that of the label."""
    names = [features] if isinstance(features, str) else features
    if isinstance(labels, str) and isinstance(names, list | tuple) and labels in names:
        raise ValueError(
            f"features includes {labels!r}, which is the label. Leave it out: a model "
            "that reads the label as a feature cannot predict it for other nodes."
        )


def _check_swapped(features: Any, labels: Any) -> None:
    one, two = _shape(features), _shape(labels)
    if one is None or two is None or len(one) != 1 or len(two) != 2:
        return
    if one[0] == two[0] or one[0] in two:
        raise ValueError(
            f"features has shape {one} and labels has shape {two}: they look swapped. "
            "Call Graph.from_edges(senders, receivers, features, labels)."
        )


def _refuse(what: str, call: str) -> None:
    raise ValueError(f"{what}. Call Graph.{call}.")


def _shape(values: Any) -> tuple[int, ...] | None:
    """Return the shape of an array or of nested lists; None of anything else."""
    shape = getattr(values, "shape", None)
    if isinstance(shape, tuple):
        return tuple(int(size) for size in shape)
    if not isinstance(values, list | tuple):
        return None
    try:
        return np.shape(values)
    except ValueError:
        return None

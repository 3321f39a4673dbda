"""Every way to make a `Graph`: the right one, or a ValueError that says why not."""

import dataclasses
import types

import jraph
import networkx as nx
import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from hopf_jax import Graph
from tests.fuzzing import Refused, anything, attempt, fuzz

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")


@dataclasses.dataclass
class Case:
    """Arguments of `Graph.from_edges`, and what should come of them."""

    arguments: dict
    adjacency: np.ndarray  # dense, by the documented rules
    names: list  # the label of each node as text, None where unknown

    @property
    def num_nodes(self):
        return len(self.adjacency)


def dense(senders, receivers, weights, n, directed, self_loops):
    """A by its definition."""
    matrix = np.zeros((n, n))
    if weights is None:
        matrix[receivers, senders] = 1
    else:
        np.add.at(matrix, (receivers, senders), weights.astype(np.float32))
    if not directed:
        matrix = np.maximum(matrix, matrix.T)
    if self_loops == "drop":
        np.fill_diagonal(matrix, 0)
    return matrix


def labels_of(kind, n, rng):
    """Labels of a kind, what each node's is called, multi-label?"""
    ids = rng.integers(0, 4, n)
    unknown = rng.random(n) < 0.2
    names = [None if u else str(i) for u, i in zip(unknown, ids, strict=True)]
    if kind == "none":
        return None, [None] * n
    if kind == "one class":
        return np.zeros(n, np.int64), ["0"] * n
    if kind == "strings":
        return [None if v is None else "class " + v for v in names], [
            None if v is None else "class " + v for v in names
        ]
    if kind == "bytes":
        return np.array([b"" if v is None else v.encode() for v in names], "S3"), names
    if kind == "objects":
        return np.array(
            [None if u else int(i) for u, i in zip(unknown, ids, strict=True)], object
        ), names
    if kind in FLOATS:
        return np.where(unknown, np.nan, ids).astype(kind), names
    if kind == "one-hot":
        matrix = np.eye(4)[ids]
        matrix[unknown] = 0
        return matrix.astype(rng.choice(["bool", "int8", "float64"])), names
    if kind.startswith("u"):
        return ids.astype(kind), [str(i) for i in ids]
    return np.where(unknown, -1, ids).astype(kind), names


@st.composite
def cases(draw):
    """Good input, in any form that is accepted."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 50))
    num_edges = draw(st.sampled_from([0, 1, n, 3 * n]))
    kind = draw(st.sampled_from(INTEGERS))
    senders = rng.integers(0, n, num_edges).astype(kind)
    receivers = rng.integers(0, n, num_edges).astype(draw(st.sampled_from(INTEGERS)))
    weights = None
    if draw(st.booleans()):
        weights = rng.choice([0, 1, 2, 0.25, 1000], num_edges)
        weights = weights.astype(draw(st.sampled_from(FLOATS)))
    width = draw(st.integers(0, 6))
    features = rng.integers(0, 3, (n, width))
    features = features.astype(draw(st.sampled_from(("bool", *INTEGERS, *FLOATS))))
    form = draw(st.sampled_from(["array", "list", "csr", "coo", "fortran"]))
    if form == "list":
        features = [list(row) for row in features.tolist()] if width else features
    elif form == "fortran":
        features = np.asfortranarray(features)
    elif form in ("csr", "coo"):
        if features.dtype == np.float16:  # Which scipy does not know.
            features = features.astype(np.float32)
        features = sp.coo_array(features).asformat(form)
    directed = draw(st.booleans())
    self_loops = draw(st.sampled_from(["drop", "keep"]))
    label_kinds = ("none", "one class", "strings", "bytes", "objects", "one-hot")
    labels, names = labels_of(
        draw(st.sampled_from((*label_kinds, *INTEGERS, *FLOATS))), n, rng
    )
    sets = {}
    if draw(st.booleans()):
        known = np.array([v is not None for v in names], bool)
        member = np.where(known, rng.integers(0, 4, n), 3)
        for i, name in enumerate(("train", "validation", "test")):
            mask = member == i
            sets[name] = mask if draw(st.booleans()) else np.flatnonzero(mask)
    arguments = {
        "senders": senders,
        "receivers": receivers,
        "features": features,
        "labels": labels,
        "weights": weights,
        "directed": directed,
        "self_loops": self_loops,
    } | sets
    adjacency = dense(
        senders.astype(np.int64),
        receivers.astype(np.int64),
        weights,
        n,
        directed,
        self_loops,
    )
    return Case(arguments, adjacency, names)


def plain(features):
    return features.toarray() if sp.issparse(features) else np.asarray(features)


def check_consistent(graph):
    """What holds of every graph, however it was made."""
    n = graph.num_nodes
    assert n > 0 and graph.indptr[0] == 0 and graph.indptr[-1] == graph.num_edges
    assert (np.diff(graph.indptr) >= 0).all()
    rows = np.repeat(np.arange(n), np.diff(graph.indptr))
    assert graph.num_edges == 0 or 0 <= graph.indices.min() <= graph.indices.max() < n
    order = rows * n + graph.indices
    assert (np.diff(order) > 0).all(), "neighbours in order, none twice"
    assert (
        graph.weights is None
        or (np.isfinite(graph.weights) & (graph.weights > 0)).all()
    )
    assert np.isfinite(graph.degree).all()
    features = plain(graph.features)
    assert features.shape == (n, graph.num_features) and np.isfinite(features).all()
    assert graph.labels.shape == (n, graph.num_labels) == (n, len(graph.label_names))
    assert len(set(graph.label_names)) == len(graph.label_names)
    if not graph.multilabel:
        np.testing.assert_array_equal(graph.labels.sum(axis=1), graph.known)
    sets = np.array([graph.train, graph.validation, graph.test], int)
    assert sets.shape == (3, n) and sets.sum(axis=0).max() <= 1
    assert graph.known[sets.any(axis=0)].all()
    assert repr(graph)


def check_right(graph, case):
    """The graph is the one that was described."""
    assert not isinstance(graph, Refused), graph
    check_consistent(graph)
    np.testing.assert_allclose(graph.adjacency.toarray(), case.adjacency, rtol=1e-5)
    np.testing.assert_allclose(graph.degree, case.adjacency.sum(axis=1), rtol=1e-5)
    wanted = plain(case.arguments["features"]).astype(np.float32)
    np.testing.assert_array_equal(plain(graph.features), wanted)
    found = [
        graph.label_names[row.argmax()] if known else None
        for row, known in zip(graph.labels, graph.known, strict=True)
    ]
    assert found == case.names
    for name in ("train", "validation", "test"):
        nodes = np.asarray(case.arguments.get(name, []), int)
        if nodes.size and case.arguments[name].dtype == bool:
            nodes = np.flatnonzero(case.arguments[name])
        np.testing.assert_array_equal(np.flatnonzero(getattr(graph, name)), nodes)


@fuzz(25, 400, case=cases())
def test_edges_in_any_form_make_the_graph_they_describe(case):
    check_right(attempt(Graph.from_edges, **case.arguments), case)


def csr_of(case):
    """The same edges as CSR rows, unsorted within a row."""
    rest = dict(case.arguments)
    senders, receivers = rest.pop("senders"), rest.pop("receivers")
    order = np.argsort(receivers, kind="stable")
    counts = np.bincount(receivers.astype(np.int64), minlength=case.num_nodes)
    weights = rest.pop("weights")
    rest |= {"indptr": np.concatenate([[0], np.cumsum(counts)])}
    rest |= {"indices": senders[order]}
    return rest | {"weights": None if weights is None else weights[order]}


@fuzz(15, 200, case=cases())
def test_csr_rows_make_the_same(case):
    check_right(attempt(Graph.from_csr, **csr_of(case)), case)


@fuzz(15, 200, case=cases(), form=st.sampled_from(["csr", "csc", "coo", "lil", "dok"]))
def test_a_scipy_matrix_makes_the_same(case, form):
    rest = dict(case.arguments)
    ends = [rest.pop(name).astype(np.int64) for name in ("receivers", "senders")]
    weights = rest.pop("weights")
    values = np.ones(len(ends[0]), bool) if weights is None else weights
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    # Its own sum of duplicates, as a user's matrix has it.
    matrix = sp.coo_array((values, tuple(ends)), (case.num_nodes,) * 2).tocsr()
    check_right(attempt(Graph.from_scipy, matrix.asformat(form), **rest), case)


@fuzz(15, 200, case=cases(), names=st.sampled_from([str, float, lambda i: (i, "a")]))
def test_a_networkx_graph_makes_the_same(case, names):
    rest = dict(case.arguments)
    senders, receivers = rest.pop("senders").tolist(), rest.pop("receivers").tolist()
    weights = rest.pop("weights")
    directed = rest.pop("directed")
    kind = nx.MultiDiGraph if directed else nx.MultiGraph
    if weights is not None and not directed:
        # Either way round, an edge of networkx is one edge: its weights add.
        low, high = np.minimum(senders, receivers), np.maximum(senders, receivers)
        case = dataclasses.replace(
            case,
            adjacency=dense(
                low.astype(int),
                high.astype(int),
                weights,
                case.num_nodes,
                False,
                rest["self_loops"],
            ),
        )
        senders, receivers = low.tolist(), high.tolist()
    graph = kind()
    graph.add_nodes_from(names(i) for i in range(case.num_nodes))
    for e, (i, j) in enumerate(zip(senders, receivers, strict=True)):
        keywords = {} if weights is None else {"w": float(np.float32(weights[e]))}
        graph.add_edge(names(i), names(j), **keywords)
    made = attempt(
        Graph.from_networkx, graph, weight=None if weights is None else "w", **rest
    )
    check_right(made, case)


@fuzz(15, 200, case=cases())
def test_a_graphs_tuple_makes_the_same(case):
    rest = dict(case.arguments)
    features = plain(rest.pop("features"))
    weights = rest.pop("weights")
    senders, receivers = rest.pop("senders"), rest.pop("receivers")
    graph = jraph.GraphsTuple(
        nodes=features,
        edges=None if weights is None else weights[:, None],
        senders=senders,
        receivers=receivers,
        globals=None,
        n_node=np.array([case.num_nodes]),
        n_edge=np.array([len(senders)]),
    )
    check_right(attempt(Graph.from_jraph, graph, **rest), case)


@fuzz(10, 100, case=cases())
def test_data_of_pyg_makes_the_same(case):
    rest = dict(case.arguments)
    data = types.SimpleNamespace(
        x=plain(rest.pop("features")),
        edge_index=np.stack(
            [rest.pop(e).astype(np.int64) for e in ("senders", "receivers")]
        ),
        edge_weight=rest.pop("weights"),
    )
    if rest["labels"] is not None:
        rest["labels"] = np.asarray(rest["labels"])
        data.y = rest.pop("labels")
    check_right(attempt(Graph.from_pyg, data, **rest), case)


# Input with a fault


def _set(name, value, dtype):
    def spoil(arguments, rng):
        array = np.array(plain(arguments[name]))
        if array.size == 0 or array.dtype.kind not in "fiub":
            return False
        array = array.astype(dtype)
        array[tuple(rng.integers(0, s) for s in array.shape)] = value
        arguments[name] = array
        return True

    return spoil


def _longer(name):
    def spoil(arguments, rng):
        array = plain(arguments[name]) if arguments[name] is not None else None
        if array is None or array.ndim == 0:
            return False
        arguments[name] = np.concatenate([array, np.zeros_like(array[:1])])
        return len(arguments[name]) > len(array)

    return spoil


def _replace(**values):
    def spoil(arguments, rng):
        arguments.update(values)
        return True

    return spoil


def _names(*names):
    def spoil(arguments, rng):
        arguments["labels"] = np.arange(len(plain(arguments["features"]))) % 4
        arguments["label_names"] = names
        return len(arguments["labels"]) > 3

    return spoil


def _unknown_in_train(arguments, rng):
    n = len(plain(arguments["features"]))
    arguments["labels"] = np.full(n, -1)
    arguments["train"] = [0]
    return True


def _overlap(arguments, rng):
    n = len(plain(arguments["features"]))
    arguments["labels"] = np.zeros(n, int)
    arguments.update(train=[n - 1], validation=None, test=np.arange(n) == n - 1)
    return True


FAULTS = {
    "negative sender": _set("senders", -1, "int64"),
    "huge sender": _set("senders", 2**62, "int64"),
    "beyond 64 bits": _set("receivers", 2**64 - 1, "uint64"),
    "huge integer": _replace(senders=[10**30], receivers=[0], weights=None),
    "receiver out of range": _set("receivers", 50, "int64"),
    "float ids": _replace(senders=[0.0], receivers=[0.0], weights=None),
    "boolean ids": _replace(senders=[True], receivers=[True], weights=None),
    "more senders": _longer("senders"),
    "more receivers": _longer("receivers"),
    "more weights": _longer("weights"),
    "text as weights": _replace(senders=[0], receivers=[0], weights=["a"]),
    "matrix of weights": _replace(senders=[0], receivers=[0], weights=[[1.0]]),
    "negative weight": _replace(senders=[0], receivers=[0], weights=[-1.0]),
    "infinite weight": _replace(senders=[0], receivers=[0], weights=[np.inf]),
    "weight beyond float32": _replace(senders=[0], receivers=[0], weights=[1e300]),
    "weights whose sum is": _replace(
        senders=[0, 0], receivers=[0, 0], weights=[3e38, 3e38], self_loops="keep"
    ),
    "NaN feature": _set("features", np.nan, "float64"),
    "infinite feature": _set("features", -np.inf, "float64"),
    "feature beyond float32": _set("features", 1e300, "float64"),
    "complex features": _set("features", 1j, "complex128"),
    "more features": _longer("features"),
    "no features": _replace(features=None),
    "a column": _replace(features=np.zeros(3)),
    "text as features": _replace(features=[["a"]]),
    "ragged features": _replace(features=[[1], [1, 2]]),
    "empty": _replace(features=np.zeros((0, 3)), labels=None),
    "complex sparse features": _replace(features=sp.csr_array([[1j]]), labels=None),
    "flat sparse features": _replace(features=sp.coo_array([1.0, 2.0])),
    "features whose sum overflows": _replace(
        features=sp.coo_array(([3e38, 3e38], ([0, 0], [0, 0])), (50, 1)), labels=None
    ),
    "more labels": _longer("labels"),
    "fraction as class": _set("labels", 0.5, "float64"),
    "class -2": _set("labels", -2, "int64"),
    "ragged labels": _replace(labels=[[1], [0, 1]]),
    "cube of labels": _replace(labels=np.zeros((2, 2, 2))),
    "a name twice": _names("a", "a", "b", "c"),
    "too few names": _names("a"),
    "other self-loops": _replace(self_loops="both"),
    "train out of range": _replace(train=[50]),
    "short mask": _replace(train=np.zeros(51, bool)),
    "unlabelled training node": _unknown_in_train,
    "node in two sets": _overlap,
}


@fuzz(
    60,
    600,
    case=cases(),
    fault=st.sampled_from(sorted(FAULTS)),
    seed=st.integers(0, 99),
)
def test_each_fault_is_refused(case, fault, seed):
    arguments = dict(case.arguments)
    if FAULTS[fault](arguments, np.random.default_rng(seed)):
        made = attempt(Graph.from_edges, **arguments)
        assert isinstance(made, Refused), f"{fault}: {made}"


FIELDS = (
    "senders",
    "receivers",
    "features",
    "labels",
    "weights",
    "train",
    "validation",
    "test",
    "directed",
    "self_loops",
    "multilabel",
    "label_names",
)


@fuzz(60, 600, case=cases(), field=st.sampled_from(FIELDS), value=anything)
def test_anything_in_place_of_an_argument(case, field, value):
    made = attempt(Graph.from_edges, **case.arguments | {field: value})
    if not isinstance(made, Refused):
        check_consistent(made)


@fuzz(
    20, 200, case=cases(), field=st.sampled_from(["indptr", "indices"]), value=anything
)
def test_anything_in_place_of_csr_rows(case, field, value):
    made = attempt(Graph.from_csr, **csr_of(case) | {field: value})
    if not isinstance(made, Refused):
        check_consistent(made)


@fuzz(
    20,
    200,
    indptr=st.lists(st.sampled_from([0, 1, 2, 3, -2, 2**62, 2**63 - 1]), max_size=5),
)
def test_row_pointers_of_any_size(indptr):
    features = np.zeros((max(len(indptr) - 1, 1), 1))
    made = attempt(Graph.from_csr, indptr, [0, 0], features)
    if not isinstance(made, Refused):
        assert sorted(indptr) == indptr and indptr[0] == 0 and indptr[-1] == 2


@fuzz(
    20,
    100,
    least=0.5,
    make=st.sampled_from(["from_scipy", "from_networkx", "from_jraph", "from_pyg"]),
    value=anything,
)
def test_anything_in_place_of_a_graph(make, value):
    rest = [np.zeros((3, 2))] if make in ("from_scipy", "from_networkx") else []
    assert isinstance(attempt(getattr(Graph, make), value, *rest), Refused)


@fuzz(
    20,
    200,
    values=st.lists(anything, min_size=3, max_size=3),
    which=st.sampled_from(["features", "labels", "weight"]),
)
def test_anything_as_an_attribute_of_networkx(values, which):
    graph = nx.path_graph(3)
    for node, value in enumerate(values):
        graph.nodes[node].update(x=value if which == "features" else [1.0, node])
        if value is not None and which == "labels":
            graph.nodes[node]["y"] = value
        if which == "weight" and node:
            graph.edges[node - 1, node]["w"] = value
    weight = "w" if which == "weight" else None
    made = attempt(Graph.from_networkx, graph, "x", "y", weight=weight)
    if not isinstance(made, Refused):
        check_consistent(made)


@fuzz(20, 100, nodes=anything, edges=anything, ends=anything)
def test_anything_in_a_graphs_tuple(nodes, edges, ends):
    graph = jraph.GraphsTuple(nodes, edges, ends, ends, None, None, None)
    made = attempt(Graph.from_jraph, graph)
    if not isinstance(made, Refused):
        check_consistent(made)


@fuzz(
    20,
    150,
    case=cases(),
    name=st.sampled_from(["train", "validation", "test"]),
    value=anything,
)
def test_anything_as_a_set(case, name, value):
    graph = Graph.from_edges(**case.arguments)
    made = attempt(graph.with_split, **{name: value})
    if not isinstance(made, Refused):
        check_consistent(made)


def test_a_hub_of_fifty_thousand():
    spokes = np.arange(1, 50_001)
    graph = Graph.from_edges(spokes, np.zeros_like(spokes), np.ones((50_001, 1)))
    assert graph.num_edges == 100_000 and graph.degree[0] == 50_000
    assert (graph.degree[1:] == 1).all()


def test_a_small_degree_beside_a_huge_one():
    weights = np.array([1e30, 1], np.float32)
    graph = Graph.from_edges([0, 2], [1, 3], np.ones((4, 1)), weights=weights)
    np.testing.assert_array_equal(graph.degree, weights[[0, 0, 1, 1]])

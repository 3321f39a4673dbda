"""Every way to make a `Graph`: the right graph, or a ValueError that says why."""

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
    """Labels of a kind, and the name of each node's label."""
    ids = rng.integers(0, 4, n)
    unknown = rng.random(n) < 0.2
    names = [None if u else str(i) for u, i in zip(unknown, ids, strict=True)]
    if kind == "none":
        return None, [None] * n
    if kind == "one class":
        return np.zeros(n, np.int64), ["0"] * n
    if kind == "strings":
        names = [None if v is None else "class " + v for v in names]
        return names, names
    if kind == "bytes":
        return np.array([b"" if v is None else v.encode() for v in names], "S3"), names
    if kind == "objects":
        return np.array([v if v is None else int(v) for v in names], object), names
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
    senders, receivers = (
        rng.integers(0, n, num_edges).astype(draw(st.sampled_from(INTEGERS)))
        for _ in range(2)
    )
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
    arguments = {"senders": senders, "receivers": receivers, "weights": weights} | sets
    arguments |= {"features": features, "labels": labels}
    arguments |= {"directed": directed, "self_loops": self_loops}
    ends = senders.astype(np.int64), receivers.astype(np.int64)
    adjacency = dense(*ends, weights, n, directed, self_loops)
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
    weights = np.ones(0) if graph.weights is None else graph.weights
    assert (np.isfinite(weights) & (weights > 0)).all()
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


def as_edges(case, rng):
    return Graph.from_edges, case.arguments


def as_csr(case, rng):
    """CSR rows, unsorted within a row."""
    rest = dict(case.arguments)
    senders, receivers = rest.pop("senders"), rest.pop("receivers")
    order = np.argsort(receivers, kind="stable")
    counts = np.bincount(receivers.astype(np.int64), minlength=case.num_nodes)
    if rest["weights"] is not None:
        rest["weights"] = rest["weights"][order]
    rest |= {"indptr": np.concatenate([[0], np.cumsum(counts)])}
    return Graph.from_csr, rest | {"indices": senders[order]}


def as_scipy(case, rng):
    rest = dict(case.arguments)
    ends = [rest.pop(name).astype(np.int64) for name in ("receivers", "senders")]
    weights = rest.pop("weights")
    values = np.ones(len(ends[0]), bool) if weights is None else weights
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    matrix = sp.coo_array((values, tuple(ends)), (case.num_nodes,) * 2).tocsr()
    form = rng.choice(["csr", "csc", "coo", "lil", "dok"])
    return Graph.from_scipy, rest | {"adjacency": matrix.asformat(form)}


def as_networkx(case, rng):
    rest = dict(case.arguments)
    ends = np.array([rest.pop("senders"), rest.pop("receivers")], int)
    weights, directed = rest.pop("weights"), rest.pop("directed")
    if weights is not None and not directed:
        # An undirected edge of networkx is the same either way round: weights add.
        ends = np.sort(ends, axis=0)
        loops = rest["self_loops"]
        case.adjacency = dense(*ends, weights, case.num_nodes, False, loops)
    name = [str, float, lambda i: (i, "a")][rng.integers(3)]
    graph = (nx.MultiDiGraph if directed else nx.MultiGraph)()
    graph.add_nodes_from(map(name, range(case.num_nodes)))
    for e, (i, j) in enumerate(ends.T.tolist()):
        keywords = {} if weights is None else {"w": float(np.float32(weights[e]))}
        graph.add_edge(name(i), name(j), **keywords)
    weight = None if weights is None else "w"
    return Graph.from_networkx, rest | {"graph": graph, "weight": weight}


def as_jraph(case, rng):
    rest = dict(case.arguments)
    weights = rest.pop("weights")
    if weights is not None and rng.integers(2):
        weights = weights[:, None]
    graph = jraph.GraphsTuple(
        nodes=plain(rest.pop("features")),
        edges=weights,
        senders=rest.pop("senders"),
        receivers=rest.pop("receivers"),
        globals=None,
        n_node=None,
        n_edge=None,
    )
    return Graph.from_jraph, rest | {"graph": graph}


def as_pyg(case, rng):
    rest = dict(case.arguments)
    ends = [rest.pop(name).astype(np.int64) for name in ("senders", "receivers")]
    data = types.SimpleNamespace(
        x=plain(rest.pop("features")),
        edge_index=np.stack(ends),
        edge_weight=rest.pop("weights"),
    )
    if rest["labels"] is not None:
        data.y = np.asarray(rest.pop("labels"))
    return Graph.from_pyg, rest | {"data": data}


FORMS = (as_edges, as_csr, as_scipy, as_networkx, as_jraph, as_pyg)


@fuzz(95, 1300, case=cases(), form=st.sampled_from(FORMS), seed=st.integers(0, 99))
def test_every_constructor_makes_the_graph_that_is_described(case, form, seed):
    make, arguments = form(case, np.random.default_rng(seed))
    check_right(attempt(make, **arguments), case)


# Input with a fault


def _set(name, value, dtype):
    def spoil(arguments, rng):
        array = np.array(plain(arguments[name]))
        if array.size == 0 or array.dtype.kind not in "fiub":
            return None
        array = array.astype(dtype)
        place = tuple(int(rng.integers(0, size)) for size in array.shape)
        array[place] = value
        arguments[name] = array
        return place if name == "features" else place[:1]

    return spoil


def _longer(name):
    def spoil(arguments, rng):
        array = None if arguments[name] is None else plain(arguments[name])
        if array is None or len(array) == 0:
            return None
        arguments[name] = np.concatenate([array, array[:1]])
        return ()

    return spoil


def _replace(**values):
    def spoil(arguments, rng):
        arguments.update(values)
        return ()

    return spoil


def _one_edge(**values):
    return _replace(**{"senders": [0], "receivers": [0], "weights": None} | values)


def _classes(class_of, **values):
    """Labels by node, and other arguments that are functions of the number of nodes."""

    def spoil(arguments, rng):
        n = len(plain(arguments["features"]))
        arguments.update(labels=class_of(np.arange(n)), validation=None, test=None)
        arguments.update({k: v(n) if callable(v) else v for k, v in values.items()})
        return () if n > 3 else None

    return spoil


def _huge(value):
    return sp.coo_array(([value, value], ([0, 0], [0, 0])), (50, 1))


# What is wrong, and what the message says; "@" is the place of the fault.
FAULTS = {
    "negative sender": (_set("senders", -1, "int64"), "senders[@] is -1, but"),
    "huge sender": (_set("senders", 2**62, "int64"), "senders[@] is 4611"),
    "beyond 64 bits": (_set("receivers", 2**64 - 1, "uint64"), "beyond 64-bit"),
    "huge integer": (_one_edge(senders=[10**30]), "senders must be a list of whole"),
    "receiver": (_set("receivers", 50, "int64"), "receivers[@] is 50, but"),
    "float ids": (_one_edge(senders=[0.0]), "senders must be a list of whole"),
    "boolean ids": (_one_edge(receivers=[True]), "receivers must be a list of whole"),
    "more senders": (_longer("senders"), "differ in length"),
    "more receivers": (_longer("receivers"), "differ in length"),
    "more weights": (_longer("weights"), "Give one weight per edge"),
    "text as weights": (_one_edge(weights=["a"]), "weights must be numbers"),
    "matrix of weights": (_one_edge(weights=[[1.0]]), "weights has shape (1, 1)"),
    "negative weight": (_one_edge(weights=[-3.0]), "weights[0] is -3"),
    "NaN weight": (_one_edge(weights=[np.nan]), "weights[0] is nan"),
    "infinite weight": (_one_edge(weights=[np.inf]), "weights[0] is inf"),
    "weight beyond float32": (_one_edge(weights=[1e300]), "weights[0] is inf"),
    "sum of weights beyond float32": (
        _replace(
            senders=[0, 0], receivers=[0, 0], weights=[3e38, 3e38], self_loops="keep"
        ),
        "edges of node 0 add up to more than",
    ),
    "NaN feature": (_set("features", np.nan, "float64"), "features[@] is nan"),
    "infinite feature": (_set("features", -np.inf, "float64"), "features[@] is -inf"),
    "feature beyond float32": (
        _set("features", 1e300, "float64"),
        "features[@] is inf",
    ),
    "complex features": (_set("features", 1j, "complex128"), "dtype complex128"),
    "a column": (_replace(features=np.zeros(3)), "it must be [nodes, features]"),
    "text as features": (_replace(features=[["a"]]), "features has dtype"),
    "ragged features": (_replace(features=[[1], [1, 2]]), "rows of one length?"),
    "empty": (
        _one_edge(senders=[], receivers=[], labels=None, features=np.zeros((0, 3))),
        "The graph is empty",
    ),
    "sparse NaN": (_replace(features=_huge(np.nan)), "features[0, 0] is nan"),
    "complex sparse features": (_replace(features=_huge(1j)), "dtype complex128"),
    "flat sparse features": (_replace(features=sp.coo_array([1.0])), "has shape (1,)"),
    "sparse beyond float32": (_replace(features=_huge(1e300)), "[0, 0] is inf"),
    "sum of features beyond float32": (_replace(features=_huge(3e38)), "[0, 0] is inf"),
    "more labels": (_longer("labels"), "labels has shape ("),
    "fraction as class": (_set("labels", 0.5, "float64"), "labels[@] is "),
    "class -2": (_set("labels", -2, "float64"), "labels[@] is "),
    "huge class": (_classes(lambda i: i * 2.0**53), "labels[1] is 9007199254740992"),
    "ragged labels": (_replace(labels=[[1], [0, 1]]), "of different lengths"),
    "cube of labels": (_replace(labels=np.zeros((2, 2, 2))), "shape (2, 2, 2)"),
    "two labels": (
        _classes(lambda i: np.ones((len(i), 2)), multilabel=False),
        "labels[0] has 2 labels, but multilabel=False",
    ),
    "ids as multi-label": (
        _classes(lambda i: i % 4, multilabel=True),
        "needs labels as a matrix",
    ),
    "a name twice": (_classes(lambda i: i % 4, label_names="aabc"), "is 'a', as is an"),
    "too few names": (
        _classes(lambda i: i % 4, label_names="a"),
        "label_names has 1 n",
    ),
    "unlisted name": (
        _classes(lambda i: np.where(i == 2, "b", "a"), label_names="a"),
        "labels[2] is 'b', which",
    ),
    "other self-loops": (_replace(self_loops="both"), "self_loops is 'both'"),
    "train out of range": (_replace(train=[0, 50]), "train[1] is 50"),
    "negative node": (_replace(test=[-1], train=None), "test[0] is -1"),
    "short mask": (_replace(train=np.zeros(51, bool)), "mask of shape (51,)"),
    "unlabelled training node": (
        _classes(lambda i: -1 * (i != 0), train=[0, 2]),
        "node 2 is in train but its label is unknown",
    ),
    "training node without labels": (
        _replace(labels=None, train=[0], validation=None, test=None),
        "node 0 is in train but its label is unknown",
    ),
    "node in train and test": (
        _classes(lambda i: 0 * i, train=[0, 2], test=lambda n: np.arange(n) == 2),
        "node 2 is in both train and test",
    ),
    "node in train and validation": (
        _classes(lambda i: 0 * i, train=[0, 1], validation=[1, 2]),
        "node 1 is in both train and validation",
    ),
}


@fuzz(8, 60, case=cases(), seed=st.integers(0, 99))
def test_each_fault_is_refused_and_named(case, seed):
    for fault, (spoil, message) in FAULTS.items():
        arguments = dict(case.arguments)
        place = spoil(arguments, np.random.default_rng(seed))
        if place is not None:
            made = attempt(Graph.from_edges, **arguments)
            assert isinstance(made, Refused), f"{fault}: {made}"
            assert message.replace("@", ", ".join(map(str, place))) in made, fault


FIELDS = (
    *("senders", "receivers", "features", "labels", "weights", "train", "validation"),
    *("test", "directed", "self_loops", "multilabel", "label_names", "node_names"),
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
    make, arguments = as_csr(case, None)
    made = attempt(make, **arguments | {field: value})
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
    make=st.sampled_from(
        ["from_scipy", "from_networkx", "from_pandas", "from_jraph", "from_pyg"]
    ),
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

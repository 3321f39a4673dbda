"""What `Graph` makes of its inputs, and what it says of bad ones."""

import types

import jraph
import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hopf_jax import Graph

N = 5
X = np.arange(15, dtype=np.float32).reshape(N, 3)
SENDERS, RECEIVERS = [0, 1, 1, 4], [1, 2, 0, 2]


def path(**keywords):
    """0 - 1 - 2 - 4, and 3 alone."""
    keywords = {"labels": [0, 1, 2, 0, 1]} | keywords
    return Graph.from_edges(SENDERS, RECEIVERS, X, **keywords)


def dense(graph):
    return graph.adjacency.toarray()


def assert_same(one, other):
    np.testing.assert_array_equal(dense(one), dense(other))
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_array_equal(one.known, other.known)
    np.testing.assert_array_equal(one.features, other.features)
    assert (one.weights is None) == (other.weights is None)
    assert one.multilabel == other.multilabel


def test_an_undirected_graph_is_read_both_ways():
    graph = path()
    want = np.zeros((N, N))
    for i, j in ((0, 1), (1, 2), (2, 4)):
        want[i, j] = want[j, i] = 1
    np.testing.assert_array_equal(dense(graph), want)
    assert graph.weights is None
    np.testing.assert_array_equal(graph.degree, [1, 2, 2, 0, 1])
    assert (graph.num_nodes, graph.num_edges) == (5, 6)
    assert (graph.num_features, graph.num_labels) == (3, 3)
    assert "5 nodes, 6 edges" in repr(graph)


def test_arcs_go_from_senders_to_receivers():
    graph = path(directed=True)
    np.testing.assert_array_equal(graph.indptr, [0, 1, 2, 4, 4, 4])
    np.testing.assert_array_equal(graph.indices, [1, 0, 1, 4])


def test_weights_of_both_ways_become_the_larger():
    graph = path(weights=[0.5, 2, 3, 4])
    want = np.zeros((N, N))
    want[0, 1] = want[1, 0] = 3
    want[1, 2] = want[2, 1] = 2
    want[2, 4] = want[4, 2] = 4
    np.testing.assert_array_equal(dense(graph), want)
    np.testing.assert_allclose(graph.degree, want.sum(axis=1))


def test_duplicates_add_where_weighted_and_count_once_otherwise():
    ends = [0, 0, 1], [1, 1, 2]
    plain = Graph.from_edges(*ends, X, directed=True)
    np.testing.assert_array_equal(dense(plain)[1, 0], 1)
    weighted = Graph.from_edges(*ends, X, weights=[1, 2, 5], directed=True)
    np.testing.assert_array_equal(dense(weighted)[1, 0], 3)


def test_edges_of_weight_zero_are_no_edges():
    graph = Graph.from_edges([0, 1], [1, 2], X, weights=[0, 1])
    assert graph.num_edges == 2
    stored = sp.csr_array((np.array([True, False]), ([0, 1], [1, 2])), (N, N))
    assert Graph.from_scipy(stored, X).num_edges == 2


def test_self_loops_are_dropped_or_kept():
    ends = [0, 2, 2], [1, 2, 3]
    assert dense(Graph.from_edges(*ends, X))[2, 2] == 0
    assert dense(Graph.from_edges(*ends, X, self_loops="keep"))[2, 2] == 1
    weighted = Graph.from_edges(*ends, X, weights=[1, 7, 1], self_loops="keep")
    assert dense(weighted)[2, 2] == 7
    assert weighted.num_edges == 5
    with pytest.raises(ValueError, match="self_loops is 'add'"):
        Graph.from_edges(*ends, X, self_loops="add")


@given(st.data())
def test_adjacency_of_random_edges(data):
    edge = st.tuples(st.integers(0, N - 1), st.integers(0, N - 1))
    edges = data.draw(st.lists(edge, max_size=20))
    directed = data.draw(st.booleans())
    senders, receivers = [e[0] for e in edges], [e[1] for e in edges]
    graph = Graph.from_edges(senders, receivers, X, directed=directed)
    want = np.zeros((N, N))
    for s, r in edges:
        if s != r:
            want[r, s] = 1
            if not directed:
                want[s, r] = 1
    np.testing.assert_array_equal(dense(graph), want)
    np.testing.assert_array_equal(graph.degree, want.sum(axis=1))
    assert graph.indptr[-1] == graph.num_edges
    for i in range(N):
        row = graph.indices[graph.indptr[i] : graph.indptr[i + 1]]
        assert (np.diff(row) > 0).all()  # In the order of their ids, each once.


def test_all_constructors_agree():
    want = path()
    adjacency = sp.csr_array(dense(want))
    y = want.labels
    ids = np.array([0, 1, 2, 0, 1])
    assert_same(Graph.from_csr(adjacency.indptr, adjacency.indices, X, ids), want)
    for matrix in (adjacency, adjacency.tocoo(), sp.csc_matrix(adjacency) > 0):
        assert_same(Graph.from_scipy(matrix, X, y), want)
    network = nx.Graph()
    network.add_nodes_from("abcde")
    network.add_edges_from(["ab", "bc", "ce"])
    assert_same(Graph.from_networkx(network, X, ids), want)
    for i, node in enumerate(network):
        network.nodes[node].update(x=X[i], y=int(ids[i]))
    assert_same(Graph.from_networkx(network, "x", "y"), want)
    tuple_ = jraph.GraphsTuple(
        nodes=X,
        edges=None,
        senders=np.array(SENDERS),
        receivers=np.array(RECEIVERS),
        n_node=np.array([N]),
        n_edge=np.array([4]),
        globals=None,
    )
    assert_same(Graph.from_jraph(tuple_, ids), want)
    data = types.SimpleNamespace(x=X, edge_index=np.array([SENDERS, RECEIVERS]))
    data.y = ids[:, None]
    data.train_mask = np.arange(N) < 2
    data.val_mask = np.arange(N) == 2
    from_pyg = Graph.from_pyg(data)
    assert_same(from_pyg, want)
    np.testing.assert_array_equal(np.flatnonzero(from_pyg.train), [0, 1])
    np.testing.assert_array_equal(np.flatnonzero(from_pyg.validation), [2])


def test_all_constructors_agree_on_weights():
    weights = np.array([0.5, 2, 3, 4], np.float32)
    want = path(weights=weights, labels=None)
    assert_same(Graph.from_scipy(sp.csr_array(dense(want)), X), want)
    network = nx.DiGraph()
    network.add_nodes_from(range(N))
    for s, r, w in zip(SENDERS, RECEIVERS, weights, strict=True):
        network.add_edge(s, r, w=w)
    directed = path(weights=weights, labels=None, directed=True)
    assert_same(Graph.from_networkx(network, X, weight="w"), directed)
    data = types.SimpleNamespace(x=X, edge_index=np.array([SENDERS, RECEIVERS]))
    data.edge_weight = weights
    assert_same(Graph.from_pyg(data), want)
    tuple_ = jraph.GraphsTuple(
        nodes=X,
        edges=weights[:, None],
        senders=np.array(SENDERS),
        receivers=np.array(RECEIVERS),
        n_node=np.array([N]),
        n_edge=np.array([4]),
        globals=None,
    )
    assert_same(Graph.from_jraph(tuple_), want)


def test_networkx_attributes():
    network = nx.path_graph(3)
    network.nodes[0].update(x=[1.0, 2.0], y="spam")
    network.nodes[1].update(x=[3.0, 4.0])
    network.nodes[2].update(x=[5.0, 6.0], y="ham")
    graph = Graph.from_networkx(network, "x", "y")
    assert graph.label_names == ("ham", "spam")
    np.testing.assert_array_equal(graph.known, [True, False, True])
    with pytest.raises(ValueError, match="node 0 has no attribute 'z'"):
        Graph.from_networkx(network, "z")


# Features


def test_features_may_be_dense_sparse_or_mapped(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    graph = Graph.from_edges(SENDERS, RECEIVERS, mapped)
    assert isinstance(graph.features, np.memmap)
    sparse = Graph.from_edges(SENDERS, RECEIVERS, sp.coo_array(X)).features
    assert sp.issparse(sparse)
    assert sparse.dtype == np.float32
    np.testing.assert_array_equal(sparse.toarray(), X)
    assert path().features.dtype == np.float32


def test_the_callers_sparse_features_stay_as_they_were():
    # Unsorted, and with a duplicate: merging them must not touch these arrays.
    indices, indptr = np.array([2, 0, 2, 1]), np.array([0, 3, 4, 4, 4, 4])
    for dtype in (np.float32, np.float64):
        data = np.array([1, 2, 3, 4], dtype)
        theirs = sp.csr_array((data, indices.copy(), indptr.copy()), (N, 3))
        graph = Graph.from_edges(SENDERS, RECEIVERS, theirs)
        np.testing.assert_array_equal(theirs.indices, indices)
        np.testing.assert_array_equal(theirs.data, data)
        np.testing.assert_array_equal(graph.features.toarray()[0], [2, 0, 4])


# Labels


@pytest.mark.parametrize(
    "labels",
    [
        [0, -1, 2, 0, 1],
        np.array([0, -1, 2, 0, 1], np.int8),
        [0, np.nan, 2, 0, 1],
        [0, None, 2, 0, 1],
        np.array([0, None, 2, -1, 1], object),
        [[1, 0, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]],
        [[1, 0, 0], [np.nan, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]],
    ],
    ids=["-1", "int8", "nan", "none", "object", "one-hot", "nan-row"],
)
def test_unknown_labels(labels):
    graph = path(labels=labels)
    assert not graph.known[1]
    assert graph.known[[0, 2, 4]].all()
    assert not graph.multilabel
    np.testing.assert_array_equal(graph.labels[[0, 2, 4]].argmax(axis=1), [0, 2, 1])
    assert graph.labels[1].sum() == 0
    assert graph.label_names == ("0", "1", "2")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int32, np.float32, bool])
def test_class_ids_of_any_number_type(dtype):
    graph = path(labels=np.array([0, 1, 1, 0, 1], dtype))
    np.testing.assert_array_equal(graph.labels.argmax(axis=1), [0, 1, 1, 0, 1])
    assert graph.known.all()


def test_ids_among_none_keep_their_numbers():
    graph = path(labels=[10, None, 2, 0, 1])
    assert graph.num_labels == 11
    assert graph.labels[0, 10] == 1


def test_names_are_sorted_or_in_the_order_given():
    names = ["cat", "dog", "", "cat", None]
    assert path(labels=names).label_names == ("cat", "dog")
    np.testing.assert_array_equal(path(labels=names).known, [1, 1, 0, 1, 0])
    given_names = path(labels=names, label_names=["dog", "eel", "cat"])
    np.testing.assert_array_equal(given_names.labels[0], [0, 0, 1])
    assert path(labels=[0, 1, 0, 1, 0], label_names="abc").num_labels == 3


def test_multilabel_is_told_from_the_labels():
    both = np.array([[1, 1], [0, 0], [0, 1], [1, 0], [0, 1]])
    graph = path(labels=both)
    assert graph.multilabel
    assert graph.known.all()  # No label at all is an answer too.
    single = np.eye(2, dtype=int)[[0, 1, 0, 1, 0]]
    assert not path(labels=single).multilabel
    assert path(labels=single, multilabel=True).multilabel


def test_a_graph_needs_no_labels():
    graph = path(labels=None)
    assert graph.num_labels == 0
    assert not graph.known.any()


def test_splits_are_masks_or_ids():
    graph = path(train=[0, 1], validation=np.arange(N) == 2, test=np.array([4]))
    np.testing.assert_array_equal(graph.train, [1, 1, 0, 0, 0])
    np.testing.assert_array_equal(graph.validation, [0, 0, 1, 0, 0])
    np.testing.assert_array_equal(graph.test, [0, 0, 0, 0, 1])
    other = graph.with_split(train=[3])
    assert other.train.sum() == 1
    assert not other.test.any()
    assert graph.train.sum() == 2


# Bad input: what, and where


def changed(value, *place):
    features = X.copy()
    features[place] = value
    return features


BAD = {
    "sender": ({"senders": [0, 1, 9, 4]}, r"senders\[2\] is 9"),
    "negative-sender": ({"senders": [0, -1, 1, 4]}, r"senders\[1\] is -1"),
    "receiver": ({"receivers": [0, 1, 1, 5]}, r"receivers\[3\] is 5"),
    "float-ends": ({"senders": [0.5, 1, 1, 4]}, "senders must be a list of whole"),
    "lengths": ({"senders": [0, 1]}, "differ in length: 2 and 4"),
    "nan": ({"features": changed(np.nan, 3, 1)}, r"features\[3, 1\] is nan"),
    "inf": ({"features": changed(np.inf, 2, 0)}, r"features\[2, 0\] is inf"),
    "beyond-float32": (
        {"features": X.astype(float) + 1e300 * (X == 4)},
        r"features\[1, 1\] is inf",
    ),
    "sparse-nan": (
        {"features": sp.csr_array(changed(np.nan, 4, 2))},
        r"features\[4, 2\] is nan",
    ),
    "sparse-beyond-float32": (
        {"features": sp.csr_array(X.astype(float) + 1e300 * (X == 4))},
        r"features\[1, 1\] is inf",
    ),
    "flat-features": ({"features": X[:, 0]}, r"shape \(5,\); it must be \[nodes"),
    "text-features": ({"features": np.full((N, 2), "a")}, "features has dtype"),
    "no-features": ({"features": None}, "features is None"),
    "weights-length": ({"weights": [1, 2]}, "there are 4 edges"),
    "negative-weight": ({"weights": [1, 2, -3, 4]}, r"weights\[2\] is -3"),
    "nan-weight": ({"weights": [1, np.nan, 3, 4]}, r"weights\[1\] is nan"),
    "text-weight": ({"weights": list("abcd")}, "weights must be numbers"),
    "labels-length": ({"labels": [0, 1]}, "labels has 2 rows, but there are 5"),
    "labels-shape": ({"labels": np.zeros((N, 1, 1))}, r"shape \(5, 1, 1\)"),
    "labels-half": ({"labels": [0, 1, 0.5, 0, 1]}, r"labels\[2\] is 0.5"),
    "labels-minus-two": ({"labels": [0, 1, 1, -2, 1]}, r"labels\[3\] is -2"),
    "labels-huge": ({"labels": [0, 10**9, 1, 0, 1]}, r"labels\[1\] is 1000000000"),
    "labels-matrix": (
        {"labels": [[0, 1], [1, 0], [0, 2], [1, 0], [1, 0]]},
        r"labels\[2\] is \[0 2\]",
    ),
    "two-labels": (
        {"labels": [[0, 1], [1, 1], [0, 1], [1, 0], [1, 0]], "multilabel": False},
        r"labels\[1\] has 2 labels, but multilabel=False",
    ),
    "multilabel-ids": ({"multilabel": True}, "needs labels as a matrix"),
    "names": ({"label_names": ["a"]}, "label_names has 1 names, but there are 3"),
    "unlisted": (
        {"labels": list("aabaz"), "label_names": ["a", "b"]},
        r"labels\[4\] is 'z'",
    ),
    "train-range": ({"train": [0, 7]}, r"train\[1\] is 7"),
    "test-range": ({"test": [-1]}, r"test\[0\] is -1"),
    "mask-length": ({"train": [True, False]}, r"mask of shape \(2,\)"),
    "train-and-test": (
        {"train": [0, 2], "test": [2]},
        "node 2 is in both train and tes",
    ),
    "train-and-validation": (
        {"train": [0, 1], "validation": [1, 2]},
        "node 1 is in both train and validation",
    ),
    "unlabelled-train": (
        {"labels": [0, -1, 2, -1, 0], "train": [0, 3]},
        "node 3 is in train but its label is unknown",
    ),
    "train-without-labels": ({"labels": None, "train": [0]}, "node 0 is in train but"),
    "empty": (
        {"features": np.zeros((0, 3)), "labels": None, "senders": [], "receivers": []},
        "The graph is empty",
    ),
}


@pytest.mark.parametrize(("keywords", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_told_by_its_place(keywords, message):
    good = {"senders": SENDERS, "receivers": RECEIVERS, "features": X}
    good |= {"labels": [0, 1, 2, 0, 1]}
    assert Graph.from_edges(**good).num_nodes == N
    with pytest.raises(ValueError, match=message):
        Graph.from_edges(**good | keywords)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Graph.from_scipy(np.eye(N), X), "adjacency is a ndarray"),
        (lambda: Graph.from_scipy(sp.eye_array(4), X), "has 4 nodes, but features"),
        (lambda: Graph.from_scipy(sp.csr_array((N, 4)), X), "must be square"),
        (lambda: Graph.from_csr([0, 1], [0], X), "indptr has 2 entries, but 5"),
        (lambda: Graph.from_csr([0, 2, 1, 1, 1, 1], [0], X), "indptr falls at 1"),
        (lambda: Graph.from_csr([0, 1, 1, 1, 1, 1], [0, 1], X), "from 0 to 2"),
        (lambda: Graph.from_csr([0, 1, 1, 1, 1, 1], [5], X), r"senders\[0\] is 5"),
        (
            lambda: Graph.from_pyg(types.SimpleNamespace(x=X)),
            "data.edge_index is missing",
        ),
        (
            lambda: Graph.from_pyg(
                types.SimpleNamespace(x=X, edge_index=np.zeros((3, 2), int))
            ),
            r"data.edge_index has shape \(3, 2\)",
        ),
    ],
    ids=[
        *("dense", "scipy-nodes", "square", "indptr", "falls", "ends", "range"),
        *("pyg-missing", "pyg-shape"),
    ],
)
def test_bad_input_of_other_constructors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_jraph_nodes_must_be_one_array():
    graph = jraph.GraphsTuple({"x": X}, None, None, None, None, None, None)
    with pytest.raises(ValueError, match="must be one array"):
        Graph.from_jraph(graph)

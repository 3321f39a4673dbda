"""What `Graph` makes of its arguments; `tests/robustness/test_graphs.py` has more."""

import subprocess
import sys
import types

import jraph
import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from hopf_jax import Graph

N = 5
X = np.arange(15, dtype=np.float32).reshape(N, 3)
SENDERS, RECEIVERS = [0, 1, 1, 4], [1, 2, 0, 2]


def path(**keywords):
    """0 - 1 - 2 - 4, and 3 alone."""
    keywords = {"labels": [0, 1, 2, 0, 1]} | keywords
    return Graph.from_edges(SENDERS, RECEIVERS, X, **keywords)


def test_sizes_and_rows():
    graph = path()
    np.testing.assert_array_equal(graph.indptr, [0, 1, 3, 5, 5, 6])
    np.testing.assert_array_equal(graph.indices, [1, 0, 2, 1, 4, 2])
    np.testing.assert_array_equal(graph.degree, [1, 2, 2, 0, 1])
    assert (graph.num_nodes, graph.num_edges) == (5, 6)
    assert (graph.num_features, graph.num_labels) == (3, 3)
    assert graph.weights is None and "5 nodes, 3 undirected edges" in repr(graph)


@pytest.mark.parametrize(
    ("edges", "keywords", "expected"),
    [
        ([(0, 1), (4, 2)], {}, {(0, 1): 1, (1, 0): 1, (2, 4): 1, (4, 2): 1}),
        ([(0, 1), (4, 2)], {"directed": True}, {(1, 0): 1, (2, 4): 1}),
        ([(0, 1), (0, 1)], {"directed": True}, {(1, 0): 1}),
        ([(0, 1), (0, 1)], {"directed": True, "weights": [1, 2]}, {(1, 0): 3}),
        ([(0, 1), (1, 0)], {"weights": [2, 3]}, {(0, 1): 3, (1, 0): 3}),
        ([(0, 1), (1, 2)], {"weights": [0, 1]}, {(1, 2): 1, (2, 1): 1}),
        ([(2, 2), (0, 1)], {"directed": True}, {(1, 0): 1}),
        ([(2, 2)], {"self_loops": "keep"}, {(2, 2): 1}),
        ([(2, 2)], {"self_loops": "keep", "weights": [7]}, {(2, 2): 7}),
    ],
    ids=[
        *("undirected", "directed", "duplicates", "weighted duplicates"),
        *("larger weight", "weight 0", "loop dropped", "loop", "weighted loop"),
    ],
)
def test_adjacency(edges, keywords, expected):
    graph = Graph.from_edges(*zip(*edges, strict=True), X, **keywords)
    want = np.zeros((N, N))
    for place, weight in expected.items():
        want[place] = weight
    np.testing.assert_array_equal(graph.adjacency.toarray(), want)
    np.testing.assert_allclose(graph.degree, want.sum(axis=1))


def test_stored_zeros_of_a_matrix_are_no_edges():
    stored = sp.csr_array((np.array([True, False]), ([0, 1], [1, 2])), (N, N))
    assert Graph.from_scipy(stored, X).num_edges == 2


def test_attributes_of_networkx():
    network = nx.path_graph(3)
    network.nodes[0].update(x=[1.0, 2.0], y="spam")
    network.nodes[1].update(x=[3.0, 4.0])
    network.nodes[2].update(x=[5.0, 6.0], y="ham")
    graph = Graph.from_networkx(network, "x", "y")
    assert graph.label_names == ("ham", "spam")
    np.testing.assert_array_equal(graph.known, [True, False, True])
    np.testing.assert_array_equal(graph.features, [[1, 2], [3, 4], [5, 6]])
    with pytest.raises(ValueError, match="No node has an attribute 'z'"):
        Graph.from_networkx(network, "z")


def test_labels_and_masks_of_pyg():
    data = types.SimpleNamespace(x=X, edge_index=np.array([SENDERS, RECEIVERS]))
    data.y = np.array([0, 1, 2, 0, 1])[:, None]
    data.train_mask, data.val_mask = np.arange(N) < 2, np.arange(N) == 2
    graph = Graph.from_pyg(data)
    np.testing.assert_array_equal(graph.labels, path().labels)
    np.testing.assert_array_equal(np.flatnonzero(graph.train), [0, 1])
    np.testing.assert_array_equal(np.flatnonzero(graph.validation), [2])


def test_features_may_be_dense_sparse_or_mapped(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    graph = Graph.from_edges(SENDERS, RECEIVERS, mapped)
    assert isinstance(graph.features, np.memmap)
    sparse = Graph.from_edges(SENDERS, RECEIVERS, sp.coo_array(X)).features
    assert sp.issparse(sparse) and sparse.dtype == np.float32
    np.testing.assert_array_equal(sparse.toarray(), X)
    assert path().features.dtype == np.float32


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_callers_sparse_features_do_not_change(dtype):
    # Unsorted and with a duplicate, both of which are repaired in place.
    indices, indptr = np.array([2, 0, 2, 1]), np.array([0, 3, 4, 4, 4, 4])
    data = np.array([1, 2, 3, 4], dtype)
    theirs = sp.csr_array((data.copy(), indices.copy(), indptr.copy()), (N, 3))
    graph = Graph.from_edges(SENDERS, RECEIVERS, theirs)
    np.testing.assert_array_equal(theirs.indices, indices)
    np.testing.assert_array_equal(theirs.data, data)
    np.testing.assert_array_equal(graph.features.toarray()[0], [2, 0, 4])


@pytest.mark.parametrize(
    "labels",
    [
        [0, np.nan, 2, 0, 1],
        [0, None, 2, 0, 1],
        np.array([0, None, 2, -1, 1], object),
        [[1, 0, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]],
        [[1, 0, 0], [np.nan, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]],
    ],
    ids=["nan", "none", "object", "one-hot", "nan-row"],
)
def test_unknown_labels(labels):
    graph = path(labels=labels)
    assert not graph.known[1] and graph.known[[0, 2, 4]].all()
    assert not graph.multilabel
    np.testing.assert_array_equal(graph.labels[[0, 2, 4]].argmax(axis=1), [0, 2, 1])
    assert graph.labels[1].sum() == 0
    assert graph.label_names == ("0", "1", "2")


def test_ids_among_none_keep_their_numbers():
    graph = path(labels=[10, None, 2, 0, 1])
    assert graph.label_names == ("0", "1", "2", "10") and graph.labels[0, 3] == 1


def test_names_are_sorted_or_in_the_order_given():
    names = ["cat", "dog", "", "cat", None]
    assert path(labels=names).label_names == ("cat", "dog")
    np.testing.assert_array_equal(path(labels=names).known, [1, 1, 0, 1, 0])
    given_names = path(labels=names, label_names=["dog", "eel", "cat"])
    np.testing.assert_array_equal(given_names.labels[0], [0, 0, 1])
    assert path(labels=[0, 1, 0, 1, 0], label_names="abc").num_labels == 3


def test_multilabel_is_inferred_from_the_labels():
    both = np.array([[1, 1], [0, 0], [0, 1], [1, 0], [0, 1]])
    graph = path(labels=both)
    assert graph.multilabel and graph.known.all(), "a node may have no label at all"
    single = np.eye(2, dtype=int)[[0, 1, 0, 1, 0]]
    assert not path(labels=single).multilabel
    assert path(labels=single, multilabel=True).multilabel


def test_a_split_is_replaced():
    graph = path(train=[0, 1], validation=np.arange(N) == 2, test=np.array([4]))
    other = graph.with_split(train=[3])
    np.testing.assert_array_equal(other.train, [0, 0, 0, 1, 0])
    assert not other.test.any() and graph.train.sum() == 2


def pyg(**fields):
    return types.SimpleNamespace(x=X, **fields)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Graph.from_scipy(np.eye(N), X), "adjacency is a ndarray"),
        (lambda: Graph.from_scipy(sp.eye_array(4), X), r"\(4, 4\), but .* 5 rows"),
        (lambda: Graph.from_scipy(sp.csr_array((N, 4)), X), r"\(5, 4\), but .* 5 rows"),
        (lambda: Graph.from_csr([0, 1], [0], X), "indptr has 2 entries, but 5"),
        (lambda: Graph.from_csr([0, 2, 1, 1, 1, 1], [0], X), "indptr falls at 1"),
        (lambda: Graph.from_csr([0, 1, 1, 1, 1, 1], [0, 1], X), "from 0 to 2"),
        (lambda: Graph.from_csr([0, 1, 1, 1, 1, 1], [5], X), r"indices\[0\] is 5"),
        (lambda: Graph.from_pyg(pyg()), "data.edge_index is missing"),
        (lambda: Graph.from_pyg(pyg(edge_index=np.eye(3))), r"has shape \(3, 3\)"),
        (
            lambda: Graph.from_jraph(jraph.GraphsTuple({"x": X}, *[None] * 6)),
            "must be one array",
        ),
    ],
    ids=[
        *("dense", "scipy-nodes", "square", "indptr", "falls", "ends", "range"),
        *("pyg-missing", "pyg-shape", "jraph-dict"),
    ],
)
def test_bad_input_of_other_constructors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


CRASHES = """
import sys
import numpy as np, scipy.sparse as sp
from hopf_jax import Config, Graph, fit, datasets

def bad(form, part):
    matrix = sp.csr_array(np.eye(50, dtype=np.float32)).asformat(form)
    if form == "coo":
        matrix.coords[0][5] = 10**8
    elif form == "lil":
        matrix.data[5] = [1.0] * 10**5
    else:
        getattr(matrix, part)[5] = 10**8
    return matrix

for form in ("csr", "csc", "bsr", "coo", "lil"):
    for part in ("indices", "indptr"):
        for make in (
            lambda m: Graph.from_edges([0], [1], m),
            lambda m: Graph.from_scipy(m, np.eye(50)),
        ):
            try:
                make(bad(form, part))
            except ValueError:
                continue
            sys.exit(f"{form} {part} was taken")
try:
    fit(datasets.make_chain(), config=Config(hidden_size=2**31 - 1), progress=False)
except ValueError as error:
    assert "GiB" in str(error)
ids = np.arange(10**6)
try:
    Graph.from_edges([], [], np.zeros((10**6, 1), np.float32), ids)
except ValueError as error:
    assert "1000000 different ids" in str(error), error
names = np.arange(10**6).astype(str)
try:
    Graph.from_edges([], [], np.zeros((10**6, 1), np.float32), names)
except ValueError as error:
    assert "GiB of memory" in str(error), error
print("alive")
"""


def test_the_interpreter_never_dies():
    done = subprocess.run(
        [sys.executable, "-c", CRASHES], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr

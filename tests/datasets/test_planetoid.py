"""Planetoid's pickles: read without running any code of theirs."""

import collections
import os
import pickle
import subprocess

import numpy as np
import pytest
import scipy.sparse as sp

from hopf_jax.datasets import DatasetError, readers
from hopf_jax.datasets.registry import Layout
from hopf_jax.datasets.unpickling import unpickle

ENDINGS = ("x", "y", "allx", "ally", "tx", "ty", "graph", "test.index")
LAYOUT = Layout("planetoid", tuple(f"ind.toy.{e}" for e in ENDINGS), "ind.toy.")


@pytest.fixture
def folder(tmp_path):
    """Five nodes; of the test nodes 2, 3, 4, stored as 4, 2, number 3 is missing."""
    words = sp.csr_matrix(np.eye(5, 6, dtype=np.float32))
    classes = np.array([[1, 0], [0, 1], [0, 1], [1, 0]], np.int32)
    graph = collections.defaultdict(
        list, {0: [1, 2, 2], 1: [0], 2: [0, 2], 3: [], 4: []}
    )
    parts = {"allx": words[:2], "tx": words[2:4], "ally": classes[:2]}
    parts |= {"ty": classes[2:], "graph": graph, "x": words[:1], "y": classes[:1]}
    for ending, value in parts.items():
        (tmp_path / f"ind.toy.{ending}").write_bytes(pickle.dumps(value, 4))
    (tmp_path / "ind.toy.test.index").write_text("4\n2\n")
    return tmp_path


def test_read(folder):
    contents = readers.read(folder, LAYOUT, {})
    arcs = list(zip(contents.receivers, contents.senders, strict=True))
    assert arcs == [(0, 1), (0, 2), (0, 2), (1, 0), (2, 0), (2, 2)]
    expected = np.eye(5, 6)[[0, 1, 3, 4, 2]]
    expected[3] = 0
    np.testing.assert_array_equal(contents.features, expected)
    assert contents.labels.tolist() == [[1, 0], [0, 1], [1, 0], [0, 0], [0, 1]]


class Payload:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def payloads(marker):
    call = f"open({str(marker)!r}, 'w').close()"
    yield Payload(os.system, f"touch {marker}")
    yield Payload(exec, call)
    yield Payload(eval, call)
    yield Payload(subprocess.Popen, ["touch", str(marker)])
    yield Payload(getattr, list, "__subclasses__")


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("kind", range(5))
def test_a_malicious_pickle_is_refused_and_not_run(folder, tmp_path, kind, protocol):
    marker = tmp_path / "payload-ran"
    payload = list(payloads(marker))[kind]
    data = pickle.dumps({"innocent": [1, 2], "graph": payload}, protocol)
    if kind < 2:  # The payload itself works: it is the reader that refuses it.
        pickle.loads(data)
        assert marker.exists()
        marker.unlink()
    (folder / "ind.toy.graph").write_bytes(data)
    with pytest.raises(DatasetError, match="refused"):
        readers.read(folder, LAYOUT, {})
    assert not marker.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04\x8c\x05numpy\x8c\x11ndarray.__class__\x93.",  # A dotted name.
        b"cnumpy.core.multiarray\nfromfile\n.",  # A module on the list, another name.
        b"cbuiltins\n__import__\n(S'os'\ntR.",
    ],
)
def test_names_near_the_allowed_ones_are_refused(data):
    with pytest.raises(pickle.UnpicklingError, match="refused"):
        unpickle(data)


def test_a_truncated_pickle_says_so(folder):
    path = folder / "ind.toy.allx"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DatasetError, match=r"Cannot read .*planetoid"):
        readers.read(folder, LAYOUT, {})


def test_no_class_of_scipy_is_touched(folder):
    """A pickle that sets attributes of a class gets our stand-in only."""
    data = (
        b"\x80\x02cscipy.sparse.csr\ncsr_matrix\nN}X\x07\x00\x00\x00toarrayK\x01s\x86b."
    )
    with pytest.raises((TypeError, pickle.UnpicklingError)):
        unpickle(data)
    assert callable(sp.csr_matrix.toarray)


def forged(kind, itemsize, data):
    """Return a pickle of an array whose dtype claims another kind and size."""
    array = np.zeros(4, np.float32)
    pickled = pickle.dumps(array, 4)
    assert b"\x8c\x02f4" in pickled
    pickled = pickled.replace(b"\x8c\x02f4", b"\x8c" + bytes([len(kind)]) + kind)
    # The size and the alignment in the state of the dtype, -1 in honest ones.
    size = b"J" + itemsize.to_bytes(4, "little", signed=True)
    pickled = pickled.replace(b"J\xff\xff\xff\xff", size, 1)
    frame = pickled.index(b"\x95")
    return pickled[:frame] + pickled[frame + 9 :].replace(bytes(16), data)


@pytest.mark.parametrize(
    ("kind", "itemsize"), [(b"O8", -1), (b"f4", 10**6), (b"V8", 10**9), (b"f8", -1)]
)
def test_a_forged_dtype_is_not_believed(kind, itemsize):
    data = forged(kind, itemsize, b"\x41" * 16)
    try:
        found = unpickle(data)
    except pickle.UnpicklingError as error:
        assert "an array is damaged" in str(error)
    else:  # The size in the state is ignored.
        assert found.dtype == np.float32 and found.shape == (4,)


def test_a_dtype_that_changes_after_its_array_is_made():
    # numpy would read a thousand million bytes beyond the array's 16.
    dtype = (
        b"cnumpy\ndtype\n(X\x02\x00\x00\x00V8I00\nI01\ntRq\x00"
        b"(K\x03X\x01\x00\x00\x00|NNNJ%sK\x01K\x00tb"
    )
    array = (
        b"0cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tC\x01btR"
        b"(K\x01(K\x02th\x00I00\nC\x10%stb" % (b"A" * 16)
    )
    again = b"h\x00(K\x03X\x01\x00\x00\x00|NNNJ%sK\x01K\x00tb0."
    sizes = (size.to_bytes(4, "little") for size in (8, 10**9))
    before, after = (
        part % size for part, size in zip((dtype, again), sizes, strict=True)
    )
    with pytest.raises(pickle.UnpicklingError):
        unpickle(b"\x80\x02" + before + array + after)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02]r\xff\xff\xff\x7f.",  # A memo of two thousand million entries.
        b"\x80\x02]" + b"\x85" * 200_000 + b"}q\x01h\x00K\x01s.",  # Nested tuples.
        b"\x80\x05\x96\xff\xff\xff\xff\x0f\x00\x00\x00.",  # A large bytearray.
    ],
)
def test_a_pickle_that_exhausts_the_machine(data):
    with pytest.raises((pickle.UnpicklingError, ValueError)):
        unpickle(data)

"""A small dataset, a server that may fail, and an empty machine."""

import dataclasses
import functools
import gzip
import http.server
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from hopf_jax.datasets import download, locations, registry
from hopf_jax.datasets.registry import Counts, Dataset, Layout
from hopf_jax.runtime import sha256


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch, tmp_path):
    """No HOPF_DATA, no ../shared, an empty cache, and short waits."""
    monkeypatch.delenv("HOPF_DATA", raising=False)
    monkeypatch.setenv("HOPF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(locations, "CHECKOUT", tmp_path / "project" / "checkout")
    monkeypatch.setattr(download, "RETRY_AFTER_SECONDS", 0.01)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """A registered dataset of one .npz in tmp_path/originals/toy, without sources."""
    folder = tmp_path / "originals" / "toy"
    folder.mkdir(parents=True)
    np.savez(
        folder / "toy.npz",
        adj_indptr=np.array([0, 1, 3, 4, 4]),
        adj_indices=np.array([1, 0, 2, 1]),
        features=np.arange(12).reshape(4, 3),
        labels=np.array([0, 1, 1, 0]),
    )
    sums = {"toy.npz": sha256(folder / "toy.npz")}
    monkeypatch.setitem(registry.CHECKSUMS, "toy", sums)
    return Dataset(
        "toy",
        "multi-class",
        (Layout("npz", ("toy.npz",)),),
        counts=Counts(4, 4, 3, 2),
        published=None,
        citation="",
    )


@pytest.fixture
def original(toy, tmp_path):
    """The toy's file."""
    return tmp_path / "originals" / "toy" / "toy.npz"


@dataclasses.dataclass
class Server:
    """What an HTTP server serves, how it fails, and the requests it got."""

    url: str = ""
    content: dict[str, bytes] = dataclasses.field(default_factory=dict)
    fail: list[str] = dataclasses.field(default_factory=list)  # One per request.
    requests: list[str] = dataclasses.field(default_factory=list)
    release: threading.Event = dataclasses.field(default_factory=threading.Event)


class _Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, server_data, *args):
        self.data = server_data
        super().__init__(*args)

    def do_GET(self):
        self.data.requests.append(self.path)
        body = self.data.content.get(self.path)
        failure = self.data.fail.pop(0) if self.data.fail else None
        if body is None or failure == "error":
            return self.send_error(404 if body is None else 503)
        self.send_response(200)
        if failure in ("endless", "trickle"):
            self.end_headers()
            return self.send_without_end(failure)
        if failure == "gzip":
            body = gzip.compress(bytes(100_000_000))
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if failure == "truncate":
            body = body[:-10]
        if failure == "corrupt":
            body = bytes(len(body))
        self.wfile.write(body[:100])
        self.wfile.flush()
        if failure == "stall":
            self.data.release.wait(20)
        try:
            self.wfile.write(body[100:])
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        return None

    def send_without_end(self, failure):
        """Send, fast or a byte at a time, until the client has enough."""
        try:
            while not self.data.release.wait(0.05 if failure == "trickle" else 0):
                self.wfile.write(b"x" if failure == "trickle" else bytes(1 << 16))
        except (BrokenPipeError, ConnectionResetError):
            pass
        self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def server(original):
    """A local HTTP server with the toy's file at /toy/toy.npz."""
    data = Server(content={"/toy/toy.npz": original.read_bytes()})
    handler = functools.partial(_Handler, data)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as http_server:
        data.url = f"http://127.0.0.1:{http_server.server_port}"
        thread = threading.Thread(target=http_server.serve_forever, args=(0.02,))
        thread.start()
        yield data
        data.release.set()
        http_server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def real_data(tmp_path_factory):
    """The datasets on hand, as links in a folder that may be written."""
    checkout = Path(__file__).resolve().parents[2]
    candidates = [os.environ.get("HOPF_DATA"), checkout.parent / "shared" / "datasets"]
    source = next((Path(c) for c in candidates if c and Path(c).is_dir()), None)
    if source is None:
        pytest.skip("needs the datasets: no HOPF_DATA, no ../shared/datasets")
    folder = tmp_path_factory.mktemp("datasets")
    for path in source.glob("*/**/*"):
        relative = path.relative_to(source)
        if path.is_file() and ".compact" not in relative.parts:
            (folder / relative).parent.mkdir(parents=True, exist_ok=True)
            (folder / relative).symlink_to(path)
    return folder

"""`hopf serve` as a process: sockets, signals, restarts."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from hopf_jax import write_graph
from hopf_jax.cli import main
from hopf_jax.serving import server
from tests.serving.test_journal import LABEL

READY = re.compile(r"Serving at http://127\.0\.0\.1:(\d+)")


@pytest.fixture(scope="module")
def folder(result, tmp_path_factory):
    """A folder with a model and a graph."""
    made = tmp_path_factory.mktemp("served")
    result.save(made / "model.npz")
    write_graph(result.graph, made / "graph")
    return made


@contextlib.contextmanager
def served(folder, *options):
    """Yield a running service and its port; kill it if it still runs."""
    command = [
        *(sys.executable, "-m", "hopf_jax", "serve", str(folder / "model.npz")),
        *("--graph", str(folder / "graph"), "--port", "0", *map(str, options)),
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        found = READY.search(process.stdout.readline())
        assert found, process.communicate()[1]
        yield process, int(found[1])
    finally:
        process.kill()
        process.communicate()


def ask(port, path, message=None):
    body = None if message is None else json.dumps(message).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        body,
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def send(port, text, *, end=False):
    """Return all that comes back for some bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(text)
        if end:
            connection.shutdown(socket.SHUT_WR)
        parts = []
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(1 << 16):
                parts.append(part)
        return b"".join(parts)


POST = (
    b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)


def test_a_killed_service_goes_on_and_a_stopped_one_ends_well(folder, tmp_path):
    state = tmp_path / "state"
    wanted = {"nodes": ["Ann", "Bob", [1, 2], "node 12"], "probabilities": True}
    with served(folder, "--state", state) as (process, port):
        first = ask(port, "/predict", wanted)
        assert ask(port, "/update", LABEL)["stored"]
        asked = ask(port, "/predict", wanted)
        explained = ask(port, "/explain", {"node": "Ann"})
        process.kill()  # SIGKILL.
    assert asked["version"] == 1 and first["version"] == 0
    with served(folder, "--state", state) as (process, port):
        assert ask(port, "/predict", wanted) == asked
        assert ask(port, "/explain", {"node": "Ann"}) == explained

        # What is no HTTP, or no complete request.
        for text in (
            *(b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"),
            *(b"GET / HTTP/1.1\r\n\r\n", b"A" * 200_000 + b"\r\n\r\n"),
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "
            + b"y" * 1_000_000
            + b"\r\n\r\n",
            POST + b"Content-Length: -1\r\n\r\n",
            POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n{}}",
            POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        ):
            answer = send(port, text)
            assert re.match(rb"HTTP/1.1 4\d\d ", answer), (text[:60], answer)
        # A client that leaves before its body ends gets nothing, or an error.
        answer = send(port, POST + b"Content-Length: 50\r\n\r\n{", end=True)
        assert not answer or answer.startswith(b"HTTP/1.1 4")
        later = send(
            port,
            POST
            + b"Connection: close\r\nContent-Length: 16\r\n\r\n"
            + b'{"nodes":["Ann"]',
        )
        assert later.startswith(b"HTTP/1.1 422")

        # SIGTERM: what was asked before is answered, and the process succeeds.
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            body = json.dumps(wanted).encode()
            head = POST + b"Content-Length: %d\r\n\r\n" % len(body)
            connection.sendall(head + body[:-1])
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            connection.sendall(body[-1:])
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        assert process.wait(60) == 0
        assert "Stopped." in process.stderr.read()
        with pytest.raises(ConnectionRefusedError):
            send(port, b"")


def test_updates_of_another_graph_are_refused(folder, result, tmp_path, capsys):
    (tmp_path / "state").mkdir()
    with server.socket.socket() as taken:  # A port in use ends it, too.
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        model = ("serve", str(folder / "model.npz"), "--graph", str(folder / "graph"))
        port = ("--port", str(taken.getsockname()[1]))
        state = ("--state", str(tmp_path / "state"))
        assert main([*model, *port, *state]) == 2
        assert "in use" in capsys.readouterr().err
    other = tmp_path / "other"
    write_graph(result.graph.with_split(train=["Bob"]), other)
    assert main([*model[:3], str(other), *state]) == 2
    assert "of another model or another graph" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--graph", "nowhere"], "nowhere is not a folder"),
        (["--graph", "."], "no graph"),
        (["--graph", "graph", "--timeout", "0"], "timeout"),
        (["--graph", "graph", "--queue", "0"], "queue"),
        (["--graph", "graph", "--max-body", "-1"], "max-body"),
        (["--graph", "graph", "--port", "70000"], "port"),
    ],
)
def test_wrong_options_are_named(folder, options, said, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(["serve", "model.npz", *options]) == 2
    assert said in capsys.readouterr().err


class Connection:
    def __init__(self):
        self.cycle, self.aborted = None, False
        self.transport = self

    def abort(self):
        self.aborted = True


class Cycle:
    response_complete = False


def test_slow_connections_are_closed(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(server.time, "monotonic", lambda: now[0])
    sweeper, idle, busy = server.Sweeper(seconds=30), Connection(), Connection()
    sweeper.connections = {idle, busy}
    busy.cycle = Cycle()

    def sweep(at):
        now[0] = at
        with contextlib.suppress(StopIteration):
            sweeper.sweep().send(None)
        return idle.aborted, busy.aborted

    assert sweep(0) == (False, False)
    assert sweep(14) == (False, False)
    assert sweep(16) == (True, False)  # It never sent a header.
    sweeper.connections = {busy}
    assert sweep(34) == (True, False)
    busy.cycle = Cycle()  # The next request of the same client.
    assert sweep(36) == (True, False)
    assert sweep(70) == (True, False)
    assert sweep(72) == (True, True)


def test_too_many_connections_are_refused(folder):
    made = server.bounded_protocol(1)

    class Transport:
        written, closed = b"", False

        def get_extra_info(self, _):
            return None

        def write(self, data):
            self.written += data

        def close(self):
            self.closed = True

    state = server.uvicorn.server.ServerState()
    config = server.uvicorn.Config(lambda *_: None, lifespan="off", log_config=None)
    config.load()
    transports = [Transport(), Transport()]
    for transport in transports:
        made(config, state, {}, _loop=object()).connection_made(transport)
    assert not transports[0].written and not transports[0].closed
    assert transports[1].closed
    head, _, body = transports[1].written.partition(b"\r\n\r\n")
    assert b" 503 " in head and b"retry-after: 1" in head
    assert f"content-length: {len(body)}".encode() in head
    assert "error" in json.loads(body)
    assert os.path.exists(folder / "model.npz")

"""Put `hopf serve` under load, send it rubbish, kill it, and compare its answers.

Fits a model, serves it, and asks from several connections for some minutes: mostly
predictions, and shares of explanations, predictions of new nodes, and updates. Then
sends malformed requests, kills the service, starts it again from its --state, and
compares the predictions of all nodes. Writes WORKDIR/serving_load.json, and exits with
1 if an answer was an error, if a malformed request was answered with something else
than 4xx, if memory grew by more than a tenth after the first quarter, or if an answer
changed.
"""

import asyncio
import contextlib
import dataclasses
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import hopf_jax
from experiments.common import arguments, output
from experiments.longevity import grown
from hopf_jax.datasets import load_dataset

_TOLERANCE = 0.1
_JSON = "Content-Type: application/json\r\n"
_AT_ONCE = 1000  # Nodes per request, when all are compared.


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.serving_load")
    parser.option("dataset", str, "pubmed", "the graph")
    parser.option("model", arguments.one(arguments.model_names), "i-nip-mean")
    parser.option("max-epochs", int, 50, "epochs per iteration of the fit")
    parser.option("seconds", float, 300.0, "of load")
    parser.option("connections", int, 8, "that ask at the same time")
    parser.option("malformed", int, 1000, "number of malformed requests")
    parser.option("explain", float, 0.02, "share of explanations")
    parser.option("new", float, 0.02, "share of predictions for new nodes")
    parser.option("update", float, 0.01, "share of updates")
    options = parser.parse_args(argv)
    graph = load_dataset(options.dataset)
    settings = hopf_jax.Config(num_iterations=3, max_epochs=options.max_epochs)
    result = hopf_jax.fit(graph, options.model, settings, progress=False)
    mix = Mix(options.explain, options.new, options.update)
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        result.save(folder / "model.npz")
        hopf_jax.write_graph(graph, folder / "graph")
        found = run(folder, graph, mix, options)
    print(table(found))
    path = options.workdir / "serving_load.json"
    output.write_results(path, found, options.invocation)
    problems = judge(found)
    print(*problems, sep="\n")
    return 1 if problems else 0


@dataclasses.dataclass(frozen=True)
class Mix:
    """Shares of what is asked; the rest are predictions of one to ten nodes."""

    explain: float
    new: float
    update: float


def run(
    folder: pathlib.Path, graph: hopf_jax.Graph, mix: Mix, options: Any
) -> dict[str, Any]:
    """Serve what is in a folder, and return what was measured."""
    found: dict[str, Any] = {"nodes": graph.num_nodes, "edges": graph.num_edges}
    with served(folder) as (process, port, seconds):
        found["start_seconds"] = seconds
        found |= asyncio.run(load(port, process.pid, graph, mix, options))
        found["malformed"] = asyncio.run(send_rubbish(port, options.malformed))
        before = asyncio.run(predict_all(port, graph.num_nodes))
        process.kill()
    with served(folder) as (process, port, seconds):
        found["restart_seconds"] = seconds
        after = asyncio.run(predict_all(port, graph.num_nodes))
        found["updates"] = before[0]["version"]
        found["same_answers"] = before == after
        process.send_signal(signal.SIGTERM)
        found["exit_status"] = process.wait(60)
    return found


@contextlib.contextmanager
def served(folder: pathlib.Path) -> Iterator[tuple[Any, int, float]]:
    """Yield a service, its port, and the seconds until it was ready."""
    begun = time.monotonic()
    command = [
        *(sys.executable, "-m", "hopf_jax", "serve", str(folder / "model.npz")),
        *("--graph", str(folder / "graph"), "--state", str(folder / "state")),
        *("--port", "0"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = re.search(r":(\d+)$", process.stdout.readline().strip())
        if ready is None:
            raise RuntimeError("hopf serve did not start; see above.")
        yield process, int(ready[1]), time.monotonic() - begun
    finally:
        process.kill()
        process.wait()


class Client:
    """One connection, kept alive."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._reader: Any = None

    async def post(self, path: str, message: Any) -> tuple[int, bytes]:
        """Return the status and the body of the answer to a JSON message."""
        body = json.dumps(message).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{_JSON}"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return await self.send(head.encode() + body)

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Return the status and the body of the answer to some bytes."""
        if self._reader is None:
            self._reader, self._writer = await asyncio.open_connection(
                "127.0.0.1", self.port, limit=1 << 24
            )
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin1")
        length = re.search(r"\r\ncontent-length: (\d+)", head, re.IGNORECASE)
        closing = re.search(r"\r\nconnection: close", head, re.IGNORECASE)
        if length is None:  # Until the connection is closed.
            body = await self._reader.read()
        else:
            body = await self._reader.readexactly(int(length[1]))
        if closing or length is None:
            await self.close()
        return int(head.split()[1]), body

    async def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._reader is not None:
            self._reader = None
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()


async def load(
    port: int, process: int, graph: hopf_jax.Graph, mix: Mix, options: Any
) -> dict[str, Any]:
    """Ask for some time; return latencies, statuses and memory."""
    end = time.monotonic() + options.seconds
    times: dict[str, list[float]] = {}
    statuses: dict[str, int] = {}
    curve: list[dict[str, Any]] = []

    async def ask(seed: int) -> None:
        client, requests = Client(port), requests_of(graph, mix, seed)
        while time.monotonic() < end:
            path, message = next(requests)
            begun = time.perf_counter()
            status, _ = await client.post(path, message)
            times.setdefault(path, []).append(time.perf_counter() - begun)
            statuses[str(status)] = statuses.get(str(status), 0) + 1
        await client.close()

    async def watch() -> None:
        begun = time.monotonic()
        while time.monotonic() < end:
            second = round(time.monotonic() - begun)
            curve.append({"second": second, "rss_mb": resident(process)})
            await asyncio.sleep(1)

    begun = time.monotonic()
    await asyncio.gather(watch(), *(ask(seed) for seed in range(options.connections)))
    seconds = time.monotonic() - begun
    every = [each for some in times.values() for each in some]
    return {
        "seconds": seconds,
        "connections": options.connections,
        "requests": len(every),
        "requests_per_second": len(every) / seconds,
        "statuses": statuses,
        "latency_ms": {"all": quantiles(every)}
        | {path: quantiles(some) for path, some in sorted(times.items())},
        "memory_growth": grown(curve, "rss_mb"),
        "memory": curve,
    }


def requests_of(
    graph: hopf_jax.Graph, mix: Mix, seed: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield requests; updates take back every second time what they did before."""
    rng = random.Random(seed)
    last: dict[str, Any] | None = None
    width = graph.num_features
    labels = graph.classes or graph.label_names
    free = np.flatnonzero(~graph.known | graph.test).tolist()
    while True:
        node, kind = rng.randrange(graph.num_nodes), rng.random()
        if kind < mix.explain:
            yield "/explain", {"node": node}
        elif kind < mix.explain + mix.new:
            row = [0.0] * width
            for at in rng.sample(range(width), min(width, 20)):
                row[at] = round(rng.random(), 3)
            near = [{"node": rng.randrange(graph.num_nodes)} for _ in range(3)]
            yield "/predict-new", {"features": row, "neighbours": near}
        elif kind < mix.explain + mix.new + mix.update:
            if last is None:
                at = rng.choice(free)
                last = {"labels": [{"node": at, "label": None}]}
                yield "/update", {"labels": [{"node": at, "label": rng.choice(labels)}]}
            else:
                yield "/update", last
                last = None
        else:
            count = rng.randrange(1, 11)
            nodes = [rng.randrange(graph.num_nodes) for _ in range(count)]
            yield "/predict", {"nodes": nodes, "probabilities": rng.random() < 0.5}


async def send_rubbish(port: int, count: int) -> dict[str, int]:
    """Send malformed requests; return how often there was each status."""
    found: dict[str, int] = {}
    rng = random.Random(0)
    for _ in range(count):
        client = Client(port)
        try:
            status, _ = await client.send(rubbish(rng))
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            status = type(error).__name__  # type: ignore[assignment]
        await client.close()
        found[str(status)] = found.get(str(status), 0) + 1
    return found


def rubbish(rng: random.Random) -> bytes:
    """Return a request that no service may accept."""
    path = rng.choice(["/predict", "/explain", "/search", "/update", "/predict-new"])

    def posted(body: bytes, head: str = _JSON) -> bytes:
        start = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{head}"
        return f"{start}Content-Length: {len(body)}\r\n\r\n".encode() + body

    kinds: list[Callable[[], bytes]] = [
        lambda: rng.randbytes(rng.randrange(1, 200)) + b"\r\n\r\n",
        lambda: f"{rng.choice(['GET', 'POST'])} {path}\r\n\r\n".encode(),
        lambda: b"GET / HTTP/1.1\r\n\r\n",  # Without a host.
        lambda: b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        lambda: b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
        lambda: f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
        lambda: posted(rng.randbytes(rng.randrange(1, 300))),
        lambda: posted(b"[" * rng.randrange(1, 100_000)),
        lambda: posted(b'{"nodes": [1]}', "Content-Type: text/plain\r\n"),
        lambda: posted(b'{"nodes": [1]}', ""),
        lambda: posted(b'{"nodes": [1]}', _JSON + "Content-Length: 3\r\n"),
        lambda: posted(b" " * rng.randrange(2 << 20, 3 << 20)),
        lambda: posted(b'{"nodes": [NaN], "node": NaN, "prefix": NaN}'),
        lambda: posted(json.dumps({"nodes": [rng.randrange(-9, 0)]}).encode()),
        lambda: posted(json.dumps({"node": [[["x"]]]}).encode()),
        lambda: posted(json.dumps({"drop": ["x"], "most": "1"}).encode()),
        lambda: posted(json.dumps({"if_version": -1}).encode()),
        lambda: posted(json.dumps({"features": [1] * rng.randrange(1, 9)}).encode()),
        lambda: posted(b'{"prefix": "a", "prefix": "b"}'),
    ]
    return rng.choice(kinds)()


async def predict_all(port: int, count: int) -> list[dict[str, Any]]:
    """Return the answers about all nodes."""
    client, found = Client(port), []
    for start in range(0, count, _AT_ONCE):
        nodes = list(range(start, min(start + _AT_ONCE, count)))
        message = {"nodes": nodes, "probabilities": True}
        found.append(json.loads((await client.post("/predict", message))[1]))
    await client.close()
    return found


def resident(process: int) -> int:
    """Return the resident memory of a process, in MB."""
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return the number, the median, the 99th percentile and the most, in ms."""
    milliseconds = 1000 * np.array(seconds)
    return {
        "count": len(seconds),
        "median": float(np.median(milliseconds)),
        "p99": float(np.quantile(milliseconds, 0.99)),
        "most": float(milliseconds.max()),
    }


def table(found: dict[str, Any]) -> str:
    """Return what was measured, as Markdown."""
    lines = [
        "| | requests | median, ms | 99th percentile, ms | most, ms |",
        "|---|---:|---:|---:|---:|",
    ]
    for path, each in found["latency_ms"].items():
        numbers = (f"{each[name]:.1f}" for name in ("median", "p99", "most"))
        lines.append(f"| {path} | {each['count']} | {' | '.join(numbers)} |")
    memory = [each["rss_mb"] for each in found["memory"]]
    return "\n".join(
        [
            *lines,
            "",
            f"{found['requests_per_second']:.0f} requests per second from "
            f"{found['connections']} connections for {found['seconds']:.0f} s; "
            f"statuses {found['statuses']}",
            f"memory {memory[0]} MB at first, {max(memory)} MB at most, {memory[-1]} "
            f"MB at the end; {100 * found['memory_growth']:+.1f}% after the first "
            "quarter",
            f"malformed: {found['malformed']}",
            f"ready after {found['start_seconds']:.1f} s; killed, and ready again with "
            f"{found['updates']} updates after {found['restart_seconds']:.1f} s, with "
            f"{'the same' if found['same_answers'] else 'OTHER'} answers; exit status "
            f"{found['exit_status']} at SIGTERM",
        ]
    )


def judge(found: dict[str, Any]) -> list[str]:
    """Return what is not as it must be."""
    wrong = []
    if set(found["statuses"]) != {"200"}:
        wrong.append("Some answers were errors.")
    if any(not re.fullmatch(r"4\d\d", status) for status in found["malformed"]):
        wrong.append("Some malformed requests were not answered with 4xx.")
    if found["memory_growth"] > _TOLERANCE:
        wrong.append("Memory grew.")
    if not found["same_answers"]:
        wrong.append("Answers changed with a restart.")
    if found["exit_status"]:
        wrong.append("The service did not end well.")
    return wrong


if __name__ == "__main__":
    sys.exit(main())

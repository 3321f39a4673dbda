"""The service: routes, limits and errors, as an ASGI application."""

import asyncio
import concurrent.futures
import dataclasses
import importlib.resources
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import prometheus_client
import pydantic
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from hopf_jax.config import Number, Whole, check_fields, constrained
from hopf_jax.serving import messages
from hopf_jax.serving.interface import Endpoint, describe, reference_page
from hopf_jax.serving.live import Live, RefusedError

_log = logging.getLogger(__name__)

_JSON = "application/json"
_PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
# Other sites cannot embed these pages, which load nothing from other origins.
_HEADERS = [
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
_MOST_ERRORS = 3  # Reported in a response.


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits on requests and connections.

    Attributes:
      body: Maximal size of a request body in bytes.
      seconds: Maximal time from the first byte of a request to the last of its
        response.
      queue: Maximal number of pending explanations, new nodes and updates.
      connections: Maximal number of open connections.
    """

    body: int = constrained(Whole(1, 1 << 30), 1 << 20)
    seconds: float = constrained(Number(0.01, 3600), 30.0)
    queue: int = constrained(Whole(1, 100_000), 64)
    connections: int = constrained(Whole(1, 100_000), 512)

    def __post_init__(self) -> None:
        """Raise `ValueError` if a limit is out of range."""
        check_fields(self)


class Worker:
    """A thread for long computations, with a queue of bounded length."""

    def __init__(self, most: int) -> None:
        self.most, self.waiting = most, 0
        self._lock = threading.Lock()
        self._seconds = 0.1  # Moving average of the time per task.
        self._pool = concurrent.futures.ThreadPoolExecutor(1, "hopf-worker")

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function in the thread and return its result.

        If the caller is cancelled, work that has not started is dropped; work that has
        started keeps its place in the queue until it ends.
        """
        if self.waiting >= self.most:
            raise BusyError(max(1, math.ceil(self.waiting * self._seconds)))

        def work() -> Any:
            begun = time.monotonic()
            try:
                return function(*arguments)
            finally:
                self._seconds += 0.1 * (time.monotonic() - begun - self._seconds)

        def leave(_: Any) -> None:
            with self._lock:
                self.waiting -= 1

        with self._lock:
            self.waiting += 1
        future = self._pool.submit(work)
        future.add_done_callback(leave)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Wait for running work and accept no more."""
        self._pool.shutdown(cancel_futures=True)


class BusyError(RefusedError):
    """The queue is full; retry after `seconds`."""

    def __init__(self, seconds: int) -> None:
        super().__init__(503, f"Too many requests wait. Try again in {seconds} s.")
        self.seconds = seconds


class Metrics:
    """Metrics of the service for Prometheus."""

    def __init__(self, live: Live, worker: Worker) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        self.requests = prometheus_client.Counter(
            "hopf_requests", "Answers.", ["path", "status"], registry=self.registry
        )
        self.seconds = prometheus_client.Histogram(
            "hopf_request_seconds",
            "Seconds from a request's header to its answer.",
            ["path"],
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1, 2.5, 10, 30),
            registry=self.registry,
        )

        def gauge(name: str, text: str, read: Callable[[], float]) -> None:
            made = prometheus_client.Gauge(name, text, registry=self.registry)
            made.set_function(read)

        gauge("hopf_queue", "Requests in the queue.", lambda: worker.waiting)
        gauge("hopf_nodes", "Nodes of the graph.", lambda: live.view.num_nodes)
        gauge("hopf_edges", "Entries of A.", lambda: live.view.num_edges)
        gauge("hopf_updates", "Updates so far.", lambda: live.view.version)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return prometheus_client.generate_latest(self.registry)


def make_app(
    live: Live, limits: Limits | None = None, hosts: Sequence[str] | None = None
) -> "Guard":
    """Return the service as an ASGI application.

    Args:
      live: The model and the graph.
      limits: Limits on requests.
      hosts: Names by which clients may call the service, without a port; None for any.
        A service on one's own machine must refuse others: a web page could give the
        address of this machine to its own name, and read what is served.
    """
    limits = limits or Limits()
    worker = Worker(limits.queue)
    metrics = Metrics(live, worker)

    async def predict(asked: messages.PredictRequest) -> Any:
        return live.view.predict(asked.nodes, asked.probabilities)

    async def explain(asked: messages.ExplainRequest) -> Any:
        return await worker.run(
            lambda: live.view.explain(asked.node, asked.label, asked.most)
        )

    async def search(asked: messages.SearchRequest) -> Any:
        return await worker.run(lambda: live.view.search(asked.prefix, asked.most))

    async def predict_new(asked: messages.PredictNewRequest) -> Any:
        return await worker.run(lambda: live.view.predict_new(asked))

    async def update(asked: messages.UpdateRequest) -> Any:
        return await worker.run(live.update, asked)

    endpoints = [
        Endpoint(
            "/predict",
            "Predict the labels of some nodes",
            *(messages.PredictRequest, messages.PredictResponse, predict),
        ),
        Endpoint(
            "/predict-new",
            "Predict the label of a node that is not in the graph",
            *(messages.PredictNewRequest, messages.PredictNewResponse, predict_new),
        ),
        Endpoint(
            "/explain",
            "Explain a prediction, and lay out the neighbourhood that it reads",
            *(messages.ExplainRequest, messages.ExplainResponse, explain),
        ),
        Endpoint(
            "/search",
            "Find nodes by the beginning of their names",
            *(messages.SearchRequest, messages.SearchResponse, search),
        ),
    ]
    if live.changeable:
        endpoints.append(
            Endpoint(
                "/update",
                "Change the graph, and predict anew what depends on the change",
                *(messages.UpdateRequest, messages.UpdateResponse, update),
            )
        )
    interface = describe(endpoints)
    page = reference_page(interface)

    async def health(_: Request) -> Response:
        return _answer(live.health())

    async def numbers(_: Request) -> Response:
        return Response(
            metrics.text(), media_type=prometheus_client.CONTENT_TYPE_LATEST
        )

    async def openapi(_: Request) -> Response:
        return _answer(interface)

    async def reference(_: Request) -> Response:
        return Response(page, media_type="text/html; charset=utf-8")

    fixed = {
        "/health": health,
        "/metrics": numbers,
        "/openapi.json": openapi,
        "/docs": reference,
    }
    files = importlib.resources.files("hopf_jax.serving") / "page"
    for path, (name, kind) in _PAGE.items():
        fixed[path] = _file((files / name).read_bytes(), kind)
    routes = [Route(path, serve, methods=["GET"]) for path, serve in fixed.items()]
    for each in endpoints:
        routes.append(Route(each.path, _posted(each, limits), methods=["POST"]))
    app = Starlette(
        routes=routes,
        exception_handlers={
            RefusedError: _refuse,
            HTTPException: _http_error,
            Exception: _internal_error,
        },
    )
    app.router.redirect_slashes = False
    paths = {route.path for route in routes}
    return Guard(app, worker, limits, hosts, metrics, paths)


class Guard:
    """Middleware that checks hosts, limits time, counts requests and sets headers."""

    def __init__(
        self,
        app: Any,
        worker: Worker,
        limits: Limits,
        hosts: Sequence[str] | None,
        metrics: Metrics,
        paths: set[str],
    ) -> None:
        self.app, self.worker, self.limits, self.metrics = app, worker, limits, metrics
        self.hosts, self.paths = hosts, paths

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request."""
        begun, status = time.monotonic(), 0

        async def send_on(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        app = self.app if self._is_known(scope["headers"]) else _wrong_host
        try:
            async with asyncio.timeout(self.limits.seconds):
                await app(scope, receive, send_on)
        except TimeoutError:
            if not status:
                text = f"No answer within {self.limits.seconds:g} s."
                await _error(504, text)(scope, receive, send_on)
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(time.monotonic() - begun)

    def _is_known(self, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        if self.hosts is None:
            return True
        given = next((v for name, v in headers if name == b"host"), b"").decode(
            "latin1"
        )
        host = given.rpartition(":")[0] if not given.endswith("]") else given
        return (host if ":" in given else given).strip("[]").lower() in self.hosts


async def _wrong_host(scope: Any, receive: Any, send: Any) -> None:
    text = "The service has another name; see `hopf serve --allow-host`."
    await _error(421, text)(scope, receive, send)


def _posted(endpoint: Endpoint, limits: Limits) -> Any:
    async def serve(request: Request) -> Response:
        body = await _read_body(request, limits)
        return _answer(await endpoint.answer(parse(body, endpoint.request)))

    return serve


async def _read_body(request: Request, limits: Limits) -> bytes:
    """Return the body of a JSON request; refuse other types and long bodies.

    Browsers send JSON to another origin only if that allows it, which this one does
    not: no web page can change the graph.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise RefusedError(415, f"Send a body of Content-Type {_JSON}.")
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RefusedError(415, "Send the body without a Content-Encoding.")
    body = bytearray()
    try:
        async with asyncio.timeout(limits.seconds / 2):
            async for part in request.stream():
                body += part
                if len(body) > limits.body:
                    raise RefusedError(
                        413, f"The body has more than {limits.body} bytes."
                    )
    except TimeoutError:
        raise RefusedError(408, "The body did not arrive in time.") from None
    except ClientDisconnect:
        raise RefusedError(400, "The body ended early.") from None
    return bytes(body)


def parse(body: bytes, kind: type[messages.Message]) -> Any:
    """Return the validated request; raise `RefusedError` if it is invalid."""
    try:
        found = kind.model_validate_json(body)
    except pydantic.ValidationError as error:
        errors = error.errors(
            include_url=False, include_context=False, include_input=False
        )
        said = [
            ": ".join((".".join(map(str, each["loc"])) or "the body", each["msg"]))
            for each in errors[:_MOST_ERRORS]
        ]
        raise RefusedError(422, "; ".join(said)) from None
    # It has been parsed, so it is well formed; but of duplicate keys, the parser takes
    # the last.
    json.loads(body, object_pairs_hook=_refuse_twice)
    return found


def _refuse_twice(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise RefusedError(422, "An object has a key twice.")


def _file(content: bytes, kind: str) -> Any:
    async def serve(_: Request) -> Response:
        return Response(content, media_type=kind)

    return serve


def _answer(content: Any, status: int = 200, **headers: str) -> Response:
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Response(text, status, headers, _JSON)


def _error(status: int, message: str, **headers: str) -> Response:
    return _answer({"error": message}, status, **headers)


async def _refuse(_: Request, error: Any) -> Response:
    retry = {"Retry-After": str(error.seconds)} if isinstance(error, BusyError) else {}
    return _error(error.status, str(error), **retry)


async def _http_error(_: Request, error: Any) -> Response:
    hint = " /docs lists what there is." if error.status_code in (404, 405) else ""
    headers = dict(error.headers or {})
    return _error(error.status_code, f"{error.detail}.{hint}", **headers)


async def _internal_error(_: Request, error: Exception) -> Response:
    return _error(500, "The service failed; its log says how.")

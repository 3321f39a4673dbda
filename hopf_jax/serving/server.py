"""The server: sockets, slow clients and signals."""

import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from hopf_jax.serving.live import Live
from hopf_jax.serving.service import Limits, make_app

_IDLE = 15.0  # Seconds within which the header of a request must arrive.
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_FULL = b'{"error":"There are too many connections."}'
_TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
    b"retry-after: 1\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s"
)


def serve(
    live: Live,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    limits: Limits | None = None,
    hosts: Sequence[str] = (),
    announce: Callable[[str], object] = print,
) -> None:
    """Serve until SIGTERM or SIGINT, finish pending requests, and return.

    Args:
      live: The model and the graph.
      host, port: The address to listen on; port 0 selects a free one.
      limits: Limits on requests.
      hosts: Names by which clients may call the service, besides those of this
        machine. If it listens beyond this machine and none are given: any.
      announce: Called with the URL once the service is reachable.

    Raises:
      OSError: The address is not available.
    """
    limits = limits or Limits()
    names = [*_LOOPBACK, host.lower(), *(name.lower() for name in hosts)]
    app = make_app(live, limits, names if host in _LOOPBACK or hosts else None)
    sweeper = Sweeper(limits.seconds)
    config = uvicorn.Config(
        app,
        http=bounded_protocol(limits.connections),
        ws="none",
        lifespan="off",
        log_config=None,  # The default would close the caller's handlers.
        log_level="error",
        access_log=False,
        server_header=False,
        callback_notify=sweeper.sweep,
        timeout_notify=1,
        timeout_graceful_shutdown=int(limits.seconds) + 1,
    )
    server = uvicorn.Server(config)
    sweeper.connections = server.server_state.connections
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:
        # uvicorn raises SIGTERM again once it has stopped; it is not a failure here.
        before = signal.signal(signal.SIGTERM, lambda *_: None)
        try:
            shown = f"[{host}]" if ":" in host else host
            announce(f"http://{shown}:{listening.getsockname()[1]}")
            server.run([listening])
        finally:
            signal.signal(signal.SIGTERM, before)
            app.worker.close()


def bounded_protocol(most: int) -> type[H11Protocol]:
    """Return a protocol that answers connections beyond a limit with status 503."""

    class Bounded(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.write(_TOO_MANY % (len(_FULL), _FULL))
                transport.close()

    return Bounded


class Sweeper:
    """Closes connections whose requests take too long.

    uvicorn limits how long a connection rests between requests, but not how long it
    takes to send a header or to read an answer.

    Args:
      seconds: How long a request may take.
    """

    def __init__(self, seconds: float) -> None:
        self.connections: set[Any] = set()
        self._allowed = {False: _IDLE, True: seconds + 5}
        self._seen: dict[Any, tuple[Any, bool, float]] = {}

    async def sweep(self) -> None:
        """Close connections that have stalled; call it about once per second."""
        now, seen = time.monotonic(), {}
        for each in list(self.connections):
            cycle = each.cycle  # The current request, or the last one.
            busy = cycle is not None and not cycle.response_complete
            last = self._seen.get(each)
            if last is None or (last[0], last[1]) != (cycle, busy):
                last = (cycle, busy, now)
            elif now - last[2] > self._allowed[busy]:
                each.transport.abort()
            seen[each] = last
        self._seen = seen

"""A client of an ASGI application, in the same process and without a socket."""

import asyncio
import json
from typing import Any, NamedTuple

JSON = {"content-type": "application/json", "host": "localhost:8000"}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(app, path, message=None, *, method=None, body=None, headers=JSON):
    """Send a request; `body` may be a list of parts, of which None never comes."""
    if message is not None:
        body = json.dumps(message).encode()
    parts = list(body) if isinstance(body, list) else [body or b""]
    sent = []

    async def receive():
        if not parts:
            await asyncio.Event().wait()
        part = parts.pop(0)
        if part is None:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(event):
        sent.append(event)

    method = method or ("GET" if body is None else "POST")
    pairs = [(k.encode(), v.encode()) for k, v in headers.items()]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": pairs,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
    await app(scope, receive, send)
    said = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    return Answer(sent[0]["status"], said, b"".join(e["body"] for e in sent[1:]))


def asked(app, *arguments, **keywords):
    return asyncio.run(ask(app, *arguments, **keywords))

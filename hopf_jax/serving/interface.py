"""The service's interface, described as OpenAPI and as a page without scripts."""

import dataclasses
import html
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pydantic.json_schema import models_json_schema

from hopf_jax.serving import messages

_REF = "#/components/schemas/{model}"
_FAILURES = {
    "400": "the body ended early, or the request is no HTTP",
    "404": "there is no such node",
    "408": "the body did not arrive in time",
    "409": "`if_version` is not the version",
    "413": "the body is too long",
    "415": "the body is not declared as JSON",
    "421": "the service does not go by that name",
    "422": "a field is missing, unknown or of the wrong type, or contradicts the graph",
    "503": "too many requests wait; `Retry-After` says for how many seconds",
    "504": "there was no answer in time",
}
_READ = {
    "/health": ("What is served", "HealthResponse"),
    "/metrics": ("Numbers for Prometheus, as text", None),
    "/openapi.json": ("This description, as OpenAPI 3.1", None),
}


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """A path that accepts JSON by POST, and its handler."""

    path: str
    summary: str
    request: type[messages.Message]
    response: type[messages.Message]
    answer: Callable[[Any], Awaitable[Any]]


def describe(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of the interface."""
    models: list[Any] = [messages.HealthResponse, messages.ErrorResponse]
    for each in endpoints:
        models += [each.request, each.response]
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template=_REF
    )
    paths: dict[str, Any] = {}
    for path, (summary, model) in _READ.items():
        found = _content(model) if model else {}
        paths[path] = {
            "get": {
                "summary": summary,
                "responses": {"200": {"description": summary} | found},
            }
        }
    failures = {
        status: {"description": text} | _content("ErrorResponse")
        for status, text in _FAILURES.items()
    }
    for each in endpoints:
        ok = {"description": _first_line(each.response)} | _content(
            each.response.__name__
        )
        body = _content(each.request.__name__) | {"required": True}
        paths[each.path] = {
            "post": {
                "summary": each.summary,
                "requestBody": body,
                "responses": {"200": ok} | failures,
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "hopf serve", "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas["$defs"]},
    }


def _content(model: str) -> dict[str, Any]:
    schema = {"$ref": _REF.format(model=model)}
    return {"content": {"application/json": {"schema": schema}}}


def _first_line(model: type) -> str:
    return (model.__doc__ or "").partition("\n")[0]


def reference_page(interface: dict[str, Any]) -> str:
    """Return an HTML page that shows an OpenAPI description."""
    schemas = interface["components"]["schemas"]
    parts = []
    for path, methods in interface["paths"].items():
        for method, said in methods.items():
            parts.append(f"<h2><code>{method.upper()} {path}</code></h2>")
            parts.append(f"<p>{html.escape(said['summary'])}.</p>")
            for title, holder in (
                ("Send", said.get("requestBody")),
                ("Receive", said["responses"]["200"]),
            ):
                if holder and "content" in holder:
                    schema = holder["content"]["application/json"]["schema"]
                    name = schema["$ref"].rpartition("/")[2]
                    parts.append(f"<h3>{title}</h3>{_fields(schemas[name])}")
    parts.append("<h2>If something is wrong</h2>")
    parts.append(
        "<p>The answer is <code>{&quot;error&quot;: &quot;...&quot;}</code>.</p>"
    )
    rows = "".join(
        f"<tr><td>{status}</td><td>{html.escape(text)}</td></tr>"
        for status, text in _FAILURES.items()
    )
    parts.append(f"<table>{rows}</table>")
    parts.append("<h2>Types</h2>")
    shown = {"NodeFeatures", "Edge", "WeightedEdge", "NodeLabel", "Neighbour"}
    shown |= {"Prediction", "Share", "DrawnNode"}
    for name in sorted(shown & set(schemas)):
        parts.append(f'<h3 id="{name}">{name}</h3>{_fields(schemas[name])}')
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        "<title>Interface</title>"
        '<link rel="stylesheet" href="/page.css"><main class="reference">'
        '<p><a href="/">Back to the graph</a></p>'
        f"<h1>Interface</h1>{''.join(parts)}</main></html>"
    )


def _fields(schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    rows = []
    for name, field in schema.get("properties", {}).items():
        default = (
            "" if name in required else f"default {json.dumps(field.get('default'))}"
        )
        said = field.get("description", "")
        cells = f"<td><code>{name}</code></td><td>{_type(field)}</td>"
        rows.append(
            f"<tr>{cells}<td>{html.escape(default)}</td><td>{html.escape(said)}</td></tr>"
        )
    about = html.escape(schema.get("description", "").partition("\n")[0])
    return f"<p>{about}</p><div class=wide><table>{''.join(rows)}</table></div>"


def _type(field: dict[str, Any]) -> str:
    """Return the type of a field in words."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(each) for each in field["anyOf"]))
    if field.get("type") == "array":
        inner = field.get("items")
        return f"list of {_type(inner)}" if inner else "list"
    return html.escape(str(field.get("type", "anything")))

"""The service, asked in the same process: answers, limits, errors."""

import asyncio
import json
import random
import threading

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hopf_jax.serving import Limits, Live, make_app, messages, service
from tests.serving.client import JSON, ask, asked


def checked(answer, kind):
    """The answer, after its contents were compared with what is promised."""
    assert answer.status == 200, answer.body
    kind.model_validate_json(answer.body)
    return answer.json


def refused(answer, status, *words):
    messages.ErrorResponse.model_validate_json(answer.body)
    assert answer.status == status, answer.body
    for word in words:
        assert word in answer.json["error"], answer.json
    return answer


def test_nodes_are_predicted_by_name(app, result):
    names = ["Ann", [1, 2], 7.5, True, "<b>&"]
    found = checked(
        asked(app, "/predict", {"nodes": names, "probabilities": True}),
        messages.PredictResponse,
    )
    own = [tuple(name) if isinstance(name, list) else name for name in names]
    sure = result.confidence(own)
    assert found["version"] == 0
    for each, name, label, value, row in zip(
        found["predictions"],
        names,
        result.predict(own),
        sure.values,
        sure.probabilities,
        strict=True,
    ):
        assert (each["node"], each["label"]) == (name, label)
        assert each["confidence"] == pytest.approx(value, abs=1e-6)
        assert list(each["probabilities"]) == list(result.label_names)
        assert list(each["probabilities"].values()) == pytest.approx(row, abs=1e-6)


def test_nodes_without_names_are_called_by_id(several):
    app = make_app(Live(several, several.graph))
    found = checked(asked(app, "/predict", {"nodes": [17]}), messages.PredictResponse)
    (one,) = found["predictions"]
    (decided,) = several.predict([17])
    assert one["label"] == several.classes_[decided > 0].tolist()
    assert one["confidence"] is None and set(one["probabilities"]) == {"0", "1", "2"}
    for wrong in (18, -1, True, "17", 1.0):
        refused(asked(app, "/predict", {"nodes": [0, wrong]}), 404, "nodes[1]", "17")
    explained = checked(asked(app, "/explain", {"node": 5}), messages.ExplainResponse)
    assert explained["label"] == several.explain(5).label


def test_a_node_is_explained_and_laid_out(app, result):
    found = checked(
        asked(app, "/explain", {"node": "Ann", "most": 3}), messages.ExplainResponse
    )
    own = result.explain("Ann")
    assert (found["node"], found["label"]) == ("Ann", own.label)
    assert {s["name"]: s["share"] for s in found["shares"]} == pytest.approx(
        own.shares, abs=1e-6
    )
    assert found["features"][0]["name"] == own.features(1)[0].name
    first, *others = found["nodes"]
    assert (first["node"], first["hop"], first["x"], first["y"]) == ("Ann", 0, 0, 0)
    assert len(others) + 1 + found["left_out"] == len(own.nodes)
    assert all(0 <= place <= len(others) for edge in found["edges"] for place in edge)
    other = next(label for label in result.classes_.tolist() if label != own.label)
    given = {"node": "Ann", "label": other}
    assert asked(app, "/explain", given).json["label"] == other
    refused(asked(app, "/explain", {"node": "Ann", "label": "x"}), 422, "does not know")


def test_what_reads_too_much_is_not_explained(app, monkeypatch):
    monkeypatch.setattr("hopf_jax.serving.live._MOST_EXPLAINED", 20)
    refused(asked(app, "/explain", {"node": "node 9"}), 422, "too many")


def test_names_are_found_by_their_beginning(app):
    def found(prefix, **more):
        answer = asked(app, "/search", {"prefix": prefix} | more)
        return checked(answer, messages.SearchResponse)["nodes"]

    assert found("ann") == ["Ann", "ann-marie"] and found("Ü") == ["ü"]
    assert found("node 1", most=2) == ["node 10", "node 11"] and found("x") == []


def test_a_new_node_is_predicted_and_not_added(app, live):
    row = [0.5] * 7
    given = {"features": row, "neighbours": [{"node": "Ann"}, {"node": "Bob"}]}
    found = checked(asked(app, "/predict-new", given), messages.PredictNewResponse)
    own = live.view.now.predict_new(row, ["Ann", "Bob"])
    assert found["label"] == own.label
    assert list(found["probabilities"].values()) == pytest.approx(
        own.confidence, abs=1e-6
    )
    assert found["confidence"] == max(found["probabilities"].values())
    by_name = {"features": {f"column {i}": v for i, v in enumerate(row)}}
    again = asked(app, "/predict-new", given | by_name)
    assert again.json == found and live.view.num_nodes == 18
    refused(asked(app, "/predict-new", {"features": [1.0]}), 422, "7 columns")
    refused(
        asked(app, "/predict-new", given | {"neighbours": [{"node": "x"}]}),
        *(404, "neighbours[0].node"),
    )


CHANGE = {
    "add_nodes": [{"node": "Zoe", "features": [1, 0, 0, -1, 0.5, 0, 2]}],
    "add_edges": [
        {"source": "Zoe", "target": "Ann"},
        {"source": "Bob", "target": [1, 2]},
    ],
    "drop": ["node 9"],
    "labels": [{"node": "node 17", "label": 1}],
    "features": [{"node": "Bob", "features": [0, 1, 0, 0, 0, 0, 0]}],
}


def test_updates_change_what_is_predicted(app, live, result):
    before = live.view
    found = checked(asked(app, "/update", CHANGE), messages.UpdateResponse)
    assert (found["version"], found["nodes"], found["stored"]) == (1, 18, False)
    assert "Zoe" in found["relabelled"] and found["changed"] >= 1
    whole = result.update(
        result.graph,
        add_nodes={"Zoe": CHANGE["add_nodes"][0]["features"]},
        add_edges=[("Zoe", "Ann"), ("Bob", (1, 2))],
        drop=["node 9"],
        labels={"node 17": 1},
        features={"Bob": CHANGE["features"][0]["features"]},
    )
    for name in ("Zoe", "Ann", "Bob"):
        answer = asked(app, "/predict", {"nodes": [name], "probabilities": True}).json
        said = list(answer["predictions"][0]["probabilities"].values())
        wanted = whole.result.confidence([name]).probabilities[0]
        assert answer["version"] == 1 and said == pytest.approx(wanted, abs=2e-5)
        explained = asked(app, "/explain", {"node": name}).json
        assert explained["version"] == 1
        assert explained["label"] == answer["predictions"][0]["label"]
    refused(asked(app, "/predict", {"nodes": ["node 9"]}), 404)
    assert asked(app, "/search", {"prefix": "zo"}).json["nodes"] == ["Zoe"]
    assert before.predict(["node 9"], False)["version"] == 0  # It never changes.
    assert asked(app, "/health").json["version"] == 1


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"if_version": 3}, 409, "version is 0"),
        ({"drop": ["nobody"]}, 404, "drop[0]"),
        ({"drop_edges": [{"source": "Ann", "target": "Bob"}]}, 422, "edge"),
        ({"labels": [{"node": "Ann", "label": "no such"}]}, 422, "no such"),
        ({"labels": [{"node": "Ann", "label": 0}] * 2}, 422, "twice"),
        ({"add_nodes": [{"node": "Ann", "features": [0] * 7}]}, 422, "Ann"),
        ({"add_nodes": [{"node": "Zoe", "features": [0] * 6}]}, 422, "7"),
        ({"add_nodes": [{"node": "Zoe", "features": {"x": 1}}]}, 422, "column"),
        ({"add_nodes": [{"node": "Zoe", "features": [None] * 7}]}, 422, ""),
        ({"add_edges": [{"source": "Ann", "target": "x"}]}, 404, "add_edges[0].target"),
        (
            {"add_edges": [{"source": "Ann", "target": "Bob", "weight": -1}]},
            *(422, "weight"),
        ),
        (CHANGE | {"drop": ["Ann"]}, 422, "Ann"),
    ],
)
def test_wrong_updates_change_nothing(app, live, change, status, words):
    refused(asked(app, "/update", change), status, words)
    assert live.view.version == 0 and live.view.num_nodes == 18


def test_ids_stay_what_they_are(several):
    app = make_app(Live(several, several.graph))
    refused(asked(app, "/update", {"drop": [3]}), 422, "no names")
    change = {"add_nodes": [{"node": 18, "features": [0] * 7}]}
    found = checked(asked(app, "/update", change), messages.UpdateResponse)
    assert found["nodes"] == 19 and found["relabelled"] == [18]


def test_updates_can_be_switched_off(result):
    app = make_app(Live(result, result.graph, changeable=False))
    refused(asked(app, "/update", {}), 404)
    assert asked(app, "/health").json["updates"] is False
    assert "/update" not in asked(app, "/openapi.json").json["paths"]


# Malformed requests


def test_bodies_are_read_strictly(app):
    def send(body, **more):
        return asked(app, "/predict", body=body, headers=JSON | more)

    for body in (
        *(b"", b"null", b"[]", b'"x"', b"{}", b"{", b'{"nodes": "Ann"}', b"\xff\xfe"),
        *(b'{"nodes": []}', b'{"nodes": [null]}', b'{"nodes": [NaN]}', b"[" * 10_000),
        *(b'{"nodes": [{}]}', b'{"nodes": ["\\ud800"]}', b'{"nodes": [1e999]}'),
        b'{"nodes": ["Ann"], "more": 1}',
        b'{"nodes": ["Ann"], "probabilities": 1}',
        b'{"nodes": ["Ann"], "nodes": ["Bob"]}',
        b'{"nodes": ["Ann"]} x',
        json.dumps({"nodes": ["Ann"] * 1001}).encode(),
        json.dumps({"nodes": ["x" * 1001]}).encode(),
        json.dumps({"nodes": [[[1]]]}).encode(),
    ):
        refused(send(body), 422)
    refused(send(b'{"nodes": [%s]}' % (b"9" * 400)), 404)
    refused(send(b'{"nodes": ["Ann\\u0000"]}'), 404)
    good = b'{"nodes": ["Ann"]}'
    assert (
        send(good, **{"content-type": "application/JSON; charset=utf-8"}).status == 200
    )
    for kind in ("text/plain", "", "application/x-www-form-urlencoded"):
        refused(send(good, **{"content-type": kind}), 415)
    refused(send(good, **{"content-encoding": "gzip"}), 415)
    refused(asked(app, "/predict", method="GET"), 405, "/docs")
    refused(asked(app, "/health", message={}), 405)


def test_long_bodies_are_refused_before_they_end(live):
    app = make_app(live, Limits(body=100))
    parts = [b" " * 60, b" " * 60, None]  # The rest would never come.
    refused(asked(app, "/predict", body=parts), 413, "100 bytes")
    assert asked(app, "/predict", {"nodes": ["Ann"]}).status == 200


def test_bodies_that_do_not_come_end(live):
    app = make_app(live, Limits(seconds=0.2))
    refused(asked(app, "/predict", body=[b"{", None]), 408)


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:80", "", "[::1]:80", "localhost@x"]
)
def test_other_hosts_are_refused(app, host):
    refused(asked(app, "/health", headers={"host": host}), 421)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8", "[::1]:8"])
def test_own_hosts_are_not(live, host):
    app = make_app(live, hosts=["localhost", "127.0.0.1", "::1"])
    assert asked(app, "/health", headers={"host": host}).status == 200


def test_paths_lead_to_no_files(app):
    for path in (
        *("/../service.py", "/page/index.html", "/..%2fservice.py", "//etc/passwd"),
        *("/index.html", "/page.js/", "/docs/../openapi.json", "/\x00", "/page.js\\"),
    ):
        refused(asked(app, path), 404)


def junk(rng, depth=0):
    """Something that JSON can express, mostly wrong."""
    plain = [
        "Ann",
        "",
        "node 9",
        "x" * 50,
        0,
        -1,
        1e300,
        2**70,
        0.5,
        True,
        None,
        "\x00",
    ]
    kind = rng.random()
    if depth > 3 or kind < 0.5:
        return rng.choice(plain)
    if kind < 0.75:
        return [junk(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(KEYS): junk(rng, depth + 1) for _ in range(rng.randrange(4))}


KEYS = (
    *(
        "nodes",
        "node",
        "probabilities",
        "most",
        "prefix",
        "label",
        "labels",
        "features",
    ),
    *("add_nodes", "add_edges", "drop", "drop_edges", "source", "target", "weight"),
    *("neighbours", "if_version", "?"),
)
PATHS = ("/predict", "/explain", "/search", "/update", "/predict-new")


def test_nothing_that_is_sent_is_a_fault_of_the_service(app):
    rng, seen = random.Random(0), set()

    async def send():
        for _ in range(400):
            some = [junk(rng), {"node": junk(rng)}, {"nodes": [junk(rng)]}]
            body = json.dumps(rng.choice(some)).encode()
            if rng.random() < 0.3:  # Damage it.
                at = rng.randrange(len(body) + 1)
                body = body[:at] + rng.randbytes(rng.randrange(3)) + body[at + 1 :]
            answer = await ask(app, rng.choice(PATHS), body=body)
            seen.add(answer.status)
            assert answer.status in (200, 404, 409, 422), (body, answer)

    asyncio.run(send())
    assert seen >= {404, 422}


def test_a_number_beyond_all_others_is_refused(app):
    row = {"column 0": 10**400}
    refused(asked(app, "/predict-new", {"features": row}), 422, "column 0", "64 bits")


# Limits


def test_too_many_are_told_when_to_come_back(live, monkeypatch):
    app = make_app(live, Limits(queue=2))
    begun, go_on = threading.Event(), threading.Event()

    def slow(*_):
        begun.set()
        assert go_on.wait(30)
        return {}

    monkeypatch.setattr(type(live.view), "explain", slow)

    async def run():
        waiting = [
            asyncio.create_task(ask(app, "/explain", {"node": "Ann"})) for _ in range(2)
        ]
        await asyncio.to_thread(begun.wait, 30)
        answer = refused(await ask(app, "/explain", {"node": "Ann"}), 503, "Try again")
        assert int(answer.headers["retry-after"]) >= 1
        # What does not wait is answered.
        assert (await ask(app, "/predict", {"nodes": ["Ann"]})).status == 200
        assert "hopf_queue 2.0" in (await ask(app, "/metrics")).body.decode()
        go_on.set()
        assert [(await each).status for each in waiting] == [200, 200]
        assert (await ask(app, "/explain", {"node": "Ann"})).status == 200

    asyncio.run(run())


def test_late_answers_are_given_up_but_keep_their_place(live, monkeypatch):
    app = make_app(live, Limits(queue=2, seconds=0.3))
    go_on, calls = threading.Event(), []

    def slow(*_):
        calls.append(1)
        assert go_on.wait(30)
        return {}

    monkeypatch.setattr(type(live.view), "explain", slow)

    async def run():
        first, second = await asyncio.gather(
            *(ask(app, "/explain", {"node": "Ann"}) for _ in range(2))
        )
        refused(first, 504, "0.3 s")
        refused(second, 504)
        # The second was not begun, and has left; the first is still being worked on.
        assert app.worker.waiting == 1 and len(calls) == 1
        go_on.set()
        while app.worker.waiting:
            await asyncio.sleep(0.01)

    asyncio.run(run())


def test_a_fault_is_told_without_its_details(live, monkeypatch):
    app = make_app(live)

    def fail(*_):
        raise KeyError("secret")

    monkeypatch.setattr(type(live.view), "explain", fail)
    with pytest.raises(KeyError):  # Which the server writes to its log.
        asked(app, "/explain", {"node": "Ann"})
    count = 'hopf_requests_total{path="/explain",status="500"} 1.0'
    assert count in asked(app, "/metrics").body.decode()


# What describes the service


def test_metrics_are_those_of_prometheus(app):
    asked(app, "/predict", {"nodes": ["Ann"]})
    asked(app, "/predict", {"nodes": ["x"]})
    asked(app, "/no/such/" + "x" * 50)
    answer = asked(app, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }
    assert found["hopf_requests_total", "/predict", "200"] == 1
    assert found["hopf_requests_total", "/predict", "404"] == 1
    assert found["hopf_requests_total", "other", "404"] == 1
    assert found["hopf_request_seconds_count", "/predict"] == 2
    assert found["hopf_nodes",] == 18 and found["hopf_updates",] == 0
    assert found["process_resident_memory_bytes",] > 1e6


def references(data):
    if isinstance(data, dict):
        own = [data["$ref"]] if "$ref" in data else []
        return own + [r for value in data.values() for r in references(value)]
    if isinstance(data, list):
        return [r for value in data for r in references(value)]
    return []


def test_the_interface_is_described(app):
    described = checked_openapi(asked(app, "/openapi.json").json)
    assert set(PATHS) | {"/health", "/metrics"} <= set(described["paths"])
    names = described["components"]["schemas"]
    assert names["PredictRequest"]["additionalProperties"] is False
    page = asked(app, "/docs")
    text = page.body.decode()
    assert page.headers["content-type"].startswith("text/html")
    for path in described["paths"]:
        assert f" {path}</code>" in text
    for link in set(text.split('href="#')[1:]):
        assert f'id="{link.partition(chr(34))[0]}"' in text
    assert "http:" not in text and "https:" not in text and "<script" not in text


def checked_openapi(described):
    assert described["openapi"].startswith("3.1")
    for reference in references(described):
        place = described
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]
    return described


def test_the_page_is_complete_and_fetches_nothing_else(app):
    page = asked(app, "/")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    text = page.body.decode()
    for path in ("/page.css", "/page.js", "/icon.svg"):
        found = asked(app, path)
        assert path in text and found.status == 200 and len(found.body) > 100
        text += found.body.decode()
    assert set(service._PAGE) == {"/", "/page.css", "/page.js", "/icon.svg"}
    outside = text.replace("http://www.w3.org/2000/svg", "")
    assert "http:" not in outside and "https:" not in outside
    assert "innerHTML" not in text and "style=" not in text and "onclick" not in text


def test_all_answers_are_plain_numbers(app):
    answer = asked(app, "/explain", {"node": "Ann"})
    assert np.isfinite([node["x"] for node in answer.json["nodes"]]).all()
    assert answer.headers["cache-control"] == "no-store"

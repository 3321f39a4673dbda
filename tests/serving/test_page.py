"""The page for people, in a real browser without a window.

`HOPF_SCREENSHOTS=folder` keeps what it looks like, in light and dark, wide and narrow.
"""

import base64
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import time

import networkx as nx
import pytest

from hopf_jax import Config, Graph, fit, write_graph
from tests.serving.test_process import served

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="there is no Chromium"),
]
PHONE, DESK = (390, 844), (1200, 900)
SEEN = """
JSON.stringify({
  label: document.querySelector("#label").textContent.trim(),
  sure: document.querySelector("#sure").textContent,
  problem: document.querySelector("#problem").textContent,
  failed: !document.querySelector("#problem").hidden,
  hidden: document.querySelector("#answer").hidden,
  waiting: document.querySelector("#answer").classList.contains("waiting"),
  discs: document.querySelectorAll("#graph circle").length,
  lines: document.querySelectorAll("#graph line").length,
  shares: document.querySelectorAll("#shares tr").length,
  near: [...document.querySelectorAll("#near button")].map((each) => each.textContent),
  options: [...document.querySelectorAll("#found option")].map((each) => each.value),
  markup: document.querySelectorAll("#answer b").length,
  node: document.querySelector("#node").value,
  place: decodeURIComponent(location.hash),
  wide: document.documentElement.scrollWidth,
})
"""


class Browser:
    """A page of Chromium, told what to do over two pipes."""

    def __init__(self, folder):
        down, self._out = os.pipe()
        self._in, up = os.pipe()

        # Chromium reads from 3 and writes to 4.
        hand_over = f'exec "$@" 3<&{down} 4>&{up}'
        command = [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu"),
            *("--hide-scrollbars", "--remote-debugging-pipe", "about:blank"),
            *(f"--user-data-dir={folder}", "--disable-dev-shm-usage"),
        ]
        self.process = subprocess.Popen(
            ["bash", "-c", hand_over, "bash", *command],
            pass_fds=(down, up),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(down)
        os.close(up)
        self._reader = os.fdopen(self._in, "rb")
        self._number, self._session, self.events = 0, None, []
        target = self.tell("Target.createTarget", url="about:blank")["targetId"]
        attached = self.tell("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.tell(f"{domain}.enable")

    def tell(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            said = self._read()
            if said.get("id") == self._number:
                assert "error" not in said, said
                return said["result"]
            self.events.append(said)

    def _read(self):
        parts = bytearray()
        while (byte := self._reader.read(1)) != b"\0":
            assert byte, "the browser has ended"
            parts += byte
        return json.loads(parts)

    def look(self):
        found = self.tell("Runtime.evaluate", expression=SEEN, returnByValue=True)
        if "value" not in found["result"]:  # The page is being loaded.
            return None
        return json.loads(found["result"]["value"])

    def wait(self, ready):
        """Return what is seen, once it is ready."""
        for _ in range(300):
            seen = self.look()
            if seen is not None and ready(seen):
                return seen
            time.sleep(0.1)
        raise AssertionError(seen)

    def type(self, text):
        self.tell("Input.insertText", text=text)

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.tell(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **text,
            )

    def click(self, selector):
        find = f"document.querySelector({selector!r})"
        place = f"(() => {{ const e = {find}; e.scrollIntoView({{block: 'center'}});"
        place += "const r = e.getBoundingClientRect();"
        place += "return JSON.stringify([r.x + r.width / 2, r.y + r.height / 2]) })()"
        found = self.tell("Runtime.evaluate", expression=place, returnByValue=True)
        x, y = json.loads(found["result"]["value"])
        for kind in ("mousePressed", "mouseReleased"):
            self.tell(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x,
                y=y,
                button="left",
                clickCount=1,
            )

    def clear(self):
        self.click("#node")
        expression = "document.querySelector('#node').select()"
        self.tell("Runtime.evaluate", expression=expression)

    def size(self, size):
        width, height = size
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    def screenshot(self, name):
        folder = os.environ.get("HOPF_SCREENSHOTS")
        found = self.tell("Page.captureScreenshot", captureBeyondViewport=False)
        if folder:
            path = pathlib.Path(folder) / f"{name}.png"
            path.write_bytes(base64.b64decode(found["data"]))
        return base64.b64decode(found["data"])

    def close(self):
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):
            os.close(self._out)
        self._reader.close()


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    folder = tmp_path_factory.mktemp("les")
    known = dict.fromkeys(["Myriel", "MlleBaptistine", "MmeMagloire"], "bishop")
    known |= dict.fromkeys(["Enjolras", "Courfeyrac", "Combeferre"], "students")
    known |= dict.fromkeys(["Thenardier", "Gueulemer", "Montparnasse"], "<b>gang</b>")
    graph = Graph.from_networkx(nx.les_miserables_graph(), labels=known)
    names = list(graph.node_names)
    names[names.index("Javert")] = "<b>Javert</b>"
    names[names.index("Cosette")] = 17
    names[names.index("Marius")] = (4, "x")
    graph = dataclasses.replace(graph, node_names=tuple(names))
    settings = Config(num_iterations=2, max_epochs=30)
    result = fit(graph, "i-nip-mean", settings, progress=False)
    result.save(folder / "model.npz")
    write_graph(graph, folder / "graph")
    with served(folder) as (_, number):
        yield number


@pytest.fixture
def browser(tmp_path):
    made = Browser(tmp_path)
    yield made
    made.close()


def test_a_person_asks_for_nodes(port, browser):
    browser.size(DESK)
    browser.tell("Page.navigate", url=f"http://127.0.0.1:{port}/")
    browser.wait(lambda seen: seen["hidden"] and not seen["failed"])
    time.sleep(1)

    # Typed, with suggestions; names with markup are shown as they are.
    browser.type("<b>jav")
    seen = browser.wait(lambda seen: seen["options"])
    assert seen["options"] == ["<b>Javert</b>"]
    browser.clear()
    browser.type("<b>Javert</b>")
    browser.press("Enter", 13)
    seen = browser.wait(lambda seen: not seen["hidden"] and seen["discs"] > 5)
    assert seen["label"] in ("bishop", "students", "<b>gang</b>")
    assert seen["sure"].endswith("sure") and "%" in seen["sure"]
    assert seen["discs"] >= 10 and seen["lines"] >= seen["discs"] - 1
    assert seen["shares"] == 4 and len(seen["near"]) == 10 and seen["markup"] == 0
    assert seen["place"] == "#<b>Javert</b>" and seen["wide"] <= DESK[0]

    # A neighbour in the table, a disc of the drawing, and back.
    first = seen["near"][0]
    browser.click("#near button")
    seen = browser.wait(lambda seen: seen["node"] == first and not seen["waiting"])
    browser.tell(
        "Runtime.evaluate", expression="document.querySelector('#graph .node').focus()"
    )
    browser.press("Enter", 13)
    seen = browser.wait(lambda seen: seen["node"] != first and not seen["waiting"])
    browser.tell("Runtime.evaluate", expression="history.go(-2)")
    browser.wait(lambda seen: seen["node"] == "<b>Javert</b>" and not seen["waiting"])

    # Numbers and tuples are names, too; what is none is said to be none.
    for text in ("17", '[4,"x"]'):
        browser.clear()
        browser.type(text)
        browser.click("#ask button")
        browser.wait(lambda seen, text=text: seen["place"] == f"#{text}")
    browser.clear()
    browser.type("nobody")
    browser.press("Enter", 13)
    seen = browser.wait(lambda seen: seen["failed"])
    assert seen["problem"] == "There is no node nobody." and seen["hidden"]

    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.tell("Emulation.setEmulatedMedia", features=features)
        for device, size in (("desk", DESK), ("phone", PHONE)):
            browser.size(size)
            browser.tell("Page.navigate", url="about:blank")
            browser.tell("Page.navigate", url=f"http://127.0.0.1:{port}/#Valjean")
            seen = browser.wait(
                lambda seen: seen["node"] == "Valjean" and seen["discs"] > 5
            )
            assert seen["wide"] <= size[0]  # Nothing is cut off at the side.
            assert len(browser.screenshot(f"{scheme}-{device}")) > 20_000
        browser.tell("Page.navigate", url=f"http://127.0.0.1:{port}/docs")
        time.sleep(0.5)
        browser.screenshot(f"{scheme}-docs")

    # Nothing was refused by the policy, failed, or was fetched from elsewhere.
    for event in browser.events:
        method, said = event.get("method"), event.get("params", {})
        assert method != "Runtime.exceptionThrown", event
        if method == "Log.entryAdded":
            entry = said["entry"]
            wanted = entry["source"] == "network" and "404" in entry["text"]
            assert wanted, entry  # Of "nobody".
        if method == "Network.requestWillBeSent":
            url = said["request"]["url"]
            assert url.startswith((f"http://127.0.0.1:{port}/", "about:")), url

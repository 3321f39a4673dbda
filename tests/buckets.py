"""A stand-in for Google Cloud Storage: one dictionary, seen through HTTP as tensorstore
reads and writes it, and through fsspec as etils does."""

import functools
import http.server
import io
import json
import sys
import threading
import types
import urllib.parse

from fsspec import AbstractFileSystem


class Store:
    """Objects by "bucket/name", each with the number of its version."""

    def __init__(self):
        self.objects = {}
        self.versions = 0
        self.lock = threading.Lock()

    def put(self, name, data):
        with self.lock:
            self.versions += 1
            self.objects[name] = (data, self.versions)
            return self.versions

    def pop(self, name):
        with self.lock:
            self.objects.pop(name, None)


class Handler(http.server.BaseHTTPRequestHandler):
    """What of the JSON interface tensorstore uses."""

    protocol_version = "HTTP/1.1"
    store: Store

    def log_message(self, *ignored):
        pass

    def asked(self):
        url = urllib.parse.urlsplit(self.path)
        bucket, _, rest = url.path.partition("/b/")[2].partition("/o")
        name = urllib.parse.unquote(rest.removeprefix("/"))
        return bucket, name, dict(urllib.parse.parse_qsl(url.query))

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def about(self, bucket, name):
        data, version = self.store.objects[f"{bucket}/{name}"]
        about = {"bucket": bucket, "name": name, "size": str(len(data))}
        times = dict.fromkeys(("timeCreated", "updated"), "2026-01-01T00:00:00Z")
        return about | times | {"generation": str(version), "metageneration": "1"}

    def current(self, bucket, name, query, what="ifGenerationMatch"):
        version = self.store.objects.get(f"{bucket}/{name}", (b"", 0))[1]
        return what not in query or int(query[what]) == version

    def do_GET(self):
        bucket, name, query = self.asked()
        if not name:
            first, last = (
                query.get("startOffset", ""),
                query.get("endOffset", "\U0010ffff"),
            )
            names = sorted(n.removeprefix(bucket + "/") for n in self.store.objects)
            found = [self.about(bucket, n) for n in names if first <= n < last]
            return self.answer(200, json.dumps({"items": found}).encode())
        data, version = self.store.objects.get(f"{bucket}/{name}", (b"", 0))
        if not version:
            return self.answer(404)
        status, headers = 200, {"x_goog_generation": version}
        asked = self.headers.get("Range", "")
        if asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            size = len(data)
            start = int(first) if first else size - int(last)
            stop = min(int(last) + 1, size) if first and last else size
            headers["Content_Range"] = f"bytes {start}-{stop - 1}/{size}"
            status, data = 206, data[start:stop]
        return self.answer(status, data, **headers)

    def do_POST(self):
        bucket, _, query = self.asked()
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.current(bucket, query["name"], query):
            return self.answer(412)
        self.store.put(f"{bucket}/{query['name']}", data)
        about = self.about(bucket, query["name"])
        return self.answer(200, json.dumps(about).encode())

    def do_DELETE(self):
        bucket, name, query = self.asked()
        if not self.current(bucket, name, query):
            return self.answer(412)
        self.store.pop(f"{bucket}/{name}")
        return self.answer(204)


class FileSystem(AbstractFileSystem):
    """The store for etils. There are no folders, only names with slashes."""

    protocol = ("gs", "gcs")
    cachable = False
    store: Store

    @classmethod
    def _strip_protocol(cls, path):
        return str(path).removeprefix("gs://").removeprefix("gcs://").strip("/")

    def ls(self, path, detail=True, **ignored):
        path = self._strip_protocol(path)
        found = {}
        for name, (data, _) in list(self.store.objects.items()):
            if name == path:
                found[name] = {"name": name, "size": len(data), "type": "file"}
            elif name.startswith(path + "/"):
                child, deeper, _ = name[len(path) + 1 :].partition("/")
                child = f"{path}/{child}"
                kind = "directory" if deeper else "file"
                size = 0 if deeper else len(data)
                found[child] = {"name": child, "size": size, "type": kind}
        if not found:
            raise FileNotFoundError(path)
        return list(found.values()) if detail else list(found)

    def info(self, path, **ignored):
        path = self._strip_protocol(path)
        if path in self.store.objects:
            size = len(self.store.objects[path][0])
            return {"name": path, "size": size, "type": "file"}
        self.ls(path)
        return {"name": path, "size": 0, "type": "directory"}

    def mkdir(self, path, create_parents=True, **ignored):
        pass

    def makedirs(self, path, exist_ok=False):
        pass

    def _open(self, path, mode="rb", **ignored):
        path, store = self._strip_protocol(path), self.store
        if "r" in mode:
            if path not in store.objects:
                raise FileNotFoundError(path)
            return io.BytesIO(store.objects[path][0])

        class Written(io.BytesIO):
            def close(self):
                if not self.closed:
                    store.put(path, self.getvalue())
                super().close()

        return Written()

    def cp_file(self, path1, path2, **ignored):
        data = self.store.objects[self._strip_protocol(path1)][0]
        self.store.put(self._strip_protocol(path2), data)

    def _rm(self, path):
        self.store.pop(self._strip_protocol(path))


@functools.cache
def serve():
    """The store and its address; one a process, as tensorstore looks for it once."""
    store = Store()
    handler = type("Handling", (Handler,), {"store": store})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return store, f"http://127.0.0.1:{server.server_port}"


def google_storage(monkeypatch):
    """Until the test ends gs:// is a store in memory, empty at first; returns it."""
    store, address = serve()
    store.objects.clear()
    system = type("System", (FileSystem,), {"store": store})
    known = sys.modules["fsspec.registry"]._registry  # `fsspec.registry` hides it.
    for name in ("gs", "gcs"):
        monkeypatch.setitem(known, name, system)
    monkeypatch.setenv("TENSORSTORE_GCS_HTTP_URL", address)
    monkeypatch.setenv("GOOGLE_AUTH_TOKEN_FOR_TESTING", "none")
    # Orbax asks the bucket one thing: whether it has folders of its own.
    flat = types.SimpleNamespace(hierarchical_namespace_enabled=False)
    client = types.SimpleNamespace(get_bucket=lambda name: flat)
    storage = types.ModuleType("google.cloud.storage")
    storage.Client = lambda: client
    cloud = types.ModuleType("google.cloud")
    cloud.storage = storage
    monkeypatch.setitem(sys.modules, "google.cloud", cloud)
    monkeypatch.setitem(sys.modules, "google.cloud.storage", storage)
    return store

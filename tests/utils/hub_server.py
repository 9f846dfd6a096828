"""A server on this machine that speaks as much of the Hub's protocol as an index needs."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass(kw_only=True)
class Hub:
    """What the server holds.

    Attributes:
        address: where it listens.
        datasets: the files of each data set.
        created: the data sets that were asked for.
        blobs: what was uploaded as large files, by its SHA-256.
        requests: what was asked.
        refuses: whether every upload is refused.
    """

    address: str = ""
    datasets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    refuses: bool = False

    def commit_of(self, dataset: str) -> str:
        """Name the state of a data set."""
        text = repr(sorted(self.datasets[dataset].items())).encode()
        return hashlib.sha1(text).hexdigest()


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Serve a Hub while the block runs."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Stay silent."""

    def do_POST(self) -> None:
        body = self._body()
        path = self._path()
        if self.hub.refuses:
            self._json({"error": "You may not write here"}, status=403)
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif "/preupload/" in path:
            modes = [
                {"path": name, "uploadMode": _mode(name), "shouldIgnore": False}
                for name in (file["path"] for file in json.loads(body)["files"])
            ]
            self._json({"files": modes})
        elif path.endswith("/info/lfs/objects/batch"):
            self._offer_uploads(json.loads(body))
        elif "/commit/" in path:
            self._commit(_dataset(path, "/commit/"), body)
        else:
            self._json({"error": f"no {path}"}, status=404)

    def do_PUT(self) -> None:
        self.hub.blobs[self._path().rpartition("/")[2]] = self._body()
        self._send(b"")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self._path()
        dataset = next((name for name in self.hub.datasets if f"/datasets/{name}/" in path), None)
        if dataset is None:
            self._json({"error": "Repository not found"}, status=404)
        elif "/resolve/" in path:
            self._file(dataset, path.partition("/resolve/")[2].partition("/")[2])
        else:
            files = self.hub.datasets[dataset]
            tree = [
                {"type": "file", "path": f, "oid": _oid(d), "size": len(d)}
                for f, d in files.items()
            ]
            listed = {
                "id": dataset,
                "sha": self.hub.commit_of(dataset),
                "siblings": [{"rfilename": name} for name in files],
            }
            self._json(tree if "/tree/" in path else listed)

    def _create(self, asked: dict[str, Any]) -> None:
        name = "/".join(filter(None, [asked.get("organization"), asked["name"]]))
        assert asked["type"] == "dataset"
        self.hub.created.append(name)
        self.hub.datasets.setdefault(name, {})
        self._json({"url": f"{self.hub.address}/datasets/{name}"})

    def _offer_uploads(self, asked: dict[str, Any]) -> None:
        objects = [
            {**o, "actions": {"upload": {"href": f"{self.hub.address}/blob/{o['oid']}"}}}
            for o in asked["objects"]
        ]
        self._json({"transfer": "basic", "objects": objects})

    def _commit(self, dataset: str, body: bytes) -> None:
        files = self.hub.datasets[dataset]
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.blobs[value["oid"]]
                assert hashlib.sha256(files[value["path"]]).hexdigest() == value["oid"]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        commit = self.hub.commit_of(dataset)
        address = f"{self.hub.address}/datasets/{dataset}/commit/{commit}"
        self._json({"commitUrl": address, "commitOid": commit, "hookOutput": ""})

    def _file(self, dataset: str, name: str) -> None:
        content = self.hub.datasets[dataset].get(name)
        if content is None:
            self._json({"error": "Entry not found"}, status=404)
            return
        self._send(content, ETag=f'"{_oid(content)}"', X_Repo_Commit=self.hub.commit_of(dataset))

    def _path(self) -> str:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        return path

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts: list[bytes] = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _json(self, value: object, *, status: int = 200) -> None:
        self._send(json.dumps(value).encode(), status=status, Content_Type="application/json")

    def _send(self, content: bytes, *, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content_Length": str(len(content))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _mode(name: str) -> str:
    return "lfs" if name.endswith(".safetensors") else "regular"


def _dataset(path: str, before: str) -> str:
    return path.removeprefix("/api/datasets/").partition(before)[0]


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()

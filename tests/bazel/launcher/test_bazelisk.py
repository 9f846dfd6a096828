import hashlib
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from bazel.launcher.bazelisk import SHA256, ChecksumError, fetch, is_reachable

CONTENT = b"#!/bin/sh\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    requests = 0

    def do_GET(self):
        type(self).requests += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def do_HEAD(self):
        self.send_response(404 if self.path == "/missing" else 403)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def address(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    Handler.requests = 0
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/bazelisk"
        server.shutdown()
        thread.join()


def test_a_download_is_a_program(tmp_path, address):
    fetch(tmp_path / "bazelisk", address=address, sha256=DIGEST)
    assert (tmp_path / "bazelisk").read_bytes() == CONTENT
    assert os.access(tmp_path / "bazelisk", os.X_OK)


def test_two_at_once_download_once(tmp_path, address):
    threads = [
        threading.Thread(
            target=fetch,
            args=[tmp_path / "bazelisk"],
            kwargs={"address": address, "sha256": DIGEST},
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Handler.requests == 1


def test_another_file_is_refused(tmp_path, address):
    with pytest.raises(ChecksumError, match="expected 0000"):
        fetch(tmp_path / "bazelisk", address=address, sha256="0" * 64)
    assert not (tmp_path / "bazelisk").exists()


def test_a_part_left_by_a_killed_fetch_does_no_harm(tmp_path, address):
    (tmp_path / "bazelisk.part").write_bytes(b"half")
    fetch(tmp_path / "bazelisk", address=address, sha256=DIGEST)
    assert (tmp_path / "bazelisk").read_bytes() == CONTENT


def test_reach(address):
    assert is_reachable(address.replace("bazelisk", "missing"))
    assert not is_reachable(address)
    assert not is_reachable("http://127.0.0.1:1/")


def test_checksums_are_of_full_length():
    assert {len(digest) for digest in SHA256.values()} == {64}

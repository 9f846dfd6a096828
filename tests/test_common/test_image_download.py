"""Pictures from the web, with a server on this machine."""

import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from huggingface_hub import constants

from comparison.schema.errors import BadInputError, TryAgainError
from test_common.download_failure import passes_by_itself
from test_common.image_download import download
from test_common.images import default_images, load_images

PICTURE = default_images(1)[0].data
STATUS = {"/gone": 404, "/forbidden": 403, "/failing": 503, "/busy": 429, "/late": 408}
# Answers as they go over the line.
RAW = {
    "/no_http": b"garbage\r\n\r\n",
    "/negative": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n" + PICTURE,
    "/no_gzip": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
    "/bad_host": b"HTTP/1.1 302 Found\r\nLocation: http://a..b/x\r\n\r\n",
    "/bad_port": b"HTTP/1.1 302 Found\r\nLocation: http://a:b@c:port/x?sign=s\r\n\r\n",
    "/file": b"HTTP/1.1 302 Found\r\nLocation: file:///etc/hostname\r\n\r\n",
    "/claims": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
    "/short": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
    "/silent": b"",
}
DRIPS = {
    "/drip": (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b"x"),
    "/drip_head": (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path in RAW:
            self.wfile.write(RAW[self.path])
            return
        if self.path in DRIPS:
            self._drip(*DRIPS[self.path])
            return
        status = STATUS.get(self.path, 200)
        body = b"no picture" if self.path == "/text" else PICTURE
        if self.path == "/moved":
            status, body = 302, b""
        self.send_response(status)
        if self.path == "/moved":
            self.send_header("Location", "/picture")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _drip(self, start: bytes, drop: bytes) -> None:
        self.wfile.write(start)
        with suppress(ConnectionError):
            for _ in range(50):
                self.wfile.write(drop)
                time.sleep(0.1)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    running = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("path", ["/picture", "/moved"])
def test_a_picture_is_fetched(server: str, path: str) -> None:
    (loaded,) = load_images([server + path])
    assert loaded.data == PICTURE
    assert loaded.source == server + path
    assert loaded.sha256 == default_images(1)[0].sha256


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/gone", "/gone: the server answered 404"),
        ("/forbidden", "/forbidden: the server answered 403"),
        ("/text", "/text: expected a picture"),
    ],
)
def test_what_the_server_refuses_is_bad_input(server: str, path: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        load_images([server + path])


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("path", ["/failing", "/busy", "/late"])
def test_what_passes_is_to_be_tried_again(server: str, path: str) -> None:
    with pytest.raises(TryAgainError, match=f"the server answered {STATUS[path]}; try again"):
        load_images([server + path, server + "/picture"])


@pytest.mark.usefixtures("online")
def test_bad_input_wins_over_what_passes(server: str) -> None:
    with pytest.raises(BadInputError, match=r"404; .*503; try again later"):
        load_images([server + "/failing", server + "/gone"])


@pytest.mark.usefixtures("online")
def test_no_connection_is_to_be_tried_again() -> None:
    with pytest.raises(TryAgainError, match=r"cannot be fetched .*local file"):
        download("http://127.0.0.1:1/picture", most_bytes=10)


@pytest.mark.usefixtures("online")
def test_an_address_that_is_none_is_bad_input() -> None:
    with pytest.raises(BadInputError, match="cannot be fetched"):
        download("http://[::1", most_bytes=10)


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/no_http", "illegal status line"),
        ("/negative", "bad Content-Length"),
        ("/no_gzip", "DecodingError"),
        ("/bad_host", "UnicodeError"),
        ("/bad_port", "Invalid port"),
        ("/file", "UnsupportedProtocol"),
        ("/claims", "is larger than 64 MiB"),
    ],
)
def test_faults_that_last_are_bad_input(server: str, path: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message) as raised:
        load_images([server + path])
    assert str(raised.value).isprintable()
    assert "sign=s" not in str(raised.value)


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("path", ["/short", "/silent"])
def test_connections_that_end_early_are_to_be_tried_again(server: str, path: str) -> None:
    with pytest.raises(TryAgainError, match="try again later"):
        load_images([server + path])


@pytest.mark.usefixtures("online")
def test_tls_on_a_plain_port_lasts(server: str) -> None:
    with pytest.raises(BadInputError, match="SSL"):
        download(server.replace("http:", "https:"), most_bytes=10)


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("path", sorted(DRIPS))
def test_drops_do_not_hold_a_run_up(server: str, path: str) -> None:
    began = time.monotonic()
    with pytest.raises(TryAgainError, match=r"was not there after 0\.5 s; try again later"):
        download(server + path, most_bytes=10**6, total_seconds=0.5)
    assert time.monotonic() - began < 4


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize(
    "address",
    ["http://", "http://a..b/x", "http://" + "a" * 300, "http://host:99999/", "http://h/\x1b\0"],
)
def test_addresses_that_cannot_be_asked(address: str) -> None:
    with pytest.raises(BadInputError, match="cannot be fetched") as raised:
        load_images([address])
    assert str(raised.value).isprintable()


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize(
    ("variable", "value"),
    [("HTTP_PROXY", "bogus://bob:hunter2@x"), ("HTTP_PROXY", "://"), ("SSL_CERT_FILE", "/none")],
)
def test_what_is_set_up_wrongly_is_named(
    server: str, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    for known in ("http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(known, raising=False)
    monkeypatch.setenv(variable, value)
    with pytest.raises(BadInputError, match=rf"are set up wrongly \({variable}") as raised:
        load_images([server + "/picture"])
    assert "hunter2" not in str(raised.value)


@pytest.mark.usefixtures("online")
def test_passwords_and_signatures_are_in_no_name(server: str) -> None:
    host = server.removeprefix("http://")
    (loaded,) = load_images([f"http://bob:hunter2@{host}/picture?X-Signature=abc"])
    assert loaded.source == f"{server}/picture"
    with pytest.raises(BadInputError) as raised:
        load_images([f"http://bob:hunter2@{host}/gone"])
    assert str(raised.value) == f"image {server}/gone: the server answered 404"


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ConnectionRefusedError(), True),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (OSError(101, "Network is unreachable"), True),
        (socket.gaierror(socket.EAI_AGAIN, "for now"), True),
        (socket.gaierror(socket.EAI_NONAME, "unknown"), False),
        (ssl.SSLEOFError(), True),
        (ssl.SSLCertVerificationError(), False),
        (OSError(2, os.strerror(2)), False),
        (UnicodeError(), False),
    ],
)
def test_what_passes_by_itself(error: Exception, passes: bool) -> None:
    assert passes_by_itself(error) is passes
    outer = RuntimeError()
    outer.__cause__ = error
    assert passes_by_itself(outer) is passes


@pytest.mark.usefixtures("online")
def test_a_large_body_is_not_read_to_its_end(server: str) -> None:
    with pytest.raises(BadInputError, match="is larger than 0 MiB"):
        download(server + "/picture", most_bytes=len(PICTURE) - 1)
    assert download(server + "/picture", most_bytes=len(PICTURE)) == PICTURE


def test_offline_nothing_is_asked(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(BadInputError, match="HF_HUB_OFFLINE is set; unset it, or give a local"):
        load_images([server + "/picture"])

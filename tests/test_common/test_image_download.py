"""Pictures from the web, with a server on this machine."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from huggingface_hub import constants

from comparison.schema.errors import BadInputError, TryAgainError
from test_common.image_download import download
from test_common.images import default_images, load_images

PICTURE = default_images(1)[0].data
STATUS = {"/gone": 404, "/forbidden": 403, "/failing": 503, "/busy": 429}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
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
@pytest.mark.parametrize("path", ["/failing", "/busy"])
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
def test_a_large_body_is_not_read_to_its_end(server: str) -> None:
    with pytest.raises(BadInputError, match="is larger than 0 MiB"):
        download(server + "/picture", most_bytes=len(PICTURE) - 1)
    assert download(server + "/picture", most_bytes=len(PICTURE)) == PICTURE


def test_offline_nothing_is_asked(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(BadInputError, match="HF_HUB_OFFLINE is set; unset it, or give a local"):
        load_images([server + "/picture"])

"""A Hub on this machine that answers as a model's name says, and a child process that asks it."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# Part of the model's name to status and error code.
ANSWERS: Mapping[str, tuple[int, str]] = {
    "missing": (404, "RepoNotFound"),
    "gated": (403, "GatedRepo"),
    "failing": (500, ""),
}

# Failures are tried again as always, but at once.
_LOADS_MODELS = """
import sys
import time

time.sleep = lambda seconds: None
from test_common.layer_overrides import load_hf_config
for name in sys.argv[1:]:
    try:
        load_hf_config(name)
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
"""


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        name = next(name for name in ANSWERS if f"/{name}/" in self.path)
        status, code = ANSWERS[name]
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@contextmanager
def running_hub() -> Iterator[str]:
    """Yield the address of the server, on the loopback interface."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def load_errors_from(
    endpoint: str, names: list[str], home: Path, *, offline: bool = False
) -> list[str]:
    """Return what loading each model from a Hub at `endpoint` raises, in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "1" if offline else "0",
        "NO_PROXY": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", _LOADS_MODELS, *names],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=200,
        check=True,
    )
    return done.stdout.splitlines()

"""A real Chromium without a window, driven through a pipe: no driver, no port, no further package.

The DevTools protocol over `--remote-debugging-pipe`: JSON messages that end with a NUL byte, to the
browser's descriptor 3 and from its descriptor 4.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
HOW_TO_INSTALL = (
    f"this test drives a real browser, and none of {', '.join(NAMES)} is on PATH: install one, on "
    "Debian and Ubuntu with `apt-get install -y chromium`"
)
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# Puts the pipes where the browser expects them; by way of numbers that are free for sure.
_START = """
import os, sys
pipes = [os.dup(os.dup(os.dup(int(number)))) for number in sys.argv[1:3]]
for number, pipe in zip((3, 4), pipes):
    os.dup2(pipe, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
_PATIENCE = 60.0  # seconds, on a machine that does much else


class Browser:
    """One page of one browser.

    Attributes:
        complaints: what the console was told that is no mere information, and errors of scripts.
        requests: addresses that the page asked for.
    """

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._buffer, self._number, self._session = b"", 0, ""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._loaded = 0

    def attach(self) -> None:
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, scheme: str) -> None:
        """Let the system prefer `light` or `dark`."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._call("Emulation.setEmulatedMedia", features=[feature])

    def open(self, address: str) -> float:
        """Open a page, and tell how many seconds that took until it was drawn."""
        begin, loaded = time.monotonic(), self._loaded
        self._call("Page.navigate", url=address)
        self._until(lambda: self._loaded > loaded, "the page did not load")
        drawn = "new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))"
        self.run(f"{drawn}.then(() => null)")
        return time.monotonic() - begin

    def run(self, script: str) -> Any:
        """Give the value of an expression on the page.

        Raises:
            AssertionError: it raised.
        """
        told = self._call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def texts(self, selector: str) -> list[str]:
        found = f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.innerText)"
        return list(self.run(found))

    def click(self, selector: str) -> None:
        """Click where the first such element is, as a mouse does."""
        center = self.run(
            f"(e => {{ e.scrollIntoView({{block: 'nearest'}}); const b = e.getBoundingClientRect();"
            f" return [b.x + b.width / 2, b.y + b.height / 2]; }})"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        place = {"x": center[0], "y": center[1], "button": "left", "clickCount": 1}
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=center[0], y=center[1])
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, **place)

    def press(self, *keys: str) -> None:
        for key in keys:
            text = key if len(key) == 1 else "\r" if key == "Enter" else ""
            code = {"Enter": 13, "Escape": 27}.get(key, 0)
            common = {"key": key, "windowsVirtualKeyCode": code}
            self._call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
            self._call("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, name: str) -> Path:
        """Write a PNG among the outputs of the test."""
        taken = self._call("Page.captureScreenshot", format="png")
        path = _output(f"{name}.png")
        path.write_bytes(base64.b64decode(taken["data"]))
        return path

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        answers: list[dict[str, Any]] = []

        def is_answered() -> bool:
            answers.extend(a for a in self._read() if a.get("id") == self._number)
            return bool(answers)

        self._until(is_answered, f"no answer to {method}")
        assert "error" not in answers[0], (method, answers[0]["error"])
        result: dict[str, Any] = answers[0]["result"]
        return result

    def _until(self, holds: Any, otherwise: str) -> None:
        end = time.monotonic() + _PATIENCE
        while not holds():
            assert time.monotonic() < end, f"{otherwise} within {_PATIENCE:g} seconds"
            if holds.__name__ == "<lambda>":
                self._read()

    def _read(self) -> list[dict[str, Any]]:
        """Read what has come, note events, and give all messages."""
        if not select.select([self._receive], [], [], 0.05)[0]:
            return []
        data = os.read(self._receive, 1 << 20)
        assert data, "the browser ended"
        *whole, self._buffer = (self._buffer + data).split(b"\0")
        messages = [json.loads(part) for part in whole]
        for message in messages:
            self._note(message.get("method", ""), message.get("params", {}))
        return messages

    def _note(self, method: str, event: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded += 1
        elif method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.complaints.append(str(details.get("exception", details).get("description", "")))
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning"):
            self.complaints.append(str([item.get("value") for item in event["args"]]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.complaints.append(str(event["entry"]["text"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(str(event["request"]["url"]))


def note_output(name: str, text: str) -> None:
    """Write a text among the outputs of the test."""
    _output(name).write_text(text, encoding="utf-8")


def _output(name: str) -> Path:
    """Give a file where Bazel keeps outputs of tests, or in a temporary folder."""
    return Path(os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR") or tempfile.gettempdir()) / name


def find_chromium() -> str | None:
    """Return the path of a browser on this machine."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a browser with a profile of its own, and end it.

    Raises:
        FileNotFoundError: no browser is installed; the message says how to.
    """
    program = find_chromium()
    if program is None:
        raise FileNotFoundError(HOW_TO_INSTALL)
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        own = f"--user-data-dir={profile}"
        pipes = (to_browser[0], from_browser[1])
        process = subprocess.Popen(
            [sys.executable, "-c", _START, *map(str, pipes), program, *_FLAGS, own, "about:blank"],
            pass_fds=pipes,
            env={**os.environ, "HOME": profile},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in pipes:
            os.close(end)
        try:
            browser = Browser(to_browser[1], from_browser[0])
            browser.attach()
            yield browser
        finally:
            process.terminate()
            process.wait(timeout=30)
            for end in (to_browser[1], from_browser[0]):
                os.close(end)

"""Fetches bazelisk, which itself fetches the Bazel of .bazelversion."""

from __future__ import annotations

import hashlib
import platform
import urllib.error
import urllib.request
from pathlib import Path

from bazel.launcher.cache import locked, write_whole

VERSION = "1.28.1"
RELEASES = "https://github.com/bazelbuild/bazelisk/releases/download"
BAZEL_RELEASES = "https://releases.bazel.build/"

# Of the release's files; the npm package @bazel/bazelisk ships the same ones.
SHA256 = {
    "darwin-amd64": "023225736cea5dc88f2b0807d5b1af4eb0f69a4ed45e3994b2c18c263bc80e48",
    "darwin-arm64": "dea3f3f5de2dbc5e269e0132cdd369d5efe738f7b973d5d4eb2b4f7055a97b39",
    "linux-amd64": "22e7d3a188699982f661cf4687137ee52d1f24fec1ec893d91a6c4d791a75de8",
    "linux-arm64": "8ded44b58a0d9425a4178af26cf17693feac3b87bdcfef0a2a0898fcd1afc9f2",
}


class ChecksumError(ValueError):
    """A download is not the file that was pinned."""


def platform_name() -> str:
    """Names this machine as bazelisk's releases do."""
    machine = {"aarch64": "arm64", "x86_64": "amd64"}.get(platform.machine(), platform.machine())
    return f"{platform.system().lower()}-{machine}"


def is_reachable(address: str, *, timeout_s: float = 5) -> bool:
    """Tells whether a server answers, be it with an error page."""
    request = urllib.request.Request(address, method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=timeout_s).close()
    except urllib.error.HTTPError as error:
        # A proxy that refuses the host answers too, with one of these.
        return error.code not in (403, 407, 502, 503, 504)
    except (OSError, ValueError):
        return False
    return True


def can_fetch() -> bool:
    """Tells whether bazelisk and the Bazel that it would fetch can be reached from here."""
    return platform_name() in SHA256 and is_reachable(BAZEL_RELEASES) and is_reachable(RELEASES)


def fetch(program: Path, *, address: str, sha256: str) -> None:
    """Downloads a program, once, however many launchers ask for it.

    Args:
        program: Where it goes.
        address: Where it comes from.
        sha256: What it must be, in hexadecimal digits.

    Raises:
        ChecksumError: The download is another file; nothing was kept.
    """
    with locked(program):
        if program.exists():
            return
        with urllib.request.urlopen(address, timeout=60) as answer:
            content: bytes = answer.read()
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            raise ChecksumError(f"{address} has SHA-256 {found}, expected {sha256}")
        part = program.with_name(f"{program.name}.part")
        write_whole(part, content)
        part.chmod(0o755)
        part.replace(program)


def fetch_bazelisk(program: Path) -> None:
    """Downloads the pinned bazelisk for this machine to `program`."""
    name = platform_name()
    fetch(program, address=f"{RELEASES}/v{VERSION}/bazelisk-{name}", sha256=SHA256[name])

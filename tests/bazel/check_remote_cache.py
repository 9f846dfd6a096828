"""Tries --config=remote_cache on a real cache: nginx with WebDAV, of Debian's packages.

A Bazel that has nothing built must take a golden dump from the cache that was filled before, and
what it takes must be the same to the byte. Takes the place of a test target, since Bazel cannot run
in a test of Bazel. Needs apt and dpkg-deb, or nginx on PATH; neither root nor an installed package.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

ROOT = Path(__file__).resolve().parents[2]
TARGET = "//tests/models:llama_golden"
DUMP = "tests/models/llama_golden"

CONFIG = """\
daemon off;
pid {folder}/pid;
error_log {folder}/errors.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies;
    fastcgi_temp_path {folder}/fastcgi;
    proxy_temp_path {folder}/proxy;
    scgi_temp_path {folder}/scgi;
    uwsgi_temp_path {folder}/uwsgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            root {folder}/cache;
            dav_methods PUT;
            create_full_put_path on;
            client_max_body_size 0;
        }}
    }}
}}
"""


def find_nginx(folder: Path) -> str:
    """Return an nginx: that on PATH, else one unpacked from Debian's package into `folder`."""
    installed = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if installed:
        return installed
    subprocess.run(["apt-get", "-qq", "download", "nginx"], cwd=folder, check=True)
    (package,) = folder.glob("nginx_*.deb")
    subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True)
    return str(folder / "usr/sbin/nginx")


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve an empty cache from `folder`.

    Yields:
        Its address.
    """
    port = free_port()
    (folder / "cache").mkdir()
    folder.chmod(0o755)  # where root starts nginx, its workers are another user
    (folder / "cache").chmod(0o777)
    (folder / "nginx.conf").write_text(CONFIG.format(folder=folder, port=port))
    command = [find_nginx(folder), "-p", str(folder), "-c", str(folder / "nginx.conf")]
    server = subprocess.Popen(command)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(address, server)
        yield address
    finally:
        server.terminate()
        server.wait()


def wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers, with an error too."""
    for _ in range(100):
        try:
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address)
        except URLError as error:
            if hasattr(error, "code"):
                return
        if server.poll() is not None:
            raise RuntimeError(f"nginx ended with exit code {server.returncode}")
        time.sleep(0.1)
    raise RuntimeError(f"nginx does not answer at {address}")


class Machine:
    """A Bazel that shares nothing with others but the cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def bazel(self, *arguments: str) -> str:
        """Run Bazel; return what it says."""
        print("bazelw", *arguments, flush=True)
        done = subprocess.run(
            [str(ROOT / "bazelw"), f"--output_base={self.folder}", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"bazelw {arguments[0]} ended in {done.returncode}:\n{done.stdout}")
        return done.stdout

    def build(self, cache: str) -> tuple[str, dict[str, str]]:
        """Build the golden dump with the cache.

        Returns:
            The line that counts processes, and a sum of each of the dump's files.
        """
        options = ["--config=remote_cache", f"--remote_cache={cache}", "--symlink_prefix=/"]
        said = self.bazel("build", TARGET, *options, "--noshow_progress")
        (counts,) = re.findall(r"^INFO: (\d+ process.*)$", said, re.MULTILINE)
        print(counts, flush=True)
        dump = Path(self.bazel("info", "bazel-bin").splitlines()[-1]) / DUMP
        files = [path for path in sorted(dump.rglob("*")) if path.is_file()]
        return counts, {str(p.relative_to(dump)): digest(p) for p in files}


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def objections(machine: Machine, cache: str) -> Iterator[str]:
    """Say what is not as it must be."""
    counts, made = machine.build(cache)
    if "remote cache hit" in counts or "sandbox" not in counts:
        yield f"an empty cache: expected the dump to be captured here, found: {counts}"
    if "manifest.json" not in made:
        yield f"the dump holds no manifest.json but {len(made)} files"
    machine.bazel("clean")
    counts, taken = machine.build(cache)
    if not re.search(r"\b[1-9]\d* remote cache hit", counts) or "sandbox" in counts:
        yield f"a filled cache: expected the dump to be taken from it, found: {counts}"
    if taken != made:
        yield f"the dump that was taken is not the one that was made: {set(taken) ^ set(made)}"


def main() -> int:
    """Return 0 if all is as it must be."""
    folder = Path(tempfile.mkdtemp(prefix="remote-cache-"))
    machine = Machine(folder / "output_base")
    try:
        with serving(folder) as cache:
            found = list(objections(machine, cache))
        print(*found, sep="\n", end="\n" if found else "")
        return 1 if found else 0
    finally:
        machine.bazel("shutdown")
        subprocess.run(["chmod", "-R", "u+w", str(folder)], check=False)
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())

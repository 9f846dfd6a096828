"""Which build of torch pip can reach from this machine."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bazel.launcher.cache import write_whole

PYTHON_VERSION = "3.11"
FLAG = "//:torch="


def locked_torch(lock: Path) -> str:
    """Reads which torch a lock file pins.

    Raises:
        ValueError: It pins none.
    """
    found = re.search(r"^torch==(\S+)", lock.read_text(), re.MULTILINE)
    if not found:
        raise ValueError(f"{lock} pins no torch")
    return found[1]


def pip_config_files(environ: Mapping[str, str]) -> list[Path]:
    """Lists where pip reads its configuration from, by its documentation."""
    home = Path(environ.get("HOME") or Path.home())
    folders = [
        *(Path(d) / "pip" for d in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep)),
        Path("/etc"),
        Path("/Library/Application Support/pip"),
        home / ".pip",
        Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip",
        home / "Library/Application Support/pip",
        Path(sys.prefix),
    ]
    named = [Path(environ["PIP_CONFIG_FILE"])] if environ.get("PIP_CONFIG_FILE") else []
    return [path for path in [*(f / "pip.conf" for f in folders), *named] if path.is_file()]


def question_key(version: str, environ: Mapping[str, str]) -> str:
    """Names a question to pip by all that its answer depends on."""
    digest = hashlib.sha256(version.encode())
    for name in sorted(environ):
        if name.startswith("PIP_"):
            digest.update(f"\0{name}={environ[name]}".encode())
    for path in pip_config_files(environ):
        digest.update(b"\0" + bytes(path) + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def pip_offers(version: str, *, timeout_s: float = 120) -> bool:
    """Asks pip, as it is configured here, whether it finds a build of torch."""
    options = ["--no-deps", "--dry-run", "--ignore-installed", "--quiet", "--retries=1"]
    target = ["--only-binary=:all:", f"--python-version={PYTHON_VERSION}"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", *options, *target]
        command += [f"--target={folder}/none", f"torch=={version}"]
        try:
            done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


def choose_torch(lock: Path, *, cache: Path, environ: Mapping[str, str]) -> str:
    """Says "cpu" where pip offers the CPU build of torch, else "cuda".

    pip's answer is remembered until its configuration or the lock file changes.

    Args:
        lock: The lock file of the CPU environment.
        cache: The folder of remembered answers.
        environ: The environment.

    Returns:
        A value of the flag --//:torch.
    """
    version = locked_torch(lock)
    answer = cache / f"torch-{question_key(version, environ)}"
    if not answer.exists():
        write_whole(answer, b"cpu" if pip_offers(version) else b"cuda")
    return answer.read_text()


def is_chosen_by_hand(arguments: list[str], bazelrcs: list[Path]) -> bool:
    """Tells whether the command line or one of the user's bazelrc files sets the flag."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if any(argument.startswith("--") and FLAG in argument for argument in own):
        return True
    return any(FLAG in path.read_text() for path in bazelrcs if path.is_file())

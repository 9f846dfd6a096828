"""The launcher's folder in the user's cache."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Returns the project's cache folder, made if it is missing.

    A relative XDG_CACHE_HOME counts as none, as the XDG Base Directory Specification asks for.
    """
    told = environ.get("XDG_CACHE_HOME", "")
    home = Path(environ.get("HOME") or Path.home())
    base = Path(told) if os.path.isabs(told) else home.absolute() / ".cache"
    folder = base / "model_accuracy_tools"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def locked(path: Path) -> Iterator[IO[str]]:
    """Holds the lock file of `path`; other launchers wait. A killed holder lets go of it.

    Yields:
        The lock file. A child process that gets it as standard input holds the lock as well: if it
        outlives its killed parent, no one works beside it.
    """
    with path.with_name(f"{path.name}.lock").open("w+") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        yield guard


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file under a temporary name and renames it, so that no one sees a part of it."""
    handle, part = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    with os.fdopen(handle, "wb") as opened:
        opened.write(content)
    Path(part).replace(path)

"""Folders in the user's cache that are made once, whoever asks first."""

import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def cache_folder() -> Path:
    """Returns the project's folder; a relative XDG_CACHE_HOME counts as none, as XDG says."""
    told = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(told) if os.path.isabs(told) else Path.home() / ".cache"
    return base / "model_accuracy_tools"


def key_of(*parts: bytes) -> str:
    """Names what a folder is made of: the parts and the Python that makes it."""
    digest = hashlib.sha256()
    for part in [*parts, sys.version.encode(), sys.prefix.encode()]:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:16]


def made_once(name: str, make: Callable[[Path, IO[str]], dict[str, Any]]) -> dict[str, Any]:
    """Makes a folder unless it is there in full.

    A folder that an interrupted call left behind is made anew; a second caller waits for the first.

    Args:
        name: The folder's name in the cache.
        make: Fills the empty folder and describes it. Gets the lock file too, as standard input for
            its child processes: one that outlives a killed caller then still keeps others out.

    Returns:
        The description that `make` gave.
    """
    folder = cache_folder() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    description = folder / "made.json"
    with folder.with_name(f"{folder.name}.lock").open("w+") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not description.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            part = folder / "made.json.part"
            part.write_text(json.dumps(make(folder, guard)))
            part.rename(description)
    described: dict[str, Any] = json.loads(description.read_text())
    return described

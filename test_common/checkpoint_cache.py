"""Folders that are made once and kept: tiny checkpoints and converted weights."""

import fcntl
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from comparison.schema.errors import UnwritableOutputError
from test_common.user_cache import user_cache


def default_cache_dir() -> Path:
    """Return `${XDG_CACHE_HOME:-~/.cache}/model_accuracy_tools/checkpoints`.

    Raises:
        UnwritableOutputError: there is no such folder, since the user has no home.
    """
    base = user_cache()
    if base is None:
        raise UnwritableOutputError(
            "there is no folder for the cache: this user has no home folder; set XDG_CACHE_HOME to "
            "the absolute path of a folder that can be written"
        )
    return base / "model_accuracy_tools" / "checkpoints"


def content_key(recipe: Mapping[str, Any], packages: tuple[str, ...]) -> str:
    """Return 12 hexadecimal digits for a recipe and the versions of the packages that carry it out.

    Args:
        recipe: everything that decides the folder's content; JSON values, or values with a stable
            `str`.
        packages: distribution names.
    """
    versions = {name: metadata.version(name) for name in packages}
    text = json.dumps([recipe, versions], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def ensure_folder(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return `folder`, made by `make` if it does not exist yet.

    `make` fills a temporary folder beside it, which is renamed when complete: a killed run leaves
    no half-made folder under the final name, and two runs at once make it once.

    Args:
        folder: the final place.
        make: fills the empty folder that it is given.

    Raises:
        UnwritableOutputError: the cache folder cannot be written.
    """
    if folder.is_dir():
        return folder
    with _locked(folder):
        if not folder.is_dir():
            _make_and_rename(folder, make)
    return folder


def _make_and_rename(folder: Path, make: Callable[[Path], None]) -> None:
    for left_by_a_kill in folder.parent.glob(f".{folder.name}.*.partial"):
        shutil.rmtree(left_by_a_kill)
    partial = Path(
        tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent)
    )
    try:
        make(partial)
        partial.chmod(0o755)  # mkdtemp makes it private; other users may share a cache
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time make `folder`."""
    with _unwritable_cache(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = (folder.parent / f".{folder.name}.lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed, also by a kill
        yield


@contextmanager
def _unwritable_cache(parent: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnwritableOutputError(
            f"cannot write the checkpoint cache {parent}: {error.strerror}; set XDG_CACHE_HOME to "
            "a folder that can be written"
        ) from error

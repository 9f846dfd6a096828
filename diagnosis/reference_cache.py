"""Dumps of references that were run before, kept by what decides them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comparison.store.atomic_file import write_text
from comparison.store.regular_file import read_regular
from diagnosis.reference_key import stamp_of_module, stamps_of_modules
from test_common.checkpoint_cache import default_cache_dir
from test_common.dump_folder import DumpFolder
from test_common.file_digests import Stamp
from test_common.folder_lock import LOCK_NAME

MOST_BYTES = 8_000_000_000
_ENTRY = "entry.json"
_MOST_ENTRY_BYTES = 1 << 28
_DUMP = "dump"
_PARTIAL = ".partial"
_LEFT_BEHIND_SECONDS = 24 * 3600
_MOST_OF_FREE = 0.1  # part of the disk's free room that one run may take


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """A run that was found.

    Attributes:
        sizes: bytes of each tensor of its dump.
        made_at: when it was run, in seconds since the epoch.
    """

    sizes: dict[str, int]
    made_at: float


def default_folder() -> Path:
    """Return `${XDG_CACHE_HOME:-~/.cache}/model_accuracy_tools/references`."""
    return default_cache_dir().parent / "references"


class ReferenceCache:
    """A folder with one folder a run, which holds the dump and the digests of its files.

    What does not fit its digests is removed and not believed. Nothing here raises: a cache that
    cannot be used is none.
    """

    def __init__(self, folder: Path, *, most_bytes: int = MOST_BYTES) -> None:
        """Take the folder, which need not exist.

        Args:
            folder: where the runs are kept.
            most_bytes: greatest size of all; beyond it go those that were not used for longest.
        """
        self.folder = folder
        self._most_bytes = most_bytes

    def take(
        self, key: str, output: Path, *, overwrite: bool, may_link: bool, max_bytes: int
    ) -> KeptRun | None:
        """Put a kept dump where the run would have written it.

        Args:
            key: what decides the run.
            output: the dump's folder.
            overwrite: whether an earlier dump in it may be replaced.
            may_link: whether its files may be links to those kept, since nobody changes them.
            max_bytes: greatest size of a dump that is wanted.

        Returns:
            The run; None where there is none that can be believed, or it is larger, and nothing is
            written.

        Raises:
            UnwritableOutputError: the folder of the dump cannot be used.
        """
        entry = self.folder / key
        told = _read(entry / _ENTRY)
        if told is None or not _is_code_unchanged(told):
            return None
        with tempfile.TemporaryDirectory(prefix="kept-", dir=_parent(output)) as name:
            copy = Path(name) / _DUMP
            try:
                found = _copied(entry / _DUMP, copy, link=may_link)
            except OSError:  # the disk may be full here; `keep` replaces what is damaged
                return None
            try:
                sound = found == told["files"]
                kept = KeptRun(
                    sizes={str(key): int(size) for key, size in told["sizes"].items()},
                    made_at=float(told["made_at"]),
                )
            except (LookupError, TypeError, ValueError, AttributeError):
                sound = False
            if not sound:
                _remove(entry)
                return None
            if sum(kept.sizes.values()) > max_bytes:
                return None
            _put_in_place(copy, output, overwrite=overwrite)
        with suppress(OSError):
            os.utime(entry / _ENTRY)  # it was used
        return kept

    def keep(self, key: str, dump: Path, sizes: Mapping[str, int], *, may_link: bool) -> None:
        """Keep the dump of a run that has just been made.

        Args:
            key: what decides the run.
            dump: its folder.
            sizes: bytes of each tensor.
            may_link: whether the files may be shared, since nobody changes them.
        """
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not self._has_room(_size(dump)):
                return
            partial = Path(tempfile.mkdtemp(prefix=f".{key}.", suffix=_PARTIAL, dir=self.folder))
            try:
                files = _copied(dump, partial / _DUMP, link=may_link)
                told = {
                    "made_at": time.time(),
                    "sizes": dict(sizes),
                    "files": files,
                    "modules": stamps_of_modules(),
                }
                write_text(partial / _ENTRY, _sealed(told))
                _remove(self.folder / key)  # one that was not believed
                partial.rename(self.folder / key)  # refused where another process was faster
            finally:
                shutil.rmtree(partial, ignore_errors=True)
            self._make_room(besides=key)

    def _has_room(self, size: int) -> bool:
        free = shutil.disk_usage(self.folder).free
        return size <= min(self._most_bytes, _MOST_OF_FREE * free)

    def _make_room(self, *, besides: str) -> None:
        """Remove what was used least lately, and what killed runs left."""
        total = 0
        for entry in sorted(self._entries(), key=_last_use, reverse=True):
            size = _size(entry)
            total += size
            if total > self._most_bytes and entry.name != besides:
                _remove(entry)
                total -= size
        for partial in self.folder.glob(f".*{_PARTIAL}"):
            if time.time() - partial.stat().st_mtime > _LEFT_BEHIND_SECONDS:
                shutil.rmtree(partial, ignore_errors=True)

    def _entries(self) -> Iterator[Path]:
        yield from (path.parent for path in self.folder.glob(f"*/{_ENTRY}"))


def _read(path: Path) -> dict[str, Any] | None:
    """Read what is told of an entry; None where there is none, or not what was written."""
    try:
        text = read_regular(path, most_bytes=_MOST_ENTRY_BYTES).decode()
        seal, _, body = text.partition("\n")
        told = json.loads(body)
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or seal != hashlib.sha256(body.encode()).hexdigest():
        return None
    return told


def _sealed(told: Mapping[str, Any]) -> str:
    body = json.dumps(told)
    return f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}"


def _is_code_unchanged(told: Mapping[str, Any]) -> bool:
    stamps: Mapping[str, Stamp] = told.get("modules", {})
    try:
        return all(
            list(stamp_of_module(Path(name))) == list(known) for name, known in stamps.items()
        )
    except (OSError, TypeError, ValueError, AttributeError):  # another's idea of an entry
        return False


def _copied(source: Path, target: Path, *, link: bool) -> dict[str, str]:
    """Copy a dump, files that are one stay one, and return path and digest of each file.

    Raises:
        OSError: it cannot be read or written, or holds what is no file.
    """
    first: dict[tuple[int, int], Path] = {}
    digests: dict[str, str] = {}
    place = _link_or_copy if link else _copy
    for path in sorted(_files(source)):
        name = path.relative_to(source).as_posix()
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        status = path.stat()
        identity = (status.st_dev, status.st_ino)
        if identity in first:
            os.link(first[identity], copy)
            digests[name] = digests[first[identity].relative_to(target).as_posix()]
            continue
        place(path, copy)
        first[identity] = copy
        with copy.open("rb") as file:
            digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise OSError(f"{path} is no file")
        if path.is_file() and path.name != LOCK_NAME:
            yield path


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        _copy(source, target)


def _put_in_place(copy: Path, output: Path, *, overwrite: bool) -> None:
    folder = DumpFolder(output, overwrite=overwrite)
    folder.open()
    try:
        for path in copy.iterdir():
            path.rename(output / path.name)
    finally:
        folder.release()


def _parent(output: Path) -> Path:
    """Return the nearest folder above that exists: a rename from there copies nothing."""
    return next(folder for folder in output.absolute().parents if folder.is_dir())


def _size(folder: Path) -> int:
    seen = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        seen[status.st_ino] = status.st_size
    return sum(seen.values())


def _last_use(entry: Path) -> float:
    try:
        return (entry / _ENTRY).stat().st_mtime
    except OSError:
        return 0.0


def _remove(entry: Path) -> None:
    """Remove an entry if it is there; renamed first, so that nobody reads half of it."""
    if not entry.exists():
        return
    with suppress(OSError):
        doomed = Path(tempfile.mkdtemp(prefix=".gone.", suffix=_PARTIAL, dir=entry.parent))
        try:
            entry.rename(doomed / entry.name)
        finally:
            shutil.rmtree(doomed, ignore_errors=True)


def age_text(made_at: float, *, now: Callable[[], float] = time.time) -> str:
    """Say how long ago something was made.

    Args:
        made_at: seconds since the epoch.
        now: the clock.
    """
    seconds = max(0.0, now() - made_at)
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "less than a minute ago"

"""SHA-256 of large files, read once as long as they are not touched."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from comparison.store.atomic_file import write_text
from comparison.store.regular_file import read_regular

_MOST_ENTRIES = 20_000
_MOST_INDEX_BYTES = 1 << 28
# A file that was changed this shortly before may change again without another time of change: the
# system's clock for files ticks in steps.
_SETTLED_NS = 2_000_000_000

Stamp = tuple[int, ...]


def stamp_of(path: Path) -> Stamp:
    """Return what the system changes whenever it changes a file.

    The time of the last change of state is part of it, which no program can set back.

    Args:
        path: a file; links are followed.

    Raises:
        OSError: there is none.
    """
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev


class FileDigests:
    """Digests of files, with an index of those that were read before.

    The content decides: a file whose stamp is another one, or is too young to be relied on, is read
    again.
    """

    def __init__(self, index: Path) -> None:
        """Read the index.

        Args:
            index: file that keeps it; an unreadable one is begun anew.
        """
        self._index = index
        self._known = dict(_read(index))
        self._changed = False

    def digest(self, path: Path) -> str:
        """Return a file's SHA-256 in hexadecimal digits.

        Raises:
            OSError: it cannot be read.
        """
        name = str(path.resolve())
        before = stamp_of(path)
        known = self._known.get(name)
        if known is not None and tuple(known[0]) == before:
            return known[1]
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if stamp_of(path) == before and time.time_ns() - before[2] > _SETTLED_NS:
            self._known[name] = (before, found)
            self._changed = True
        return found

    def save(self) -> None:
        """Write what was read; where that cannot be done, it is read again next time."""
        if not self._changed:
            return
        kept = dict(list(self._known.items())[-_MOST_ENTRIES:])
        with suppress(OSError):
            self._index.parent.mkdir(parents=True, exist_ok=True)
            write_text(self._index, json.dumps(kept))
        self._changed = False


def files_below(path: Path) -> list[Path]:
    """Return the files of a folder, or the file itself, in order of their names."""
    if path.is_file():
        return [path]
    return sorted(
        Path(folder) / name
        for folder, _, names in os.walk(path, followlinks=True)
        for name in names
    )


def _read(index: Path) -> Mapping[str, tuple[Stamp, str]]:
    try:
        told = json.loads(read_regular(index, most_bytes=_MOST_INDEX_BYTES))
        return {name: (tuple(stamp), str(digest)) for name, (stamp, digest) in told.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}

"""Whether files stay the same while they are read."""

import os
from collections.abc import Iterable
from pathlib import Path

from comparison.schema.errors import CorruptFileError

Stamp = tuple[int, int, int, int]


class FileStamps:
    """Files as they were when their reading began.

    Where a mapped file changes, what was read is of neither the old content nor the new one.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        """Look at files; what is not there is no fault here."""
        self._stamps = {path: stamp_at(path) for path in paths}

    def check(self) -> None:
        """Hold the files against what they were.

        Raises:
            CorruptFileError: one has changed; the message names it.
        """
        for path, stamp in self._stamps.items():
            now = stamp_at(path)
            if now != stamp:
                raise changed_error(path, shorter=bool(now and stamp and now[2] < stamp[2]))


def stamp_of(status: os.stat_result) -> Stamp:
    """Return what changes with the content of a file."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def changed_error(path: Path, *, shorter: bool = False) -> CorruptFileError:
    """Make the error for a file that someone wrote to meanwhile.

    Args:
        path: the file.
        shorter: whether it became shorter.
    """
    what = "became shorter" if shorter else "changed"
    return CorruptFileError(
        f"{path}: expected one content from begin to end, but the file {what} while it was read; "
        "try again when nothing writes to it"
    )


def stamp_at(path: Path) -> Stamp | None:
    """Return what changes with the content at a path; None where there is nothing."""
    try:
        return stamp_of(os.stat(path))
    except (OSError, ValueError):
        return None

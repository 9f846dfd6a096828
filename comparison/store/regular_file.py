"""Opening files that others made: only regular ones, which have an end and never block."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from comparison.schema.errors import CorruptFileError

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, behind links too.

    Raises:
        CorruptFileError: a folder, pipe, socket or device lies there.
        OSError: nothing lies there, or it cannot be opened.
    """
    _check_kind(path, os.stat(path).st_mode)  # opening some devices does something
    # Without O_NONBLOCK, a pipe that took the file's place meanwhile would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_kind(path, os.fstat(descriptor).st_mode)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, *, most_bytes: int) -> bytes:
    """Read a regular file as a whole.

    Args:
        path: the file.
        most_bytes: what it may hold at most; some files claim terabytes and hold nothing.

    Raises:
        CorruptFileError: no regular file, or a larger one.
        OSError: as open_regular.
    """
    with open_regular(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        # One byte more, to see growth; more than that would be memory for nothing.
        content = file.read(size_bytes + 1) if size_bytes <= most_bytes else b""
    if max(size_bytes, len(content)) > most_bytes:
        raise CorruptFileError(f"{path}: expected at most {most_bytes} bytes, found more")
    return content


def kind_of_file(mode: int) -> str | None:
    """Name what is no regular file, None for one that is.

    Args:
        mode: `st_mode` of the file.
    """
    if stat.S_ISREG(mode):
        return None
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "a special file")


def _check_kind(path: Path, mode: int) -> None:
    kind = kind_of_file(mode)
    if kind is not None:
        raise CorruptFileError(f"{path}: expected a file, found {kind}")

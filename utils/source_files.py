"""Finds and reads the files of a source tree, whatever else lies in it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

# More than any source, page, index or table that is read whole; a file may be far larger on paper
# than what it holds (holes).
_LARGEST_BYTES = 256 << 20


def read_plain_file(path: Path) -> bytes:
    """Read a file, but nothing that may never end, such as a pipe or a device.

    Raises:
        OSError: it cannot be read, is no plain file, or is larger than 256 MiB.
    """
    # without waiting for whoever may write into a pipe
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(number)
        mode = status.st_mode
        if not stat.S_ISREG(mode):
            what = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            raise OSError(what, os.strerror(what) if what == errno.EISDIR else "no plain file")
        if status.st_size > _LARGEST_BYTES:
            raise OSError(errno.EFBIG, f"larger than {_LARGEST_BYTES >> 20} MiB")
        file = os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise
    with file:
        return file.read()


def find_files(folder: Path, pattern: str, failed: Callable[[OSError], None]) -> list[Path]:
    """Find all files below a folder whose names fit a pattern, sorted.

    Args:
        folder: where to begin; links to folders are not followed.
        pattern: of names, `test_*.py`.
        failed: is told of each folder that cannot be listed.
    """
    return sorted(
        Path(here) / name
        for here, _, names in os.walk(folder, onerror=failed)
        for name in names
        if fnmatchcase(name, pattern)
    )

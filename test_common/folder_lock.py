"""A lock on the folder that a run writes into, gone with the process that holds it."""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from pathlib import Path

from comparison.schema.errors import UnwritableOutputError

LOCK_NAME = ".lock"
# Whoever only looks whether there is a lock holds it for an instant.
_ATTEMPTS = 5
_PAUSE_SECONDS = 0.02


class FolderLock:
    """Keeps other writers out of a folder, until it is released or its process ends.

    The lock is one of the system (flock) on an empty file in the folder. What a killed process
    leaves of it is that file, which locks nothing. Where a file system has no such locks there is
    none.
    """

    def __init__(self, folder: Path) -> None:
        """Take the lock.

        Args:
            folder: a folder that exists.

        Raises:
            UnwritableOutputError: another writer has it.
            OSError: the file cannot be made.
        """
        path = folder / LOCK_NAME
        descriptor = _open_locked(path, folder)
        # Also at the end of the process, or of the last reference.
        self._release = weakref.finalize(self, _release, descriptor, path, os.getpid())

    def release(self) -> None:
        """Let others in. A second call does nothing."""
        self._release()


def is_lock(path: Path) -> bool:
    """Tell the file of a lock, held or left behind."""
    if path.name != LOCK_NAME or path.is_symlink():
        return False
    return path.is_file() and path.stat().st_size == 0


def check_unlocked(folder: Path) -> None:
    """Check early that no one writes into a folder.

    Raises:
        UnwritableOutputError: someone does.
    """
    path = folder / LOCK_NAME
    try:
        # Not waiting for the other end of a pipe of that name.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # there is none
        return
    try:
        _lock(descriptor, folder)
    finally:
        os.close(descriptor)


def _open_locked(path: Path, folder: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            _lock(descriptor, folder)
            if _is_same_file(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its holder removed the file meanwhile


def _lock(descriptor: int, folder: Path) -> None:
    for attempt in range(_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if attempt < _ATTEMPTS - 1:
                time.sleep(_PAUSE_SECONDS)
        except OSError:  # a file system without locks
            return
    raise UnwritableOutputError(
        f"output folder {folder}: another run is writing into it, or a hook that was not removed; "
        "wait for its end, or give another folder"
    )


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _release(descriptor: int, path: Path, owner: int) -> None:
    if os.getpid() != owner:  # a fork has the lock only in passing
        return
    try:
        # Someone else's file of that name is not empty.
        if _is_same_file(descriptor, path) and os.fstat(descriptor).st_size == 0:
            path.unlink()
    except OSError:  # the folder is gone, or read-only by now: an empty file stays
        pass
    finally:
        os.close(descriptor)

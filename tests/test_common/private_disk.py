"""A small file system of a process's own: full, without room for names, or read-only."""

import ctypes
import os
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_MS_RDONLY, _MS_REMOUNT = 1, 32
_LIBC = ctypes.CDLL(None, use_errno=True)


class PrivateDisk:
    """Mounts memory on a folder, in namespaces that end with the process.

    Only a process of one thread may enter them, such as a fork. Which systems let one depends on
    their settings: some keep those without rights from mounting.
    """

    def __init__(self, folder: Path, *, limits: str) -> None:
        """Mount.

        Args:
            folder: a folder that exists.
            limits: options of tmpfs, `size=2m` or `nr_inodes=40`.

        Raises:
            OSError: the system does not let us.
        """
        self._folder = os.fsencode(folder)
        user, group = os.getuid(), os.getgid()
        _check(_LIBC.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1", encoding="ascii")
        _check(_LIBC.mount(b"tmpfs", self._folder, b"tmpfs", 0, limits.encode()))

    def grow(self, limits: str) -> None:
        """Give it other limits."""
        _check(_LIBC.mount(None, self._folder, None, _MS_REMOUNT, limits.encode()))

    def make_read_only(self) -> None:
        """Take the right to write, which root has on any other file system."""
        _check(_LIBC.mount(None, self._folder, None, _MS_REMOUNT | _MS_RDONLY, b""))


def _check(code: int) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

"""Kills a process at a chosen moment of what it does to files: the n-th call, or a part of it."""

import itertools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_CALLS = ("os.rename", "os.mkdir", "os.rmdir", "os.link", "os.remove", "os.truncate")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class SelfKill:
    """Counts calls that change files below a folder; for processes that end with it.

    Attributes:
        count: number of calls so far.
    """

    def __init__(self, folder: Path, *, at: int, part: float = 0.0) -> None:
        """Watch from now on.

        Args:
            folder: where calls count; of written bytes all do.
            at: number of the call that is the last; of one that writes a part is done.
            part: how much of it, from 0 to 1.
        """
        self._folder = str(folder)
        self._at = at
        self._part = part
        self._numbers = itertools.count(1)  # calls come from two threads
        self.count = 0
        self._write = os.write
        sys.addaudithook(self._audit)
        os.write = self._partly(os.write, lambda data: data)
        os.writev = self._partly(os.writev, b"".join)
        os.pwrite = self._partly(os.pwrite, lambda data: data)

    def _is_last(self) -> bool:
        self.count = next(self._numbers)
        return self.count == self._at

    def _audit(self, event: str, args: Sequence[Any]) -> None:
        if event == "open":
            counts = bool((args[2] or 0) & _WRITES) and self._is_ours(args[0])
        else:
            counts = event in _CALLS and any(map(self._is_ours, args[:2]))
        if counts and self._is_last():
            _die()

    def _is_ours(self, path: object) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self._folder)

    def _partly(self, usual: Any, joined: Callable[[Any], bytes]) -> Any:
        def write(descriptor: int, data: Any, *offset: int) -> Any:
            if self._is_last():
                data = bytes(joined(data))
                data = data[: int(self._part * len(data))]
                if offset:
                    usual(descriptor, data, *offset)
                else:
                    self._write(descriptor, data)
                _die()
            return usual(descriptor, data, *offset)

        return write


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

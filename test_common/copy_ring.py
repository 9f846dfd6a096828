"""Memory for copies that wait to be written: bounded, and used again and again."""

from __future__ import annotations

import mmap
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_ALIGNMENT = 64  # enough for any dtype, and a line of the processor's cache


class CopyRing:
    """A piece of memory whose parts are given back in the order in which they were taken.

    New memory is dear: the system clears each page when it is first touched, which takes longer
    than copying into it. So the parts begin anew at the front whenever none is in use.
    """

    def __init__(self, capacity_bytes: int) -> None:
        """Set the greatest number of bytes that are in use at a time; none is taken yet.

        Args:
            capacity_bytes: that number.
        """
        self.capacity_bytes = capacity_bytes
        self._memory: torch.Tensor | None = None
        self._taken: deque[tuple[int, int]] = deque()  # begin and end, the oldest first
        self._next = 0
        self._changed = threading.Condition()

    def take(self, size_bytes: int, *, pinned: bool = False) -> torch.Tensor:
        """Wait for room and take it.

        Args:
            size_bytes: at most the capacity.
            pinned: whether a device is to copy into it by itself; the first call decides.

        Returns:
            uint8 [size_bytes], at a multiple of 64 bytes.
        """
        with self._changed:
            begin = self._room(size_bytes)
            while begin is None:
                self._changed.wait()
                begin = self._room(size_bytes)
            self._taken.append((begin, begin + size_bytes))
            self._next = begin + size_bytes + -size_bytes % _ALIGNMENT
        if self._memory is None:
            self._memory = _new_memory(self.capacity_bytes, pinned=pinned)
        return self._memory[begin : begin + size_bytes]

    def give_back(self) -> None:
        """Give back the part that was taken first."""
        with self._changed:
            self._taken.popleft()
            if not self._taken:
                self._next = 0
            self._changed.notify()

    def _room(self, size_bytes: int) -> int | None:
        """Find where so many bytes are free, None if nowhere."""
        if not self._taken:
            return 0
        oldest = self._taken[0][0]
        if self._taken[-1][0] >= oldest:  # what is in use is one stretch
            if self._next + size_bytes <= self.capacity_bytes:
                return self._next
            return 0 if size_bytes < oldest else None
        return self._next if self._next + size_bytes < oldest else None


def _new_memory(size_bytes: int, *, pinned: bool) -> torch.Tensor:
    import torch

    if pinned:
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
    memory = mmap.mmap(-1, size_bytes)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)  # 512 times fewer pages to clear
    return torch.frombuffer(memory, dtype=torch.uint8)

"""Memory that the process gives back to the system as soon as it is freed."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of glibc's malloc.h
_LARGE_BYTES = 1 << 20


def give_back_large_blocks() -> None:
    """Let glibc map each large block by itself from now on; elsewhere nothing changes.

    By itself glibc takes blocks of up to 32 MiB from a heap, once some were freed, and a heap
    shrinks only at its end: weights that come and go leave holes between what stays. A mapped
    block takes longer to get, as the system clears its pages.
    """
    if sys.platform.startswith("linux"):
        with suppress(AttributeError, OSError):  # another C library
            ctypes.CDLL("libc.so.6").mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)

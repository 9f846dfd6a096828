"""Answering SIGBUS, which the system sends for a mapped page that has no file behind it any more.

Python's own handlers run after the instruction that failed, which never ends. This one is called in
its place, and is Python code all the same: a page that is missing is met by a loop over numbers,
of NumPy, torch or compiled code, none of which holds anything that Python code needs.
"""

import ctypes
import mmap
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Answer = Callable[[int], bool]

# Of Linux, where these structures and numbers are the same with every library of C.
_SA_SIGINFO = 4
_MAP_FIXED = 0x10
_MAP_FAILED = ctypes.c_void_p(-1).value


class _Info(ctypes.Structure):
    """The begin of `siginfo_t`, as it is for a fault of memory."""

    _fields_ = (
        ("number", ctypes.c_int),
        ("errno", ctypes.c_int),
        ("code", ctypes.c_int),
        ("address", ctypes.c_void_p),
    )


class _Action(ctypes.Structure):
    """A `struct sigaction`."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * (1024 // (8 * ctypes.sizeof(ctypes.c_ulong)))),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(_Info), ctypes.c_void_p)


@contextmanager
def bus_errors_answered(answer: Answer) -> Iterator[None]:
    """Ask about each missing page, as long as this lasts; elsewhere than on Linux never.

    Args:
        answer: is given the address that was read, in the thread that read it, and tells whether
            something is there now. What it does not answer takes its usual course.
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    libc = _libc()
    before = _Action()

    def handle(_number: int, info: Any, _context: int | None) -> None:
        if not answer(info.contents.address or 0):
            libc.sigaction(signal.SIGBUS, ctypes.byref(before), None)  # it fails once more then

    handler = _HANDLER(handle)
    action = _Action(handler=ctypes.cast(handler, ctypes.c_void_p), flags=_SA_SIGINFO)
    libc.sigaction(signal.SIGBUS, ctypes.byref(action), ctypes.byref(before))
    try:
        yield
    finally:
        libc.sigaction(signal.SIGBUS, ctypes.byref(before), None)


def put_zeros(begin: int, end: int) -> bool:
    """Put zeros in the place of mapped pages.

    Args:
        begin: an address within the first page.
        end: the address behind the last byte.

    Returns:
        Whether the system did that.
    """
    page = begin - begin % mmap.PAGESIZE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
    found = _libc().mmap(page, end - page, mmap.PROT_READ, flags, -1, 0)
    return bool(found != _MAP_FAILED)


def _libc() -> Any:
    """Return the library of C, called without giving up Python's lock."""
    libc = ctypes.PyDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t),
        *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
    )
    return libc

"""Tells of a run that a limit on memory (`ulimit -v`) has ended, in one line.

Libraries in native code end the process where they get no memory, with a line of their own or
none. So under such a limit the work is done by a child, and this process waits for its end. Without
a limit, which is the rule, there is no child.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from typing import Final

from tools.interrupts import INTERRUPTED
from tools.standard_streams import complain

_BAD_INPUT: Final = 2
# How native code gives up: an exception of C++ that nobody takes, memory that is not there.
_GAVE_UP: Final = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGTRAP, signal.SIGILL)
_SAID: Final = ("failed to map segment", "cannot allocate memory", "can't start new thread")


def fork_if_limited() -> Callable[[int], None]:
    """Go on in a child where there is a limit; the parent ends the process as the child ended.

    Returns:
        What to tell the exit code, last of all.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return lambda code: None
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        return lambda code: _tell(writer, code)
    os.close(writer)
    _wait_for(child, reader, limit)
    raise AssertionError("the process has ended")


def is_want_of_memory(error: BaseException) -> bool:
    """Tell an error that is raised because memory is short.

    Args:
        error: whatever was raised.
    """
    return isinstance(error, MemoryError) or (
        isinstance(error, ImportError | OSError | RuntimeError)
        and any(words in str(error).lower() for words in _SAID)
    )


def memory_message() -> str:
    """Say that memory is short, with the limit if there is one."""
    return _message(resource.getrlimit(resource.RLIMIT_AS)[0])


def _message(limit_bytes: int) -> str:
    if limit_bytes == resource.RLIM_INFINITY:
        return "there is not enough memory for this run"
    return (
        "there is not enough memory for this run: the address space is limited to "
        f"{limit_bytes / 1e9:.3g} GB (ulimit -v)"
    )


def _tell(writer: int, code: int) -> None:
    os.write(writer, bytes([code]))


def _wait_for(child: int, reader: int, limit_bytes: int) -> None:
    """End this process as the child ends."""
    # Ctrl-C on a terminal reaches the child too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(child, number))
    told = os.read(reader, 1)
    status = os.waitpid(child, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    if code < 0 and -code not in _GAVE_UP:
        _die_by(-code)
    if code == INTERRUPTED or (told and code >= 0):
        os._exit(code)
    complain(f"error: {_message(limit_bytes)}")
    os._exit(_BAD_INPUT)


def _die_by(number: int) -> None:
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)

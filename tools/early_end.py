"""Keeps code of a model from ending a command with an exit code that reads as a verdict."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from tools.interrupts import INTERRUPTED
from tools.standard_streams import complain

_BAD_INPUT: Final = 2


@contextmanager
def early_end_told() -> Iterator[None]:
    """While the block runs, `os._exit` of this process says so, and ends it with exit code 2.

    Children that are forked meanwhile end as ever, and so does a command that Ctrl-C ends. What
    ends a process in native code is not seen.
    """
    process, end_at_once = os.getpid(), os._exit

    def end(status: int) -> NoReturn:
        if os.getpid() == process and status != INTERRUPTED:
            complain(f"error: code of the model or oracle ended the process: os._exit({status!r})")
            status = _BAD_INPUT
        end_at_once(status)

    os._exit = end
    try:
        yield
    finally:
        os._exit = end_at_once

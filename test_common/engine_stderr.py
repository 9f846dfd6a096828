"""Keeps an engine's chatter off the console without losing its errors."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_NOISE = b"Writing debug binary tensor "


@contextmanager
def without_write_log() -> Iterator[None]:
    """Drop the line that MAX logs for each tensor it writes; pass on all others afterwards.

    The engine writes to file descriptor 2 from native code, so the descriptor itself is turned to
    a temporary file for the time of the block. Everything else in it reaches stderr on any exit.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            log.seek(0)
            for line in log:
                if not line.startswith(_NOISE):
                    os.write(2, line)

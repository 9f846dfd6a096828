"""Standard output whose reader may go at any time, as that of `| head` does."""

from __future__ import annotations

import os
from typing import Any, TextIO


class StandardOutput:
    """Drops what is printed after the reader has gone, so that the command still does its work."""

    def __init__(self, stream: TextIO) -> None:
        """Guard a stream."""
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._drop()

    def __getattr__(self, name: str) -> Any:
        """Leave all else to the stream."""
        return getattr(self._stream, name)

    def _drop(self) -> None:
        """Send what is still to come to nowhere, so that no later flush fails."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

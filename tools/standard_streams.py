"""Makes standard streams that cannot be written to harmless: closed, full, or no longer read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from comparison.report.names import printable
from comparison.schema.errors import UnwritableOutputError
from test_common.secret_text import without_tokens


def prepare_streams() -> None:
    """Open what is closed, escape what the encoding lacks, and guard standard output.

    A closed descriptor would be taken by the next file that is opened, and native code that
    prints would write into that file.
    """
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            break
    output = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # for good
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (output, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    sys.stdout = GuardedOutput(output)


def complain(line: str) -> None:
    """Print a line, or several, on stderr, if anybody can be told.

    Without tokens, and with nothing in it that steers a terminal or a CI run.
    """
    shown = "\n".join(map(printable, without_tokens(line).split("\n")))
    try:
        print(shown, file=sys.stderr, flush=True)
    except OSError:
        drop_descriptor(2)


def drop_descriptor(descriptor: int) -> None:
    """Send what is still to come to nowhere, so that no later flush fails."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


class GuardedOutput:
    """Standard output whose reader may go at any time, as that of `| head` does.

    What is printed after the reader has gone is dropped, and the command goes on to its result.
    Any other failure to write is an error in one line.
    """

    def __init__(self, stream: TextIO) -> None:
        """Guard a stream."""
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write what is buffered."""
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def __getattr__(self, name: str) -> Any:
        """Leave all else to the stream."""
        return getattr(self._stream, name)

    def _give_up(self, error: OSError) -> None:
        drop_descriptor(self._stream.fileno())
        if not isinstance(error, BrokenPipeError):
            raise UnwritableOutputError(
                f"cannot write to standard output: {error.strerror}"
            ) from error

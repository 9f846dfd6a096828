"""Keeps an engine's chatter off the console without losing its errors."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from comparison.schema.manifest import RawTensor

# Writing debug binary tensor 2x512xf32 of 4096 bytes to 'OUT/0/name'
_WRITTEN = re.compile(
    rb"Writing debug binary tensor (?P<dims>(?:\d+x)*)(?P<dtype>\w+)"
    rb" of \d+ bytes to '(?P<path>.*)'\n?"
)
_SHORT_DTYPES = {"bool": "bool", "bf16": "bfloat16"}
_PREFIXES = {"f": "float", "si": "int", "ui": "uint"}


@contextmanager
def without_write_log() -> Iterator[dict[Path, RawTensor]]:
    """Take the line that MAX logs for each tensor it writes; pass on all others afterwards.

    The engine writes to file descriptor 2 from native code, so the descriptor itself is turned to
    a temporary file for the time of the block. Everything else in it reaches stderr on any exit.

    Yields:
        A table that is filled when the block ends: file to its dtype and shape.
    """
    written: dict[Path, RawTensor] = {}
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield written
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            log.seek(0)
            for line in log:
                match = _WRITTEN.fullmatch(line)
                if match is None:
                    os.write(2, line)
                else:
                    written[Path(os.fsdecode(match["path"]))] = _raw_tensor(match)


def _raw_tensor(match: re.Match[bytes]) -> RawTensor:
    dims = match["dims"].decode().rstrip("x")
    shape = tuple(int(size) for size in dims.split("x")) if dims else ()
    return RawTensor(dtype=_long_dtype(match["dtype"].decode()), shape=shape)


def _long_dtype(short: str) -> str:
    """Spell MAX's `f32`, `si64`, `ui8`, `bf16` as NumPy does; others stay as they are."""
    letters = short.rstrip("0123456789")
    if short in _SHORT_DTYPES:
        return _SHORT_DTYPES[short]
    return f"{_PREFIXES[letters]}{short.removeprefix(letters)}" if letters in _PREFIXES else short

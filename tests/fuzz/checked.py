"""What a reader of hostile files may do: give a value, or one clear error of ours."""

import itertools
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from comparison.numerics.dtypes import Array
from comparison.schema.errors import BadInputError

OUTCOMES: Counter[str] = Counter()  # how many inputs were read, and how many refused
MOST_SECONDS = 2.0  # of this process, whatever else the machine does
_MOST_CHARACTERS = 2000  # of a message, besides the path
_TRACEBACK = re.compile(r"Traceback \(most recent|File \"[^\"]+\", line \d+")

# In memory where there is such a place: a file system takes longer than a reader.
_MEMORY = Path("/dev/shm")
_folder = tempfile.TemporaryDirectory(
    prefix="fuzz-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None
)  # for the process's whole life
_written: dict[Path, bytes] = {}  # what is there already
_times = itertools.count(1_000_000_000)


class FindingError(Exception):
    """A reader did what no reader may do."""


def check_reader(
    read: Callable[[Path], Any],
    name: str,
    content: bytes,
    *,
    beside: Mapping[str, bytes] = MappingProxyType({}),
    refusals: type[Exception] = BadInputError,
) -> None:
    """Let a reader read a file of some content.

    Args:
        read: the reader; what it returns is not looked at.
        name: name of the file.
        content: the file.
        beside: further files of its folder, which errors may name as well.
        refusals: the errors that it may raise.

    Raises:
        FindingError: it took too long, or its message is not clear.
        Exception: what the reader raised, if that is no refusal.
    """
    folder = Path(_folder.name) / f"{name} and {len(beside)}"
    files = {folder / name: content} | {folder / each: held for each, held in beside.items()}
    for path, held in files.items():
        if _written.get(path) != held:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(held)
            _written[path] = held
            # Readers keep what they read by path, size and time; the clock is slower than this.
            os.utime(path, ns=(0, next(_times)))
    begin = time.process_time()
    try:
        read(folder / name)
        OUTCOMES["read"] += 1
    except refusals as error:
        OUTCOMES["refused"] += 1
        _check_message(str(error), [*map(str, files), f"{folder} ", f"{folder}:"])
    seconds = time.process_time() - begin
    if seconds > MOST_SECONDS:
        raise FindingError(f"it took {seconds:.1f} s")


def check_array(array: Array, path: Path) -> None:
    """Look at all values of an array, and hold its size against the file's.

    Raises:
        FindingError: it is larger than what the file holds.
    """
    stored = path.stat().st_size
    if array.nbytes > 2 * stored:  # elements of four bits take a byte each
        raise FindingError(f"an array of {array.nbytes} bytes out of {stored}")
    np.asarray(array).tobytes()


def _check_message(message: str, files: Sequence[str]) -> None:
    if not any(file in message for file in files):
        raise FindingError(f"the message does not name {files[0]}: {message:.300}")
    if len(message) > _MOST_CHARACTERS:
        raise FindingError(f"a message of {len(message)} characters: {message:.300}")
    if _TRACEBACK.search(message):
        raise FindingError(f"a traceback in a message: {message:.500}")

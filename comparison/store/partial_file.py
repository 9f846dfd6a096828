"""The file of a step's tensors while it is being written, and what a killed run leaves of it.

`tensors.partial` holds bytes of tensors one after the other, behind room for the header that makes
a .safetensors file of it in the end. `tensors.partial.json` has one line a tensor, written after
its bytes: a JSON object of `name`, `dtype` (the code of safetensors), `shape` and `data_offsets`
(begin and end in the file), or of `name` and `same_as`, an earlier tensor with the same bytes.
"""

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from comparison.numerics.dtypes import Array
from comparison.schema.errors import CorruptFileError
from comparison.store.regular_file import open_regular
from comparison.store.safetensors_file import (
    StoredTensor,
    is_padding,
    map_stored,
    parse_entry,
)

PARTIAL_SUFFIX = ".partial"
# As much as a header of safetensors may be.
MOST_INDEX_BYTES = 100_000_000


def index_of(path: Path) -> Path:
    """Return the list of what is in a partial file."""
    return path.with_name(f"{path.name}.json")


def is_partial_file(path: Path) -> bool:
    """Tell a partial file, which has an index beside it."""
    return path.suffix == PARTIAL_SUFFIX and os.path.lexists(index_of(path))


def list_partial_file(path: Path) -> tuple[tuple[str, str], ...]:
    """List a partial file: key and name of each tensor, in order of execution.

    Raises:
        CorruptFileError: its index is missing or malformed.
        UnsupportedFormatError: a dtype that is not known.
    """
    stored, same_as = _index(path)
    keys = {name: name for name in stored} | same_as
    return tuple((key, name) for name, key in keys.items() if not is_padding(name))


def read_partial_tensor(path: Path, key: str) -> Array:
    """Map one tensor of a partial file.

    Raises:
        CorruptFileError: as list_partial_file, or there is no such tensor.
        UnsupportedFormatError: a dtype that is not known.
    """
    stored, _ = _index(path)
    if key not in stored:
        raise CorruptFileError(
            f"{path}: expected a tensor {key!r:.200}, found {len(stored)} others"
        )
    return map_stored(path, stored[key])


def _index(path: Path) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    stat = os.stat(index_of(path))
    return _read_index(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=4)
def _read_index(
    path: Path, size_bytes: int, _mtime_ns: int
) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    index = index_of(path)
    if size_bytes > MOST_INDEX_BYTES:
        raise CorruptFileError(f"{index}: expected {MOST_INDEX_BYTES} bytes at most")
    with open_regular(index) as file:
        text = file.read(MOST_INDEX_BYTES)
    stored: dict[str, StoredTensor] = {}
    same_as: dict[str, str] = {}
    # The last line of a killed run may be cut off; it has no line break then.
    for line in text.split(b"\n")[:-1]:
        name, entry = _parse_line(index, line)
        if name in stored or name in same_as:
            raise CorruptFileError(f"{index}: expected each name once, found {name!r:.200} twice")
        target = entry.get("same_as")
        if target is None:
            stored[name] = parse_entry(index, name, entry)
        elif isinstance(target, str) and target in stored:
            same_as[name] = target
        else:
            raise CorruptFileError(f"{index}: {name!r:.200} is to be the same as {target!r:.200}")
    return stored, same_as


def _parse_line(index: Path, line: bytes) -> tuple[str, dict[str, Any]]:
    try:
        entry = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{index}: expected a JSON object a line: {error}") from None
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise CorruptFileError(f"{index}: expected an object with a name, found {entry!r:.60}")
    return entry["name"], entry

"""The header of a step's one file, which is written behind its tensors and stands before them."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comparison.schema.errors import CorruptFileError
from comparison.store.partial_file import MOST_INDEX_BYTES, PARTIAL_SUFFIX, index_of
from comparison.store.regular_file import read_regular
from comparison.store.safetensors_file import SAME_AS

# What file systems say that keep no room.
_NOT_OFFERED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


def write_header(
    descriptor: int, table: Mapping[str, Any], same_as: Mapping[str, str], *, header_bytes: int
) -> None:
    """Make a .safetensors file of one whose tensors are written.

    Args:
        descriptor: the file, with room for the header.
        table: `dtype`, `shape` and `data_offsets` of each tensor, these from the file's start.
        same_as: names of tensors that have the bytes of another, with that one's name.
        header_bytes: size of the room behind the first 8 bytes.

    Raises:
        OSError: the file cannot be written.
    """
    header: dict[str, Any] = {"__metadata__": {SAME_AS: json.dumps(dict(same_as))}}
    data_begin = 8 + header_bytes
    for name, entry in table.items():
        offsets = [offset - data_begin for offset in entry["data_offsets"]]
        header[name] = {**entry, "data_offsets": offsets}
    text = json.dumps(header).encode().ljust(header_bytes)
    left = memoryview(len(text).to_bytes(8, "little") + text)
    while left:  # the system may take less than it is given, as where the disk is full
        left = left[os.pwrite(descriptor, left, 8 + len(text) - len(left)) :]


def reserve(descriptor: int, size_bytes: int) -> None:
    """Have the system keep room at a file's start, which is not to be lacking in the end.

    Raises:
        OSError: there is not so much.
    """
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    except OSError as error:
        if error.errno not in _NOT_OFFERED:
            raise


def name_whole_file(path: Path) -> None:
    """Give a file its final name, once its header is written.

    Raises:
        OSError: it cannot be renamed.
    """
    os.replace(path, path.with_suffix(".safetensors"))
    index_of(path).unlink(missing_ok=True)


def complete_partial_files(folder: Path) -> None:
    """Make whole files of those that a killed run was writing, with the tensors it had listed.

    Args:
        folder: of a step.

    Raises:
        CorruptFileError: a list is malformed, or a file shorter than its list says.
        OSError: something cannot be read or written.
    """
    for path in sorted(folder.glob(f"tensors*{PARTIAL_SUFFIX}")):
        _complete(path)
    for index in folder.glob(f"tensors*{PARTIAL_SUFFIX}.json"):
        index.unlink()  # its file has its final name


def _complete(path: Path) -> None:
    table, same_as = _read_index(index_of(path))
    if not table:  # nothing that was whole
        path.unlink()
        return
    begin = min(entry["data_offsets"][0] for entry in table.values())
    end = max(entry["data_offsets"][1] for entry in table.values())
    _make_own(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_size < end:
            raise CorruptFileError(f"{path}: expected {end} bytes or more, as its list says")
        os.ftruncate(descriptor, end)
        write_header(descriptor, table, same_as, header_bytes=begin - 8)
    finally:
        os.close(descriptor)
    name_whole_file(path)


def _read_index(index: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the whole lines of a list; the last of a killed run may be cut off."""
    table: dict[str, Any] = {}
    same_as: dict[str, str] = {}
    content = read_regular(index, most_bytes=MOST_INDEX_BYTES) if index.exists() else b""
    lines = content.split(b"\n")[:-1]
    try:
        for line in lines:
            entry = json.loads(line)
            name = entry.pop("name")
            if "same_as" in entry:
                same_as[name] = entry["same_as"]
            else:
                table[name] = entry
                begin, end = entry["data_offsets"]
                entry["data_offsets"] = [int(begin), int(end)]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise CorruptFileError(
            f"{index}: expected a tensor a line, found damage: {error}"
        ) from None
    return table, same_as


def _make_own(path: Path) -> None:
    """Copy a file that has another name too, which is not ours to change."""
    if path.stat().st_nlink == 1:
        return
    from test_common.tensor_files import write_parts

    write_parts(path, [path.read_bytes()])

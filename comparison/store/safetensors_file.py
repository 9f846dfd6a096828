"""Files of many tensors in the safetensors format.

An own parser, since the library's numpy side knows no bfloat16 and no float8: u64 header size,
a JSON object from name to dtype, shape and byte range, then the data, without holes.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from comparison.numerics.dtypes import Array, dtype_of_name
from comparison.schema.errors import CorruptFileError, UnsupportedFormatError
from comparison.schema.outcome import Shape
from comparison.store.atomic_file import atomic_file
from comparison.store.json_text import parse_json
from comparison.store.mapped_array import check_size, map_array, unpack_nibbles
from comparison.store.regular_file import open_regular

# Metadata of our dumps: a JSON object from the name of a tensor that is not stored to that of one
# with the same bytes. The format itself has no two names for one stretch.
SAME_AS = "same_as"
# Metadata of a file that holds sketches of tensors.
SKETCH_VERSION = "sketch_version"
# Bytes between tensors, where the next one would begin at no multiple of its element's size.
_PADDING = "__padding__."
# The library's own limit.
_MAX_HEADER_BYTES = 100_000_000
_DTYPE_NAMES = {
    "BOOL": "bool",
    "F4": "float4_e2m1fn",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "C64": "complex64",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """Where a tensor lies in a .safetensors file.

    Attributes:
        dtype: dtype name.
        shape: dimensions.
        begin: first byte, from the start of the file.
        end: byte behind the last.
    """

    dtype: str
    shape: Shape
    begin: int
    end: int


def read_safetensors_header(path: Path) -> dict[str, StoredTensor]:
    """Read and check the table of a .safetensors file, in the file's order.

    Raises:
        CorruptFileError: cut off, malformed, or ranges that contradict the shapes or each other.
        UnsupportedFormatError: a dtype that is not known.
    """
    stat = path.stat()
    return _read_header(path, stat.st_size, stat.st_mtime_ns)


def read_safetensors_tensor(path: Path, key: str) -> Array:
    """Map one tensor of a .safetensors file.

    Raises:
        CorruptFileError: as read_safetensors_header, or there is no such tensor.
        UnsupportedFormatError: a dtype that is not known.
    """
    table = read_safetensors_header(path)
    if key not in table:
        raise CorruptFileError(f"{path}: expected a tensor {key!r:.200}, found {len(table)} others")
    return map_stored(path, table[key])


def map_stored(path: Path, stored: StoredTensor) -> Array:
    """Map a tensor whose place is known.

    Raises:
        CorruptFileError: the file is shorter than that.
        UnsupportedFormatError: elements of 4 bits that are too many to unpack.
    """
    dtype = dtype_of_name(stored.dtype)
    if stored.dtype == "float4_e2m1fn":
        size: Shape = (stored.end - stored.begin,)
        packed = map_array(path, dtype=np.dtype(np.uint8), shape=size, offset=stored.begin)
        return unpack_nibbles(path, packed, dtype=dtype, shape=stored.shape)
    return map_array(path, dtype=dtype, shape=stored.shape, offset=stored.begin)


def read_safetensors_metadata(path: Path) -> dict[str, str]:
    """Read the texts that a .safetensors file carries beside its tensors.

    Raises:
        CorruptFileError: the header is cut off or malformed, or its metadata are no texts.
    """
    header, _ = _load_header(path, path.stat().st_size)
    metadata = header.get("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _corrupt(path, "texts as __metadata__", f"{metadata!r:.60}")
    return metadata


def list_safetensors(path: Path) -> tuple[tuple[str, str], ...]:
    """List key and name of each tensor; a tensor that equals another has that one's key.

    Raises:
        CorruptFileError: as read_safetensors_header, or a name stands for no tensor.
        UnsupportedFormatError: a dtype that is not known, or sketches of tensors.
    """
    metadata = read_safetensors_metadata(path)
    if SKETCH_VERSION in metadata:  # its keys are names of tensors, and none of them is in it
        raise UnsupportedFormatError(
            f"{path}: expected whole tensors, found sketches of them; give the folder of their dump"
        )
    keys = {key: None for key in read_safetensors_header(path) if not is_padding(key)}
    text = metadata.get(SAME_AS)
    same_as = {} if text is None else _parse_json(path, text.encode("utf-8", "surrogatepass"))
    for name, key in same_as.items():
        if name in keys or not isinstance(key, str) or key not in keys:
            raise _corrupt(path, f"a tensor that {name!r:.200} is the same as", f"{key!r:.200}")
    return (*((key, key) for key in keys), *((key, name) for name, key in same_as.items()))


def is_padding(key: str) -> bool:
    """Tell the key of bytes that only fill up."""
    return key.startswith(_PADDING)


def padding_key(number: int) -> str:
    """Return the key of the bytes that fill up a gap."""
    return f"{_PADDING}{number}"


def safetensors_code(dtype: str) -> str | None:
    """Return the format's code of a dtype, None where it has none.

    Args:
        dtype: name of the dtype.
    """
    return next((code for code, name in _DTYPE_NAMES.items() if name == dtype), None)


def write_safetensors(
    path: Path, tensors: Mapping[str, Array], *, metadata: Mapping[str, str]
) -> None:
    """Write arrays of float64 and float32, whole or not at all.

    Args:
        path: the file.
        tensors: by name, float64 or float32 of any shape.
        metadata: texts to carry beside them.

    Raises:
        UnwritableOutputError: the folder does not exist or cannot be written.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, array in tensors.items():
        begin, end = end, end + array.nbytes
        code = f"F{8 * array.itemsize}"
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode("utf-8")
    text += b" " * (-len(text) % 8)  # data begin at a multiple of 8, as the format asks for
    with atomic_file(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array, dtype=f"<f{array.itemsize}").tobytes())


@lru_cache(maxsize=4)  # a file of a thousand tensors is parsed once, not a thousand times
def _read_header(path: Path, size_bytes: int, _mtime_ns: int) -> dict[str, StoredTensor]:
    header, data_begin = _load_header(path, size_bytes)
    header.pop("__metadata__", None)
    table = {name: _entry_at(path, name, entry, data_begin) for name, entry in header.items()}
    _check_ranges(path, table, data_begin, size_bytes)
    return table


def _load_header(path: Path, size_bytes: int) -> tuple[dict[str, Any], int]:
    """Return the header's object and where the data begin."""
    with open_regular(path) as file:
        prefix = file.read(8)
        header_bytes = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or header_bytes > min(size_bytes - 8, _MAX_HEADER_BYTES):
            raise _corrupt(path, f"a header within {size_bytes} bytes", f"{header_bytes}")
        return _parse_json(path, file.read(header_bytes)), 8 + header_bytes


def _parse_json(path: Path, text: bytes) -> dict[str, Any]:
    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for name, value in pairs:
            if name in table:
                raise _corrupt(path, "each name once", f"{name!r:.200} twice")
            table[name] = value
        return table

    try:
        header = parse_json(text, make_object=refuse_duplicates)
    except CorruptFileError:
        raise
    except ValueError as error:  # of too many digits, too: a bare ValueError
        raise _corrupt(path, "a header in JSON", f"{error!s:.200}") from None
    if not isinstance(header, dict):
        raise _corrupt(path, "a JSON object as header", type(header).__name__)
    return header


def _entry_at(path: Path, name: str, entry: Any, data_begin: int) -> StoredTensor:
    if not isinstance(entry, dict):
        raise _corrupt(path, f"an object for {name!r:.200}", f"{entry!r:.60}")
    return parse_entry(path, name, entry, data_begin)


def parse_entry(path: Path, name: str, entry: dict[str, Any], data_begin: int = 0) -> StoredTensor:
    """Check what a header says of one tensor.

    Args:
        path: the file, for messages.
        name: the tensor's name.
        entry: `dtype` as the format's code, `shape`, and `data_offsets` (begin and end).
        data_begin: where the data begin, which the offsets start from.

    Raises:
        CorruptFileError: something is missing, or the range contradicts the shape.
        UnsupportedFormatError: a dtype that is not known.
    """
    shape = _sizes(path, name, entry, "shape")
    offsets = _sizes(path, name, entry, "data_offsets")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _corrupt(
            path, f"begin and end as data_offsets of {name!r:.200}", f"{list(offsets)!s:.60}"
        )
    code = entry.get("dtype")
    if not isinstance(code, str) or code not in _DTYPE_NAMES:
        raise UnsupportedFormatError(
            f"{path}: expected a dtype of {', '.join(_DTYPE_NAMES)} for {name!r:.200}, "
            f"found {code!r:.60}"
        )
    begin, end = (data_begin + offset for offset in offsets)
    stored = StoredTensor(dtype=_DTYPE_NAMES[code], shape=shape, begin=begin, end=end)
    expected = _size_bytes(path, stored)
    if expected != end - begin:
        what = f"{expected} bytes for {name!r:.200} of {code} {stored.shape}"
        raise _corrupt(path, what, f"{end - begin}")
    return stored


def _sizes(path: Path, name: str, entry: dict[str, Any], field: str) -> tuple[int, ...]:
    value = entry.get(field)
    if not isinstance(value, list) or not all(type(n) is int and n >= 0 for n in value):
        raise _corrupt(path, f"a list of sizes as {field} of {name!r:.200}", f"{value!r:.60}")
    return tuple(value)


def _size_bytes(path: Path, stored: StoredTensor) -> int:
    element_bytes = dtype_of_name(stored.dtype).itemsize
    size = check_size(path, shape=stored.shape, element_bytes=element_bytes)
    return (math.prod(stored.shape) + 1) // 2 if stored.dtype == "float4_e2m1fn" else size


def _check_ranges(
    path: Path, table: dict[str, StoredTensor], data_begin: int, size_bytes: int
) -> None:
    position = data_begin
    for name, stored in sorted(table.items(), key=lambda item: (item[1].begin, item[1].end)):
        if stored.begin != position:
            kind = "overlaps the tensor before it" if stored.begin < position else "leaves a hole"
            raise _corrupt(
                path, f"{name!r:.200} at byte {position}", f"{stored.begin}, which {kind}"
            )
        position = stored.end
    if position != size_bytes:
        raise _corrupt(path, f"a file of {position} bytes", f"{size_bytes}")


def _corrupt(path: Path, expected: str, found: str) -> CorruptFileError:
    return CorruptFileError(
        f"{path}: expected {expected:.400}, found {found!s:.200}; dump it again"
    )

"""Files of one tensor as MAX writes them (`PrintStyle.BINARY_MAX_CHECKPOINT`).

Little endian without padding; data may be unaligned:

    0       8 bytes   magic
    8       u32, u32  major, minor version
    16      u64       metadata size = 4 + key length + 2 + 4 * rank + 8
    24      u32       key length k
    28      k bytes   key: the label as given
    28+k    u8        dtype code
    29+k    u8        rank
    30+k    u32*rank  dimensions
    ..      u64       offset of the data from the start of the file
"""

import math
import os
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO

import numpy as np

from comparison.numerics.dtypes import Array, dtype_name, dtype_of_name
from comparison.schema.errors import CorruptFileError, UnsupportedFormatError
from comparison.schema.outcome import Shape
from comparison.store.atomic_file import atomic_file
from comparison.store.mapped_array import check_size, map_open, unpack_nibbles
from comparison.store.regular_file import open_regular

MAGIC = b"\x93\xf0\x9f\x94\xa5\x2b\x2b\x93"
_FIXED = struct.Struct("<8sIIQI")
_FIXED_BYTES = _FIXED.size
_CODE_AND_RANK = struct.Struct("<BB")
_USUAL_BYTES = 512  # more than most headers
_MOST_KEY_BYTES = 1 << 16  # a label is the name of a tensor
# max.dtype.DType, values of MAX 26.7.
_CODE_OF_DTYPE = {
    "bool": 1,
    "float4_e2m1fn": 64,
    "float6_e2m3fn": 65,
    "float6_e3m2fn": 66,
    "float8_e8m0fnu": 73,
    "float8_e4m3fn": 75,
    "float8_e4m3fnuz": 76,
    "float8_e5m2": 77,
    "float8_e5m2fnuz": 78,
    "float16": 79,
    "bfloat16": 80,
    "float32": 81,
    "float64": 82,
    "uint8": 134,
    "int8": 135,
    "uint16": 136,
    "int16": 137,
    "uint32": 138,
    "int32": 139,
    "uint64": 140,
    "int64": 141,
}
_DTYPE_OF_CODE = {code: name for name, code in _CODE_OF_DTYPE.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxHeader:
    """What a .max file says about its tensor.

    Attributes:
        key: the label that was printed.
        dtype: dtype name.
        shape: dimensions, () for a scalar.
        offset: byte where the data begins.
        is_packed: whether two elements of 4 bits share a byte.
    """

    key: str
    dtype: str
    shape: Shape
    offset: int
    is_packed: bool


def read_max_header(path: Path) -> MaxHeader:
    """Read and check the header of a .max file.

    Raises:
        CorruptFileError: not a .max file, cut off, or its parts contradict each other.
        UnsupportedFormatError: a version or dtype that is not known.
    """
    with open_regular(path) as file:
        return _read_header(path, file)


def _read_header(path: Path, file: BinaryIO) -> MaxHeader:
    size_bytes = os.fstat(file.fileno()).st_size
    head = file.read(_USUAL_BYTES)
    key_bytes, metadata_bytes = _check_fixed_part(path, head, size_bytes)
    key_end = _FIXED_BYTES + key_bytes
    head = _longer(file, head, key_end + 2)
    dtype_code, rank = _take(path, _CODE_AND_RANK, head, key_end, "rank")
    end = key_end + 2 + 4 * rank + 8
    if metadata_bytes != end - 24:
        raise _corrupt(path, f"metadata of {end - 24} bytes", f"{metadata_bytes}")
    head = _longer(file, head, end)
    *shape, offset = _take(path, _layout(rank), head, key_end + 2, "data offset")
    if not end <= offset <= size_bytes:
        raise _corrupt(path, f"data from byte {end} on", f"data at byte {offset}")
    key = _decode_key(path, head[_FIXED_BYTES:key_end])
    dtype = _dtype_of_code(path, dtype_code)
    packed = _check_data_size(path, dtype, tuple(shape), size_bytes - offset)
    return MaxHeader(key=key, dtype=dtype, shape=tuple(shape), offset=offset, is_packed=packed)


def _longer(file: BinaryIO, head: bytes, size_bytes: int) -> bytes:
    """Read on, as far as a header needs."""
    missing = size_bytes - len(head)
    return head if missing <= 0 else head + file.read(missing)


@cache
def _layout(rank: int) -> struct.Struct:
    """Return the layout of dimensions and the data's offset."""
    return struct.Struct(f"<{rank}IQ")


def read_max_file(path: Path) -> Array:
    """Map the tensor of a .max file.

    Raises:
        CorruptFileError: not a .max file, cut off, or its parts contradict each other.
        UnsupportedFormatError: a version or dtype that is not known, or elements of 4 bits that
            are too many to unpack.
    """
    with open_regular(path) as file:
        header = _read_header(path, file)
        dtype, shape, offset = dtype_of_name(header.dtype), header.shape, header.offset
        if not header.is_packed:
            return map_open(file, path, dtype=dtype, shape=shape, offset=offset)
        packed: Shape = ((math.prod(shape) + 1) // 2,)
        nibbles = map_open(file, path, dtype=np.dtype(np.uint8), shape=packed, offset=offset)
    return unpack_nibbles(path, nibbles, dtype=dtype, shape=shape)


def write_max_file(path: Path, array: Array, *, key: str) -> None:
    """Write a tensor as MAX does, whole or not at all.

    Args:
        path: the file; its folder must exist.
        array: any shape and strides.
        key: the label.

    Raises:
        UnsupportedFormatError: a dtype that the format has no code for.
        UnwritableOutputError: the folder cannot be written.
    """
    name = dtype_name(array.dtype)
    if name not in _CODE_OF_DTYPE:
        raise UnsupportedFormatError(
            f"{path}: expected a dtype of {', '.join(_CODE_OF_DTYPE)}, found {name}"
        )
    label = key.encode("utf-8")
    metadata_bytes = 4 + len(label) + 2 + 4 * array.ndim + 8
    header = MAGIC + struct.pack("<IIQI", 0, 1, metadata_bytes, len(label)) + label
    header += struct.pack(f"<BB{array.ndim}I", _CODE_OF_DTYPE[name], array.ndim, *array.shape)
    header += struct.pack("<Q", len(header) + 8)
    native = np.ascontiguousarray(array, dtype=dtype_of_name(name))
    with atomic_file(path) as file:
        file.write(header)
        file.write(native.reshape(-1).view(np.uint8).data)


def _check_fixed_part(path: Path, head: bytes, size_bytes: int) -> tuple[int, int]:
    """Return the bytes of the key and those of the metadata."""
    if len(head) < _FIXED_BYTES:
        raise _corrupt(path, f"a header of at least {_FIXED_BYTES} bytes", f"{len(head)}")
    magic, major, minor, metadata_bytes, key_bytes = _FIXED.unpack_from(head)
    if magic != MAGIC:
        raise _corrupt(path, f"magic {MAGIC.hex(' ')}", head[:8].hex(" "))
    if major > 0:
        raise UnsupportedFormatError(f"{path}: expected version 0, found {major}.{minor}")
    if key_bytes > min(size_bytes - _FIXED_BYTES, _MOST_KEY_BYTES):
        most = min(size_bytes, _MOST_KEY_BYTES)
        raise _corrupt(path, f"a key within {most} bytes", f"a key of {key_bytes}")
    return key_bytes, metadata_bytes


def _take(
    path: Path, layout: struct.Struct, data: bytes, position: int, what: str
) -> tuple[int, ...]:
    if len(data) < position + layout.size:
        raise _corrupt(path, f"the {what}", "the end of the file")
    return layout.unpack_from(data, position)


def _decode_key(path: Path, key: bytes) -> str:
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError:
        raise _corrupt(path, "a key in UTF-8", repr(key[:40])) from None


def _dtype_of_code(path: Path, code: int) -> str:
    if code not in _DTYPE_OF_CODE:
        raise CorruptFileError(
            f"{path}: expected a dtype code of {sorted(_DTYPE_OF_CODE)}, found {code}"
        )
    return _DTYPE_OF_CODE[code]


def _check_data_size(path: Path, dtype: str, shape: Shape, found: int) -> bool:
    """Hold the bytes that are there against the shape; True where two elements share one."""
    element_bytes = dtype_of_name(dtype).itemsize
    expected = check_size(path, shape=shape, element_bytes=element_bytes)
    if found == expected:
        return False
    elements = math.prod(shape)
    if dtype == "float4_e2m1fn" and elements > 1 and found == (elements + 1) // 2:
        return True
    raise _corrupt(path, f"{expected} bytes of data for {dtype} {shape}", f"{found}")


def _corrupt(path: Path, expected: str, found: str) -> CorruptFileError:
    return CorruptFileError(
        f"{path}: expected {expected:.400}, found {found!s:.200}; dump it again"
    )

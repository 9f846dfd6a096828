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
_FIXED_BYTES = 28
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
    """

    key: str
    dtype: str
    shape: Shape
    offset: int


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
    fixed = file.read(_FIXED_BYTES)
    key_bytes = _check_fixed_part(path, fixed, size_bytes)
    rest = file.read(key_bytes + 2)
    rank = _take(path, rest, key_bytes + 1, "B", "rank")
    rest += file.read(4 * rank + 8)
    metadata_bytes = struct.unpack_from("<Q", fixed, 16)[0]
    header_end = _FIXED_BYTES + key_bytes + 2 + 4 * rank + 8
    if metadata_bytes != header_end - 24:
        raise _corrupt(path, f"metadata of {header_end - 24} bytes", f"{metadata_bytes}")
    offset = _take(path, rest, key_bytes + 2 + 4 * rank, "Q", "data offset")
    if not header_end <= offset <= size_bytes:
        raise _corrupt(path, f"data from byte {header_end} on", f"data at byte {offset}")
    header = MaxHeader(
        key=_decode_key(path, rest[:key_bytes]),
        dtype=_dtype_of_code(path, rest[key_bytes]),
        shape=struct.unpack_from(f"<{rank}I", rest, key_bytes + 2),
        offset=offset,
    )
    _check_data_size(path, header, size_bytes - offset)
    return header


def read_max_file(path: Path) -> Array:
    """Map the tensor of a .max file.

    Raises:
        CorruptFileError: not a .max file, cut off, or its parts contradict each other.
        UnsupportedFormatError: a version or dtype that is not known.
    """
    with open_regular(path) as file:
        header = _read_header(path, file)
        dtype, shape, offset = dtype_of_name(header.dtype), header.shape, header.offset
        if not _is_packed(header, os.fstat(file.fileno()).st_size - offset):
            return map_open(file, path, dtype=dtype, shape=shape, offset=offset)
        packed: Shape = ((math.prod(shape) + 1) // 2,)
        nibbles = map_open(file, path, dtype=np.dtype(np.uint8), shape=packed, offset=offset)
    return unpack_nibbles(nibbles, dtype=dtype, shape=shape)


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


def _check_fixed_part(path: Path, fixed: bytes, size_bytes: int) -> int:
    if len(fixed) < _FIXED_BYTES:
        raise _corrupt(path, f"a header of at least {_FIXED_BYTES} bytes", f"{len(fixed)}")
    if not fixed.startswith(MAGIC):
        raise _corrupt(path, f"magic {MAGIC.hex(' ')}", fixed[:8].hex(" "))
    major, minor, _, key_bytes = struct.unpack_from("<IIQI", fixed, 8)
    if major > 0:
        raise UnsupportedFormatError(f"{path}: expected version 0, found {major}.{minor}")
    if key_bytes > min(size_bytes - _FIXED_BYTES, _MOST_KEY_BYTES):
        most = min(size_bytes, _MOST_KEY_BYTES)
        raise _corrupt(path, f"a key within {most} bytes", f"a key of {key_bytes}")
    return int(key_bytes)


def _take(path: Path, data: bytes, position: int, code: str, what: str) -> int:
    if len(data) < position + struct.calcsize(f"<{code}"):
        raise _corrupt(path, f"the {what}", "the end of the file")
    return int(struct.unpack_from(f"<{code}", data, position)[0])


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


def _check_data_size(path: Path, header: MaxHeader, found: int) -> None:
    element_bytes = dtype_of_name(header.dtype).itemsize
    expected = check_size(path, shape=header.shape, element_bytes=element_bytes)
    if found != expected and not _is_packed(header, found):
        what = f"{expected} bytes of data for {header.dtype} {header.shape}"
        raise _corrupt(path, what, f"{found}")


def _is_packed(header: MaxHeader, data_bytes: int) -> bool:
    elements = math.prod(header.shape)
    return header.dtype == "float4_e2m1fn" and elements > 1 and data_bytes == (elements + 1) // 2


def _corrupt(path: Path, expected: str, found: str) -> CorruptFileError:
    return CorruptFileError(
        f"{path}: expected {expected:.400}, found {found!s:.200}; dump it again"
    )

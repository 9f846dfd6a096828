"""Arrays that stay in their file until they are read."""

import math
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from comparison.numerics.dtypes import Array
from comparison.schema.errors import CorruptFileError, UnsupportedFormatError
from comparison.schema.outcome import Shape
from comparison.store.file_stamp import changed_error, stamp_of
from comparison.store.mapping_guard import note_mapping
from comparison.store.regular_file import open_regular

# numpy's own limits.
_MAX_RANK = 64
_MAX_BYTES = 2**62
# A file that becomes shorter while it is mapped ends the process where no guard is (SIGBUS), and
# mapping takes longer than copying a little.
MOST_COPIED_BYTES = 1 << 20
# What no file holds as it is compared is made in memory. Other tensors are larger, but these are
# rare, and a file may claim any size without holding it (holes).
MOST_UNPACKED_BYTES = 1 << 29


def map_array(path: Path, *, dtype: np.dtype[Any], shape: Shape, offset: int) -> Array:
    """Open a file and map a stretch of it as an array, as map_open does.

    Args:
        path: the file.
        dtype: element type, one byte at least.
        shape: dimensions as the file declares them.
        offset: byte where the data begins; need not be aligned.

    Raises:
        CorruptFileError: the file is shorter than that, changes meanwhile, or is no file.
        UnsupportedFormatError: more dimensions than numpy has.
    """
    with open_regular(path) as file:
        return map_open(file, path, dtype=dtype, shape=shape, offset=offset)


def map_open(
    file: BinaryIO, path: Path, *, dtype: np.dtype[Any], shape: Shape, offset: int
) -> Array:
    """Map a stretch of an open file as an array, row-major and read-only; a small one is copied.

    Args:
        file: open for reading; may be closed afterwards.
        path: what to call it.
        dtype: element type, one byte at least.
        shape: dimensions as the file declares them.
        offset: byte where the data begins; need not be aligned.

    Raises:
        CorruptFileError: the file is shorter than that, or changes meanwhile.
        UnsupportedFormatError: more dimensions than numpy has.
    """
    size_bytes = check_size(path, shape=shape, element_bytes=dtype.itemsize)
    before = os.fstat(file.fileno())
    available = before.st_size - offset
    if size_bytes > available:
        raise CorruptFileError(
            f"{path}: expected {size_bytes} bytes of data at byte {offset} for "
            f"{dtype} {shape}, found {max(available, 0)}; the file is cut off, dump it again"
        )
    if size_bytes == 0:  # nothing to map
        return np.empty(shape, dtype)
    if size_bytes > MOST_COPIED_BYTES:
        mapped = np.memmap(file, dtype=dtype, mode="r", offset=offset, shape=shape)
        note_mapping(path, mapped.ctypes.data, size_bytes)
        return np.asarray(mapped)
    content = os.pread(file.fileno(), size_bytes, offset)
    if len(content) < size_bytes or stamp_of(before) != stamp_of(os.fstat(file.fileno())):
        raise changed_error(path, shorter=len(content) < size_bytes)
    return np.frombuffer(content, dtype).reshape(shape)


def check_size(path: Path, *, shape: Shape, element_bytes: int) -> int:
    """Give the size in bytes of an array that a file declares.

    Raises:
        CorruptFileError: no machine holds such an array.
        UnsupportedFormatError: more dimensions than numpy has.
    """
    if len(shape) > _MAX_RANK:
        raise UnsupportedFormatError(
            f"{path}: expected at most {_MAX_RANK} dimensions, found {len(shape)}"
        )
    if min(shape, default=0) < 0:
        raise CorruptFileError(f"{path}: expected dimensions of at least 0, found {shape!s:.200}")
    size_bytes = math.prod(shape) * element_bytes
    # Without the zeros: numpy refuses an empty array whose other dimensions are too great.
    full_bytes = size_bytes or math.prod(n for n in shape if n) * element_bytes
    if full_bytes > _MAX_BYTES:
        raise CorruptFileError(
            f"{path}: expected a shape that fits in memory, found {shape!s:.200}"
        )
    return size_bytes


def check_unpacked(path: Path, size_bytes: int) -> None:
    """Refuse to make a tensor in memory that no memory should be taken for.

    Args:
        path: the file that it is made from.
        size_bytes: what it takes in memory.

    Raises:
        UnsupportedFormatError: it takes more than MOST_UNPACKED_BYTES.
    """
    if size_bytes > MOST_UNPACKED_BYTES:
        raise UnsupportedFormatError(
            f"{path}: expected a tensor of at most {MOST_UNPACKED_BYTES} bytes in a form that is "
            f"unpacked in memory, found one of {size_bytes}; save it in parts, or in a dtype of "
            "whole bytes"
        )


def unpack_nibbles(path: Path, packed: Array, *, dtype: np.dtype[Any], shape: Shape) -> Array:
    """Unpack 4-bit elements, two a byte, the lower half first.

    Args:
        path: the file that they are from.
        packed: [ceil(n / 2)] uint8.
        dtype: a 4-bit type of one byte an element.
        shape: the shape of the n elements.

    Raises:
        UnsupportedFormatError: there are more than MOST_UNPACKED_BYTES elements.
    """
    check_unpacked(path, 2 * packed.size)
    codes = np.empty((packed.size, 2), np.uint8)
    np.bitwise_and(packed.reshape(-1), 0x0F, out=codes[:, 0])
    np.right_shift(packed.reshape(-1), 4, out=codes[:, 1])
    return codes.reshape(-1)[: math.prod(shape)].view(dtype).reshape(shape)

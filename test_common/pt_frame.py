"""The bytes of a .pt file around a tensor's own, as torch.save lays them out.

torch.save pickles, builds a zip archive and sums it up anew for each tensor: some 0.2 ms for the
smallest. The frame depends on dtype and shape alone. What is made here is the same form, an
uncompressed zip with the pickle of one tensor (protocol 2) and its bytes at a multiple of 64, and
`torch.load` reads it, also with `weights_only=True` and `mmap=True`. The zip's checksum of the
bytes is left out, as with `torch.serialization.set_crc32_options(False)`: torch does not look at
it, and it takes as long as writing them.
"""

from __future__ import annotations

import math
import struct
import sys
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_ALIGNMENT = 64  # of torch.save, since 2.1
_MOST_BYTES = 2**32 - 2**20  # beyond, a zip needs its longer form, and torch.save writes that
_LOCAL, _CENTRAL, _END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_ROOT = "archive"
_DOS_DATE = 0x21  # 1980-01-01, the first there is
# Types whose storage has a class of its own; torch pickles all others with their dtype.
_STORAGES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}


def pt_frame(tensor: torch.Tensor) -> tuple[bytes, bytes] | None:
    """Give what stands before and behind a tensor's bytes in a .pt file.

    Args:
        tensor: a contiguous tensor.

    Returns:
        The bytes before, a multiple of 64, and those behind; None for a tensor that is too large
        for the short form of zip archives.
    """
    size = tensor.numel() * tensor.element_size()
    if size > _MOST_BYTES:
        return None
    name = str(tensor.dtype).removeprefix("torch.")
    return _frame(name, tuple(tensor.shape), tensor.element_size())


@lru_cache(maxsize=256)  # the layers of a model have the same shapes
def _frame(dtype: str, shape: tuple[int, ...], element_bytes: int) -> tuple[bytes, bytes]:
    size = math.prod(shape) * element_bytes
    archive = _Archive()
    archive.add("data.pkl", _pickle(dtype, shape, size))
    archive.add("byteorder", sys.byteorder.encode())
    archive.add("version", b"3\n")
    archive.announce("data/0", size)
    return bytes(archive.before), archive.end()


class _Archive:
    """An uncompressed zip archive whose last file's bytes are written by someone else.

    Attributes:
        before: what stands before those bytes.
    """

    def __init__(self) -> None:
        """Begin an archive without files."""
        self.before = bytearray()
        self._table = bytearray()
        self._count = 0
        self._size = 0

    def add(self, name: str, content: bytes) -> None:
        """Add a file.

        Args:
            name: path below the archive's root.
            content: all of it.
        """
        self._head(name, size=len(content), checksum=zlib.crc32(content), padding=0)
        self.before += content

    def announce(self, name: str, size: int) -> None:
        """Add the last file, without its bytes; these begin at a multiple of 64.

        Args:
            name: path below the archive's root.
            size: number of bytes.
        """
        begin = len(self.before) + 30 + len(f"{_ROOT}/{name}") + 4
        self._head(name, size=size, checksum=0, padding=4 + -begin % _ALIGNMENT)
        self._size = size

    def end(self) -> bytes:
        """Give what stands behind the last file: the table of all."""
        begin = len(self.before) + self._size
        counts = (0, 0, self._count, self._count)
        return bytes(self._table) + struct.pack(
            "<4s4H2LH", _END, *counts, len(self._table), begin, 0
        )

    def _head(self, name: str, *, size: int, checksum: int, padding: int) -> None:
        path = f"{_ROOT}/{name}".encode()
        begin = len(self.before)
        common = (0, 0, 0, _DOS_DATE, checksum, size, size, len(path))
        # torch.save pads in the same way, by a field that readers pass over.
        extra = b"" if not padding else struct.pack("<2sH", b"FB", padding - 4)
        self.before += struct.pack("<4s5H3L2H", _LOCAL, 20, *common, padding) + path
        self.before += extra.ljust(padding, b"Z")
        places = (0, 0, 0, 0, 0, begin)  # no field, no comment, one disk, no attributes
        self._table += struct.pack("<4s6H3L5H2L", _CENTRAL, 20, 20, *common, *places) + path
        self._count += 1


def _pickle(dtype: str, shape: tuple[int, ...], size_bytes: int) -> bytes:
    """Give the pickle of a contiguous tensor, in the opcodes of protocol 2."""
    storage = _STORAGES.get(dtype)
    elements = math.prod(shape)
    made_by = "_rebuild_tensor_v2" if storage else "_rebuild_tensor_v3"
    kind = f"torch\n{storage}" if storage else "torch.storage\nUntypedStorage"
    strides = tuple(math.prod(max(n, 1) for n in shape[i + 1 :]) for i in range(len(shape)))
    parts = [
        f"\x80\x02ctorch._utils\n{made_by}\n((".encode("latin-1"),
        _text("storage") + f"c{kind}\n".encode(),
        _text("0") + _text("cpu") + _whole(elements if storage else size_bytes) + b"tQ",
        _whole(0) + _tuple(shape) + _tuple(strides),
        b"\x89ccollections\nOrderedDict\n)R",  # requires_grad is False, and there are no hooks
        b"" if storage else f"ctorch\n{dtype}\n".encode(),
        b"tRq\x00.",
    ]
    return b"".join(parts)


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<L", len(text)) + text.encode()


def _whole(number: int) -> bytes:
    if number < 2**31:
        return b"J" + struct.pack("<l", number)
    return b"\x8a\x08" + struct.pack("<q", number)


def _tuple(numbers: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(_whole(number) for number in numbers) + b"t"

"""The .max reader and writer, against files laid out by hand and files that lie."""

import os
import random
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from comparison.numerics.dtypes import Array, dtype_of_name
from comparison.schema.errors import BadInputError, CorruptFileError, UnsupportedFormatError
from comparison.store.max_file import (
    MAGIC,
    MaxHeader,
    read_max_file,
    read_max_header,
    write_max_file,
)

CODES = {
    "bool": 1,
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
    "float8_e8m0fnu": 73,
    "float8_e4m3fn": 75,
    "float8_e4m3fnuz": 76,
    "float8_e5m2": 77,
    "float8_e5m2fnuz": 78,
    "float4_e2m1fn": 64,
    "float6_e2m3fn": 65,
    "float6_e3m2fn": 66,
}


def file_bytes(
    *,
    key: bytes = b"mlp",
    code: int = 81,
    shape: tuple[int, ...] = (2, 3),
    data: bytes = bytes(24),
    metadata: int | None = None,
    offset: int | None = None,
    version: tuple[int, int] = (0, 1),
) -> bytes:
    size = 4 + len(key) + 2 + 4 * len(shape) + 8
    head = MAGIC + struct.pack("<IIQI", *version, size if metadata is None else metadata, len(key))
    head += key + struct.pack(f"<BB{len(shape)}I", code, len(shape), *shape)
    end = len(head) + 8
    return head + struct.pack("<Q", end if offset is None else offset) + data


def write(folder: Path, content: bytes) -> Path:
    path = folder / "x.max"
    path.write_bytes(content)
    return path


def assert_same(found: Array, expected: Array) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(("name", "code"), CODES.items())
@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0, 4)])
@pytest.mark.parametrize("key", ["", "a", "layers.0/mlp 1", "模"])
def test_a_file_laid_out_by_hand(
    tmp_path: Path, name: str, code: int, shape: tuple[int, ...], key: str
) -> None:
    dtype = dtype_of_name(name)
    count = int(np.prod(shape, dtype=int))
    array = np.arange(count * dtype.itemsize, dtype=np.uint8).view(dtype).reshape(shape)
    content = file_bytes(key=key.encode(), code=code, shape=shape, data=array.tobytes())
    path = write(tmp_path, content)
    assert read_max_header(path).key == key
    assert_same(read_max_file(path), array)
    write_max_file(tmp_path / "y.max", array, key=key)
    assert (tmp_path / "y.max").read_bytes() == content
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.max", "y.max"]


def test_non_contiguous_arrays_are_written_row_major(tmp_path: Path) -> None:
    array = np.arange(12, dtype=">f4").reshape(3, 4).T
    write_max_file(tmp_path / "x.max", array, key="x")
    np.testing.assert_array_equal(read_max_file(tmp_path / "x.max"), array)


def test_packed_four_bit_floats(tmp_path: Path) -> None:
    content = file_bytes(code=64, shape=(5,), data=bytes([0x21, 0x43, 0x05]))
    found = read_max_file(write(tmp_path, content))
    np.testing.assert_array_equal(found.astype(float), [0.5, 1.0, 1.5, 2.0, 3.0])


def test_packed_four_bit_floats_that_would_take_all_memory(tmp_path: Path) -> None:
    path = write(tmp_path, file_bytes(code=64, shape=(2**10, 2**31), data=b""))
    os.truncate(path, path.stat().st_size + 2**40)  # a hole
    message = r"x\.max: expected a tensor of at most 536870912 bytes .* one of 2199023255552; save"
    with pytest.raises(UnsupportedFormatError, match=message):
        read_max_file(path)


def test_every_truncation_is_told(tmp_path: Path) -> None:
    content = file_bytes()
    for length in range(len(content)):
        path = write(tmp_path, content[:length])
        with pytest.raises(CorruptFileError, match=r"x\.max: expected .*, found ") as caught:
            read_max_file(path)
        assert str(path) in str(caught.value)


def test_any_damaged_byte_gives_an_array_or_our_error(tmp_path: Path) -> None:
    generator = random.Random(0)
    content = file_bytes()
    for _ in range(3000):
        damaged = bytearray(content)
        for _ in range(generator.randint(1, 3)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        try:
            read_max_file(write(tmp_path, bytes(damaged)))
        except BadInputError as error:
            assert "x.max" in str(error)  # noqa: PT017 -- most damage is told, some gives an array


HOSTILE = [
    (file_bytes(version=(1, 0)), "expected version 0, found 1.0"),
    (file_bytes(code=0), r"expected a dtype code of \[1, 64, .*\], found 0"),
    (file_bytes(code=255), "found 255"),
    (file_bytes(metadata=2**64 - 1), "expected metadata of 25 bytes, found 18446744073709551615"),
    (file_bytes(offset=2**64 - 1), "found data at byte 18446744073709551615"),
    (file_bytes(offset=8), "expected data from byte 49 on, found data at byte 8"),
    (file_bytes(shape=(2**32 - 1,) * 4), "expected a shape that fits in memory"),
    (file_bytes(shape=(2**32 - 1,) * 255), "expected at most 64 dimensions, found 255"),
    (file_bytes(shape=(2**32 - 1, 0, 2**32 - 1)), "expected a shape that fits in memory"),
    (file_bytes(shape=(2, 2)), "expected 16 bytes of data for float32 .2, 2., found 24"),
    (file_bytes(key=b"\xff\xfe"), "expected a key in UTF-8"),
    (b"", "expected a header of at least 28 bytes, found 0"),
    (b"PK\x03\x04" + bytes(100), "expected magic 93 f0 9f 94"),
    (MAGIC + struct.pack("<IIQI", 0, 1, 2**32, 2**32 - 1) + bytes(99), "a key of 4294967295"),
]


@pytest.mark.parametrize(("content", "message"), HOSTILE)
def test_files_that_lie(tmp_path: Path, content: bytes, message: str) -> None:
    path = write(tmp_path, content)
    tracemalloc.start()
    try:
        with pytest.raises((CorruptFileError, UnsupportedFormatError), match=message):
            read_max_file(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_header(tmp_path: Path) -> None:
    header = read_max_header(write(tmp_path, file_bytes()))
    assert header == MaxHeader(key="mlp", dtype="float32", shape=(2, 3), offset=49, is_packed=False)


def test_a_dtype_without_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFormatError, match="found complex64"):
        write_max_file(tmp_path / "x.max", np.ones(2, np.complex64), key="x")
    assert list(tmp_path.iterdir()) == []

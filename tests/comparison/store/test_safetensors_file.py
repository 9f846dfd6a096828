"""The safetensors reader, against files laid out by hand and files that lie."""

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparison.numerics.dtypes import dtype_of_name
from comparison.schema.errors import BadInputError, CorruptFileError, UnsupportedFormatError
from comparison.store.safetensors_file import (
    read_safetensors_header,
    read_safetensors_tensor,
    write_safetensors,
)

CODES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "C64": "complex64",
}


def file_bytes(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def write(folder: Path, content: bytes) -> Path:
    path = folder / "x.safetensors"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("code", "name"), CODES.items())
@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0, 4)])
def test_every_dtype(tmp_path: Path, code: str, name: str, shape: tuple[int, ...]) -> None:
    dtype = dtype_of_name(name)
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    data = bytes(range(7)) + bytes(byte % 256 for byte in range(size))
    header = {
        "__metadata__": {"made by": "hand"},
        "second": tensor(code, shape, (7, 7 + size)),
        "first": tensor("U8", (7,), (0, 7)),
    }
    path = write(tmp_path, file_bytes(header, data))
    assert list(read_safetensors_header(path)) == ["second", "first"]
    found = read_safetensors_tensor(path, "second")
    assert (found.dtype, found.shape, found.tobytes()) == (dtype, shape, data[7:])
    assert read_safetensors_tensor(path, "first").tolist() == list(range(7))


def test_packed_four_bit_floats(tmp_path: Path) -> None:
    path = write(tmp_path, file_bytes({"a": tensor("F4", (2, 2), (0, 2))}, bytes([0x21, 0x43])))
    found = read_safetensors_tensor(path, "a").astype(float)
    np.testing.assert_array_equal(found, [[0.5, 1.0], [1.5, 2.0]])


def test_packed_four_bit_floats_that_would_take_all_memory(tmp_path: Path) -> None:
    path = write(tmp_path, file_bytes({"a": tensor("F4", (2, 2**40), (0, 2**40))}))
    os.truncate(path, path.stat().st_size + 2**40)  # a hole
    message = r"x\.safetensors: expected a tensor of at most 536870912 bytes .* of 2199023255552; s"
    with pytest.raises(UnsupportedFormatError, match=message):
        read_safetensors_tensor(path, "a")


def test_every_truncation_is_told(tmp_path: Path) -> None:
    content = file_bytes({"a": tensor(), "b": tensor("U8", (4,), (8, 12))}, bytes(12))
    for length in range(len(content)):
        path = write(tmp_path, content[:length])
        with pytest.raises(CorruptFileError, match=r"x\.safetensors: expected .*, found "):
            read_safetensors_header(path)


def test_any_damaged_byte_gives_an_array_or_our_error(tmp_path: Path) -> None:
    generator = random.Random(0)
    content = file_bytes({"a": tensor(), "b": tensor("U8", (4,), (8, 12))}, bytes(12))
    for _ in range(2000):
        damaged = bytearray(content)
        damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        path = write(tmp_path, bytes(damaged))
        try:
            for key in read_safetensors_header(path):
                read_safetensors_tensor(path, key)
        except BadInputError as error:
            assert "x.safetensors" in str(error)  # noqa: PT017 -- some damage gives an array


HOSTILE = [
    (b"", "expected a header within 0 bytes"),
    ((2**63).to_bytes(8, "little") + b"{}", "found 9223372036854775808"),
    (file_bytes(b"{"), "expected a header in JSON"),
    (file_bytes(b"\xff"), "expected a header in JSON"),
    (file_bytes(b"[" * 100_000), "expected a header in JSON"),
    (file_bytes([1]), "expected a JSON object as header, found list"),
    (file_bytes({"a": 1}), "expected an object for 'a'"),
    (file_bytes(b'{"__metadata__": ' + b"9" * 5000 + b"}"), "expected a header in JSON"),
    (file_bytes(b'{"a": {}, "a": {}}'), "expected each name once, found 'a' twice"),
    (file_bytes({"a": tensor(offsets=(-8, 0))}), "expected a list of sizes as data_offsets of 'a'"),
    (file_bytes({"a": tensor(offsets=(8, 0))}), "expected begin and end as data_offsets of 'a'"),
    (file_bytes({"a": tensor(offsets=(0, 8, 9))}), "expected begin and end as data_offsets"),
    (file_bytes({"a": tensor(shape=[-1, -2])}), "expected a list of sizes as shape of 'a'"),
    (file_bytes({"a": tensor(shape=[True, 2])}), "expected a list of sizes as shape"),
    (file_bytes({"a": tensor(shape=[1.0])}), "expected a list of sizes as shape"),
    (file_bytes({"a": tensor(shape=[2**40, 2**40])}), "expected a shape that fits in memory"),
    (file_bytes({"a": tensor(shape=[1] * 65)}), "expected at most 64 dimensions, found 65"),
    (file_bytes({"a": tensor(shape=[3])}), "expected 12 bytes for 'a' of F32 .3,., found 8"),
    (file_bytes({"a": tensor("F33")}), "expected a dtype of BOOL, .*, found 'F33'"),
    (file_bytes({"a": tensor(dtype=["F32"])}), "expected a dtype of"),
    (file_bytes({"a": tensor(), "b": tensor(offsets=(4, 12))}, bytes(12)), "'b' .* overlaps"),
    (file_bytes({"a": tensor(), "b": tensor(offsets=(9, 17))}, bytes(17)), "leaves a hole"),
    (file_bytes({"a": tensor()}, bytes(9)), "expected a file of 77 bytes, found 78"),
]


@pytest.mark.parametrize(("content", "message"), HOSTILE)
def test_files_that_lie(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises((CorruptFileError, UnsupportedFormatError), match=message):
        read_safetensors_header(write(tmp_path, content))


def test_a_name_twice_among_many_is_found_at_once(tmp_path: Path) -> None:
    names = [f"k{n}" for n in range(60_000)] + ["k59999"]
    header = "{" + ",".join(f'"{name}":{json.dumps(tensor("U8", [0], [0, 0]))}' for name in names)
    path = write(tmp_path, file_bytes(header.encode() + b"}"))
    begin = time.process_time()
    with pytest.raises(CorruptFileError, match="expected each name once, found 'k59999' twice"):
        read_safetensors_header(path)
    assert time.process_time() - begin < 6  # 0.5 s; more than 12 s where it was quadratic


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    path = write(tmp_path, file_bytes({"a": tensor("U8", (1,), (0, 1))}, b"\1"))
    assert list(read_safetensors_header(path)) == ["a"]
    write(tmp_path, file_bytes({"bb": tensor("U8", (2,), (0, 2))}, b"\1\2"))
    assert list(read_safetensors_header(path)) == ["bb"]


def test_a_name_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"a": np.ones(2), "b": np.ones(3)}, metadata={})
    with pytest.raises(CorruptFileError, match="expected a tensor 'c', found 2 others"):
        read_safetensors_tensor(path, "c")

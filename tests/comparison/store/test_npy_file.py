"""The .npy reader."""

import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from comparison.schema.errors import CorruptFileError, UnsupportedFormatError
from comparison.store.npy_file import read_npy_file


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0, 4)])
@pytest.mark.parametrize("dtype", ["float32", ">f8", "int64", "bool", "complex64"])
def test_arrays(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    np.save(tmp_path / "x.npy", array)
    found = read_npy_file(tmp_path / "x.npy")
    assert (found.dtype, found.shape) == (array.dtype, shape)
    np.testing.assert_array_equal(found, array)


def test_column_major_order(tmp_path: Path) -> None:
    array = np.asfortranarray(np.arange(12).reshape(3, 4))
    np.save(tmp_path / "x.npy", array)
    np.testing.assert_array_equal(read_npy_file(tmp_path / "x.npy"), array)


def test_every_truncation_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(3.0))
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(CorruptFileError, match=r"x\.npy: expected .*found"):
            read_npy_file(path)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(UnsupportedFormatError, match="found Python objects"):
        read_npy_file(tmp_path / "x.npy")


def test_bfloat16_has_no_name_in_this_format(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(3, ml_dtypes.bfloat16))
    with pytest.raises(UnsupportedFormatError, match="no name for bfloat16"):
        read_npy_file(tmp_path / "x.npy")


def test_text_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array(["a"]))
    with pytest.raises(UnsupportedFormatError, match="expected numbers, found dtype <U1"):
        read_npy_file(tmp_path / "x.npy")


def write_header(path: Path, header: str, data: bytes = b"") -> Path:
    text = header.encode()
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data)
    return path


@pytest.mark.parametrize(
    "header",
    [
        "''''",  # the tokenizer's errors
        "{'descr': '<f4', 'fortran_order': False, 'shape': ((((",
        "if x:\n  a\n b",
        "(" * 9000,  # the parser's
        "-" * 9000 + "1",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 5001 + ",)}",
        "\0",
        "{'descr': 5, 'fortran_order': 1, 'shape': (1,)}",
    ],
)
def test_headers_that_are_no_python(tmp_path: Path, header: str) -> None:
    with pytest.raises(CorruptFileError, match=r"x\.npy: expected a \.npy file, found \S"):
        read_npy_file(write_header(tmp_path / "x.npy", header))


def test_headers_of_python_2_are_read_without_a_warning(tmp_path: Path) -> None:
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1L,)}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_npy_file(write_header(tmp_path / "x.npy", header, bytes(4)))
    assert found.tolist() == [0]


@pytest.mark.parametrize("shape", ["(-1,)", "(2, -3)", "(True,)"])
def test_sizes_that_no_array_has(tmp_path: Path, shape: str) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}"
    with pytest.raises(CorruptFileError, match=r"x\.npy: expected sizes as shape, found \("):
        read_npy_file(write_header(tmp_path / "x.npy", header, bytes(24)))


def test_versions_that_are_not_known(tmp_path: Path) -> None:
    path = write_header(tmp_path / "x.npy", "{}")
    path.write_bytes(path.read_bytes().replace(b"\x01\x00", b"\x03\x00", 1))
    with pytest.raises(UnsupportedFormatError, match=r"expected \.npy version 1\.0 or 2\.0"):
        read_npy_file(path)

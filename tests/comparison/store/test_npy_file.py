"""The .npy reader."""

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

"""Whatever a reader raises, the file is named and the other files are read."""

from pathlib import Path

import numpy as np
import pytest

from comparison.schema.errors import (
    BadInputError,
    CorruptFileError,
    MissingPathError,
    UnsupportedFormatError,
)
from comparison.schema.manifest import RawTensor
from comparison.schema.tensor_entry import TensorEntry
from comparison.store import tensor_file
from comparison.store.tensor_file import list_file, read_tensor

RAISED = [
    (ZeroDivisionError("by zero"), CorruptFileError, "found damage: ZeroDivisionError: by zero"),
    (MemoryError(), CorruptFileError, "found damage: MemoryError: ; dump it again"),
    (RecursionError("deep\nmore"), CorruptFileError, "found damage: RecursionError: deep; dump"),
    (OSError(5, "Input/output error"), CorruptFileError, "cannot read .*: Input/output error"),
    (FileNotFoundError(2, "no"), MissingPathError, "expected a file, found nothing at"),
    (ImportError("no torch"), UnsupportedFormatError, "found no torch; install torch"),
    (UnsupportedFormatError("found int4"), UnsupportedFormatError, "x.npy: found int4"),
]


@pytest.mark.parametrize(("raised", "expected", "message"), RAISED, ids=lambda value: str(value))
def test_whatever_a_reader_raises(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    raised: Exception,
    expected: type[BadInputError],
    message: str,
) -> None:
    path = tmp_path / "x.npy"

    def fail(_: Path) -> None:
        raise raised

    monkeypatch.setattr(tensor_file, "read_npy_file", fail)
    for call in (
        lambda: list_file(path, {}),
        lambda: read_tensor(TensorEntry(name="x", step=0, order=0, path=path)),
    ):
        with pytest.raises(expected, match=message) as error:
            call()
        assert str(error.value).count(str(path)) == 1


def test_dtypes_without_numbers_name_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array(["a"]))
    with pytest.raises(UnsupportedFormatError, match=r"x\.npy: expected numbers, found dtype <U1"):
        list_file(tmp_path / "x.npy", {})
    (tmp_path / "raw").write_bytes(b"1234")
    entry = TensorEntry(name="raw", step=0, order=0, path=tmp_path / "raw")
    with pytest.raises(UnsupportedFormatError, match=r"/raw: expected a dtype of .*, found 'int5'"):
        read_tensor(entry, raw=RawTensor(dtype="int5", shape=(4,)))


def test_raw_bytes_have_to_be_as_many_as_the_manifest_says(tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(bytes(25))
    entry = TensorEntry(name="raw", step=0, order=0, path=tmp_path / "raw")
    with pytest.raises(CorruptFileError, match=r"/raw: expected 24 bytes for float32 \(2, 3\)"):
        read_tensor(entry, raw=RawTensor(dtype="float32", shape=(2, 3)))

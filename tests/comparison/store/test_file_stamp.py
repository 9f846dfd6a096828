"""Files that change while they are read."""

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparison.pipeline import compare
from comparison.schema.errors import CorruptFileError
from comparison.schema.outcome import NotComparable
from comparison.store import mapped_array
from comparison.store.file_stamp import FileStamps
from comparison.store.mapped_array import MOST_COPIED_BYTES, map_array

CHANGED = "but the file changed while it was read; try again when nothing writes to it"
SHORTER = CHANGED.replace("changed", "became shorter")


def test_what_stays_the_same_and_what_does_not(tmp_path: Path) -> None:
    same, other, gone = (tmp_path / name for name in ("same", "other", "gone"))
    for path in (same, other):
        path.write_bytes(b"abc")
    FileStamps([same, other, gone]).check()
    stamps = FileStamps([same, other, gone])
    other.write_bytes(b"abcd")
    with pytest.raises(CorruptFileError, match=f"other: .*{CHANGED}"):
        stamps.check()
    stamps = FileStamps([other])
    other.write_bytes(b"ab")
    with pytest.raises(CorruptFileError, match=f"other: .*{SHORTER}"):
        stamps.check()
    stamps = FileStamps([gone])
    gone.write_bytes(b"")
    with pytest.raises(CorruptFileError, match=f"gone: .*{CHANGED}"):
        stamps.check()


@pytest.mark.parametrize("shrinks", [True, False], ids=["cut", "written"])
def test_a_small_array_whose_file_changes_while_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shrinks: bool
) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(4000))
    pread = os.pread

    def late(descriptor: int, count: int, offset: int) -> bytes:
        with path.open("r+b") as file:
            file.truncate(100) if shrinks else file.write(b"x")
        os.utime(path, ns=(0, 12345))
        return pread(descriptor, count, offset)

    monkeypatch.setattr(mapped_array.os, "pread", late)
    told = SHORTER if shrinks else CHANGED
    with pytest.raises(CorruptFileError, match=rf"x\.bin: .*{told}"):
        map_array(path, dtype=np.dtype(np.float32), shape=(1000,), offset=0)


def test_a_small_array_outlives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    size = MOST_COPIED_BYTES
    path.write_bytes(bytes(range(256)) * (size // 256))
    array = map_array(path, dtype=np.dtype(np.uint8), shape=(size,), offset=0)
    os.truncate(path, 0)  # a mapped page of it would end this process
    assert array[-1] == 255
    assert not array.flags.writeable


def test_a_pair_whose_mapped_file_changes_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "big.npy", np.zeros(MOST_COPIED_BYTES // 4 + 3, np.float32))
        np.save(tmp_path / name / "good.npy", np.ones(5, np.float32))
    assert compare(tmp_path / "a", tmp_path / "b").exit_code == 0
    changed = tmp_path / "b" / "big.npy"
    memmap, times = np.memmap, itertools.count(12345)

    def late(*args: Any, **keywords: Any) -> Any:
        found = memmap(*args, **keywords)
        os.utime(changed, ns=(0, next(times)))
        return found

    monkeypatch.setattr(mapped_array.np, "memmap", late)
    result = compare(tmp_path / "a", tmp_path / "b")
    outcome = {pair.reference.name: pair.outcome for pair in result.pairs}
    assert isinstance(outcome["big"], NotComparable)
    assert f"{changed}: expected one content from begin to end, {CHANGED}" == outcome["big"].reason
    assert not isinstance(outcome["good"], NotComparable)
    assert result.exit_code == 2

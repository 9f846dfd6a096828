"""Mapped files that another process cuts while they are read."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from comparison.numerics.dtypes import Array
from comparison.schema.errors import CorruptFileError
from comparison.store.mapped_array import MOST_COPIED_BYTES, map_array
from comparison.store.mapping_guard import mappings_guarded, take_mapping_error
from tests.child_processes import ROOT

COUNT = MOST_COPIED_BYTES // 4 + 5001
PAGE = os.sysconf("SC_PAGE_SIZE")


def mapped(path: Path, value: float) -> Array:
    np.full(COUNT, value, np.float32).tofile(path)
    return map_array(path, dtype=np.dtype(np.float32), shape=(COUNT,), offset=0)


def test_what_is_gone_reads_as_zeros_and_is_told_once(tmp_path: Path) -> None:
    with mappings_guarded() as guard:
        good, cut = mapped(tmp_path / "good", 2.0), mapped(tmp_path / "cut", 3.0)
        os.truncate(tmp_path / "cut", PAGE)
        assert good.sum() == 2 * COUNT
        assert guard.take_error() is None
        assert cut.sum() == 3 * (PAGE // 4)  # float32 holds that exactly
        error = guard.take_error()
        assert isinstance(error, CorruptFileError)
        assert str(error) == (
            f"{tmp_path / 'cut'}: expected one content from begin to end, but the file became "
            "shorter while it was read, or its medium fails; try again when nothing writes to it"
        )
        assert cut[-1] == 0
        assert take_mapping_error() is None


def read_one(path: Path, error: Exception | None = None) -> None:
    """Read an element of a file that was cut, ask nobody, and raise what is given."""
    with mappings_guarded():
        array = mapped(path, 3.0)
        os.truncate(path, 0)
        assert array[5] == 0
        if error is not None:
            raise error


def test_what_nobody_asked_about_is_told_at_the_end(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match=r"cut: .*became shorter"):
        read_one(tmp_path / "cut")
    assert take_mapping_error() is None


def test_an_error_of_the_reader_goes_first(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="of the reader"):
        read_one(tmp_path / "cut", KeyError("of the reader"))


def test_an_outer_guard_knows_what_an_inner_one_mapped(tmp_path: Path) -> None:
    with mappings_guarded() as outer:
        with mappings_guarded() as inner:
            early, late = mapped(tmp_path / "early", 1.0), mapped(tmp_path / "late", 1.0)
            os.truncate(tmp_path / "early", 0)
            assert early[7] == 0
            assert inner.take_error() is not None
        assert outer.take_error() is None
        os.truncate(tmp_path / "late", 0)
        assert late[7] == 0
        error = outer.take_error()
    assert error is not None
    assert str(tmp_path / "late") in str(error)


ELSEWHERE = """
import mmap, os, signal, sys
from comparison.store.mapping_guard import mappings_guarded
from tests.comparison.store.test_mapping_guard import mapped
from pathlib import Path

path, when = Path(sys.argv[1]), sys.argv[2]
with mappings_guarded():
    array = mapped(path, 1.0)
    with path.open("rb") as file:  # that nobody told the guard of
        own = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if when == "within":
        os.truncate(path, 0)
        own[5]
os.truncate(path, 0)
array[5]
"""


@pytest.mark.parametrize("when", ["within", "after"])
def test_memory_of_others_ends_the_process_as_ever(tmp_path: Path, when: str) -> None:
    child = subprocess.run(
        [sys.executable, "-P", "-c", ELSEWHERE, tmp_path / "cut", when],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == -signal.SIGBUS, child.stderr

"""The record of a run's weights, on disk and back, and files that are none."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparison.numerics.weight_record import WeightRecord, WeightSketch
from comparison.numerics.weight_sketch import sketch_weight
from comparison.schema.errors import (
    BadInputError,
    CorruptFileError,
    UnsupportedFormatError,
    UnwritableOutputError,
)
from comparison.store.safetensors_file import write_safetensors
from comparison.store.weights_file import (
    WEIGHTS_NAME,
    is_weights_record,
    read_weights,
    write_weights,
)


def _record() -> WeightRecord:
    values = np.random.default_rng(0).standard_normal((6, 10)).astype(np.float32)
    return WeightRecord(
        weights=(
            sketch_weight("model.q.weight", values, storage=3, supplied=True),
            sketch_weight("model.norm.weight", values[0], supplied=False),
            sketch_weight("model.experts", values.reshape(2, 3, 10)),
            sketch_weight("model.packed", values.astype(np.uint8)),
        ),
        unread=("model.left_over",),
    )


def _read(folder: Path) -> WeightRecord:
    record = read_weights(folder)
    assert record is not None
    return record


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    written = _record()
    write_weights(tmp_path / WEIGHTS_NAME, written)
    read = _read(tmp_path)
    assert read.unread == written.unread
    for one, other in zip(read.weights, written.weights, strict=True):
        for field in ("name", "dtype", "shape", "rms", "storage", "supplied", "unreadable"):
            assert getattr(one, field) == getattr(other, field)
        for field in ("rows", "columns"):
            left, right = getattr(one, field), getattr(other, field)
            assert (left is None) == (right is None)
            if left is not None:
                np.testing.assert_array_equal(left, right)


def test_a_dump_may_have_no_weights(tmp_path: Path) -> None:
    assert read_weights(tmp_path) is None
    assert read_weights(tmp_path / "nowhere") is None


def test_the_weights_of_ranks_are_told_apart(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank{rank}").mkdir()
        write_weights(tmp_path / f"rank{rank}" / WEIGHTS_NAME, _record())
    read = _read(tmp_path)
    assert len(read.weights) == 8
    assert read.weights[4].name == "rank1/model.q.weight"
    assert read.weights[4].storage is None  # numbers of one rank mean nothing in another


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnwritableOutputError, match="nowhere"):
        write_weights(tmp_path / "nowhere" / WEIGHTS_NAME, _record())


def _entry(**changed: Any) -> dict[str, Any]:
    entry = {
        "name": "a", "dtype": "float32", "shape": [2, 3], "rms": 1.0, "storage": None,
        "supplied": None, "unreadable": "",
    }  # fmt: skip
    return entry | changed


def _write(folder: Path, table: Any, **tensors: Any) -> None:
    arrays = {name.replace("_", "."): np.zeros(shape) for name, shape in tensors.items()}
    # Names of weights stand in the metadata, so that `0.rows` is all a tensor is called.
    arrays = {name.lstrip("n"): array for name, array in arrays.items()}
    text = table if isinstance(table, str) else json.dumps(table)
    write_safetensors(folder / WEIGHTS_NAME, arrays, metadata={"weights": text})


_GOOD = {"n0_rows": (1, 2), "n0_columns": (1, 3)}


def _table(*entries: Any, **changed: Any) -> dict[str, Any]:
    return {"version": 1, "unread": [], "weights": list(entries)} | changed


def test_a_file_made_by_hand_is_read(tmp_path: Path) -> None:
    _write(tmp_path, _table(_entry()), **_GOOD)
    assert _read(tmp_path).weights[0].matrix == (1, 2, 3)


@pytest.mark.parametrize(
    ("table", "tensors", "says"),
    [
        ("{", _GOOD, "expected JSON"),
        ("[" * 100_000, _GOOD, "expected JSON"),
        ([], _GOOD, "an object with a version"),
        ({"version": True, "weights": [], "unread": []}, {}, "an object with a version"),
        (_table(weights=7), {}, "a list as 'weights'"),
        (_table(unread=[1]), {}, "names as 'unread'"),
        (_table(7), {}, "an object as weight 0"),
        (_table(_entry(name=None)), _GOOD, "texts as name"),
        (_table(_entry(shape=[2, -3])), _GOOD, "sizes as shape"),
        (_table(_entry(shape=[2, True])), _GOOD, "sizes as shape"),
        (_table(_entry(shape=[1] * 100)), _GOOD, "at most 64 dimensions"),
        (_table(_entry(shape=[1 << 34, 0, 0])), {}, "a stack of at most 65536 in 'a'"),
        (_table(_entry(shape=[2, 10**30])), _GOOD, "0.columns of float64"),
        (_table(_entry(shape=[3, 3])), _GOOD, "0.rows of float64 [1, 3], found float64 [1, 2]"),
        (_table(_entry()), {"n0_rows": (1, 2)}, "0.columns of float64 [1, 3], found none"),
        (_table(_entry(dtype="uint8")), _GOOD, "a dtype of float64"),
        (_table(_entry(rms="x")), _GOOD, "a number as rms"),
        (_table(_entry(storage=1.5)), _GOOD, "an integer as storage"),
        (_table(_entry(supplied=1)), _GOOD, "true, false or null"),
        (
            _table(_entry(unreadable="x"), _entry(unreadable="x")),
            {},
            "each weight once, found 'a' twice",
        ),
    ],
)
def test_a_hostile_file_is_one_clear_error(
    tmp_path: Path, table: Any, tensors: dict[str, Any], says: str
) -> None:
    _write(tmp_path, table, **tensors)
    with pytest.raises(CorruptFileError) as raised:
        read_weights(tmp_path)
    assert says in str(raised.value)
    assert WEIGHTS_NAME in str(raised.value)
    assert len(str(raised.value)) < 800


def test_a_later_version_is_not_guessed_at(tmp_path: Path) -> None:
    _write(tmp_path, _table(version=2))
    with pytest.raises(UnsupportedFormatError, match="later version"):
        read_weights(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, b"\x02" + b"\0" * 7 + b"[]"])
def test_a_file_that_is_cut_off_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / WEIGHTS_NAME).write_bytes(content)
    with pytest.raises(BadInputError, match=WEIGHTS_NAME):
        read_weights(tmp_path)


def test_a_folder_or_a_link_to_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a" / WEIGHTS_NAME).mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / WEIGHTS_NAME).symlink_to(tmp_path / "nowhere")
    for folder in ("a", "b"):
        with pytest.raises(CorruptFileError, match=WEIGHTS_NAME):
            read_weights(tmp_path / folder)


def test_what_only_goes_by_that_name_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / WEIGHTS_NAME
    assert not is_weights_record(path)  # nothing there
    path.write_bytes(b"no safetensors")
    assert not is_weights_record(path)
    write_safetensors(path, {"a": np.ones(2)}, metadata={})
    assert not is_weights_record(path)
    write_weights(path, _record())
    assert is_weights_record(path)


def test_a_large_file_that_is_mostly_holes_is_refused(tmp_path: Path) -> None:
    header = _written_header(tmp_path, count=1 << 22)
    with (tmp_path / WEIGHTS_NAME).open("wb") as file:
        file.write(header)
        file.truncate(len(header) + (8 << 22))
    with pytest.raises(CorruptFileError, match="which fill their file, found a file of holes"):
        read_weights(tmp_path)
    with (tmp_path / WEIGHTS_NAME).open("r+b") as file:
        file.seek(len(header))
        file.write(np.ones(1 << 22).tobytes())
    record = read_weights(tmp_path)
    assert record is not None
    assert record.weights[0].shape == (1 << 22,)


def _written_header(folder: Path, *, count: int) -> bytes:
    """Return the bytes before the values of a record of one vector."""
    values = np.ones((1, count))
    weight = WeightSketch(
        name="a.weight", dtype="float32", shape=(count,), rows=values, columns=None, rms=1.0
    )
    write_weights(folder / WEIGHTS_NAME, WeightRecord(weights=(weight,), unread=()))
    content = (folder / WEIGHTS_NAME).read_bytes()
    return content[: -values.nbytes]

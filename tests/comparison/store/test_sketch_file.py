"""Sketches are read back as they were written, and damage is told."""

import json
from pathlib import Path

import numpy as np
import pytest

from comparison.numerics.tensor_sketch import TensorSketch, sketch_tensor
from comparison.schema.errors import BadInputError, CorruptFileError
from comparison.store.safetensors_file import write_safetensors
from comparison.store.sketch_file import read_sketches, write_sketches

RANDOM = np.random.default_rng(9)


def _sketches() -> dict[str, TensorSketch]:
    whole = sketch_tensor(RANDOM.standard_normal((2, 5, 40)).astype(np.float32))
    return {
        "model.a-output": whole,
        "model.b-input_0": whole,  # the same tensor again
        "model.ids": sketch_tensor(np.arange(12).reshape(3, 4)),
        "model.mask": sketch_tensor(np.array([[0.0, -np.inf]])),
        "model.wide": sketch_tensor(np.array([1e300, 1e300])),
        "model.empty": sketch_tensor(np.zeros((0, 3))),
        "model.many": sketch_tensor(RANDOM.standard_normal((400, 20))),
        "model.plain": sketch_tensor(RANDOM.standard_normal((3, 20)), projects=False),
    }


def _same(left: TensorSketch, right: TensorSketch) -> bool:
    fields = ("dtype", "shape", "statistics", "fingerprint", "scale", "folded", "non_finite")
    same = all(getattr(left, name) == getattr(right, name) for name in fields)
    if left.rows is None or right.rows is None:
        return same and left.rows is right.rows
    return same and np.array_equal(left.rows, right.rows)


def test_sketches_come_back_in_their_order(tmp_path: Path) -> None:
    path, sketches = tmp_path / "sketch.safetensors", _sketches()
    write_sketches(path, sketches)
    found = read_sketches(path)
    assert list(found) == list(sketches)
    for name, sketch in sketches.items():
        assert _same(found[name], sketch), name


def test_a_tensor_that_is_there_twice_is_stored_once(tmp_path: Path) -> None:
    sketch = sketch_tensor(RANDOM.standard_normal((2, 90, 40)))
    write_sketches(tmp_path / "one", {"a": sketch})
    write_sketches(tmp_path / "two", {"a": sketch, "b": sketch})
    added = (tmp_path / "two").stat().st_size - (tmp_path / "one").stat().st_size
    assert 0 < added < 100


@pytest.mark.parametrize("version", ["1", "3"])
def test_another_version_is_refused(tmp_path: Path, version: str) -> None:
    path = tmp_path / "sketch.safetensors"
    write_safetensors(path, {}, metadata={"sketch_version": version, "sketches": "[]"})
    with pytest.raises(BadInputError, match=f"expected sketches of version 2, found '{version}'"):
        read_sketches(path)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [2, 5, 4]},
        {"shape": [1, 1, 40]},
        {"shape": ["x"]},
        {"dtype": "float7"},
        {"statistics": {"minimum": 1}},
        {"scale": None},
        {"scale": 0.0},
        {"shape": [2**62, 3]},
        {"fingerprint": ""},
        {"non_finite": "here"},
    ],
)
def test_records_that_do_not_fit_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "sketch.safetensors"
    sketch = sketch_tensor(RANDOM.standard_normal((2, 5, 40)))
    write_sketches(path, {"a": sketch})
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    [record] = json.loads(header["__metadata__"]["sketches"])
    for records in ([record | change], [record, record]):
        header["__metadata__"]["sketches"] = json.dumps(records)
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])
        with pytest.raises(BadInputError):
            read_sketches(path)


def test_a_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sketch.safetensors"
    write_sketches(path, _sketches())
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CorruptFileError):
        read_sketches(path)

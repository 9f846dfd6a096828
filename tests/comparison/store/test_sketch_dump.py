"""Dumps of sketches: what holds them, and what goes by which step."""

from pathlib import Path

import numpy as np
import pytest

from comparison.numerics.tensor_sketch import sketch_tensor
from comparison.schema.errors import BadInputError
from comparison.store.dump import open_dump
from comparison.store.manifest_file import write_manifest
from comparison.store.sketch_dump import holds_sketches, open_sketches
from comparison.store.sketch_file import write_sketches
from tests.comparison.dumps import make_manifest, numbers, write_step

SKETCH = sketch_tensor(numbers(3, 5))


def write(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_sketches(folder / "sketch.safetensors", dict.fromkeys(names, SKETCH))
    return folder


def found(path: Path) -> list[tuple[int, int, str]]:
    return [(entry.step, entry.order, entry.name) for entry in open_sketches(path).dump.entries]


def test_steps_are_those_of_the_folders(tmp_path: Path) -> None:
    write(tmp_path / "10", "late-output")
    write(tmp_path / "2", "b-output", "a-output")
    (tmp_path / "1").mkdir()  # a step of which nothing was kept
    assert holds_sketches(tmp_path)
    assert found(tmp_path) == [(2, 0, "b-output"), (2, 1, "a-output"), (10, 0, "late-output")]


def test_one_step_alone_takes_the_manifest_above_it(tmp_path: Path) -> None:
    write_manifest(tmp_path / "manifest.json", make_manifest("vllm", steps=4, complete=False))
    dump = open_sketches(write(tmp_path / "3", "a-output")).dump
    assert ([entry.step for entry in dump.entries], dump.engine) == ([3], "vllm")
    assert (dump.complete, dump.notes) == (True, ())  # it is no whole dump anyway


def test_a_folder_of_any_name_is_step_0(tmp_path: Path) -> None:
    dump = open_sketches(write(tmp_path / "mine", "a-output")).dump
    assert ([entry.step for entry in dump.entries], dump.manifest) == ([0], None)


def test_what_was_cut_off_and_what_is_gone_is_partial(tmp_path: Path) -> None:
    write(tmp_path / "0", "a-output")
    write_manifest(tmp_path / "manifest.json", make_manifest("max", complete=False))
    dump = open_sketches(tmp_path).dump
    assert not dump.complete
    assert dump.notes == ("the run was cut off before its end (manifest: complete is false)",)
    write_manifest(tmp_path / "manifest.json", make_manifest("max", steps=3))
    dump = open_sketches(tmp_path).dump
    assert not dump.complete
    assert dump.notes == ("no tensors of step 1, 2 are here (manifest: steps)",)


@pytest.mark.parametrize("name", ["nothing", "file"])
def test_what_is_no_folder_holds_none(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    assert not holds_sketches(tmp_path / name)
    with pytest.raises(BadInputError, match=r"expected sketch\.safetensors in the folders 0, 1,"):
        open_sketches(tmp_path / name)


def test_sketches_beside_tensors_are_of_a_dump_of_tensors(tmp_path: Path) -> None:
    write_step(write(tmp_path / "0", "a-output"), {"a-output": np.ones(3, np.float32)})
    assert not holds_sketches(tmp_path)
    assert [entry.name for entry in open_dump(tmp_path).entries] == ["a-output"]


def test_whole_tensors_of_sketches_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "0", "a-output")
    with pytest.raises(
        BadInputError, match="found sketches of them: capture them with --mode full"
    ):
        open_dump(tmp_path)

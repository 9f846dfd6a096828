"""Files of a run that was killed: what was written is read, and damage is told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparison.schema.errors import CorruptFileError, UnsupportedFormatError
from comparison.store import partial_file
from comparison.store.dump import open_dump
from comparison.store.partial_file import (
    index_of,
    is_partial_file,
    list_partial_file,
    read_partial_tensor,
)
from comparison.store.safetensors_file import list_safetensors, write_safetensors

ARRAY = np.arange(6, dtype=np.float32)


def entry(name: str, begin: int = 24, **changes: Any) -> dict[str, Any]:
    end = begin + ARRAY.nbytes
    return {"name": name, "dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]} | changes


def partial(folder: Path, lines: list[Any], *, tail: str = "") -> Path:
    path = folder / "tensors.partial"
    path.write_bytes(bytes(24) + ARRAY.tobytes() + b"not written down yet")
    text = "".join(f"{json.dumps(line)}\n" for line in lines) + tail
    index_of(path).write_text(text)
    return path


def test_what_is_in_the_index_is_read_and_a_line_that_is_cut_off_is_not(tmp_path: Path) -> None:
    lines = [entry("a"), {"name": "b", "same_as": "a"}, entry("__padding__.2", shape=[6])]
    path = partial(tmp_path, lines, tail='{"name": "c", "dty')
    assert is_partial_file(path)
    assert list_partial_file(path) == (("a", "a"), ("a", "b"))
    np.testing.assert_array_equal(read_partial_tensor(path, "a"), ARRAY.reshape(2, 3))


def test_a_folder_with_such_a_file_is_a_partial_dump(tmp_path: Path) -> None:
    partial(tmp_path, [entry("model-output"), {"name": "other-input_0", "same_as": "model-output"}])
    (tmp_path / "tensor_names.txt").write_text("other-input_0\nmodel-output\n")
    dump = open_dump(tmp_path)
    assert not dump.complete
    assert [entry.name for entry in dump.entries] == ["other-input_0", "model-output"]
    for found in dump.entries:
        np.testing.assert_array_equal(dump.read(found), ARRAY.reshape(2, 3))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[]", "expected an object with a name, found"),
        ("{}", "expected an object with a name, found"),
        ("{" * 3000, "expected a JSON object a line"),
        (json.dumps({"name": "b", "same_as": "c"}), "'b' is to be the same as 'c'"),
        (json.dumps({"name": "b", "same_as": 3}), "'b' is to be the same as 3"),
        (json.dumps(entry("a")), "expected each name once, found 'a' twice"),
        (json.dumps({"name": "a", "same_as": "a"}), "expected each name once"),
        (json.dumps(entry("b", shape=[4])), "expected 16 bytes for 'b'"),
        (json.dumps(entry("b", shape=[-4])), "a list of sizes as shape"),
        (json.dumps(entry("b", data_offsets=[9, 3])), "begin and end as data_offsets"),
        (json.dumps({"name": "b"}), "a list of sizes"),
    ],
)
def test_damage_is_told_with_the_file(tmp_path: Path, line: str, message: str) -> None:
    path = partial(tmp_path, [entry("a")], tail=f"{line}\n")
    with pytest.raises(CorruptFileError, match=rf"tensors\.partial\.json: .*{message}"):
        list_partial_file(path)


def test_a_range_behind_the_end_is_told(tmp_path: Path) -> None:
    path = partial(tmp_path, [entry("a", begin=1000)])
    with pytest.raises(CorruptFileError, match="the file is cut off"):
        read_partial_tensor(path, "a")
    with pytest.raises(CorruptFileError, match=r"expected a tensor 'b', found 1 others"):
        read_partial_tensor(path, "b")


def test_a_dtype_that_is_not_known_is_told(tmp_path: Path) -> None:
    path = partial(tmp_path, [entry("a", dtype="X32")])
    with pytest.raises(UnsupportedFormatError, match="X32"):
        list_partial_file(path)


def test_a_second_name_in_a_finished_file_stands_for_a_tensor_in_it(tmp_path: Path) -> None:
    path = tmp_path / "tensors.safetensors"
    write_safetensors(path, {"a": np.ones(3)}, metadata={"same_as": '{"b": "a"}'})
    assert list_safetensors(path) == (("a", "a"), ("a", "b"))
    dump = open_dump(tmp_path)
    assert [(found.name, found.key) for found in dump.entries] == [("a", "a"), ("b", "a")]


@pytest.mark.parametrize("same_as", ['{"b": "c"}', '{"a": "a"}', '{"b": 3}', "[", '{"b": ["a"]}'])
def test_a_second_name_for_nothing_is_told(tmp_path: Path, same_as: str) -> None:
    path = tmp_path / "tensors.safetensors"
    write_safetensors(path, {"a": np.ones(3)}, metadata={"same_as": same_as})
    with pytest.raises(CorruptFileError, match=r"tensors\.safetensors: expected"):
        list_safetensors(path)


def test_an_index_larger_than_memory_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_file, "MOST_INDEX_BYTES", 20)
    path = partial(tmp_path, [entry("a")])
    with pytest.raises(CorruptFileError, match=f"^{index_of(path)}: expected 20 bytes at most$"):
        list_partial_file(path)

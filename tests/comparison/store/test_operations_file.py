"""ops.json: what is written is read again, and what is broken is one clear error."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from comparison.schema.errors import CorruptFileError, UnsupportedFormatError
from comparison.schema.operations import CapturedOperation, OperationOutput, StepOperations
from comparison.store.operations_file import OPERATIONS_NAME, read_operations, write_operations

_STEP = StepOperations(
    operations=(
        CapturedOperation(
            op="aten.mul.Tensor",
            module="model.mlp",
            inputs=("model.mlp-input_0", "weight:model.mlp.weight"),
            arguments={"other": 0.5, "dims": (1, -1), "mode": "none", "keep": True},
            outputs=(
                OperationOutput(
                    name="model.mlp@001.mul", dtype="float32", shape=(2, 3), view_of=None
                ),
            ),
            source="model.py:12",
        ),
        CapturedOperation(
            op="mo.reshape",
            module="model.mlp",
            inputs=("model.mlp@001.mul",),
            outputs=(
                OperationOutput(
                    name="model.mlp@002.reshape",
                    dtype="float32",
                    shape=("total_seq_len", 3),
                    view_of="model.mlp@001.mul",
                    saved=False,
                ),
            ),
        ),
    ),
    tensors={"model.mlp-output": "model.mlp@002.reshape"},
)


def _value(folder: Path) -> dict[str, Any]:
    write_operations(folder / OPERATIONS_NAME, _STEP)
    value: dict[str, Any] = json.loads((folder / OPERATIONS_NAME).read_text())
    return value


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_operations(tmp_path / OPERATIONS_NAME, _STEP)
    assert read_operations(tmp_path) == _STEP


def test_numbers_that_json_lacks_are_spelled_as_texts(tmp_path: Path) -> None:
    infinite = CapturedOperation(
        op="aten.full", module="m", inputs=(), arguments={"value": float("-inf")}, outputs=()
    )
    write_operations(tmp_path / OPERATIONS_NAME, StepOperations(operations=(infinite,)))
    found = read_operations(tmp_path)
    assert found is not None
    assert found.operations[0].arguments == {"value": "-Infinity"}


def test_a_step_without_operations_has_none(tmp_path: Path) -> None:
    assert read_operations(tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[]",
        "7",
        '{"version": "1"}',
        '{"version": true, "operations": [], "tensors": {}}',
        '{"version": 1, "tensors": {}}',
        '{"version": 1, "operations": {}, "tensors": {}}',
        '{"version": 1, "operations": [], "tensors": {"a": 1}}',
        '{"version": 1, "operations": [3], "tensors": {}}',
        "[" * 100_000,
        '{"version": ' + "9" * 10_000 + "}",
    ],
)
def test_what_is_no_file_of_operations_is_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / OPERATIONS_NAME).write_text(text)
    with pytest.raises(CorruptFileError, match=r"ops\.json: expected .*; dump it again"):
        read_operations(tmp_path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("op",), 1),
        (("module",), None),
        (("source",), []),
        (("inputs",), "x"),
        (("inputs",), [1]),
        (("arguments",), []),
        (("arguments",), {"a": None}),
        (("arguments",), {"a": [[1]]}),
        (("outputs",), {}),
        (("outputs",), [1]),
        (("outputs", 0, "name"), 1),
        (("outputs", 0, "dtype"), 1),
        (("outputs", 0, "shape"), [-1]),
        (("outputs", 0, "shape"), [1.5]),
        (("outputs", 0, "shape"), [1] * 65),
        (("outputs", 0, "view_of"), 1),
        (("outputs", 0, "saved"), 1),
    ],
)
def test_a_broken_operation_is_one_error(tmp_path: Path, path: tuple[Any, ...], value: Any) -> None:
    whole = _value(tmp_path)
    place: Any = whole["operations"][0]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (tmp_path / OPERATIONS_NAME).write_text(json.dumps(whole))
    with pytest.raises(CorruptFileError, match=r"of (an output of )?operation 0"):
        read_operations(tmp_path)


def test_two_outputs_of_one_name_are_an_error(tmp_path: Path) -> None:
    whole = _value(tmp_path)
    whole["operations"].append(whole["operations"][0])
    (tmp_path / OPERATIONS_NAME).write_text(json.dumps(whole))
    with pytest.raises(CorruptFileError, match=r"each output once, found 'model\.mlp@001\.mul'"):
        read_operations(tmp_path)


def test_a_later_version_is_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / OPERATIONS_NAME).write_text('{"version": 2}')
    with pytest.raises(UnsupportedFormatError, match="found 2"):
        read_operations(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("nothing", path)])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, make: Any) -> None:
    make(tmp_path / OPERATIONS_NAME)
    with pytest.raises(CorruptFileError, match="expected a file"):
        read_operations(tmp_path)


def test_a_link_in_a_circle(tmp_path: Path) -> None:
    path = tmp_path / OPERATIONS_NAME
    path.symlink_to(path)
    with pytest.raises(CorruptFileError, match="expected a file, found Too many levels"):
        read_operations(tmp_path)

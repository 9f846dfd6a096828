"""Tests of what becomes of anything that an oracle's own code raises or returns."""

import os
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from comparison.schema.errors import EngineError, UnknownPipelineError
from test_common.error_text import shown
from test_common.oracle_errors import checked_result, oracle_errors, oracle_label
from test_common.pipelines import MaxPipelineAndTokenizer, TorchModelAndDataProcessor

METHOD = "create_torch_pipeline"
Pair = namedtuple("Pair", "model data_processor")  # untyped, as users write them


class Oracle:
    label = "my-org/my-model"

    def create(self, error: BaseException) -> None:
        raise error


class Hostile(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("x\n  y\n"), "ValueError: y"),
        (NotImplementedError(), "NotImplementedError: no message"),
        (ModuleNotFoundError("No module named 'zz'"), "ModuleNotFoundError: No module named 'zz'"),
        (MemoryError("cuda"), "MemoryError: cuda"),
        (SystemExit(0), "SystemExit: 0"),
        (GeneratorExit(), "GeneratorExit: no message"),
        (StopIteration(5), "StopIteration: 5"),
        (OSError(2, "No such file"), "FileNotFoundError: [Errno 2] No such file"),
        (Hostile(), "Hostile: its message cannot be shown"),
    ],
)
def test_whatever_is_raised_names_oracle_method_and_place(error: BaseException, told: str) -> None:
    oracle = Oracle()
    with pytest.raises(EngineError) as raised, oracle_errors(oracle, METHOD):
        oracle.create(error)
    start, _, line = str(raised.value).rpartition(", line ")
    assert start == f"oracle my-org/my-model: create_torch_pipeline raised {told} ({__file__}"
    assert int(line.rstrip(")")) > 0
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), UnknownPipelineError("no such model")])
def test_interrupts_and_our_own_errors_pass(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised, oracle_errors(Oracle(), METHOD):
        raise error
    assert raised.value is error


def test_an_oracle_that_changes_the_folder_changes_it_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    for folder in (tmp_path, tmp_path / "gone"):
        monkeypatch.chdir(folder)
        with oracle_errors(Oracle(), METHOD):
            os.chdir("/")
        assert Path.cwd() == folder
    (tmp_path / "gone").rmdir()
    with oracle_errors(Oracle(), METHOD):
        os.chdir("/")
    with pytest.raises(FileNotFoundError):
        Path.cwd()


def test_place_is_left_out_where_it_is_not_in_the_file_of_the_class() -> None:
    with pytest.raises(EngineError) as raised, oracle_errors(SimpleNamespace(), METHOD):
        raise ValueError("x")
    assert str(raised.value) == f"oracle SimpleNamespace: {METHOD} raised ValueError: x"


@pytest.mark.parametrize("label", [None, 5, "", property(lambda self: 1 / 0)])
def test_label_that_cannot_be_had_gives_way_to_the_class(label: Any) -> None:
    assert oracle_label(type("Mine", (), {"label": label})()) == "Mine"


@pytest.mark.parametrize("result", [None, 5, {}, (1, 2), TorchModelAndDataProcessor])
def test_result_of_another_kind_is_refused(result: object) -> None:
    with pytest.raises(EngineError) as raised:
        checked_result(Oracle(), METHOD, result, TorchModelAndDataProcessor)
    assert str(raised.value) == (
        "oracle my-org/my-model: create_torch_pipeline must return TorchModelAndDataProcessor("
        f"model=..., data_processor=...), it returned {shown(result)}"
    )


def test_result_with_the_same_fields_passes() -> None:
    pair = Pair(model=1, data_processor=2)
    assert checked_result(Oracle(), METHOD, pair, TorchModelAndDataProcessor) is pair
    built = MaxPipelineAndTokenizer(pipeline=1, tokenizer=2)
    assert checked_result(Oracle(), METHOD, built, MaxPipelineAndTokenizer) is built


@pytest.mark.parametrize(
    ("layers", "error", "told"),
    [
        (1, IndexError("index 1"), "; of the model one layer is built: --num-hidden-layers all"),
        (3, IndexError("index 3"), "; of the model 3 layers are built: --num-hidden-layers all"),
        (1, ValueError("other"), ""),
        (None, IndexError("index 9"), ""),
    ],
)
def test_a_list_that_is_short_for_the_runs_own_sake(
    layers: int | None, error: Exception, told: str
) -> None:
    oracle = Oracle()
    with pytest.raises(EngineError) as raised, oracle_errors(oracle, METHOD, layers=layers):
        oracle.create(error)
    assert str(raised.value).partition(")")[2] == (f"{told} builds all" if told else "")

"""The operations that PyTorch runs inside of modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from comparison.schema.errors import CaptureError
from comparison.schema.operations import CapturedOperation, StepOperations
from comparison.store.dump import open_dump
from comparison.store.operations_file import read_operations
from test_common.torch_print_hook import TorchPrintHook


class _Inner(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sigmoid()


class _Outer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 4, bias=False)
        self.inner = _Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        first, second = y.chunk(2, dim=-1)
        z = self.inner(first) * second
        z.add_(1.0)
        return z.transpose(0, 1) * 0.5


def _captured(
    model: torch.nn.Module, folder: Path, ops: list[str], x: torch.Tensor, **kwargs: Any
) -> StepOperations:
    with TorchPrintHook(export_path=folder, ops=ops, **kwargs) as hook:
        hook.name_layers(model)
        with torch.no_grad():
            model(x)
    found = read_operations(folder / "0")
    assert found is not None
    return found


def _named(step: StepOperations, name: str) -> CapturedOperation:
    return next(operation for operation in step.operations if operation.name == name)


def _values(folder: Path) -> dict[str, Any]:
    dump = open_dump(folder)
    return {entry.name: dump.read(entry) for entry in dump.entries}


def test_every_operation_is_named_by_the_innermost_module(tmp_path: Path) -> None:
    step = _captured(_Outer(), tmp_path / "d", ["model"], torch.randn(2, 3))

    assert [operation.name for operation in step.operations] == [
        "model.linear@001.t",
        "model.linear@002.mm",
        "model@001.split_0",
        "model.inner@001.sigmoid",
        "model@002.mul",
        "model@003.add_",
        "model@004.transpose",
        "model@005.mul",
    ]


def test_only_modules_that_fit_and_those_inside_are_captured(tmp_path: Path) -> None:
    step = _captured(_Outer(), tmp_path / "d", ["*.inner"], torch.randn(2, 3))

    assert [operation.name for operation in step.operations] == ["model.inner@001.sigmoid"]
    assert step.operations[0].inputs == ("model.inner-input_0",)
    assert step.tensors["model.inner-output"] == "model.inner@001.sigmoid"


def test_dataflow_goes_through_views_and_changes_in_place(tmp_path: Path) -> None:
    step = _captured(_Outer(), tmp_path / "d", ["model"], torch.randn(2, 3))

    mm, split = _named(step, "model.linear@002.mm"), _named(step, "model@001.split_0")
    assert mm.inputs == ("model-input_0", "model.linear@001.t")
    assert _named(step, "model.linear@001.t").inputs == ("weight:model.linear.weight",)
    assert [output.view_of for output in split.outputs] == ["model.linear@002.mm"] * 2
    assert _named(step, "model@002.mul").inputs == ("model.inner@001.sigmoid", "model@001.split_1")
    assert _named(step, "model@003.add_").inputs == ("model@002.mul",)
    assert _named(step, "model@004.transpose").inputs == ("model@003.add_",)
    assert step.tensors["model.inner-input_0"] == "model@001.split_0"
    assert step.tensors["model-output"] == "model@005.mul"


def test_values_are_those_at_the_time_and_views_hold_none(tmp_path: Path) -> None:
    model, x = _Outer(), torch.randn(2, 3)
    step = _captured(model, tmp_path / "d", ["model"], x)
    values = _values(tmp_path / "d")

    first, second = (x @ model.linear.weight.T).chunk(2, dim=-1)
    product = first.sigmoid() * second
    assert torch.equal(torch.from_numpy(values["model@002.mul"]), product)
    assert torch.equal(torch.from_numpy(values["model@003.add_"]), product + 1)
    assert torch.equal(torch.from_numpy(values["model-output"]), (product + 1).T * 0.5)
    assert "model@004.transpose" not in values
    assert not _named(step, "model@004.transpose").outputs[0].saved


def test_numbers_and_source_lines_are_kept(tmp_path: Path) -> None:
    last = _captured(_Outer(), tmp_path / "d", ["model"], torch.randn(2, 3)).operations[-1]

    assert last.op == "aten.mul.Tensor"
    assert last.arguments == {"other": 0.5}
    assert last.outputs[0].dtype == "float32"
    assert last.outputs[0].shape == (2, 2)
    file, _, line = last.source.rpartition(":")
    assert Path(file).name == Path(__file__).name
    assert "z.transpose(0, 1) * 0.5" in Path(__file__).read_text().splitlines()[int(line) - 1]


def test_a_buffer_written_through_a_view_gets_the_name_of_the_write(tmp_path: Path) -> None:
    class Filling(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = torch.empty(4, 3)
            out[:2].copy_(x)
            out[2:].copy_(x)
            return out * 2

    step = _captured(Filling(), tmp_path / "d", ["model"], torch.randn(2, 3))

    assert not step.operations[0].outputs[0].saved  # empty: not filled yet
    writes = [operation for operation in step.operations if ".copy_" in operation.op]
    assert step.operations[-1].inputs == (writes[-1].name,)


def test_a_write_into_one_part_leaves_the_others_their_names(tmp_path: Path) -> None:
    class Rotating(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (x * 2).split([2, 1, 1], dim=-1)
            q.mul_(3)
            return q[:, :1] + k + v

    step = _captured(Rotating(), tmp_path / "d", ["model"], torch.randn(3, 4))

    assert _named(step, "model@003.mul_").inputs == ("model@002.split_with_sizes_0",)
    adds = [operation for operation in step.operations if ".add." in operation.op]
    assert adds[0].inputs[1] == "model@002.split_with_sizes_1"
    assert adds[1].inputs[1] == "model@002.split_with_sizes_2"
    sliced = next(operation for operation in step.operations if ".slice." in operation.op)
    assert sliced.inputs == ("model@003.mul_",)


def test_a_second_call_and_a_second_step_have_their_own(tmp_path: Path) -> None:
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = _Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(self.inner(x))

    model = Twice()
    with TorchPrintHook(export_path=tmp_path / "d", ops=["*.inner"]) as hook:
        hook.name_layers(model)
        model(torch.ones(2))
        hook.step()
        model(torch.ones(2))
    for number in (0, 1):
        step = read_operations(tmp_path / "d" / str(number))
        assert step is not None
        names = [operation.name for operation in step.operations]
        assert names == ["model.inner@001.sigmoid", "model.inner(2)@001.sigmoid"]


def test_capturing_changes_no_value(tmp_path: Path) -> None:
    model, x = _Outer(), torch.randn(2, 3)
    plain = model(x)
    with TorchPrintHook(export_path=tmp_path / "d", ops=["*"]) as hook:
        hook.name_layers(model)
        watched = model(x)
    assert torch.equal(plain, watched)
    assert torch.equal(model(x), plain)


@pytest.mark.filterwarnings("ignore::test_common.print_hook.CaptureWarning")
def test_nothing_is_watched_after_an_exception(tmp_path: Path) -> None:
    class Failing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.sum() > 0:
                raise ValueError("too much")
            return x * 2

    model = Failing()
    with TorchPrintHook(export_path=tmp_path / "d", ops=["model"]) as hook:
        hook.name_layers(model)
        with pytest.raises(ValueError, match="too much"):
            model(torch.ones(2))
        assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
        model(-torch.ones(2))
    step = read_operations(tmp_path / "d" / "0")
    assert step is not None
    assert step.operations[-1].op == "aten.mul.Tensor"


def test_globs_that_fit_nothing_are_an_error(tmp_path: Path) -> None:
    with TorchPrintHook(export_path=tmp_path / "d", ops=["*.mlp"]) as hook:
        hook.name_layers(_Outer())
        hook.layer_of("model")(torch.ones(2, 3))  # type: ignore[operator]  # a module
    with pytest.raises(CaptureError, match=r"no module that ran fits \*\.mlp; modules: model"):
        hook.require_capture()


def test_a_misspelt_module_is_told_what_is_near(tmp_path: Path) -> None:
    with TorchPrintHook(export_path=tmp_path / "d", ops=["model.inne"]) as hook:
        hook.name_layers(_Outer())
        hook.layer_of("model")(torch.ones(2, 3))  # type: ignore[operator]  # a module
    with pytest.raises(CaptureError, match=r"fits model\.inne; nearest: model\.inner, .*modules: "):
        hook.require_capture()


def test_a_step_that_is_not_wanted_has_no_operations(tmp_path: Path) -> None:
    with TorchPrintHook(export_path=tmp_path / "d", ops=["model"], steps={1}) as hook:
        hook.name_layers(_Outer())
        model: Any = hook.layer_of("model")
        model(torch.ones(2, 3))
        hook.step()
        model(torch.ones(2, 3))
    assert not (tmp_path / "d" / "0").exists()
    assert read_operations(tmp_path / "d" / "1") is not None

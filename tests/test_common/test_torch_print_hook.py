import itertools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from comparison.schema.errors import CaptureError, UnwritableOutputError
from comparison.store.dump import open_dump
from test_common.print_hook import CaptureWarning
from test_common.torch_print_hook import TorchPrintHook
from tests.test_common.tiny_models import ROWS, tiny_llama


class Memory:
    """Keeps copies of what a hook saves, by step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, torch.Tensor]] = [{}]

    @property
    def names(self) -> list[str]:
        return list(self.steps[-1])

    def save(self, name: str, tensor: torch.Tensor) -> None:
        assert name not in self.steps[-1]
        assert not tensor.requires_grad
        self.steps[-1][name] = tensor.clone()

    def step(self) -> None:
        self.steps.append({})


def hooked(model: nn.Module, **options: Any) -> tuple[TorchPrintHook, Memory]:
    sink = Memory()
    hook = TorchPrintHook(sink=sink, **options)
    hook.name_layers(model)
    return hook, sink


def count_hooks(model: nn.Module) -> int:
    tables = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_always_called")
    return sum(len(getattr(module, name)) for module in model.modules() for name in tables)


def skips(hook: TorchPrintHook) -> dict[str, str]:
    return {skip.name: skip.reason for skip in hook.certificate().skipped}


def load(path: Path) -> torch.Tensor:
    tensor = torch.load(path, weights_only=True)
    assert isinstance(tensor, torch.Tensor)
    return tensor


class InPlace(nn.Module):
    """Its second child changes its argument, which is the first child's output, in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = AddInPlace()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(self.first(x), r=torch.full((3,), 64.0))
        return result


class AddInPlace(nn.Module):
    def forward(self, x: torch.Tensor, *, r: torch.Tensor) -> torch.Tensor:
        return x.add_(r)


def test_documented_use(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    x = torch.randn(2, 3)
    hook = TorchPrintHook(export_path=str(tmp_path / "torch_tensors"))
    hook.name_layers(model)
    y = model(x)
    hook.remove()
    folder = tmp_path / "torch_tensors" / "0"
    assert (folder / "tensor_names.txt").read_text().splitlines() == [
        "model-input_0",
        "model.0-input_0",
        "model.0-output",
        "model.1-input_0",
        "model.1-output",
        "model-output",
    ]
    assert torch.equal(load(folder / "model-input_0.pt"), x)
    assert torch.equal(load(folder / "model.1-output.pt"), y)
    manifest = json.loads((folder.parent / "manifest.json").read_text())
    assert (manifest["engine"], manifest["complete"], manifest["steps"]) == ("torch", True, 1)
    assert (manifest["encoding"], manifest["device"]) == ("float32", "cpu")
    assert manifest["model"] == "torch.nn.modules.container.Sequential"
    assert manifest["certificate"] == {"registered": 3, "fired": 3, "saved": 6, "skipped": []}


def test_without_a_path_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Identity()
    hook = TorchPrintHook()
    hook.name_layers(model)
    model(torch.tensor([-2.0156, 0.5]))
    hook.remove()
    assert capsys.readouterr().out.splitlines() == [
        "step 0",
        "model-input_0 = tensor([-2.0156, 0.5000], dtype=f32, shape=[2])",
        "model-output = tensor([-2.0156, 0.5000], dtype=f32, shape=[2])",
    ]


def test_successor_in_place_does_not_change_what_was_captured(tmp_path: Path) -> None:
    model, x = InPlace(), torch.randn(2, 3)
    expected = model.first(x).detach()
    hook = TorchPrintHook(tmp_path / "out")
    hook.name_layers(model)
    model(x)
    hook.remove()
    folder = tmp_path / "out" / "0"
    for name in ("model.first-output", "model.second-input_0"):
        torch.testing.assert_close(load(folder / f"{name}.pt"), expected, rtol=0, atol=0)
    after = load(folder / "model.second-output.pt")
    torch.testing.assert_close(after, expected + 64, rtol=0, atol=0)
    assert (folder / "model.second-input_r.pt").exists()


def test_order_is_order_of_execution_on_a_real_model() -> None:
    model = tiny_llama()
    events: list[str] = []
    for name, module in model.named_modules(prefix="model"):
        module.register_forward_pre_hook(lambda *_, name=name: events.append(f"{name}-input"))
        module.register_forward_hook(lambda *_, name=name: events.append(f"{name}-output"))
    hook, sink = hooked(model)
    model(torch.tensor(ROWS[:1]))
    sides = [re.sub(r"(-input|-output).*", r"\1", name) for name in sink.names]
    assert [side for side, _ in itertools.groupby(sides)] == events
    assert hook.certificate().fired == hook.certificate().registered
    assert list(hook.recorded_names(0)) == sink.names
    assert sink.names[0] == "model-input_0"
    assert sink.names[-1] == "model-output_logits"
    assert "model.model.layers.0.mlp-output" in sink.names


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()
        self.alias = self.act
        self.block = nn.Sequential(nn.Linear(2, 2), self.act)

    def forward(self, x: torch.Tensor) -> Any:
        return self.block(self.alias(self.act(x)))


def test_shared_module_is_hooked_once_and_calls_are_counted() -> None:
    hook, sink = hooked(Shared())
    hook.layer_of("model")(torch.ones(2))  # type: ignore[operator]
    assert [name for name in sink.names if "act" in name and "output" in name] == [
        "model.act-output",
        "model.act(2)-output",
        "model.act(3)-output",
    ]
    reason = "the same module as model.act, saved under that name"
    assert skips(hook) == {"model.alias": reason, "model.block.1": reason}
    assert hook.certificate().registered == 4


def test_forwards_without_step_are_counted_and_never_overwritten(tmp_path: Path) -> None:
    model = nn.Identity()
    hook = TorchPrintHook(tmp_path / "out")
    hook.name_layers(model)
    for number in range(3):
        model(torch.tensor(number))
    hook.step()
    model(torch.tensor(9))
    hook.step()  # after the last one: no empty folder
    hook.remove()
    values = [
        load(tmp_path / "out" / "0" / f"model{n}-output.pt").item() for n in ("", "(2)", "(3)")
    ]
    assert values == [0, 1, 2]
    assert load(tmp_path / "out" / "1" / "model-output.pt").item() == 9
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["steps"] == 2
    assert not (tmp_path / "out" / "2").exists()


def test_recursive_module_keeps_its_calls_apart() -> None:
    class Recursive(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x if x.item() == 0 else self(x - 1) + 10

    model = Recursive()
    _, sink = hooked(model)
    model(torch.tensor(2))
    assert {name: tensor.item() for name, tensor in sink.steps[0].items()} == {
        "model-input_0": 2,
        "model(2)-input_0": 1,
        "model(3)-input_0": 0,
        "model(3)-output": 0,
        "model(2)-output": 10,
        "model-output": 20,
    }


@pytest.mark.parametrize(
    "dtype",
    [torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.complex64, torch.int64],
)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_every_dtype_and_shape(tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape).to(dtype).transpose(0, -1) if shape else torch.ones(()).to(dtype)
    model = nn.Identity()
    for hook in (TorchPrintHook(tmp_path / "out"), TorchPrintHook()):
        hook.name_layers(model)
        model(tensor)
        hook.remove()
    back = load(tmp_path / "out" / "0" / "model-output.pt")
    assert (back.dtype, back.shape) == (dtype, tensor.shape)
    assert torch.equal(
        back.float() if dtype.itemsize == 1 else back,
        tensor.float() if dtype.itemsize == 1 else tensor,
    )


def test_meta_tensors_are_skipped_with_the_reason() -> None:
    model = nn.Linear(2, 2, device="meta")
    hook, sink = hooked(model)
    model(torch.ones(1, 2, device="meta"))
    assert sink.names == []
    assert skips(hook) == dict.fromkeys(
        ["model-input_0", "model-output"], "a meta or fake tensor has a shape but no data"
    )
    with pytest.raises(CaptureError, match="1 fired, but no tensor was saved"):
        hook.require_capture()


class CallsForward(nn.Module):
    """The mistake that hooks cannot see: a child called by .forward()."""

    def __init__(self) -> None:
        super().__init__()
        self.child = nn.Linear(2, 2)
        self.unused = nn.Linear(2, 2)
        self.blocks = nn.ModuleList([nn.ReLU()])

    def forward(self, x: torch.Tensor) -> Any:
        return self.blocks[0](self.child.forward(x))


def test_child_called_by_forward_is_reported() -> None:
    model = CallsForward()
    hook, sink = hooked(model)
    model(torch.ones(2))
    certificate = hook.certificate()
    assert (certificate.registered, certificate.fired) == (4, 2)  # ModuleList cannot be called
    assert list(skips(hook)) == ["model.child", "model.unused"]
    assert r".forward() directly" in skips(hook)["model.child"]
    assert "torch.compile" in skips(hook)["model.child"]
    with pytest.warns(
        CaptureWarning,
        match=r"4 modules registered, 2 fired; not captured: "
        r"model\.child, model\.unused \(.*\.forward\(\) directly",
    ):
        hook.remove()
    assert "model.blocks.0-output" in sink.names


def test_model_called_by_forward_is_loud_and_an_error(tmp_path: Path) -> None:
    model = nn.ReLU()
    hook = TorchPrintHook(tmp_path / "out")
    hook.name_layers(model)
    model.forward(torch.ones(2))
    with pytest.raises(CaptureError, match="1 modules registered, 0 fired"):
        hook.require_capture()
    with pytest.warns(CaptureWarning, match="nothing was captured"):
        hook.remove()
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["complete"] is False


@pytest.mark.parametrize("way", ["function", "method", "before"])
def test_compiled_model_is_told_apart(way: str) -> None:
    torch.compiler.reset()
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    if way == "before":  # compiled and run before the hook came
        compiled = torch.compile(model, backend="eager")
        compiled(torch.ones(1, 2))
        hook, sink = hooked(compiled)
    elif way == "function":
        hook, sink = hooked(model)
        compiled = torch.compile(model, backend="eager")
    else:
        model.compile(backend="eager")
        compiled = model
        hook, sink = hooked(model)
    compiled(torch.ones(1, 2))
    reasons = skips(hook)
    assert "model.0" in reasons
    assert all("runs inside torch.compile" in reason for reason in reasons.values())
    assert not any("model.0" in name for name in sink.names)
    with pytest.warns(CaptureWarning, match="runs inside torch.compile"):
        hook.remove()


def test_compiled_layer_in_a_plain_model_keeps_its_name() -> None:
    torch.compiler.reset()
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()), nn.Sequential())
    model[1] = torch.compile(model[1], backend="eager")
    model[2] = torch.compile(model[2], backend="eager")
    hook, sink = hooked(model)
    model(torch.ones(1, 2))
    assert {"model.0-output", "model.1-output", "model.2-output"} <= set(sink.names)
    assert list(skips(hook)) == ["model.1.0"]
    assert "runs inside torch.compile" in skips(hook)["model.1.0"]


def test_naming_again_takes_in_an_exchanged_module_and_hooks_nothing_twice() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    hook, sink = hooked(model)
    old, model[1] = model[1], nn.Tanh()
    hook.name_layers(model)
    model(torch.ones(2))
    assert count_hooks(old) == 0
    assert sink.names == [
        "model-input_0",
        "model.0-input_0",
        "model.0-output",
        "model.1-input_0",
        "model.1-output",
        "model-output",
    ]
    assert hook.certificate().registered == 3


def test_second_model_gets_another_name() -> None:
    first, second = nn.ReLU(), nn.Tanh()
    hook, sink = hooked(first)
    hook.name_layers(second)
    first(second(torch.ones(2)))
    assert sink.names == ["model2-input_0", "model2-output", "model-input_0", "model-output"]


def test_no_hook_is_left_after_remove() -> None:
    model = tiny_llama()
    hook, sink = hooked(model)
    assert count_hooks(model) > 100
    model(torch.tensor(ROWS[:1]))
    saved = hook.certificate()
    hook.remove()
    hook.remove()
    assert count_hooks(model) == 0
    before = len(sink.names)
    model(torch.tensor(ROWS[:1]))
    assert len(sink.names) == before
    assert hook.certificate() == saved


def test_hook_can_be_put_on_again_after_remove(tmp_path: Path) -> None:
    model = nn.ReLU()
    hook = TorchPrintHook(tmp_path / "out")
    for _ in range(2):
        hook.name_layers(model)
        model(torch.ones(2))
        hook.remove()
    assert hook.recorded_names() == (
        "model-input_0",
        "model-output",
        "model(2)-input_0",
        "model(2)-output",
    )
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["certificate"]["saved"] == 4


def test_exception_inside_forward_is_safe(tmp_path: Path) -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.ReLU()
            self.fail = True

        def forward(self, x: torch.Tensor) -> Any:
            x = self.inner(x)
            if self.fail:
                raise ZeroDivisionError
            return x

    model = Fails()
    out = tmp_path / "out"
    hook = TorchPrintHook(out)
    hook.name_layers(model)
    with pytest.raises(ZeroDivisionError), hook:
        model(torch.ones(2))
    assert count_hooks(model) == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["complete"], manifest["certificate"]["saved"]) == (False, 3)

    hook, sink = hooked(model)
    with pytest.raises(ZeroDivisionError):
        model(torch.ones(2))
    model.fail = False
    model(torch.ones(2))
    assert "model-output" not in sink.names  # of the call that failed
    assert "model(2)-output" in sink.names


def test_filter_and_bad_arguments(tmp_path: Path) -> None:
    model = tiny_llama()
    hook, sink = hooked(model, filter=["model.model.layers.1.mlp", "*lm_head-output"])
    model(torch.tensor(ROWS[:1]))
    assert sink.names == [
        "model.model.layers.1.mlp-input_0",
        "model.model.layers.1.mlp-output",
        "model.lm_head-output",
    ]
    with pytest.raises(ValueError, match="export_path or sink, not both"):
        TorchPrintHook(tmp_path, sink=Memory())
    assert hook.name_of(model.lm_head) == "model.lm_head"


def test_folder_in_use_is_refused_at_once_unless_overwritten(tmp_path: Path) -> None:
    model = nn.ReLU()
    for overwrite in (False, True):
        hook = TorchPrintHook(tmp_path / "out", overwrite=overwrite)
        hook.name_layers(model)
        model(torch.ones(2))
        hook.remove()
    with pytest.raises(UnwritableOutputError, match="not empty"):
        TorchPrintHook(tmp_path / "out")


def test_killed_run_leaves_a_readable_partial_dump(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "import os, signal, sys, torch\n"
        "from test_common.torch_print_hook import TorchPrintHook\n"
        "class Kill(torch.nn.Module):\n"
        "    calls = 0\n"
        "    def forward(self, x):\n"
        "        self.calls += 1\n"
        "        if self.calls == 2:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return x\n"
        "long = 'layer' * 60\n"
        "model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(), Kill())\n"
        "model[1].add_module(long, torch.nn.ReLU())\n"
        "hook = TorchPrintHook(sys.argv[1])\n"
        "hook.name_layers(model)\n"
        "model(torch.ones(2)); hook.step(); model(torch.ones(2))\n"
    )
    out = tmp_path / "out"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, str(script), str(out)], env=environment, check=False)
    assert run.returncode == -signal.SIGKILL
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["complete"], manifest["certificate"]) == (False, None)
    counts = []
    for step in ("0", "1"):
        names = (out / step / "tensor_names.txt").read_text().splitlines()
        files = {path.stem: path for path in (out / step).glob("*.pt")}
        spelled = {manifest["file_names"].get(stem, stem) for stem in files}
        assert spelled == set(names)
        assert all(load(path).shape == (2,) for path in files.values())
        counts.append(len(names))
    assert counts == [10, 8]
    assert len(manifest["file_names"]) == 2
    dump = open_dump(out)
    assert not dump.complete
    assert not dump.problems
    assert len(dump.entries) == 18
    long_name = f"model.1.{'layer' * 60}-output"
    assert dump.entries[5].name == dump.entries[15].name == long_name

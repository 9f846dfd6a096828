import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
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
    assert hook.recorded_names(0) == hook.recorded_names(1) == ("model-input_0", "model-output")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["certificate"]["saved"], manifest["steps"]) == (4, 2)
    assert len(open_dump(tmp_path / "out").entries) == 4


class Fails(nn.Module):
    """Raises what it is given, after its child has run; or catches what the child raises."""

    def __init__(self, error: BaseException | None = None, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner or nn.ReLU()
        self.error = error

    def forward(self, x: torch.Tensor) -> Any:
        if isinstance(self.inner, Fails):
            try:
                return self.inner(x)
            except Exception:
                return x
        x = self.inner(x)
        if self.error is not None:
            raise self.error
        return x


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(0)])
@pytest.mark.parametrize("then", ["remove", "step", "run again"])
def test_forward_that_died_leaves_a_partial_dump(
    tmp_path: Path, error: BaseException, then: str
) -> None:
    model, out = Fails(error), tmp_path / "out"
    hook = TorchPrintHook(out)
    hook.name_layers(model)
    with pytest.raises(type(error)):
        model(torch.ones(2))
    if then == "step":
        hook.step()
    if then == "run again":
        model.error = None
        model(torch.ones(2))
    with pytest.warns(CaptureWarning, match=r"^a call of the model did not end: .* is partial$"):
        hook.remove()
    assert json.loads((out / "manifest.json").read_text())["complete"] is False


def test_exception_that_the_model_catches_itself_is_its_own_business(tmp_path: Path) -> None:
    model = Fails(inner=Fails(ValueError("x")))
    hook = TorchPrintHook(tmp_path / "out")
    hook.name_layers(model)
    model(torch.ones(2))
    hook.remove()
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["complete"] is True


def test_model_that_returns_nothing_has_not_died(tmp_path: Path) -> None:
    class Silent(nn.Module):
        def forward(self, x: torch.Tensor) -> None: ...

    hook = TorchPrintHook(tmp_path / "out")
    model = Silent()
    hook.name_layers(model)
    try:
        raise ValueError("handled")
    except ValueError:
        model(torch.ones(2))
    hook.remove()
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["complete"] is True


class Returns(nn.Module):
    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: torch.Tensor) -> Any:
        return self.make(x)


def nested_lists(x: torch.Tensor) -> Any:
    value: Any = x
    for _ in range(2000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("make", "name", "reason"),
    [
        (
            lambda x: torch.nested.nested_tensor([x, x]),
            "model-output",
            "a nested tensor is not a plain array",
        ),
        (
            lambda x: torch.zeros(4, dtype=torch.uint8).view(torch.uint1),
            "model-output",
            "torch cannot copy uint1",
        ),
        (nested_lists, "model-output" + "_0" * 64, "list lies more than 64 containers deep"),
    ],
    ids=["nested", "uint1", "deep"],
)
@pytest.mark.parametrize("printed", [False, True])
def test_what_cannot_be_saved_is_skipped_and_the_run_goes_on(
    tmp_path: Path, make: Any, name: str, reason: str, printed: bool
) -> None:
    model = Returns(make)
    hook = TorchPrintHook(None if printed else tmp_path / "out")
    hook.name_layers(model)
    model(torch.ones(2))
    hook.remove()
    assert hook.recorded_names() == ("model-input_0",)
    assert skips(hook) == {name: reason}


class Refuses(Memory):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def save(self, name: str, tensor: torch.Tensor) -> None:
        if name.endswith("output"):
            raise self.error
        super().save(name, tensor)


@pytest.mark.parametrize(
    "error", [NotImplementedError("no kernel"), ValueError("no text"), MemoryError()]
)
def test_tensor_that_the_sink_cannot_take_is_skipped(error: Exception) -> None:
    model = nn.ReLU()
    hook = TorchPrintHook(sink=Refuses(error))
    hook.name_layers(model)
    model(torch.ones(2))
    told = str(error) or "no message"
    assert skips(hook) == {"model-output": f"cannot be saved: {type(error).__name__}: {told}"}
    assert hook.recorded_names() == ("model-input_0",)


@pytest.mark.parametrize("error", [UnwritableOutputError("disk full"), BrokenPipeError()])
def test_sink_that_can_take_nothing_ends_the_run(error: Exception) -> None:
    model = nn.ReLU()
    hook = TorchPrintHook(sink=Refuses(error))
    hook.name_layers(model)
    with pytest.raises(type(error)):
        model(torch.ones(2))


def test_module_with_a_lone_surrogate_in_its_name(tmp_path: Path) -> None:
    model = nn.Sequential()
    model._modules["\ud800"] = nn.ReLU()
    hook = TorchPrintHook(tmp_path / "out")
    hook.name_layers(model)
    model(torch.ones(2))
    hook.remove()
    assert [entry.name for entry in open_dump(tmp_path / "out").entries] == list(
        hook.recorded_names()
    )


def test_names_of_dump_and_hook_agree_where_a_module_is_named_like_a_call(tmp_path: Path) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.ReLU()
            self._modules["a(2)"] = nn.ReLU()

        def forward(self, x: torch.Tensor) -> Any:
            return self._modules["a(2)"](self.a(self.a(x)))

    model = Twice()
    hook = TorchPrintHook(tmp_path / "out")
    hook.name_layers(model)
    model(torch.ones(2))
    hook.remove()
    names = [entry.name for entry in open_dump(tmp_path / "out").entries]
    assert names == list(hook.recorded_names())
    assert {"model.a-output", "model.a(3)-output", "model.a(2)-output"} <= set(names)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"filter": 5}, TypeError, "filter must be a glob"),
        ({"steps": 5}, TypeError, "steps must be numbers of steps"),
        ({"export_path": 5}, TypeError, "export_path must be the path of a folder, found 5"),
        ({"export_path": b"out"}, TypeError, "export_path must be the path of a folder, found b'o"),
        ({"export_path": ""}, ValueError, "export_path is empty: name a folder, or leave it out"),
    ],
)
def test_arguments_of_another_kind_are_refused_at_once(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"^{message}"):
        TorchPrintHook(**arguments)


@pytest.mark.parametrize(
    ("model", "found"), [(5, "int"), (None, "NoneType"), (nn.ReLU, "type"), (lambda x: x, "func")]
)
def test_what_is_no_module_is_refused_at_once(tmp_path: Path, model: Any, found: str) -> None:
    hook = TorchPrintHook(tmp_path / "out")
    with pytest.raises(TypeError, match=f"^expected a torch.nn.Module, found {found}"):
        hook.name_layers(model)
    assert not (tmp_path / "out").exists()


def test_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="the name of a model must be a text, found 5"):
        TorchPrintHook().name_layers(nn.ReLU(), name=5)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_script_module_is_refused_and_listed_where_it_is_a_part() -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(TypeError, match="RecursiveScriptModule is a ScriptModule, which runs no"):
        TorchPrintHook().name_layers(scripted)
    hook, sink = hooked(nn.Sequential(nn.ReLU(), scripted))
    hook.layer_of("model")(torch.ones(2))  # type: ignore[operator]
    assert "model.0-output" in sink.names
    assert "model.1-output" not in sink.names
    assert skips(hook) == {
        "model.1": "a ScriptModule, which runs no hooks: use the model before torch.jit"
    }


def test_replicas_in_threads_lose_nothing(tmp_path: Path) -> None:
    model = nn.Sequential(nn.ReLU(), nn.ReLU())
    hook = TorchPrintHook(tmp_path / "out")
    hook.name_layers(model)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            for _ in range(10):
                model(torch.ones(2))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hook.remove()
    assert errors == []
    assert hook.certificate().saved == 40 * 6 == len(set(hook.recorded_names()))
    assert len(open_dump(tmp_path / "out").entries) == 40 * 6


def test_exception_inside_forward_is_safe(tmp_path: Path) -> None:
    model = Fails(ZeroDivisionError())
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
    model.error = None
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
        "            hook._writer.flush()  # what waits in memory goes with the process\n"
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

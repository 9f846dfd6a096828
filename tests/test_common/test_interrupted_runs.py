"""Ctrl-C in the middle of a run, in this process: what was patched and hooked is as before."""

import signal
from pathlib import Path
from typing import Any

import pytest

from comparison.store.dump import open_dump
from oracles.registry import find_oracle
from test_common import patching
from test_common.debug_options import DebugOptions
from test_common.debug_run import run_debug_model
from test_common.patching import Patch
from test_common.torch_print_hook import TorchPrintHook

MISSING = object()


class Places:
    """Remembers what was in the place of every patch before it."""

    def __init__(self) -> None:
        self.before: dict[tuple[int, str], tuple[Patch, Any]] = {}

    def note(self, patch: Patch) -> None:
        self.before.setdefault((id(patch.target), patch.name), (patch, own_value(patch)))

    def labels_changed(self) -> list[str]:
        known = self.before.values()
        return [patch.label for patch, value in known if own_value(patch) is not value]


def own_value(patch: Patch) -> Any:
    """Return what the target itself holds under the name, not what it inherits."""
    held = patch.target if isinstance(patch.target, dict) else vars(patch.target)
    return held.get(patch.name, MISSING)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    found, put = Places(), patching._put

    def noting(patch: Patch) -> None:
        found.note(patch)
        put(patch)

    monkeypatch.setattr(patching, "_put", noting)
    return found


def press_ctrl_c(*_: object, **__: object) -> None:
    signal.raise_signal(signal.SIGINT)


class Interrupted:
    """A pipeline whose last norm is interrupted in a step."""

    def __init__(self, pipeline: str, *, step: int) -> None:
        self._oracle = find_oracle(pipeline)
        self._step = step
        self.model: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._oracle, name)

    def create_torch_pipeline(self, **given: Any) -> Any:
        built = self._oracle.create_torch_pipeline(**given)
        self.model, calls = built.model, []
        usual = self.model.model.norm.forward

        def forward(x: Any) -> Any:
            calls.append(x.shape)
            if len(calls) > self._step:
                press_ctrl_c()
            return usual(x)

        self.model.model.norm.forward = forward
        return built


@pytest.mark.parametrize("step", [0, 2])
def test_torch(places: Places, tmp_path: Path, step: int) -> None:
    oracle = Interrupted("tiny-random/llama", step=step)
    options = DebugOptions(
        pipeline="tiny-random/llama",
        framework="torch",
        output=tmp_path / "d",
        num_steps=3,
        watch_config=True,
    )
    with pytest.raises(KeyboardInterrupt):
        run_debug_model(oracle, options)  # type: ignore[arg-type]  # it passes on what it lacks
    assert len(places.before) >= 1
    assert places.labels_changed() == []
    for module in oracle.model.modules():
        assert not module._forward_hooks, module
        assert not module._forward_pre_hooks, module
    manifest = open_dump(tmp_path / "d").manifest
    assert manifest is not None
    assert not manifest.complete
    assert not (tmp_path / "d" / ".lock").exists()
    again = DebugOptions(
        pipeline="tiny-random/llama", framework="torch", output=tmp_path / "d", overwrite=True
    )
    assert run_debug_model(find_oracle("tiny-random/llama"), again).manifest.complete


def test_hook_alone(tmp_path: Path) -> None:
    import torch

    class Stops(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            press_ctrl_c()
            return x

    model = torch.nn.Sequential(torch.nn.Linear(3, 5), Stops(), torch.nn.Linear(5, 2))
    hook = TorchPrintHook(tmp_path / "d")
    hook.name_layers(model)
    with pytest.raises(KeyboardInterrupt), hook:
        model(torch.ones(1, 3))
    assert not any(module._forward_hooks for module in model.modules())
    manifest = open_dump(tmp_path / "d").manifest
    assert manifest is not None
    assert not manifest.complete


@pytest.mark.full
def test_max_while_it_compiles(
    places: Places, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from max.engine import InferenceSession
    from max.nn.layer import layer

    hooks = list(layer._LAYER_HOOKS)
    monkeypatch.setattr(InferenceSession, "load", press_ctrl_c)
    monkeypatch.setattr(InferenceSession, "load_all", press_ctrl_c, raising=False)
    options = DebugOptions(
        pipeline="tiny-random/gemma3",
        framework="max",
        device="cpu",
        output=tmp_path / "d",
        num_hidden_layers=3,
    )
    with pytest.raises(KeyboardInterrupt):
        run_debug_model(find_oracle("tiny-random/gemma3"), options)
    labels = {patch.label for patch, _ in places.before.values()}
    assert any("RMSNorm" in label for label in labels)
    assert len(labels) > 5
    assert places.labels_changed() == []
    assert hooks == layer._LAYER_HOOKS
    assert not (tmp_path / "d").exists()

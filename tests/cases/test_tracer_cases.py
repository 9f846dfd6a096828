"""Reported faults of capturing tools, tried on the call-tree tracer and its readers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from comparison.schema.tolerance import Tolerance
from comparison.store.safetensors_file import read_safetensors_tensor
from comparison.traces.trace_comparison import compare_traces
from test_common.model_debugging_utils import TraceOptions, model_addition_debugger_context
from tests.comparison.traces.traced_llama import trace_llama


class _AddsInPlace(nn.Module):
    """The norm adds a residual into what the layer before it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Linear(5, 5, bias=False)
        self.norm = _InPlace()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.mlp(x))


class _InPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(64)


class _CallsForward(nn.Module):
    """Calls its part in a way that no hook sees."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part.forward(x)


class _UsesOneTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.act(x) - 1)


class _Named(nn.Module):
    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self._modules.update({name: nn.Identity() for name in names})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, part in enumerate(self.children()):
            x = part(x + number)
        return x


def _traced(
    folder: Path, model: nn.Module, call: Callable[[nn.Module], Any], **options: bool
) -> Path:
    with model_addition_debugger_context(
        model, folder, use_repr=False, options=TraceOptions(**options)
    ):
        call(model)
    return folder


def _tree(folder: Path, model: nn.Module) -> Any:
    return json.loads((folder / f"{type(model).__name__}_debug_tree_FULL_TENSORS.json").read_text())


def test_what_a_successor_writes_in_place_is_not_captured(tmp_path: Path) -> None:
    model, x = _AddsInPlace(), torch.ones(2, 5)
    expected = model.mlp(x).detach().numpy()
    folder = _traced(tmp_path, model, lambda model: model(x.clone()))
    found = read_safetensors_tensor(folder / "_AddsInPlace.mlp_outputs.safetensors", "data")
    assert np.array_equal(found, expected)
    after = read_safetensors_tensor(folder / "_AddsInPlace.norm_outputs.safetensors", "data")
    assert np.array_equal(after, expected + 64)


def test_a_part_that_is_called_by_its_forward_is_seen(tmp_path: Path) -> None:
    model = _CallsForward()
    folder = _traced(tmp_path, model, lambda model: model.forward(torch.ones(2, 5)))
    tree = _tree(folder, model)
    assert [child["module_path"] for child in tree["children"]] == ["_CallsForward.part"]
    assert tree["children"][0]["outputs"]["shape"] == "torch.Size([2, 3])"


def test_a_shared_module_in_three_steps_overwrites_nothing(tmp_path: Path) -> None:
    model = _UsesOneTwice()
    steps = [torch.tensor([3.0, -2.0, step + 5.0]) for step in range(3)]
    folder = _traced(
        tmp_path, model, lambda model: [model(step) for step in steps], every_call=True
    )
    assert sorted(path.name for path in folder.iterdir()) == ["0", "1", "2"]
    for number, step in enumerate(steps):
        first, second = (
            read_safetensors_tensor(
                folder / str(number) / f"_UsesOneTwice.act{call}_outputs.safetensors", "data"
            ).tolist()
            for call in ("", "(2)")
        )
        assert first == step.relu().tolist()
        assert second == (step.relu() - 1).relu().tolist()


def test_names_that_look_like_paths_stay_in_the_folder_and_apart(tmp_path: Path) -> None:
    names = ["/a/b", "a:b", "..", "ä/模", "a", "a/", "a/b", "a_b"]
    model = _Named(names)
    folder = _traced(tmp_path / "in", model, lambda model: model(torch.zeros(3)))
    assert list(tmp_path.iterdir()) == [folder]
    children = _tree(folder, model)["children"]
    assert [child["module_path"] for child in children] == [f"_Named.{name}" for name in names]
    files = [child["outputs"]["value"] for child in children]
    assert len(set(files)) == len(names)
    sums = [float(read_safetensors_tensor(folder / file, "data")[0]) for file in files]
    assert sums == [0, 1, 3, 6, 10, 15, 21, 28]


@pytest.mark.parametrize("files", [False, True], ids=["text", "files"])
def test_a_pruned_trace_is_not_read_as_if_it_were_whole(tmp_path: Path, files: bool) -> None:
    good = trace_llama(tmp_path / "good", prunes=True, use_repr=not files)
    bad = trace_llama(tmp_path / "bad", prunes=True, use_repr=not files, fault=True)
    found = compare_traces(good, bad, Tolerance()).first
    assert found is not None
    assert found.gap == "between layer 0 and layer 3: layers 1..2 are absent from both traces"

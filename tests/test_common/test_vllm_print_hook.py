"""The vLLM hook on torch modules that are called as vLLM calls its own."""

from pathlib import Path
from typing import Any

import torch

from comparison.store.dump import open_dump
from test_common.dump_writer import DumpWriter
from test_common.vllm_print_hook import VllmPrintHook


class Norm(torch.nn.Module):
    """Adds the residual in place, as a fused kernel does."""

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
        if residual is None:
            return x / 2
        residual.add_(x)
        x.copy_(residual / 2)
        return x, residual


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = Norm()
        self.mlp = torch.nn.Linear(4, 4)

    def forward(self, positions: torch.Tensor, x: torch.Tensor, residual: Any) -> Any:
        if residual is None:
            x, residual = self.norm(x), x.clone()
        else:
            x, residual = self.norm(x, residual)
        return self.mlp(x), residual


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(), Layer()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        residual, positions = None, torch.arange(len(x))
        for layer in self.layers:
            x, residual = layer(positions, x, residual)
        return x + residual


def test_layers_have_their_sum_and_each_forward_is_a_step(tmp_path: Path) -> None:
    model, writer = Model(), DumpWriter(tmp_path / "dump")
    with torch.no_grad(), VllmPrintHook(sink=writer) as hook:
        hook.name_layers(model)
        outputs = [model(torch.ones(3, 4)), model(torch.ones(1, 4))]
    dump = open_dump(tmp_path / "dump")
    tensors = {(entry.step, entry.name): dump.read(entry) for entry in dump.entries}
    for step, output in enumerate(outputs):
        parts = [tensors[step, f"model.layers.1-output_{part}"] for part in (0, 1)]
        total = tensors[step, "model.layers.1-output_residual_sum"]
        assert (total == parts[0] + parts[1]).all()
        assert (total == output.numpy()).all()
    assert (0, "model.layers.1.norm-output_residual_sum") not in tensors


def test_what_a_kernel_overwrites_is_kept_as_it_was(tmp_path: Path) -> None:
    model, writer = Model(), DumpWriter(tmp_path / "dump")
    with torch.no_grad(), VllmPrintHook(sink=writer) as hook:
        hook.name_layers(model)
        model(torch.ones(3, 4))
    dump = open_dump(tmp_path / "dump")
    tensors = {entry.name: dump.read(entry) for entry in dump.entries}
    # The second layer's norm overwrites both parts of the first layer's output.
    given = tensors["model.layers.1.norm-input_0"] + tensors["model.layers.1.norm-input_1"]
    assert (given == tensors["model.layers.0-output_residual_sum"]).all()
    assert (given == tensors["model.layers.1.norm-output_1"]).all()

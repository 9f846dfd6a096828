"""Held-out faults of MLPs and their activations."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tests.faults.held_out.steps import computing
from tests.faults.pair import Plant

Tensor = torch.Tensor


def _plant(kind: str, name: str, archs: str, role: str, change: Any, **more: Any) -> Plant:
    values = {"cause": kind, **more}
    return Plant(
        kind=kind, name=name, archs=tuple(archs.split()), role=role, change=change, **values
    )


def _act_of(module: Any) -> Any:
    names = ("act_fn", "activation_fn", "act")
    return next(getattr(module, name) for name in names if hasattr(module, name))


def _mlp(compute: Any) -> Any:
    """Replace what an MLP does with gate and up: `compute(act, gate, up)`."""

    def forward(self: Any, x: Tensor) -> Tensor:
        if hasattr(self, "gate_up_proj"):
            gate, up = self.gate_up_proj(x).chunk(2, -1)
        else:
            gate, up = self.gate_proj(x), self.up_proj(x)
        return self.down_proj(compute(_act_of(self), gate, up))

    return computing(forward)


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _function(f: Any) -> Any:
    return computing(lambda _, x: f(x))


PLANTS = (
    _plant("activation", "on_up", "llama phi3", "mlp", _mlp(lambda act, g, u: g * act(u)),
           also_lean=("act",)),
    _plant("activation", "sum_not_product", "granite", "mlp", _mlp(lambda act, g, u: act(g) + u)),
    _plant("activation", "up_and_one", "qwen2", "mlp",
           _mlp(lambda act, g, u: act(g) * (u + 1)), layer=2),
    _plant("activation", "without_up", "olmo2", "mlp", _mlp(lambda act, g, u: act(g)), layer=0),
    _plant("activation", "of_product", "cohere", "mlp", _mlp(lambda act, g, u: act(g * u)),
           also_lean=("act",)),
    _plant("clip", "of_gate_and_up", "llama3", "mlp",
           _mlp(lambda act, g, u: act(g.clamp(max=2.0)) * u.clamp(-2.0, 2.0)), also_lean=("act",)),
    _plant("clip", "of_product", "phi3", "mlp",
           _mlp(lambda act, g, u: (act(g) * u).clamp(-1.0, 1.0)), layer=2),
    _plant("activation", "quick_gelu", "gemma2 starcoder2", "act", _function(_quick_gelu)),
    _plant("activation", "exact_gelu", "gemma3", "act", _function(F.gelu), layer=2),
    _plant("activation", "sigmoid_of_1.702", "llama", "act", _function(_quick_gelu)),
    _plant("activation", "relu", "phi3", "act", _function(F.relu), layer=0),
    _plant("activation", "squared_relu", "starcoder2", "act", _function(lambda x: F.relu(x) ** 2)),
    _plant("activation", "twice", "qwen3", "act", _function(lambda x: F.silu(F.silu(x)))),
    _plant("activation", "leaky", "bert", "act", _function(lambda x: F.leaky_relu(x, 0.1))),
    _plant("activation", "exact_gelu", "bloom", "act", _function(F.gelu)),
    _plant("activation", "missing", "gpt2", "act", _function(lambda x: x), layer=2),
    _plant("activation", "softplus", "granite", "act", _function(F.softplus)),
)  # fmt: skip

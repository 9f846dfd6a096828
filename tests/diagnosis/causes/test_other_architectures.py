"""Causes in parts that llama lacks: a norm without a weight, gate and up in one projection."""

import copy
from types import MethodType
from typing import Any

import pytest
import torch
from transformers import (
    MistralConfig,
    MistralForCausalLM,
    OlmoConfig,
    OlmoForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
)

from comparison.schema.diagnosis import Cause
from diagnosis.diff_models import DiffOptions, diff_models

ROWS = [[5, 9, 2, 33, 60, 7, 7, 41], [8, 44, 1, 30, 6]]
SIZES = {
    "hidden_size": 40,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 56,
    "vocab_size": 64,
    "num_hidden_layers": 2,
    "tie_word_embeddings": False,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": 0,
}


def made(model_class: Any, config_class: Any) -> Any:
    config = config_class(**SIZES)
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            offset = 1.0 if parameter.ndim == 1 else 0.0
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 + offset)
    return model


def cause_of(model: Any, path: str, forward: Any) -> Cause:
    candidate = copy.deepcopy(model)
    module = candidate.get_submodule(path)
    module.forward = MethodType(forward, module)
    found = diff_models(model, candidate, ROWS)
    assert found.culprit is not None
    assert found.culprit.module == f"model.{path}"
    assert found.cause is not None
    return found.cause


def without_mean(module: Any, x: torch.Tensor) -> torch.Tensor:
    del module
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


def with_epsilon(module: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, module.normalized_shape, eps=1e-2)


@pytest.mark.parametrize(
    ("forward", "cause", "evidence"),
    [
        (without_mean, "norm_order", "does not take the mean off"),
        (with_epsilon, "eps", "takes 0.01 for the norm's epsilon"),
    ],
)
def test_norm_without_weight_or_attributes(forward: Any, cause: str, evidence: str) -> None:
    found = cause_of(made(OlmoForCausalLM, OlmoConfig), "model.layers.1.input_layernorm", forward)
    assert (found.id, found.residual is not None) == (cause, True)
    assert evidence in found.evidence


def halves_swapped(module: Any, x: torch.Tensor) -> Any:
    up, gate = module.gate_up_proj(x).chunk(2, dim=-1)
    return module.down_proj(up * module.activation_fn(gate))


def test_halves_of_one_projection_of_gate_and_up() -> None:
    found = cause_of(made(Phi3ForCausalLM, Phi3Config), "model.layers.1.mlp", halves_swapped)
    assert found.id == "activation"
    assert "activates the up projection and not the gate" in found.evidence


def test_a_window_that_looks_back_is_not_said_to_look_ahead() -> None:
    model = made(MistralForCausalLM, MistralConfig)
    del model.model.layers[1:]
    for part in model.modules():  # one row without pads: no mask is made, and later keys are hidden
        if hasattr(part, "config"):
            part.config._attn_implementation = "sdpa"
    candidate = copy.deepcopy(model)
    candidate.config.sliding_window = 3
    plain = DiffOptions(drill="off")
    found = diff_models(model, candidate, ROWS[:1], num_steps=1, options=plain)
    assert found.cause is not None
    assert "looks back over a window of 3 tokens" in found.cause.evidence

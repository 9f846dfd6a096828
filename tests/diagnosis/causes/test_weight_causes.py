"""Weights that are cut, rounded, lost or reordered, and layers of another order, have causes."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from comparison.schema.diagnosis import Cause
from diagnosis.diff_models import diff_models
from tests.diagnosis.causes.random_models import random_model

ROWS = [[5, 9, 2, 33, 60, 7, 7, 41, 12, 3, 18, 50, 22], [8, 44, 1, 30, 6, 2, 21]]
Plant = Callable[[Any], object]


@pytest.fixture(scope="module")
def reference() -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=48,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        intermediate_size=64,
        vocab_size=72,
        num_hidden_layers=2,
        mlp_bias=True,
        eos_token_id=None,
        tie_word_embeddings=False,
    )
    return random_model(LlamaForCausalLM, config, seed=21)


def cause_of(reference: LlamaForCausalLM, plant: Plant) -> Cause:
    candidate = copy.deepcopy(reference)
    with torch.no_grad():
        plant(candidate)
    found = diff_models(reference, candidate, ROWS, num_steps=1)
    assert found.cause is not None, found.sentence
    return found.cause


def of(path: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Plant:
    """Change a weight of the second layer."""

    def plant(model: Any) -> None:
        weight = model.model.layers[1].get_parameter(path)
        weight.copy_(change(weight.clone()))

    return plant


def codes_of_four_bits(w: torch.Tensor, *, off: float) -> torch.Tensor:
    groups = w.reshape(-1, 32)
    low = groups.amin(1, keepdim=True)
    step = (groups.amax(1, keepdim=True) - low) / 15
    return (((groups - low) / step).round() * step + low + off * step).reshape(w.shape)


def scales_of_row_behind(w: torch.Tensor) -> torch.Tensor:
    step = w.abs().amax(1, keepdim=True) / 7
    return (w / step).round() * step.roll(-1, 0)


def zeroed(rows: slice) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(w: torch.Tensor) -> torch.Tensor:
        w[rows] = 0
        return w

    return change


def in_layer(compute: Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]) -> Plant:
    """Compute what attention and input become: `compute(layer, x, attention)`."""

    def plant(model: Any) -> None:
        layer = model.model.layers[1]

        def forward(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            del args
            y = layer.self_attn(hidden_states=layer.input_layernorm(hidden_states), **kwargs)[0]
            return compute(layer, hidden_states, y)

        layer.forward = forward

    return plant


def of_normed_stream(layer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    h = layer.input_layernorm(x) + y
    return h + layer.mlp(layer.post_attention_layernorm(h))


def in_parallel(layer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y + layer.mlp(layer.post_attention_layernorm(x))


def gated(compute: Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]) -> Plant:
    def plant(model: Any) -> None:
        mlp = model.model.layers[1].mlp
        mlp.forward = lambda x: mlp.down_proj(compute(mlp.act_fn, mlp.gate_proj(x), mlp.up_proj(x)))

    return plant


OUT, UP, DOWN = "self_attn.o_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"
PLANTS: dict[str, tuple[Plant, str, str]] = {
    "zero points": (
        of(DOWN, lambda w: codes_of_four_bits(w, off=-1.0)), "quantization", "zero point -1 off"
    ),
    "scales of rows": (of(UP, scales_of_row_behind), "quantization", "scale of the row behind"),
    "fp8 without scale": (
        of(OUT, lambda w: (w * 64).to(torch.float8_e4m3fn).float()), "quantization", "64 times"
    ),
    "packing": (
        of(DOWN, lambda w: w.unflatten(1, (-1, 8)).flip(2).flatten(1)),
        "quantization",
        "each eight inputs in reversed order",
    ),
    "shard of inputs": (
        of(OUT, lambda w: torch.cat([w.chunk(4, 1)[i] for i in (0, 1, 1, 3)], 1)),
        "shard",
        "parts [0, 1, 1, 3]",
    ),
    "tail": (of(DOWN, zeroed(slice(45, None))), "shard", "last 3 of 48"),
    "heads of inputs": (
        of(OUT, lambda w: torch.cat([w.chunk(4, 1)[i] for i in (0, 3, 2, 1)], 1)),
        "permutation",
        "order [0, 3, 2, 1]",
    ),
    "in parallel": (in_layer(in_parallel), "norm_order", "computes model.model.layers.1-input_0"),
    "stream": (in_layer(of_normed_stream), "residual", "input_layernorm-output"),
    "up and one": (gated(lambda act, g, u: act(g) * (u + 1)), "activation", "adds one to the up"),
    "leaky": (
        lambda m: setattr(
            m.model.layers[1].mlp, "act_fn", torch.nn.LeakyReLU(0.07)
        ),
        "activation",
        "slope 0.07",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTS)
def test_cause_is_named_with_its_evidence(reference: LlamaForCausalLM, name: str) -> None:
    plant, cause, evidence = PLANTS[name]
    found = cause_of(reference, plant)
    assert (found.id, found.residual is not None) == (cause, True), found
    assert evidence in found.evidence
    assert found.residual is not None
    assert found.unexplained is not None
    assert found.residual < 15 < found.unexplained


def test_rows_that_ranks_had_are_no_permutation(reference: LlamaForCausalLM) -> None:
    def plant(model: Any) -> None:
        for parameter in (layer := model.model.layers[1].mlp.up_proj).weight, layer.bias:
            parameter.copy_(torch.stack(parameter.clone().chunk(4), 1).flatten(0, 1))

    found = cause_of(reference, plant)
    assert found.id == "shard", found
    assert "4 of ranks in turn" in found.evidence


def test_noise_on_a_weight_is_no_grid(reference: LlamaForCausalLM) -> None:
    generator = torch.Generator().manual_seed(5)
    found = cause_of(
        reference, of(OUT, lambda w: w + 0.02 * torch.randn(w.shape, generator=generator))
    )
    assert (found.id, found.residual) == ("weights", None), found


def test_noise_behind_a_weight_that_is_the_same_is_no_other_weight(
    reference: LlamaForCausalLM,
) -> None:
    def plant(model: Any) -> None:
        layer = model.model.layers[1].mlp.down_proj
        generator = torch.Generator().manual_seed(5)

        def forward(x: torch.Tensor) -> torch.Tensor:
            y = functional.linear(x, layer.weight, layer.bias)
            return y + 0.01 * torch.randn(y.shape, generator=generator)

        layer.forward = forward

    found = cause_of(reference, plant)
    assert found.id == "unknown", found
    assert "things that were tried gives" in found.evidence


def test_output_that_was_never_written_lacks_its_bias(reference: LlamaForCausalLM) -> None:
    def plant(model: Any) -> None:
        layer = model.model.layers[1].mlp.gate_proj

        def forward(x: torch.Tensor) -> torch.Tensor:
            y = functional.linear(x, layer.weight, layer.bias)
            y[..., 32:48] = 0
            return y

        layer.forward = forward

    found = cause_of(reference, plant)
    assert (found.id, "not even the bias" in found.evidence) == ("kernel_rows", True), found


def test_a_product_in_bfloat16_is_a_cast(reference: LlamaForCausalLM) -> None:
    def plant(model: Any) -> None:
        layer = model.model.layers[0].self_attn.q_proj
        layer.forward = lambda x: (x.bfloat16() @ layer.weight.bfloat16().T).float()

    found = cause_of(reference, plant)
    assert (found.id, "multiplies in bfloat16" in found.evidence) == ("cast", True), found

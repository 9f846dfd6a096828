"""Held-out faults of weights, how they are cut, rounded, ordered, loaded, and of their kernels."""

from __future__ import annotations

from typing import Any

import torch

from tests.faults.changes import bias, changed_output, noise_like, swap_modules, weight
from tests.faults.held_out.steps import computing
from tests.faults.models import reference
from tests.faults.pair import Place, Plant

Tensor = torch.Tensor


def _plant(kind: str, name: str, archs: str, role: str, change: Any, **more: Any) -> Plant:
    values = {"cause": kind, **more}
    return Plant(
        kind=kind, name=name, archs=tuple(archs.split()), role=role, change=change, **values
    )


def _zeroed(start: int, stop: int | None, axis: int) -> Any:
    """Zero a slice of a weight's rows (axis 0) or columns (axis 1)."""

    def change(w: Tensor) -> Tensor:
        size = w.shape[axis]
        first = start % size
        w.narrow(axis, first, (stop or size) - first).zero_()
        return w

    return weight(change)


def _exchanged(one: slice, other: slice, axis: int = 0) -> Any:
    def change(w: Tensor) -> Tensor:
        found = w.clone().transpose(0, axis)
        source = w.transpose(0, axis)
        found[one], found[other] = source[other], source[one]
        return found.transpose(0, axis)

    return weight(change)


def _rolled(by: int, axis: int) -> Any:
    return weight(lambda w: w.roll(by, axis))


def _halves_interleaved(axis: int) -> Any:
    """Shards of two ranks, joined row by row instead of one after the other."""
    return weight(lambda w: torch.stack(w.chunk(2, axis), axis + 1).flatten(axis, axis + 1))


def _first_shard_twice(axis: int) -> Any:
    return weight(lambda w: torch.cat([w.chunk(2, axis)[0]] * 2, axis))


def _int4(*, zero: float, group: int = 16) -> Any:
    """Round groups of columns to 4 bits, and read them back with another zero point."""

    def change(w: Tensor) -> Tensor:
        g = w.reshape(-1, group)
        low = g.amin(1, keepdim=True)
        step = (g.amax(1, keepdim=True) - low) / 15
        codes = ((g - low) / step).round()
        return ((codes + zero) * step + low).reshape(w.shape)

    return weight(change)


def _int8(w: Tensor) -> Tensor:
    step = w.abs().max() / 127
    return (w / step).round().clamp(-127, 127) * step


def _int8_clipped(w: Tensor) -> Tensor:
    step = w.abs().max() / 255
    return (w / step).round().clamp(-127, 127) * step


def _scales_of_next_row(w: Tensor) -> Tensor:
    step = w.abs().amax(1, keepdim=True) / 127
    return (w / step).round() * step.roll(1, 0)


def _fp8_without_scale(w: Tensor) -> Tensor:
    return (w * 16).to(torch.float8_e4m3fn).to(w.dtype)


def _nibbles_exchanged(w: Tensor) -> Tensor:
    return w.reshape(w.shape[0], -1, 2).flip(2).reshape(w.shape)


def _one_bit(w: Tensor) -> Tensor:
    w[3, 7] = w[3, 7] * 64
    return w


def _one_element_lost(w: Tensor) -> Tensor:
    w[1, 2] = 0.0
    return w


def _adapter_twice(w: Tensor) -> Tensor:
    one, two = noise_like(w[:, :2], seed=5), noise_like(w[:2], seed=6)
    return w + one @ two


def _of_part(arch: str, path: str) -> Any:
    """Load the weight of another part of the reference, by its path."""
    return lambda module: weight(lambda _: reference(arch).get_parameter(path).detach().clone())(
        module
    )


def _row_of(token: int, change: Any) -> Any:
    def of(w: Tensor) -> Tensor:
        w[token] = change(w[token])
        return w

    return weight(of)


def _linear(compute: Any) -> Any:
    """Replace the product of a projection: `compute(x, weight [out, in])`, the bias apart."""

    def forward(self: Any, x: Tensor) -> Tensor:
        y = compute(x, self.weight)
        return y if self.bias is None else y + self.bias

    return computing(forward)


def _tail_of_sum_lost(x: Tensor, w: Tensor) -> Tensor:
    """Sum whole tiles of 10 only."""
    whole = w.shape[1] // 10 * 10
    return x[..., :whole] @ w[:, :whole].T


def _sum_in_bfloat16(x: Tensor, w: Tensor) -> Tensor:
    return (x.bfloat16() @ w.bfloat16().T).to(x.dtype)


def _sum_in_steps(x: Tensor, w: Tensor) -> Tensor:
    """Round the running sum after each 8 columns."""
    total = torch.zeros(*x.shape[:-1], w.shape[0])
    for start in range(0, w.shape[1], 8):
        part = x[..., start : start + 8].float() @ w[:, start : start + 8].float().T
        total = (total + part).to(torch.bfloat16).float()
    return total.to(x.dtype)


def _columns_lost(y: Tensor) -> Tensor:
    found = y.clone()
    found[..., 16:24] = 0.0
    return found


def _every_fourth_token(y: Tensor) -> Tensor:
    found = y.clone()
    found[:, 3::4] = found[:, 2::4][:, : found[:, 3::4].shape[1]]
    return found


def _late_tokens_of_tile(y: Tensor) -> Tensor:
    """Tokens from 8 on get the columns of the next tile."""
    found = y.clone()
    found[:, 8:, :16] = y[:, 8:, 16:32]
    return found


def _last_token_of_prompt(y: Tensor) -> Tensor:
    if y.shape[1] == 1:
        return y
    found = y.clone()
    found[:, -1] *= 0.5
    return found


def _wrong_gemv(y: Tensor) -> Tensor:
    return y * 1.25 if y.shape[1] == 1 else y


def _second_row_of_first(y: Tensor) -> Tensor:
    found = y.clone()
    found[1:, :, :8] = y[:1, :, :8]
    return found


STEP1 = Place(step=1)
PLANTS = (
    _plant("shard", "last_row_lost", "llama olmo2", "q", _zeroed(-1, None, 0)),
    _plant("shard", "last_row_lost", "qwen3 cohere", "down", _zeroed(-1, None, 0), layer=2),
    _plant("shard", "last_column_lost", "starcoder2 bert", "o", _zeroed(-1, None, 1), layer=0),
    _plant("shard", "first_shard_twice", "phi3 gemma2", "o", _first_shard_twice(1)),
    _plant("shard", "rows_of_ranks_interleaved", "granite llama3", "up", _halves_interleaved(0)),
    _plant("shard", "columns_of_ranks_interleaved", "qwen2 glm4_moe", "o", _halves_interleaved(1)),
    _plant("shard", "second_half_lost", "starcoder2", "up", _zeroed(24, None, 0), layer=2),
    _plant("shard", "vocabulary_shifted", "llama qwen3", "embed", _rolled(1, 0)),
    _plant("shard", "vocabulary_shifted", "phi3 granite", "head", _rolled(-1, 0)),
    _plant("shard", "vocabulary_tail_lost", "olmo2 gemma3", "head", _zeroed(56, None, 0)),
    _plant("permutation", "two_heads", "llama", "q",
           _exchanged(slice(0, 16), slice(16, 32))),
    _plant("permutation", "column_blocks", "gemma3 qwen2", "o",
           _exchanged(slice(0, 16), slice(32, 48), 1), layer=2),
    _plant("permutation", "query_and_key_parts", "gpt2", "qkv",
           _exchanged(slice(0, 32), slice(32, 64), 1)),
    _plant("permutation", "key_and_value_parts", "phi3", "qkv",
           _exchanged(slice(64, 96), slice(96, 128))),
    _plant("permutation", "gate_and_up_parts", "phi3", "gate_up",
           _exchanged(slice(0, 48), slice(48, 96)), layer=0),
    _plant("permutation", "one_pair_of_rows", "bloom", "down",
           _exchanged(slice(4, 5), slice(5, 6)), layer=2),
    _plant("permutation", "bloom_parts_not_heads", "bloom", "qkv",
           weight(lambda w: w.view(4, 3, 8, 32).transpose(0, 1).reshape(96, 32))),
    _plant("permutation", "hidden_rolled", "cohere", "embed", _rolled(1, 1)),
    _plant("transpose", "values", "llama_square bert", "v", weight(lambda w: w.T), layer=2),
    _plant("transpose", "output", "gpt2 bloom", "o", weight(lambda w: w.T), layer=0),
    _plant("quantization", "int4_zero_off", "llama olmo2", "gate", _int4(zero=1.0)),
    _plant("quantization", "int4_zero_half_off", "qwen2", "o", _int4(zero=0.5), layer=2),
    _plant("quantization", "int4", "starcoder2 cohere", "k", _int4(zero=0.0), layer=0),
    _plant("quantization", "int8", "phi3", "gate_up", weight(_int8)),
    _plant("quantization", "int8_clipped", "gemma2", "down", weight(_int8_clipped)),
    _plant("quantization", "scales_of_next_row", "qwen3 granite", "v",
           weight(_scales_of_next_row)),
    _plant("quantization", "fp8_without_scale", "glm4_moe", "q", weight(_fp8_without_scale)),
    _plant("quantization", "nibbles_exchanged", "llama3 bert", "up", weight(_nibbles_exchanged),
           layer=2),
    _plant("quantization", "head_in_int8", "gpt2", "head", weight(_int8)),
    _plant("cast", "weight_in_bfloat16", "llama qwen3", "k",
           weight(lambda w: w.bfloat16().float())),
    _plant("cast", "product_in_bfloat16", "olmo2 starcoder2", "down", _linear(_sum_in_bfloat16),
           layer=2),
    _plant("cast", "sum_in_bfloat16", "llama@bfloat16 gemma2@bfloat16", "down",
           _linear(_sum_in_steps), subtle=True),
    _plant("weights", "one_bit", "llama", "up", weight(_one_bit)),
    _plant("weights", "one_bit", "cohere", "o", weight(_one_bit), layer=2),
    _plant("weights", "one_element_lost", "qwen3 gpt2", "down", weight(_one_element_lost)),
    _plant("weights", "adapter_left_in", "qwen2 phi3", "o", weight(_adapter_twice)),
    _plant("weights", "one_token", "llama olmo2", "embed", _row_of(9, torch.zeros_like)),
    _plant("weights", "one_token_of_head", "qwen3", "head", _row_of(33, torch.neg)),
    _plant("weights", "norm_of_other_layer", "llama", "norm1",
           _of_part("llama", "model.layers.0.input_layernorm.weight")),
    _plant("weights", "norm_of_other_layer", "gemma3", "pre_norm",
           _of_part("gemma3", "model.layers.2.pre_feedforward_layernorm.weight")),
    _plant("weights", "norm_of_attention", "olmo2", "post_norm",
           _of_part("olmo2", "model.layers.1.post_attention_layernorm.weight")),
    _plant("weights", "norm_of_keys", "qwen3", "q_norm",
           _of_part("qwen3", "model.layers.1.self_attn.k_norm.weight")),
    _plant("weights", "keys_of_other_layer", "cohere", "k",
           _of_part("cohere", "model.layers.0.self_attn.k_proj.weight"), layer=2),
    _plant("weights", "values_of_keys", "starcoder2", "v",
           _of_part("starcoder2", "model.layers.1.self_attn.k_proj.weight")),
    _plant("weights", "gate_of_up", "granite", "gate",
           _of_part("granite", "model.layers.1.mlp.up_proj.weight")),
    _plant("weights", "norm_not_loaded", "starcoder2 bloom", "norm2", weight(torch.ones_like)),
    _plant("weights", "final_norm_not_loaded", "cohere", "norm", weight(torch.ones_like)),
    _plant("weights", "layers_exchanged", "llama", "norm1",
           swap_modules("model.layers.1", "model.layers.2"), at="root", also=("layer",)),
    _plant("weights", "layers_exchanged", "gpt2", "norm1",
           swap_modules("transformer.h.0", "transformer.h.1"), at="root", also=("layer",), layer=0),
    _plant("weights", "mlps_exchanged", "olmo2", "gate",
           swap_modules("model.layers.0.mlp", "model.layers.1.mlp"), at="root", also=("mlp",),
           layer=0),
    _plant("weights", "norms_exchanged", "gemma2", "norm1", at="root",
           change=swap_modules("model.layers.2.input_layernorm",
                            "model.layers.2.pre_feedforward_layernorm"), layer=2),
    _plant("weights", "gate_and_up_exchanged", "qwen2", "gate", at="root", also=("mlp",),
           change=swap_modules("model.layers.1.mlp.gate_proj", "model.layers.1.mlp.up_proj")),
    _plant("weights", "query_and_key_exchanged", "bert", "q", at="root",
           change=swap_modules("encoder.layer.1.attention.self.query",
                            "encoder.layer.1.attention.self.key")),
    _plant("weights", "shared_expert_scaled", "glm4_moe", "shared",
           weight(lambda w: w * 0.5)),
    _plant("tied_weights", "head_of_embedding", "llama", "head",
           _of_part("llama", "model.embed_tokens.weight")),
    _plant("tied_weights", "head_of_old_embedding", "cohere", "head",
           weight(lambda w: w + 0.1 * noise_like(w))),
    _plant("tied_weights", "embedding_of_head", "phi3", "embed",
           _of_part("phi3", "lm_head.weight")),
    _plant("bias", "dropped", "starcoder2", "up", bias(torch.zeros_like)),
    _plant("bias", "dropped", "starcoder2", "norm1", bias(torch.zeros_like), layer=2),
    _plant("bias", "of_values_dropped", "bert", "v", bias(torch.zeros_like), layer=0),
    _plant("bias", "on_each_rank", "starcoder2 gpt2", "o", bias(lambda b: b * 2)),
    _plant("bias", "on_each_rank", "bert", "down", bias(lambda b: b * 2), layer=2),
    _plant("bias", "of_queries_rolled", "qwen2", "q", bias(lambda b: b.roll(16))),
    _plant("bias", "halves_exchanged", "bloom", "qkv", bias(lambda b: b.roll(48))),
    _plant("bias", "negative", "gpt2", "up", bias(lambda b: -b), layer=2),
    _plant("bias", "of_final_norm_dropped", "starcoder2", "norm", bias(torch.zeros_like)),
    _plant("kernel_rows", "every_fourth_token", "llama phi3", "o",
           changed_output(_every_fourth_token)),
    _plant("kernel_rows", "columns_lost", "cohere", "v", changed_output(_columns_lost)),
    _plant("kernel_rows", "columns_lost", "starcoder2", "up", changed_output(_columns_lost)),
    _plant("kernel_rows", "late_tokens_of_tile", "olmo2 granite", "q",
           changed_output(_late_tokens_of_tile), layer=0),
    _plant("kernel_rows", "last_token_of_prompt", "qwen3", "up",
           changed_output(_last_token_of_prompt)),
    _plant("kernel_rows", "tail_of_sum_lost", "qwen2 llama3", "down", _linear(_tail_of_sum_lost)),
    _plant("kernel_rows", "decode_product", "llama gemma3", "gate", changed_output(_wrong_gemv),
           place=STEP1),
    _plant("kernel_rows", "decode_head", "phi3", "head", changed_output(_wrong_gemv),
           place=STEP1),
    _plant("kernel_rows", "second_row_of_first", "granite", "k",
           changed_output(_second_row_of_first), place=Place(row=1)),
    _plant("batch_order", "rows_exchanged", "llama bert", "v", changed_output(lambda y: y.flip(0)),
           cause="unknown"),
    _plant("batch_order", "rows_exchanged", "olmo2", "mlp", changed_output(lambda y: y.flip(0)),
           cause="unknown", layer=2),
    _plant("batch_order", "tokens_rolled", "starcoder2", "k",
           changed_output(lambda y: y.roll(1, 1)), cause="unknown"),
    _plant("batch_order", "tokens_rolled", "gemma2", "down",
           changed_output(lambda y: y.roll(1, 1)), cause="unknown", layer=0),
)  # fmt: skip

"""Faults of weights: loaded, mapped, cut, quantized or shared wrongly."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tests.faults.changes import (
    bias,
    noise_like,
    swap_modules,
    swap_weights,
    weight,
)
from tests.faults.models import SIZES
from tests.faults.own_attention import replace_forward
from tests.faults.pair import Plant

HEAD = SIZES["head_dim"]


def _row(number: int, factor: float) -> Any:
    def change(w: torch.Tensor) -> torch.Tensor:
        w[number] *= factor
        return w

    return change


def _element(w: torch.Tensor) -> torch.Tensor:
    w[3, 5] += 0.5
    return w


def _swap_rows(w: torch.Tensor) -> torch.Tensor:
    return w[[1, 0, *range(2, len(w))]]


def _reverse_rows(w: torch.Tensor) -> torch.Tensor:
    return w.flip(0)


def _roll_columns(w: torch.Tensor) -> torch.Tensor:
    return w.roll(1, dims=1)


def _interleave_halves(w: torch.Tensor) -> torch.Tensor:
    """Order each head's rows for rotation by pairs, [N * D, H]."""
    return w.view(-1, 2, HEAD // 2, w.shape[1]).transpose(1, 2).reshape(w.shape)


def _swap_heads(w: torch.Tensor) -> torch.Tensor:
    heads = w.view(-1, HEAD, w.shape[1])
    return heads[[1, 0, *range(2, len(heads))]].reshape(w.shape)


def _transpose(w: torch.Tensor) -> torch.Tensor:
    return w.T


def _quantize(bits: int, *, axis: int | None) -> Any:
    """Round to integers of some bits, with one scale a row or one in all."""

    def change(w: torch.Tensor) -> torch.Tensor:
        top = 2 ** (bits - 1) - 1
        peak = w.abs().max() if axis is None else w.abs().amax(dim=axis, keepdim=True)
        return (w * top / peak).round() * peak / top

    return change


def _wrong_scales(w: torch.Tensor) -> torch.Tensor:
    """Use each group's scale for its neighbour: groups of 16 along the input."""
    groups = w.view(w.shape[0], -1, 16)
    peak = groups.abs().amax(dim=-1, keepdim=True)
    return (groups / peak * peak.roll(1, dims=1)).reshape(w.shape)


def _fp8(w: torch.Tensor) -> torch.Tensor:
    return w.to(torch.float8_e4m3fn).to(w.dtype)


def _fp8_without_scale(w: torch.Tensor) -> torch.Tensor:
    """Let small weights fall below what fp8 can hold, as without a scale."""
    return (w * 0.02).to(torch.float8_e4m3fn).to(w.dtype) / 0.02


def _zero_half_input(w: torch.Tensor) -> torch.Tensor:
    """Leave out the partial sum of the second rank."""
    w[:, w.shape[1] // 2 :] = 0
    return w


def _swap_shards(w: torch.Tensor) -> torch.Tensor:
    return torch.cat(w.chunk(2, dim=0)[::-1])


def _one_shard_twice(w: torch.Tensor) -> torch.Tensor:
    return torch.cat([w.chunk(2, dim=0)[0]] * 2)


def _doubled(module: Any) -> None:
    """All-reduce over two ranks what each had in full."""
    usual = module.forward
    replace_forward(module, lambda self, x: usual(x) + usual(x))


def _bias_on_each_rank(module: Any) -> None:
    usual = module.forward
    replace_forward(module, lambda self, x: usual(x) + self.bias)


def _tie_head(root: Any) -> None:
    root.lm_head.weight = torch.nn.Parameter(root.get_input_embeddings().weight.detach().clone())


def _no_bias(b: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(b)


def _fused_by_group_read_in_blocks(module: Any) -> None:
    """Read [q q k v] x 2 as [q q q q | k k | v v], heads as rows."""
    parts = [p.weight.detach().view(-1, HEAD, p.weight.shape[1]) for p in _projections(module)]
    q, k, v = parts
    fused = torch.cat([q[:2], k[:1], v[:1], q[2:], k[1:], v[1:]])
    for projection, heads in zip(_projections(module), fused.split([4, 2, 2]), strict=True):
        projection.weight.copy_(heads.reshape(projection.weight.shape))


def _fused_by_head_read_in_blocks(module: Any) -> None:
    """Read BLOOM's [q k v] x heads as [q q q q | k k k k | v v v v]."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = F.linear(x, self.weight, self.bias)  # [B, S, 3 * H]
        blocks = y.view(*y.shape[:-1], 3, 4, -1)
        return blocks.transpose(-3, -2).reshape(y.shape)

    replace_forward(module, forward)


def _swap_group_axes(w: torch.Tensor) -> torch.Tensor:
    """Read columns of kv groups by their queries as queries by their groups, [H, N * D]."""
    return w.view(w.shape[0], 2, -1, HEAD).transpose(1, 2).reshape(w.shape)


def _projections(module: Any) -> tuple[Any, Any, Any]:
    return module.q_proj, module.k_proj, module.v_proj


def _swap_gate_and_up(module: Any) -> None:
    gate, up = module.gate_proj.weight, module.up_proj.weight
    held = gate.detach().clone()
    gate.copy_(up)
    up.copy_(held)


def _swap_layers(body: Any) -> None:
    """Load the weights of layer 2 into layer 1, and the other way round."""
    layers = body.h if hasattr(body, "h") else body.layers
    for first, second in zip(layers[1].parameters(), layers[2].parameters(), strict=True):
        held = first.detach().clone()
        first.copy_(second)
        second.copy_(held)


def _swap_expert_halves(w: torch.Tensor) -> torch.Tensor:
    """Take gate for up, [E, 2 * I, H]."""
    return torch.cat(w.chunk(2, dim=1)[::-1], dim=1)


def _swap_experts(w: torch.Tensor) -> torch.Tensor:
    return w[[1, 0, *range(2, len(w))]]


# A table, a fault a paragraph.
# fmt: off
PLANTS: tuple[Plant, ...] = (
    # bias
    Plant(kind="bias", name="q_missing", archs=("qwen2",), role="q", change=bias(_no_bias),
          cause="bias"),
    Plant(kind="bias", name="v_missing", archs=("qwen2", "bert"), role="v", change=bias(_no_bias),
          cause="bias"),
    Plant(kind="bias", name="k_doubled_first_layer", archs=("gpt2",), role="qkv", layer=0,
          change=bias(lambda b: b * 2), cause="bias"),
    Plant(kind="bias", name="down_missing", archs=("gpt2", "bloom", "bert"), role="down",
          change=bias(_no_bias), cause="bias"),
    Plant(kind="bias", name="o_negated", archs=("gpt2", "bert"), role="o",
          change=bias(lambda b: -b), cause="bias"),
    Plant(kind="bias", name="norm_bias_missing", archs=("gpt2", "bert"), role="norm1",
          change=bias(_no_bias), cause="bias"),
    # transpose
    Plant(kind="transpose", name="q", archs=("llama_square", "bert"), role="q",
          change=weight(_transpose), cause="transpose"),
    Plant(kind="transpose", name="o", archs=("llama_square", "gpt2", "bloom"), role="o", layer=0,
          change=weight(_transpose), cause="transpose"),
    Plant(kind="transpose", name="v", archs=("llama_square", "bert"), role="v", layer=2,
          change=weight(_transpose), cause="transpose"),
    # permutation
    Plant(kind="permutation", name="q_rows_for_pairs", archs=("llama", "qwen2"), role="q",
          change=weight(_interleave_halves), cause="permutation"),
    Plant(kind="permutation", name="k_heads_swapped", archs=("llama", "qwen3", "gemma3"),
          role="k", change=weight(_swap_heads), cause="permutation"),
    Plant(kind="permutation", name="up_rows_reversed", archs=("llama", "gemma2"), role="up",
          change=weight(_reverse_rows), cause="permutation"),
    Plant(kind="permutation", name="o_columns_rolled", archs=("llama", "granite"), role="o",
          change=weight(_roll_columns), cause="permutation"),
    Plant(kind="permutation", name="embedding_rows_rolled", archs=("llama", "gpt2"), role="embed",
          change=weight(lambda w: w.roll(1, dims=0)), cause="permutation"),
    # weights
    Plant(kind="weights", name="one_row_zero", archs=("llama", "gemma3"), role="down",
          change=weight(_row(7, 0.0)), cause="weights"),
    Plant(kind="weights", name="one_element", archs=("llama", "qwen3_moe", "bloom"), role="o",
          change=weight(_element), cause="weights"),
    Plant(kind="weights", name="two_rows_swapped", archs=("qwen3", "bert"), role="v",
          change=weight(_swap_rows), cause="weights"),
    Plant(kind="weights", name="never_loaded", archs=("llama", "qwen2"), role="up", layer=2,
          change=weight(noise_like), cause="weights"),
    Plant(kind="weights", name="norm_never_loaded", archs=("llama", "qwen3_moe"), role="norm2",
          change=weight(torch.ones_like), cause="weights"),
    Plant(kind="weights", name="final_norm_never_loaded", archs=("llama", "gpt2"), role="norm",
          change=weight(torch.ones_like), cause="weights"),
    Plant(kind="weights", name="q_norm_for_k_norm", archs=("qwen3", "gemma3"), role="q_norm",
          at="attn", cause="weights", change=swap_weights("q_norm.weight", "k_norm.weight")),
    Plant(kind="weights", name="two_layers_swapped", archs=("llama", "granite"), role="up",
          at="root", cause="weights",
          change=swap_modules("model.layers.1.mlp.up_proj", "model.layers.2.mlp.up_proj")),
    Plant(kind="weights", name="whole_layers_swapped", archs=("qwen2", "gpt2"), role="norm1",
          at="top", change=_swap_layers, cause="weights"),
    Plant(kind="weights", name="gate_and_up_swapped", archs=("llama", "gemma3"), role="gate",
          at="mlp", change=_swap_gate_and_up, cause="weights"),
    Plant(kind="weights", name="one_token_embedding", archs=("llama", "qwen3", "gpt2"),
          role="embed", change=weight(_row(9, -1.0)), cause="weights"),
    Plant(kind="weights", name="expert_halves_swapped", archs=("qwen3_moe", "glm4_moe"),
          role="experts", change=weight(_swap_expert_halves, "gate_up_proj"), cause="weights",
          also=("mlp",)),
    Plant(kind="weights", name="two_experts_swapped", archs=("qwen3_moe",), role="experts",
          change=weight(_swap_experts, "down_proj"), cause="weights", also=("mlp",)),
    # tied_weights
    Plant(kind="tied_weights", name="head_not_loaded", archs=("gemma3", "gpt2", "bloom"),
          role="head", change=weight(noise_like), cause="tied_weights"),
    Plant(kind="tied_weights", name="head_tied_though_own", archs=("llama", "qwen3"), role="head",
          at="root", change=_tie_head, cause="tied_weights"),
    # quantization
    Plant(kind="quantization", name="int8", archs=("llama", "gpt2"), role="down",
          change=weight(_quantize(8, axis=1)), cause="quantization"),
    Plant(kind="quantization", name="int4", archs=("llama", "qwen3"), role="q",
          change=weight(_quantize(4, axis=1)), cause="quantization"),
    Plant(kind="quantization", name="one_scale_in_all", archs=("gemma3",), role="o",
          change=weight(_quantize(8, axis=None)), cause="quantization"),
    Plant(kind="quantization", name="scales_of_the_neighbour", archs=("llama", "qwen2"),
          role="up", change=weight(_wrong_scales), cause="quantization"),
    Plant(kind="quantization", name="fp8", archs=("llama", "bert"), role="v",
          change=weight(_fp8), cause="quantization"),
    Plant(kind="quantization", name="fp8_without_scale", archs=("llama",), role="gate",
          change=weight(_fp8_without_scale), cause="quantization"),
    # shard
    Plant(kind="shard", name="mlp_doubled", archs=("llama", "granite", "gpt2"), role="down",
          change=_doubled, cause="shard"),
    Plant(kind="shard", name="o_doubled", archs=("llama", "qwen3_moe"), role="o", layer=0,
          change=_doubled, cause="shard"),
    Plant(kind="shard", name="down_never_reduced", archs=("llama", "gemma3"), role="down",
          change=weight(_zero_half_input), cause="shard"),
    Plant(kind="shard", name="o_never_reduced", archs=("qwen3", "bloom"), role="o", layer=0,
          change=weight(_zero_half_input), cause="shard"),
    Plant(kind="shard", name="columns_in_wrong_order", archs=("llama", "qwen2"), role="up",
          change=weight(_swap_shards), cause="shard"),
    Plant(kind="shard", name="embedding_shards_swapped", archs=("llama",), role="embed",
          change=weight(_swap_shards), cause="shard"),
    Plant(kind="shard", name="first_shard_twice", archs=("llama", "qwen3"), role="k",
          change=weight(_one_shard_twice), cause="shard"),
    Plant(kind="shard", name="bias_on_each_rank", archs=("gpt2", "bert"), role="down",
          change=_bias_on_each_rank, cause="shard"),
    # gqa_order, as far as weights are concerned
    Plant(kind="gqa_order", name="groups_read_in_blocks", archs=("llama", "granite"), role="q",
          at="attn", change=_fused_by_group_read_in_blocks, cause="gqa_order"),
    Plant(kind="gqa_order", name="o_groups_swapped", archs=("llama", "qwen3"), role="o",
          change=weight(_swap_group_axes), cause="gqa_order"),
    Plant(kind="gqa_order", name="heads_read_in_blocks", archs=("bloom",), role="qkv",
          change=_fused_by_head_read_in_blocks, cause="gqa_order"),
)
# fmt: on

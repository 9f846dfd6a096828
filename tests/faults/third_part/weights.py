"""Faults of weights: order, shape, precision, shards, biases, ties, and the wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.faults.changes import Change, bias, changed_output, noise_like, weight
from tests.faults.own_attention import replace_forward
from tests.faults.third_part.planted import Planted, fault
from tests.faults.third_part.steps import Tensor, rounded


def _gone(b: Tensor) -> Tensor:
    return torch.zeros_like(b)


def _both(change: Callable[[Tensor], Tensor]) -> Change:
    """Change weight and bias alike, along their first axis."""

    def apply(module: Any) -> None:
        weight(change)(module)
        if getattr(module, "bias", None) is not None:
            bias(change)(module)

    return apply


BIASES: tuple[Planted, ...] = (
    fault("bias", "of_keys", "qwen2_odd/F", "k", bias(_gone)),
    fault("bias", "of_values", "stablelm/S", "v", bias(_gone), all_layers=True),
    fault("bias", "of_mlp", "phi/P", "down", bias(_gone), layer=2),
    fault("bias", "of_experts", "gpt_oss/R", "experts", weight(_gone, "down_proj_bias")),
    fault("bias", "of_head", "gptj/X", "head", bias(_gone)),
    fault("bias", "of_norm", "roberta/P", "norm1", bias(_gone), layer=2),
)

TRANSPOSED: tuple[Planted, ...] = (
    fault("transpose", "down", "llama_equal/S", "down", weight(lambda w: w.T)),
    fault("transpose", "keys", "opt/R", "k", weight(lambda w: w.T), layer=2),
    fault("transpose", "dense", "persimmon/P", "o", weight(lambda w: w.T), all_layers=True),
    fault("transpose", "queries", "stablelm/F", "q", weight(lambda w: w.T), layer=0),
    fault("transpose", "projection", "electra/R", "o", weight(lambda w: w.T)),
)


def _one_after_the_other(groups: int, parts: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    """Sort rows of a fused projection by part, for code that wants them by group."""

    def change(w: Tensor) -> Tensor:
        grouped = w.view(groups, -1, *w.shape[1:])
        sorted_rows = [part.flatten(0, 1) for part in grouped.split(parts, dim=1)]
        return torch.cat(sorted_rows)

    return change


def _rows_for_neighbours(heads: int) -> Callable[[Tensor], Tensor]:
    """Sort each head's rows for a rotation of neighbours, as converters do for it."""

    def change(w: Tensor) -> Tensor:
        halves = w.view(heads, 2, -1, *w.shape[1:])
        return halves.transpose(1, 2).reshape(w.shape)

    return change


def _heads_from_the_end(size: int) -> Callable[[Tensor], Tensor]:
    """Take columns head by head from the last."""
    return lambda w: w.view(w.shape[0], -1, size).flip(1).flatten(1)


def _experts_rotated(module: Any) -> None:
    for name in ("gate_up_proj", "down_proj"):
        weight(lambda w: w.roll(1, 0), name)(module)


def _halves_swapped(w: Tensor) -> Tensor:
    return torch.cat(w.chunk(2)[::-1])


ORDERS: tuple[Planted, ...] = (
    fault("permutation", "fused_by_part", "falcon/P", "qkv",
          _both(_one_after_the_other(3, (18, 6, 6)))),
    fault("permutation", "fused_by_part", "gpt_neox/S", "qkv",
          _both(_one_after_the_other(5, (12, 12, 12))), all_layers=True),
    fault("permutation", "queries_for_neighbours", "mistral/F", "q",
          weight(_rows_for_neighbours(6)), all_layers=True),
    fault("permutation", "keys_for_other_count_of_heads", "exaone4/R", "k",
          weight(_rows_for_neighbours(6))),
    fault("permutation", "up_before_gate", "glm4/P", "gate_up", weight(_halves_swapped), layer=0),
    fault("permutation", "experts", "olmoe/P", "experts", _experts_rotated),
    fault("permutation", "heads_of_output", "qwen2_odd/L", "o", weight(_heads_from_the_end(10))),
)  # fmt: skip


def _coded(w: Tensor, *, levels: int, group: int, zero: float = 0.0, shift: int = 0) -> Tensor:
    """Code a weight [N, K] in groups of a row, and read the codes with other zeros or scales."""
    grouped = w.reshape(w.shape[0], -1, group)
    low, high = grouped.amin(-1, keepdim=True), grouped.amax(-1, keepdim=True)
    scale = (high - low) / (levels - 1)
    codes = ((grouped - low) / scale).round()
    read = (codes + zero) * scale.roll(shift, 1) + low
    return read.reshape(w.shape)


def _eight_bits_of_columns(w: Tensor) -> Tensor:
    """Code by the scales of rows, and read by those of columns, [N, N]."""
    rows, columns = (w.abs().amax(axis, keepdim=True) / 127 for axis in (1, 0))
    return (w / rows).round() * columns


def _float8(w: Tensor) -> Tensor:
    scale = w.abs().max() / 448
    return (w / scale).to(torch.float8_e4m3fn).float() * scale


QUANTIZED: tuple[Planted, ...] = (
    fault("quantization", "zero_point_off_by_one", "mistral/P", "down",
          weight(lambda w: _coded(w, levels=16, group=9, zero=1.0))),
    fault("quantization", "scales_of_next_group", "granite_odd/S", "down",
          weight(lambda w: _coded(w, levels=16, group=9, shift=-1)), layer=2),
    fault("quantization", "float8", "phi/R", "up", weight(_float8)),
    fault("quantization", "scales_of_columns", "falcon/F", "o", weight(_eight_bits_of_columns)),
    fault("quantization", "four_bits", "arcee/P", "down",
          weight(lambda w: _coded(w, levels=16, group=73)), all_layers=True),
)  # fmt: skip


def _own(tensor: Tensor) -> Tensor:
    return noise_like(tensor, seed=23)


def _tied(embedding: str, head: str) -> Change:
    def apply(root: Any) -> None:
        root.get_submodule(head).weight = root.get_submodule(embedding).weight

    return apply


TIES: tuple[Planted, ...] = (
    fault("tied_weights", "head_of_its_own", "llama_tied/P", "head", weight(_own)),
    fault("tied_weights", "head_of_its_own", "cohere2/S", "head", weight(_own)),
    fault("tied_weights", "tied_wrongly", "gpt_neox/R", "head",
          _tied("gpt_neox.embed_in", "embed_out"), at="root"),
    fault("tied_weights", "tied_wrongly", "nemotron/P", "head",
          _tied("model.embed_tokens", "lm_head"), at="root"),
)  # fmt: skip


def _from(source: str, target: str) -> Change:
    """Load the weights of one module into another."""

    def apply(root: Any) -> None:
        one, other = root.get_submodule(source), root.get_submodule(target)
        other.load_state_dict(one.state_dict())

    return apply


def _exchanged(one: str, other: str) -> Change:
    def apply(root: Any) -> None:
        first, second = root.get_submodule(one), root.get_submodule(other)
        held = {name: value.clone() for name, value in first.state_dict().items()}
        first.load_state_dict(second.state_dict())
        second.load_state_dict(held)

    return apply


def _fine_tuned(w: Tensor) -> Tensor:
    """Leave out an update of rank two."""
    generator = torch.Generator().manual_seed(31)
    a = torch.randn(w.shape[0], 2, generator=generator)
    return w - 0.05 * a @ torch.randn(2, w.shape[1], generator=generator)


WRONG: tuple[Planted, ...] = (
    fault("weights", "of_layer_before", "qwen2_odd/P", "up",
          _from("model.layers.1.mlp.up_proj", "model.layers.2.mlp.up_proj"), at="root", layer=2),
    fault("weights", "norm_never_loaded", "smollm3/R", "norm2", weight(torch.ones_like), layer=3),
    fault("weights", "keys_and_values_exchanged", "glm4/P", "k",
          _exchanged("model.layers.1.self_attn.k_proj", "model.layers.1.self_attn.v_proj"),
          at="root"),
    fault("weights", "never_loaded", "persimmon/X", "down", weight(lambda w: _own(w) * 0.07)),
    fault("weights", "update_left_out", "distilbert/P", "o", weight(_fine_tuned)),
    fault("weights", "whole_layer_of_before", "ernie4_5/L", "norm1",
          _from("model.layers.1", "model.layers.2"), at="root", layer=2),
    fault("weights", "latent_of_layer_before", "deepseek_v3/F", "kv_b",
          _from("model.layers.1.self_attn.kv_b_proj", "model.layers.2.self_attn.kv_b_proj"),
          at="root", layer=2),
)  # fmt: skip


def _first_shard_again(count: int) -> Callable[[Tensor], Tensor]:
    """Let the last rank load what the first does."""

    def change(w: Tensor) -> Tensor:
        shards = list(w.chunk(count))
        shards[-1] = shards[0]
        return torch.cat(shards)

    return change


def _not_reduced(count: int) -> Change:
    """Take the first rank's part of a sum for the sum."""

    def apply(module: Any) -> None:
        def forward(self: Any, x: Tensor) -> Tensor:
            size = x.shape[-1] // count
            return torch.nn.functional.linear(x[..., :size], self.weight[:, :size], self.bias)

        replace_forward(module, forward)

    return apply


def _first_rows_only(module: Any) -> None:
    """Look up tokens in the first rank's rows alone; the others' are zero."""
    half = module.num_embeddings // 2
    usual = module.forward
    replace_forward(module, lambda self, ids: usual(ids) * (ids < half)[..., None])


SHARDS: tuple[Planted, ...] = (
    fault("shard", "first_again", "llama_odd/S", "gate", weight(_first_shard_again(2))),
    fault("shard", "not_reduced", "qwen3_odd/P", "o", _not_reduced(3), all_layers=True),
    fault("shard", "not_reduced", "helium/F", "down", _not_reduced(2), layer=0),
    fault("shard", "first_again", "phi/R", "up", _both(_first_shard_again(2)), layer=2),
    fault("shard", "first_again_of_three", "mistral/L", "v", weight(_first_shard_again(3)),
          all_layers=True),
    fault("shard", "rows_of_first_only", "roberta/P", "embed", _first_rows_only),
)  # fmt: skip

ROUNDED: tuple[Planted, ...] = (
    fault("cast", "head_in_bfloat16", "llama_tied/F", "head",
          changed_output(rounded(torch.bfloat16))),
)  # fmt: skip

PLANTS: tuple[Planted, ...] = (
    *BIASES, *TRANSPOSED, *ORDERS, *QUANTIZED, *TIES, *WRONG, *SHARDS, *ROUNDED
)  # fmt: skip

"""Faults inside of attention: scale, caps, clips, masks, windows, padding, groups, cache."""

from __future__ import annotations

from typing import Any

import torch

from tests.faults.changes import attribute
from tests.faults.own_attention import change_attention, replace_forward
from tests.faults.pair import Place
from tests.faults.third_part.planted import Planted, fault
from tests.faults.third_part.steps import (
    Tensor,
    configured,
    hiding,
    masking,
    remembering,
    showing,
    within,
)

DECODED = Place(step=1)


def _scaling(value: float) -> Any:
    return attribute(scaling=value)


SCALES: tuple[Planted, ...] = (
    fault("scale", "hidden_by_heads", "llama_odd/P", "attn", _scaling(10**-0.5), all_layers=True),
    fault("scale", "head_dim_for_scalar", "gemma2_odd/F", "attn", _scaling(10**-0.5), layer=2),
    fault("scale", "multiplier_and_root", "granite_odd/R", "attn", _scaling(0.15 * 8**-0.5)),
)


def _clamp_no_values(usual: Any, module: Any, hidden: Tensor) -> Any:
    shape = (*hidden.shape[:-1], -1, module.head_dim)
    limit = module.config.clip_qkv
    q, k = (p(hidden).clamp(-limit, limit) for p in (module.q_proj, module.k_proj))
    parts = (q, k, module.v_proj(hidden))
    return tuple(part.view(shape).transpose(1, 2) for part in parts)


LIMITS: tuple[Planted, ...] = (
    fault("soft_cap", "left_out", "gemma2_odd/P", "attn",
          attribute(attn_logit_softcapping=None), all_layers=True),
    fault("soft_cap", "other_value", "vaultgemma/R", "attn",
          attribute(attn_logit_softcapping=8.0)),
    fault("soft_cap", "left_out_behind_head", "nanochat/S", "root",
          configured(final_logit_softcapping=None)),
    fault("soft_cap", "other_value_behind_head", "gemma2_odd/X", "root",
          configured(final_logit_softcapping=30.0)),
    fault("clip", "left_out", "olmo/P", "attn", configured(clip_qkv=None), at="root", layer=0),
    fault("clip", "queries_and_keys_only", "olmo/S", "attn",
          change_attention(project=_clamp_no_values)),
    fault("clip", "where_there_is_none", "olmoe/X", "attn", configured(clip_qkv=0.5),
          at="root", layer=0),
    fault("clip", "limit_of_another_model", "gpt_oss/R", "experts", attribute(limit=1.5), layer=2),
)  # fmt: skip


def _first_key_only(mask: Tensor) -> Tensor:
    """Align a causal mask at the top left: a decoded token sees the first key alone."""
    if mask.shape[-2] > 1:
        return mask
    first = ((mask == 0).cumsum(-1) == 1) & (mask == 0)
    return mask.masked_fill(~first, torch.finfo(mask.dtype).min)


def _weak_mask(module: Any) -> None:
    usual = module.forward

    def forward(_: Any, *args: Any, attention_mask: Any = None, **kwargs: Any) -> Any:
        return usual(*args, attention_mask=attention_mask.clamp(min=-4.0), **kwargs)

    replace_forward(module, forward)


def _built(change: Any, name: str = "create_causal_mask") -> Any:
    """Let the body build its mask another way."""

    def make(usual: Any) -> Any:
        return lambda *args, **kwargs: change(usual(*args, **kwargs))

    return within(**{name: make})


MASKS: tuple[Planted, ...] = (
    fault("mask", "both_ways", "llama_odd/F", "attn",
          masking(showing(lambda q, k: k >= 0)), all_layers=True),
    fault("mask", "next_token_seen", "gpt_neox/R", "attn",
          masking(showing(lambda q, k: k == q + 1)), layer=2),
    fault("mask", "token_itself_hidden", "arcee/P", "attn",
          masking(hiding(lambda q, k: (k == q) & (q > 0))), layer=1),
    fault("mask", "prefix_both_ways", "granite_odd/S", "top",
          _built(showing(lambda q, k: (q < 6) & (k < 6))), layer=0, also=("attn",)),
    fault("mask", "chunks", "qwen2_odd/X", "attn",
          masking(hiding(lambda q, k: k // 8 != q // 8)), all_layers=True),
    fault("mask", "too_weak", "falcon/P", "attn", _weak_mask),
    fault("mask", "decoded_sees_first_key", "smollm3/S", "attn", masking(_first_key_only),
          all_layers=True, place=DECODED),
)  # fmt: skip


def _swapped_layers(root: Any) -> None:
    """Shift the pattern of windows by a layer: the third is full, and the fourth has the window."""
    layers = root.model.layers
    masking(showing(lambda q, k: k <= q))(layers[2].self_attn)
    masking(hiding(lambda q, k: k <= q - 5))(layers[3].self_attn)


WINDOWS: tuple[Planted, ...] = (
    fault("sliding_window", "one_too_long", "mistral/P", "attn",
          masking(showing(lambda q, k: (k <= q) & (k > q - 6))), all_layers=True),
    fault("sliding_window", "left_out", "exaone4/F", "attn",
          masking(showing(lambda q, k: k <= q)), layer=1),
    fault("sliding_window", "on_full_layer", "gemma3_odd/S", "attn",
          masking(hiding(lambda q, k: k <= q - 5)), layer=5),
    fault("sliding_window", "pattern_shifted", "olmo3/R", "attn", _swapped_layers,
          at="root", layer=2),
    fault("sliding_window", "one_too_short", "gpt_oss/P", "attn",
          masking(hiding(lambda q, k: k <= q - 4)), layer=2),
)  # fmt: skip


def _seeing_padding(mask: Tensor) -> Tensor:
    length, total = mask.shape[-2:]
    later = torch.ones(length, total, dtype=torch.bool).triu(total - length + 1)
    return torch.zeros_like(mask).masked_fill(later, torch.finfo(mask.dtype).min)


def _hiding_first_token(mask: Tensor) -> Tensor:
    """Take rows that are padded for a token shorter than they are."""
    real = mask[:, :, -1:, :] == 0  # [B, 1, 1, T]
    first = real & (real.cumsum(-1) == 1) & ~real[..., :1]
    return mask.masked_fill(first, torch.finfo(mask.dtype).min)


def _without_row_mask(usual: Any) -> Any:
    return lambda *args, **kwargs: usual(*args, **{**kwargs, "attention_mask": None})


PADDING: tuple[Planted, ...] = (
    fault("padding", "keys_seen", "qwen3_odd/P", "attn", masking(_seeing_padding),
          all_layers=True, place=Place(row=1)),
    fault("padding", "seen_by_encoder", "roberta/R", "attn",
          masking(torch.zeros_like), all_layers=True, place=Place(row=1)),
    fault("padding", "no_mask_built", "distilbert/P", "top",
          within(create_bidirectional_mask=_without_row_mask), layer=0, also=("attn",)),
    fault("padding", "no_rows_in_mask", "gpt_bigcode/S", "top",
          within(create_causal_mask=_without_row_mask), layer=0, also=("attn",)),
    fault("padding", "first_token_taken_for_padding", "stablelm/F", "attn",
          masking(_hiding_first_token), all_layers=True, place=Place(row=1)),
)  # fmt: skip


def _in_turn(usual: Any) -> Any:
    """Let heads take the heads of keys in turn."""
    return lambda states, count: states.repeat(1, count, 1, 1)


GROUPS: tuple[Planted, ...] = (
    fault("gqa_order", "in_turn", "llama_odd/S", "attn", within(repeat_kv=_in_turn),
          all_layers=True),
    fault("gqa_order", "in_turn_by_three", "qwen3_odd/R", "attn", within(repeat_kv=_in_turn),
          layer=2),
    fault("gqa_order", "in_turn", "exaone4/P", "attn", within(repeat_kv=_in_turn),
          all_layers=True),
    fault("gqa_order", "in_turn", "gpt_oss/F", "attn", within(repeat_kv=_in_turn)),
    fault("gqa_order", "in_turn", "ernie4_5/X", "attn", within(repeat_kv=_in_turn),
          all_layers=True),
)  # fmt: skip


def _one_slot_too_early(cache: Any, k: Tensor, v: Tensor, layer: int) -> Any:
    """Write a decoded token over the one before it."""
    keys, values = cache.update(k, v, layer)
    if k.shape[2] == 1:
        for states, new in ((keys, k), (values, v)):
            states[:, :, -2:-1] = new
            states[:, :, -1] = 0.0
    return keys, values


def _values_not_written(cache: Any, k: Tensor, v: Tensor, layer: int) -> Any:
    keys, values = cache.update(k, v, layer)
    if k.shape[2] == 1:
        values[:, :, -1] = 0.0
    return keys, values


def _rows_exchanged(cache: Any, k: Tensor, v: Tensor, layer: int) -> Any:
    """Read the slots of the other row."""
    keys, values = cache.update(k, v, layer)
    if k.shape[2] > 1 or k.shape[0] == 1:
        return keys, values
    return tuple(
        torch.cat([states[:, :, :-1].flip(0), states[:, :, -1:]], dim=2)
        for states in (keys, values)
    )


def _layer_before(cache: Any, k: Tensor, v: Tensor, layer: int) -> Any:
    """Read what the layer before has cached."""
    keys, values = cache.update(k, v, layer)
    if k.shape[2] > 1:
        return keys, values
    before = cache.layers[layer - 1]
    return (
        torch.cat([before.keys[:, :, :-1], k], dim=2),
        torch.cat([before.values[:, :, :-1], v], dim=2),
    )


def _last_prompt_key_lost(cache: Any, k: Tensor, v: Tensor, layer: int) -> Any:
    """Cache a prompt without its last token, which leaves the slot as it was."""
    keys, values = cache.update(k, v, layer)
    if k.shape[2] > 1:
        stored = cache.layers[layer]
        stored.keys, stored.values = keys.clone(), values.clone()
        stored.keys[:, :, -1] = 0.0
        stored.values[:, :, -1] = 0.0
    return keys, values


CACHES: tuple[Planted, ...] = (
    fault("decode_cache", "one_slot_too_early", "llama_odd/P", "attn",
          remembering(_one_slot_too_early), all_layers=True, place=DECODED),
    fault("decode_cache", "values_not_written", "qwen3_odd/S", "attn",
          remembering(_values_not_written), layer=2, place=DECODED),
    fault("decode_cache", "rows_exchanged", "hunyuan/R", "attn",
          remembering(_rows_exchanged), all_layers=True, place=DECODED),
    fault("decode_cache", "layer_before", "glm4/F", "attn",
          remembering(_layer_before), layer=2, place=DECODED),
    fault("decode_cache", "last_of_prompt_lost", "gptj/X", "attn",
          remembering(_last_prompt_key_lost), all_layers=True, place=DECODED),
)  # fmt: skip

PLANTS: tuple[Planted, ...] = (
    *SCALES, *LIMITS, *MASKS, *WINDOWS, *PADDING, *GROUPS, *CACHES
)  # fmt: skip

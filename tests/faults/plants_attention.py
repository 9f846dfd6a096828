"""Faults of attention: scores, masks, windows, heads, caches.

Legend: B rows, N heads, S sequence, T tokens so far, D head size.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.faults.changes import before_call
from tests.faults.models import WINDOW
from tests.faults.own_attention import change_attention
from tests.faults.pair import Place, Plant

_HIDDEN = torch.finfo(torch.float32).min


def _score_times(factor: float) -> Any:
    return change_attention(score=lambda usual, module, q, k: usual(module, q, k) * factor)


def _distance(scores: torch.Tensor) -> torch.Tensor:
    """Tell how far each key lies before its query, [S, T]."""
    queries, keys = scores.shape[-2:]
    return (torch.arange(queries) + keys - queries)[:, None] - torch.arange(keys)


def _hide(scores: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    return scores.masked_fill(hidden, torch.finfo(scores.dtype).min)


def _mask_fault(change: Any) -> Any:
    """Change what the scores are after the mask: `change(scores, bare scores, mask)`."""

    def step(usual: Any, module: Any, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return change(usual(module, scores, mask), scores, mask)

    return change_attention(mask=step)


def _future_seen(masked: torch.Tensor, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Show each token the next one, padding stays hidden."""
    next_one = _distance(scores) == -1
    unpadded = (mask[:, :, -1:] == 0).expand_as(mask)
    return torch.where(next_one & unpadded, scores, masked)


def _all_seen(masked: torch.Tensor, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    unpadded = (mask[:, :, -1:] == 0).expand_as(mask)
    return torch.where(unpadded, scores, masked)


def _itself_unseen(masked: torch.Tensor, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    hidden = _distance(scores) == 0
    first = (mask == 0).sum(dim=-1, keepdim=True) <= 1  # who sees itself alone must not see nothing
    return torch.where(hidden & ~first, torch.finfo(scores.dtype).min, masked)


def _first_unseen(masked: torch.Tensor, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Hide each row's first token, but for that token itself."""
    seen = (mask == 0).float()
    first = (seen.cumsum(dim=-1) == 1) & (seen == 1) & (seen.sum(dim=-1, keepdim=True) > 1)
    return _hide(masked, first)


def _window(size: int) -> Any:
    return _mask_fault(lambda masked, scores, mask: _hide(masked, _distance(scores) >= size))


def _no_window(masked: torch.Tensor, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Forget the window; padding and future stay hidden."""
    last = mask[:, :, -1:]
    if scores.shape[-2] == 1 and scores.shape[-1] <= WINDOW:
        return masked
    del last
    hidden = _distance(scores) < 0
    return _hide(scores, hidden | _padding(mask))


def _one_more(masked: torch.Tensor, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Let the window hold one key more."""
    extra = (_distance(scores) == WINDOW) & ~_padding(mask)
    return torch.where(extra, scores, masked)


def _padding(mask: torch.Tensor) -> torch.Tensor:
    """Find the keys that are hidden from themselves, [B, 1, 1, T]; a decode step has none."""
    if mask.shape[-2] != mask.shape[-1]:
        return torch.zeros_like(mask[:, :, :1], dtype=torch.bool)
    return torch.diagonal(mask, dim1=-2, dim2=-1)[:, :, None] != 0


def _padding_seen(masked: torch.Tensor, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Take the mask of the longest row for all."""
    return scores + mask[:1]


def _padding_seen_by_last(masked: Any, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Hide the padding, but for the key right before the first token."""
    hidden = mask != 0
    before = torch.zeros_like(hidden)
    before[..., :-1] = hidden[..., :-1] & ~hidden[..., 1:]
    before &= _distance(scores) > 0
    return torch.where(before, scores, masked)


def _mask_given(change: Any) -> Any:
    """Let the body of the model build another mask for the layers."""

    def apply(body: Any) -> None:
        for layer in body.layers:
            before_call(lambda args, kw: (args, {**kw, "attention_mask": change(kw)}))(layer)

    return apply


def _without_mask(kwargs: dict[str, Any]) -> Any:
    mask = kwargs["attention_mask"]
    return None if mask is None else torch.zeros_like(mask)


def _full_mask_of_window(kwargs: dict[str, Any]) -> Any:
    """Give the window another size: one key less."""
    mask = kwargs["attention_mask"]
    hidden = _distance(mask) >= WINDOW - 1
    return mask.masked_fill(hidden, torch.finfo(mask.dtype).min)


def _tiled(usual: Any, module: Any, k: Any, v: Any) -> Any:
    """Take the heads of keys in turn, and not each for its group."""
    groups = module.num_key_value_groups
    return k.repeat(1, groups, 1, 1), v.repeat(1, groups, 1, 1)


def _values_tiled(usual: Any, module: Any, k: Any, v: Any) -> Any:
    return usual(module, k, v)[0], v.repeat(1, module.num_key_value_groups, 1, 1)


def _first_head_for_all(usual: Any, module: Any, k: Any, v: Any) -> Any:
    return usual(module, k[:, :1].expand_as(k), v)


def _merged_by_size(usual: Any, module: Any, mixed: torch.Tensor) -> torch.Tensor:
    """Merge [B, N, S, D] as if the size of a head came before the heads."""
    return mixed.permute(0, 2, 3, 1).flatten(2)


def _merged_without_transpose(usual: Any, module: Any, mixed: torch.Tensor) -> torch.Tensor:
    batch, heads, length, size = mixed.shape
    return mixed.reshape(batch, length, heads * size)


def _capped(limit: float) -> Any:
    return change_attention(cap=lambda usual, module, scores: torch.tanh(scores / limit) * limit)


def _in_decode(change: Any) -> Any:
    """Change what the cache gives back, in decode steps only: `change(k, v)`."""

    def step(usual: Any, module: Any, cache: Any, k: Any, v: Any) -> Any:
        new = k.shape[2]
        k, v = usual(module, cache, k, v)
        return change(k, v) if new == 1 else (k, v)

    return change_attention(remember=step)


def _keep_last(k: torch.Tensor, v: torch.Tensor) -> Any:
    """Let the cache hold only what was written last: older keys are zero."""
    k, v = k.clone(), v.clone()
    k[:, :, :4], v[:, :, :4] = 0, 0
    return k, v


def _overwrite_neighbour(k: torch.Tensor, v: torch.Tensor) -> Any:
    """Write the new key over the last one, too."""
    k, v = k.clone(), v.clone()
    k[:, :, -2], v[:, :, -2] = k[:, :, -1], v[:, :, -1]
    return k, v


def _other_rows(k: torch.Tensor, v: torch.Tensor) -> Any:
    """Give each row the prompt of the other one."""
    return torch.cat([k.flip(0)[:, :, :-1], k[:, :, -1:]], dim=2), v


def _values_shifted(k: torch.Tensor, v: torch.Tensor) -> Any:
    return k, torch.cat([v[:, :, 1:], v[:, :, :1]], dim=2)


def _cached_in_bfloat16(k: torch.Tensor, v: torch.Tensor) -> Any:
    return k.to(torch.bfloat16).to(k.dtype), v.to(torch.bfloat16).to(v.dtype)


def _no_bias_in_decode(usual: Any, module: Any, alibi: torch.Tensor, length: int) -> Any:
    return usual(module, alibi, length) if length > 1 else torch.zeros_like(alibi)


def _rotated_late(usual: Any, module: Any, q: Any, k: Any, tables: Any) -> Any:
    """Rotate a decode step's query and key as if they were the first token."""
    if q.shape[2] > 1:
        return usual(module, q, k, tables)
    cos, sin = tables
    return usual(module, q, k, (torch.ones_like(cos), torch.zeros_like(sin)))


def _steeper(usual: Any, module: Any, alibi: torch.Tensor, length: int) -> torch.Tensor:
    return usual(module, alibi, length) * 2


def _slopes_reversed(usual: Any, module: Any, alibi: torch.Tensor, length: int) -> torch.Tensor:
    return usual(module, alibi, length).flip(1)


def _softmax_over_queries(usual: Any, module: Any, scores: torch.Tensor, dtype: Any) -> Any:
    if scores.shape[2] == 1:
        return usual(module, scores, dtype)
    weights = torch.softmax(scores, dim=-2)
    return weights.to(dtype)


def _softmax_plus_one(usual: Any, module: Any, scores: torch.Tensor, dtype: Any) -> Any:
    """Let attention go to nothing, too."""
    nothing = torch.zeros_like(scores[..., :1])
    return torch.softmax(torch.cat([scores, nothing], dim=-1), dim=-1)[..., :-1].to(dtype)


def _unnormalised(usual: Any, module: Any, scores: torch.Tensor, dtype: Any) -> Any:
    """Divide by the sum over the first 8 keys' block and the rest apart: the sum is too small."""
    weights = usual(module, scores, dtype)
    return weights / weights[..., 1:].sum(dim=-1, keepdim=True).clamp(min=0.1)


_DECODE = Place(step=1)
# A table, a fault a paragraph.
# fmt: off
PLANTS: tuple[Plant, ...] = (
    # scale
    Plant(kind="scale", name="root_of_hidden_by_heads", archs=("llama", "qwen3", "qwen3_moe"),
          role="attn", change=_score_times(2**0.5), cause="scale"),
    Plant(kind="scale", name="config_scalar_ignored", archs=("gemma3", "gemma2", "granite"),
          role="attn", layer=0, change=_score_times(1.118), cause="scale"),
    Plant(kind="scale", name="no_scale", archs=("gpt2", "bert", "bloom"), role="attn",
          change=_score_times(8**0.5), cause="scale"),
    Plant(kind="scale", name="scaled_twice", archs=("llama",), role="attn", layer=2,
          change=_score_times(0.25), cause="scale"),
    # soft_cap
    Plant(kind="soft_cap", name="attention_missing", archs=("gemma2",), role="attn",
          change=change_attention(cap=lambda usual, module, s: s), cause="soft_cap"),
    Plant(kind="soft_cap", name="attention_wrong", archs=("gemma2",), role="attn", layer=0,
          change=_capped(3.0), cause="soft_cap"),
    Plant(kind="soft_cap", name="attention_too_much", archs=("llama", "gemma3"), role="attn",
          change=_capped(2.0), cause="soft_cap"),
    # mask
    Plant(kind="mask", name="next_token_seen", archs=("llama", "gpt2", "qwen3"), role="attn",
          change=_mask_fault(_future_seen), cause="mask"),
    Plant(kind="mask", name="all_tokens_seen", archs=("llama", "bloom"), role="attn", layer=0,
          change=_mask_fault(_all_seen), cause="mask"),
    Plant(kind="mask", name="itself_unseen", archs=("llama", "granite"), role="attn",
          change=_mask_fault(_itself_unseen), cause="mask"),
    Plant(kind="mask", name="first_token_unseen", archs=("qwen3", "gemma2"), role="attn", layer=0,
          change=_mask_fault(_first_unseen), cause="mask"),
    Plant(kind="mask", name="none_built", archs=("llama", "qwen2"), role="top", also=("attn",),
          layer=0, change=_mask_given(_without_mask), cause="mask"),
    # sliding_window
    Plant(kind="sliding_window", name="one_less", archs=("gemma3", "gemma2"), role="attn",
          layer=0, change=_window(WINDOW - 1), cause="sliding_window",
          place=Place(step=0, row=0, position=3)),
    Plant(kind="sliding_window", name="one_more", archs=("gemma3", "gemma2"), role="attn",
          layer=0, change=_mask_fault(_one_more), cause="sliding_window",
          place=Place(step=0, row=0, position=4)),
    Plant(kind="sliding_window", name="missing", archs=("gemma3", "gemma2"), role="attn", layer=2,
          change=_mask_fault(_no_window), cause="sliding_window",
          place=Place(step=0, row=0, position=4)),
    Plant(kind="sliding_window", name="in_full_layer", archs=("gemma3", "llama"), role="attn",
          change=_window(WINDOW), cause="sliding_window",
          place=Place(step=0, row=0, position=4)),
    Plant(kind="sliding_window", name="mask_built_one_less", archs=("llama",), role="top",
          also=("attn",), layer=0, change=_mask_given(_full_mask_of_window),
          cause="sliding_window", place=Place(step=0, row=0, position=3)),
    # padding
    Plant(kind="padding", name="padding_seen", archs=("llama", "gpt2", "qwen3"), role="attn",
          layer=0, change=_mask_fault(_padding_seen), cause="padding", place=Place(step=0, row=1)),
    Plant(kind="padding", name="one_pad_seen", archs=("llama", "qwen3_moe"), role="attn",
          change=_mask_fault(_padding_seen_by_last), cause="padding", place=Place(step=0, row=1)),
    Plant(kind="padding", name="padding_seen", archs=("bert",), role="attn", layer=0,
          change=_mask_fault(_padding_seen), cause="padding", place=Place(step=0, row=1)),
    # gqa_order
    Plant(kind="gqa_order", name="tiled", archs=("llama", "qwen3", "gemma3"), role="attn",
          change=change_attention(repeat=_tiled), cause="gqa_order"),
    Plant(kind="gqa_order", name="values_tiled", archs=("llama", "granite"), role="attn", layer=0,
          change=change_attention(repeat=_values_tiled), cause="gqa_order"),
    Plant(kind="gqa_order", name="first_head_for_all", archs=("qwen2",), role="attn",
          change=change_attention(repeat=_first_head_for_all), cause="gqa_order"),
    Plant(kind="gqa_order", name="merged_by_size", archs=("llama", "gpt2", "bert"), role="attn",
          change=change_attention(merge=_merged_by_size), cause="gqa_order"),
    Plant(kind="gqa_order", name="merged_without_transpose", archs=("qwen3", "bloom"), role="attn",
          change=change_attention(merge=_merged_without_transpose), cause="gqa_order"),
    # alibi
    Plant(kind="position_ids", name="alibi_steeper", archs=("bloom",), role="attn", layer=0,
          change=change_attention(bias=_steeper), cause="position_ids"),
    Plant(kind="position_ids", name="alibi_slopes_reversed", archs=("bloom",), role="attn",
          change=change_attention(bias=_slopes_reversed), cause="position_ids"),
    # reduction
    Plant(kind="reduction", name="softmax_over_queries", archs=("llama", "bert"), role="attn",
          change=change_attention(weigh=_softmax_over_queries), cause="reduction"),
    Plant(kind="reduction", name="softmax_plus_one", archs=("llama", "gpt2", "gemma3"),
          role="attn", change=change_attention(weigh=_softmax_plus_one), cause="reduction"),
    Plant(kind="reduction", name="softmax_sum_without_first_key", archs=("qwen3",), role="attn",
          change=change_attention(weigh=_unnormalised), cause="reduction"),
    # decode_cache
    Plant(kind="decode_cache", name="first_keys_lost", archs=("llama", "qwen3", "gpt2"),
          role="attn", change=_in_decode(_keep_last), cause="decode_cache", place=_DECODE),
    Plant(kind="decode_cache", name="last_key_overwritten", archs=("llama", "gemma2", "qwen3_moe"),
          role="attn", layer=0, change=_in_decode(_overwrite_neighbour), cause="decode_cache",
          place=_DECODE),
    Plant(kind="decode_cache", name="rows_mixed_up", archs=("llama", "gpt2"), role="attn",
          change=_in_decode(_other_rows), cause="decode_cache", place=_DECODE),
    Plant(kind="decode_cache", name="values_shifted", archs=("qwen2", "granite"), role="attn",
          change=_in_decode(_values_shifted), cause="decode_cache", place=_DECODE),
    Plant(kind="decode_cache", name="kept_in_bfloat16", archs=("llama", "bloom"), role="attn",
          change=_in_decode(_cached_in_bfloat16), cause="cast", place=_DECODE),
    Plant(kind="decode_cache", name="alibi_lost", archs=("bloom",), role="attn", layer=0,
          change=change_attention(bias=_no_bias_in_decode), cause="decode_cache", place=_DECODE),
    Plant(kind="decode_cache", name="not_rotated", archs=("llama", "qwen3"), role="attn", layer=0,
          change=change_attention(rotate=_rotated_late), cause="decode_cache", place=_DECODE),
)
# fmt: on

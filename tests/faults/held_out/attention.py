"""Held-out faults between the projections of attention, its rotation left out."""

from __future__ import annotations

import math
from typing import Any

import torch

from tests.faults.changes import attribute
from tests.faults.held_out.steps import attending, in_decode
from tests.faults.models import WINDOW
from tests.faults.pair import Place, Plant

Tensor = torch.Tensor
STEP1 = Place(step=1)


def _plant(kind: str, name: str, archs: str, change: Any, **more: Any) -> Plant:
    values = {"cause": kind, "role": "attn", **more}
    return Plant(kind=kind, name=name, archs=tuple(archs.split()), change=change, **values)


def _lowest(mask: Tensor) -> float:
    return torch.finfo(mask.dtype).min


def _distance(mask: Tensor) -> Tensor:
    """How far each key lies behind each query, [S, T]."""
    s, t = mask.shape[-2:]
    return torch.arange(t - s, t)[:, None] - torch.arange(t)[None]


def _hide(mask: Tensor, hidden: Tensor) -> Tensor:
    return mask.masked_fill(hidden, _lowest(mask))


def _show(mask: Tensor, shown: Tensor) -> Tensor:
    """Let keys be seen, those of padding excepted."""
    square = mask.shape[-2] == mask.shape[-1]
    own = mask.diagonal(dim1=-2, dim2=-1)[..., None, :] if square else mask[..., -1:, :]
    return mask.masked_fill(shown & (own >= 0), 0.0)


def _next_seen(mask: Tensor, scores: Tensor) -> Tensor:
    return _show(mask, _distance(mask) == -1)


def _chunks(mask: Tensor, scores: Tensor) -> Tensor:
    s, t = mask.shape[-2:]
    queries = torch.arange(t - s, t)[:, None] // 6
    return _hide(mask, queries != torch.arange(t)[None] // 6)


def _prefix(mask: Tensor, scores: Tensor) -> Tensor:
    return _show(mask, (_distance(mask) < 0) & (torch.arange(mask.shape[-1])[None] < 8))


def _without_self(mask: Tensor, scores: Tensor) -> Tensor:
    far = _distance(mask)
    return _hide(mask, (far == 0) & (torch.arange(far.shape[1])[None] > 6))


def _last_head_open(mask: Tensor, scores: Tensor) -> Tensor:
    wide = mask.expand(-1, scores.shape[1], -1, -1).clone()
    wide[:, -1:] = _show(mask, _distance(mask) < 0)
    return wide


def _padding_seen(mask: Tensor, scores: Tensor) -> Tensor:
    causal = torch.zeros_like(mask)
    return _hide(causal, _distance(mask) < 0)


def _window(size: int) -> Any:
    return lambda mask, scores: _hide(mask, _distance(mask) >= size)


def _window_missing(mask: Tensor, scores: Tensor) -> Tensor:
    return _show(mask, _distance(mask) >= 0) if mask.shape[-2] > 1 else mask


def _window_forward(mask: Tensor, scores: Tensor) -> Tensor:
    """A symmetric window, that looks ahead too."""
    return _show(mask, _distance(mask).abs() < WINDOW)


def _dense_padded(mask: Tensor, scores: Tensor) -> Tensor:
    return mask[:1].expand_as(mask)


def _heads_shifted(x: Tensor, count: int) -> Tensor:
    return x.repeat_interleave(count, dim=1).roll(1, dims=1)


def _tiled(x: Tensor, count: int) -> Tensor:
    return x.repeat(1, count, 1, 1)


def _only_first(x: Tensor, count: int) -> Tensor:
    return x[:, :1].expand(-1, x.shape[1] * count, -1, -1)


def _softmax_of_sink(scores: Tensor) -> Tensor:
    sink = torch.zeros_like(scores[..., :1])
    return torch.cat([scores, sink], -1).float().softmax(-1)[..., :-1]


def _softmax_without_maximum(scores: Tensor) -> Tensor:
    powers = scores.exp()
    return powers / powers.sum(-1, keepdim=True)


def _low_softmax(scores: Tensor) -> Tensor:
    powers = (scores - scores.amax(-1, keepdim=True)).to(torch.bfloat16).exp()
    return powers / powers.sum(-1, keepdim=True)


def _probabilities_in_int8(scores: Tensor) -> Tensor:
    return (scores.float().softmax(-1) * 31).round() / 31


def _merge_tokens(y: Tensor) -> Tensor:
    """Merge [D, N] where [N, D] is right."""
    return y.transpose(2, 3).reshape(y.shape)


def _past(change: Any) -> Any:
    """Change what the cache holds of earlier tokens, in decode steps."""

    def apply(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        old_k, old_v = change(k[:, :, :-1]), change(v[:, :, :-1])
        return q, torch.cat([old_k, k[:, :, -1:]], 2), torch.cat([old_v, v[:, :, -1:]], 2)

    return in_decode(apply)


def _zero_block(x: Tensor) -> Tensor:
    found = x.clone()
    found[:, :, 8:12] = 0.0
    return found


def _latest_twice(x: Tensor) -> Tensor:
    return torch.cat([x[:, :, :-1], x[:, :, -2:-1]], 2)


def _evicted(x: Tensor) -> Tensor:
    return torch.cat([x[:, :, 1:], x[:, :, -1:]], 2)


def _fp8(x: Tensor) -> Tensor:
    return x.to(torch.float8_e4m3fn).to(x.dtype)


def _fp8_of_all(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return q, k, (v * 8).round() / 8


def _hidden_self(mask: Tensor, scores: Tensor) -> Tensor:
    return _hide(mask, _distance(mask) == 0) if mask.shape[-2] == 1 else mask


def _wrong_decode_scale(scaling: float, scores: Tensor) -> float:
    return scaling * (0.5 if scores.shape[2] == 1 else 1.0)


def _scale_of_head(scaling: float, scores: Tensor) -> Tensor:
    by = torch.full((scores.shape[1], 1, 1), scaling, dtype=scores.dtype)
    by[2] *= 1.5
    return by


def _growing_scale(scaling: float, scores: Tensor) -> Tensor:
    """Scaling by the logarithm of the position, as for contexts beyond the training's."""
    s, t = scores.shape[-2:]
    lengths = torch.arange(t - s + 1, t + 1, dtype=torch.float32)
    return (scaling * (lengths.log() / math.log(8)).clamp(min=1.0))[:, None].to(scores.dtype)


def _bert_causal(mask: Tensor, scores: Tensor) -> Tensor:
    return _hide(mask, _distance(mask) < 0)


def _all_zero(mask: Tensor, scores: Tensor) -> Tensor:
    return torch.zeros_like(mask)


def _swapped_kv(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return q, v, k


PLANTS = (
    _plant("scale", "twice", "llama qwen3", attending(scale=lambda s, _: s * s)),
    _plant("scale", "exponent_of_two", "llama3 phi3",
           attending(scale=lambda s, _: s * math.log(2)), layer=0),
    _plant("scale", "by_hidden_size", "starcoder2 glm4_moe",
           attending(scale=lambda s, _: 32**-0.5)),
    _plant("scale", "by_layer_number", "gpt2", attribute(scaling=8**-0.5 / 3), layer=2),
    _plant("scale", "in_decode", "qwen2 cohere", attending(scale=_wrong_decode_scale), place=STEP1),
    _plant("scale", "one_head", "olmo2", attending(scale=_scale_of_head), layer=2),
    _plant("scale", "log_of_position", "llama", attending(scale=_growing_scale)),
    _plant("scale", "of_bloom", "bloom", attribute(inv_norm_factor=0.2), layer=2),
    _plant("scale", "alibi_halved", "bloom", attribute(beta=0.5), layer=1),
    _plant("scale", "bert_none", "bert", attending(scale=lambda s, _: 1.0), layer=0),
    _plant("soft_cap", "before_scale", "gemma2",
           attending(cap=lambda x, by, cap: cap * (x / cap).tanh() * by)),
    _plant("soft_cap", "after_mask", "gemma2",
           attending(cap=lambda x, by, cap: x * by,
                     masked=lambda x, m: 4.0 * ((x + m) / 4.0).tanh()), layer=0),
    _plant("soft_cap", "clamped", "gemma2",
           attending(cap=lambda x, by, cap: (x * by).clamp(-cap, cap)), layer=2),
    _plant("soft_cap", "where_none_is", "qwen3",
           attending(cap=lambda x, by, cap: 2.0 * (x * by / 2.0).tanh())),
    _plant("mask", "next_seen", "qwen2 olmo2", attending(mask=_next_seen), layer=0),
    _plant("mask", "chunks_of_6", "llama phi3", attending(mask=_chunks)),
    _plant("mask", "prefix_open", "gemma3 starcoder2", attending(mask=_prefix)),
    _plant("mask", "self_hidden_late", "llama3", attending(mask=_without_self)),
    _plant("mask", "one_head_open", "cohere gpt2", attending(mask=_last_head_open), layer=2),
    _plant("mask", "too_weak", "qwen2",
           attending(masked=lambda x, m: x + m.clamp(min=-5.0))),
    _plant("mask", "zeroed_not_hidden", "gpt2 granite",
           attending(masked=lambda x, m: x.masked_fill(m < 0, 0.0))),
    _plant("mask", "bert_causal", "bert", attending(mask=_bert_causal), layer=2),
    _plant("padding", "padding_seen", "phi3 qwen3_moe", attending(mask=_padding_seen),
           place=Place(row=1)),
    _plant("padding", "mask_of_row_0", "gpt2 olmo2", attending(mask=_dense_padded),
           place=Place(row=1), layer=0),
    _plant("padding", "bert_all_seen", "bert", attending(mask=_all_zero), place=Place(row=1)),
    _plant("sliding_window", "on_full_layer", "gemma2 gemma3", attending(mask=_window(WINDOW))),
    _plant("sliding_window", "half", "gemma3", attending(mask=_window(WINDOW // 2)), layer=0),
    _plant("sliding_window", "missing_in_last", "gemma2 gemma3", attending(mask=_window_missing),
           layer=2),
    _plant("sliding_window", "ahead", "gemma3", attending(mask=_window_forward), layer=2),
    _plant("sliding_window", "where_none_is", "starcoder2 qwen2", attending(mask=_window(7))),
    _plant("gqa_order", "values_tiled", "llama granite", attending(repeat_v=_tiled)),
    _plant("gqa_order", "shifted", "qwen3 starcoder2",
           attending(repeat_k=_heads_shifted, repeat_v=_heads_shifted), layer=0),
    _plant("gqa_order", "only_first", "phi3", attending(repeat_k=_only_first,
                                                        repeat_v=_only_first)),
    _plant("gqa_order", "keys_of_other_group", "gemma2",
           attending(inputs=lambda q, k, v: (q, k.flip(1), v)), layer=2),
    _plant("gqa_order", "keys_and_values_exchanged", "olmo2 bert", attending(inputs=_swapped_kv),
           cause="unknown"),
    _plant("permutation", "merged_by_size", "gpt2 qwen3", attending(output=_merge_tokens)),
    _plant("permutation", "heads_reversed", "cohere bert",
           attending(output=lambda y: y.flip(2)), layer=2),
    _plant("softmax", "over_queries", "qwen2 bert",
           attending(softmax=lambda x: x.float().softmax(-2)), cause="unknown"),
    _plant("softmax", "sink", "llama olmo2", attending(softmax=_softmax_of_sink), cause="unknown",
           layer=0),
    _plant("softmax", "rounded", "qwen3", attending(softmax=_probabilities_in_int8),
           cause="quantization"),
    _plant("softmax", "in_bfloat16", "llama phi3", attending(softmax=_low_softmax), cause="cast"),
    _plant("softmax", "in_bfloat16_of_half", "qwen2@float16", attending(softmax=_low_softmax),
           cause="cast", subtle=True),
    _plant("overflow", "no_maximum", "gpt2@float16 starcoder2@float16",
           attending(softmax=_softmax_without_maximum)),
    _plant("decode_cache", "stale_block", "llama phi3", attending(inputs=_past(_zero_block)),
           place=STEP1),
    _plant("decode_cache", "latest_lost", "gemma3 starcoder2",
           attending(inputs=_past(_latest_twice)), place=STEP1, layer=1),
    _plant("decode_cache", "oldest_lost", "qwen3", attending(inputs=_past(_evicted)), place=STEP1,
           layer=2),
    _plant("decode_cache", "self_hidden", "cohere llama3", attending(mask=_hidden_self),
           place=STEP1, layer=0),
    _plant("decode_cache", "rows_exchanged", "gpt2 granite",
           attending(inputs=_past(lambda x: x.flip(0))), place=STEP1),
    _plant("quantization", "cache_in_fp8", "olmo2 qwen2", attending(inputs=_past(_fp8)),
           place=STEP1),
    _plant("quantization", "values_in_steps", "llama@bfloat16", attending(inputs=_fp8_of_all),
           subtle=True),
)  # fmt: skip

"""Held-out faults of norms."""

from __future__ import annotations

from typing import Any

import torch

from tests.faults.changes import attribute, weight
from tests.faults.held_out.steps import computing
from tests.faults.pair import Plant

Tensor = torch.Tensor


def _plant(kind: str, name: str, archs: str, role: str, change: Any, **more: Any) -> Plant:
    values = {"cause": kind, **more}
    return Plant(
        kind=kind, name=name, archs=tuple(archs.split()), role=role, change=change, **values
    )


def _rms(x: Tensor, eps: float) -> Tensor:
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()


def _centred(x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True)


def _eps_of(norm: Any) -> float:
    names = ("variance_epsilon", "eps")
    return next(getattr(norm, name) for name in names if hasattr(norm, name))


def _norm(compute: Any) -> Any:
    """Replace a norm: `compute(x, eps)`, in float32, times the weight, plus the bias if any."""

    def forward(self: Any, x: Tensor) -> Tensor:
        y = compute(x.float(), _eps_of(self)) * self.weight.float()
        y = y if getattr(self, "bias", None) is None else y + self.bias.float()
        return y.to(x.dtype)

    return computing(forward)


def _unbiased(x: Tensor, eps: float) -> Tensor:
    return _centred(x) * (x.var(-1, keepdim=True, unbiased=True) + eps).rsqrt()


def _eps_outside(x: Tensor, eps: float) -> Tensor:
    return _centred(x) / (x.var(-1, keepdim=True, unbiased=False).sqrt() + 100 * eps)


def _by_length(x: Tensor, eps: float) -> Tensor:
    return x / (x.norm(dim=-1, keepdim=True) + eps)


def _by_mean_magnitude(x: Tensor, eps: float) -> Tensor:
    return x / (x.abs().mean(-1, keepdim=True) + eps)


def _over_half(x: Tensor, eps: float) -> Tensor:
    """Statistics of one of two shards only."""
    return x * (x[..., : x.shape[-1] // 2].pow(2).mean(-1, keepdim=True) + eps).rsqrt()


def _over_tokens(x: Tensor, eps: float) -> Tensor:
    return x * (x.pow(2).mean(1, keepdim=True) + eps).rsqrt()


def _over_heads(x: Tensor, eps: float) -> Tensor:
    """Statistics over all heads of a token [B, S, N, D] instead of each."""
    return x * (x.pow(2).mean((-2, -1), keepdim=True) + eps).rsqrt()


def _each_head(x: Tensor, eps: float) -> Tensor:
    """Statistics of each head of 16 instead of over all."""
    return _rms(x.unflatten(-1, (-1, 16)), eps).flatten(-2)


def _offset(module: Any) -> None:
    weight(lambda w: w + 1.0)(module)


PLANTS = (
    _plant("norm_kind", "centred", "llama qwen3", "norm1",
           _norm(lambda x, eps: _rms(_centred(x), eps)), cause="unknown"),
    _plant("norm_kind", "not_centred", "starcoder2 bloom", "norm2", _norm(_rms),
           cause="unknown"),
    _plant("norm_kind", "not_centred", "cohere", "norm1", _norm(_rms), cause="unknown", layer=0),
    _plant("norm_kind", "unbiased", "gpt2 bert", "norm1", _norm(_unbiased), cause="unknown"),
    _plant("norm_kind", "by_length", "phi3", "norm2", _norm(_by_length), cause="unknown",
           layer=2),
    _plant("norm_kind", "by_mean_magnitude", "granite", "norm", _norm(_by_mean_magnitude),
           cause="unknown"),
    _plant("norm_kind", "of_one_shard", "llama olmo2", "norm2", _norm(_over_half),
           cause="unknown"),
    _plant("norm_kind", "over_tokens", "qwen2", "norm1", _norm(_over_tokens), cause="unknown"),
    _plant("norm_kind", "over_heads", "qwen3", "q_norm", _norm(_over_heads), cause="unknown"),
    _plant("norm_kind", "each_head", "olmo2", "k_norm", _norm(_each_head), cause="unknown"),
    _plant("norm_kind", "missing", "qwen3", "k_norm", computing(lambda _, x: x),
           cause="unknown", layer=2),
    _plant("norm_kind", "missing", "bert", "embed_norm", computing(lambda _, x: x),
           cause="unknown"),
    _plant("norm_kind", "twice", "starcoder2", "norm",
           lambda m: computing(lambda _, x, f=m.forward: f(f(x)))(m), cause="unknown"),
    _plant("norm_offset", "where_none_is", "qwen3", "q_norm", _offset),
    _plant("norm_offset", "where_none_is", "olmo2", "norm", _offset),
    _plant("norm_offset", "where_none_is", "cohere", "norm1", _offset, layer=2),
    _plant("norm_offset", "missing_of_keys", "gemma3", "k_norm", weight(lambda w: w - 1.0)),
    _plant("eps", "of_other_class", "cohere", "norm1", attribute(variance_epsilon=0.05)),
    _plant("eps", "zero", "gemma3_small", "norm2", attribute(eps=0.0)),
    _plant("eps", "outside_root", "starcoder2", "norm2", _norm(_eps_outside)),
    _plant("eps", "large_of_keys", "qwen3", "k_norm", attribute(variance_epsilon=1e-2)),
    _plant("eps", "large", "bert", "norm2", attribute(eps=1e-2), layer=0),
    _plant("overflow", "squares_of_head", "llama_large@float16", "norm1", layer=0,
           change=_norm(lambda x, eps: x / (x.half().pow(2).float().mean(-1, True) + eps).sqrt())),
)  # fmt: skip

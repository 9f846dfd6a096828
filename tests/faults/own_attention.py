"""Attention and decoder layers taken apart into steps, each of which a fault may replace.

Legend: B rows, N heads, K heads of keys, S sequence, T tokens so far, D head size, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch

Step = Callable[..., Any]


def replace_forward(module: Any, forward: Callable[..., Any]) -> None:
    """Let a module compute something else; hooks on it still run."""
    module.forward = MethodType(forward, module)


def wrap_forward(module: Any, change: Callable[[Any, Any], Any]) -> None:
    """Let a module return `change(module, what it would return)`."""
    usual = module.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return change(self, usual(*args, **kwargs))

    replace_forward(module, forward)


class Attention:
    """The attention of llama and its relatives, step by step as transformers has it."""

    def __init__(self, **changed: Step) -> None:
        """Take the steps to replace: each gets the usual step before its own arguments."""
        self._changed = changed

    def __getattribute__(self, name: str) -> Any:
        usual = object.__getattribute__(self, name)
        if name.startswith("_"):
            return usual
        changed = object.__getattribute__(self, "_changed").get(name)
        if changed is None:
            return usual
        return lambda *args: changed(usual, *args)

    def forward(
        self,
        module: Any,
        hidden_states: torch.Tensor,
        position_embeddings: Any = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> Any:
        q, k, v = self.project(module, hidden_states)
        q, k = self.rotate(module, q, k, position_embeddings)
        k, v = self.remember(module, past_key_values, k, v)
        k, v = self.repeat(module, k, v)
        scores = self.score(module, q, k)  # [B, N, S, T]
        scores = self.mask(module, self.cap(module, scores), attention_mask)
        weights = self.weigh(module, scores, q.dtype)
        mixed = self.merge(module, torch.matmul(weights, v))  # [B, S, N * D]
        return self.finish(module, mixed), weights

    def project(self, module: Any, hidden: torch.Tensor) -> Any:
        shape = (*hidden.shape[:-1], -1, module.head_dim)
        q = module.q_proj(hidden).view(shape)
        k = module.k_proj(hidden).view(shape)
        v = module.v_proj(hidden).view(shape).transpose(1, 2)
        if not hasattr(module, "q_norm"):
            return q.transpose(1, 2), k.transpose(1, 2), v
        if type(module).__name__.startswith("Gemma"):  # its norms see [B, N, S, D]
            return module.q_norm(q.transpose(1, 2)), module.k_norm(k.transpose(1, 2)), v
        return module.q_norm(q).transpose(1, 2), module.k_norm(k).transpose(1, 2), v

    def rotate(self, module: Any, q: Any, k: Any, tables: Any) -> Any:
        cos, sin = (table.unsqueeze(1) for table in tables)
        return rotate(q, cos, sin), rotate(k, cos, sin)

    def remember(self, module: Any, cache: Any, k: Any, v: Any) -> Any:
        return (k, v) if cache is None else cache.update(k, v, module.layer_idx)

    def repeat(self, module: Any, k: Any, v: Any) -> Any:
        groups = module.num_key_value_groups
        return k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)

    def score(self, module: Any, q: Any, k: Any) -> Any:
        return torch.matmul(q, k.transpose(2, 3)) * module.scaling

    def cap(self, module: Any, scores: Any) -> Any:
        limit = getattr(module, "attn_logit_softcapping", None)
        return scores if limit is None else torch.tanh(scores / limit) * limit

    def mask(self, module: Any, scores: Any, mask: Any) -> Any:
        return scores if mask is None else scores + mask

    def weigh(self, module: Any, scores: Any, dtype: torch.dtype) -> Any:
        return torch.softmax(scores, dim=-1, dtype=torch.float32).to(dtype)

    def merge(self, module: Any, mixed: Any) -> Any:
        return mixed.transpose(1, 2).flatten(2)

    def finish(self, module: Any, mixed: Any) -> Any:
        return module.o_proj(mixed)


class Gpt2Attention(Attention):
    """The attention of GPT-2: fused projection, no rotation."""

    def project(self, module: Any, hidden: torch.Tensor) -> Any:
        parts = module.c_attn(hidden).split(module.split_size, dim=2)
        shape = (*hidden.shape[:-1], -1, module.head_dim)
        return tuple(part.view(shape).transpose(1, 2) for part in parts)

    def rotate(self, module: Any, q: Any, k: Any, tables: Any) -> Any:
        return q, k

    def repeat(self, module: Any, k: Any, v: Any) -> Any:
        return k, v

    def finish(self, module: Any, mixed: Any) -> Any:
        return module.c_proj(mixed)


class BertAttention(Gpt2Attention):
    """The attention of BERT, without the output projection."""

    def project(self, module: Any, hidden: torch.Tensor) -> Any:
        shape = (*hidden.shape[:-1], -1, module.attention_head_size)
        parts = (module.query(hidden), module.key(hidden), module.value(hidden))
        return tuple(part.view(shape).transpose(1, 2) for part in parts)

    def finish(self, module: Any, mixed: Any) -> Any:
        return mixed


class BloomAttention(Gpt2Attention):
    """The attention of BLOOM: fused by head, a bias that grows with the distance."""

    def forward(  # type: ignore[override]  # BLOOM's arguments are others
        self,
        module: Any,
        hidden_states: torch.Tensor,
        residual: Any = None,
        alibi: Any = None,
        attention_mask: Any = None,
        layer_past: Any = None,
        **kwargs: Any,
    ) -> Any:
        batch, length, _ = hidden_states.shape
        q, k, v = self.project(module, hidden_states)
        k, v = self.remember(module, layer_past, k, v)
        scores = self.score(module, q, k)
        bias = self.bias(module, alibi.view(batch, module.num_heads, 1, -1), length)
        scores = self.mask(module, scores + bias, attention_mask)
        weights = self.weigh(module, scores, q.dtype)
        mixed = self.merge(module, torch.matmul(weights, v))
        return self.add(module, module.dense(mixed), residual), weights

    def project(self, module: Any, hidden: torch.Tensor) -> Any:
        fused = module.query_key_value(hidden)
        fused = fused.view(*hidden.shape[:-1], module.num_heads, 3, module.head_dim)
        return tuple(fused[..., part, :].transpose(1, 2) for part in range(3))

    def score(self, module: Any, q: Any, k: Any) -> Any:
        return torch.matmul(q, k.transpose(2, 3)) * module.inv_norm_factor

    def bias(self, module: Any, alibi: Any, length: int) -> Any:
        return alibi

    def add(self, module: Any, output: Any, residual: Any) -> Any:
        return residual + output


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the first dimensions by halves, as many as the tables have."""
    size = cos.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    first, second = turned.chunk(2, dim=-1)
    turned = turned * cos + torch.cat([-second, first], dim=-1) * sin
    return torch.cat([turned, rest], dim=-1)


_STEPS = {"GPT2": Gpt2Attention, "Bert": BertAttention, "Bloom": BloomAttention}


def change_attention(**changed: Step) -> Callable[[Any], None]:
    """Make a change that replaces steps of an attention, as in `change_attention(score=...)`."""

    def change(module: Any) -> None:
        name = type(module).__name__
        kind = next((kind for start, kind in _STEPS.items() if name.startswith(start)), Attention)
        steps = kind(**changed)
        replace_forward(module, lambda self, *args, **kwargs: steps.forward(self, *args, **kwargs))

    return change


def change_residual(add: Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]) -> Any:
    """Make a change of a decoder layer's own code: `add(0 or 1, residual, output)`."""

    def forward(self: Any, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if hasattr(self, "ln_1"):
            return _gpt2_layer(self, add, hidden_states, *args, **kwargs)
        if not hasattr(self, "post_feedforward_layernorm"):
            hidden_states = add(0, hidden_states, attend(self, hidden_states, args, kwargs))
            return add(1, hidden_states, self.mlp(self.post_attention_layernorm(hidden_states)))
        output = self.post_attention_layernorm(attend(self, hidden_states, args, kwargs))
        hidden_states = add(0, hidden_states, output)
        output = self.mlp(self.pre_feedforward_layernorm(hidden_states))
        return add(1, hidden_states, self.post_feedforward_layernorm(output))

    return lambda module: replace_forward(module, forward)


def attend(layer: Any, hidden: torch.Tensor, args: Any, kwargs: Any) -> torch.Tensor:
    """Return what a layer's attention makes of its hidden states."""
    return layer.self_attn(*args, hidden_states=layer.input_layernorm(hidden), **kwargs)[0]


def _gpt2_layer(
    layer: Any, add: Any, hidden: torch.Tensor, past: Any, mask: Any, *args: Any, **kwargs: Any
) -> Any:
    kwargs.pop("encoder_attention_mask", None)
    output = layer.attn(layer.ln_1(hidden), past_key_values=past, attention_mask=mask, **kwargs)[0]
    hidden = add(0, hidden, output)
    return add(1, hidden, layer.mlp(layer.ln_2(hidden)))

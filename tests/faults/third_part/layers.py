"""Faults of layers, norms, MLPs, experts and of what lies around them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tests.faults.changes import (
    Change,
    at_rows,
    attribute,
    changed_output,
    scaled,
    weight,
)
from tests.faults.own_attention import (
    attend,
    change_attention,
    change_residual,
    replace_forward,
    rotate,
)
from tests.faults.pair import Place
from tests.faults.third_part.planted import Planted, fault
from tests.faults.third_part.steps import (
    Tensor,
    attended,
    attending,
    by_decoding,
    configured,
    rounded,
)


def _computes(function: Any) -> Change:
    """Let a module compute a function of its input."""
    return lambda module: replace_forward(module, lambda self, x: function(x))


def _of_itself(function: Any) -> Change:
    """Let a module compute `function(module, input)`."""
    return lambda module: replace_forward(module, function)


def _scale_of_one(module: Any) -> None:
    module.embed_scale.fill_(1.0)


SCALES: tuple[Planted, ...] = (
    fault("scale", "embedding_as_it_is", "gemma/R", "embed", _scale_of_one),
    fault("scale", "logits_multiplied", "granite_odd/S", "root",
          configured(logits_scaling=1.0 / 3.0)),
    fault("scale", "logits_as_they_are", "cohere2/P", "root", attribute(logit_scale=1.0)),
    fault("scale", "embedding_multiplier", "granite_odd/P", "top",
          attribute(embedding_multiplier=1.0)),
    fault("scale", "reduced_twice", "persimmon/X", "o", scaled(2.0)),
)  # fmt: skip


def _sandwich_from_norm(
    self: Any, hidden_states: Tensor, *args: Any, **kwargs: Any
) -> Tensor:  # GLM-4's layer
    """Take the second residual behind its norm."""
    output = self.post_self_attn_layernorm(attend(self, hidden_states, args, kwargs))
    normed = self.post_attention_layernorm(hidden_states + output)
    return normed + self.post_mlp_layernorm(self.mlp(normed))


RESIDUALS: tuple[Planted, ...] = (
    fault("residual", "one_after_the_other", "gpt_neox/P", "layer",
          attribute(use_parallel_residual=False), all_layers=True),
    fault("residual", "from_behind_norm", "glm4/S", "layer", _of_itself(_sandwich_from_norm)),
    fault("residual", "none_around_mlp", "llama_biased/R", "layer",
          change_residual(lambda n, x, y: x + y if n == 0 else y)),
    fault("residual", "none_in_encoder", "electra/P", "attn_output",
          _of_itself(lambda self, x, before: self.LayerNorm(self.dropout(self.dense(x)))), layer=2),
    fault("residual", "twice_around_attention", "llama_tied/F", "layer",
          change_residual(lambda n, x, y: 2 * x + y if n == 0 else x + y), layer=2),
)  # fmt: skip


def _root_then_eps(self: Any, x: Tensor) -> Tensor:
    """Add epsilon to the root, and not below it."""
    root = x.pow(2).mean(-1, keepdim=True).sqrt()
    return self.weight * (x / (root + self.variance_epsilon))


EPSILONS: tuple[Planted, ...] = (
    fault("eps", "default_of_class", "helium/S", "norm1", attribute(variance_epsilon=1e-6),
          all_layers=True),
    fault("eps", "of_another_model", "cohere2/X", "norm1", attribute(variance_epsilon=1e-3),
          all_layers=True),
    fault("eps", "of_embedding_norm", "electra/P", "embed_norm", attribute(eps=1e-3)),
    fault("eps", "beside_the_root", "mixtral/R", "norm1", _of_itself(_root_then_eps), layer=0),
    fault("eps", "of_key_norm", "nanochat/F", "k_norm", attribute(eps=1e-2)),
)  # fmt: skip

OFFSETS: tuple[Planted, ...] = (
    fault("norm_offset", "no_one", "gemma/S", "norm1", weight(lambda w: w - 1.0),
          all_layers=True),
    fault("norm_offset", "no_one", "nemotron/R", "norm2", weight(lambda w: w - 1.0), layer=2),
    fault("norm_offset", "no_one", "gemma3_odd/X", "q_norm", weight(lambda w: w - 1.0), layer=3),
    fault("norm_offset", "a_one", "llama_biased/P", "norm", weight(lambda w: w + 1.0)),
    fault("norm_offset", "two", "vaultgemma/F", "pre_norm", weight(lambda w: w + 1.0)),
)  # fmt: skip


def _without_norms(usual: Any, module: Any, hidden: Tensor) -> Any:
    shape = (*hidden.shape[:-1], -1, module.head_dim)
    parts = (module.q_proj, module.k_proj, module.v_proj)
    return tuple(part(hidden).view(shape).transpose(1, 2) for part in parts)


def _rotated_then_normed(usual: Any, module: Any, q: Tensor, k: Tensor, tables: Any) -> Any:
    q, k = usual(module, q, k, tables)
    return module.q_norm(q), module.k_norm(k)


def _normed_then_rotated(usual: Any, module: Any, q: Tensor, k: Tensor, tables: Any) -> Any:
    cos, sin = (table.unsqueeze(1) for table in tables)
    return rotate(module.query_layernorm(q), cos, sin), rotate(module.key_layernorm(k), cos, sin)


def _norms_first(self: Any, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Norm what attention and MLP are given, and not what they give: OLMo 3's layer."""
    normed = self.post_attention_layernorm(hidden_states)
    hidden_states = hidden_states + self.self_attn(*args, hidden_states=normed, **kwargs)[0]
    return hidden_states + self.mlp(self.post_feedforward_layernorm(hidden_states))


def _norm_of_sum(self: Any, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Norm the sum of residual and attention, and not attention: Gemma 2's layer."""
    output = attend(self, hidden_states, args, kwargs)
    hidden_states = self.post_attention_layernorm(hidden_states + output)
    output = self.mlp(self.pre_feedforward_layernorm(hidden_states))
    return hidden_states + self.post_feedforward_layernorm(output)


NORM_ORDERS: tuple[Planted, ...] = (
    fault("norm_order", "behind_rotation", "qwen3_odd/P", "attn",
          change_attention(project=_without_norms, rotate=_rotated_then_normed),
          all_layers=True),
    fault("norm_order", "before_rotation", "hunyuan/S", "attn",
          change_attention(rotate=_normed_then_rotated), all_layers=True),
    fault("norm_order", "before_parts", "olmo3/R", "layer", _of_itself(_norms_first)),
    fault("norm_order", "behind_parts", "opt/F", "layer", attribute(do_layer_norm_before=False),
          layer=2),
    fault("norm_order", "of_the_sum", "gemma2_odd/S", "layer", _of_itself(_norm_of_sum), layer=0),
)  # fmt: skip


def _gate_and_up_exchanged(self: Any, hidden_states: Tensor) -> Tensor:
    up, gate = self.gate_up_proj(hidden_states).chunk(2, dim=-1)
    return self.down_proj(up * self.activation_fn(gate))  # type: ignore[no-any-return]  # a module


ACTIVATIONS: tuple[Planted, ...] = (
    fault("activation", "exact_gelu", "gemma/F", "act", _computes(F.gelu), all_layers=True),
    fault("activation", "gelu_by_tanh", "gpt_neox/P", "act",
          _computes(lambda x: F.gelu(x, approximate="tanh")), layer=2),
    fault("activation", "relu_not_squared", "arcee/R", "act", _computes(F.relu), all_layers=True),
    fault("activation", "quick_gelu", "phi/X", "act",
          _computes(lambda x: x * torch.sigmoid(1.702 * x))),
    fault("activation", "silu", "nemotron/P", "act", _computes(F.silu), layer=2),
    fault("activation", "of_the_other_half", "glm4/S", "mlp",
          _of_itself(_gate_and_up_exchanged), all_layers=True),
    fault("activation", "silu_in_experts", "gpt_oss/R", "experts", attribute(alpha=1.0)),
)  # fmt: skip


def _in_bfloat16(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any) -> Any:
    return *(rounded(torch.bfloat16)(x) for x in (q, k, v)), mask


def _router_in_bfloat16(module: Any) -> None:
    usual, rounding = module.forward, rounded(torch.bfloat16)
    weight(rounding)(module)
    replace_forward(module, lambda self, x: usual(rounding(x)))


CASTS: tuple[Planted, ...] = (
    fault("cast", "attention_in_bfloat16", "mistral/P", "attn", attending(_in_bfloat16),
          all_layers=True),
    fault("cast", "norm_in_bfloat16", "gemma/S", "norm2",
          changed_output(rounded(torch.bfloat16)), all_layers=True),
    fault("cast", "router_in_bfloat16", "mixtral/R", "router", _router_in_bfloat16),
    fault("cast", "residual_in_bfloat16", "falcon/P", "layer",
          changed_output(rounded(torch.bfloat16))),
    fault("cast", "mlp_in_float16", "gptj/S", "up", changed_output(rounded(torch.float16)),
          all_layers=True),
)  # fmt: skip


def _squares_in_half(self: Any, x: Tensor) -> Tensor:
    squares = x.half().pow(2).float().mean(-1, keepdim=True)
    return self.weight * (x * torch.rsqrt(squares + self.variance_epsilon))


def _scores_in_half(usual: Any, module: Any, q: Tensor, k: Tensor) -> Tensor:
    """Scale after the product, which leaves float16 before that."""
    return (q @ k.transpose(2, 3)).half().float() * module.scaling  # type: ignore[no-any-return]


OVERFLOWS: tuple[Planted, ...] = (
    fault("overflow", "squares_of_norm", "helium_loud/P", "norm1", _of_itself(_squares_in_half),
          layer=0),
    fault("overflow", "output_of_mlp", "gpt_neox_loud/R", "down",
          changed_output(rounded(torch.float16)), layer=2),
    fault("overflow", "squared_relu", "arcee_loud/P", "act",
          _computes(lambda x: F.relu(x).half().pow(2).float())),
    fault("overflow", "scores", "ernie4_5_loud/S", "attn",
          change_attention(score=_scores_in_half)),
)  # fmt: skip


def _not_normalized(self: Any, x: Tensor) -> Any:
    logits = F.linear(x.reshape(-1, self.hidden_dim), self.weight)
    chosen, indices = torch.topk(logits.softmax(-1), self.top_k, dim=-1)
    return logits, chosen, indices


def _softmax_of_all(self: Any, x: Tensor) -> Any:
    """Choose after the softmax, of which the chosen are a part."""
    logits = F.linear(x, self.weight, self.bias)
    chosen, indices = torch.topk(logits.softmax(-1), self.top_k, dim=-1)
    return logits, chosen, indices


def _corrected_weights(module: Any) -> None:
    """Weigh experts by the scores that only choose them."""
    usual = module.route_tokens_to_experts

    def route(logits: Tensor) -> Any:
        indices, _ = usual(logits)
        scores = logits.sigmoid() + module.gate.e_score_correction_bias
        chosen = scores.gather(1, indices)
        return indices, chosen / chosen.sum(-1, keepdim=True) * module.routed_scaling_factor

    module.route_tokens_to_experts = route


ROUTES: tuple[Planted, ...] = (
    fault("moe_routing", "not_normalized", "mixtral/P", "router", _of_itself(_not_normalized),
          all_layers=True),
    fault("moe_routing", "normalized", "olmoe/S", "router", attribute(norm_topk_prob=True),
          all_layers=True),
    fault("moe_routing", "one_expert_fewer", "qwen2_moe/R", "router", attribute(top_k=1)),
    fault("moe_routing", "no_groups", "deepseek_v3/F", "mlp",
          attribute(n_group=1, topk_group=1)),
    fault("moe_routing", "corrected_weights", "deepseek_v3/P", "mlp", _corrected_weights, layer=2),
    fault("moe_routing", "softmax_of_all", "gpt_oss/X", "router", _of_itself(_softmax_of_all),
          layer=0),
)  # fmt: skip


def _sum_of_squares(self: Any, x: Tensor) -> Tensor:
    return self.weight * (x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + self.variance_epsilon))


def _over_tokens(self: Any, x: Tensor) -> Tensor:
    mean, variance = x.mean(1, keepdim=True), x.var(1, keepdim=True, correction=0)
    return (x - mean) * torch.rsqrt(variance + 1e-5)


def _over_heads(self: Any, x: Tensor) -> Tensor:
    squares = x.pow(2).mean((-2, -1), keepdim=True)  # [B, S, 1, 1]
    return self.weight * (x * torch.rsqrt(squares + self.variance_epsilon))


def _over_first(count: int) -> Change:
    """Take mean and variance of the first features only, as a kernel that forgets its tail."""

    def forward(self: Any, x: Tensor) -> Tensor:
        some = x[..., :count]
        mean, variance = some.mean(-1, keepdim=True), some.var(-1, keepdim=True, correction=0)
        normed = (x - mean) * torch.rsqrt(variance + self.eps)
        return self.weight * normed + self.bias  # type: ignore[no-any-return]  # a parameter

    return _of_itself(forward)


REDUCTIONS: tuple[Planted, ...] = (
    fault("reduction", "sum_for_mean", "llama_biased/P", "norm2", _of_itself(_sum_of_squares)),
    fault("reduction", "over_tokens", "olmo/R", "norm1", _of_itself(_over_tokens), layer=2),
    fault("reduction", "over_heads_too", "qwen3_odd/S", "k_norm", _of_itself(_over_heads)),
    fault("reduction", "tail_left_out", "electra/P", "norm2", _over_first(32), layer=2),
    fault("reduction", "tail_left_out", "persimmon/R", "norm1", _over_first(48)),
)  # fmt: skip


def _rows_lost(start: int) -> Any:
    """Leave rows of the flattened batch [B * S, H] from a place on as zeros."""

    def change(y: Tensor) -> Tensor:
        flat = y.reshape(-1, y.shape[-1]).clone()
        flat[start:] = 0.0
        return flat.view(y.shape)

    return change


def _repeated_from(start: int) -> Any:
    """Write the row before a place over all that follow it, of [B, S, ...]."""

    def change(y: Tensor) -> Tensor:
        found = y.clone()
        found[:, start:] = found[:, start - 1 : start]
        return found

    return change


ROWS: tuple[Planted, ...] = (
    fault("kernel_rows", "from_eight_on", "mistral/R", "up",
          changed_output(lambda y: at_rows(y, 8, 0.9))),
    fault("kernel_rows", "single_rows", "stablelm/S", "down",
          changed_output(by_decoding(lambda y: y * 0.97)), layer=2, place=Place(step=1)),
    fault("kernel_rows", "second_tile_lost", "falcon/F", "up", changed_output(_rows_lost(20))),
    fault("kernel_rows", "last_tile_repeated", "qwen2_odd/L", "norm2",
          changed_output(_repeated_from(8))),
    fault("kernel_rows", "attention_from_ten_on", "gpt_oss/P", "attn",
          attended(lambda y: at_rows(y, 10, 0.0)), layer=2),
)  # fmt: skip

PLANTS: tuple[Planted, ...] = (
    *SCALES, *RESIDUALS, *EPSILONS, *OFFSETS, *NORM_ORDERS, *ACTIVATIONS, *CASTS, *OVERFLOWS,
    *ROUTES, *REDUCTIONS, *ROWS,
)  # fmt: skip

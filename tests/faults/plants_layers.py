"""Faults of layers: residuals, norms, activations, casts, experts, kernels.

Legend: B rows, S sequence, H hidden, E experts.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tests.faults.changes import (
    at_rows,
    attribute,
    changed_input,
    changed_output,
    scaled,
    weight,
)
from tests.faults.own_attention import attend, change_residual, replace_forward
from tests.faults.pair import Plant


def _bf16(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.bfloat16).to(x.dtype)


def _fp16(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float16).to(x.dtype)


def _rms_norm(compute: Any) -> Any:
    """Replace an RMSNorm: `compute(x in float32, weight, eps)`, llama's or Gemma's."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        eps = getattr(self, "variance_epsilon", None) or self.eps
        return compute(x, self.weight, eps).to(x.dtype)

    return lambda module: replace_forward(module, forward)


def _normal(x: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def _offset_before_cast(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    """Cast to the activations' dtype before the product, as llama does and Gemma does not."""
    return _normal(x, eps).to(x.dtype) * (1.0 + w)


def _weight_in_float32(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    """Cast after the product, as Gemma does and llama does not."""
    return _normal(x, eps) * w.float()


def _variance_in_low_precision(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    return w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def _centred(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    """Take the mean off, as a LayerNorm does."""
    return _normal(x - x.mean(-1, keepdim=True), eps) * w


def _over_sequence(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    """Take the mean of squares over the tokens of the row."""
    square = x.pow(2).mean(dim=(1, 2), keepdim=True)
    return x * torch.rsqrt(square + eps) * w


def _eps_outside(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True).sqrt() + eps) * w


def _unbiased(module: Any) -> None:
    """Divide a LayerNorm's variance by H - 1."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        deviation = (x.var(-1, keepdim=True, unbiased=True) + self.eps).sqrt()
        return (x - x.mean(-1, keepdim=True)) / deviation * self.weight + self.bias

    replace_forward(module, forward)


def _layer_norm_without_mean(module: Any) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return _normal(x, self.eps) * self.weight + self.bias

    replace_forward(module, forward)


def _activation(function: Any) -> Any:
    return lambda module: replace_forward(module, lambda self, x: function(x))


def _swapped(module: Any) -> None:
    """Activate the up projection, and not the gate."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.gate_proj(x) * self.act_fn(self.up_proj(x)))

    replace_forward(module, forward)


def _sum_of_gate_and_up(module: Any) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) + self.up_proj(x))

    replace_forward(module, forward)


def _clipped_product(limit: float) -> Any:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        product = self.act_fn(self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(product.clamp(-limit, limit))

    return lambda module: replace_forward(module, forward)


def _product_in_bf16(module: Any) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(_bf16(self.act_fn(self.gate_proj(x)) * self.up_proj(x)))

    replace_forward(module, forward)


def _post_norm_first(module: Any) -> None:
    """Norm the sum of residual and output, and not the output alone."""

    def forward(self: Any, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        output = attend(self, hidden, args, kwargs)
        hidden = self.post_attention_layernorm(hidden + output)
        output = self.mlp(self.pre_feedforward_layernorm(hidden))
        return hidden + self.post_feedforward_layernorm(output)

    replace_forward(module, forward)


def _norm_behind_attention(module: Any) -> None:
    """Feed the MLP what is normed, and add its output to that."""

    def forward(self: Any, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        output = attend(self, hidden, args, kwargs)
        hidden = self.post_attention_layernorm(hidden + output)
        return hidden + self.mlp(hidden)

    replace_forward(module, forward)


def _parallel(module: Any) -> None:
    """Feed attention and MLP the same hidden states."""

    def forward(self: Any, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        output = attend(self, hidden, args, kwargs)
        return hidden + output + self.mlp(self.post_attention_layernorm(hidden))

    replace_forward(module, forward)


def _later_rows(start: int, value: float) -> Any:
    return changed_output(lambda y: at_rows(y, start, value) if y.shape[1] > start else y)


def _flat_rows(start: int) -> Any:
    """Read rows of the whole batch from a place on one row too early, as a tile's edge does."""

    def change(y: torch.Tensor) -> torch.Tensor:
        flat = y.reshape(-1, y.shape[-1]).clone()
        flat[start:] = flat[start:] * 1.01 + 0.02
        return flat.view(y.shape)

    return changed_output(change)


def _last_column(y: torch.Tensor) -> torch.Tensor:
    y = y.clone()
    y[..., -1] = y[..., -2]
    return y


def _half_accumulation(module: Any) -> None:
    """Sum blocks of 8 in bfloat16."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros((*x.shape[:-1], self.weight.shape[0]))
        blocks = zip(x.split(8, dim=-1), self.weight.split(8, dim=-1), strict=True)
        for part, columns in blocks:
            y = _bf16(y + F.linear(part, columns))
        return y if self.bias is None else y + self.bias

    replace_forward(module, forward)


def _last_block_lost(module: Any) -> None:
    """Leave the last input features out, as where the sum goes in steps of 13."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[-1] - x.shape[-1] % 13
        return F.linear(x[..., :size], self.weight[:, :size], self.bias)

    replace_forward(module, forward)


def _router(route: Any) -> Any:
    """Change what Qwen3-MoE's router gives: `route(self, logits)`, weights and ids [B * S, top]."""

    def forward(self: Any, x: torch.Tensor) -> Any:
        logits = F.linear(x.reshape(-1, self.hidden_dim), self.weight)
        weights, ids = route(self, logits)
        return logits, weights.to(logits.dtype), ids

    return lambda module: replace_forward(module, forward)


def _not_renormalised(self: Any, logits: torch.Tensor) -> Any:
    weights, ids = logits.softmax(-1, dtype=torch.float).topk(self.top_k, dim=-1)
    return weights, ids


def _sigmoid(self: Any, logits: torch.Tensor) -> Any:
    weights, ids = logits.float().sigmoid().topk(self.top_k, dim=-1)
    return weights / weights.sum(-1, keepdim=True), ids


def _one_expert_less(self: Any, logits: torch.Tensor) -> Any:
    weights, ids = logits.softmax(-1, dtype=torch.float).topk(self.top_k, dim=-1)
    weights[:, 1:] = 0
    return weights / weights.sum(-1, keepdim=True), ids


def _weights_in_turn(self: Any, logits: torch.Tensor) -> Any:
    weights, ids = logits.softmax(-1, dtype=torch.float).topk(self.top_k, dim=-1)
    return (weights / weights.sum(-1, keepdim=True)).flip(-1), ids


def _lowest(self: Any, logits: torch.Tensor) -> Any:
    weights, ids = logits.softmax(-1, dtype=torch.float).topk(self.top_k, largest=False)
    return weights / weights.sum(-1, keepdim=True), ids


def _third_for_second(self: Any, logits: torch.Tensor) -> Any:
    """Send every fourth token to its third expert, and not to its second."""
    weights, ids = logits.softmax(-1, dtype=torch.float).topk(self.top_k + 1, dim=-1)
    late = torch.arange(len(ids)) % 4 == 3
    weights[late, -2], ids[late, -2] = weights[late, -1], ids[late, -1]
    weights, ids = weights[:, :-1], ids[:, :-1]
    return weights / weights.sum(-1, keepdim=True), ids


def _glm_routes(*, softmax: bool, keeps_bias: bool, bias: bool = True, factor: bool = True) -> Any:
    """Route as GLM-4 MoE does, but for one part."""

    def route(self: Any, logits: torch.Tensor) -> Any:
        scores = logits.softmax(-1) if softmax else logits.sigmoid()
        choice = scores + self.gate.e_score_correction_bias if bias else scores
        ids = torch.topk(choice, k=self.top_k, dim=-1, sorted=False)[1]
        weights = (choice if keeps_bias else scores).gather(1, ids)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return ids, weights * (self.routed_scaling_factor if factor else 1.0)

    def change(module: Any) -> None:
        module.route_tokens_to_experts = lambda logits: route(module, logits)

    return change


def _shared_lost(module: Any) -> None:
    usual = module.forward
    replace_forward(module, lambda self, x: usual(x) - self.shared_experts(x))


def _residual_lost(module: Any) -> None:
    """Forget what BLOOM's MLP is given to add."""
    usual = module.forward
    replace_forward(module, lambda self, x, residual: usual(x, torch.zeros_like(residual)))


def _to_half(root: Any) -> Any:
    return root.half()


def _square_in_fp16(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    square = x.to(torch.float16).pow(2).float().mean(-1, keepdim=True)
    return w * (x.float() * torch.rsqrt(square + eps)).to(x.dtype)


def _logit_shift_and(change: Any) -> Any:
    """Recentre the head, which is harmless, and plant a fault in layer 1's attention."""

    def apply(root: Any) -> None:
        weight(lambda w: w - w.mean(0, keepdim=True))(root.lm_head)
        root.model.layers[1].self_attn.scaling *= change

    return apply


def _top_embedding_times(factor: float) -> Any:
    """Let the body of the model multiply what its embedding gives."""

    def apply(body: Any) -> None:
        body.layers[0].register_forward_pre_hook(lambda module, args: (args[0] * factor, *args[1:]))

    return apply


_LOST_FIRST = change_residual(lambda number, r, y: y if number == 0 else r + y)
_DOUBLED = change_residual(lambda number, r, y: r + y + y if number == 1 else r + y)
# A table, a fault a paragraph.
# fmt: off
PLANTS: tuple[Plant, ...] = (
    # scale
    Plant(kind="scale", name="embedding_multiplier_missing", archs=("gemma3", "gemma2"),
          role="embed", change=scaled(32**-0.5), cause="scale"),
    Plant(kind="scale", name="embedding_multiplier_rounded", archs=("gemma3",), role="embed",
          change=scaled(5.65625 / 32**0.5), cause="scale"),
    Plant(kind="scale", name="embedding_multiplied_by_body", archs=("llama", "qwen3"), role="top",
          change=_top_embedding_times(2.0), cause="scale"),
    Plant(kind="scale", name="embedding_multiplier_of_body_missing", archs=("granite",),
          role="top", change=lambda body: setattr(body, "embedding_multiplier", 1.0),
          cause="scale"),
    Plant(kind="scale", name="residual_multiplier_missing", archs=("granite",), role="layer",
          change=attribute(residual_multiplier=1.0), cause="scale"),
    Plant(kind="scale", name="logits_scaling_missing", archs=("granite",), role="root",
          change=lambda root: setattr(root.config, "logits_scaling", 1.0), cause="scale"),
    Plant(kind="scale", name="behind_a_harmless_logit_shift", archs=("llama", "qwen3"),
          role="attn", at="root", change=_logit_shift_and(2**0.5), cause="scale"),
    # residual
    Plant(kind="residual", name="sum_doubled", archs=("llama", "gemma3", "gpt2"), role="layer",
          change=change_residual(lambda number, r, y: 2 * (r + y) if number == 1 else r + y),
          cause="residual"),
    Plant(kind="residual", name="output_added_twice", archs=("llama", "qwen2"), role="layer",
          layer=2, change=_DOUBLED, cause="residual"),
    Plant(kind="residual", name="first_lost", archs=("llama", "qwen3", "gemma2"), role="layer",
          change=_LOST_FIRST, cause="residual"),
    Plant(kind="residual", name="second_lost", archs=("qwen3_moe", "gpt2"), role="layer", layer=0,
          change=change_residual(lambda number, r, y: y if number == 1 else r + y),
          cause="residual"),
    Plant(kind="residual", name="lost_in_output_module", archs=("bloom",), role="mlp",
          change=_residual_lost, cause="residual"),
    Plant(kind="residual", name="subtracted", archs=("llama",), role="layer", layer=0,
          change=change_residual(lambda number, r, y: r - y if number == 0 else r + y),
          cause="residual"),
    # eps
    Plant(kind="eps", name="of_the_class", archs=("llama", "qwen3"), role="norm1", layer=0,
          change=attribute(variance_epsilon=1e-3), cause="eps"),
    Plant(kind="eps", name="post_norm_only", archs=("gemma3_small",), role="norm2",
          change=attribute(eps=1e-5), cause="eps"),
    Plant(kind="eps", name="post_norm_smaller", archs=("gemma3_small",), role="norm2", layer=0,
          change=attribute(eps=1e-6), cause="eps"),
    Plant(kind="eps", name="layer_norm", archs=("gpt2", "bert", "bloom"), role="norm1",
          change=attribute(eps=1e-3), cause="eps"),
    Plant(kind="eps", name="final", archs=("llama", "granite"), role="norm",
          change=attribute(variance_epsilon=1e-2), cause="eps"),
    Plant(kind="eps", name="of_q_norm", archs=("qwen3", "qwen3_moe"), role="q_norm",
          change=attribute(variance_epsilon=1e-3), cause="eps"),
    Plant(kind="eps", name="outside_of_the_root", archs=("llama",), role="norm2", layer=0,
          change=_rms_norm(lambda x, w, eps: _eps_outside(x, w, 1e-3)), cause="eps"),
    # norm_offset
    Plant(kind="norm_offset", name="one_missing", archs=("gemma3", "gemma2"), role="norm1",
          change=_rms_norm(lambda x, w, eps: _normal(x, eps) * w), cause="norm_offset"),
    Plant(kind="norm_offset", name="one_too_many", archs=("llama", "qwen3"), role="norm2",
          change=_rms_norm(lambda x, w, eps: _normal(x, eps) * (1 + w)), cause="norm_offset"),
    Plant(kind="norm_offset", name="q_norm_one_missing", archs=("gemma3",), role="q_norm",
          change=_rms_norm(lambda x, w, eps: _normal(x, eps) * w), cause="norm_offset"),
    Plant(kind="norm_offset", name="final_one_too_many", archs=("qwen3_moe",), role="norm",
          change=_rms_norm(lambda x, w, eps: _normal(x, eps) * (1 + w)), cause="norm_offset"),
    # norm_order
    Plant(kind="norm_order", name="sum_normed", archs=("gemma3", "gemma2"), role="layer",
          change=_post_norm_first, cause="norm_order"),
    Plant(kind="norm_order", name="normed_kept", archs=("llama", "qwen2"), role="layer",
          change=_norm_behind_attention, cause="norm_order"),
    Plant(kind="norm_order", name="parallel", archs=("llama", "qwen3"), role="layer", layer=0,
          change=_parallel, cause="norm_order"),
    Plant(kind="norm_order", name="mean_taken_off", archs=("llama", "granite"), role="norm1",
          change=_rms_norm(_centred), cause="norm_order"),
    Plant(kind="norm_order", name="mean_not_taken_off", archs=("gpt2", "bert"), role="norm2",
          change=_layer_norm_without_mean, cause="norm_order"),
    # activation
    Plant(kind="activation", name="erf_for_tanh", archs=("gemma3", "gemma2", "gpt2", "bloom"),
          role="act", change=_activation(F.gelu), cause="activation"),
    Plant(kind="activation", name="tanh_for_erf", archs=("bert",), role="act",
          change=_activation(lambda x: F.gelu(x, approximate="tanh")), cause="activation"),
    Plant(kind="activation", name="quick_gelu", archs=("gpt2", "bert"), role="act", layer=0,
          change=_activation(lambda x: x * torch.sigmoid(1.702 * x)), cause="activation"),
    Plant(kind="activation", name="gelu_for_silu", archs=("llama", "qwen3"), role="act",
          change=_activation(F.gelu), cause="activation"),
    Plant(kind="activation", name="relu", archs=("qwen2",), role="act", layer=0,
          change=_activation(F.relu), cause="activation"),
    Plant(kind="activation", name="on_up", archs=("llama", "gemma3"), role="mlp",
          change=_swapped, cause="activation"),
    Plant(kind="activation", name="gate_added", archs=("qwen3",), role="mlp",
          change=_sum_of_gate_and_up, cause="activation"),
    # soft_cap
    Plant(kind="soft_cap", name="final_missing", archs=("gemma2",), role="root",
          change=lambda root: setattr(root.config, "final_logit_softcapping", None),
          cause="soft_cap"),
    Plant(kind="soft_cap", name="final_wrong", archs=("gemma2",), role="root",
          change=lambda root: setattr(root.config, "final_logit_softcapping", 5.0),
          cause="soft_cap"),
    # clip
    Plant(kind="clip", name="q_clipped", archs=("llama", "qwen2"), role="q",
          change=changed_output(lambda y: y.clamp(-2, 2)), cause="clip"),
    Plant(kind="clip", name="product_clipped", archs=("llama", "gemma3"), role="mlp",
          change=_clipped_product(1.0), cause="clip"),
    Plant(kind="clip", name="input_clipped", archs=("qwen3", "gpt2"), role="down",
          change=changed_input(lambda x: x.clamp(-0.5, 0.5)), cause="clip"),
    # cast
    Plant(kind="cast", name="weight_in_bfloat16", archs=("llama", "gpt2"), role="o",
          change=weight(_bf16), cause="cast"),
    Plant(kind="cast", name="weight_in_float16", archs=("qwen3",), role="down",
          change=weight(_fp16), cause="cast"),
    Plant(kind="cast", name="input_in_bfloat16", archs=("llama", "qwen2"), role="gate",
          change=changed_input(_bf16), cause="cast"),
    Plant(kind="cast", name="product_in_bfloat16", archs=("llama", "granite"), role="mlp",
          change=_product_in_bf16, cause="cast"),
    Plant(kind="cast", name="norm_in_bfloat16", archs=("gemma3", "bert"), role="norm1",
          change=changed_output(_bf16), cause="cast"),
    Plant(kind="cast", name="logits_in_bfloat16", archs=("llama",), role="head",
          change=changed_output(_bf16), cause="cast"),
    Plant(kind="cast", name="residual_in_bfloat16", archs=("llama", "qwen3"), role="layer",
          change=change_residual(lambda number, r, y: _bf16(r + y) if number else r + y),
          cause="cast"),
    Plant(kind="cast", name="offset_before_cast", archs=("gemma3@bfloat16", "gemma2@bfloat16"),
          role="norm1", layer=0, change=_rms_norm(_offset_before_cast), cause="cast", subtle=True),
    Plant(kind="cast", name="weight_in_float32", archs=("llama@bfloat16",), role="norm1", layer=0,
          change=_rms_norm(_weight_in_float32), cause="cast", subtle=True),
    Plant(kind="cast", name="variance_in_bfloat16", archs=("llama@bfloat16", "qwen3@bfloat16"),
          role="norm2", change=_rms_norm(_variance_in_low_precision), cause="cast", subtle=True),
    # overflow
    Plant(kind="overflow", name="down_proj", archs=("llama_peak",), role="down", at="root",
          change=_to_half, cause="overflow"),
    Plant(kind="overflow", name="square", archs=("llama_large@float16",), role="norm1", layer=0,
          change=_rms_norm(_square_in_fp16), cause="overflow"),
    Plant(kind="overflow", name="square_later", archs=("llama_large@float16",), role="norm2",
          layer=1, change=_rms_norm(_square_in_fp16), cause="overflow"),
    Plant(kind="overflow", name="one_value", archs=("qwen3", "gemma3"), role="up",
          change=changed_output(lambda y: torch.where(y == y.amax(), float("inf"), y)),
          cause="unknown"),
    Plant(kind="overflow", name="nan", archs=("llama",), role="v",
          change=changed_output(lambda y: torch.where(y == y.amin(), float("nan"), y)),
          cause="unknown"),
    # kernel_rows
    Plant(kind="kernel_rows", name="from_8_on", archs=("llama", "granite", "bert"), role="down",
          change=_later_rows(8, 1.5), cause="kernel_rows"),
    Plant(kind="kernel_rows", name="from_8_on_slightly", archs=("qwen3", "gpt2"), role="up",
          change=_later_rows(8, 1.001), cause="kernel_rows"),
    Plant(kind="kernel_rows", name="from_16_on_of_the_batch", archs=("llama", "qwen2"), role="q",
          change=_flat_rows(16), cause="kernel_rows"),
    Plant(kind="kernel_rows", name="last_column", archs=("llama", "bloom"), role="up",
          change=changed_output(_last_column), cause="kernel_rows"),
    # reduction
    Plant(kind="reduction", name="norm_over_tokens", archs=("llama",), role="norm1",
          change=_rms_norm(_over_sequence), cause="reduction"),
    Plant(kind="reduction", name="unbiased_variance", archs=("gpt2", "bert", "bloom"),
          role="norm2", change=_unbiased, cause="reduction"),
    Plant(kind="reduction", name="summed_in_bfloat16", archs=("llama", "qwen2"), role="down",
          change=_half_accumulation, cause="cast"),
    Plant(kind="reduction", name="last_block_lost", archs=("llama", "granite"), role="up",
          change=_last_block_lost, cause="reduction"),
    # moe_routing
    Plant(kind="moe_routing", name="not_renormalised", archs=("qwen3_moe",), role="router",
          change=_router(_not_renormalised), cause="moe_routing", also=("mlp",)),
    Plant(kind="moe_routing", name="sigmoid", archs=("qwen3_moe",), role="router", layer=0,
          change=_router(_sigmoid), cause="moe_routing", also=("mlp",)),
    Plant(kind="moe_routing", name="one_expert_less", archs=("qwen3_moe",), role="router",
          change=_router(_one_expert_less), cause="moe_routing", also=("mlp",)),
    Plant(kind="moe_routing", name="weights_of_the_other_expert", archs=("qwen3_moe",),
          role="router", layer=2, change=_router(_weights_in_turn), cause="moe_routing",
          also=("mlp",)),
    Plant(kind="moe_routing", name="lowest_chosen", archs=("qwen3_moe",), role="router",
          change=_router(_lowest), cause="moe_routing", also=("mlp",)),
    Plant(kind="moe_routing", name="third_for_second_now_and_then", archs=("qwen3_moe",),
          role="router", change=_router(_third_for_second), cause="moe_routing", also=("mlp",)),
    Plant(kind="moe_routing", name="softmax_for_sigmoid", archs=("glm4_moe",), role="mlp",
          change=_glm_routes(softmax=True, keeps_bias=False), cause="moe_routing"),
    Plant(kind="moe_routing", name="bias_kept_in_weights", archs=("glm4_moe",), role="mlp",
          change=_glm_routes(softmax=False, keeps_bias=True), cause="moe_routing"),
    Plant(kind="moe_routing", name="softmax_and_bias_kept", archs=("glm4_moe",), role="mlp",
          layer=2, change=_glm_routes(softmax=True, keeps_bias=True), cause="moe_routing"),
    Plant(kind="moe_routing", name="bias_not_added", archs=("glm4_moe",), role="mlp",
          change=_glm_routes(softmax=False, keeps_bias=False, bias=False), cause="moe_routing"),
    Plant(kind="moe_routing", name="factor_missing", archs=("glm4_moe",), role="mlp",
          change=_glm_routes(softmax=False, keeps_bias=False, factor=False), cause="moe_routing"),
    Plant(kind="moe_routing", name="shared_expert_lost", archs=("glm4_moe",), role="mlp",
          change=_shared_lost, cause="moe_routing"),
)
# fmt: on

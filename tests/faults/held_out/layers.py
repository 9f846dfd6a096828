"""Held-out faults of layers: the order of their parts, and residuals."""

from __future__ import annotations

from typing import Any

import torch

from tests.faults.changes import attribute
from tests.faults.held_out.steps import Step, computing, layer_of
from tests.faults.pair import Plant

Tensor = torch.Tensor


def _plant(kind: str, name: str, archs: str, role: str, change: Any, **more: Any) -> Plant:
    values = {"cause": kind, **more}
    return Plant(
        kind=kind, name=name, archs=tuple(archs.split()), role=role, change=change, **values
    )


def _parallel(layer: Any, x: Tensor, attend: Step) -> Tensor:
    attention = attend(layer.input_layernorm(x))
    return x + attention + layer.mlp(layer.post_attention_layernorm(x))


def _one_norm_for_both(layer: Any, x: Tensor, attend: Step) -> Tensor:
    h = x + attend(layer.input_layernorm(x))
    return h + layer.mlp(layer.input_layernorm(h))


def _residual_of_normed(layer: Any, x: Tensor, attend: Step) -> Tensor:
    normed = layer.input_layernorm(x)
    h = normed + attend(normed)
    return h + layer.mlp(layer.post_attention_layernorm(h))


def _residual_of_layer_twice(layer: Any, x: Tensor, attend: Step) -> Tensor:
    h = x + attend(layer.input_layernorm(x))
    return x + layer.mlp(layer.post_attention_layernorm(h))


def _second_residual_of_normed(layer: Any, x: Tensor, attend: Step) -> Tensor:
    h = x + attend(layer.input_layernorm(x))
    normed = layer.post_attention_layernorm(h)
    return normed + layer.mlp(normed)


def _attention_added_twice(layer: Any, x: Tensor, attend: Step) -> Tensor:
    attention = attend(layer.input_layernorm(x))
    h = x + attention
    return h + attention + layer.mlp(layer.post_attention_layernorm(h))


def _averaged(layer: Any, x: Tensor, attend: Step) -> Tensor:
    h = (x + attend(layer.input_layernorm(x))) * 2**-0.5
    return h + layer.mlp(layer.post_attention_layernorm(h))


def _norm_behind_sum(layer: Any, x: Tensor, attend: Step) -> Tensor:
    h = layer.input_layernorm(x + attend(x))
    return layer.post_attention_layernorm(h + layer.mlp(h))


def _sum_in_bfloat16(layer: Any, x: Tensor, attend: Step) -> Tensor:
    h = (x + attend(layer.input_layernorm(x))).bfloat16().to(x.dtype)
    return h + layer.mlp(layer.post_attention_layernorm(h))


def _olmo2_norm_before(layer: Any, x: Tensor, attend: Step) -> Tensor:
    h = x + attend(layer.post_attention_layernorm(x))
    return h + layer.mlp(layer.post_feedforward_layernorm(h))


def _olmo2_norm_of_sum(layer: Any, x: Tensor, attend: Step) -> Tensor:
    h = layer.post_attention_layernorm(x + attend(x))
    return h + layer.post_feedforward_layernorm(layer.mlp(h))


def _cohere_in_turn(layer: Any, x: Tensor, attend: Step) -> Tensor:
    h = x + attend(layer.input_layernorm(x))
    return h + layer.mlp(layer.input_layernorm(h))


def _cohere_mlp_of_raw(layer: Any, x: Tensor, attend: Step) -> Tensor:
    return x + attend(layer.input_layernorm(x)) + layer.mlp(x)


def _cohere_mlp_of_attention(layer: Any, x: Tensor, attend: Step) -> Tensor:
    attention = attend(layer.input_layernorm(x))
    return x + attention + layer.mlp(attention)


def _gemma_without_post_norm(layer: Any, x: Tensor, attend: Step) -> Tensor:
    h = x + attend(layer.input_layernorm(x))
    return h + layer.post_feedforward_layernorm(layer.mlp(layer.pre_feedforward_layernorm(h)))


def _gemma_norm_of_sum(layer: Any, x: Tensor, attend: Step) -> Tensor:
    h = layer.post_attention_layernorm(x + attend(layer.input_layernorm(x)))
    return h + layer.post_feedforward_layernorm(layer.mlp(layer.pre_feedforward_layernorm(h)))


def _gemma_without_pre_norm(layer: Any, x: Tensor, attend: Step) -> Tensor:
    h = x + layer.post_attention_layernorm(attend(layer.input_layernorm(x)))
    return h + layer.post_feedforward_layernorm(layer.mlp(h))


def _skipped(self: Any, hidden_states: Tensor, *_: Any, **__: Any) -> Tensor:
    return hidden_states


def _run_twice(module: Any) -> None:
    usual = module.forward
    computing(lambda _, x, *args, **kw: usual(usual(x, *args, **kw), *args, **kw))(module)


def _bert_part(compute: Any) -> Any:
    """Replace a sum with the residual in bert: `compute(part, dense(x), residual)`."""
    return computing(lambda self, x, residual: compute(self, self.dense(x), residual))


PLANTS = (
    _plant("norm_order", "parallel", "llama starcoder2", "layer", layer_of(_parallel)),
    _plant("norm_order", "one_norm_for_both", "qwen2 phi3", "layer",
           layer_of(_one_norm_for_both), also=("norm2",)),
    _plant("norm_order", "behind_sum", "llama3", "layer", layer_of(_norm_behind_sum)),
    _plant("norm_order", "before_parts", "olmo2", "layer", layer_of(_olmo2_norm_before)),
    _plant("norm_order", "of_sum", "olmo2", "layer", layer_of(_olmo2_norm_of_sum), layer=2),
    _plant("norm_order", "of_sum", "gemma2", "layer", layer_of(_gemma_norm_of_sum), layer=0),
    _plant("norm_order", "in_turn", "cohere", "layer", layer_of(_cohere_in_turn)),
    _plant("norm_order", "mlp_of_raw", "cohere", "layer", layer_of(_cohere_mlp_of_raw), layer=2),
    _plant("norm_order", "mlp_of_attention", "cohere", "layer",
           layer_of(_cohere_mlp_of_attention), layer=0),
    _plant("norm_order", "without_post_norm", "gemma3", "layer",
           layer_of(_gemma_without_post_norm), also=("norm2",)),
    _plant("norm_order", "without_pre_norm", "gemma2", "layer",
           layer_of(_gemma_without_pre_norm), also=("pre_norm",), layer=2),
    _plant("residual", "of_normed", "qwen3 starcoder2", "layer", layer_of(_residual_of_normed)),
    _plant("residual", "second_of_normed", "phi3", "layer",
           layer_of(_second_residual_of_normed)),
    _plant("residual", "of_layer_twice", "llama qwen3_moe", "layer",
           layer_of(_residual_of_layer_twice), layer=0),
    _plant("residual", "attention_twice", "glm4_moe", "layer", layer_of(_attention_added_twice)),
    _plant("residual", "averaged", "llama", "layer", layer_of(_averaged), layer=2),
    _plant("residual", "multiplier_missing", "granite", "layer",
           attribute(residual_multiplier=1.0)),
    _plant("residual", "of_bloom_normed", "bloom", "layer",
           attribute(apply_residual_connection_post_layernorm=True)),
    _plant("residual", "of_bert_missing", "bert", "mlp_output",
           _bert_part(lambda self, y, residual: self.LayerNorm(y))),
    _plant("residual", "of_bert_behind_norm", "bert", "attn_output",
           _bert_part(lambda self, y, residual: self.LayerNorm(y) + residual), layer=2),
    _plant("cast", "sum_in_bfloat16", "qwen2", "layer", layer_of(_sum_in_bfloat16)),
    _plant("layer_order", "skipped", "llama gemma3", "layer", computing(_skipped),
           cause="unknown"),
    _plant("layer_order", "skipped", "starcoder2", "layer", computing(_skipped),
           cause="unknown", layer=2),
    _plant("layer_order", "run_twice", "bert", "layer", _run_twice, cause="unknown"),
)  # fmt: skip

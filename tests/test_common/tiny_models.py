"""Tiny Hugging Face models whose sizes hide no fault, with random weights."""

from typing import Any

import torch
from transformers import (
    BertConfig,
    BertModel,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 48,
    "vocab_size": 64,
    "num_hidden_layers": 3,
    "rms_norm_eps": 3e-5,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
# Longer than 8 tokens and than the sliding window of 4, and of two lengths.
ROWS = [list(range(2, 15)), [40, 41, 7, 9, 33, 60, 5, 21, 22]]


def tiny_llama() -> Any:
    return _randomised(LlamaForCausalLM, LlamaConfig(**SIZES, rope_parameters=_rope(20000.0)))


def tiny_qwen3() -> Any:
    return _randomised(Qwen3ForCausalLM, Qwen3Config(**SIZES, rope_parameters=_rope(20000.0)))


def tiny_qwen3_moe() -> Any:
    config = Qwen3MoeConfig(
        **SIZES,
        rope_parameters=_rope(20000.0),
        num_experts=6,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[],
    )
    return _randomised(Qwen3MoeForCausalLM, config)


def tiny_gemma3() -> Any:
    config = Gemma3TextConfig(
        **SIZES,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        query_pre_attn_scalar=20,
    )
    return _randomised(Gemma3ForCausalLM, config)


def tiny_bert() -> Any:
    config = BertConfig(
        hidden_size=32,
        num_attention_heads=4,
        intermediate_size=48,
        vocab_size=64,
        num_hidden_layers=2,
        pad_token_id=0,
        layer_norm_eps=3e-5,
    )
    return _randomised(BertModel, config)


def _rope(theta: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta}


def _randomised(model_class: Any, config: Any) -> Any:
    """Build a model whose norm weights and biases are random too, and large enough to matter."""
    generator = torch.Generator().manual_seed(7)
    model = model_class._from_config(config, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise * 0.3 + (1.0 if parameter.dim() == 1 else 0.0))
    return model.eval()

"""Tiny random models of many architectures, and where the parts of each lie.

An architecture is named `llama`, or `llama@bfloat16` for the same weights in another dtype.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
import transformers

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
# Every projection of attention is square: a transposed weight still fits.
SQUARE = {**SIZES, "num_key_value_heads": 4, "head_dim": 8}
WINDOW = 4
# Longer than 8 tokens and than the window, and of two lengths.
SHORT_ROWS = ((*range(2, 15),), (40, 41, 7, 9, 33, 60, 5, 21, 22))
# Longer than 256 positions, from where on bfloat16 cannot count.
LONG_ROWS = (
    tuple(2 + (7 * n + n // 5) % 61 for n in range(600)),
    tuple(2 + (11 * n + n // 7) % 61 for n in range(450)),
)
_ROPE = {"rope_type": "default", "rope_theta": 20000.0}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 20000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}
_LAYER_TYPES = ["sliding_attention", "full_attention", "sliding_attention"]
_GEMMA = {**SIZES, "sliding_window": WINDOW, "layer_types": _LAYER_TYPES}

# Class of the model, class of the configuration, and its fields.
_CONFIGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**SIZES, "rope_parameters": _ROPE}),
    "llama_square": ("LlamaForCausalLM", "LlamaConfig", {**SQUARE, "rope_parameters": _ROPE}),
    "llama3": ("LlamaForCausalLM", "LlamaConfig", {**SIZES, "rope_parameters": _LLAMA3_ROPE}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {**SIZES, "rope_parameters": _ROPE}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**SIZES, "rope_parameters": _ROPE}),
    "gemma2": (
        "Gemma2ForCausalLM",
        "Gemma2Config",
        {
            **_GEMMA,
            "query_pre_attn_scalar": 20,
            "attn_logit_softcapping": 4.0,
            "final_logit_softcapping": 6.0,
        },
    ),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**_GEMMA, "query_pre_attn_scalar": 20}),
    "granite": (
        "GraniteForCausalLM",
        "GraniteConfig",
        {
            **SIZES,
            "rope_parameters": _ROPE,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.7,
            "embedding_multiplier": 3.0,
            "logits_scaling": 2.0,
        },
    ),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        {
            **SIZES,
            **_EXPERTS,
            "rope_parameters": _ROPE,
            "num_experts": 6,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
    ),
    "glm4_moe": (
        "Glm4MoeForCausalLM",
        "Glm4MoeConfig",
        {
            **SIZES,
            **_EXPERTS,
            "rope_parameters": {**_ROPE, "partial_rotary_factor": 0.5},
            "n_routed_experts": 6,
            "n_shared_experts": 1,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 1.5,
            "use_qk_norm": False,
        },
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {
            "n_embd": 32,
            "n_head": 4,
            "n_inner": 48,
            "n_layer": 3,
            "vocab_size": 64,
            "n_positions": 1024,
            "layer_norm_epsilon": 3e-5,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": None,
            "tie_word_embeddings": True,
        },
    ),
    "bloom": (
        "BloomForCausalLM",
        "BloomConfig",
        {
            "hidden_size": 32,
            "n_head": 4,
            "n_layer": 3,
            "vocab_size": 64,
            "layer_norm_epsilon": 3e-5,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": None,
        },
    ),
    "bert": (
        "BertModel",
        "BertConfig",
        {
            "hidden_size": 32,
            "num_attention_heads": 4,
            "intermediate_size": 48,
            "vocab_size": 64,
            "num_hidden_layers": 3,
            "pad_token_id": 0,
            "layer_norm_eps": 3e-5,
        },
    ),
}


def _shrink_attention(model: Any) -> None:
    """Let what the norm behind attention gets be so small that its epsilon matters."""
    for name, parameter in model.named_parameters():
        if name.endswith("o_proj.weight"):
            parameter.mul_(1e-2)


def _enlarge_embedding(model: Any) -> None:
    """Let activations be so large that their squares leave float16."""
    model.get_input_embeddings().weight.mul_(1500.0)


def _enlarge_mlp(model: Any) -> None:
    """Let one output of one down_proj leave float16, and nothing else come near."""
    model.model.layers[1].mlp.down_proj.weight[5].mul_(30000.0)


# The others take transformers' own choice, grouped products that know no float64.
_LOOPS_OVER_EXPERTS = ("glm4_moe",)
# Variants: the architecture they begin with, and what is done to its weights.
_VARIANTS: dict[str, tuple[str, Callable[[Any], None]]] = {
    "gemma3_small": ("gemma3", _shrink_attention),
    "llama_large": ("llama", _enlarge_embedding),
    "llama_peak": ("llama", _enlarge_mlp),
}


def _see_all(path: str) -> Callable[[Any], None]:
    """Let the attention at a path see later tokens too, by a class of its own."""

    def change(model: Any) -> None:
        attention = model.get_submodule(path)

        class SeesAll(type(attention)):  # type: ignore[misc]  # its class is what a model has
            def forward(self, *args: Any, attention_mask: Any = None, **kwargs: Any) -> Any:
                last = attention_mask[:, :, -1:].expand_as(attention_mask)  # [B, 1, S, T]
                return super().forward(*args, attention_mask=last, **kwargs)

        attention.__class__ = SeesAll

    return change


# References that are wrong: nothing but a fault of theirs is planted with them.
_WRONG_REFERENCES: dict[str, tuple[str, Callable[[Any], None]]] = {
    "llama_ahead": ("llama", _see_all("model.layers.1.self_attn")),
    "gemma2_ahead": ("gemma2", _see_all("model.layers.1.self_attn")),
    "gpt2_ahead": ("gpt2", _see_all("transformer.h.1.attn")),
}

_LLAMA_ROLES = {
    "top": "model",
    "embed": "model.embed_tokens",
    "rotary": "model.rotary_emb",
    "layer": "model.layers.{n}",
    "attn": "model.layers.{n}.self_attn",
    "q": "model.layers.{n}.self_attn.q_proj",
    "k": "model.layers.{n}.self_attn.k_proj",
    "v": "model.layers.{n}.self_attn.v_proj",
    "o": "model.layers.{n}.self_attn.o_proj",
    "q_norm": "model.layers.{n}.self_attn.q_norm",
    "k_norm": "model.layers.{n}.self_attn.k_norm",
    "mlp": "model.layers.{n}.mlp",
    "gate": "model.layers.{n}.mlp.gate_proj",
    "up": "model.layers.{n}.mlp.up_proj",
    "down": "model.layers.{n}.mlp.down_proj",
    "act": "model.layers.{n}.mlp.act_fn",
    "router": "model.layers.{n}.mlp.gate",
    "experts": "model.layers.{n}.mlp.experts",
    "norm1": "model.layers.{n}.input_layernorm",
    "norm2": "model.layers.{n}.post_attention_layernorm",
    "pre_norm": "model.layers.{n}.pre_feedforward_layernorm",
    "post_norm": "model.layers.{n}.post_feedforward_layernorm",
    "norm": "model.norm",
    "head": "lm_head",
    "root": "",
}
_GPT2_ROLES = {
    "top": "transformer",
    "embed": "transformer.wte",
    "positions": "transformer.wpe",
    "layer": "transformer.h.{n}",
    "attn": "transformer.h.{n}.attn",
    "qkv": "transformer.h.{n}.attn.c_attn",
    "o": "transformer.h.{n}.attn.c_proj",
    "mlp": "transformer.h.{n}.mlp",
    "up": "transformer.h.{n}.mlp.c_fc",
    "down": "transformer.h.{n}.mlp.c_proj",
    "act": "transformer.h.{n}.mlp.act",
    "norm1": "transformer.h.{n}.ln_1",
    "norm2": "transformer.h.{n}.ln_2",
    "norm": "transformer.ln_f",
    "head": "lm_head",
    "root": "",
}
_BLOOM_ROLES = {
    "top": "transformer",
    "embed": "transformer.word_embeddings",
    "layer": "transformer.h.{n}",
    "attn": "transformer.h.{n}.self_attention",
    "qkv": "transformer.h.{n}.self_attention.query_key_value",
    "o": "transformer.h.{n}.self_attention.dense",
    "mlp": "transformer.h.{n}.mlp",
    "up": "transformer.h.{n}.mlp.dense_h_to_4h",
    "down": "transformer.h.{n}.mlp.dense_4h_to_h",
    "act": "transformer.h.{n}.mlp.gelu_impl",
    "norm1": "transformer.h.{n}.input_layernorm",
    "norm2": "transformer.h.{n}.post_attention_layernorm",
    "norm": "transformer.ln_f",
    "head": "lm_head",
    "root": "",
}
_BERT_ROLES = {
    "top": "",
    "embed": "embeddings.word_embeddings",
    "embeddings": "embeddings",
    "positions": "embeddings.position_embeddings",
    "layer": "encoder.layer.{n}",
    "attn": "encoder.layer.{n}.attention.self",
    "q": "encoder.layer.{n}.attention.self.query",
    "k": "encoder.layer.{n}.attention.self.key",
    "v": "encoder.layer.{n}.attention.self.value",
    "o": "encoder.layer.{n}.attention.output.dense",
    "attn_output": "encoder.layer.{n}.attention.output",
    "mlp": "encoder.layer.{n}.intermediate",
    "up": "encoder.layer.{n}.intermediate.dense",
    "act": "encoder.layer.{n}.intermediate.intermediate_act_fn",
    "down": "encoder.layer.{n}.output.dense",
    "mlp_output": "encoder.layer.{n}.output",
    "norm1": "encoder.layer.{n}.attention.output.LayerNorm",
    "norm2": "encoder.layer.{n}.output.LayerNorm",
    "embed_norm": "embeddings.LayerNorm",
    "root": "",
}
_ROLES: dict[str, Mapping[str, str]] = {
    "gpt2": _GPT2_ROLES,
    "gpt2_ahead": _GPT2_ROLES,
    "bloom": _BLOOM_ROLES,
    "bert": _BERT_ROLES,
}
ARCHITECTURES = (*_CONFIGS, *_VARIANTS)
ENCODERS = {"bert"}


def is_encoder(arch: str) -> bool:
    return arch.partition("@")[0] in ENCODERS


@cache
def reference(arch: str) -> Any:
    """Build the model of an architecture once; nobody may change it."""
    name, _, dtype = arch.partition("@")
    base, change = {**_VARIANTS, **_WRONG_REFERENCES}.get(name, (name, None))
    model = _build(base)
    if change is not None:
        with torch.no_grad():
            change(model)
    return model.to(getattr(torch, dtype or "float32")).eval()


def with_config(arch: str, **changes: Any) -> Any:
    """Build the model of another configuration with the same weights."""
    name = arch.partition("@")[0]
    right = reference(arch)
    wrong = _build(name, **changes)
    wrong.load_state_dict(right.state_dict(), strict=False)
    return wrong.to(right.dtype).eval()


def path_of(arch: str, role: str, layer: int) -> str:
    """Return the path of a part below the root of the model."""
    roles = _ROLES.get(arch.partition("@")[0], _LLAMA_ROLES)
    return roles[role].format(n=layer)


def module_name(arch: str, role: str, layer: int) -> str:
    """Return the name of a part as the print hook gives it."""
    path = path_of(arch, role, layer)
    return f"model.{path}" if path else "model"


def _build(name: str, **changes: Any) -> Any:
    """Build a model whose norm weights and biases are random too, and large enough to matter."""
    model_class, config_class, fields = _CONFIGS[name]
    config = getattr(transformers, config_class)(**{**copy.deepcopy(fields), **changes})
    generator = torch.Generator().manual_seed(7)
    model = getattr(transformers, model_class)._from_config(
        config, attn_implementation="eager", dtype=torch.float32
    )
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise * 0.3 + (1.0 if parameter.dim() == 1 else 0.0))
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.2)
    if name in _LOOPS_OVER_EXPERTS:
        model.set_experts_implementation("eager")
    return model.eval()

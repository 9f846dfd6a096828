"""Architectures of the third part, in sizes that are odd on purpose.

Importing this module makes them known to `models`. No two have the same sizes; heads are 3, 5, 6,
7 or 9, and few of the sizes are powers of two, so that nothing that counts by those goes by unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.faults import models

# Hidden size, heads, heads of keys, size of a head, inner size, vocabulary, layers.
Sizes = tuple[int, int, int, int, int, int, int]


def _sized(sizes: Sizes, theta: float = 30000.0, **fields: Any) -> dict[str, Any]:
    hidden, heads, kv_heads, head_dim, inner, vocabulary, layers = sizes
    partial = fields.pop("partial", None)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    if partial is not None:
        rope["partial_rotary_factor"] = partial
    return {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
        "num_hidden_layers": layers,
        "rope_parameters": rope,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": None,
        **fields,
    }


def _without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


_LAYERS_OF_FIVE = ["sliding_attention"] * 2 + ["full_attention"] + ["sliding_attention"] * 2
_LAYERS_OF_FOUR = ["sliding_attention"] * 3 + ["full_attention"]
_RMS = {"rms_norm_eps": 2e-5}
_LAYER_NORM = {"layer_norm_eps": 2e-5}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 30000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 128,
}
_BERT_LIKE = {
    "num_attention_heads": 5,
    "num_hidden_layers": 4,
    "layer_norm_eps": 2e-5,
    "pad_token_id": 0,
}

NEW: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama_odd": (
        "LlamaForCausalLM",
        "LlamaConfig",
        _sized((60, 6, 3, 12, 84, 67, 5), **_RMS),
    ),
    "llama_biased": (
        "LlamaForCausalLM",
        "LlamaConfig",
        _sized((45, 5, 5, 10, 77, 71, 4), attention_bias=True, mlp_bias=True, **_RMS),
    ),
    "llama_equal": (  # attention is square
        "LlamaForCausalLM",
        "LlamaConfig",
        _sized((42, 7, 7, 6, 42, 66, 3), **_RMS),
    ),
    "llama_tied": (
        "LlamaForCausalLM",
        "LlamaConfig",
        _sized((42, 6, 2, 10, 70, 69, 4), tie_word_embeddings=True, **_RMS),
    ),
    "llama_yarn": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            **_sized((54, 9, 3, 8, 62, 65, 3), max_position_embeddings=1024, **_RMS),
            "rope_parameters": _YARN,
        },
    ),
    "qwen2_odd": (
        "Qwen2ForCausalLM",
        "Qwen2Config",
        _sized((49, 7, 1, 10, 66, 73, 4), **_RMS),
    ),
    "qwen3_odd": (
        "Qwen3ForCausalLM",
        "Qwen3Config",
        _sized((57, 9, 3, 14, 75, 68, 4), **_RMS),
    ),
    "mistral": (
        "MistralForCausalLM",
        "MistralConfig",
        _sized((51, 6, 3, 14, 63, 72, 4), sliding_window=5, **_RMS),
    ),
    "gemma": (
        "GemmaForCausalLM",
        "GemmaConfig",
        _sized((44, 5, 1, 12, 58, 67, 3), hidden_activation="gelu_pytorch_tanh", **_RMS),
    ),
    "gemma2_odd": (
        "Gemma2ForCausalLM",
        "Gemma2Config",
        _sized(
            (42, 6, 3, 10, 56, 66, 4),
            sliding_window=5,
            layer_types=["sliding_attention", "full_attention"] * 2,
            query_pre_attn_scalar=14,
            attn_logit_softcapping=5.0,
            final_logit_softcapping=7.0,
            **_RMS,
        ),
    ),
    "gemma3_odd": (
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        _without(
            _sized(
                (36, 6, 3, 14, 50, 70, 6),
                sliding_window=5,
                layer_types=["sliding_attention"] * 5 + ["full_attention"],
                query_pre_attn_scalar=18,
                **_RMS,
            ),
            "rope_parameters",
        ),
    ),
    "vaultgemma": (
        "VaultGemmaForCausalLM",
        "VaultGemmaConfig",
        _sized(
            (45, 5, 5, 8, 57, 68, 3),
            sliding_window=5,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            query_pre_attn_scalar=11,
            attn_logit_softcapping=4.0,
            final_logit_softcapping=9.0,
            **_RMS,
        ),
    ),
    "nanochat": (
        "NanoChatForCausalLM",
        "NanoChatConfig",
        _sized((39, 3, 1, 14, 66, 67, 4), final_logit_softcapping=8.0, **_RMS),
    ),
    "granite_odd": (
        "GraniteForCausalLM",
        "GraniteConfig",
        _sized(
            (46, 5, 5, 8, 54, 66, 4),
            attention_multiplier=0.15,
            residual_multiplier=0.6,
            embedding_multiplier=2.5,
            logits_scaling=3.0,
            **_RMS,
        ),
    ),
    "glm4": (
        "Glm4ForCausalLM",
        "Glm4Config",
        _sized((48, 6, 3, 12, 60, 70, 3), partial=0.5, attention_bias=True, **_RMS),
    ),
    "cohere2": (
        "Cohere2ForCausalLM",
        "Cohere2Config",
        _sized(
            (38, 6, 3, 10, 64, 67, 4),
            sliding_window=5,
            layer_types=_LAYERS_OF_FOUR,
            logit_scale=0.3,
            **_LAYER_NORM,
        ),
    ),
    "stablelm": (
        "StableLmForCausalLM",
        "StableLmConfig",
        _without(
            _sized((56, 7, 7, 8, 61, 71, 3), partial=0.5, use_qkv_bias=True, **_LAYER_NORM),
            "head_dim",
        ),
    ),
    "gpt_neox": (
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        _without(
            _sized((60, 5, 5, 12, 90, 66, 4), partial=0.5, **_LAYER_NORM),
            "head_dim",
            "num_key_value_heads",
        ),
    ),
    "falcon": (
        "FalconForCausalLM",
        "FalconConfig",
        {
            **_without(
                _sized((54, 9, 3, 6, 0, 68, 3), layer_norm_epsilon=2e-5),
                "head_dim",
                "intermediate_size",
                "num_key_value_heads",
            ),
            "num_kv_heads": 3,
            "ffn_hidden_size": 81,
            "new_decoder_architecture": True,
            "alibi": False,
            "bias": True,
        },
    ),
    "nemotron": (
        "NemotronForCausalLM",
        "NemotronConfig",
        _sized((50, 5, 1, 12, 74, 69, 4), partial=0.5, norm_eps=2e-5),
    ),
    "phi": (
        "PhiForCausalLM",
        "PhiConfig",
        _without(_sized((40, 5, 5, 8, 68, 67, 4), partial=0.5, **_LAYER_NORM), "head_dim"),
    ),
    "exaone4": (
        "Exaone4ForCausalLM",
        "Exaone4Config",
        _sized(
            (43, 6, 3, 12, 59, 65, 5),
            sliding_window=5,
            sliding_window_pattern="LLGLL",
            layer_types=_LAYERS_OF_FIVE,
            **_RMS,
        ),
    ),
    "smollm3": (
        "SmolLM3ForCausalLM",
        "SmolLM3Config",
        _sized((47, 5, 1, 10, 55, 66, 4), no_rope_layers=[1, 0, 1, 1], **_RMS),
    ),
    "olmo": (
        "OlmoForCausalLM",
        "OlmoConfig",
        _without(_sized((54, 9, 3, 6, 76, 70, 3), clip_qkv=0.8), "head_dim"),
    ),
    "olmo3": (
        "Olmo3ForCausalLM",
        "Olmo3Config",
        _without(
            _sized(
                (60, 6, 2, 10, 58, 72, 4), sliding_window=5, layer_types=_LAYERS_OF_FOUR, **_RMS
            ),
            "head_dim",
        ),
    ),
    "mixtral": (
        "MixtralForCausalLM",
        "MixtralConfig",
        _sized(
            (45, 5, 1, 12, 37, 67, 3),
            num_local_experts=5,
            num_experts_per_tok=2,
            sliding_window=None,
            **_RMS,
        ),
    ),
    "olmoe": (
        "OlmoeForCausalLM",
        "OlmoeConfig",
        _without(
            _sized(
                (42, 7, 7, 6, 29, 66, 3),
                num_experts=7,
                num_experts_per_tok=3,
                norm_topk_prob=False,
                **_RMS,
            ),
            "head_dim",
        ),
    ),
    "qwen2_moe": (
        "Qwen2MoeForCausalLM",
        "Qwen2MoeConfig",
        _without(
            _sized(
                (48, 6, 3, 8, 40, 69, 3),
                num_experts=5,
                num_experts_per_tok=2,
                moe_intermediate_size=26,
                shared_expert_intermediate_size=38,
                norm_topk_prob=False,
                **_RMS,
            ),
            "head_dim",
        ),
    ),
    "gpt_oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        _sized(
            (52, 6, 3, 10, 34, 68, 4),
            num_local_experts=5,
            num_experts_per_tok=2,
            sliding_window=5,
            layer_types=["sliding_attention", "full_attention"] * 2,
            **_RMS,
        ),
    ),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        _without(
            _sized(
                (44, 6, 6, 0, 57, 70, 3),
                q_lora_rank=22,
                kv_lora_rank=18,
                qk_nope_head_dim=10,
                qk_rope_head_dim=6,
                v_head_dim=9,
                n_routed_experts=6,
                n_shared_experts=1,
                num_experts_per_tok=2,
                n_group=2,
                topk_group=1,
                first_k_dense_replace=1,
                moe_intermediate_size=21,
                routed_scaling_factor=1.7,
                **_RMS,
            ),
            "head_dim",
        ),
    ),
    "opt": (
        "OPTForCausalLM",
        "OPTConfig",
        {
            "hidden_size": 35,
            "word_embed_proj_dim": 35,
            "num_attention_heads": 5,
            "ffn_dim": 62,
            "vocab_size": 67,
            "num_hidden_layers": 4,
            "max_position_embeddings": 700,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": None,
        },
    ),
    "gptj": (
        "GPTJForCausalLM",
        "GPTJConfig",
        {
            "n_embd": 50,
            "n_head": 5,
            "n_inner": 72,
            "n_layer": 3,
            "rotary_dim": 4,
            "vocab_size": 66,
            "n_positions": 700,
            "layer_norm_epsilon": 2e-5,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": None,
        },
    ),
    "gpt_bigcode": (
        "GPTBigCodeForCausalLM",
        "GPTBigCodeConfig",
        {
            "n_embd": 45,
            "n_head": 5,
            "n_inner": 70,
            "n_layer": 4,
            "vocab_size": 71,
            "n_positions": 700,
            "layer_norm_epsilon": 2e-5,
            "multi_query": True,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": None,
        },
    ),
    "helium": (
        "HeliumForCausalLM",
        "HeliumConfig",
        _sized((40, 5, 5, 8, 53, 67, 5), **_RMS),
    ),
    "ernie4_5": (
        "Ernie4_5ForCausalLM",
        "Ernie4_5Config",
        _sized((41, 6, 3, 10, 52, 68, 3), use_bias=True, **_RMS),
    ),
    "hunyuan": (
        "HunYuanDenseV1ForCausalLM",
        "HunYuanDenseV1Config",
        _sized((53, 6, 3, 10, 67, 69, 3), **_RMS),
    ),
    "arcee": (
        "ArceeForCausalLM",
        "ArceeConfig",
        _sized((36, 6, 2, 10, 73, 66, 3), **_RMS),
    ),
    "persimmon": (
        "PersimmonForCausalLM",
        "PersimmonConfig",
        _without(
            _sized((63, 7, 7, 9, 71, 68, 3), partial=0.45, qk_layernorm=True, **_LAYER_NORM),
            "head_dim",
            "num_key_value_heads",
        ),
    ),
    "roberta": (
        "RobertaModel",
        "RobertaConfig",
        {
            **_BERT_LIKE,
            "hidden_size": 35,
            "intermediate_size": 51,
            "vocab_size": 67,
            "max_position_embeddings": 700,
        },
    ),
    "electra": (
        "ElectraModel",
        "ElectraConfig",
        {
            **_BERT_LIKE,
            "hidden_size": 40,
            "embedding_size": 28,
            "intermediate_size": 55,
            "vocab_size": 66,
            "max_position_embeddings": 700,
        },
    ),
    "distilbert": (
        "DistilBertModel",
        "DistilBertConfig",
        {
            "dim": 42,
            "n_heads": 3,
            "n_layers": 3,
            "hidden_dim": 65,
            "vocab_size": 68,
            "max_position_embeddings": 700,
            "pad_token_id": 0,
        },
    ),
}
ENCODERS = ("roberta", "electra", "distilbert")
# Grouped products of experts want sizes that are multiples of four.
_MIXED = ("mixtral", "olmoe", "qwen2_moe", "gpt_oss", "deepseek_v3")


def _times(factor: float, *paths: str) -> Callable[[Any], None]:
    """Multiply weights, so that what they give leaves float16 somewhere."""

    def change(model: Any) -> None:
        for path in paths:
            model.get_submodule(path).weight.mul_(factor)

    return change


# Variants whose activations are large at one place.
_LOUD: dict[str, tuple[str, Callable[[Any], None]]] = {
    "helium_loud": ("helium", _times(1200.0, "model.embed_tokens")),
    "arcee_loud": ("arcee", _times(500.0, "model.layers.1.mlp.up_proj")),
    "ernie4_5_loud": (
        "ernie4_5",
        _times(30.0, "model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.k_proj"),
    ),
    "gpt_neox_loud": ("gpt_neox", _times(20000.0, "gpt_neox.layers.2.mlp.dense_4h_to_h")),
}
_LLAMA = models._LLAMA_ROLES
_MOE = {
    "router": "model.layers.{n}.mlp.gate",
    "experts": "model.layers.{n}.mlp.experts",
    "shared": "model.layers.{n}.mlp.shared_expert",
    "shared_gate": "model.layers.{n}.mlp.shared_expert_gate",
}
_FUSED_MLP = {
    "gate_up": "model.layers.{n}.mlp.gate_up_proj",
    "act": "model.layers.{n}.mlp.activation_fn",
}
_GPT_NEOX = {
    "top": "gpt_neox",
    "embed": "gpt_neox.embed_in",
    "rotary": "gpt_neox.rotary_emb",
    "layer": "gpt_neox.layers.{n}",
    "attn": "gpt_neox.layers.{n}.attention",
    "qkv": "gpt_neox.layers.{n}.attention.query_key_value",
    "o": "gpt_neox.layers.{n}.attention.dense",
    "mlp": "gpt_neox.layers.{n}.mlp",
    "up": "gpt_neox.layers.{n}.mlp.dense_h_to_4h",
    "down": "gpt_neox.layers.{n}.mlp.dense_4h_to_h",
    "act": "gpt_neox.layers.{n}.mlp.act",
    "norm1": "gpt_neox.layers.{n}.input_layernorm",
    "norm2": "gpt_neox.layers.{n}.post_attention_layernorm",
    "norm": "gpt_neox.final_layer_norm",
    "head": "embed_out",
    "root": "",
}
_ROLES: dict[str, Mapping[str, str]] = {
    "glm4": {
        **_LLAMA,
        **_FUSED_MLP,
        "post_attn_norm": "model.layers.{n}.post_self_attn_layernorm",
        "post_mlp_norm": "model.layers.{n}.post_mlp_layernorm",
    },
    "gpt_neox": _GPT_NEOX,
    "falcon": {
        **models._BLOOM_ROLES,
        "rotary": "transformer.rotary_emb",
        "act": "transformer.h.{n}.mlp.act",
        "norm1": "transformer.h.{n}.ln_attn",
        "norm2": "transformer.h.{n}.ln_mlp",
    },
    "phi": {
        **_LLAMA,
        "o": "model.layers.{n}.self_attn.dense",
        "up": "model.layers.{n}.mlp.fc1",
        "down": "model.layers.{n}.mlp.fc2",
        "act": "model.layers.{n}.mlp.activation_fn",
        "norm": "model.final_layernorm",
    },
    "nanochat": {
        **_LLAMA,
        "up": "model.layers.{n}.mlp.fc1",
        "down": "model.layers.{n}.mlp.fc2",
        "act": "model.layers.{n}.mlp.activation_fn",
    },
    "persimmon": {
        **_LLAMA,
        "qkv": "model.layers.{n}.self_attn.query_key_value",
        "o": "model.layers.{n}.self_attn.dense",
        "q_norm": "model.layers.{n}.self_attn.q_layernorm",
        "k_norm": "model.layers.{n}.self_attn.k_layernorm",
        "up": "model.layers.{n}.mlp.dense_h_to_4h",
        "down": "model.layers.{n}.mlp.dense_4h_to_h",
        "act": "model.layers.{n}.mlp.act",
        "norm": "model.final_layernorm",
    },
    "exaone4": {
        **_LLAMA,
        "post_norm": "model.layers.{n}.post_feedforward_layernorm",
    },
    "hunyuan": {
        **_LLAMA,
        "q_norm": "model.layers.{n}.self_attn.query_layernorm",
        "k_norm": "model.layers.{n}.self_attn.key_layernorm",
    },
    "mixtral": {**_LLAMA, **_MOE},
    "olmoe": {**_LLAMA, **_MOE},
    "qwen2_moe": {**_LLAMA, **_MOE},
    "gpt_oss": {**_LLAMA, **_MOE, "router": "model.layers.{n}.mlp.router"},
    "deepseek_v3": {
        **_LLAMA,
        **_MOE,
        "shared": "model.layers.{n}.mlp.shared_experts",
        "q_a": "model.layers.{n}.self_attn.q_a_proj",
        "q_a_norm": "model.layers.{n}.self_attn.q_a_layernorm",
        "q_b": "model.layers.{n}.self_attn.q_b_proj",
        "kv_a": "model.layers.{n}.self_attn.kv_a_proj_with_mqa",
        "kv_a_norm": "model.layers.{n}.self_attn.kv_a_layernorm",
        "kv_b": "model.layers.{n}.self_attn.kv_b_proj",
    },
    "opt": {
        "top": "model.decoder",
        "embed": "model.decoder.embed_tokens",
        "positions": "model.decoder.embed_positions",
        "layer": "model.decoder.layers.{n}",
        "attn": "model.decoder.layers.{n}.self_attn",
        "q": "model.decoder.layers.{n}.self_attn.q_proj",
        "k": "model.decoder.layers.{n}.self_attn.k_proj",
        "v": "model.decoder.layers.{n}.self_attn.v_proj",
        "o": "model.decoder.layers.{n}.self_attn.out_proj",
        "up": "model.decoder.layers.{n}.fc1",
        "down": "model.decoder.layers.{n}.fc2",
        "act": "model.decoder.layers.{n}.activation_fn",
        "norm1": "model.decoder.layers.{n}.self_attn_layer_norm",
        "norm2": "model.decoder.layers.{n}.final_layer_norm",
        "norm": "model.decoder.final_layer_norm",
        "head": "lm_head",
        "root": "",
    },
    "gptj": {
        **models._GPT2_ROLES,
        "q": "transformer.h.{n}.attn.q_proj",
        "k": "transformer.h.{n}.attn.k_proj",
        "v": "transformer.h.{n}.attn.v_proj",
        "o": "transformer.h.{n}.attn.out_proj",
        "up": "transformer.h.{n}.mlp.fc_in",
        "down": "transformer.h.{n}.mlp.fc_out",
    },
    "gpt_bigcode": models._GPT2_ROLES,
    "gpt_neox_loud": _GPT_NEOX,
    "roberta": models._BERT_ROLES,
    "electra": {**models._BERT_ROLES, "project": "embeddings_project"},
    "distilbert": {
        "top": "",
        "embed": "embeddings.word_embeddings",
        "embeddings": "embeddings",
        "positions": "embeddings.position_embeddings",
        "embed_norm": "embeddings.LayerNorm",
        "layer": "transformer.layer.{n}",
        "attn": "transformer.layer.{n}.attention",
        "q": "transformer.layer.{n}.attention.q_lin",
        "k": "transformer.layer.{n}.attention.k_lin",
        "v": "transformer.layer.{n}.attention.v_lin",
        "o": "transformer.layer.{n}.attention.out_lin",
        "mlp": "transformer.layer.{n}.ffn",
        "up": "transformer.layer.{n}.ffn.lin1",
        "down": "transformer.layer.{n}.ffn.lin2",
        "act": "transformer.layer.{n}.ffn.activation",
        "norm1": "transformer.layer.{n}.sa_layer_norm",
        "norm2": "transformer.layer.{n}.output_layer_norm",
        "root": "",
    },
}


def register() -> None:
    """Add the architectures to those of `models`."""
    models._CONFIGS.update(NEW)
    models._ROLES.update(_ROLES)
    models._VARIANTS.update(_LOUD)
    models.ENCODERS.update(ENCODERS)
    models._LOOPS_OVER_EXPERTS += _MIXED


register()

"""The tiny checkpoints' sizes and settings, one entry an architecture.

Chosen to hide nothing: fewer kv heads than query heads, `heads * head_dim != hidden_size` where
the engine takes a head_dim, non-square weights, settings that are no class's default, tied
and untied embeddings. No two have the same sizes, because MAX's compile cache does not tell
structurally equal graphs of two architectures apart. MAX on a CPU wants head_dim >= 64 and
sliding_window >= 128.
"""

from collections.abc import Mapping

from test_common.tiny_checkpoints import gemma3_multimodal, idefics3, internvl, pixtral, qwen2_5_vl
from test_common.tiny_checkpoints.recipe import Recipe
from test_common.tiny_checkpoints.shared_sizes import DECODER, ENCODER, WITH_HEAD_DIM, without

RECIPES: Mapping[str, Recipe] = {
    "llama": Recipe(
        config_class="LlamaConfig",
        model_class="LlamaForCausalLM",
        # MAX 26.7 makes the rotary table from hidden_size / heads and ignores head_dim here.
        config={**DECODER, "intermediate_size": 544},
    ),
    "qwen2": Recipe(
        config_class="Qwen2Config",
        model_class="Qwen2ForCausalLM",
        config={**DECODER, "intermediate_size": 576, "tie_word_embeddings": True},
    ),
    "granite": Recipe(
        config_class="GraniteConfig",
        model_class="GraniteForCausalLM",
        config={
            **DECODER,
            "intermediate_size": 608,
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.09,
            "residual_multiplier": 0.7,
            "logits_scaling": 2.0,
        },
    ),
    "phi3": Recipe(
        config_class="Phi3Config",
        model_class="Phi3ForCausalLM",
        config={
            **DECODER,
            "intermediate_size": 656,
            "original_max_position_embeddings": 640,
        },
    ),
    "olmo": Recipe(
        config_class="OlmoConfig",
        model_class="OlmoForCausalLM",
        config={**without(DECODER, "rms_norm_eps"), "intermediate_size": 672},
    ),
    "olmo2": Recipe(
        config_class="Olmo2Config",
        model_class="Olmo2ForCausalLM",
        # MAX 26.7 has 1e-6 in q_norm and k_norm, whatever the configuration says.
        config={**DECODER, "intermediate_size": 704, "rms_norm_eps": 1e-6},
    ),
    "mistral": Recipe(
        config_class="MistralConfig",
        model_class="MistralForCausalLM",
        config={**WITH_HEAD_DIM, "intermediate_size": 736, "sliding_window": 160},
    ),
    "qwen3": Recipe(
        config_class="Qwen3Config",
        model_class="Qwen3ForCausalLM",
        config={**WITH_HEAD_DIM, "intermediate_size": 768, "tie_word_embeddings": True},
    ),
    "gemma3": Recipe(
        config_class="Gemma3TextConfig",
        model_class="Gemma3ForCausalLM",
        config={
            **without(WITH_HEAD_DIM, "rope_parameters"),
            "intermediate_size": 800,
            "num_hidden_layers": 5,
            "sliding_window": 128,
            "sliding_window_pattern": 3,
            # MAX 26.7 ignores it and scales by head_dim, so they are equal here.
            "query_pre_attn_scalar": 64,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
                "full_attention": {"rope_type": "default", "rope_theta": 50000.0},
            },
            "tie_word_embeddings": True,
        },
        norm_centre=0.0,
        embedding_std=0.008,  # the model multiplies them by sqrt(hidden_size)
        extra_config={"sliding_window_pattern": 3},
    ),
    "lfm2": Recipe(
        config_class="Lfm2Config",
        model_class="Lfm2ForCausalLM",
        config={
            **without(DECODER, "rms_norm_eps"),
            "intermediate_size": 832,
            # What vLLM reads, and published checkpoints have, apart from hidden_size.
            "block_dim": DECODER["hidden_size"],
            "conv_dim": DECODER["hidden_size"],
            "block_auto_adjust_ff_dim": False,
            "norm_eps": 3e-6,
            "layer_types": ["full_attention", "conv", "full_attention", "conv"],
            "tie_word_embeddings": True,
        },
    ),
    "bert": Recipe(
        config_class="BertConfig",
        model_class="BertModel",
        config={**ENCODER, "intermediate_size": 448, "type_vocab_size": 2},
        special_tokens=("<pad>", "<bos>", "<eos>", "<mask>"),
        adds_eos=True,
        embedding_std=0.6,
    ),
    "mpnet": Recipe(
        config_class="MPNetConfig",
        model_class="MPNetModel",
        architectures=("MPNetForMaskedLM",),
        config={**ENCODER, "intermediate_size": 496, "relative_attention_num_buckets": 32},
        special_tokens=("<bos>", "<pad>", "<eos>", "<mask>"),
        adds_eos=True,
        embedding_std=0.6,
    ),
    "gemma3_multimodal": gemma3_multimodal.RECIPE,
    "idefics3": idefics3.RECIPE,
    "internvl": internvl.RECIPE,
    "pixtral": pixtral.RECIPE,
    "qwen2_5_vl": qwen2_5_vl.RECIPE,
}

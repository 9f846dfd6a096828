"""The faults planted in MAX, what MAX does wrong by itself, and runs in which nothing is wrong."""

from __future__ import annotations

from tests.faults.engines import max_plants as plants
from tests.faults.engines.case import LONG_PROMPTS, EngineCase, Origin
from tests.faults.pair import Place

_ATTENTION = "max.nn.attention.attention_with_rope"
_GEMMA_ATTENTION = "max.pipelines.architectures.gemma3.layers.attention"


def _core(attention: str, last: str = "qkv_proj") -> tuple[str, str]:
    """Name MAX's tensors at both ends of what attention does between its projections.

    Args:
        attention: MAX's name of it.
        last: what comes last before the rotation.
    """
    return f"{attention}.{last}-output", f"{attention}.o_proj-input_0"


PLANTED: tuple[EngineCase, ...] = (
    EngineCase(
        name="max/llama/attention_scale",
        arch="llama",
        modules=("model.model.layers.1.self_attn",),
        between=_core("model.layers.layers.1.self_attn"),
        cause="scale",
        plant=plants.attention_scale(1.25),
    ),
    EngineCase(
        name="max/llama/rope_theta",
        arch="llama",
        origin=Origin.EDIT,
        modules=("model.model.layers.0.self_attn",),
        between=_core("model.layers.layers.0.self_attn"),
        cause="rope_frequency",
        plant=plants.rope_theta(10000.0),
    ),
    EngineCase(
        name="max/qwen2/no_bias_on_keys",
        arch="qwen2",
        modules=("model.model.layers.0.self_attn.k_proj",),
        cause="bias",
        plant=plants.no_bias_on_keys(),
    ),
    EngineCase(
        name="max/qwen2/heads_in_turn",
        arch="qwen2",
        modules=("model.model.layers.0.self_attn",),
        between=_core("model.layers.layers.0.self_attn"),
        cause="gqa_order",
        plant=plants.heads_in_turn(4, 2),
    ),
    EngineCase(
        name="max/bert/gelu_by_tanh",
        arch="bert",
        modules=(
            "model.encoder.layer.0.intermediate.intermediate_act_fn",
            "model.encoder.layer.0.intermediate",
        ),
        cause="activation",
        plant=plants.gelu_by_tanh(),
    ),
    EngineCase(
        name="max/bert/padding_seen",
        arch="bert",
        modules=("model.encoder.layer.0.attention.self",),
        cause="padding",
        place=Place(step=0, row=1),
        plant=plants.padding_seen(),
    ),
    EngineCase(
        name="max/gemma3/no_window",
        arch="gemma3",
        layers=3,
        prompts=LONG_PROMPTS,
        modules=("model.model.layers.0.self_attn",),
        between=_core("model.language_model.layers.layers.0.self_attn_shards.0", "k_norm"),
        cause="sliding_window",
        place=Place(step=0, row=0, position=128),
        plant=plants.attention_mask(_GEMMA_ATTENTION, "CAUSAL_MASK"),
    ),
    EngineCase(
        name="max/gemma3/norm_without_offset",
        arch="gemma3",
        layers=3,
        modules=("model.model.layers.0.self_attn.q_norm",),
        cause="norm_offset",
        plant=plants.norm_without_offset(64),
    ),
    EngineCase(
        name="max/olmo/norm_without_mean",
        arch="olmo",
        modules=("model.model.layers.0.input_layernorm",),
        cause="norm_order",
        plant=plants.norm_without_mean(),
    ),
    EngineCase(
        name="max/granite/attention_left_out_of_residual",
        arch="granite",
        modules=("model.model.layers.1",),
        cause="residual",
        plant=plants.attention_left_out_of_residual(),
    ),
    EngineCase(
        name="max/phi3/halves_swapped",
        arch="phi3",
        modules=("model.model.layers.0.mlp",),
        between=(
            "model.layers.layers.0.mlp.gate_up_proj-output",
            "model.layers.layers.0.mlp.down_proj-input_0",
        ),
        cause="activation",
        plant=plants.halves_swapped(),
    ),
    EngineCase(
        name="max/mistral/future_seen",
        arch="mistral",
        modules=("model.model.layers.0.self_attn",),
        between=_core("model.layers.layers.0.self_attn"),
        cause="mask",
        place=Place(step=0, row=0, position=0),
        plant=plants.attention_mask(_ATTENTION, "NULL_MASK"),
    ),
)

# What the installed MAX itself does otherwise than the reference.
ENGINE_FAULTS: tuple[EngineCase, ...] = (
    EngineCase(
        name="max/mistral/window_ignored",
        arch="mistral",
        origin=Origin.ENGINE,
        prompts=LONG_PROMPTS,
        modules=("model.model.layers.0.self_attn",),
        between=_core("model.layers.layers.0.self_attn"),
        cause="sliding_window",
        place=Place(step=0, row=0, position=160),
    ),
    EngineCase(
        name="max/bert/sum_for_mean",
        arch="bert",
        origin=Origin.ENGINE,
        modules=("model",),
        between=("model.encoder-output", "model-output"),
        cause="reduction",
    ),
    EngineCase(
        name="max/llama_v3/weights_replaced_by_print_hook",
        arch="llama",
        origin=Origin.ENGINE,
        module_v3=True,
        modules=("model.model.embed_tokens",),
        cause="weights",
        plant=plants.upstream_print_hook(),
    ),
)


CLEAN: tuple[EngineCase, ...] = (
    EngineCase(name="max/llama/clean", arch="llama", origin=Origin.NONE),
    EngineCase(name="max/qwen2/clean", arch="qwen2", origin=Origin.NONE),
    EngineCase(
        name="max/gemma3/clean", arch="gemma3", layers=3, prompts=LONG_PROMPTS, origin=Origin.NONE
    ),
)

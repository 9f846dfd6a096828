"""Names of all engines brought to one."""

import pytest

from comparison.align.renames import canonical_name

# torch, MAX, what both are; MAX in the forms of V2, V2 with shards, V3.
OUTPUTS = [
    (
        "model.model.layers.0.mlp-output",
        "model.layers.layers.0.mlp-output",
        "layers.0.mlp output 0",
    ),
    ("model.model.layers.10-output_0", "model.layers.layers.10-output", "layers.10 output 0"),
    (
        "model.model.layers.1.self_attn-output_0",
        "model.language_model.layers.layers.1.self_attn_shards.0-output",
        "layers.1.self_attn output 0",
    ),
    (
        "model.model.layers.2.mlp.down_proj-output",
        "model.layers.layers.2.mlp_shards.0.down_proj-output",
        "layers.2.mlp.down_proj output 0",
    ),
    (
        "model.model.layers.3.input_layernorm-output",
        "model.language_model.layers.3.input_layernorm-output",
        "layers.3.input_layernorm output 0",
    ),
    (
        "model.model.layers.0.pre_feedforward_layernorm-output",
        "model.layers.layers.0.pre_feedforward_layernorm_shards.0-output",
        "layers.0.pre_feedforward_layernorm output 0",
    ),
    ("model.model.embed_tokens-output", "model.embed_tokens-output", "embed_tokens output 0"),
    ("model.model.norm-output", "model.norm_shards.0-output", "norm output 0"),
    ("model.lm_head-output", "model.language_model.lm_head-output", "lm_head output 0"),
    ("model-output_logits", "model-output_0", "the model output logits"),
    ("model-output_logits", "model-output", "the model output logits"),
    ("model-output_embedding", "model-output", "the model output logits"),
    ("model-output_logits", "model-output_next_token_logits", "the model output logits"),
    ("model-output_logits", "model.language_model-output_0", "the model output logits"),
    (
        "model.encoder.layer.4.attention.output.LayerNorm-output",
        "model.encoder.layer.layers.4.attention.output.layer_norm-output",
        "encoder.layer.4.attention.output.LayerNorm output 0",
    ),
    (
        "model.model.language_model.layers.0.mlp-output",
        "model.language_model.layers.layers.0.mlp-output",
        "layers.0.mlp output 0",
    ),
    ("mlp_A_input", "mlp_A_input", "mlp_A_input"),
    (
        "model.model.layers.0-input_0",
        "model.layers.layers.0-input_1",
        "layers.0 input hidden states",
    ),
    (
        "model.model.layers.0.self_attn-input_hidden_states",
        "model.layers.layers.0.self_attn-input_1",
        "layers.0.self_attn input hidden states",
    ),
    (
        "model.model.layers.0.mlp.down_proj-input_0",
        "model.layers.layers.0.mlp.down_proj-input_0",
        "layers.0.mlp.down_proj input 0",
    ),
    ("model-input_input_ids", "model-input_0", "the model input token ids"),
    (
        "model.encoder.layer.0-input_0",
        "model.encoder.layer.layers.0-input_0",
        "encoder.layer.0 input hidden states",
    ),
    (
        "model.model.vision_tower.ln_pre-output",
        "model.vision.layer_norm-output",
        "vision.ln_pre output 0",
    ),
    (
        "model.model.vision_tower.transformer.layers.1.attention.q_proj-output",
        "model.vision.transformer.layers.layers.1.attention.q_proj-output",
        "vision.transformer.layers.1.attention.q_proj output 0",
    ),
    (
        "model.model.vision_tower.transformer.layers.1-input_0",
        "model.vision.transformer.layers.layers.1-input_x",
        "vision.transformer.layers.1 input hidden states",
    ),
    (
        "model.model.vision_model.encoder.layers.1.self_attn-output_0",
        "model.vision.encoder.layers.1.self_attn-output",
        "vision.encoder.layers.1.self_attn output 0",
    ),
    (
        "model.model.vision_model.encoder.layers.1.layer_norm1-input_0",
        "model.vision.encoder.layers.1.layer_norm1-input_0",
        "vision.encoder.layers.1.layer_norm1 input 0",
    ),
    (
        "model.model.multi_modal_projector.linear_2-output",
        "model.vision.multi_modal_projector.linear_2-output",
        "multi_modal_projector.linear_2 output 0",
    ),
    ("model.model.connector-output", "model.vision.connector-output", "connector output 0"),
    (
        "model.model.text_model.layers.1.mlp-output",
        "model.layers.layers.1.mlp-output",
        "layers.1.mlp output 0",
    ),
]


@pytest.mark.parametrize(("torch", "max_name", "meaning"), OUTPUTS)
def test_what_is_the_same(torch: str, max_name: str, meaning: str) -> None:
    assert str(canonical_name(torch, engine="torch", other="max")) == meaning
    assert str(canonical_name(max_name, engine="max", other="torch")) == meaning


VLLM = [
    ("model.model.layers.3-output_residual_sum", "layers.3 output 0"),
    ("model.model.layers.3.self_attn-output", "layers.3.self_attn output 0"),
    ("model.model.layers.3.self_attn.qkv_proj-output_0", "layers.3.self_attn.qkv_proj output 0"),
    ("model.model.layers.3.mlp.down_proj-input_0", "layers.3.mlp.down_proj input 0"),
    ("model.model.layers.3.input_layernorm-output_0", "layers.3.input_layernorm output 0"),
    (
        "model.model.layers.3.self_attn-input_hidden_states",
        "layers.3.self_attn input hidden states",
    ),
    ("model.logits_processor-output", "the model output logits"),
    ("model-input_input_ids", "the model input token ids"),
    ("model.model.encoder.layer.1-input_0", "encoder.layer.1 input hidden states"),
    ("model.model.encoder.layer.1-output", "encoder.layer.1 output 0"),  # there is no residual
]


@pytest.mark.parametrize(("name", "meaning"), VLLM)
@pytest.mark.parametrize("other", ["torch", "max"])
def test_what_vllm_names_otherwise(name: str, meaning: str, other: str) -> None:
    assert str(canonical_name(name, engine="vllm", other=other)) == meaning


DIFFERENT = [
    ("model.model.layers.1-output", "model.layers.layers.10-output"),
    ("model.model-output_last_hidden_state", "model-output_0"),
    ("model.model-output_last_hidden_state", "model.language_model-output_0"),
    ("model-output_last_hidden_state", "model-output_0"),
    (
        "model.model.layers.0.self_attn.k_norm-output",
        "model.layers.layers.0.self_attn.q_norm-output",
    ),
    ("model.model.layers.0.mlp-output", "model.layers.layers.0.mlp_shards.1-output"),
    ("model.lm_head-output", "model.lm_head.distributed_linear_layers.0-output"),
    ("model.model.layers.0.mlp-output", "model.layers.layers.0.mlp.allreduce-output"),
    ("model.model.layers.0.self_attn-output_1", "model.layers.layers.0.self_attn-output"),
    ("model.model.layers.0.mlp-input_0", "model.layers.layers.0.mlp-output"),
    ("model.model.layers.1-output", "model.vision.transformer.layers.layers.1-output"),
    ("model.model.vision_tower.transformer.layers.1-output", "model.layers.layers.1-output"),
    ("model.model.norm-output", "model.vision.layer_norm-output"),
    ("model.model.vision_tower-output_last_hidden_state", "model.vision-output"),
]


@pytest.mark.parametrize(("torch", "max_name"), DIFFERENT)
def test_what_is_not_the_same(torch: str, max_name: str) -> None:
    left = canonical_name(torch, engine="torch", other="max")
    assert left is not None
    assert left != canonical_name(max_name, engine="max", other="torch")


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("model.layers.layers.0-input_0", "max"),  # the layer's number
        ("model.layers.layers.0-input_3", "max"),  # the rope table
        ("model.encoder.layer.layers.0-input_1", "max"),  # an encoder's mask
        ("model.model.layers.0-input_attention_mask", "torch"),
        ("model-input_1", "max"),
        ("model.model.layers.3-output_0", "vllm"),  # without the residual
        ("model.model.layers.3-output_1", "vllm"),  # the residual alone
        ("model.model.layers.3-input_1", "vllm"),
        ("model.model.layers.3.input_layernorm-input_0", "vllm"),
        ("model.model.layers.3.mlp.act_fn-input_0", "vllm"),  # gate and up
        ("model.model.layers.3.mlp.act_fn-output", "vllm"),
        # one for all layers
        ("model.model.encoder.layer.0.intermediate.intermediate_act_fn-input_0", "vllm"),
        ("model.pooler-output_0", "vllm"),  # the embedding
    ],
)
def test_what_has_no_counterpart_on_another_engine(name: str, engine: str) -> None:
    other = "max" if engine == "torch" else "torch"
    assert canonical_name(name, engine=engine, other=other) is None
    assert canonical_name(name, engine=engine, other=engine) is not None

"""Tests of overriding a configuration for every engine, with the real AutoConfig."""

from typing import Any

import pytest
import transformers
from transformers import AutoConfig

from comparison.schema.errors import BadInputError
from test_common.config_overrides import (
    apply_hf_config_override,
    create_layer_overrides,
    hf_config_overrides,
    merge_overrides,
)
from test_common.tiny_checkpoints import ensure_tiny_checkpoint
from test_common.torch_builder import build_torch_model


def _gemma() -> transformers.Gemma3TextConfig:
    return transformers.Gemma3TextConfig(num_hidden_layers=8)


def test_user_values_win_and_the_rest_stays() -> None:
    layers = {"text_config": {"num_hidden_layers": 1, "layer_types": ["full_attention"]}}
    user = {"text_config": {"rms_norm_eps": 0.1}, "tie_word_embeddings": False}
    assert merge_overrides(layers, user) == {
        "text_config": {
            "num_hidden_layers": 1,
            "layer_types": ["full_attention"],
            "rms_norm_eps": 0.1,
        },
        "tie_word_embeddings": False,
    }


def test_lists_for_another_number_of_layers_do_not_stay() -> None:
    config = _gemma()
    merged = merge_overrides(create_layer_overrides(config, 1), {"num_hidden_layers": 3})
    assert merged == {"num_hidden_layers": 3}
    apply_hf_config_override(config, merged)
    assert config.num_hidden_layers == len(config.layer_types) == 3


def test_merging_changes_neither_side() -> None:
    layers: dict[str, Any] = {"text_config": {"num_hidden_layers": 1}}
    user: dict[str, Any] = {"text_config": {"num_hidden_layers": 2}}
    merge_overrides(layers, user)
    assert layers == {"text_config": {"num_hidden_layers": 1}}
    assert user == {"text_config": {"num_hidden_layers": 2}}


def test_fields_are_set_at_every_depth() -> None:
    config = transformers.Gemma3Config()
    sliding = dict(config.text_config.rope_parameters["sliding_attention"])
    changed = apply_hf_config_override(
        config,
        {
            "text_config": {
                "hidden_size": 128,
                "rope_parameters": {"full_attention": {"rope_theta": 7.0}},
            }
        },
    )
    assert changed is config
    assert config.text_config.hidden_size == 128
    assert config.text_config.rope_parameters["full_attention"]["rope_theta"] == 7.0
    assert config.text_config.rope_parameters["full_attention"]["rope_type"] == "default"
    assert config.text_config.rope_parameters["sliding_attention"] == sliding


def test_given_lists_are_not_cut() -> None:
    config = _gemma()
    kinds = ["full_attention", "full_attention"]
    apply_hf_config_override(config, {"num_hidden_layers": 2, "layer_types": kinds})
    assert config.layer_types == kinds


def test_name_from_the_attribute_map_is_known() -> None:
    config = transformers.GPT2Config()
    apply_hf_config_override(config, {"num_hidden_layers": 2})
    assert config.n_layer == 2


def test_unknown_fields_are_named_together_and_nothing_changes() -> None:
    config = transformers.Gemma3Config()
    with pytest.raises(BadInputError) as raised:
        apply_hf_config_override(
            config, {"text_config": {"hiden_size": 1, "vocab_size": 5}, "zzz": 1}
        )
    message = str(raised.value)
    assert message.startswith(
        "hf_config_overrides: unknown field text_config.hiden_size, nearest: hidden_size"
    )
    assert message.endswith("; unknown field zzz")
    assert config.text_config.vocab_size != 5


def test_field_that_moved_into_an_object_is_found_there() -> None:
    with pytest.raises(BadInputError, match=r"rope_theta, nearest: rope_parameters\.rope_theta"):
        apply_hf_config_override(transformers.LlamaConfig(), {"rope_theta": 5.0})


def test_methods_are_no_fields() -> None:
    with pytest.raises(BadInputError, match="unknown field save_pretrained"):
        apply_hf_config_override(transformers.LlamaConfig(), {"save_pretrained": 1})


def test_nested_configuration_takes_an_object_only() -> None:
    with pytest.raises(BadInputError, match="text_config is a configuration: expected an object"):
        apply_hf_config_override(transformers.Gemma3Config(), {"text_config": 3})


def test_value_of_a_wrong_type() -> None:
    with pytest.raises(BadInputError, match=r"num_hidden_layers does not take 'many': .*int"):
        apply_hf_config_override(transformers.LlamaConfig(), {"num_hidden_layers": "many"})


def test_loaded_configurations_are_overridden_inside_the_block_only() -> None:
    path = ensure_tiny_checkpoint("llama")
    before = AutoConfig.__dict__["from_pretrained"]
    with hf_config_overrides({"rms_norm_eps": 0.5}):
        assert AutoConfig.from_pretrained(path).rms_norm_eps == 0.5
        config, unused = AutoConfig.from_pretrained(path, return_unused_kwargs=True, other=1)
        assert config.rms_norm_eps == 0.5
        assert unused == {"other": 1}
    assert AutoConfig.from_pretrained(path).rms_norm_eps == 3e-6
    assert AutoConfig.__dict__["from_pretrained"] is before


def test_an_error_restores_as_well() -> None:
    before = AutoConfig.__dict__["from_pretrained"]
    with (
        pytest.raises(BadInputError, match="unknown field no_field"),
        hf_config_overrides({"no_field": 1}),
    ):
        AutoConfig.from_pretrained(ensure_tiny_checkpoint("llama"))
    assert AutoConfig.__dict__["from_pretrained"] is before


def test_no_overrides_patch_nothing() -> None:
    before = AutoConfig.__dict__["from_pretrained"]
    with hf_config_overrides({}):
        assert AutoConfig.__dict__["from_pretrained"] is before


@pytest.mark.parametrize("arch", ["llama", "gemma3", "lfm2", "bert"])
@pytest.mark.parametrize("auto_model_cls", [None, "concrete class"])
def test_torch_model_gets_the_overridden_configuration(
    arch: str, auto_model_cls: str | None
) -> None:
    names = {
        "llama": "LlamaForCausalLM",
        "gemma3": "Gemma3ForCausalLM",
        "lfm2": "Lfm2ForCausalLM",
        "bert": "BertModel",
    }
    path = str(ensure_tiny_checkpoint(arch))
    with hf_config_overrides(create_layer_overrides(path, 2)):
        built = build_torch_model(
            model_path=path,
            encoding="float32",
            device="cpu",
            auto_model_cls=names[arch] if auto_model_cls else None,
            task="EMBEDDINGS_GENERATION" if arch == "bert" else "TEXT_GENERATION",
        )
    stack = built.model.encoder.layer if arch == "bert" else built.model.model.layers
    assert len(stack) == built.model.config.num_hidden_layers == 2

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


@pytest.mark.parametrize("value", [0, -3, "many", None, [1], {"a": 1}, 2.0, True, 1.5])
@pytest.mark.parametrize("config_class", ["LlamaConfig", "GPT2Config", "T5Config"])
def test_value_that_is_no_number_of_layers(config_class: str, value: Any) -> None:
    config = getattr(transformers, config_class)()
    with pytest.raises(BadInputError, match="num_hidden_layers must be a whole number of at least"):
        apply_hf_config_override(config, {"num_hidden_layers": value})


def test_layers_of_every_name_and_depth_are_checked() -> None:
    for config, overrides in (
        (transformers.GPT2Config(), {"n_layer": 0}),
        (transformers.T5Config(), {"num_decoder_layers": 0}),
        (transformers.Gemma3Config(), {"text_config": {"num_hidden_layers": 0}}),
        (transformers.Gemma3Config(), {"vision_config": {"num_hidden_layers": 0}}),
    ):
        with pytest.raises(BadInputError, match=r"must be a whole number of at least 1, found 0$"):
            apply_hf_config_override(config, overrides)


def test_more_layers_than_the_model_has() -> None:
    with pytest.raises(BadInputError, match=r"num_hidden_layers 9 is more than .* 8; give 1 to 8$"):
        apply_hf_config_override(_gemma(), {"num_hidden_layers": 9})


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"model_type": "bert"}, "model_type cannot be overridden: it chose the class"),
        ({"architectures": ["X"]}, "architectures cannot be overridden: it names the class"),
        ({"transformers_version": None}, "transformers_version cannot be overridden: it tells who"),
        ({"auto_map": {}}, "auto_map cannot be overridden: it names code"),
        ({"_name_or_path": "x"}, "_name_or_path cannot be overridden: it tells where"),
        ({"dtype": 5}, r"dtype cannot be overridden: the encoding decides \(--encoding\)"),
        ({"torch_dtype": "x"}, "torch_dtype cannot be overridden: the encoding decides"),
        ({"return_dict": False}, "return_dict cannot be overridden: a run finds its results"),
        ({"_commit_hash": "x"}, "_commit_hash cannot be overridden: it is no field of a config"),
        (
            {"_attn_implementation_internal": "kernels-community/flash-mla:fn"},
            "_attn_implementation_internal cannot be overridden: it is no field of a config.json",
        ),
        ({"num_labels": 10**10}, "num_labels must be at most 1000000, found 10000000000"),
    ],
)
def test_field_whose_change_has_no_meaning(overrides: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInputError, match=f"^hf_config_overrides: {reason}"):
        apply_hf_config_override(transformers.LlamaConfig(), overrides)
    with pytest.raises(BadInputError, match=rf"^hf_config_overrides: text_config\.{reason}"):
        apply_hf_config_override(transformers.Gemma3Config(), {"text_config": overrides})


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"hidden_size": "x"}, "hidden_size must be a number, as 4096 is, found 'x'"),
        ({"hidden_size": True}, "hidden_size must be a number, as 4096 is, found True"),
        ({"hidden_act": 5}, "hidden_act must be a text, as 'silu' is, found 5"),
        ({"use_cache": 1}, "use_cache must be true or false, as True is, found 1"),
        ({"eos_token_id": "x"}, "eos_token_id must be a number, as 2 is, found 'x'"),
        (
            {"rope_parameters": {"rope_theta": "x"}},
            "rope_parameters.rope_theta must be a number, as 10000.0 is, found 'x'",
        ),
        (
            {"rope_parameters": 5},
            "rope_parameters must be an object, as {'rope_theta': 10000.0, 'rope_type': 'default'} "
            "is, found 5",
        ),
    ],
)
def test_value_of_another_kind_than_the_present_one(overrides: dict[str, Any], reason: str) -> None:
    config = transformers.LlamaConfig()
    before = config.to_dict()
    with pytest.raises(BadInputError) as raised:
        apply_hf_config_override(config, {"vocab_size": 7, **overrides})
    assert str(raised.value) == f"hf_config_overrides: {reason}"
    assert config.to_dict() == before


@pytest.mark.parametrize(
    "overrides",
    [
        {"eos_token_id": [1, 2]},
        {"pad_token_id": 0},
        {"bos_token_id": None},
        {"rope_parameters": {"rope_theta": 5, "factor": 2.0}},
        {"attention_dropout": 0.5},
        {"head_dim": 32},
        {"hidden_act": "gelu"},
    ],
)
def test_values_of_the_same_kind_pass(overrides: dict[str, Any]) -> None:
    config = apply_hf_config_override(transformers.LlamaConfig(), overrides)
    for name, value in overrides.items():
        found = getattr(config, name)
        assert found == (found | value if isinstance(value, dict) else value)


def test_what_only_the_configuration_knows_is_quoted() -> None:
    with pytest.raises(BadInputError, match=r"hidden_size does not take 1\.5: .*int"):
        apply_hf_config_override(transformers.LlamaConfig(), {"hidden_size": 1.5})


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

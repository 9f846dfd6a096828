"""Tests that the recipes hide no faults."""

from typing import Any

import pytest
import transformers

from test_common.tiny_checkpoints import RECIPES

VISION = sorted(arch for arch, recipe in RECIPES.items() if recipe.vision is not None)
DECODERS = sorted(set(RECIPES) - {"bert", "mpnet"})


def _whole_config(arch: str) -> Any:
    recipe = RECIPES[arch]
    return getattr(transformers, recipe.config_class)(**recipe.config_arguments)


def _config(arch: str) -> Any:
    """Return the configuration of what reads text."""
    return _whole_config(arch).get_text_config()


def test_no_two_architectures_have_the_same_sizes() -> None:
    sizes = {arch: _config(arch).intermediate_size for arch in RECIPES}
    assert len(set(sizes.values())) == len(RECIPES)


@pytest.mark.parametrize("arch", RECIPES)
def test_dimensions_can_be_told_apart(arch: str) -> None:
    config = _config(arch)
    sizes = [
        config.hidden_size,
        config.intermediate_size,
        config.vocab_size,
        config.max_position_embeddings,
    ]
    assert len(set(sizes)) == len(sizes)
    assert config.num_hidden_layers >= 4


@pytest.mark.parametrize("arch", DECODERS)
def test_decoders_have_several_kv_heads_but_fewer_than_query_heads(arch: str) -> None:
    config = _config(arch)
    assert 1 < config.num_key_value_heads < config.num_attention_heads


@pytest.mark.parametrize("arch", ["mistral", "qwen3", "gemma3"])
def test_head_size_is_not_hidden_over_heads(arch: str) -> None:
    config = _config(arch)
    assert config.head_dim >= 64
    assert config.head_dim * config.num_attention_heads != config.hidden_size


@pytest.mark.parametrize("arch", RECIPES)
def test_settings_are_not_the_defaults_of_the_class(arch: str) -> None:
    config = _config(arch)
    default = type(config)()
    names = ["rms_norm_eps", "layer_norm_eps", "norm_eps", "rope_parameters"]
    names += ["embedding_multiplier", "attention_multiplier", "residual_multiplier"]
    names += ["logits_scaling"]
    shared = [name for name in names if hasattr(default, name)]
    assert shared
    for name in shared:
        assert getattr(config, name) != getattr(default, name), name


def test_embeddings_are_tied_in_some_and_untied_in_others() -> None:
    assert {_config(arch).tie_word_embeddings for arch in DECODERS} == {True, False}


def test_gemma_has_global_and_local_layers_and_two_rope_bases() -> None:
    config = _config("gemma3")
    assert config.layer_types.count("full_attention") >= 1
    assert config.layer_types.count("sliding_attention") >= 2
    bases = {kind: rope["rope_theta"] for kind, rope in config.rope_parameters.items()}
    assert len(set(bases.values())) == 2


@pytest.mark.parametrize("arch", ["gemma3", "mistral"])
def test_prompts_can_be_longer_than_the_sliding_window(arch: str) -> None:
    config = _config(arch)
    assert 128 <= config.sliding_window < config.max_position_embeddings // 2


def test_lfm2_has_convolution_and_attention() -> None:
    assert set(_config("lfm2").layer_types) == {"conv", "full_attention"}


@pytest.mark.parametrize("arch", VISION)
def test_the_vision_side_has_sizes_and_settings_of_its_own(arch: str) -> None:
    config, text = _whole_config(arch), _config(arch)
    vision = config.vision_config
    assert len({vision.hidden_size, vision.intermediate_size, text.hidden_size}) == 3
    layers = getattr(vision, "depth", None) or vision.num_hidden_layers
    assert 1 < layers != text.num_hidden_layers
    heads = getattr(vision, "num_heads", None) or vision.num_attention_heads
    assert heads > 1
    default = type(vision)()
    if hasattr(default, "layer_norm_eps"):
        assert vision.layer_norm_eps != default.layer_norm_eps
    assert config.tie_word_embeddings == text.tie_word_embeddings


@pytest.mark.parametrize("arch", VISION)
def test_tokens_of_pictures_are_special_ones(arch: str) -> None:
    recipe = RECIPES[arch]
    assert recipe.vision is not None
    tokens = {*recipe.vision.token_ids.values(), *recipe.vision.tokenizer_tokens.values()}
    assert tokens
    assert tokens <= set(recipe.special_tokens)
    config = _whole_config(arch)
    for field, token in recipe.vision.token_ids.items():
        assert getattr(config, field) == recipe.special_tokens.index(token)

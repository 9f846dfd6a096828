"""Tests of overrides that make a model shallower, on transformers' own configurations."""

from pathlib import Path
from typing import Any

import pytest
import transformers

from comparison.schema.errors import BadInputError, EngineError
from test_common.layer_overrides import create_layer_overrides, layer_count, load_hf_config
from test_common.tiny_checkpoints import RECIPES, ensure_tiny_checkpoint


def _gemma(**settings: Any) -> transformers.Gemma3TextConfig:
    return transformers.Gemma3TextConfig(num_hidden_layers=8, **settings)


def test_all_changes_nothing_and_loads_nothing() -> None:
    assert create_layer_overrides("no/such-model", "all") == {}


def test_layer_types_are_cut_from_the_end() -> None:
    assert create_layer_overrides(_gemma(sliding_window_pattern=3), 4) == {
        "num_hidden_layers": 4,
        "layer_types": [
            "sliding_attention",
            "sliding_attention",
            "full_attention",
            "sliding_attention",
        ],
    }


def test_as_many_layers_as_there_are_changes_nothing() -> None:
    assert create_layer_overrides(_gemma(), 8) == {}


def test_number_may_be_text() -> None:
    assert create_layer_overrides(transformers.LlamaConfig(), "2") == {"num_hidden_layers": 2}


@pytest.mark.parametrize("number", [0, -1, "-3", "two", "1.5", ""])
def test_number_that_is_none(number: int | str) -> None:
    with pytest.raises(BadInputError, match="must be a positive number or all, not "):
        create_layer_overrides(transformers.LlamaConfig(), number)


def test_more_layers_than_there_are() -> None:
    with pytest.raises(
        BadInputError,
        match="num_hidden_layers 9 is more than the model has: 8; give 1 to 8, or all",
    ):
        create_layer_overrides(_gemma(), 9)


@pytest.mark.parametrize("count", [0, -3])
def test_model_without_layers_is_blamed_itself(count: int) -> None:
    with pytest.raises(BadInputError) as raised:
        create_layer_overrides(transformers.LlamaConfig(num_hidden_layers=count), 1)
    told = f"num_hidden_layers 1: the model's own configuration says {count}"
    assert str(raised.value) == told


def test_configuration_without_layers() -> None:
    with pytest.raises(BadInputError, match="PreTrainedConfig names no number of layers"):
        create_layer_overrides(transformers.PretrainedConfig(), 1)


def test_nested_text_configuration_is_reached_and_the_vision_tower_stays_whole() -> None:
    config = transformers.Gemma3Config()
    overrides = create_layer_overrides(config, 2)
    assert overrides == {
        "text_config": {
            "num_hidden_layers": 2,
            "layer_types": ["sliding_attention", "sliding_attention"],
        }
    }


def test_both_stacks_of_an_encoder_decoder_are_cut() -> None:
    overrides = create_layer_overrides(transformers.T5Config(num_layers=6), 2)
    assert overrides == {"num_hidden_layers": 2, "num_decoder_layers": 2}


def test_lists_of_layer_numbers_lose_those_that_are_gone() -> None:
    config = transformers.Lfm2Config(num_hidden_layers=6, full_attn_idxs=[2, 5])
    overrides = create_layer_overrides(config, 3)
    assert overrides["layer_types"] == ["conv", "conv", "full_attention"]
    assert overrides["full_attn_idxs"] == [2]


def test_lists_that_are_not_per_layer_stay() -> None:
    config = transformers.LlamaConfig(num_hidden_layers=2, eos_token_id=[1, 2])
    assert create_layer_overrides(config, 1) == {"num_hidden_layers": 1}


@pytest.mark.parametrize("arch", RECIPES)
def test_every_tiny_checkpoint_can_be_cut_to_one_layer(arch: str) -> None:
    overrides = create_layer_overrides(ensure_tiny_checkpoint(arch), 1)
    if RECIPES[arch].vision is not None:  # what looks at pictures stays whole
        assert list(overrides) == ["text_config"]
        overrides = overrides["text_config"]
    assert overrides["num_hidden_layers"] == 1
    assert len(overrides.get("layer_types", [None])) == 1


def test_layer_count_is_that_of_the_decoder() -> None:
    config = transformers.Gemma3Config()
    assert layer_count(config) == config.text_config.num_hidden_layers
    assert layer_count(transformers.PretrainedConfig()) is None


def test_configuration_passes_unchanged_and_a_path_is_loaded() -> None:
    config = transformers.LlamaConfig()
    assert load_hf_config(config) is config
    assert load_hf_config(ensure_tiny_checkpoint("qwen2")).model_type == "qwen2"


def test_configuration_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "no-such-architecture"}')
    with pytest.raises(EngineError, match=f"transformers cannot load {tmp_path}: ValueError: "):
        load_hf_config(str(tmp_path))

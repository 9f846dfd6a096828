"""Which reads of a configuration count, and which are transformers' own."""

import copy
import json

import pytest
import torch
from transformers import Gemma3Config, LlamaConfig, PretrainedConfig

from test_common.config_reads import is_machinery, watched_config_reads
from tests.test_common.tiny_models import tiny_bert, tiny_gemma3, tiny_llama


def test_what_a_model_reads_while_it_is_built_and_run_is_noted() -> None:
    with watched_config_reads() as reads:
        model = tiny_llama()
        built = set(reads.fields())
        model(torch.tensor([[1, 2, 3]]), output_attentions=None)
    assert built >= {"hidden_size", "head_dim", "rms_norm_eps", "rope_parameters", "hidden_act"}
    assert "sliding_window" not in reads.fields()
    modeling = "transformers.models.llama.modeling_llama"
    assert reads.fields()["rms_norm_eps"] == [modeling]


def test_a_field_that_only_the_forward_reads_is_noted() -> None:
    model = tiny_gemma3()
    with watched_config_reads() as reads:
        model(torch.tensor([[1, 2, 3]]))
    assert "sliding_window" in reads.fields()
    assert "query_pre_attn_scalar" not in reads.fields()  # read when the model was built


def test_each_architecture_has_its_own_fields() -> None:
    with watched_config_reads() as reads:
        tiny_bert()
    assert {"layer_norm_eps", "type_vocab_size"} <= set(reads.fields())
    assert "rms_norm_eps" not in reads.fields()


def test_what_transformers_does_with_a_configuration_by_itself_does_not_count() -> None:
    with watched_config_reads() as reads:
        config = LlamaConfig(num_hidden_layers=1)
        config.to_dict()
        json.loads(config.to_json_string(use_diff=True))
        repr(config)
        copy.deepcopy(config)
        config.validate_architecture()
        config.get_text_config()
    assert reads.fields() == {}


def test_another_name_of_a_field_is_noted_as_the_field_and_no_attribute_as_none() -> None:
    config = PretrainedConfig()
    config.attribute_map = {"alias": "rows"}
    config.rows = 3
    with watched_config_reads() as reads:
        assert config.alias == 3
        assert getattr(config, "nothing", None) is None
        assert callable(config.to_dict)
    assert reads.fields() == {"rows": [__name__]}


def test_a_field_inside_another_configuration_has_a_path() -> None:
    config = Gemma3Config()
    with watched_config_reads() as reads:
        assert config.text_config.sliding_window > 0
        assert config.vision_config.hidden_size > 0
    assert set(reads.fields()) >= {"text_config.sliding_window", "vision_config.hidden_size"}
    assert "sliding_window" not in reads.fields()


def test_the_watch_ends_with_its_block() -> None:
    before = PretrainedConfig.__getattribute__
    with watched_config_reads():
        assert PretrainedConfig.__getattribute__ is not before
    with pytest.raises(ValueError, match="x"), watched_config_reads():
        int("x")
    assert PretrainedConfig.__getattribute__ is before
    with watched_config_reads() as reads:
        pass
    assert LlamaConfig().hidden_size > 0
    assert reads.fields() == {}


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("transformers.models.llama.modeling_llama", False),
        ("transformers.modeling_rope_utils", False),
        ("transformers.masking_utils", False),
        ("max.pipelines.architectures.llama3.model_config", False),
        ("vllm.model_executor.models.llama", False),
        ("transformers_modules.repo.modeling_mine", False),
        ("transformers.configuration_utils", True),
        ("transformers.models.llama.configuration_llama", True),
        ("transformers_modules.repo.configuration_mine", True),
        ("huggingface_hub.dataclasses", True),
        ("test_common.capture_torch", True),
        ("", True),
    ],
)
def test_code_of_a_model_is_told_from_code_that_handles_configurations(
    module: str, expected: bool
) -> None:
    assert is_machinery(module) is expected

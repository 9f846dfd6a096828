"""Oracles of models that read pictures; their runs are in tests/test_common."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comparison.schema.errors import BadInputError
from oracles.hub_multimodal import HUB_MULTIMODAL
from oracles.made_multimodal import MADE_MULTIMODAL
from oracles.multimodal import (
    Gemma3MultimodalPipelineOracle,
    Idefics3PipelineOracle,
    InternVLPipelineOracle,
    MultimodalOracle,
    PixtralPipelineOracle,
    Qwen2_5VLPipelineOracle,
)
from oracles.oracle_check import checked_oracle
from oracles.registry import PIPELINE_ORACLES, find_oracle
from test_common.image_families import IMAGE_FAMILIES
from test_common.tiny_checkpoints import RECIPES

KINDS: list[type[MultimodalOracle]] = [
    Gemma3MultimodalPipelineOracle,
    Idefics3PipelineOracle,
    InternVLPipelineOracle,
    PixtralPipelineOracle,
    Qwen2_5VLPipelineOracle,
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_hub_id_is_all_that_is_needed(kind: type[MultimodalOracle]) -> None:
    oracle = kind("my-org/my-model")
    assert checked_oracle(oracle) is oracle
    assert oracle.takes_images
    assert oracle.default_image_count == 1
    assert oracle.task_name == "TEXT_GENERATION"
    assert oracle.resolve_encoding(None, device_type="cpu") == "float32"
    assert oracle.resolve_encoding(None, device_type="gpu") == "bfloat16"


def test_every_family_has_a_class_and_its_facts_go_together() -> None:
    assert {kind.preprocessing.family for kind in KINDS} == set(IMAGE_FAMILIES)
    for kind in KINDS:
        facts = kind.preprocessing
        assert facts.placeholder.count(facts.expanded_token) == 1
        assert facts.image_processor_cls.endswith("Pil")  # never the one on torchvision
        assert "pixel_values" in facts.model_inputs


def test_settings_reach_the_generic_oracle() -> None:
    oracle = InternVLPipelineOracle(
        "my-org/my-model",
        device_encoding_map={"gpu": ["bfloat16"]},
        config_params={"max_length": 99},
        image_count=3,
    )
    assert oracle.device_encoding_map == {"gpu": ["bfloat16"]}
    assert oracle.config_params == {"max_length": 99}
    assert oracle.default_image_count == 3


def test_tiny_and_hub_models_are_registered_with_their_class() -> None:
    for arch, recipe in RECIPES.items():
        oracle = PIPELINE_ORACLES[f"tiny-random/{arch}"]
        assert oracle.takes_images == (recipe.vision is not None)
        if recipe.vision is not None:
            assert isinstance(oracle, MADE_MULTIMODAL[arch])
            assert isinstance(oracle, MultimodalOracle)
    for name, kind in HUB_MULTIMODAL.items():
        assert type(PIPELINE_ORACLES[name]) is kind


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        ("InternVLForConditionalGeneration", InternVLPipelineOracle),
        ("Qwen2_5_VLForConditionalGeneration", Qwen2_5VLPipelineOracle),
        ("LlavaForConditionalGeneration", PixtralPipelineOracle),
    ],
)
def test_a_local_folder_gets_the_class_of_its_architecture(
    tmp_path: Path, architecture: str, kind: type[MultimodalOracle]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    assert type(find_oracle(str(tmp_path))) is kind


def test_wrong_values_are_named() -> None:
    oracle = InternVLPipelineOracle("my-org/my-model", image_count=0)
    with pytest.raises(BadInputError, match="image_count must be a whole number of at least 1"):
        checked_oracle(oracle)


FACTS = PixtralPipelineOracle.preprocessing


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ("pixtral", "must be an ImagePreprocessing, found 'pixtral'"),
        (replace(FACTS, family="x"), "has family 'x': there are gemma3, internvl, "),
        (replace(FACTS, image_processor_cls="module"), "must be module:Class, found 'module'"),
        (replace(FACTS, expanded_token=""), "expanded_token must be a text, found ''"),
        (replace(FACTS, placeholder="x"), r"must be a text with '\[IMG\]' in it once, found 'x'"),
        (
            replace(FACTS, **{"model_inputs": "pixel_values"}),
            "model_inputs must be a list of names",
        ),
        (replace(FACTS, model_inputs=()), "model_inputs must be a list of names"),
    ],
)
def test_wrong_facts_are_named(facts: Any, message: str) -> None:
    class Mine(MultimodalOracle):
        preprocessing = facts

    with pytest.raises(BadInputError, match=f"^oracle my-org/my-model: preprocessing .*{message}"):
        checked_oracle(Mine("my-org/my-model"))


def test_facts_are_needed_where_prepare_is_ours() -> None:
    class Without(MultimodalOracle):
        pass

    class Own(MultimodalOracle):
        def prepare(self, prompts: Any, images: Any, *, max_length: int | None = None) -> Any:
            raise NotImplementedError

    with pytest.raises(BadInputError, match="preprocessing cannot be read: AttributeError"):
        checked_oracle(Without("my-org/my-model"))
    assert checked_oracle(Own("my-org/my-model"))

"""Prompts with pictures, held against the processors of transformers."""

import importlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import transformers

from comparison.schema.errors import BadInputError, EngineError
from oracles.multimodal import InternVLPipelineOracle
from test_common.config_overrides import hf_config_overrides
from test_common.images import LoadedImage, default_images, loaded_image
from tests.test_common.multimodal_families import FAMILIES, PROMPTS, oracle_of

PICTURES = default_images(3)
INTERNVL = "internvl"
# The class, and its arguments, of those that can be constructed without torchvision.
PROCESSORS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3_multimodal": ("Gemma3Processor", {"image_seq_length": 4}),
    "idefics3": ("Idefics3Processor", {}),
    "internvl": ("InternVLProcessor", {"video_processor": None, "image_seq_length": 4}),
    "qwen2_5_vl": ("Qwen2_5_VLProcessor", {"video_processor": None}),
}


def processor_of(family: str) -> Any:
    """Construct transformers' own processor; without torchvision it gets no part for videos."""
    oracle, (name, settings) = oracle_of(family), PROCESSORS[family]
    module, _, image_class = oracle.preprocessing.image_processor_cls.partition(":")
    images = getattr(importlib.import_module(module), image_class)
    without_check = {"check_argument_for_proper_class": lambda self, name, argument: object}
    kind = type(name, (getattr(transformers, name),), without_check)
    if family == "idefics3":
        vision = transformers.AutoConfig.from_pretrained(oracle.model_path)
        side = vision.vision_config.image_size // vision.vision_config.patch_size
        settings = {"image_seq_len": side**2 // vision.scale_factor**2}
    return kind(
        images.from_pretrained(oracle.model_path),
        transformers.AutoTokenizer.from_pretrained(oracle.model_path),
        **settings,
    )


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("family", sorted(set(FAMILIES) & set(PROCESSORS)))
def test_ids_and_tensors_are_those_of_the_processor(family: str, count: int) -> None:
    oracle, pictures = oracle_of(family), PICTURES[:count]
    rows, vision = oracle.prepare(PROMPTS, pictures)
    assert len({len(row) for row in rows}) == 2
    for row, text in zip(rows, vision.texts, strict=True):
        out = processor_of(family)(
            images=[[picture.decoded() for picture in pictures]], text=[text]
        )
        assert list(out["input_ids"][0]) == row
        for name, value in vision.model_inputs.items():
            own = value[: len(value) // len(rows)]  # the part of one row
            np.testing.assert_array_equal(np.asarray(out[name]).reshape(own.shape), own)


@pytest.mark.parametrize("family", FAMILIES)
def test_several_pictures_of_unlike_sizes_go_to_every_row(family: str) -> None:
    rows, vision = oracle_of(family).prepare(PROMPTS, PICTURES)
    assert vision.images == PICTURES
    placeholder = oracle_of(family).preprocessing.expanded_token
    assert [text is not None and text.count(placeholder) for text in vision.texts] == [3, 3]
    one_row, one = oracle_of(family).prepare(PROMPTS[:1], PICTURES)
    assert one_row[0] == rows[0]
    for name, value in vision.model_inputs.items():
        np.testing.assert_array_equal(value, np.concatenate([one.model_inputs[name]] * 2))
    assert vision.notes[0].startswith("pictures were prepared by ")


@pytest.mark.parametrize("family", FAMILIES)
def test_token_ids_pass_when_their_pictures_fit(family: str) -> None:
    oracle = oracle_of(family)
    rows, _ = oracle.prepare(PROMPTS, PICTURES[:1])
    again, vision = oracle.prepare([rows[0], PROMPTS[1]], PICTURES[:1])
    assert again == rows
    assert vision.texts[0] is None
    with pytest.raises(BadInputError, match=r"prompt 0 has the image token .* 0 times, and the im"):
        oracle.prepare([[1, 60, 61]], PICTURES[:1])


def test_a_prompt_may_say_where_its_pictures_go() -> None:
    oracle = oracle_of(INTERNVL)
    _, vision = oracle.prepare(["Left <IMG_CONTEXT> and right <IMG_CONTEXT>."], PICTURES[:2])
    assert vision.texts == ("Left <IMG_CONTEXT> and right <IMG_CONTEXT>.",)
    with pytest.raises(BadInputError, match=r"prompt 1 has 1 placeholders <IMG_CONTEXT> and there"):
        oracle.prepare(["Both.", "Left <IMG_CONTEXT>."], PICTURES[:2])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_chat_has_its_pictures_in_front_and_one_bos(family: str) -> None:
    plain = oracle_of(family)
    kind = next(kind for kind in type(plain).__mro__ if kind.__module__ == "oracles.multimodal")
    chat = kind(plain.model_path, apply_chat_template=True)
    rows, vision = chat.prepare(["Hi"], PICTURES[:1])
    placeholder = plain.preprocessing.placeholder.strip()
    assert vision.texts == (f"<bos>[user] {placeholder}Hi\n[assistant] ",)
    assert rows[0].count(rows[0][0]) == 1


def test_bos_and_length_are_as_asked_for() -> None:
    path = oracle_of(INTERNVL).model_path
    bare = InternVLPipelineOracle(path, add_bos_token=False)
    with_bos, _ = oracle_of(INTERNVL).prepare(["Hi"], PICTURES[:1])
    without, _ = bare.prepare(["Hi"], PICTURES[:1])
    assert with_bos[0][1:] == without[0]
    with pytest.raises(BadInputError, match=r"prompt 0 has \d+ tokens, at most 28 fit"):
        bare.prepare(["Hi"], PICTURES[:1], max_length=28)


def test_what_is_refused() -> None:
    oracle = oracle_of(INTERNVL)
    with pytest.raises(BadInputError, match="no image given"):
        oracle.prepare(["Hi"], [])
    with pytest.raises(BadInputError, match="prompt 1 is empty"):
        oracle.prepare(["Hi", ""], PICTURES[:1])
    with pytest.raises(BadInputError, match="prompt 0 is no text"):
        oracle.prepare(["\ud800"], PICTURES[:1])


def test_what_is_no_list_of_prompts_or_pictures() -> None:
    wrong: Any = "ab"
    with pytest.raises(BadInputError, match="prompts must be a list of prompts, found 'ab'"):
        oracle_of(INTERNVL).prepare(wrong, PICTURES[:1])
    with pytest.raises(BadInputError, match=r"must be LoadedImages, .* found 'ok\.png'"):
        oracle_of(INTERNVL).prepare(["Hi"], ["ok.png"])  # type: ignore[list-item]  # on purpose


@pytest.mark.parametrize("family", FAMILIES)
def test_token_ids_may_be_arrays(family: str) -> None:
    rows, _ = oracle_of(family).prepare(PROMPTS, PICTURES[:1])
    arrays: list[Any] = [np.array(row) for row in rows]
    assert oracle_of(family).prepare(arrays, PICTURES[:1])[0] == rows


@pytest.mark.parametrize(
    ("family", "overrides"),
    [
        ("idefics3", {"scale_factor": 0}),
        ("idefics3", {"scale_factor": None}),
        ("pixtral", {"vision_config": {"patch_size": 0}}),
        ("pixtral", {"vision_config": {"patch_size": -16}}),
        ("pixtral", {"image_token_id": -1}),
        ("pixtral", {"image_token_id": 10**30}),
        ("gemma3_multimodal", {"boi_token_index": None}),
        ("gemma3_multimodal", {"boi_token_index": 999999}),
        ("gemma3_multimodal", {"mm_tokens_per_image": "many"}),
        ("internvl", {"image_seq_length": 10**7}),
        ("internvl", {"image_seq_length": 0}),
        ("internvl", {"image_seq_length": 1.5}),
    ],
)
def test_configurations_that_no_picture_fits(family: str, overrides: dict[str, Any]) -> None:
    # Pillow's own refusal of a size is the image processor's, and names the picture.
    with hf_config_overrides(overrides), pytest.raises((BadInputError, EngineError)) as raised:
        oracle_of(family).prepare(["Hi"], PICTURES[:1])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"family": "x"}, "there is no family 'x', there are gemma3, "),
        ({"image_processor_cls": "a:B"}, r"'a:B' cannot be imported, expected module:Class: Mod"),
        ({"image_processor_cls": "json:B"}, r"'json:B' cannot be imported.*no attribute 'B'"),
        ({"model_inputs": ("nosuch",)}, "gives no nosuch, it gives pixel_values"),
        ({"family": "gemma3"}, "preprocessing gemma3 is for models of type gemma3"),
    ],
)
def test_facts_that_do_not_fit(facts: dict[str, Any], message: str) -> None:
    class Mine(InternVLPipelineOracle):
        preprocessing = replace(InternVLPipelineOracle.preprocessing, **facts)

    with pytest.raises(BadInputError, match=message):
        Mine(oracle_of(INTERNVL).model_path).prepare(["Hi"], PICTURES[:1])


def thin_picture() -> LoadedImage:
    import io

    from PIL import Image

    data = io.BytesIO()
    Image.new("RGB", (900, 2)).save(data, format="PNG")
    return loaded_image("thin.png", data.getvalue())


def test_a_picture_that_the_processor_cannot_take_is_named() -> None:
    with pytest.raises(EngineError, match=r"cannot take thin\.png: ValueError: absolute aspect"):
        oracle_of("qwen2_5_vl").prepare(["Hi"], [thin_picture()])

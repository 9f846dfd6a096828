"""The text between the tokens of pictures, written out by hand; processors are held against it
in test_vision_prompts where they can be constructed without torchvision."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from comparison.schema.errors import BadInputError
from test_common.image_families import (
    IMAGE_FAMILIES,
    ProcessedImages,
    family_problem,
    image_token_id,
)

TOKENS = {3: ".", 4: "(", 5: ")"}


def processed(outputs: dict[str, Any], **config: Any) -> ProcessedImages:
    return ProcessedImages(
        outputs=outputs,
        processor=SimpleNamespace(merge_size=2),
        tokenizer=SimpleNamespace(convert_ids_to_tokens=TOKENS.__getitem__),
        config=SimpleNamespace(image_token_id=3, **config),
    )


def test_pixtral_ends_lines_and_pictures() -> None:
    images = processed(
        {"image_sizes": [[32, 48], [16, 16]]},
        vision_config=SimpleNamespace(patch_size=8),
        spatial_merge_size=2,
    )
    expanded = IMAGE_FAMILIES["pixtral"].expanded
    assert expanded(images, 0) == "...[IMG_BREAK]...[IMG_END]"
    assert expanded(images, 1) == ".[IMG_END]"
    assert IMAGE_FAMILIES["pixtral"].options(images.config) == {"patch_size": 16}


def test_pixtral_without_merging_has_one_token_a_patch() -> None:
    images = processed({"image_sizes": [[16, 24]]}, vision_config=SimpleNamespace(patch_size=8))
    assert IMAGE_FAMILIES["pixtral"].expanded(images, 0) == "...[IMG_BREAK]...[IMG_END]"


def test_idefics3_names_rows_and_columns_and_adds_the_whole() -> None:
    images = processed(
        {"rows": [[0, 1]], "cols": [[0, 2]]},
        vision_config=SimpleNamespace(image_size=32, patch_size=8),
        scale_factor=4,
    )
    around = "<fake_token_around_image>"
    expanded = IMAGE_FAMILIES["idefics3"].expanded
    assert expanded(images, 0) == f"{around}<global-img>.{around}"
    assert expanded(images, 1) == (
        f"{around}<row_1_col_1>.{around}<row_1_col_2>.\n\n{around}<global-img>.{around}"
    )


def test_gemma3_internvl_and_qwen2_5_vl() -> None:
    gemma = processed({}, boi_token_index=4, eoi_token_index=5, mm_tokens_per_image=2)
    assert IMAGE_FAMILIES["gemma3"].expanded(gemma, 0) == "\n\n(..)\n\n"
    internvl = processed({"num_patches": [1, 2]}, image_seq_length=2)
    assert IMAGE_FAMILIES["internvl"].expanded(internvl, 1) == "<img>....</img>"
    qwen = processed({"image_grid_thw": [[1, 2, 4]]})
    assert IMAGE_FAMILIES["qwen2_5_vl"].expanded(qwen, 0) == ".."


def test_the_image_token_has_two_names() -> None:
    assert image_token_id(SimpleNamespace(image_token_index=7)) == 7
    with pytest.raises(BadInputError, match="SimpleNamespace names no image_token_id"):
        image_token_id(SimpleNamespace())


@pytest.mark.parametrize("value", [-1, True, "3", None])
def test_ids_that_are_none_are_refused(value: object) -> None:
    with pytest.raises(BadInputError, match="names no image_token_id"):
        image_token_id(SimpleNamespace(image_token_id=value))


@pytest.mark.parametrize("value", [None, 999, 10**30, "x"])
def test_tokens_that_the_tokenizer_lacks_are_refused(value: object) -> None:
    def text_of(token_id: Any) -> str | None:
        if token_id == 10**30:
            raise OverflowError
        return TOKENS.get(token_id)

    images = ProcessedImages(
        outputs={},
        processor=None,
        tokenizer=SimpleNamespace(convert_ids_to_tokens=text_of),
        config=SimpleNamespace(
            image_token_id=3, boi_token_index=value, eoi_token_index=5, mm_tokens_per_image=2
        ),
    )
    with pytest.raises(BadInputError, match=r"has no token of id .*, which the configuration"):
        IMAGE_FAMILIES["gemma3"].expanded(images, 0)


def test_too_many_tokens_are_refused_before_text_is_made_of_them() -> None:
    many = processed({"num_patches": [1]}, image_seq_length=10**15)
    with pytest.raises(BadInputError, match=f"need {10**15} tokens or more, at most 1000000 fit"):
        IMAGE_FAMILIES["internvl"].expanded(many, 0)
    few = replace(processed({"num_patches": [2]}, image_seq_length=4), max_tokens=7)
    with pytest.raises(BadInputError, match="need 8 tokens or more, at most 7 fit"):
        IMAGE_FAMILIES["internvl"].expanded(few, 0)
    huge = processed({"image_sizes": [[10**9] * 2]}, vision_config=SimpleNamespace(patch_size=8))
    with pytest.raises(BadInputError, match="tokens or more"):
        IMAGE_FAMILIES["pixtral"].expanded(huge, 0)


@pytest.mark.parametrize("length", [0, -4])
def test_pictures_without_a_token_are_refused(length: int) -> None:
    with pytest.raises(BadInputError, match="no picture reaches the model: it would be"):
        IMAGE_FAMILIES["internvl"].expanded(
            processed({"num_patches": [1]}, image_seq_length=length), 0
        )


def test_families_are_for_their_models() -> None:
    def llava(tower: str) -> Any:
        vision = SimpleNamespace(model_type=tower)
        return SimpleNamespace(model_type="llava", vision_config=vision)

    assert family_problem("pixtral", llava("pixtral")) is None
    found = family_problem("pixtral", llava("clip_vision_model"))
    assert found is not None
    assert "tower of type pixtral, the configuration says 'clip_vision_model'" in found
    found = family_problem("gemma3", llava("pixtral"))
    assert found is not None
    assert "is for models of type gemma3, the configuration says 'llava'" in found

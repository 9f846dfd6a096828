"""The text between the tokens of pictures, written out by hand; processors are held against it
in test_vision_prompts where they can be constructed without torchvision."""

from types import SimpleNamespace
from typing import Any

import pytest

from comparison.schema.errors import BadInputError
from test_common.image_families import IMAGE_FAMILIES, ProcessedImages, image_token_id

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

"""MAX's own preparation of pictures, held against the reference's; no graph is built."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from max.pipelines.architectures.idefics3.tokenizer import Idefics3Tokenizer
from max.pipelines.architectures.pixtral.tokenizer import PixtralTokenizer
from transformers import AutoConfig

from comparison.schema.errors import BadInputError, EngineError
from oracles.multimodal import MultimodalOracle
from oracles.registry import find_oracle
from test_common.images import default_images
from test_common.max_vision import (
    LogitsRecorder,
    first_difference,
    vision_rows,
    with_leading_token,
)
from test_common.patching import apply_patches
from test_common.pillow_processors import pillow_processor_patches
from test_common.vision_inputs import VisionInputs

PROMPTS = ("What is it?", "Say what stands to the left of the blue bar, and what is behind it.")
TOKENIZERS = {"pixtral": PixtralTokenizer, "idefics3": Idefics3Tokenizer}


def oracle_of(family: str) -> MultimodalOracle:
    oracle = find_oracle(f"tiny-random/{family}")
    assert isinstance(oracle, MultimodalOracle)
    return oracle


def engine_tokenizer(family: str) -> Any:
    """MAX's own tokenizer; of the pipeline's configuration it reads no more than this."""
    path = str(oracle_of(family).model_path)
    model = SimpleNamespace(
        huggingface_config=AutoConfig.from_pretrained(path),
        kv_cache=SimpleNamespace(enable_prefix_caching=False),
        generation_config=SimpleNamespace(eos_token_id=2),
    )
    pipeline_config = SimpleNamespace(model=model, draft_model=None)
    with apply_patches(pillow_processor_patches()):
        return TOKENIZERS[family](path, pipeline_config, max_length=512)


@pytest.mark.parametrize(("family", "pictures"), [("pixtral", 1), ("idefics3", 1), ("idefics3", 2)])
def test_tokens_and_pictures_are_those_of_the_reference(family: str, pictures: int) -> None:
    rows, vision = oracle_of(family).prepare(PROMPTS, default_images(pictures))
    made = vision_rows(engine_tokenizer(family), rows, vision, max_new_tokens=3)
    assert [row.context.tokens.prompt.tolist() for row in made] == rows
    assert len(made) == 2
    found = np.stack([image.pixel_values for row in made for image in row.context.images])
    expected = vision.model_inputs["pixel_values"]
    np.testing.assert_array_equal(found, expected.reshape(-1, *expected.shape[-3:]))
    for row in made:
        assert row.context.max_length == len(row.context.tokens.prompt) + 3
        assert row.context.sampling_params.logits_processors == [row.recorder]


def test_pixtral_on_max_takes_one_picture_a_prompt() -> None:
    rows, vision = oracle_of("pixtral").prepare(PROMPTS, default_images(2))
    tokenizer = engine_tokenizer("pixtral")
    with pytest.raises(EngineError, match=r"cannot prepare the pictures of prompt 0: ValueError"):
        vision_rows(tokenizer, rows, vision, max_new_tokens=3)


def test_other_token_ids_than_the_reference_s_are_an_error() -> None:
    rows, vision = oracle_of("pixtral").prepare(PROMPTS, default_images(1))
    rows[1][-2] += 1
    with pytest.raises(EngineError, match=r"other token ids of prompt 1 .* at position \d+: "):
        vision_rows(engine_tokenizer("pixtral"), rows, vision, max_new_tokens=3)


def test_a_row_of_token_ids_is_refused() -> None:
    vision = VisionInputs(images=default_images(1), texts=("a", None), model_inputs={})
    with pytest.raises(BadInputError, match="give prompt 1 as text"):
        vision_rows(None, [[1], [1, 2]], vision, max_new_tokens=3)


def test_processors_are_put_back() -> None:
    from transformers import models

    before = models.pixtral.PixtralProcessor
    with apply_patches(pillow_processor_patches()):
        assert models.pixtral.PixtralProcessor is not before
    assert models.pixtral.PixtralProcessor is before


def decoded(ids: list[int]) -> str:
    return "".join(chr(token) for token in ids)


def test_the_first_difference_is_shown_with_the_text_around() -> None:
    expected, found = [list(map(ord, text)) for text in ("abcdefghij", "abcdeXghij")]
    assert first_difference(expected, expected, decode=decoded) is None
    assert first_difference(expected, found, decode=decoded) == (
        "10 expected, 10 found; the first difference is at position 5: "
        "expected 102 in 'bcdefghij', found 88 in 'bcdeXghij'"
    )


def test_a_shorter_list_differs_at_its_end() -> None:
    problem = first_difference([97, 98, 99], [97, 98], decode=decoded)
    assert problem is not None
    assert "3 expected, 2 found" in problem
    assert "at position 2: expected 99 in 'abc', found the end in 'ab'" in problem


def test_a_leading_token_is_written_only_where_the_reference_added_one() -> None:
    tokenizer = SimpleNamespace(bos_token="<bos>", bos_token_id=1)
    assert with_leading_token(tokenizer, "text", [1, 9]) == "<bos>text"
    assert with_leading_token(tokenizer, "text", [9]) == "text"
    assert with_leading_token(tokenizer, "<bos>text", [1, 9]) == "<bos>text"
    without = SimpleNamespace(bos_token=None, bos_token_id=None)
    assert with_leading_token(without, "text", [1, 9]) == "text"


def test_logits_are_copied() -> None:
    buffer = np.array([[0, 1], [2, 3]], dtype=np.float32)

    class Logits:
        """As MAX's buffer: indexing gives a view."""

        def __getitem__(self, index: Any) -> Any:
            return SimpleNamespace(to_numpy=lambda: buffer[index])

    recorder = LogitsRecorder()
    recorder(SimpleNamespace(logits=Logits()))
    buffer[:] = 9
    np.testing.assert_array_equal(recorder.logits[0], np.array([2, 3], dtype=np.float32))

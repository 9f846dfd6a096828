"""Torch models that read pictures: against transformers' own generate, the cache, and padding."""

from typing import Any

import numpy as np
import pytest
import torch

from comparison.schema.errors import BadInputError, EngineError
from comparison.schema.manifest import Padding
from test_common.images import default_images
from test_common.torch_runner import TorchRun, run_torch
from test_common.vision_inputs import VisionInputs
from tests.test_common.multimodal_families import FAMILIES, PROMPTS, model_of, oracle_of
from tests.test_common.tiny_models import tiny_llama

STEPS = 3
PICTURES = default_images(3)


def prepared(family: str, *prompts: str, first: int = 0) -> tuple[list[list[int]], VisionInputs]:
    return oracle_of(family).prepare(prompts, PICTURES[first : first + 2])


def run(family: str, *prompts: str, first: int = 0, **options: Any) -> TorchRun:
    rows, vision = prepared(family, *prompts, first=first)
    return run_torch(
        model_of(family),
        rows,
        num_steps=STEPS,
        pad_token_id=0,
        vision_inputs=vision.model_inputs,
        **options,
    )


def assert_close(left: Any, right: Any) -> None:
    for one, other in zip(left, right, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_generate(family: str) -> None:
    model = model_of(family)
    rows, vision = prepared(family, PROMPTS[1])
    ids = torch.tensor(rows)
    types = (ids == model.config.image_token_id).long()
    names = {"gemma3_multimodal": "token_type_ids", "qwen2_5_vl": "mm_token_type_ids"}
    further = {names[family]: types} if family in names else {}
    generated = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        **{name: torch.tensor(value) for name, value in vision.model_inputs.items()},
        **further,
        do_sample=False,
        min_new_tokens=STEPS,
        max_new_tokens=STEPS,
        eos_token_id=None,
        output_logits=True,
        return_dict_in_generate=True,
    )
    ours = run(family, PROMPTS[1])
    assert list(ours.generated[0]) == generated.sequences[0, ids.shape[1] :].tolist()
    assert_close(ours.logits, [logits.numpy() for logits in generated.logits])


@pytest.mark.parametrize("family", FAMILIES)
def test_decoding_with_a_cache_equals_the_whole_sequence_again(family: str) -> None:
    cached, whole = run(family, *PROMPTS), run(family, *PROMPTS, use_cache=False)
    assert cached.notes == ()
    assert whole.notes == ("no cache: each decode step feeds the whole sequence",)
    assert cached.generated == whole.generated
    assert_close(cached.logits, whole.logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_padded_row_equals_the_row_alone(family: str) -> None:
    together = run(family, *PROMPTS)
    assert together.padding is Padding.LEFT
    for index, prompt in enumerate(PROMPTS):
        alone = run(family, prompt)
        assert alone.padding is Padding.NONE
        assert_close([step[index] for step in together.logits], [s[0] for s in alone.logits])


@pytest.mark.parametrize("family", FAMILIES)
def test_another_picture_gives_other_logits(family: str) -> None:
    # Of one size each, so that the tokens are the same and only the pixels differ.
    mirrored = dict(prepared(family, PROMPTS[0])[1].model_inputs)
    rows, vision = prepared(family, PROMPTS[0])
    mirrored["pixel_values"] = vision.model_inputs["pixel_values"][..., ::-1].copy()
    one, other = (
        run_torch(model_of(family), rows, num_steps=1, vision_inputs=inputs)
        for inputs in (vision.model_inputs, mirrored)
    )
    spread = one.logits[0].std()
    assert np.abs(one.logits[0] - other.logits[0]).max() > 0.05 * spread


def test_a_model_of_text_alone_is_told_apart() -> None:
    with pytest.raises(BadInputError, match=r"LlamaForCausalLM\.forward takes no pixel_values"):
        run_torch(tiny_llama(), [[1, 2]], num_steps=1, vision_inputs={"pixel_values": np.ones(1)})


class Seeing(torch.nn.Module):
    """Takes pictures, and looks at them if it is told to."""

    def __init__(self, *, looks: bool) -> None:
        super().__init__()
        self.looks = looks
        self.embedding = torch.nn.Embedding(9, 4)
        self.vision_tower = torch.nn.Linear(2, 4)

    def forward(
        self, input_ids: torch.Tensor, pixel_values: torch.Tensor | None = None
    ) -> torch.Tensor:
        seen: Any = 0
        if self.looks and pixel_values is not None:
            seen = self.vision_tower(pixel_values)
        return self.embedding(input_ids) + seen


def test_a_model_that_does_not_look_is_an_error() -> None:
    inputs = {"pixel_values": np.ones((1, 2), dtype=np.float32)}
    run_torch(Seeing(looks=True), [[1, 2]], num_steps=2, vision_inputs=inputs)
    blind = Seeing(looks=False)
    with pytest.raises(EngineError, match=r"no picture reaches the model: .*vision_tower did not"):
        run_torch(blind, [[1, 2]], num_steps=1, vision_inputs=inputs)
    assert not blind.vision_tower._forward_pre_hooks

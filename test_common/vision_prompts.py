"""Prompts with pictures: token ids and tensors, made once and fed to every engine."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from comparison.schema.errors import BadInputError, EngineError
from test_common.error_text import describe
from test_common.image_families import (
    IMAGE_FAMILIES,
    ImageFamily,
    ProcessedImages,
    image_token_id,
)
from test_common.image_preprocessing import ImagePreprocessing, PromptSettings
from test_common.images import LoadedImage
from test_common.layer_overrides import load_hf_config
from test_common.model_load_errors import load_errors
from test_common.prompts import encode_prompts, load_tokenizer, prompt_problem, render_chat
from test_common.vision_inputs import VisionInputs


def prepare_vision(
    prompts: Sequence[str | Sequence[int]],
    images: Sequence[LoadedImage],
    *,
    preprocessing: ImagePreprocessing,
    settings: PromptSettings,
) -> tuple[list[list[int]], VisionInputs]:
    """Return the token ids of each row, the tokens of its pictures included, and the tensors.

    Args:
        prompts: a text, or its token ids with the pictures' tokens already in it, a row.
        images: the pictures; each row has all of them.
        preprocessing: the family's facts.
        settings: how prompts become token ids.

    Raises:
        BadInputError: a prompt that `encode_prompts` refuses, one with another number of
            placeholders or of pictures' tokens than there are pictures, or no picture.
        EngineError: the image processor fails; its own last error is quoted.
        UnknownPipelineError: there is no such model.
        TryAgainError: the Hub cannot be reached.
    """
    if not images:
        raise BadInputError("no image given; at least one is needed")
    _check_prompts(prompts)
    tokenizer = load_tokenizer(
        settings.model_path,
        trust_remote_code=settings.trust_remote_code,
        revision=settings.revision,
    )
    processed = _process(images, preprocessing, settings, tokenizer)
    expansions = [
        IMAGE_FAMILIES[preprocessing.family].expanded(processed, index)
        for index in range(len(images))
    ]
    texts = _rendered(prompts, len(images), preprocessing, settings, tokenizer)
    given = [
        ids if text is None else _expanded(text, preprocessing.expanded_token, expansions)
        for text, ids in zip(texts, prompts, strict=True)
    ]
    rows = encode_prompts(
        tokenizer,
        given,
        # The chat template writes the special tokens itself.
        add_special_tokens=not settings.apply_chat_template,
        add_bos_token=settings.add_bos_token,
        max_length=settings.max_length,
    )
    _check_image_tokens(rows, expansions, processed)
    inputs = {
        name: np.concatenate([np.asarray(processed.outputs[name])] * len(rows))
        for name in preprocessing.model_inputs
    }
    name = type(processed.processor).__name__
    note = f"pictures were prepared by {name}, on Pillow; one on torchvision may round otherwise"
    return rows, VisionInputs(
        images=tuple(images), texts=tuple(texts), model_inputs=inputs, notes=(note,)
    )


def _check_prompts(prompts: Sequence[str | Sequence[int]]) -> None:
    problems = [prompt_problem(prompt, index=index) for index, prompt in enumerate(prompts)]
    problems += [f"prompt {i} is empty" for i, prompt in enumerate(prompts) if prompt == ""]
    if any(problems):
        raise BadInputError("; ".join(problem for problem in problems if problem is not None))


def _process(
    images: Sequence[LoadedImage],
    preprocessing: ImagePreprocessing,
    settings: PromptSettings,
    tokenizer: Any,
) -> ProcessedImages:
    family = IMAGE_FAMILIES[preprocessing.family]
    config = load_hf_config(
        settings.model_path,
        trust_remote_code=settings.trust_remote_code,
        revision=settings.revision,
    )
    processor = _image_processor(preprocessing.image_processor_cls, settings)
    return ProcessedImages(
        outputs=_run_processor(processor, images, family, config),
        processor=processor,
        tokenizer=tokenizer,
        config=config,
    )


def _image_processor(module_and_class: str, settings: PromptSettings) -> Any:
    module, _, name = module_and_class.partition(":")
    processor_class = getattr(importlib.import_module(module), name)
    with load_errors(settings.model_path, engine="transformers"):
        return processor_class.from_pretrained(
            settings.model_path, revision=settings.revision or "main"
        )


def _run_processor(
    processor: Any, images: Sequence[LoadedImage], family: ImageFamily, config: Any
) -> dict[str, Any]:
    pictures: list[Any] = [image.decoded() for image in images]
    try:
        given = [pictures] if family.nested else pictures
        return dict(processor(given, return_tensors="np", **family.options(config)))
    # Image processors raise whatever a picture of odd proportions makes them raise.
    except Exception as error:
        sources = ", ".join(image.source for image in images)
        raise EngineError(
            f"the image processor cannot take {sources}: {describe(error)}"
        ) from error


def _rendered(
    prompts: Sequence[str | Sequence[int]],
    count: int,
    preprocessing: ImagePreprocessing,
    settings: PromptSettings,
    tokenizer: Any,
) -> list[str | None]:
    """Return each text with one placeholder a picture, None for token ids."""
    token = preprocessing.expanded_token
    texts: list[str | None] = []
    problems = []
    for index, prompt in enumerate(prompts):
        text = None
        if isinstance(prompt, str):
            placed = token in prompt  # the user says where the pictures go
            if settings.apply_chat_template:
                text = render_chat(tokenizer, prompt, images=0 if placed else count)
            else:
                text = prompt if placed else f"{preprocessing.placeholder * count}{prompt}"
            if text.count(token) != count:
                problems.append(
                    f"prompt {index} has {text.count(token)} placeholders {token} and there are "
                    f"{count} images"
                )
        texts.append(text)
    if problems:
        raise BadInputError("; ".join(problems))
    return texts


def _expanded(text: str, token: str, expansions: Sequence[str]) -> str:
    """Put each picture's text in the place of its token; an expansion may hold the token again."""
    pieces = text.split(token)
    return "".join(
        piece + expansion for piece, expansion in zip(pieces, [*expansions, ""], strict=True)
    )


def _check_image_tokens(
    rows: Sequence[Sequence[int]], expansions: Sequence[str], processed: ProcessedImages
) -> None:
    token_id, token = image_token_id(processed.config), processed.image_token
    expected = sum(expansion.count(token) for expansion in expansions)
    problems = [
        f"prompt {index} has the image token {token} (id {token_id}) {list(row).count(token_id)} "
        f"times, and the images need {expected}"
        for index, row in enumerate(rows)
        if list(row).count(token_id) != expected
    ]
    if problems:
        raise BadInputError("; ".join(problems))

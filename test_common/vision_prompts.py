"""Prompts with pictures: token ids and tensors, made once and fed to every engine."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from comparison.schema.errors import AccuracyToolsError, BadInputError, EngineError
from test_common.error_text import describe, shown
from test_common.image_families import (
    IMAGE_FAMILIES,
    ProcessedImages,
    family_problem,
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
            placeholders or of pictures' tokens than there are pictures, no picture, or a family
            whose preprocessing is not for this model.
        EngineError: the image processor fails; its own last error is quoted.
        UnknownPipelineError: there is no such model.
        TryAgainError: the Hub cannot be reached.
    """
    _check_images(images)
    _check_prompts(prompts)
    tokenizer = load_tokenizer(
        settings.model_path,
        trust_remote_code=settings.trust_remote_code,
        revision=settings.revision,
    )
    processed = _process(images, preprocessing, settings, tokenizer)
    with _fitting(preprocessing, processed.config):
        expansions = _expansions(processed, preprocessing, count=len(images))
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
    with _fitting(preprocessing, processed.config):
        inputs = {
            name: np.concatenate([_output(processed, name)] * len(rows))
            for name in preprocessing.model_inputs
        }
    name = type(processed.processor).__name__
    note = f"pictures were prepared by {name}, on Pillow; one on torchvision may round otherwise"
    return rows, VisionInputs(
        images=tuple(images), texts=tuple(texts), model_inputs=inputs, notes=(note,)
    )


def _check_images(images: Sequence[LoadedImage]) -> None:
    if not images:
        raise BadInputError("no image given; at least one is needed")
    wrong = [image for image in images if not isinstance(image, LoadedImage)]
    if wrong:
        raise BadInputError(
            f"images must be LoadedImages, as load_images gives them, found {shown(wrong[0])}"
        )


def _check_prompts(prompts: Sequence[str | Sequence[int]]) -> None:
    if isinstance(prompts, str | bytes):
        raise BadInputError(f"prompts must be a list of prompts, found {shown(prompts)}")
    problems = [prompt_problem(prompt, index=index) for index, prompt in enumerate(prompts)]
    problems += [
        f"prompt {index} is empty"
        for index, prompt in enumerate(prompts)
        if isinstance(prompt, str) and not prompt
    ]
    if any(problems):
        raise BadInputError("; ".join(problem for problem in problems if problem is not None))


@contextmanager
def _fitting(preprocessing: ImagePreprocessing, config: Any) -> Iterator[None]:
    """Raise what a family's code makes of another model's configuration as our error."""
    try:
        yield
    except AccuracyToolsError:
        raise
    # Fields are missing, zero, or no numbers.
    except Exception as error:
        raise BadInputError(
            f"preprocessing {preprocessing.family} does not fit the configuration "
            f"{type(config).__name__}: {describe(error)}"
        ) from error


def _expansions(
    processed: ProcessedImages, preprocessing: ImagePreprocessing, *, count: int
) -> list[str]:
    """Return the text of each picture, none longer together than a row may be."""
    expanded, token = IMAGE_FAMILIES[preprocessing.family].expanded, processed.image_token
    expansions: list[str] = []
    tokens = 0
    for index in range(count):
        expansions.append(expanded(processed, index))
        tokens += expansions[-1].count(token)
        processed.check_count(tokens)
    return expansions


def _output(processed: ProcessedImages, name: str) -> np.ndarray[Any, Any]:
    if name not in processed.outputs:
        raise BadInputError(
            f"model_inputs: {type(processed.processor).__name__} gives no {name}, it gives "
            f"{', '.join(processed.outputs)}"
        )
    return np.asarray(processed.outputs[name])


def _process(
    images: Sequence[LoadedImage],
    preprocessing: ImagePreprocessing,
    settings: PromptSettings,
    tokenizer: Any,
) -> ProcessedImages:
    if preprocessing.family not in IMAGE_FAMILIES:
        raise BadInputError(
            f"preprocessing: there is no family {shown(preprocessing.family)}, there are "
            f"{', '.join(IMAGE_FAMILIES)}"
        )
    family = IMAGE_FAMILIES[preprocessing.family]
    config = load_hf_config(
        settings.model_path,
        trust_remote_code=settings.trust_remote_code,
        revision=settings.revision,
    )
    problem = family_problem(preprocessing.family, config)
    if problem is not None:
        raise BadInputError(f"{settings.model_path}: {problem}")
    with _fitting(preprocessing, config):
        options = dict(family.options(config))
    processor = _image_processor(preprocessing.image_processor_cls, settings)
    return ProcessedImages(
        outputs=_run_processor(processor, images, options, nested=family.nested),
        processor=processor,
        tokenizer=tokenizer,
        config=config,
        max_tokens=settings.max_length,
    )


def _image_processor(module_and_class: str, settings: PromptSettings) -> Any:
    module, _, name = module_and_class.partition(":")
    try:
        processor_class = getattr(importlib.import_module(module), name)
    # A module may raise anything while it is imported.
    except Exception as error:
        raise BadInputError(
            f"image_processor_cls {shown(module_and_class)} cannot be imported, expected "
            f"module:Class: {describe(error)}"
        ) from error
    with load_errors(settings.model_path, engine="transformers"):
        return processor_class.from_pretrained(
            settings.model_path, revision=settings.revision or "main"
        )


def _run_processor(
    processor: Any, images: Sequence[LoadedImage], options: Mapping[str, Any], *, nested: bool
) -> dict[str, Any]:
    pictures: list[Any] = [image.decoded() for image in images]
    try:
        given = [pictures] if nested else pictures
        return dict(processor(given, return_tensors="np", **options))
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

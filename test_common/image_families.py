"""How each family of multimodal models turns pictures into tokens and tensors.

The tensors come from transformers' own image processors that work on Pillow and numpy: those on
torchvision may round otherwise, and torchvision need not be installed. The text between the
pictures' tokens is made here, since the processor classes of some families cannot even be
constructed without torchvision; tests hold it against those that can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from comparison.schema.errors import BadInputError
from test_common.error_text import shown

_MOST_TOKENS = 1_000_000  # of one row where there is no other limit; no model has that many
_TOKEN_NAMES = ("image_token_id", "image_token_index")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessedImages:
    """The pictures of one row after the image processor.

    Attributes:
        outputs: what the processor gave, numpy arrays with one leading entry a picture or tile.
        processor: the image processor.
        tokenizer: the model's tokenizer.
        config: the model's configuration.
        max_tokens: greatest number of tokens that a row may have.
    """

    outputs: Mapping[str, Any]
    processor: Any
    tokenizer: Any
    config: Any
    max_tokens: int | None = None

    @property
    def image_token(self) -> str:
        """Return the token that stands for one vector of a picture."""
        return self.token(image_token_id(self.config))

    def token(self, token_id: int) -> str:
        """Return the text of a token.

        Raises:
            BadInputError: the tokenizer has no such token.
        """
        try:
            text = self.tokenizer.convert_ids_to_tokens(token_id)
        # Tokenizers raise what they like for what is no id of theirs.
        except Exception:
            text = None
        if not isinstance(text, str):
            raise BadInputError(
                f"the tokenizer has no token of id {shown(token_id)}, which the configuration "
                f"{type(self.config).__name__} names for pictures"
            )
        return text

    def vectors(self, count: int) -> str:
        """Return the text of that many vectors of a picture.

        Raises:
            BadInputError: there are none, or more than a row may have tokens.
        """
        self.check_count(count)
        return self.image_token * count

    def check_count(self, count: int) -> None:
        """Refuse a number of vectors before any text is made of it.

        Raises:
            BadInputError: there are none, or more than a row may have tokens.
        """
        most = _MOST_TOKENS if self.max_tokens is None else self.max_tokens
        if count < 1:
            raise BadInputError(f"no picture reaches the model: it would be {count} tokens")
        if count > most:
            raise BadInputError(
                f"the pictures need {count} tokens or more, at most {most} fit; give fewer or "
                "smaller ones, or raise max_length"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFamily:
    """What the code of one family does.

    Attributes:
        expanded: text that takes the place of a picture's placeholder, given its number in the
            row.
        options: arguments of the image processor that its own configuration does not hold.
        nested: whether the processor takes a list of lists, one a row.
        model_types: `model_type` of the configurations that it is for.
        tower: `model_type` of the tower's configuration, None for any.
    """

    expanded: Callable[[ProcessedImages, int], str]
    model_types: tuple[str, ...]
    tower: str | None = None
    options: Callable[[Any], Mapping[str, Any]] = lambda config: {}
    nested: bool = False


def image_token_id(config: Any) -> int:
    """Return the id that stands in a prompt for each vector of a picture.

    Raises:
        BadInputError: the configuration names none.
    """
    found = {name: getattr(config, name, None) for name in _TOKEN_NAMES}
    for value in found.values():
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    named = [f"{name} is {shown(value)}" for name, value in found.items() if value is not None]
    raise BadInputError(
        f"the configuration {type(config).__name__} names no image_token_id"
        f"{f': {named[0]}' if named else ''}"
    )


def family_problem(name: str, config: Any) -> str | None:
    """Say why a family's preprocessing is not for a model, None where it is.

    Args:
        name: a key of `IMAGE_FAMILIES`.
        config: the model's configuration.
    """
    family, kind = IMAGE_FAMILIES[name], getattr(config, "model_type", None)
    if kind not in family.model_types:
        return (
            f"preprocessing {name} is for models of type {' or '.join(family.model_types)}, the "
            f"configuration says {shown(kind)}"
        )
    tower = getattr(getattr(config, "vision_config", None), "model_type", None)
    if family.tower is not None and tower != family.tower:
        return (
            f"preprocessing {name} is for {kind} with a tower of type {family.tower}, the "
            f"configuration says {shown(tower)}"
        )
    return None


def _gemma3(images: ProcessedImages, index: int) -> str:
    del index  # all pictures have the same size
    config = images.config
    start, end = images.token(config.boi_token_index), images.token(config.eoi_token_index)
    return f"\n\n{start}{images.vectors(config.mm_tokens_per_image)}{end}\n\n"


def _internvl(images: ProcessedImages, index: int) -> str:
    tiles = int(images.outputs["num_patches"][index])
    return f"<img>{images.vectors(images.config.image_seq_length * tiles)}</img>"


def _qwen2_5_vl(images: ProcessedImages, index: int) -> str:
    patches = int(np.prod(images.outputs["image_grid_thw"][index]))
    return images.vectors(patches // images.processor.merge_size**2)


def _idefics3(images: ProcessedImages, index: int) -> str:
    vision = images.config.vision_config
    side = vision.image_size // vision.patch_size
    vectors = images.vectors(int(side**2 / images.config.scale_factor**2))
    around = "<fake_token_around_image>"
    whole = f"{around}<global-img>{vectors}{around}"
    rows, columns = (int(images.outputs[name][0][index]) for name in ("rows", "cols"))
    if rows == 0 and columns == 0:
        return whole
    lines = [
        "".join(f"{around}<row_{row}_col_{column}>{vectors}" for column in range(1, columns + 1))
        for row in range(1, rows + 1)
    ]
    return "".join(f"{line}\n" for line in lines) + f"\n{whole}"


def _pixtral(images: ProcessedImages, index: int) -> str:
    side = _pixtral_side(images.config)
    height, width = (int(size) // side for size in images.outputs["image_sizes"][index])
    images.check_count(width * height)
    lines = "[IMG_BREAK]".join([images.image_token * width] * height)
    return f"{lines}[IMG_END]"


def _pixtral_side(config: Any) -> int:
    """Return the pixels along one side of what becomes one token."""
    return int(config.vision_config.patch_size * getattr(config, "spatial_merge_size", 1))


IMAGE_FAMILIES: Mapping[str, ImageFamily] = {
    "gemma3": ImageFamily(
        expanded=_gemma3,
        model_types=("gemma3",),
        options=lambda config: {"do_pan_and_scan": False},
    ),
    "internvl": ImageFamily(
        expanded=_internvl,
        model_types=("internvl",),
        options=lambda config: {"crop_to_patches": True},
    ),
    "qwen2_5_vl": ImageFamily(expanded=_qwen2_5_vl, model_types=("qwen2_5_vl",)),
    "idefics3": ImageFamily(
        expanded=_idefics3,
        model_types=("idefics3",),
        options=lambda config: {"return_row_col_info": True},
        nested=True,
    ),
    "pixtral": ImageFamily(
        expanded=_pixtral,
        model_types=("llava", "mistral3"),
        tower="pixtral",
        options=lambda config: {"patch_size": _pixtral_side(config)},
    ),
}

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessedImages:
    """The pictures of one row after the image processor.

    Attributes:
        outputs: what the processor gave, numpy arrays with one leading entry a picture or tile.
        processor: the image processor.
        tokenizer: the model's tokenizer.
        config: the model's configuration.
    """

    outputs: Mapping[str, Any]
    processor: Any
    tokenizer: Any
    config: Any

    @property
    def image_token(self) -> str:
        """Return the token that stands for one vector of a picture."""
        return self.token(image_token_id(self.config))

    def token(self, token_id: int) -> str:
        """Return the text of a token."""
        return str(self.tokenizer.convert_ids_to_tokens(token_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFamily:
    """What the code of one family does.

    Attributes:
        expanded: text that takes the place of a picture's placeholder, given its number in the
            row.
        options: arguments of the image processor that its own configuration does not hold.
        nested: whether the processor takes a list of lists, one a row.
    """

    expanded: Callable[[ProcessedImages, int], str]
    options: Callable[[Any], Mapping[str, Any]] = lambda config: {}
    nested: bool = False


def image_token_id(config: Any) -> int:
    """Return the id that stands in a prompt for each vector of a picture.

    Raises:
        BadInputError: the configuration names none.
    """
    for name in ("image_token_id", "image_token_index"):
        found = getattr(config, name, None)
        if isinstance(found, int):
            return found
    raise BadInputError(f"the configuration {type(config).__name__} names no image_token_id")


def _gemma3(images: ProcessedImages, index: int) -> str:
    del index  # all pictures have the same size
    config = images.config
    start, end = images.token(config.boi_token_index), images.token(config.eoi_token_index)
    return f"\n\n{start}{images.image_token * config.mm_tokens_per_image}{end}\n\n"


def _internvl(images: ProcessedImages, index: int) -> str:
    tiles = int(images.outputs["num_patches"][index])
    return f"<img>{images.image_token * (images.config.image_seq_length * tiles)}</img>"


def _qwen2_5_vl(images: ProcessedImages, index: int) -> str:
    patches = int(np.prod(images.outputs["image_grid_thw"][index]))
    return images.image_token * (patches // images.processor.merge_size**2)


def _idefics3(images: ProcessedImages, index: int) -> str:
    vision = images.config.vision_config
    side = vision.image_size // vision.patch_size
    vectors = images.image_token * int(side**2 / images.config.scale_factor**2)
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
    lines = "[IMG_BREAK]".join([images.image_token * width] * height)
    return f"{lines}[IMG_END]"


def _pixtral_side(config: Any) -> int:
    """Return the pixels along one side of what becomes one token."""
    return int(config.vision_config.patch_size * getattr(config, "spatial_merge_size", 1))


IMAGE_FAMILIES: Mapping[str, ImageFamily] = {
    "gemma3": ImageFamily(expanded=_gemma3, options=lambda config: {"do_pan_and_scan": False}),
    "internvl": ImageFamily(expanded=_internvl, options=lambda config: {"crop_to_patches": True}),
    "qwen2_5_vl": ImageFamily(expanded=_qwen2_5_vl),
    "idefics3": ImageFamily(
        expanded=_idefics3, options=lambda config: {"return_row_col_info": True}, nested=True
    ),
    "pixtral": ImageFamily(
        expanded=_pixtral, options=lambda config: {"patch_size": _pixtral_side(config)}
    ),
}

"""What a run feeds a multimodal model besides token ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from test_common.images import LoadedImage


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionInputs:
    """The pictures of a batch, and what the reference's image processor made of them.

    Attributes:
        images: the pictures of each row; every row has all of them, in this order.
        texts: the prompt of each row as rendered, with one placeholder a picture; None for a row
            that was given as token ids.
        model_inputs: further keyword inputs of the Torch model for the whole batch, the rows'
            parts one after the other along the first axis: `pixel_values`, and what the family
            needs of `image_grid_thw`, `pixel_attention_mask`, `image_sizes`.
        notes: what a reader of the dump has to know, one sentence each.
    """

    images: tuple[LoadedImage, ...]
    texts: tuple[str | None, ...]
    model_inputs: Mapping[str, np.ndarray[Any, Any]]
    notes: tuple[str, ...] = ()

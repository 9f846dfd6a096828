"""The pictures of a debug run, for an oracle that takes any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from comparison.schema.errors import BadInputError
from test_common.debug_options import DebugOptions

if TYPE_CHECKING:
    from test_common.images import LoadedImage
    from test_common.vision_inputs import VisionInputs


class MayTakeImages(Protocol):
    """The part of an oracle that says whether its prompts come with pictures."""

    takes_images: bool


@runtime_checkable
class TakesImages(Protocol):
    """The part of an oracle that prepares prompts with pictures."""

    default_image_count: int

    def prepare(
        self,
        prompts: Sequence[str | Sequence[int]],
        images: Sequence[LoadedImage],
    ) -> tuple[list[list[int]], VisionInputs]:
        """Return token ids of each row, and what else the model is fed."""


def images_of_run(oracle: MayTakeImages, options: DebugOptions) -> tuple[LoadedImage, ...]:
    """Return the pictures that every row gets; none for a model of text alone.

    Args:
        oracle: says whether it takes pictures, and how many where the user gives none.
        options: what the user gave.

    Raises:
        BadInputError: pictures for a model of text alone, pictures for vLLM, or sources that
            `load_images` refuses.
        TryAgainError: the web fails for now.
    """
    if not oracle.takes_images:
        if options.images:
            raise BadInputError(
                f"{options.pipeline} takes no images: leave --image out, or name a pipeline that "
                "takes them (docs/oracles.md)"
            )
        return ()
    if options.framework == "vllm":
        raise BadInputError(
            f"{options.pipeline} takes images, and these are run on max and torch only, not on vllm"
        )
    from test_common.images import default_images, load_images

    if options.images:
        return load_images(options.images)
    return default_images(taking_images(oracle).default_image_count)


def taking_images(oracle: MayTakeImages) -> TakesImages:
    """Return an oracle as one that prepares prompts with pictures.

    Raises:
        BadInputError: it only says that it does.
    """
    if not isinstance(oracle, TakesImages):
        raise BadInputError(
            f"{type(oracle).__name__} says takes_images and has no prepare(): derive it from "
            "MultimodalOracle"
        )
    return oracle

"""Processors of pictures that transformers could load without torchvision, and does not.

Their code needs only Pillow and numpy; what asks for torchvision is the import of a module beside
it, or a word in a comment. MAX loads them through `AutoProcessor` while it builds a pipeline.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from test_common.patching import Patch

_MODELS = "transformers.models"


def pillow_processor_patches() -> tuple[Patch, ...]:
    """Make the patches that give `AutoProcessor` the real classes.

    Returns:
        The records for `apply_patches`; none where torchvision is installed.
    """
    from transformers.utils import is_torchvision_available

    if is_torchvision_available():
        return ()
    return (_given("pixtral", _pixtral_processor()), _given("idefics3", _idefics3_images()))


def _given(family: str, real: Any) -> Patch:
    return Patch(
        target=importlib.import_module(f"{_MODELS}.{family}"),
        name=real.__name__,
        replacement=real,
        missing_api=f"{real.__name__} without torchvision",
        remove_when="transformers loads it where torchvision is not installed",
    )


def _idefics3_images() -> Any:
    """Return the image processor; its file is taken for torchvision's for a word in a comment."""
    # `from package import module` would give the placeholder.
    module = importlib.import_module(f"{_MODELS}.idefics3.image_processing_pil_idefics3")
    return module.Idefics3ImageProcessorPil


def _pixtral_processor() -> Any:
    """Return the processor; it takes one function from torchvision's module that Pillow's has."""
    pillow = importlib.import_module(f"{_MODELS}.pixtral.image_processing_pil_pixtral")
    with _standing_in(f"{_MODELS}.pixtral.image_processing_pixtral", pillow):
        return importlib.import_module(f"{_MODELS}.pixtral.processing_pixtral").PixtralProcessor


@contextmanager
def _standing_in(name: str, module: Any) -> Iterator[None]:
    """Let an import of the module `name` find another one for the time of the block."""
    sys.modules[name] = module
    try:
        yield
    finally:
        del sys.modules[name]

"""Oracles of the tiny checkpoints that read pictures, made on first use."""

from collections.abc import Mapping

from oracles.made_checkpoint import MadeCheckpointOracle
from oracles.multimodal import (
    Gemma3MultimodalPipelineOracle,
    Idefics3PipelineOracle,
    InternVLPipelineOracle,
    PixtralPipelineOracle,
    Qwen2_5VLPipelineOracle,
)


class MadeGemma3Oracle(MadeCheckpointOracle, Gemma3MultimodalPipelineOracle):
    """A tiny Gemma 3 with its tower."""


class MadeInternVLOracle(MadeCheckpointOracle, InternVLPipelineOracle):
    """A tiny InternVL."""


class MadeQwen2_5VLOracle(MadeCheckpointOracle, Qwen2_5VLPipelineOracle):
    """A tiny Qwen2.5-VL."""


class MadeIdefics3Oracle(MadeCheckpointOracle, Idefics3PipelineOracle):
    """A tiny Idefics3."""


class MadePixtralOracle(MadeCheckpointOracle, PixtralPipelineOracle):
    """A tiny Pixtral."""


# By the name of the tiny checkpoint's recipe.
MADE_MULTIMODAL: Mapping[str, type[MadeCheckpointOracle]] = {
    "gemma3_multimodal": MadeGemma3Oracle,
    "idefics3": MadeIdefics3Oracle,
    "internvl": MadeInternVLOracle,
    "pixtral": MadePixtralOracle,
    "qwen2_5_vl": MadeQwen2_5VLOracle,
}

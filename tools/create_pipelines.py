"""The documented home of the oracles; see the package `oracles`."""

from oracles.generic_oracle import GenericOracle
from oracles.multimodal import (
    Gemma3MultimodalPipelineOracle,
    Idefics3PipelineOracle,
    InternVLPipelineOracle,
    MultimodalOracle,
    PixtralPipelineOracle,
    Qwen2_5VLPipelineOracle,
)
from oracles.oracle import PipelineOracle
from oracles.registry import PIPELINE_ORACLES

__all__ = [
    "PIPELINE_ORACLES",
    "Gemma3MultimodalPipelineOracle",
    "GenericOracle",
    "Idefics3PipelineOracle",
    "InternVLPipelineOracle",
    "MultimodalOracle",
    "PipelineOracle",
    "PixtralPipelineOracle",
    "Qwen2_5VLPipelineOracle",
]

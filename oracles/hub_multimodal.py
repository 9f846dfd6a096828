"""Models of the Hugging Face Hub that read pictures, as data."""

from collections.abc import Mapping

from oracles.multimodal import (
    Gemma3MultimodalPipelineOracle,
    Idefics3PipelineOracle,
    InternVLPipelineOracle,
    MultimodalOracle,
    PixtralPipelineOracle,
    Qwen2_5VLPipelineOracle,
)
from oracles.oracle import PipelineOracle

HUB_MULTIMODAL: Mapping[str, type[MultimodalOracle]] = {
    "HuggingFaceM4/Idefics3-8B-Llama3": Idefics3PipelineOracle,
    "OpenGVLab/InternVL3-1B-hf": InternVLPipelineOracle,
    "OpenGVLab/InternVL3-8B-hf": InternVLPipelineOracle,
    "Qwen/Qwen2.5-VL-3B-Instruct": Qwen2_5VLPipelineOracle,
    "Qwen/Qwen2.5-VL-7B-Instruct": Qwen2_5VLPipelineOracle,
    "google/gemma-3-12b-it": Gemma3MultimodalPipelineOracle,
    "google/gemma-3-4b-it": Gemma3MultimodalPipelineOracle,
    "mistral-community/pixtral-12b": PixtralPipelineOracle,
}
_MAX_LENGTH = 8192  # far below the models' own to save memory


def hub_multimodal_oracles() -> dict[str, PipelineOracle]:
    """Return one oracle a model, by Hub id."""
    return {
        name: kind(name, config_params={"max_length": _MAX_LENGTH})
        for name, kind in HUB_MULTIMODAL.items()
    }

"""What a builder hands to a runner: a model of one engine with what turns data into its inputs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxPipelineAndTokenizer:
    """A pipeline built by MAX.

    Attributes:
        pipeline: the engine's pipeline, ready to run.
        tokenizer: the engine's own tokenizer of that pipeline.
        patches: names of the patches that were applied to the engine for this build.
    """

    pipeline: Any
    tokenizer: Any
    patches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchModelAndDataProcessor:
    """A Hugging Face model in evaluation mode.

    Attributes:
        model: the `torch.nn.Module`, on its device and in the encoding's dtype.
        data_processor: its tokenizer or processor.
    """

    model: Any
    data_processor: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class VLLMPipeline:
    """What vLLM needs to load a model; the engine itself starts in its own environment.

    Attributes:
        model_path: local folder or Hub id.
        encoding: `float32`, `bfloat16`, ...
        tokenizer_path: where the tokenizer is, None for `model_path`.
        trust_remote_code: whether code of the model's repository may run.
        tensor_parallel_size: processes to split the tensors over, where the user does not say.
    """

    model_path: str | Path
    encoding: str
    tokenizer_path: str | Path | None = None
    trust_remote_code: bool = False
    tensor_parallel_size: int = 1

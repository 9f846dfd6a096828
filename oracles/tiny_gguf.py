"""Oracles of tiny GGUF files: MAX runs the blocks, Torch exactly what they dequantise to."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from oracles.generic_oracle import DEQUANTISED
from oracles.made_checkpoint import MadeCheckpointOracle
from oracles.oracle import PipelineOracle
from oracles.tiny_random import PREFIX
from test_common.pipelines import TorchModelAndDataProcessor, VLLMPipeline
from test_common.tiny_checkpoints import GGUF_ENCODINGS, ensure_tiny_gguf, gguf_file_name

_MAX_LENGTH = 512


class TinyGgufOracle(MadeCheckpointOracle):
    """A folder with a GGUF file for MAX and the dequantised weights for Torch."""

    def create_torch_pipeline(self, *, encoding: str, device: Any) -> TorchModelAndDataProcessor:
        """Build the dequantised model; see `PipelineOracle`."""
        dequantised = DEQUANTISED.get(encoding, encoding)
        return super().create_torch_pipeline(encoding=dequantised, device=device)

    def create_vllm_pipeline(self, *, encoding: str, device_specs: Sequence[Any]) -> VLLMPipeline:
        """Say that vLLM has to load the dequantised model; see `PipelineOracle`."""
        dequantised = DEQUANTISED.get(encoding, encoding)
        return super().create_vllm_pipeline(encoding=dequantised, device_specs=device_specs)


def tiny_gguf_oracles() -> dict[str, PipelineOracle]:
    """Return the oracles, `tiny-random/llama-<encoding>` each."""
    oracles = (_oracle(encoding) for encoding in GGUF_ENCODINGS)
    return {oracle.key: oracle for oracle in oracles}


def _oracle(encoding: str) -> TinyGgufOracle:
    return TinyGgufOracle(
        f"{PREFIX}llama-{encoding}",
        make=partial(ensure_tiny_gguf, encoding),
        # float32 is the dequantised checkpoint on MAX too.
        device_encoding_map={"cpu": (encoding, "float32")},
        weight_path_map={encoding: gguf_file_name(encoding)},
        config_params={"max_length": _MAX_LENGTH},
    )

"""Builds the model that is replayed: the Hugging Face reference of an oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comparison.schema.errors import EngineError
from oracles.oracle import PipelineOracle
from test_common.debug_options import DebugOptions
from test_common.debug_run import debug_context, resolve_device
from test_common.oracle_errors import checked_result, oracle_errors
from test_common.pipelines import TorchModelAndDataProcessor
from test_common.progress import stage

if TYPE_CHECKING:
    import torch

ENCODER_TASK = "EMBEDDINGS_GENERATION"


def build_reference(
    oracle: PipelineOracle, options: DebugOptions, *, encoding: str
) -> torch.nn.Module:
    """Build the reference with the layers and configuration of a run.

    Args:
        oracle: builds the model.
        options: of the run that it is held against.
        encoding: the run's encoding.

    Raises:
        EngineError: the model cannot be built.
    """
    import torch

    device = resolve_device(options.device, framework="torch")
    with (
        stage("building the reference on Torch for the replay"),
        debug_context(oracle, options),
        oracle_errors(oracle, "create_torch_pipeline"),
    ):
        built: Any = checked_result(
            oracle,
            "create_torch_pipeline",
            oracle.create_torch_pipeline(encoding=encoding, device=device),
            TorchModelAndDataProcessor,
        )
    if not isinstance(built.model, torch.nn.Module):
        raise EngineError(f"{oracle.label}: the reference is no torch.nn.Module")
    return built.model.eval()

"""Builds the model that is replayed: the Hugging Face reference of an oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comparison.schema.errors import EngineError
from diagnosis.replay.model_size import require_size_of_files
from oracles.oracle import PipelineOracle
from test_common.debug_context import debug_context
from test_common.debug_options import DebugOptions
from test_common.oracle_errors import checked_result, oracle_errors
from test_common.pipelines import TorchModelAndDataProcessor
from test_common.progress import stage
from test_common.run_device import resolve_device
from test_common.streamed_model import streamed_weights

if TYPE_CHECKING:
    import torch

ENCODER_TASK = "EMBEDDINGS_GENERATION"
# Engines pool inside of their model, transformers outside: the reference gets this output as well.
EMBEDDING = "embedding"


def build_reference(
    oracle: PipelineOracle, options: DebugOptions, *, encoding: str, stream: bool = False
) -> torch.nn.Module:
    """Build the reference with the layers and configuration of a run.

    Args:
        oracle: builds the model.
        options: of the run that it is held against.
        encoding: the run's encoding.
        stream: whether its weights stay in their files, whatever the run did.

    Raises:
        EngineError: the model cannot be built.
        BadInputError: overrides of its configuration make it far larger than its files.
    """
    import torch

    require_size_of_files(oracle, options)
    device = resolve_device(options.device, framework="torch")
    with (
        stage("building the reference on Torch for the replay"),
        debug_context(oracle, options),
        streamed_weights(wanted=stream or options.stream),
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
    if oracle.task_name == ENCODER_TASK and oracle.config_params.get("pool_embeddings", True):
        built.model.register_forward_hook(_with_embedding)
    return built.model.eval()


def _with_embedding(module: torch.nn.Module, inputs: Any, output: Any) -> None:
    """Add the mean over a row's tokens to what an encoder gives of rows without padding.

    Args:
        module: the encoder.
        inputs: what it was given.
        output: what it gives; a `ModelOutput` with the last hidden state [B, S, H] gets
            `EMBEDDING`, [B, H].
    """
    del module, inputs
    hidden = getattr(output, "last_hidden_state", None)
    if hidden is not None and hasattr(output, "__setitem__"):
        output[EMBEDDING] = hidden.mean(dim=1)

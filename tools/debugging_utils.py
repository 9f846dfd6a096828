"""The documented place of the functions behind debug_model; each is imported on first use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from test_common.local_transformers import offer_local_transformers

if TYPE_CHECKING:
    from oracles.oracle import PipelineOracle
    from test_common.config_overrides import apply_hf_config_override, create_layer_overrides
    from test_common.debug_context import debug_context
    from test_common.debug_options import DebugOptions
    from test_common.debug_run import run_debug_model
    from test_common.intermediate_tensors import NamedTensors, TensorPair
    from test_common.max_builder import apply_max_hooks

__all__ = [
    "DebugOptions",
    "apply_hf_config_override",
    "apply_max_hooks",
    "create_layer_overrides",
    "debug_context",
    "get_torch_testdata",
    "load_intermediate_tensors",
    "run_debug_model",
]

_HOMES = {
    "DebugOptions": "test_common.debug_options",
    "apply_hf_config_override": "test_common.config_overrides",
    "apply_max_hooks": "test_common.max_builder",
    "create_layer_overrides": "test_common.config_overrides",
    "debug_context": "test_common.debug_context",
    "run_debug_model": "test_common.debug_run",
}


def __getattr__(name: str) -> Any:
    """Import a name from where it lives."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    offer_local_transformers()
    return getattr(importlib.import_module(_HOMES[name]), name)


def load_intermediate_tensors(
    model: str | PipelineOracle,
    framework: str,
    output_dir: Path | str,
    device_type: str = "default",
    encoding_name: str | None = None,
    **options: Any,
) -> NamedTensors:
    """Run a pipeline on an engine, and load every tensor of its dump.

    Args:
        model: a key of `PIPELINE_ORACLES`, a Hub id, a local folder, or an oracle.
        framework: the engine, as `--framework` takes it.
        output_dir: the dump folder; it stays.
        device_type: `default`, `cpu`, `gpu` or `gpu:<index>`.
        encoding_name: weights' encoding, or None for the pipeline's first on that device.
        **options: further fields of `DebugOptions`, such as `num_hidden_layers` (1 by default),
            `num_steps`, `prompts` or `overwrite`.

    Returns:
        Name to Torch tensor on the CPU, in order of execution. Tensors of step 0 go by the names
        that the hook wrote, those of later steps by `<step>/<name>`.

    Raises:
        UnknownPipelineError: there is no such model.
        BadInputError: the options do not fit, or the folder is in use.
        CaptureError: the run captured nothing.
        EngineError: the engine cannot build or run the model.
    """
    from test_common import intermediate_tensors

    oracle, name = _oracle(model)
    return intermediate_tensors.load_intermediate_tensors(
        oracle, framework, output_dir, device_type, encoding_name, pipeline=name, **options
    )


def get_torch_testdata(
    model: str | PipelineOracle,
    module_name: str,
    output_dir: Path | str | None = None,
    device_type: str = "default",
    encoding_name: str | None = None,
    **options: Any,
) -> TensorPair:
    """Run the Torch model, and return the input and the output of one of its modules.

    Args:
        model: a key of `PIPELINE_ORACLES`, a Hub id, a local folder, or an oracle.
        module_name: as in the dump (`model.model.layers.0.mlp`) or as in `named_modules()`
            (`model.layers.0.mlp`); where both exist, the dump's name counts.
        output_dir: where the dump is to stay; None throws it away.
        device_type: `default`, `cpu`, `gpu` or `gpu:<index>`.
        encoding_name: weights' encoding, or None for the pipeline's first on that device.
        **options: further fields of `DebugOptions`.

    Returns:
        The first tensor among the arguments and the first among the results of the module's first
        call in the prefill.

    Raises:
        UnknownModuleError: there is no such module, with the nearest names; or it took or gave
            no tensor.
        BadInputError, CaptureError, EngineError: as `load_intermediate_tensors`.
    """
    from test_common import intermediate_tensors

    oracle, name = _oracle(model)
    return intermediate_tensors.get_torch_testdata(
        oracle, module_name, output_dir, device_type, encoding_name, pipeline=name, **options
    )


def _oracle(model: str | PipelineOracle) -> tuple[PipelineOracle, str]:
    """Return an oracle and what to call it."""
    offer_local_transformers()
    if isinstance(model, str):
        from oracles.registry import find_oracle

        return find_oracle(model), model
    from oracles.oracle_check import checked_oracle

    oracle = checked_oracle(model)
    return oracle, oracle.label

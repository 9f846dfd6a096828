"""The faults planted in vLLM, and a run in which nothing is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from test_common import capture_vllm
from test_common.patching import patched
from tests.faults.engines.case import EngineCase, Origin, Planting
from tests.faults.pair import Place

_MODULE = "tests.faults.engines.planted_vllm"
# Bazel puts the program beside this file.
_PROGRAM = Path(__file__).absolute().with_name("planted_vllm_worker")


def planted(plant: str) -> Planting:
    """Start the worker that plants a fault in itself, instead of the usual one.

    Args:
        plant: a name in `vllm_plants.PLANTS`.
    """

    def put() -> AbstractContextManager[object]:
        usual = capture_vllm.vllm_command
        return patched(
            capture_vllm,
            "vllm_command",
            lambda: planted_command(usual(), plant),
            missing_api="none, a fault is planted",
            remove_when="the faulty run is over",
        )

    return put


def planted_command(usual: Sequence[str], plant: str, *, program: Path = _PROGRAM) -> list[str]:
    """Return the command of the worker that plants a fault.

    Args:
        usual: the command of the usual worker.
        plant: name of the fault.
        program: the program that Bazel made of the worker.
    """
    if program.is_file():
        return [*usual[:-1], str(program), plant]
    return [*usual[:-1], _MODULE, plant]


def _core(layer: int) -> tuple[str, str]:
    """Name vLLM's tensors at both ends of what attention does between its projections."""
    attention = f"model.model.layers.{layer}.self_attn"
    return f"{attention}.qkv_proj-output_0", f"{attention}.o_proj-input_0"


PLANTED: tuple[EngineCase, ...] = (
    EngineCase(
        name="vllm/qwen3/rope_pairs_neighbours",
        engine="vllm",
        arch="qwen3",
        modules=("model.model.layers.0.self_attn",),
        between=_core(0),
        cause="rope_layout",
        plant=planted("rope_pairs_neighbours"),
    ),
    EngineCase(
        name="vllm/llama/gelu_for_silu",
        engine="vllm",
        arch="llama",
        modules=("model.model.layers.0.mlp",),
        between=(
            "model.model.layers.0.mlp.gate_up_proj-output_0",
            "model.model.layers.0.mlp.down_proj-input_0",
        ),
        cause="activation",
        plant=planted("gelu_for_silu"),
    ),
    EngineCase(
        name="vllm/qwen2/no_keys_of_decoded_tokens",
        engine="vllm",
        arch="qwen2",
        modules=("model.model.layers.1.self_attn",),
        between=_core(1),
        cause="decode_cache",
        place=Place(step=1, row=0),
        plant=planted("no_keys_of_decoded_tokens"),
    ),
)

CLEAN: tuple[EngineCase, ...] = (
    EngineCase(name="vllm/llama/clean", engine="vllm", arch="llama", origin=Origin.NONE),
)

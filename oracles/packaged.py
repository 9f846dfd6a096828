"""Oracles of real weights that Python packages carry (requirements/weights.txt)."""

from functools import partial

from oracles.catalogue import run_as
from oracles.made_checkpoint import MadeCheckpointOracle
from oracles.oracle import PipelineOracle
from test_common.packaged_weights import ensure_packaged_checkpoint

PREFIX = "packaged/"
_ENCODINGS = {"cpu": ("float32", "bfloat16"), "gpu": ("bfloat16", "float32")}
_ARCHITECTURES = {
    "gemma3-270m": "Gemma3ForCausalLM",
    "smollm2-135m": "LlamaForCausalLM",
    "all-minilm-l6-v2": "BertModel",
}


def packaged_oracles() -> dict[str, PipelineOracle]:
    """Return the oracles, `packaged/<model>` each."""
    return {PREFIX + name: _oracle(name, arch) for name, arch in _ARCHITECTURES.items()}


def _oracle(name: str, architecture: str) -> MadeCheckpointOracle:
    how = run_as([architecture])
    return MadeCheckpointOracle(
        PREFIX + name,
        make=partial(ensure_packaged_checkpoint, name),
        device_encoding_map=_ENCODINGS,
        config_params={"max_length": 512},
        task=how.task,
        max_cpu_patches=how.max_cpu_patches,
    )

"""What an architecture, as config.json names it, says about how to run it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Names of patches in test_common/max_cpu_patches.py.
WIDEN_CPU_ENCODINGS = "widen_cpu_encodings"
SINGLE_DEVICE_SIGNALS = "single_device_signals"
FLOAT32_NORM_WEIGHTS = "float32_norm_weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """How to run an architecture.

    Attributes:
        task: name of the pipeline task.
        max_cpu_patches: names of the patches that MAX needs to run it on a CPU.
    """

    task: str = "TEXT_GENERATION"
    max_cpu_patches: tuple[str, ...] = ()


_ENCODER = Traits(task="EMBEDDINGS_GENERATION")

TRAITS: Mapping[str, Traits] = {
    "BertModel": _ENCODER,
    "BertForMaskedLM": _ENCODER,
    "MPNetModel": _ENCODER,
    "MPNetForMaskedLM": _ENCODER,
    "MistralForCausalLM": Traits(max_cpu_patches=(WIDEN_CPU_ENCODINGS,)),
    "Olmo3ForCausalLM": Traits(max_cpu_patches=(WIDEN_CPU_ENCODINGS,)),
    "Qwen3ForCausalLM": Traits(max_cpu_patches=(SINGLE_DEVICE_SIGNALS,)),
    "Gemma3ForCausalLM": Traits(
        max_cpu_patches=(WIDEN_CPU_ENCODINGS, SINGLE_DEVICE_SIGNALS, FLOAT32_NORM_WEIGHTS)
    ),
}


def traits_of(architectures: Sequence[str]) -> Traits:
    """Return the traits of the first architecture that has any, else those of a plain decoder."""
    return next((TRAITS[name] for name in architectures if name in TRAITS), Traits())

"""One entry of the catalogue: an architecture that MAX registers, and how to run it."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

# Names of patches in test_common/max_cpu_patches.py.
WIDEN_CPU_ENCODINGS = "widen_cpu_encodings"
SINGLE_DEVICE_SIGNALS = "single_device_signals"
FLOAT32_NORM_WEIGHTS = "float32_norm_weights"
CPU_DEVICE_REFS = "cpu_device_refs"
FLOAT32_PICTURES = "float32_pictures"

TEXT_GENERATION = "TEXT_GENERATION"
EMBEDDINGS_GENERATION = "EMBEDDINGS_GENERATION"
V3_SUFFIX = "_ModuleV3"

# MAX's names of encodings.
BF16 = "bfloat16"
F32 = "float32"
F16 = "float16"
FP8 = "float8_e4m3fn"
FP4 = "float4_e2m1fnx2"

_CPU_ENCODINGS = (F32, BF16)  # MAX lists bfloat16 for GPUs only: a patch adds it
_BLOCK_ENCODINGS = ("q4_k", "q4_0", "q6_k")  # MAX runs these on CPUs only


class Status(StrEnum):
    """What was seen of an architecture on MAX, with debug_model on a tiny checkpoint on the CPU."""

    RUNS = "runs"
    RUNS_WITH_PATCHES = "runs with patches"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """How to run an architecture.

    Attributes:
        name: as MAX registers it, and mostly as a model's config.json has it.
        example: Hub id of a model, None where it is no model of its own.
        encodings: what MAX supports, those of the example's own weights first.
        module_v3: what MAX supports in its ModuleV3 variant, empty where there is none.
        module_v3_status: what was seen of that variant.
        module_v3_example: Hub id for it, where that is not `example`.
        task: name of the pipeline task.
        status: what was seen on MAX.
        max_length: greatest number of tokens, far below the model's own to save memory.
        trust_remote_code: whether the repository's own code has to run.
        revision: the example's revision, None for its latest.
        max_cpu_patches: names of the patches that MAX needs to run it on a CPU.
        gpu_only: whether it has no encoding for a CPU although MAX lists float32.
        reads_pictures: whether it takes pictures too.
        oracle_class: name in oracles/multimodal.py of what prepares its pictures, None where
            nothing does.
        no_oracle: why debug_model cannot run it, None where it can.
        speculates_on: the architecture of the target of a speculative pair, which `example` is a
            model of; None for all others.
    """

    name: str
    example: str | None
    encodings: tuple[str, ...]
    module_v3: tuple[str, ...] = ()
    module_v3_status: Status = Status.NOT_RUN
    module_v3_example: str | None = None
    task: str = TEXT_GENERATION
    status: Status = Status.NOT_RUN
    max_length: int = 8192
    trust_remote_code: bool = False
    revision: str | None = None
    max_cpu_patches: tuple[str, ...] = ()
    gpu_only: bool = False
    reads_pictures: bool = False
    oracle_class: str | None = None
    no_oracle: str | None = None
    speculates_on: str | None = None

    @property
    def device_encoding_map(self) -> dict[str, tuple[str, ...]]:
        """Return the encodings of each kind of device, the default one first.

        A CPU is listed where MAX lists float32 or a patch makes it run; blocks of GGUF where MAX
        lists them.
        """
        on_gpu = tuple(name for name in self.encodings if name not in _BLOCK_ENCODINGS)
        blocks = tuple(name for name in self.encodings if name in _BLOCK_ENCODINGS)
        on_cpu = not self.gpu_only and (F32 in self.encodings or bool(self.max_cpu_patches))
        # A bfloat16-only architecture is debugged in float32 where its patches allow that.
        return {**({"cpu": (*_CPU_ENCODINGS, *blocks)} if on_cpu else {}), "gpu": on_gpu}

    @property
    def config_params(self) -> dict[str, Any]:
        """Return the parameters for the engine, as `GenericOracle` takes them."""
        params: dict[str, Any] = {"max_length": self.max_length}
        if self.trust_remote_code:
            params["trust_remote_code"] = True
        if self.revision is not None:
            params["huggingface_model_revision"] = self.revision
        return params

    def variant_v3(self) -> "Architecture":
        """Return the entry of the ModuleV3 variant, which `--prefer-module-v3` chooses."""
        return replace(
            self,
            name=self.name + V3_SUFFIX,
            example=self.module_v3_example or self.example,
            module_v3_example=None,
            encodings=self.module_v3,
            module_v3=(),
            status=self.module_v3_status,
            module_v3_status=Status.NOT_RUN,
            max_cpu_patches=(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculator:
    """What MAX derives from a target by adding a draft of future tokens.

    Attributes:
        name: as MAX names the pair.
        target: name of the architecture that it speculates on.
        drafts: architectures of the draft models that select it; empty where the draft is part of
            the target's checkpoint.
        example: Hub id of a target that MAX names for it, None for the target's own.
    """

    name: str
    target: str
    drafts: tuple[str, ...] = ()
    example: str | None = None

    def derived(self, target: Architecture) -> Architecture:
        """Return the entry, with all that the target says and this does not."""
        return replace(
            target,
            name=self.name,
            example=self.example or target.example,
            module_v3=(),
            no_oracle=SPECULATES,
            oracle_class=None,
            speculates_on=self.target,
        )


SPECULATES = "it guesses tokens ahead with a draft model: debug_model runs the target alone"
IS_DRAFT = "it is the draft half of a speculative pair: debug_model runs the target alone"
MAKES_PICTURES = "it makes pictures: debug_model runs text generation and embeddings"
MAKES_SOUND = "it makes sound: debug_model runs text generation and embeddings"
WRITES_BLOCKS = "it denoises blocks of tokens: debug_model runs one token a step"

"""Catalogue: drafts and speculative pairs, which no oracle serves."""

from oracles.catalogue_entry import (
    BF16,
    F32,
    FP4,
    FP8,
    IS_DRAFT,
    SPECULATES,
    Architecture,
    Speculator,
)

_FLOATS = (BF16, F32)


def _draft(name: str, example: str, encodings: tuple[str, ...]) -> Architecture:
    return Architecture(name=name, example=example, encodings=encodings, no_oracle=IS_DRAFT)


def _pair(
    name: str,
    example: str,
    encodings: tuple[str, ...],
    *,
    target: str,
    module_v3: tuple[str, ...] = (),
) -> Architecture:
    return Architecture(
        name=name,
        example=example,
        encodings=encodings,
        module_v3=module_v3,
        no_oracle=SPECULATES,
        speculates_on=target,
    )


DRAFTS = (
    _draft("DFlashDraftModel", "z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat", _FLOATS),
    _draft("DFlash2DraftModel", "z-lab/Qwen3.8-27B-DFlash2", _FLOATS),
    _draft("DSparkDraftModel", "RedHatAI/gemma-4-31B-it-speculator.dspark", (BF16,)),
    _draft("DeepseekV3ForCausalLMNextN", "SGLang/DeepSeek-V3-NextN", (BF16, FP8, FP4)),
    _draft("Gemma4AssistantForCausalLM", "google/gemma-4-31B-it-assistant", (BF16,)),
    _draft("Gemma4DSparkModel", "deepseek-ai/dspark_gemma4_12b_block7", (BF16,)),
    _draft("LlamaForCausalLMEagle", "lmsys/sglang-EAGLE-LLaMA3-Instruct-8B", _FLOATS),
    _draft("LlamaForCausalLMEagle3", "modularai/kimi-k2.5-eagle3", _FLOATS),
    _draft(
        "Qwen3DSparkModel",
        "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4-DSpark",
        (BF16, FP4),
    ),
)

_GEMMA4 = "Gemma4ForConditionalGeneration"
_KIMI = "KimiK25ForConditionalGeneration"
_LLAMA = "LlamaForCausalLM"
_QWEN3_5 = "Qwen3_5ForConditionalGeneration"
_LLAMA_EXAMPLE = "meta-llama/Llama-3.2-3B-Instruct"
_KIMI_EXAMPLE = "nvidia/Kimi-K2.5-NVFP4"
_QWEN3_5_EXAMPLE = "RadixArk/Qwen3.8-27B-NVFP4"
_GEMMA4_EXAMPLE = "google/gemma-4-31B-it"
_ALL_FLOATS = (FP4, BF16, F32, FP8)
_KIMI_FLOATS = (FP4, BF16, FP8)

PAIRS = (
    _pair("Eagle3DeepseekV2ForCausalLM", _KIMI_EXAMPLE, _KIMI_FLOATS, target=_KIMI),
    _pair("Eagle3MHAKimiK25ForCausalLM", _KIMI_EXAMPLE, _KIMI_FLOATS, target=_KIMI),
    _pair(
        "UnifiedDSparkGemma4_12BForCausalLM",
        "google/gemma-4-12B-it",
        (BF16,),
        target="Gemma4UnifiedForConditionalGeneration",
    ),
    _pair("UnifiedDSparkGemma4_31BForCausalLM", _GEMMA4_EXAMPLE, (BF16, FP4), target=_GEMMA4),
    # It has no other variant than this.
    _pair(
        "UnifiedDSparkNemotronHForCausalLM_ModuleV3",
        "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16",
        (BF16, FP4),
        target="NemotronHForCausalLM",
    ),
    _pair(
        "UnifiedDflash2Qwen3_5ForConditionalGeneration",
        _QWEN3_5_EXAMPLE,
        _ALL_FLOATS,
        target=_QWEN3_5,
    ),
    _pair("UnifiedDflashGemma4_31BForCausalLM", _GEMMA4_EXAMPLE, (BF16, FP4), target=_GEMMA4),
    _pair("UnifiedDflashKimiK25ForCausalLM", _KIMI_EXAMPLE, _KIMI_FLOATS, target=_KIMI),
    _pair("UnifiedDflashLlama3ForCausalLM", _LLAMA_EXAMPLE, _FLOATS, target=_LLAMA),
    _pair("UnifiedEagleLlama3ForCausalLM", _LLAMA_EXAMPLE, _FLOATS, target=_LLAMA),
    _pair(
        "UnifiedMTPGemma4ForCausalLM",
        _GEMMA4_EXAMPLE,
        (BF16, FP4),
        target=_GEMMA4,
        module_v3=(BF16, FP4),
    ),
    _pair(
        "UnifiedMTPGlmMoeDsaForCausalLM",
        "zai-org/GLM-5.2-FP8",
        (FP8, BF16, FP4),
        target="GlmMoeDsaForCausalLM",
        module_v3=(FP8, BF16, FP4),
    ),
    _pair(
        "UnifiedMTPInklingForConditionalGeneration",
        "thinkingmachines/Inkling",
        (BF16, FP4),
        target="InklingForConditionalGeneration",
    ),
    _pair(
        "UnifiedMTPQwen3_5ForConditionalGeneration",
        _QWEN3_5_EXAMPLE,
        _ALL_FLOATS,
        target=_QWEN3_5,
    ),
)

SPECULATORS = (
    Speculator(
        name="Eagle3DeepseekV3ForCausalLM",
        target="DeepseekV3ForCausalLM",
        drafts=("Eagle3DeepseekV2ForCausalLM",),
        example="austinpowers/Kimi-K2.5-NVFP4-DeepseekV3",
    ),
    Speculator(
        name="Eagle3MHADeepseekV3ForCausalLM",
        target="DeepseekV3ForCausalLM",
        drafts=("LlamaForCausalLMEagle3",),
        example="austinpowers/Kimi-K2.5-NVFP4-DeepseekV3",
    ),
    Speculator(name="UnifiedMTPDeepseekV3ForCausalLM", target="DeepseekV3ForCausalLM"),
    # One speculator, of drafts under either name.
    Speculator(
        name="UnifiedDflashMiMoV2ForCausalLM",
        target="MiMoV2ForCausalLM",
        drafts=("DFlashDraftModel", "LlamaForCausalLM"),
    ),
    Speculator(name="UnifiedDSparkDeepseekV4ForCausalLM", target="DeepseekV4ForCausalLM"),
)

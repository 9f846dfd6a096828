"""Models of the Hugging Face Hub, as data."""

from dataclasses import dataclass

from oracles.architectures import traits_of
from oracles.generic_oracle import GenericOracle
from oracles.oracle import PipelineOracle


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """One entry.

    Attributes:
        architecture: what the model's config.json names.
        max_length: greatest number of tokens, far below the model's own to save memory.
        apply_chat_template: whether the default prompts go through the chat template.
        trust_remote_code: whether the repository's own code has to run.
    """

    architecture: str
    max_length: int = 8192
    apply_chat_template: bool = False
    trust_remote_code: bool = False


_ENCODINGS = {"cpu": ("float32", "bfloat16"), "gpu": ("bfloat16", "float32")}

_LLAMA = HubModel(architecture="LlamaForCausalLM")
_QWEN2 = HubModel(architecture="Qwen2ForCausalLM")
_QWEN3 = HubModel(architecture="Qwen3ForCausalLM")
_GEMMA3 = HubModel(architecture="Gemma3ForCausalLM")
_MISTRAL = HubModel(architecture="MistralForCausalLM")
_GRANITE = HubModel(architecture="GraniteForCausalLM")

HUB_MODELS: dict[str, HubModel] = {
    "HuggingFaceTB/SmolLM2-135M": _LLAMA,
    "HuggingFaceTB/SmolLM2-360M-Instruct": _LLAMA,
    "LiquidAI/LFM2-350M": HubModel(architecture="Lfm2ForCausalLM", trust_remote_code=True),
    "Qwen/Qwen2.5-0.5B-Instruct": _QWEN2,
    "Qwen/Qwen2.5-1.5B-Instruct": _QWEN2,
    "Qwen/Qwen2.5-7B-Instruct": _QWEN2,
    "Qwen/Qwen3-0.6B": _QWEN3,
    "Qwen/Qwen3-8B": _QWEN3,
    "allenai/OLMo-1B-hf": HubModel(architecture="OlmoForCausalLM", max_length=2048),
    "allenai/OLMo-2-0425-1B": HubModel(architecture="Olmo2ForCausalLM", max_length=4096),
    "google/gemma-3-1b-it": _GEMMA3,
    "google/gemma-3-270m-it": _GEMMA3,
    "ibm-granite/granite-3.1-2b-instruct": _GRANITE,
    "ibm-granite/granite-3.1-8b-instruct": _GRANITE,
    "meta-llama/Llama-3.1-8B-Instruct": _LLAMA,
    "meta-llama/Llama-3.2-1B-Instruct": _LLAMA,
    "microsoft/Phi-3.5-mini-instruct": HubModel(architecture="Phi3ForCausalLM"),
    "microsoft/Phi-4-mini-instruct": HubModel(architecture="Phi3ForCausalLM"),
    "mistralai/Mistral-7B-Instruct-v0.3": _MISTRAL,
    "mistralai/Mistral-Nemo-Instruct-2407": _MISTRAL,
    "sentence-transformers/all-MiniLM-L6-v2": HubModel(architecture="BertModel", max_length=512),
    "sentence-transformers/all-mpnet-base-v2": HubModel(
        architecture="MPNetForMaskedLM", max_length=512
    ),
}


def hub_model_oracles() -> dict[str, PipelineOracle]:
    """Return one oracle a model, by Hub id."""
    return {name: _oracle(name, model) for name, model in HUB_MODELS.items()}


def _oracle(name: str, model: HubModel) -> GenericOracle:
    traits = traits_of([model.architecture])
    trust = {"trust_remote_code": True} if model.trust_remote_code else {}
    return GenericOracle(
        name,
        device_encoding_map=_ENCODINGS,
        config_params={"max_length": model.max_length, **trust},
        apply_chat_template=model.apply_chat_template,
        task=traits.task,
        max_cpu_patches=traits.max_cpu_patches,
    )
